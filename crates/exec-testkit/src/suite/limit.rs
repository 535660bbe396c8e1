//! Time limits: TERM, the grace, KILL; what was printed is kept.

use std::time::{Duration, Instant};

use exec_core::{ExitCause, ExitStatus, TimeLimit};

use crate::bench::Bench;
use crate::process::Process;

/// Long enough that an actor on a busy machine has surely said its first words.
const AFTER: Duration = Duration::from_millis(1500);

/// A child that ignores TERM is killed after the grace, not before; what it printed is kept.
pub async fn a_child_over_its_time_is_asked_and_after_the_grace_killed(bench: &Bench) {
    let grace = Duration::from_millis(300);
    let before = Instant::now();
    let script = "tell-term heard ; say partial ; wait-forever";
    let transcript = limited(bench, script, grace).await.transcript().await;
    assert!(before.elapsed() >= AFTER + grace, "{:?}", before.elapsed());
    assert_eq!(transcript.stdout(), "partial\nheard\n");
    assert_eq!(transcript.exit().cause, ExitCause::TimedOut);
    assert_eq!(super::signal_of(transcript.exit()), Some(9));
}

/// A child that ends when it is asked is not killed; the cause is still the limit.
pub async fn a_child_that_ends_when_its_time_is_up_is_not_killed(bench: &Bench) {
    let script = "on-term goodbye ; say hello ; wait-forever";
    let long = Duration::from_secs(3600);
    let transcript = limited(bench, script, long).await.transcript().await;
    assert_eq!(transcript.stdout(), "hello\ngoodbye\n");
    let exit = transcript.exit();
    assert_eq!((exit.status, exit.cause), (ExitStatus::Code(0), ExitCause::TimedOut));
}

/// Without a grace the limit kills at once.
pub async fn without_a_grace_the_limit_kills_at_once(bench: &Bench) {
    let script = "tell-term heard ; say hello ; wait-forever";
    let process = limited(bench, script, Duration::ZERO).await;
    let transcript = process.transcript().await;
    assert_eq!(transcript.stdout(), "hello\n", "nobody asked it");
    assert_eq!(transcript.exit().cause, ExitCause::TimedOut);
    assert_eq!(super::signal_of(transcript.exit()), Some(9));
}

/// The limit ends descendants too, also those that left the session.
pub async fn the_limit_ends_the_whole_tree(bench: &Bench) {
    let script = "setsid [ ignore-term ; wait-forever ] ; wait-forever";
    let process = limited(bench, script, Duration::from_millis(100)).await;
    let mut reader = process.reader().await;
    let descendant = reader.descendant().await;
    let transcript = reader.to_the_end().await;
    assert_eq!(transcript.exit().cause, ExitCause::TimedOut);
    descendant.leaves().await;
}

/// A child that is faster than its limit never hears of it.
pub async fn a_child_within_its_time_ends_by_itself(bench: &Bench) {
    let process = limited(bench, "say quick ; exit 4", Duration::ZERO).await;
    let exit = process.transcript().await.exit();
    assert_eq!((exit.status, exit.cause), (ExitStatus::Code(4), ExitCause::Own));
}

/// The longest limits that can be said do not overflow any clock.
pub async fn an_endless_limit_is_no_limit(bench: &Bench) {
    let mut command = bench.command("say fine ; exit 0");
    command.time_limit = Some(TimeLimit { after: Duration::MAX, grace: Duration::MAX });
    let exit = bench.launch("p", command).await.transcript().await.exit();
    assert_eq!((exit.status, exit.cause), (ExitStatus::Code(0), ExitCause::Own));
}

async fn limited<'bench>(bench: &'bench Bench, script: &str, grace: Duration) -> Process<'bench> {
    let mut command = bench.command(script);
    command.time_limit = Some(TimeLimit { after: AFTER, grace });
    bench.launch("p", command).await
}
