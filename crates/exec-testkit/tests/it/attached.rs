//! Followers of a process whose spool is full: what they have not read yet is not dropped for newer output.

use std::time::Duration;

use exec_core::limits::{FLOOD_PIPE_BYTES, SPLICE_BYTES, SPOOL_MIN_BYTES};
use exec_core::{Command, Stream};
use exec_env::process::WaitCondition;
use exec_testkit::TestEnvironment;
use exec_testkit::checked_log::CheckedLog;
use exec_testkit::process::{LogReader, TestProcess};
use exec_testkit::semaphore::FifoSemaphore;
use exec_testkit::suite::assert_stream;
use exec_testkit::test_data::SeededBytes;

use crate::environments::{keeper_as_process, keeper_as_thread};

/// Many times what the spool holds.
const FLOOD_BYTES: u64 = 16 << 20;
const SEED: u64 = 31;

/// A child that begins to flood when `N` readers follow it. The semaphore must live as long as the child.
async fn flood<const N: usize>(env: &TestEnvironment, bytes: u64) -> (TestProcess<'_>, [LogReader; N], FifoSemaphore) {
    let semaphore = env.semaphore("semaphore");
    let script = format!("{} ; flood stdout {bytes} {SEED} 65536 ; exit 3", semaphore.acquire());
    let command = Command { spool_bytes: Some(SPOOL_MIN_BYTES), ..env.command(&script) };
    let process = env.start_command("p", command).await;
    let mut readers = Vec::new();
    for _ in 0..N {
        readers.push(process.reader().await);
    }
    semaphore.release();
    let readers = readers.try_into().unwrap_or_else(|_| unreachable!("as many as were asked for"));
    (process, readers, semaphore)
}

/// Reads slowly to the end, and checks that the cap holds meanwhile.
async fn read_slowly(mut reader: LogReader) -> CheckedLog {
    while reader.next_page().await {
        let head = reader.log.head.expect("pages were read");
        let most = SPOOL_MIN_BYTES + u64::from(SPLICE_BYTES) + u64::from(FLOOD_PIPE_BYTES);
        assert!(head.held_bytes <= most, "the cap holds while a reader is waited for: {head:?}");
        // not a wait: this reader is slow
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    reader.log
}

async fn a_slow_reader_misses_nothing(env: &TestEnvironment) {
    let (_process, [reader], _gate) = flood(env, FLOOD_BYTES).await;
    let seen = read_slowly(reader).await;
    assert_eq!(seen.gaps, []);
    assert_eq!(seen.exit().shell_code(), 3);
    assert_stream(&seen, Stream::Stdout, SeededBytes::new(SEED), FLOOD_BYTES as usize);
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
    let env = keeper_as_thread().await;
    let (_process, [slow, fast], _gate) = flood(&env, FLOOD_BYTES).await;
    let (slow, fast) = tokio::join!(read_slowly(slow), fast.read_to_end());
    assert_eq!((&slow.gaps[..], &fast.gaps[..]), (&[][..], &[][..]));
    assert_eq!(slow.entries, fast.entries);
}

#[tokio::test]
async fn a_reader_that_has_stopped_holds_the_child_for_a_while_only_and_is_told_what_it_missed() {
    let env = keeper_as_thread().await;
    let (process, [stopped], _gate) = flood(&env, FLOOD_BYTES).await;
    process.wait(WaitCondition::Closed).await.expect("it ends, although nobody reads");
    let late = stopped.read_to_end().await;
    let head = late.head.expect("pages were read");
    let [gap] = late.gaps[..] else { panic!("one gap, at the beginning: {:?}", late.gaps) };
    assert_eq!((gap.from_seq, gap.dropped_bytes), (1, head.dropped_bytes));
    assert_eq!(head.held_bytes + head.dropped_bytes, FLOOD_BYTES);
}

#[tokio::test]
async fn a_reader_that_leaves_lets_the_child_go_on() {
    let env = keeper_as_thread().await;
    let (process, [leaves], _gate) = flood(&env, FLOOD_BYTES).await;
    process.wait(WaitCondition::Output { regex: ".".to_owned(), after: 0 }).await.expect("it prints");
    drop(leaves);
    process.wait(WaitCondition::Closed).await.expect("it ends");
    assert_eq!(process.exit().await.shell_code(), 3);
}

#[tokio::test]
async fn last_words_beyond_the_cap_stay_until_they_are_read() {
    let env = keeper_as_thread().await;
    let bytes = SPOOL_MIN_BYTES + 48 * 1024;
    let (process, [reader], _gate) = flood(&env, bytes).await;
    process.wait(WaitCondition::Closed).await.expect("it ends, although nobody reads");
    assert_eq!(process.read_now().await.head.held_bytes, bytes);
    let seen = reader.read_to_end().await;
    assert_stream(&seen, Stream::Stdout, SeededBytes::new(SEED), bytes as usize);
    process.wait_for_head(|head| head.held_bytes <= SPOOL_MIN_BYTES).await;
}
