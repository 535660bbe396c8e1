//! Signals that an owner sends to the group.

use std::time::Duration;

use exec_core::{ExitCause, ExitStatus, Signal};
use exec_env::process::Signalled;

use crate::test_environment::TestEnvironment;

/// The cause is the child's own, not a termination: the owner may have meant anything with the signal.
pub async fn a_deadly_signal_is_told_by_its_number(env: &TestEnvironment) {
    let deadly = [
        Signal::Hangup,
        Signal::Interrupt,
        Signal::Quit,
        Signal::Kill,
        Signal::User1,
        Signal::User2,
        Signal::Terminate,
    ];
    for signal in deadly {
        let process = env.start(&format!("{signal:?}"), "say ready ; wait-forever").await;
        let reader = process.reader_at_line("ready").await;
        assert_eq!(process.signal(signal).await, Signalled::Sent);
        let exit = reader.read_to_end().await.exit();
        assert_eq!(super::signal_of(exit), Some(signal.number()));
        assert_eq!(exit.cause, ExitCause::Own);
    }
}

pub async fn a_signal_reaches_the_whole_group(env: &TestEnvironment) {
    let script = "fork [ on-term child ; say listening ; wait-forever ] ; \
                  on-term leader ; say ready ; wait-forever";
    let process = env.start("p", script).await;
    let mut reader = process.reader_at_line("ready").await;
    reader.wait_for_line("listening").await;
    assert_eq!(process.signal(Signal::Terminate).await, Signalled::Sent);
    let log = reader.read_to_end().await;
    assert!(log.stdout().contains("child\n"), "{log:?}");
    assert!(log.stdout().contains("leader\n"), "{log:?}");
    assert_eq!(log.exit().status, ExitStatus::Code(0));
}

pub async fn a_signal_is_sent_once_for_each_key(env: &TestEnvironment) {
    let process = env.start("p", "tell-term told ; on-int done ; say ready ; wait-forever").await;
    let mut reader = process.reader_at_line("ready").await;
    for (key, times) in [("one", 1), ("one", 1), ("two", 2), ("one", 2), ("two", 2), ("three", 3)] {
        assert_eq!(process.signal_once(Signal::Terminate, key).await, Signalled::Sent);
        reader.read_until("told", |seen| seen.stdout().matches("told\n").count() >= times).await;
    }
    assert_eq!(process.signal_once(Signal::Interrupt, "four").await, Signalled::Sent);
    let log = reader.read_to_end().await;
    assert_eq!(log.stdout(), "ready\ntold\ntold\ntold\ndone\n");
    // One that found nobody was not sent; what was sent stays sent.
    assert_eq!(process.signal_once(Signal::Terminate, "five").await, Signalled::AlreadyExited);
    assert_eq!(process.signal_once(Signal::Terminate, "one").await, Signalled::Sent);
}

pub async fn a_child_that_ignores_a_signal_goes_on(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "ignore-int ; say ready ; cat").await;
    let mut reader = process.reader_at_line("ready").await;
    assert_eq!(process.signal(Signal::Interrupt).await, Signalled::Sent);
    process.write("1", "alive\n").await;
    reader.wait_for_line("alive").await;
}

pub async fn stop_stops_and_continue_continues(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "say ready ; echo-lines").await;
    let mut reader = process.reader_at_line("ready").await;
    assert_eq!(process.signal(Signal::Stop).await, Signalled::Sent);
    process.os_process().wait_for_state('T').await;
    process.write("1", "while stopped\n").await;
    let head = process.read_now().await.head;
    assert_eq!((head.exit, head.next_seq), (None, 2), "it says nothing");
    assert_eq!(process.signal(Signal::Continue).await, Signalled::Sent);
    reader.wait_for_line("while stopped").await;
}

pub async fn a_child_that_stops_itself_has_not_ended(env: &TestEnvironment) {
    let process = env.start("p", "stop-self ; say on ; exit 2").await;
    process.os_process().wait_for_state('T').await;
    assert_eq!(process.read_now().await.head.exit, None);
    assert_eq!(process.signal(Signal::Continue).await, Signalled::Sent);
    let log = process.read_to_end().await;
    assert_eq!(log.stdout(), "on\n");
    assert_eq!(log.exit().status, ExitStatus::Code(2));
}

pub async fn a_signal_after_the_end_finds_nobody(env: &TestEnvironment) {
    let process = env.start("p", "exit 0").await;
    process.read_to_end().await;
    for signal in Signal::ALL {
        assert_eq!(process.signal(signal).await, Signalled::AlreadyExited);
    }
}

pub async fn a_signal_after_the_leaders_exit_reaches_its_group(env: &TestEnvironment) {
    let script = "fork [ on-term survivor ; say listening ; wait-forever ] ; exit 0";
    let process = env.start("p", script).await;
    let mut reader = process.reader().await;
    reader.wait_for_exit().await;
    reader.wait_for_line("listening").await;
    assert_eq!(process.signal(Signal::Terminate).await, Signalled::Sent);
    let log = reader.read_to_end().await;
    assert!(log.stdout().ends_with("survivor\n"), "{log:?}");
}

pub async fn what_a_signal_leaves_behind_can_be_terminated(env: &TestEnvironment) {
    let process = env.start("p", "setsid ; say ready ; wait-forever").await;
    let mut reader = process.reader().await;
    let descendant = reader.wait_for_descendant().await;
    reader.wait_for_line("ready").await;
    process.signal(Signal::Kill).await;
    reader.wait_for_exit().await;
    assert!(descendant.is_alive(), "it left the group");
    let terminated = process.terminate(Duration::ZERO).await;
    assert_eq!((terminated.was_running, terminated.left), (false, 0));
    descendant.wait_until_gone().await;
}
