//! docker, podman and kubectl, by stand-ins of their names that run the command in a namespace with a home of its own. No real
//! engine is here.

use exec_testkit::far::{Far, code, stderr, stdout};

/// Checks the words that the real program would need, then runs the rest in namespaces of its own.
fn stand_in(far: &Far, name: &str, expected: &str) {
    let script = format!(
        "case \"$*\" in \"{expected} sh -c \"*) ;; *) echo \"unexpected words: $*\" >&2; exit 1 ;; esac\n\
         shift $(echo {expected} | wc -w)\n\
         exec env -i HOME={} PATH=/usr/bin:/bin unshare -r -m -u sh -c 'hostname inside; exec \"$@\"' sh \"$@\"",
        far.home().display()
    );
    far.add_program("client", name, &script);
}

#[test]
fn a_container_is_a_place_like_a_host() {
    let far = Far::empty();
    stand_in(&far, "docker", "exec -i web");
    let ran = far.finish_with_input(&["ssh", "docker:web", "--", "sh", "-c", "hostname; cat; exit 3"], b"input");
    assert_eq!((stdout(&ran), code(&ran)), ("inside\ninput", 3), "{ran:?}");
    stand_in(&far, "podman", "exec -i -u me db");
    let ran = far.finish(&["run", "--connect", "podman://me@db", "--", "echo", "podman"]);
    assert_eq!(stdout(&ran), "podman\n", "{ran:?}");
    stand_in(&far, "kubectl", "exec -i -n dev -c main pod --");
    let ran = far.finish(&["run", "--connect", "kubectl://pod/main?namespace=dev", "--", "echo", "kubectl"]);
    assert_eq!(stdout(&ran), "kubectl\n", "{ran:?}");
}

#[test]
fn a_container_that_is_not_there_is_told_in_its_engines_words() {
    let far = Far::empty();
    far.add_program("client", "docker", "echo \"Error response from daemon: No such container: web\" >&2; exit 1");
    let failed = far.finish(&["ssh", "docker:web", "--", "true"]);
    assert_eq!(code(&failed), 125);
    let told = stderr(&failed);
    assert!(told.contains("exit code 1: Error response") && told.contains("`docker exec web true`"), "{told}");
}

#[test]
fn a_program_that_is_not_installed_is_named() {
    let far = Far::empty();
    let mut command = far.client(&["ssh", "kubectl:pod", "--", "true"]);
    let failed = command.env("PATH", far.path("client")).output().expect("the binary can be started");
    assert!(stderr(&failed).contains("`kubectl` is not on the PATH here"), "{failed:?}");
}
