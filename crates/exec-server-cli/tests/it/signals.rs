//! Signals sent to us. What the shell in a test prints on stderr about its own children is not checked.

use rustix::process::{Signal, WaitOptions, waitpid};

use super::support::{Running, fifo, is_running};

#[test]
fn signals_are_passed_on() {
    for (name, signal) in [
        ("INT", Signal::INT),
        ("TERM", Signal::TERM),
        ("QUIT", Signal::QUIT),
        ("HUP", Signal::HUP),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
    ] {
        let script = format!("trap 'echo got {name}; exit 5' {name}; echo ready; while :; do sleep 0.02; done");
        let mut running = Running::shell(&[], &script);
        assert_eq!(running.line(), "ready");
        running.signal(signal);
        let (out, _, code) = running.end();
        assert_eq!((out, code), (format!("got {name}\n"), 5));
    }
}

#[test]
fn a_signal_that_ends_the_child_is_told_as_a_shell_would() {
    let mut running = Running::shell(&[], "echo ready; exec sleep 1000");
    assert_eq!(running.line(), "ready");
    running.signal(Signal::INT);
    assert_eq!(running.end(), (String::new(), String::new(), 130));
}

#[test]
fn a_child_may_go_on_after_a_signal() {
    let script = "trap 'echo again' INT; echo ready; while :; do sleep 0.02; done";
    let mut running = Running::shell(&[], script);
    assert_eq!(running.line(), "ready");
    for _ in 0..3 {
        running.signal(Signal::INT);
        assert_eq!(running.line(), "again");
    }
    running.signal(Signal::TERM);
    let (out, _, code) = running.end();
    assert_eq!((out.as_str(), code), ("", 143));
}

#[test]
fn a_signal_that_was_ignored_when_we_started_stays_ignored() {
    let binary = env!("CARGO_BIN_EXE_exec-server");
    let child =
        "trap \"echo got HUP\" HUP; trap \"echo got TERM; exit 5\" TERM; echo ready; while :; do sleep 0.02; done";
    let script = format!("trap '' HUP; exec {binary} run -- sh -c '{child}'");
    let mut running = Running::start(std::process::Command::new("sh").args(["-c", &script]));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::HUP);
    running.signal(Signal::TERM);
    let (out, _, code) = running.end();
    assert_eq!((out.as_str(), code), ("got TERM\n", 5));
}

#[test]
fn ctrl_z_stops_the_child_too_and_both_are_resumed() {
    // No loop of commands here: a shell that is stopped in the middle of a vfork is not shown as stopped.
    let mut running = Running::shell(&[], "echo $$; exec sleep 1000");
    let pid = running.line();
    running.signal(Signal::TSTP);
    let stopped = waitpid(Some(running.pid()), WaitOptions::UNTRACED).expect("it is our child");
    assert!(stopped.is_some_and(|(_, status)| status.stopped()), "{stopped:?}");
    // It gets the signal before we stop, but may act on it a moment later.
    while !std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the child lives").contains(") T ") {
        std::thread::yield_now();
    }
    running.signal(Signal::CONT);
    running.signal(Signal::INT);
    assert_eq!(running.end(), (String::new(), String::new(), 130));
}

#[test]
fn a_signal_reaches_us_while_nobody_reads_our_output() {
    let script = "trap 'exit 5' TERM; echo $$; yes & wait";
    let mut running = Running::shell(&[], script);
    let pid = running.line();
    running.signal(Signal::TERM);
    let (_, _, code) = running.end();
    assert_eq!(code, 5);
    assert!(!is_running(&pid));
}

#[test]
fn a_signal_ends_us_when_only_unread_output_is_left() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let fifo = fifo(folder.path());
    let script = format!("seq 1 1000000; exec echo $$ > {}", fifo.display());
    let running = Running::shell(&[], &script);
    let pid = std::fs::read_to_string(&fifo).expect("the child writes it");
    gone(pid.trim().parse().expect("a pid"));
    running.signal(Signal::TERM);
    let mut running = running;
    let ended = waitpid(Some(running.pid()), WaitOptions::empty()).expect("it is our child");
    assert_eq!(ended.and_then(|(_, status)| status.exit_status()), Some(143));
    running.close_stdout();
}

/// Waits until a process was reaped by its parent.
fn gone(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid is positive");
    let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else { return };
    let mut ended = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ended, None).expect("a pidfd can be waited for");
    // It has ended, and is reaped a moment later.
    while std::path::Path::new(&format!("/proc/{pid}")).exists() {
        std::thread::yield_now();
    }
}

/// A write beyond `ulimit -f` is an error to them, like one to a full disk, and not the end.
#[test]
fn server_and_keeper_do_not_die_of_a_limit_on_the_size_of_files_and_children_may() {
    let server = super::server::Server::start(super::server::Transport::Unix);
    let script = "cat /proc/$PPID/status /proc/self/status";
    let output = server.run(&["--", "sh", "-c", script]);
    let text = super::support::stdout(&output);
    let server_status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let masks = |text: &str, name: &str| -> Vec<bool> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        lines.map(|mask| u64::from_str_radix(mask, 16).expect("hexadecimal") & SIGXFSZ_BIT != 0).collect()
    };
    const SIGXFSZ_BIT: u64 = 1 << 24;
    assert_eq!(masks(text, "SigIgn"), [true, false], "the keeper ignores it, its child does not");
    assert_eq!(masks(&server_status, "SigCgt"), [true], "the server has a handler");
}
