//! How the binary gets there: once, whole, verified, and only where it can run.

use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use exec_testkit::far::{Far, FarOptions, binary, code, read_until, stderr, stdout};

#[test]
fn the_binary_is_sent_once_and_one_that_was_damaged_is_replaced() {
    let far = Far::empty();
    let cached = far.cached_binary();
    assert_eq!(stdout(&far.shell("echo first")), "first\n");
    let sent = std::fs::metadata(&cached).expect("it was sent");
    assert_eq!(sent.mode() & 0o777, 0o700);
    assert_eq!(stdout(&far.shell("echo second")), "second\n");
    assert_eq!(std::fs::metadata(&cached).expect("it is there").ino(), sent.ino(), "it was sent again");

    // The same length, other bytes. The server runs, and must not hide it; nor may its file be changed under it.
    let mut bytes = std::fs::read(&cached).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0xff);
    std::fs::remove_file(&cached).expect("ours");
    std::fs::write(&cached, &bytes).expect("ours");
    std::fs::set_permissions(&cached, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("ours");
    assert_eq!(stdout(&far.shell("echo third")), "third\n");
    assert!(std::fs::read(&cached).expect("it is there") == std::fs::read(binary()).expect("ours"), "it is not whole");
    let names: Vec<_> = std::fs::read_dir(cached.parent().expect("a folder")).expect("there").flatten().collect();
    assert_eq!(names.len(), 1, "something is left: {names:?}");
}

#[test]
fn whoever_waits_at_a_terminal_is_told_how_much_was_sent() {
    let far = Far::empty();
    let gate = far.path("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().expect("coreutils are there").success());
    // The far side takes what is sent only when it is let.
    far.add_program("bin", "head", &format!("read let < {}; exec /usr/bin/head \"$@\"", gate.display()));
    // `run --tty` gives the client a terminal of its own.
    let client = binary().to_str().expect("text");
    let mut command = far.client(&["run", "--tty", "--", client, "ssh", "far", "--", "echo", "brought"]);
    let mut terminal = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary can be started");
    let mut screen = terminal.stdout.take().expect("piped");
    read_until(&mut screen, |seen| seen.contains("sending exec-server there") && seen.contains(" MiB"));
    std::fs::write(&gate, "go\n").expect("somebody reads it");
    read_until(&mut screen, |seen| seen.contains("brought\r\n"));
    drop(terminal.stdin.take());
    assert!(terminal.wait().expect("it is our child").success());
}

#[test]
fn clients_that_come_at_the_same_time_do_not_spoil_each_other() {
    let far = Far::empty();
    let start = |number: usize| {
        let mut command = far.client(&["ssh", "far", "--", "echo", &number.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary can be started")
    };
    let clients: Vec<_> = (0..3).map(start).collect();
    for (number, client) in clients.into_iter().enumerate() {
        let ran = client.wait_with_output().expect("it is our child");
        assert_eq!((stdout(&ran), code(&ran)), (format!("{number}\n").as_str(), 0), "{ran:?}");
    }
    assert_eq!(far.servers().len(), 1);
}

#[test]
fn a_machine_of_another_architecture_is_refused_unless_a_binary_is_there() {
    let programs = &[("uname", "echo Linux riscv64")];
    let far = Far::with(&FarOptions { programs, ..FarOptions::default() });
    let refused = far.shell("echo no");
    assert_eq!((stdout(&refused), code(&refused)), ("", 125));
    let told = stderr(&refused);
    let own = format!("Linux {}", std::env::consts::ARCH);
    assert!(told.contains("that is Linux riscv64") && told.contains(&own) && told.contains("--binary FILE"), "{told}");
    assert!(!far.home().join(".cache/exec-server").exists(), "nothing was written");

    let odd = far.finish(&["ssh", "--binary", "/etc/passwd", "far", "--", "true"]);
    assert!(stderr(&odd).contains("/etc/passwd is no Linux program"), "{odd:?}");

    // Somebody has brought one that runs there.
    far.bring_binary();
    assert_eq!(stdout(&far.shell("echo yes")), "yes\n");
}

#[test]
fn the_same_binary_on_its_path_is_used_where_it_is() {
    let far = Far::empty();
    std::fs::copy(binary(), far.path("bin").join("exec-server")).expect("ours");
    assert_eq!(stdout(&far.shell("echo found")), "found\n");
    assert!(!far.home().join(".cache/exec-server").exists(), "it was sent");
}
