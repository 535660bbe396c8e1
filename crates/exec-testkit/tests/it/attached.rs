//! A full spool and those who read along: what they have not read yet is not dropped for newer output.

use std::time::Duration;

use exec_core::limits::{BITE_BYTES, FLOOD_PIPE_BYTES, SPOOL_MIN_BYTES};
use exec_core::{Command, Stream};
use exec_env::process::Until;
use exec_testkit::Bench;
use exec_testkit::gate::Gate;
use exec_testkit::pattern::Pattern;
use exec_testkit::process::{Process, Reader};
use exec_testkit::suite::assert_pattern;
use exec_testkit::transcript::Transcript;

use crate::environments::{keeper_as_process, keeper_as_thread};

/// Many times what the spool holds.
const FLOOD_BYTES: u64 = 16 << 20;
const SEED: u64 = 31;

/// A child that floods once the gate is open.
async fn flood<'a>(bench: &'a Bench, gate: &Gate) -> Process<'a> {
    let script = format!("{} ; flood stdout {FLOOD_BYTES} {SEED} 65536 ; exit 3", gate.wait());
    bench.launch("p", Command { spool_bytes: Some(SPOOL_MIN_BYTES), ..bench.command(&script) }).await
}

async fn a_slow_reader_misses_nothing(bench: &Bench) {
    let gate = bench.gate("gate");
    let process = flood(bench, &gate).await;
    let mut reader = process.reader().await;
    gate.open_once();
    while reader.more().await {
        let head = reader.transcript.head.expect("pages were read");
        let most = SPOOL_MIN_BYTES + u64::from(BITE_BYTES) + u64::from(FLOOD_PIPE_BYTES);
        assert!(head.held_bytes <= most, "the cap holds while a reader is waited for: {head:?}");
        // not a wait: this reader is slow
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(reader.transcript.gaps, []);
    assert_eq!(reader.transcript.exit().shell_code(), 3);
    assert_pattern(&reader.transcript, Stream::Stdout, Pattern::new(SEED), FLOOD_BYTES as usize);
}

#[tokio::test]
async fn a_slow_reader_of_a_keeper_thread_misses_nothing() {
    a_slow_reader_misses_nothing(&keeper_as_thread().await).await;
}

#[tokio::test]
async fn a_slow_reader_of_a_keeper_process_misses_nothing() {
    a_slow_reader_misses_nothing(&keeper_as_process().await).await;
}

#[tokio::test]
async fn the_slowest_of_two_readers_misses_nothing() {
    let bench = keeper_as_thread().await;
    let gate = bench.gate("gate");
    let process = flood(&bench, &gate).await;
    let slow = process.reader().await;
    let fast = process.reader().await;
    gate.open_once();
    let (slow, fast) = tokio::join!(a_page_at_a_time(slow), fast.to_the_end());
    assert_eq!((&slow.gaps[..], &fast.gaps[..]), (&[][..], &[][..]));
    assert_eq!(slow.entries, fast.entries);
}

async fn a_page_at_a_time(mut reader: Reader) -> Transcript {
    while reader.more().await {
        // not a wait: this reader is slow
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    reader.transcript
}

#[tokio::test]
async fn a_reader_that_has_stopped_holds_the_child_for_a_while_only_and_is_told_what_it_missed() {
    let bench = keeper_as_thread().await;
    let gate = bench.gate("gate");
    let process = flood(&bench, &gate).await;
    let stopped = process.reader().await;
    gate.open_once();
    process.wait(Until::Closed).await.expect("it ends, although nobody reads");
    let late = stopped.to_the_end().await;
    let head = late.head.expect("pages were read");
    let [gap] = late.gaps[..] else { panic!("one gap, at the beginning: {:?}", late.gaps) };
    assert_eq!((gap.from_seq, gap.dropped_bytes), (1, head.dropped_bytes));
    assert_eq!(head.held_bytes + head.dropped_bytes, FLOOD_BYTES);
}

#[tokio::test]
async fn a_reader_that_leaves_lets_the_child_go_on() {
    let bench = keeper_as_thread().await;
    let gate = bench.gate("gate");
    let process = flood(&bench, &gate).await;
    let leaves = process.reader().await;
    gate.open_once();
    process.wait(Until::Output { regex: ".".to_owned(), after: 0 }).await.expect("it prints");
    drop(leaves);
    process.wait(Until::Closed).await.expect("it ends");
    assert_eq!(process.exit().await.shell_code(), 3);
}
