//! A spool that is full: it drops the oldest output and reports it, or lets the child wait.

use std::time::Duration;

use exec_core::limits::{SPLICE_BYTES, SPOOL_MIN_BYTES};
use exec_core::{Command, ExitCause, Overflow, Stall, Stream};
use exec_env::process::{ReadQuery, WaitCondition};

use crate::checked_log::CheckedLog;
use crate::process::TestProcess;
use crate::suite::assert_stream;
use crate::test_data::SeededBytes;
use crate::test_environment::TestEnvironment;

const FLOOD_BYTES: u64 = 8 << 20;
const FLOOD: SeededBytes = SeededBytes::new(21);

pub async fn an_overflow_is_told_with_its_exact_bytes_and_the_tail_is_exact(env: &TestEnvironment) {
    let command = flood(env, Overflow::DropOldest, "exit 3");
    let process = env.start_command("p", command).await;
    process.wait(WaitCondition::Closed).await.expect("it ends");
    process.wait_for_head(|head| head.held_bytes <= SPOOL_MIN_BYTES).await;
    let log = process.read_to_end().await;
    let head = log.head.expect("pages were read");
    assert!(head.held_bytes > SPOOL_MIN_BYTES / 2, "no more is dropped than must be: {head:?}");
    assert_eq!(head.held_bytes + head.dropped_bytes, FLOOD_BYTES);
    let [gap] = log.gaps[..] else {
        panic!("one gap, at the beginning: {:?}", log.gaps);
    };
    assert_eq!((gap.to_seq, gap.dropped_bytes), (head.first_seq - 1, head.dropped_bytes));
    // A remote reader may have received the first entries before they were dropped; those must be exact, too.
    let bytes = log.bytes(Stream::Stdout);
    let (early, tail) = bytes.split_at(bytes.len() - head.held_bytes as usize);
    assert_eq!(FLOOD.first_difference(0, early), None);
    assert_eq!(FLOOD.first_difference(head.dropped_bytes, tail), None);
    assert_eq!(gap.from_seq == 1, early.is_empty());
    assert_eq!(log.exit().status, exec_core::ExitStatus::Code(3));
}

/// The child does not wait for somebody who only reads now and then.
pub async fn a_slow_poller_is_told_what_it_missed(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let command = flood(
        env,
        Overflow::DropOldest,
        &format!("{} ; flood stdout {FLOOD_BYTES} 22 65536 ; exit 0", semaphore.acquire()),
    );
    let process = env.start_command("p", command).await;
    let mut seen = CheckedLog::new(0);
    let mut position = Position::default();
    // One entry of the first flood, whose beginning may be dropped already.
    position.advance(&mut seen, reader_page(&process, 0, 1).await);
    semaphore.release();
    process.wait(WaitCondition::Closed).await.expect("it ends");
    while !seen.is_closed() {
        let page = reader_page(&process, seen.cursor(), 200_000).await;
        position.advance(&mut seen, page);
    }
    assert_eq!(position.offset, 2 * FLOOD_BYTES, "seen or told as dropped");
    assert!(!seen.gaps.is_empty());
}

/// What somebody who follows the log has yet to read is kept: the child waits, as it would at a pipe.
pub async fn a_follower_slower_than_the_flood_misses_nothing(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let script = format!("{} ; flood stdout {FLOOD_BYTES} 21 65536 ; exit 3", semaphore.acquire());
    let command = Command { spool_bytes: Some(SPOOL_MIN_BYTES), ..env.command(&script) };
    let process = env.start_command("p", command).await;
    let mut reader = process.reader().await;
    semaphore.release();
    while reader.next_page().await {
        // not a wait: this reader is slow
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(reader.log.gaps, []);
    assert_eq!(reader.log.exit().shell_code(), 3);
    assert_stream(&reader.log, Stream::Stdout, FLOOD, FLOOD_BYTES as usize);
}

/// The log is kept for the slowest of those who follow it; who leaves holds nobody up.
pub async fn the_slowest_of_two_followers_misses_nothing_and_who_leaves_is_not_waited_for(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let script = format!("{} ; flood stdout {FLOOD_BYTES} 21 65536 ; exit 3", semaphore.acquire());
    let command = Command { spool_bytes: Some(SPOOL_MIN_BYTES), ..env.command(&script) };
    let process = env.start_command("p", command).await;
    let (mut slow, fast, leaves) = (process.reader().await, process.reader().await, process.reader().await);
    semaphore.release();
    let slowly = async {
        slow.next_page().await;
        drop(leaves);
        while slow.next_page().await {
            // not a wait: this reader is slow
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        slow.log
    };
    let (slow, fast) = tokio::join!(slowly, fast.read_to_end());
    assert_eq!((&slow.gaps[..], &fast.gaps[..]), (&[][..], &[][..]));
    assert_stream(&slow, Stream::Stdout, FLOOD, FLOOD_BYTES as usize);
    assert_eq!(slow.entries, fast.entries);
}

/// The head of the log still has it.
pub async fn the_exit_is_known_even_when_its_entry_is_forgotten(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let mut command =
        env.command(&format!("fork [ {} ; flood stdout {FLOOD_BYTES} 21 65536 ] ; exit 7", semaphore.acquire()));
    command.spool_bytes = Some(SPOOL_MIN_BYTES);
    let process = env.start_command("p", command).await;
    process.reader().await.wait_for_exit().await;
    semaphore.release();
    process.wait(WaitCondition::Closed).await.expect("it ends");
    let head = process.read_now().await.head;
    let (seq, exit) = head.exit.expect("it is known");
    assert!(seq < head.first_seq, "its entry is gone: {head:?}");
    assert_eq!((exit.shell_code(), head.closed), (7, true));
    assert_eq!(process.exit().await, exit);
}

/// It prints nothing more, so it need not wait for room.
pub async fn a_child_that_just_filled_a_blocking_log_ends(env: &TestEnvironment) {
    let mut command = env.command(&format!("flood stdout {SPOOL_MIN_BYTES} 21 65536 ; exit 5"));
    command.overflow = Overflow::Block;
    command.spool_bytes = Some(SPOOL_MIN_BYTES);
    let process = env.start_command("p", command).await;
    process.wait(WaitCondition::Closed).await.expect("it ends");
    let log = process.read_to_end().await;
    assert_stream(&log, Stream::Stdout, FLOOD, SPOOL_MIN_BYTES as usize);
    assert_eq!((log.exit().shell_code(), &log.gaps[..]), (5, &[][..]));
}

/// The log can still be read, and the child be terminated.
pub async fn a_blocked_child_waits_and_nothing_is_dropped(env: &TestEnvironment) {
    let command = flood(env, Overflow::Block, "exit 0");
    let process = env.start_command("p", command).await;
    let head = process.wait_until_stalled().await;
    // The cap is checked between two splices, so one splice may pass it.
    let most = SPOOL_MIN_BYTES + u64::from(SPLICE_BYTES);
    assert!(head.held_bytes <= most, "{head:?}");
    assert!(head.held_bytes >= SPOOL_MIN_BYTES / 2, "{head:?}");
    assert_eq!((head.dropped_bytes, head.first_seq), (0, 1));
    assert_eq!((head.exit, head.closed, head.stalled), (None, false, Some(Stall::Spool)));

    let mut seen = CheckedLog::new(0);
    while seen.cursor() + 1 < head.next_seq {
        seen.add_page(reader_page(&process, seen.cursor(), 100_000).await);
    }
    assert_eq!(seen.output_bytes(), head.held_bytes);
    let found = seen.bytes(Stream::Stdout);
    assert_eq!(FLOOD.first_difference(0, &found), None);
    // Reading makes no room: the log is kept for others, so the child still waits.
    assert_eq!(process.read_now().await.head, head);

    let terminated = process.kill().await;
    assert_eq!((terminated.was_running, terminated.left), (true, 0));
    let exit = process.exit().await;
    assert_eq!(exit.cause, ExitCause::Terminated);
    assert_eq!(super::signal_of(exit), Some(9));
    // What it had printed before its end is bounded, and does not keep the log from being complete.
    process.wait(WaitCondition::Closed).await.expect("its log is complete");
    let log = process.read_to_end().await;
    let printed = log.bytes(Stream::Stdout);
    assert_eq!((FLOOD.first_difference(0, &printed), &log.gaps[..]), (None, &[][..]));
    assert!(printed.len() as u64 >= head.held_bytes, "nothing is dropped");
}

pub async fn a_child_within_its_cap_is_not_blocked(env: &TestEnvironment) {
    let mut command = env.command("flood stdout 500000 21 9000 ; exit 0");
    command.overflow = Overflow::Block;
    command.spool_bytes = Some(SPOOL_MIN_BYTES);
    let log = env.start_command("p", command).await.read_to_end().await;
    super::assert_stream(&log, Stream::Stdout, FLOOD, 500_000);
    assert_eq!(log.head.expect("pages were read").stalled, None);
}

/// Of entries of one byte, the index records cost more than the bytes; if they did not count, they would fill the disk.
pub async fn records_of_tiny_entries_count_against_the_cap(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let mut command = env.command(&format!("bytes1 200000 ; {}", semaphore.acquire()));
    command.spool_bytes = Some(SPOOL_MIN_BYTES);
    let process = env.start_command("p", command).await;
    semaphore.release();
    process.wait(WaitCondition::Closed).await.expect("it ends");
    let head = process.read_now().await.head;
    let records = (head.next_seq - head.first_seq) * exec_core::limits::RECORD_BYTES;
    assert!(head.held_bytes + records <= SPOOL_MIN_BYTES, "{head:?}");
    assert_eq!(head.held_bytes + head.dropped_bytes, 200_000);
}

/// A reader's offset in the bytes of one stream, including those that were reported as dropped.
#[derive(Default)]
struct Position {
    offset: u64,
    checked: usize,
}

impl Position {
    /// Adds a page of two floods, 21 and then 22, and checks each byte against its offset.
    fn advance(&mut self, log: &mut CheckedLog, page: exec_core::Page) {
        if let Some(gap) = page.gap {
            self.offset = gap.dropped_bytes;
        }
        log.add_page(page);
        for (_, _, bytes) in log.outputs().skip(self.checked) {
            let (first, second) = match FLOOD_BYTES.checked_sub(self.offset) {
                Some(left) => bytes.split_at(bytes.len().min(left as usize)),
                None => bytes.split_at(0),
            };
            assert_eq!(FLOOD.first_difference(self.offset, first), None);
            self.offset += first.len() as u64;
            if !second.is_empty() {
                let offset = self.offset - FLOOD_BYTES;
                assert_eq!(SeededBytes::new(22).first_difference(offset, second), None);
                self.offset += second.len() as u64;
            }
        }
        self.checked = log.outputs().count();
    }
}

fn flood(env: &TestEnvironment, overflow: Overflow, then: &str) -> Command {
    let mut command = env.command(&format!("flood stdout {FLOOD_BYTES} 21 65536 ; {then}"));
    command.overflow = overflow;
    command.spool_bytes = Some(SPOOL_MIN_BYTES);
    command
}

async fn reader_page(process: &TestProcess<'_>, after: u64, max_bytes: usize) -> exec_core::Page {
    let query = ReadQuery { after, max_bytes: Some(max_bytes), wait: Duration::from_secs(3600) };
    process.read(query).await
}
