//! Terminate ends the whole process tree, whatever kinds of descendants are in it.

use std::time::{Duration, Instant};

use exec_core::{ExitCause, ExitStatus};
use exec_env::process::Terminated;

use crate::test_environment::TestEnvironment;

const LONG: Duration = Duration::from_secs(3600);

pub async fn terminate_without_a_grace_kills_at_once(env: &TestEnvironment) {
    let process = env.start("p", "tell-term heard ; say ready ; wait-forever").await;
    let reader = process.reader_at_line("ready").await;
    assert_eq!(process.kill().await, ended(true, 1));
    let log = reader.read_to_end().await;
    assert_eq!(log.stdout(), "ready\n");
    assert_eq!(log.exit().cause, ExitCause::Terminated);
    assert_eq!(super::signal_of(log.exit()), Some(9));
}

pub async fn terminate_with_a_grace_asks_first(env: &TestEnvironment) {
    let process = env.start("p", "on-term goodbye ; say ready ; wait-forever").await;
    let reader = process.reader_at_line("ready").await;
    assert_eq!(process.terminate(LONG).await, ended(true, 1));
    let log = reader.read_to_end().await;
    assert_eq!(log.stdout(), "ready\ngoodbye\n");
    let exit = log.exit();
    assert_eq!((exit.status, exit.cause), (ExitStatus::Code(0), ExitCause::Terminated));
}

pub async fn a_child_that_ignores_term_is_killed_after_the_grace(env: &TestEnvironment) {
    let process = env.start("p", "tell-term heard ; say ready ; wait-forever").await;
    let reader = process.reader_at_line("ready").await;
    let grace = Duration::from_millis(300);
    let before = Instant::now();
    assert_eq!(process.terminate(grace).await, ended(true, 1));
    assert!(before.elapsed() >= grace, "{:?}", before.elapsed());
    let log = reader.read_to_end().await;
    assert_eq!(log.stdout(), "ready\nheard\n");
    assert_eq!(log.exit().cause, ExitCause::Terminated);
    assert_eq!(super::signal_of(log.exit()), Some(9));
}

pub async fn a_second_terminate_hastens_the_first(env: &TestEnvironment) {
    let process = env.start("p", "tell-term heard ; say ready ; wait-forever").await;
    let mut reader = process.reader_at_line("ready").await;
    let patient = process.terminate(LONG);
    let impatient = async {
        reader.wait_for_line("heard").await;
        process.kill().await
    };
    let (first, second) = tokio::join!(patient, impatient);
    assert_eq!((first.left, second.left), (0, 0));
    let exit = reader.read_to_end().await.exit();
    assert_eq!(exit.cause, ExitCause::Terminated);
    assert_eq!(super::signal_of(exit), Some(9));
}

pub async fn terminating_what_is_over_does_nothing(env: &TestEnvironment) {
    let process = env.start("p", "exit 7").await;
    let before = process.read_to_end().await;
    assert_eq!(process.kill().await, ended(false, 0));
    assert_eq!(process.terminate(LONG).await, ended(false, 0));
    assert_eq!(process.read_to_end().await, before);
    assert_eq!(before.exit().cause, ExitCause::Own);
}

/// A child in the same group.
pub async fn terminate_reaches_a_forked_descendant(env: &TestEnvironment) {
    reaches(env, "fork").await;
}

/// A child in a session of its own.
pub async fn terminate_reaches_a_setsid_descendant(env: &TestEnvironment) {
    reaches(env, "setsid").await;
}

/// A child that ignores SIGHUP.
pub async fn terminate_reaches_a_nohup_descendant(env: &TestEnvironment) {
    reaches(env, "nohup").await;
}

/// A grandchild whose parent is gone.
pub async fn terminate_reaches_a_double_forked_descendant(env: &TestEnvironment) {
    reaches(env, "double-fork").await;
}

/// A grandchild in another session that holds none of our descriptors.
pub async fn terminate_reaches_a_daemon(env: &TestEnvironment) {
    reaches(env, "daemonise").await;
}

pub async fn terminate_after_the_leaders_exit_ends_what_it_left_behind(env: &TestEnvironment) {
    for kind in KINDS {
        let process = env.start(kind, &format!("{kind} [ ignore-term ; wait-forever ] ; exit 6")).await;
        let mut reader = process.reader().await;
        let descendant = reader.wait_for_descendant().await;
        let exit = reader.wait_for_exit().await;
        assert_eq!((exit.status, exit.cause), (ExitStatus::Code(6), ExitCause::Own));
        assert!(descendant.is_alive(), "{kind}");
        assert_eq!(process.kill().await, ended(false, 1), "{kind}");
        descendant.wait_until_gone().await;
        assert_eq!(reader.read_to_end().await.exit(), exit, "{kind}");
    }
}

pub async fn descendants_are_asked_before_they_are_killed(env: &TestEnvironment) {
    let script = "setsid [ on-term polite ; say asked ; wait-forever ] ; \
                  setsid [ ignore-term ; say ignoring ; wait-forever ] ; on-term leader ; say ready ; wait-forever";
    let process = env.start("p", script).await;
    let mut reader = process.reader_at_line("ready").await;
    // The leader does not wait until its descendants are prepared for the signal.
    for line in ["asked", "ignoring"] {
        reader.wait_for_line(line).await;
    }
    let terminated = process.terminate(Duration::from_millis(500)).await;
    assert_eq!(terminated, ended(true, 3));
    let log = reader.read_to_end().await;
    assert!(log.stdout().contains("polite\n"), "{log:?}");
    assert!(log.stdout().contains("leader\n"), "{log:?}");
}

pub async fn terminate_counts_everybody_it_ended(env: &TestEnvironment) {
    let script = "fork [ fork ; wait-forever ] ; setsid [ setsid ; wait-forever ] ; \
                  double-fork ; daemonise ; say ready ; wait-forever";
    let process = env.start("p", script).await;
    let mut reader = process.reader_at_line("ready").await;
    // The two inner ones are announced by their own parents, which the leader does not wait for.
    reader.read_until("six descendants", |seen| seen.printed().matches("pid ").count() == 6).await;
    assert_eq!(process.kill().await, ended(true, 7));
    assert!(reader.read_to_end().await.is_closed());
}

/// It is continued, so that it receives TERM.
pub async fn terminate_with_a_grace_reaches_a_stopped_child(env: &TestEnvironment) {
    let process = env.start("p", "on-term goodbye ; stop-self ; wait-forever").await;
    process.os_process().wait_for_state('T').await;
    assert_eq!(process.terminate(LONG).await, ended(true, 1));
    let log = process.read_to_end().await;
    assert_eq!(log.stdout(), "goodbye\n");
    assert_eq!(log.exit().status, ExitStatus::Code(0));
}

pub async fn a_start_after_many_terminations_is_not_touched_by_them(env: &TestEnvironment) {
    for round in 0..30 {
        let doomed = env.start(&format!("doomed {round}"), "setsid ; wait-forever").await;
        doomed.reader().await.wait_for_descendant().await;
        doomed.kill().await;
        let forgotten = env.processes().forget(&doomed.id).await;
        assert_eq!(forgotten, Ok(()));
        let spared = env.run(&format!("spared {round}"), "say alive ; exit 3").await;
        let exit = spared.exit();
        let found = (spared.stdout(), exit.status, exit.cause);
        let expected = ("alive\n".to_owned(), ExitStatus::Code(3), ExitCause::Own);
        assert_eq!(found, expected, "round {round}");
    }
}

pub async fn terminate_leaves_other_processes_alone(env: &TestEnvironment) {
    let doomed = env.start("doomed", "setsid ; wait-forever").await;
    let spared = env.start_with_stdin("spared", "setsid ; cat-count ; wait-forever").await;
    let mut reader = spared.reader().await;
    let descendant = reader.wait_for_descendant().await;
    doomed.reader().await.wait_for_descendant().await;
    assert_eq!(doomed.kill().await, ended(true, 2));
    spared.close_stdin().await;
    reader.wait_for_line("0 bytes").await;
    assert!(descendant.is_alive() && spared.os_process().is_alive());
}

/// The actor's verbs for descendants.
pub(crate) const KINDS: [&str; 5] = ["fork", "setsid", "nohup", "double-fork", "daemonise"];

/// What terminate must answer when nothing is left.
fn ended(was_running: bool, ended: u32) -> Terminated {
    Terminated { was_running, ended, left: 0 }
}

async fn reaches(env: &TestEnvironment, kind: &str) {
    let script = format!("{kind} [ ignore-term ; wait-forever ] ; say ready ; wait-forever");
    let process = env.start("p", &script).await;
    let mut reader = process.reader().await;
    let descendant = reader.wait_for_descendant().await;
    reader.wait_for_line("ready").await;
    let leader = process.os_process();
    assert_eq!(process.kill().await, ended(true, 2));
    assert!(!descendant.is_alive(), "terminate answers when the tree is gone");
    descendant.wait_until_gone().await;
    leader.wait_until_gone().await;
    let log = reader.read_to_end().await;
    assert_eq!(log.exit().cause, ExitCause::Terminated);
}
