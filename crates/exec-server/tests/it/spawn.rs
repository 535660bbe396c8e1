//! What a program sees of `spawn`: each fact on this machine and over a connection.

use std::io::ErrorKind;
use std::time::Duration;

use exec_server::process::{LogEvent, ProcessReason, SpawnFailure, SpawnStep, WaitCondition, Waited};
use exec_server::spawn::{Command, EnvironmentExt, Process};
use exec_server::{Entry, EntryBody, ExitCause, ExitStatus, ProcessId, Signal, TerminalSize};
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{everywhere, far_away};

fn shell(script: &str) -> Command {
    Command::new("sh").arg("-c").arg(script)
}

async fn wait_for_output(process: &Process, regex: &str) {
    let until = WaitCondition::Output { regex: regex.to_owned(), after: 0 };
    let waited = process.wait_for(until, None).await.expect("it prints that");
    assert!(matches!(waited, Waited::Matched { .. }), "{waited:?}");
}

#[test]
fn output_has_both_streams_and_the_exit_and_leaves_nothing_behind() {
    everywhere("output", |machine| async move {
        let output = machine.output(shell("echo out; echo err >&2; exit 3")).await.expect("it runs");
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!((output.exit.status, output.lost_bytes), (ExitStatus::Code(3), 0));
        assert_eq!(machine.processes().list().await.expect("they can be listed"), []);
    });
}

#[test]
fn a_program_is_found_and_inherits_as_with_std() {
    everywhere("inherit", |machine| async move {
        let output = machine.output(shell("pwd; echo $HOME; echo $GIVEN").env("GIVEN", "x")).await.expect("it runs");
        let here = std::env::current_dir().expect("a test has one");
        let home = std::env::var("HOME").unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{}\n{home}\nx\n", here.display()));

        let output = machine.output(shell("pwd").current_dir("..")).await.expect("it runs");
        let above = here.parent().expect("a package is in a directory");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{}\n", above.display()));

        let bare = Command::new("/usr/bin/env").env_clear().env("ONLY", "1");
        assert_eq!(machine.output(bare).await.expect("it runs").stdout, b"ONLY=1\n");
        let without = machine.output(Command::new("env").env_remove("HOME")).await.expect("it runs");
        assert!(!String::from_utf8_lossy(&without.stdout).lines().any(|line| line.starts_with("HOME=")));
    });
}

#[test]
fn a_program_that_is_not_there_is_an_error_with_its_errno() {
    everywhere("absent", |machine| async move {
        let error = machine.spawn(Command::new("/no/such/program")).await.expect_err("there is none");
        let ProcessReason::SpawnFailed(SpawnFailure { step, errno, .. }) = error.reason else { panic!("{error:?}") };
        assert_eq!((step, errno), (SpawnStep::Exec, 2));
    });
}

#[test]
fn events_come_in_the_order_of_the_log_and_end_behind_the_close() {
    everywhere("events", |machine| async move {
        let process = machine.spawn(shell("echo one; read go; echo two >&2").piped_stdin()).await.expect("it runs");
        let mut events = process.events();
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            let LogEvent::Entry(Entry { seq, body }) = event.expect("it can be read") else {
                panic!("nothing was lost")
            };
            seen.push((
                seq,
                match body {
                    EntryBody::Output { bytes, .. } => String::from_utf8_lossy(&bytes).into_owned(),
                    EntryBody::Exited(exit) => exit.shell_code().to_string(),
                    EntryBody::Closed => "closed".to_owned(),
                },
            ));
            if seq == 1 {
                process.stdin().write_all(b"go\n").await.expect("it reads");
            }
        }
        let seen: Vec<_> = seen.iter().map(|(seq, what)| (*seq, what.as_str())).collect();
        assert_eq!(seen, [(1, "one\n"), (2, "two\n"), (3, "0"), (4, "closed")]);

        let later: Vec<_> = process.events_after(3).collect().await;
        assert_eq!(later.len(), 1);
    });
}

#[test]
fn several_readers_read_the_same_stream_each_from_its_beginning() {
    everywhere("readers", |machine| async move {
        let process = machine.spawn(shell("echo out; echo err >&2")).await.expect("it runs");
        let (mut first, mut second, mut errors) = (String::new(), String::new(), String::new());
        process.stdout().read_to_string(&mut first).await.expect("it can be read");
        process.stdout().read_to_string(&mut second).await.expect("it can be read");
        process.stderr().read_to_string(&mut errors).await.expect("it can be read");
        assert_eq!([first.as_str(), second.as_str(), errors.as_str()], ["out\n", "out\n", "err\n"]);
    });
}

#[test]
fn megabytes_through_stdin_come_back_in_order() {
    everywhere("stdin", |machine| async move {
        let process = machine.spawn(Command::new("cat").piped_stdin()).await.expect("it runs");
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 / 5) as u8).collect();
        let mut stdin = process.stdin();
        let (mut stdout, mut received) = (process.stdout(), Vec::new());
        let (written, read) = tokio::join!(
            async {
                stdin.write_all(&sent).await?;
                stdin.shutdown().await
            },
            stdout.read_to_end(&mut received),
        );
        written.expect("it reads all");
        read.expect("it prints all");
        assert!(received == sent, "{} bytes came back of {}", received.len(), sent.len());
        stdin.shutdown().await.expect("what is closed stays closed");
    });
}

#[test]
fn writing_to_who_reads_no_more_is_a_broken_pipe() {
    everywhere("broken pipe", |machine| async move {
        let process = machine.spawn(Command::new("true").piped_stdin()).await.expect("it runs");
        process.output().await.expect("it ends");
        let mut stdin = process.stdin();
        let written = async {
            stdin.write_all(b"x").await?;
            stdin.flush().await
        };
        assert_eq!(written.await.expect_err("nobody reads").kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn kill_ends_what_the_process_has_started_too() {
    everywhere("kill", |machine| async move {
        let process = machine.spawn(shell("sleep 1000 & echo started; wait")).await.expect("it runs");
        wait_for_output(&process, "started").await;
        let terminated = process.kill().await.expect("it can be killed");
        assert_eq!((terminated.was_running, terminated.left), (true, 0));
        // Only because the one in the background is gone too can the output be complete.
        let output = process.output().await.expect("it is over");
        assert_eq!(output.exit.cause, ExitCause::Terminated);
    });
}

#[test]
fn a_signal_reaches_the_process_and_wait_tells_of_it() {
    everywhere("signal", |machine| async move {
        let process = machine.spawn(shell("trap 'exit 7' USR1; echo ready; while :; do sleep 0.1; done")).await;
        let process = process.expect("it runs");
        wait_for_output(&process, "ready").await;
        process.signal(Signal::User1).await.expect("it can be sent");
        assert_eq!(process.wait().await.expect("it ends").status, ExitStatus::Code(7));
    });
}

#[test]
fn a_terminal_has_a_size_and_a_screen() {
    everywhere("terminal", |machine| async move {
        let script = "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.1; done";
        let process = machine.spawn(shell(script).terminal(TerminalSize { rows: 10, cols: 40 })).await;
        let process = process.expect("it runs");
        wait_for_output(&process, "10 40").await;
        process.resize(TerminalSize { rows: 20, cols: 50 }).await.expect("it has a terminal");
        process.output().await.expect("it ends by that");
        let screen = process.screen().await.expect("a terminal has one");
        let rows: Vec<_> = screen.rows.iter().map(|row| row.text.as_str()).take(2).collect();
        assert_eq!((rows, screen.size), (vec!["10 40", "20 50"], TerminalSize { rows: 20, cols: 50 }));
    });
}

#[test]
fn a_dropped_process_runs_on_and_its_id_leads_back() {
    everywhere("attach", |machine| async move {
        let id = ProcessId::new("mine").expect("an id");
        let process = machine.spawn(shell("read line; echo got $line").piped_stdin().id(id.clone())).await;
        drop(process.expect("it runs"));
        let again = machine.attach(id.clone()).await.expect("it is still there");
        again.stdin().write_all(b"this\n").await.expect("it reads");
        assert_eq!(again.output().await.expect("it ends").stdout, b"got this\n");

        again.forget().await.expect("it can be forgotten");
        let error = machine.attach(id).await.expect_err("it is forgotten");
        assert_eq!(error.reason, ProcessReason::UnknownProcess);
    });
}

#[test]
fn a_time_limit_ends_the_tree_and_says_so() {
    everywhere("time limit", |machine| async move {
        let command = shell("sleep 1000 & wait").time_limit(Duration::from_millis(50), Duration::ZERO);
        let output = machine.output(command).await.expect("it is ended");
        assert_eq!(output.exit.cause, ExitCause::TimedOut);
    });
}

#[test]
fn a_reader_and_a_writer_survive_cuts_of_the_connection() {
    far_away("cuts", |far| async move {
        let process = far.environment.spawn(Command::new("cat").piped_stdin()).await.expect("it runs");
        let (mut stdin, mut stdout, mut received) = (process.stdin(), process.stdout(), Vec::new());
        let sent: Vec<u8> = (0..2_000_000_u32).map(|n| (n % 251) as u8).collect();
        let writing = async {
            for block in sent.chunks(200_000) {
                stdin.write_all(block).await?;
                far.proxy.cut();
            }
            stdin.shutdown().await
        };
        let (written, read) = tokio::join!(writing, stdout.read_to_end(&mut received));
        written.expect("it reads all");
        read.expect("it prints all");
        assert!(received == sent, "{} bytes came back of {}", received.len(), sent.len());
        assert!(far.proxy.counts().connections > 1, "nothing was cut");
    });
}
