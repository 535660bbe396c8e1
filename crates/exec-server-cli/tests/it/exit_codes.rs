//! Exit codes.

use std::os::unix::fs::PermissionsExt;

use super::support::{code, exec_server, finish, run, run_shell, stderr, stdout};

#[test]
fn the_childs_code_is_ours() {
    for wanted in [0, 1, 3, 42, 255] {
        assert_eq!(code(&run_shell(&format!("exit {wanted}"))), wanted);
    }
}

#[test]
fn a_signal_is_told_as_128_and_its_number() {
    for (name, wanted) in [("KILL", 137), ("TERM", 143), ("INT", 130), ("HUP", 129)] {
        assert_eq!(code(&run_shell(&format!("kill -{name} $$"))), wanted, "{name}");
    }
}

#[test]
fn a_program_that_is_not_there_is_127_and_says_so() {
    let output = run(&["--", "no-such-program-anywhere"]);
    assert_eq!((code(&output), stdout(&output)), (127, ""));
    let said =
        "exec-server: program \"no-such-program-anywhere\" was not found: give its full path, or a PATH that has it\n";
    assert_eq!(stderr(&output), said);
}

#[test]
fn a_program_that_cannot_be_executed_is_126() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "text").expect("the folder is ours");
    for path in [plain.as_path(), folder.path()] {
        let output = run(&["--", path.to_str().expect("a plain path")]);
        assert_eq!(code(&output), 126, "{path:?}");
        assert!(stderr(&output).contains("is not executable"), "{}", stderr(&output));
    }
}

#[test]
fn a_script_without_its_interpreter_is_not_called_missing() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").expect("the folder is ours");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("the file is ours");
    let output = run(&["--", script.to_str().expect("a plain path")]);
    assert_eq!(code(&output), 127);
    assert!(stderr(&output).contains("check its #! line"), "{}", stderr(&output));
}

#[test]
fn our_own_failures_are_125() {
    let missing = run(&["--cwd", "/no/such/folder", "--", "true"]);
    assert_eq!(code(&missing), 125);
    assert_eq!(stderr(&missing), "exec-server: working directory \"/no/such/folder\" does not exist\n");
    assert_eq!(code(&run(&["--no-such-option", "--", "true"])), 125);
    assert_eq!(code(&run(&["--timeout", "soon", "--", "true"])), 125);
    assert_eq!(code(&run(&["--spool", "1K", "--", "true"])), 125);
    assert_eq!(code(&run(&[])), 125);
    assert_eq!(code(&finish(&mut exec_server(&["no-such-command"]))), 2);
}

#[test]
fn a_time_limit_ends_the_tree_with_124_and_keeps_what_was_printed() {
    let output = run(&["--timeout", "200ms", "--", "sh", "-c", "echo before; sleep 1000; echo after"]);
    assert_eq!((code(&output), stdout(&output)), (124, "before\n"));
    assert_eq!(stderr(&output), "exec-server: sh: ended after 200ms, its time limit\n");
}

#[test]
fn a_child_that_ignores_term_is_killed_after_the_grace() {
    let script = "trap '' TERM; echo before; while :; do sleep 1000; done";
    let output = run(&["--quiet", "--timeout", "200ms", "--grace", "100ms", "--", "sh", "-c", script]);
    assert_eq!((code(&output), stdout(&output), stderr(&output)), (124, "before\n", ""));
}

#[test]
fn a_child_that_takes_its_leave_within_the_grace_is_still_124() {
    let script = "trap 'echo bye; exit 0' TERM; echo before; while :; do sleep 0.05; done";
    let output = run(&["-q", "--timeout", "300ms", "--grace", "1h", "--", "sh", "-c", script]);
    assert_eq!((code(&output), stdout(&output)), (124, "before\nbye\n"));
}
