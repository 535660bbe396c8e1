//! A spool that is full: it forgets the oldest and says so, or lets the child wait.

use std::time::Duration;

use exec_core::limits::{SPLICE_BYTES, SPOOL_MIN_BYTES};
use exec_core::{ExitCause, Command, Head, Overflow, Stream};
use exec_env::process::{ReadQuery, WaitCondition};

use crate::bench::Bench;
use crate::pattern::Pattern;
use crate::process::Process;
use crate::suite::assert_pattern;
use crate::transcript::Transcript;

const FLOOD_BYTES: u64 = 8 << 20;
const PATTERN: Pattern = Pattern::new(21);

/// `dropOldest`: the gap is told with the exact number of bytes, and the tail is exact.
pub async fn an_overflow_is_told_with_its_exact_bytes_and_the_tail_is_exact(bench: &Bench) {
    let command = flood(bench, Overflow::DropOldest, "exit 3");
    let process = bench.launch("p", command).await;
    process.wait(WaitCondition::Closed).await.expect("it ends");
    process.until_head(|head| head.held_bytes <= SPOOL_MIN_BYTES).await;
    let transcript = process.transcript().await;
    let head = transcript.head.expect("pages were read");
    assert!(head.held_bytes > SPOOL_MIN_BYTES / 2, "no more is dropped than must be: {head:?}");
    assert_eq!(head.held_bytes + head.dropped_bytes, FLOOD_BYTES);
    let [gap] = transcript.gaps[..] else {
        panic!("one gap, at the beginning: {:?}", transcript.gaps);
    };
    assert_eq!((gap.to_seq, gap.dropped_bytes), (head.first_seq - 1, head.dropped_bytes));
    // A far reader may have been handed the first entries before they were forgotten; what it has is exact, too.
    let bytes = transcript.bytes(Stream::Stdout);
    let (early, tail) = bytes.split_at(bytes.len() - head.held_bytes as usize);
    assert_eq!(PATTERN.first_difference(0, early), None);
    assert_eq!(PATTERN.first_difference(head.dropped_bytes, tail), None);
    assert_eq!(gap.from_seq == 1, early.is_empty());
    assert_eq!(transcript.exit().status, exec_core::ExitStatus::Code(3));
}

/// A child over its cap is not slowed by somebody who asks now and then, and who is told each time what it missed.
pub async fn a_slow_poller_is_told_what_it_missed(bench: &Bench) {
    let gate = bench.gate("gate");
    let command =
        flood(bench, Overflow::DropOldest, &format!("{} ; flood stdout {FLOOD_BYTES} 22 65536 ; exit 0", gate.wait()));
    let process = bench.launch("p", command).await;
    let mut seen = Transcript::new(0);
    let mut position = Position::default();
    // One entry of the first flood, whose beginning may be forgotten already.
    position.advance(&mut seen, reader_page(&process, 0, 1).await);
    gate.open_once();
    process.wait(WaitCondition::Closed).await.expect("it ends");
    while !seen.is_closed() {
        let page = reader_page(&process, seen.cursor(), 200_000).await;
        position.advance(&mut seen, page);
    }
    assert_eq!(position.offset, 2 * FLOOD_BYTES, "seen or told as dropped");
    assert!(!seen.gaps.is_empty());
}

/// A log that forgot its beginning still tells the exit, be it by the head alone.
pub async fn the_exit_is_known_even_when_its_entry_is_forgotten(bench: &Bench) {
    let gate = bench.gate("gate");
    let mut command =
        bench.command(&format!("fork [ {} ; flood stdout {FLOOD_BYTES} 21 65536 ] ; exit 7", gate.wait()));
    command.spool_bytes = Some(SPOOL_MIN_BYTES);
    let process = bench.launch("p", command).await;
    process.reader().await.exited().await;
    gate.open_once();
    process.wait(WaitCondition::Closed).await.expect("it ends");
    let head = process.look().await.head;
    let (seq, exit) = head.exit.expect("it is known");
    assert!(seq < head.first_seq, "its entry is gone: {head:?}");
    assert_eq!((exit.shell_code(), head.closed), (7, true));
    assert_eq!(process.exit().await, exit);
}

/// `block`: a child whose last word filled the log has nothing to wait for, and ends.
pub async fn a_child_that_just_filled_a_blocking_log_ends(bench: &Bench) {
    let mut command = bench.command(&format!("flood stdout {SPOOL_MIN_BYTES} 21 65536 ; exit 5"));
    command.overflow = Overflow::Block;
    command.spool_bytes = Some(SPOOL_MIN_BYTES);
    let process = bench.launch("p", command).await;
    process.wait(WaitCondition::Closed).await.expect("it ends");
    let transcript = process.transcript().await;
    assert_pattern(&transcript, Stream::Stdout, PATTERN, SPOOL_MIN_BYTES as usize);
    assert_eq!((transcript.exit().shell_code(), &transcript.gaps[..]), (5, &[][..]));
}

/// `block`: the child waits at the cap, nothing is dropped, reading goes on, and terminate still works.
pub async fn a_blocked_child_waits_and_nothing_is_dropped(bench: &Bench) {
    let command = flood(bench, Overflow::Block, "exit 0");
    let process = bench.launch("p", command).await;
    let head = until_stalled(&process).await;
    // The cap is looked at between bites, so one bite may pass it.
    let most = SPOOL_MIN_BYTES + u64::from(SPLICE_BYTES);
    assert!(head.held_bytes <= most, "{head:?}");
    assert!(head.held_bytes >= SPOOL_MIN_BYTES / 2, "{head:?}");
    assert_eq!((head.dropped_bytes, head.first_seq), (0, 1));
    assert_eq!((head.exit, head.closed), (None, false));

    let mut seen = Transcript::new(0);
    while seen.cursor() + 1 < head.next_seq {
        seen.absorb(reader_page(&process, seen.cursor(), 100_000).await);
    }
    assert_eq!(seen.output_bytes(), head.held_bytes);
    let found = seen.bytes(Stream::Stdout);
    assert_eq!(PATTERN.first_difference(0, &found), None);
    // Reading makes no room: the log is kept for others, so the child still waits.
    assert_eq!(process.look().await.head, head);

    let terminated = process.kill().await;
    assert_eq!((terminated.was_running, terminated.left), (true, 0));
    let exit = process.exit().await;
    assert_eq!(exit.cause, ExitCause::Terminated);
    assert_eq!(super::signal_of(exit), Some(9));
    assert_eq!(process.look().await.head.dropped_bytes, 0);
}

/// `block` with room to spare is like any other log.
pub async fn a_child_within_its_cap_is_not_blocked(bench: &Bench) {
    let mut command = bench.command("flood stdout 500000 21 9000 ; exit 0");
    command.overflow = Overflow::Block;
    command.spool_bytes = Some(SPOOL_MIN_BYTES);
    let transcript = bench.launch("p", command).await.transcript().await;
    super::assert_pattern(&transcript, Stream::Stdout, PATTERN, 500_000);
    assert!(!transcript.head.expect("pages were read").stalled);
}

/// One byte at a time, records cost more than bytes: they count against the cap, or the disk would fill with them.
pub async fn records_of_tiny_entries_count_against_the_cap(bench: &Bench) {
    let gate = bench.gate("gate");
    let mut command = bench.command(&format!("bytes1 200000 ; {}", gate.wait()));
    command.spool_bytes = Some(SPOOL_MIN_BYTES);
    let process = bench.launch("p", command).await;
    gate.open_once();
    process.wait(WaitCondition::Closed).await.expect("it ends");
    let head = process.look().await.head;
    let records = (head.next_seq - head.first_seq) * exec_core::limits::RECORD_BYTES;
    assert!(head.held_bytes + records <= SPOOL_MIN_BYTES, "{head:?}");
    assert_eq!(head.held_bytes + head.dropped_bytes, 200_000);
}

/// Where a reader is in the bytes of one stream: what it saw, and what it was told is gone.
#[derive(Default)]
struct Position {
    offset: u64,
    judged: usize,
}

impl Position {
    /// Takes a page of two floods, 21 and then 22, in and checks each byte against its offset.
    fn advance(&mut self, transcript: &mut Transcript, page: exec_core::Page) {
        if let Some(gap) = page.gap {
            self.offset = gap.dropped_bytes;
        }
        transcript.absorb(page);
        for (_, _, bytes) in transcript.outputs().skip(self.judged) {
            let (first, second) = match FLOOD_BYTES.checked_sub(self.offset) {
                Some(left) => bytes.split_at(bytes.len().min(left as usize)),
                None => bytes.split_at(0),
            };
            assert_eq!(PATTERN.first_difference(self.offset, first), None);
            self.offset += first.len() as u64;
            if !second.is_empty() {
                let offset = self.offset - FLOOD_BYTES;
                assert_eq!(Pattern::new(22).first_difference(offset, second), None);
                self.offset += second.len() as u64;
            }
        }
        self.judged = transcript.outputs().count();
    }
}

fn flood(bench: &Bench, overflow: Overflow, then: &str) -> Command {
    let mut command = bench.command(&format!("flood stdout {FLOOD_BYTES} 21 65536 ; {then}"));
    command.overflow = overflow;
    command.spool_bytes = Some(SPOOL_MIN_BYTES);
    command
}

async fn reader_page(process: &Process<'_>, after: u64, max_bytes: usize) -> exec_core::Page {
    let query = ReadQuery { after, max_bytes: Some(max_bytes), wait: Duration::from_secs(3600) };
    process.read(query).await
}

/// A stall is no entry, so it is looked for: after each entry, and while none comes.
async fn until_stalled(process: &Process<'_>) -> Head {
    let mut after = 0;
    loop {
        let query = ReadQuery { after, max_bytes: Some(0), wait: Duration::from_millis(10) };
        let page = process.read(query).await;
        after = page.head.next_seq - 1;
        assert_eq!(page.head.exit, None, "a blocked child cannot end");
        if page.head.stalled {
            return page.head;
        }
    }
}
