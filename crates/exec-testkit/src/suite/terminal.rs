//! Processes on a pseudo terminal.

use bytes::Bytes;
use exec_core::{Command, Environ, ExitCause, ExitStatus, Io, Signal, Stream, TerminalSize};
use exec_env::process::{Signalled, Written};

use crate::test_data::SeededRng;
use crate::test_environment::TestEnvironment;

const CTRL_C: &[u8] = b"\x03";

pub async fn the_terminal_controls_the_childs_session_and_has_its_size(env: &TestEnvironment) {
    let mut command = env.command("tty");
    command.io = Io::Pty(TerminalSize { rows: 33, cols: 121 });
    let log = env.start_command("p", command).await.read_to_end().await;
    assert_eq!(
        log.terminal(),
        "isatty yes yes yes\nsize 33 121\nsession-leader yes\ngroup-leader yes\n\
         controlling-terminal yes\nforeground yes\n"
    );
}

pub async fn a_terminal_has_one_stream(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "say out ; err err ; exit 3").await;
    let log = process.read_to_end().await;
    assert!(log.outputs().all(|(_, from, _)| from == Stream::Pty));
    assert_eq!(log.terminal(), "out\nerr\n");
    assert_eq!(log.exit().status, ExitStatus::Code(3));
    assert!(process.info().await.tty);
}

/// The account's shell is the one variable that a terminal adds, and only where there is none.
pub async fn a_child_on_a_terminal_is_told_its_shell_and_nothing_else(env: &TestEnvironment) {
    let variables = async |name: &str, environ: Environ| {
        let mut command = env.command("env");
        command.io = Io::Pty(TerminalSize::default());
        command.environ = environ;
        env.start_command(name, command).await.read_to_end().await.terminal()
    };
    let printed = variables("none", Environ::exactly([("A", "1")])).await;
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    assert!(matches!(lines[..], ["A=1", shell] if shell.starts_with("SHELL=/")), "{lines:?}");
    assert_eq!(variables("own", Environ::exactly([("SHELL", "")])).await, "SHELL=\n");
}

pub async fn what_is_typed_is_echoed_and_read(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "say ready ; echo-lines").await;
    let mut reader = process.reader_at_line("ready").await;
    assert_eq!(process.write("1", "hello\n").await, Written::Accepted);
    reader.read_until("the echo and the answer", |seen| seen.terminal() == "ready\nhello\nhello\n").await;
}

/// Programs that go into the background for a while do this.
pub async fn what_is_printed_on_a_terminal_that_was_closed_for_a_while_arrives(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let fifo = semaphore.path().display();
    let script = format!("echo one; exec </dev/null >/dev/null 2>&1; head -c 1 {fifo}; echo two >/dev/tty; exit 6");
    let mut command = Command::new(["/bin/sh", "-c", &script], "/");
    command.io = Io::Pty(TerminalSize::default());
    let process = env.start_command("p", command).await;
    let reader = process.reader_at_line("one").await;
    semaphore.release();
    let log = reader.read_to_end().await;
    assert_eq!((log.terminal().as_str(), log.exit().shell_code()), ("one\ntwo\n", 6));
}

pub async fn a_resize_reaches_the_child(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "winch").await;
    let reader = process.reader_at_line("size 24 80").await;
    assert_eq!(process.resize(50, 132).await, Ok(()));
    let log = reader.read_to_end().await;
    assert_eq!(log.terminal(), "size 24 80\nsize 50 132\n");
}

pub async fn ctrl_c_as_a_byte_interrupts_the_foreground(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "say ready ; wait-forever").await;
    let reader = process.reader_at_line("ready").await;
    assert_eq!(process.write("1", CTRL_C).await, Written::Accepted);
    let exit = reader.read_to_end().await.exit();
    assert_eq!(super::signal_of(exit), Some(2));
    assert_eq!(exit.cause, ExitCause::Own);
}

pub async fn a_child_may_handle_ctrl_c(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "on-int interrupted ; say ready ; wait-forever").await;
    let reader = process.reader_at_line("ready").await;
    process.write("1", CTRL_C).await;
    let log = reader.read_to_end().await;
    assert!(log.terminal().ends_with("interrupted\n"));
    assert_eq!(log.exit().status, ExitStatus::Code(0));
}

/// The child reads an end and may print on.
pub async fn close_stdin_is_the_end_of_file_character(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "say ready ; cat-count ; say on ; exit 0").await;
    let reader = process.reader_at_line("ready").await;
    process.write("1", "four\n").await;
    assert_eq!(process.close_stdin().await, Written::Accepted);
    let log = reader.read_to_end().await;
    assert!(log.terminal().ends_with("5 bytes\non\n"), "{}", log.terminal());
    assert_eq!(log.exit().status, ExitStatus::Code(0));
}

/// There the first end-of-file character only delivers what was typed of the line.
pub async fn close_stdin_in_the_middle_of_a_line_is_the_end_too(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "say ready ; cat-count ; say on ; cat-count ; exit 0").await;
    let mut reader = process.reader_at_line("ready").await;
    process.write("1", "fo").await;
    process.write("2", "ur").await;
    assert_eq!(process.close_stdin().await, Written::Accepted);
    reader.wait_for_line("on").await;
    // The second reader has its own end: the first took no more than its own.
    process.write("3", "four\n").await;
    assert_eq!(process.close_stdin().await, Written::Accepted);
    let log = reader.read_to_end().await;
    assert!(log.terminal().contains("4 bytes\non\n"), "{}", log.terminal());
    assert!(log.terminal().ends_with("5 bytes\n"), "{}", log.terminal());
}

pub async fn death_by_signal_on_a_terminal_is_told_as_a_signal(env: &TestEnvironment) {
    for number in [9, 11, 15] {
        let script = format!("say before ; signal-self {number}");
        let process = env.start_on_terminal(&format!("{number}"), &script).await;
        let log = process.read_to_end().await;
        assert_eq!(log.terminal(), "before\n");
        assert_eq!(super::signal_of(log.exit()), Some(number));
    }
}

pub async fn signals_and_terminate_reach_a_process_on_a_terminal(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "ignore-hup ; tell-term heard ; say ready ; wait-forever").await;
    let mut reader = process.reader_at_line("ready").await;
    assert_eq!(process.signal(Signal::Terminate).await, Signalled::Sent);
    reader.wait_for_line("heard").await;
    let terminated = process.kill().await;
    assert_eq!((terminated.was_running, terminated.left), (true, 0));
    assert_eq!(reader.read_to_end().await.exit().cause, ExitCause::Terminated);
}

pub async fn a_survivor_on_the_terminal_is_still_heard(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let script = format!("nohup [ {} ; say later ] ; exit 0", semaphore.acquire());
    let process = env.start_on_terminal("p", &script).await;
    let mut reader = process.reader().await;
    reader.wait_for_exit().await;
    assert!(!process.read_now().await.head.closed, "somebody holds it");
    semaphore.release();
    let log = reader.read_to_end().await;
    assert!(log.terminal().ends_with("later\n"), "{log:?}");
}

pub async fn a_flood_of_lines_through_a_terminal_arrives_in_order(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "lines 20000").await;
    let log = process.read_to_end().await;
    let expected: String = (1..=20_000).map(|number| format!("line {number}\n")).collect();
    assert!(log.terminal() == expected, "lines are missing or torn");
}

/// Although the terminal's own buffer is smaller.
pub async fn many_lines_typed_at_once_all_arrive(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "say ready ; cat-count").await;
    let reader = process.reader_at_line("ready").await;
    let mut rng = SeededRng::new(1);
    let mut typed = Vec::new();
    for _ in 0..2000 {
        typed.extend(std::iter::repeat_n(b'x', rng.below(60)));
        typed.push(b'\n');
    }
    let expected = format!("{} bytes\n", typed.len());
    assert_eq!(process.write("1", Bytes::from(typed)).await, Written::Accepted);
    process.close_stdin().await;
    let log = reader.read_to_end().await;
    assert!(log.terminal().ends_with(&expected), "wanted {expected:?} at the end");
}
