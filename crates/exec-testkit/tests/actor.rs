//! The actor itself, run directly, because every other test relies on it.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

use exec_testkit::os_process::OsProcess;
use exec_testkit::test_data::{Checksum, SeededBytes};

#[test]
fn it_says_what_it_is_told_on_both_streams_and_exits_as_told() {
    let output = run("say hello world ; err oops ; out-raw a ; out-raw b ; exit 3 ; not-a-verb");
    assert_eq!(text(&output.stdout), "hello world\nab");
    assert_eq!(text(&output.stderr), "oops\n");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_mistake_in_its_program_is_told_with_code_64() {
    assert_eq!(run("pirouette").status.code(), Some(64));
    assert_eq!(run("fork [ say x").status.code(), Some(64));
    assert_eq!(run("exit soon").status.code(), Some(64));
}

#[test]
fn a_flood_is_the_pattern_of_its_seed() {
    let output = run("flood stdout 300000 5 9000 ; flood stderr 100001 6 17");
    assert_eq!(output.stdout, SeededBytes::new(5).bytes(300_000));
    assert_eq!(output.stderr, SeededBytes::new(6).bytes(100_001));
}

#[test]
fn it_dies_by_the_signal_it_is_told_as_a_plain_program_would() {
    for signal in [1, 6, 7, 9, 11, 13, 15, 16, 29, 30, 31] {
        let status = run(&format!("signal-self {signal}")).status;
        assert_eq!(status.signal(), Some(signal), "{status}");
    }
}

#[test]
fn it_answers_a_term_and_goes_on_or_exits() {
    let mut child = start("tell-term heard ; say ready ; read-line ; on-term bye ; say again ; wait-forever");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut line = || lines.next().expect("it goes on").expect("readable");
    assert_eq!(line(), "ready");
    signal(&child, rustix::process::Signal::TERM);
    assert_eq!(line(), "heard");
    write_stdin(&mut child, "\n");
    assert_eq!(line(), "again");
    signal(&child, rustix::process::Signal::TERM);
    // Both handlers are registered now; either may run first.
    let last = line();
    assert!(last == "bye" || line() == "bye");
    assert_eq!(child.wait().expect("our child").code(), Some(0));
}

#[test]
fn it_counts_echoes_and_digests_its_stdin() {
    let mut child = start("read-line ; digest");
    write_stdin(&mut child, "first\nthe rest");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("our child");
    let checksum = Checksum::of(b"the rest");
    assert_eq!(text(&output.stdout), format!("8 bytes {checksum}\n"));

    let mut child = start("echo-lines ; cat-count");
    write_stdin(&mut child, "one\ntwo");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("our child");
    assert_eq!(text(&output.stdout), "one\ntwo\n0 bytes\n");
}

#[test]
fn every_kind_of_descendant_is_announced_alive_and_in_its_shape() {
    for kind in ["fork", "setsid", "nohup", "double-fork", "daemonise"] {
        let mut child = start(&format!("{kind} ; say done ; wait-forever"));
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut line = || lines.next().expect("it goes on").expect("readable");
        let descendant = OsProcess::from_pid_line(&line()).expect("a descendant is announced");
        assert_eq!(line(), "done");
        let leader = OsProcess::of(child.id()).expect("not yet waited for");
        let same_session = descendant.session() == leader.session();
        assert_eq!(same_session, !matches!(kind, "setsid" | "daemonise"), "{kind}");
        assert!(descendant.is_present(), "{kind}");
        descendant.signal(rustix::process::Signal::KILL);
        child.kill().expect("our child");
        child.wait().expect("our child");
    }
}

#[test]
fn a_daemon_lets_go_of_the_pipes_and_a_forked_child_does_not() {
    let output = run("daemonise [ sleep 60000 ] ; say over");
    let daemon = OsProcess::from_pid_line(text(&output.stdout).lines().next().expect("announced"));
    // The pipes ended although the daemon lives.
    let daemon = daemon.expect("it is there");
    daemon.signal(rustix::process::Signal::KILL);

    let output = run("fork [ sleep 50 ; say later ] ; say over");
    assert!(text(&output.stdout).ends_with("over\nlater\n"));
    assert_eq!(text(&run("hold-stdout 50 ; say over").stdout), "over\nheld\n");
}

#[test]
fn it_tells_its_environment_and_arguments_exactly() {
    let output = Command::new(env!("CARGO_BIN_EXE_actor"))
        .args(["env", ";", "args"])
        .env_clear()
        .env("A", "1=2")
        .output()
        .expect("it runs");
    let own = env!("CARGO_BIN_EXE_actor");
    assert_eq!(text(&output.stdout), format!("A=1=2\n{own}\nenv\n;\nargs\n"));
}

#[test]
fn it_tells_of_a_descriptor_that_its_parent_let_slip() {
    let (slipped, _other) = rustix::pipe::pipe().expect("a pipe, not close-on-exec");
    let told = text(&run("fds").stdout);
    let numbers: Vec<i32> = told.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(numbers.starts_with(&[0, 1, 2]), "{numbers:?}");
    assert!(numbers.contains(&slipped.as_raw_fd()), "{numbers:?}");
}

#[test]
fn exec_keeps_the_pid_and_close_stdout_silences_only_stdout() {
    let output = run("pid ; exec [ pid ; close-stdout ; say unheard ; err heard ]");
    let told = text(&output.stdout);
    let pids: Vec<&str> = told.lines().collect();
    assert_eq!(pids.len(), 2);
    assert_eq!(pids[0], pids[1]);
    assert_eq!(text(&output.stderr), "heard\n");
}

fn run(script: &str) -> Output {
    actor(script).stdin(Stdio::null()).output().expect("the actor is built with this test")
}

fn start(script: &str) -> Child {
    actor(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the actor is built with this test")
}

fn actor(script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_actor"));
    command.args(script.split_whitespace());
    command
}

fn write_stdin(child: &mut Child, text: &str) {
    let stdin = child.stdin.as_mut().expect("piped");
    stdin.write_all(text.as_bytes()).expect("it listens");
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).expect("our child lives");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the actor speaks ascii")
}
