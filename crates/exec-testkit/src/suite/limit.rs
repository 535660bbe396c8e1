//! Time limits: TERM, the grace, KILL; what was printed is kept.

use std::time::{Duration, Instant};

use exec_core::{ExitCause, ExitStatus, TimeLimit};

use crate::process::TestProcess;
use crate::test_environment::TestEnvironment;

/// Long enough that an actor on a busy machine has surely printed its first line.
const AFTER: Duration = Duration::from_millis(1500);

/// Not before the grace is over; what it printed is kept.
pub async fn a_child_over_its_time_is_asked_and_after_the_grace_killed(env: &TestEnvironment) {
    let grace = Duration::from_millis(300);
    let before = Instant::now();
    let script = "tell-term heard ; say partial ; wait-forever";
    let log = limited(env, script, grace).await.read_to_end().await;
    assert!(before.elapsed() >= AFTER + grace, "{:?}", before.elapsed());
    assert_eq!(log.stdout(), "partial\nheard\n");
    assert_eq!(log.exit().cause, ExitCause::TimedOut);
    assert_eq!(super::signal_of(log.exit()), Some(9));
}

/// The cause is still the limit.
pub async fn a_child_that_ends_when_its_time_is_up_is_not_killed(env: &TestEnvironment) {
    let script = "on-term goodbye ; say hello ; wait-forever";
    let long = Duration::from_secs(3600);
    let log = limited(env, script, long).await.read_to_end().await;
    assert_eq!(log.stdout(), "hello\ngoodbye\n");
    let exit = log.exit();
    assert_eq!((exit.status, exit.cause), (ExitStatus::Code(0), ExitCause::TimedOut));
}

pub async fn without_a_grace_the_limit_kills_at_once(env: &TestEnvironment) {
    let script = "tell-term heard ; say hello ; wait-forever";
    let process = limited(env, script, Duration::ZERO).await;
    let log = process.read_to_end().await;
    assert_eq!(log.stdout(), "hello\n", "nobody asked it");
    assert_eq!(log.exit().cause, ExitCause::TimedOut);
    assert_eq!(super::signal_of(log.exit()), Some(9));
}

/// Also descendants that left the session.
pub async fn the_limit_ends_the_whole_tree(env: &TestEnvironment) {
    let script = "setsid [ ignore-term ; wait-forever ] ; wait-forever";
    let process = limited(env, script, Duration::from_millis(100)).await;
    let mut reader = process.reader().await;
    let descendant = reader.wait_for_descendant().await;
    let log = reader.read_to_end().await;
    assert_eq!(log.exit().cause, ExitCause::TimedOut);
    descendant.wait_until_gone().await;
}

pub async fn a_child_within_its_time_ends_by_itself(env: &TestEnvironment) {
    let process = limited(env, "say quick ; exit 4", Duration::ZERO).await;
    let exit = process.read_to_end().await.exit();
    assert_eq!((exit.status, exit.cause), (ExitStatus::Code(4), ExitCause::Own));
}

/// The longest possible limits do not overflow any clock.
pub async fn an_endless_limit_is_no_limit(env: &TestEnvironment) {
    let mut command = env.command("say fine ; exit 0");
    command.time_limit = Some(TimeLimit { after: Duration::MAX, grace: Duration::MAX });
    let exit = env.start_command("p", command).await.read_to_end().await.exit();
    assert_eq!((exit.status, exit.cause), (ExitStatus::Code(0), ExitCause::Own));
}

async fn limited<'env>(env: &'env TestEnvironment, script: &str, grace: Duration) -> TestProcess<'env> {
    let mut command = env.command(script);
    command.time_limit = Some(TimeLimit { after: AFTER, grace });
    env.start_command("p", command).await
}
