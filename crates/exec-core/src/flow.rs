//! When output may move: space in the spool, batches of terminal output, the size of a splice and of a pipe.

use std::time::{Duration, Instant};

use crate::command::Overflow;
use crate::limits::{ENTRY_BYTES, PTY_BATCH_TIME, PTY_ECHO_BYTES, PTY_ECHO_GAP, PUNCH_BYTES, SPLICE_BYTES};

/// How much a spool may hold, and what happens beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Of output and index records together.
    pub cap_bytes: u64,
    pub overflow: Overflow,
}

/// Whether more output may be moved into a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceDecision {
    Free,
    /// After at least this many bytes of the oldest output are dropped.
    Drop {
        bytes: u64,
    },
    /// The child waits until somebody frees space.
    Wait,
}

impl Quota {
    /// Whether a spool that takes `cost_bytes` on disk may take more. `shared_excess_bytes` is what all spools together
    /// hold over their common cap; the fullest spool has to free it.
    pub fn decide_space(&self, cost_bytes: u64, shared_excess_bytes: u64) -> SpaceDecision {
        let own_excess = cost_bytes.saturating_sub(self.cap_bytes);
        let excess = own_excess.max(shared_excess_bytes.min(cost_bytes));
        match self.overflow {
            _ if excess == 0 => SpaceDecision::Free,
            Overflow::DropOldest => SpaceDecision::Drop { bytes: excess.next_multiple_of(self.step_bytes()) },
            Overflow::Block => SpaceDecision::Wait,
        }
    }

    /// Output is dropped in steps of one hole, but a small spool never drops most of itself at once.
    fn step_bytes(&self) -> u64 {
        (self.cap_bytes / 8).clamp(1, PUNCH_BYTES)
    }
}

/// How much one splice may move. It may be large only while no other process waits for the same thread.
pub fn splice_bytes(others_ready: bool) -> u32 {
    if others_ready { ENTRY_BYTES } else { SPLICE_BYTES }
}

/// Decides when the terminal output that was read so far becomes an entry.
///
/// A read from a terminal returns at most 4 KiB. The first bytes after a quiet time are flushed at once, and so are a
/// few bytes (the echo of a keystroke). While the terminal floods, reads are batched up to 64 KiB or
/// [`PTY_BATCH_TIME`].
#[derive(Debug, Clone, Copy, Default)]
pub struct PtyBatcher {
    flushed_at: Option<Instant>,
    /// When the first bytes of this batch came.
    since: Option<Instant>,
}

/// What to do with the bytes of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Make them an entry.
    Now,
    /// Wait for more, but not beyond this moment.
    By(Instant),
}

impl PtyBatcher {
    /// The batch has `bytes`; `more` says that the terminal has more to read.
    pub fn on_read(&mut self, bytes: u32, more: bool, now: Instant) -> Flush {
        let since = *self.since.get_or_insert(now);
        let gap = if bytes < PTY_ECHO_BYTES { PTY_ECHO_GAP } else { PTY_BATCH_TIME };
        let due = self.flushed_at.map_or(since, |at| at + gap);
        if bytes >= ENTRY_BYTES || (!more && now >= due) || now >= due + PTY_BATCH_TIME {
            *self = Self { flushed_at: Some(now), since: None };
            return Flush::Now;
        }
        Flush::By(due.max(now + Duration::from_micros(1)))
    }
}

/// Detects that a pipe floods, so that it is enlarged once and only then.
#[derive(Debug, Clone, Copy, Default)]
pub struct FloodDetector {
    full_in_a_row: u8,
    enlarged: bool,
}

impl FloodDetector {
    /// One splice took `bytes`. True exactly once: when the pipe has been full several times in a row.
    pub fn observe(&mut self, bytes: u32) -> bool {
        self.full_in_a_row = if bytes >= ENTRY_BYTES { self.full_in_a_row.saturating_add(1) } else { 0 };
        let now = !self.enlarged && self.full_in_a_row >= 3;
        self.enlarged |= now;
        now
    }
}
