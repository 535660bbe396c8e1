//! When bytes may move: room in the spool, the gathering of terminal output, the size of a pipe.

use std::time::{Duration, Instant};

use crate::command::Overflow;
use crate::limits::{ENTRY_BYTES, PTY_BATCH_TIME, PTY_ECHO_BYTES, PTY_ECHO_GAP, PUNCH_BYTES, SPLICE_BYTES};

/// How much a spool may hold, and what happens beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Bytes and records together.
    pub cap_bytes: u64,
    /// What a full spool does.
    pub overflow: Overflow,
}

/// The answer to "may I move more?".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceDecision {
    /// Yes.
    Free,
    /// Once at least this many bytes of the oldest are forgotten.
    Drop {
        /// Bytes over the cap, rounded up to a step worth a hole.
        bytes: u64,
    },
    /// No: the child waits until somebody makes room.
    Wait,
}

impl Quota {
    /// Whether a spool that costs `cost_bytes` may take more. `shared_excess_bytes` is what all spools together hold
    /// over their common cap; the fullest spool is asked to give it back.
    pub fn decide_space(&self, cost_bytes: u64, shared_excess_bytes: u64) -> SpaceDecision {
        let own_excess = cost_bytes.saturating_sub(self.cap_bytes);
        let excess = own_excess.max(shared_excess_bytes.min(cost_bytes));
        match self.overflow {
            _ if excess == 0 => SpaceDecision::Free,
            Overflow::DropOldest => SpaceDecision::Drop { bytes: excess.next_multiple_of(self.step_bytes()) },
            Overflow::Block => SpaceDecision::Wait,
        }
    }

    /// What is dropped in one go: a hole's worth, but of a small spool never most of it.
    fn step_bytes(&self) -> u64 {
        (self.cap_bytes / 8).clamp(1, PUNCH_BYTES)
    }
}

/// How much one splice may take: large bites only while nobody else is waiting for a turn.
pub fn splice_bytes(others_ready: bool) -> u32 {
    if others_ready { ENTRY_BYTES } else { SPLICE_BYTES }
}

/// Decides when gathered terminal output becomes an entry.
///
/// A terminal gives 4 KiB a read. The first bytes after a quiet time are sealed at once, and so are a few bytes (a
/// keystroke's echo); while it floods, reads are gathered to 64 KiB or [`PTY_BATCH_TIME`].
#[derive(Debug, Clone, Copy, Default)]
pub struct PtyBatcher {
    flushed_at: Option<Instant>,
    /// When the first of the bytes gathered now came.
    since: Option<Instant>,
}

/// What to do with the bytes gathered so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Make them an entry.
    Now,
    /// Wait for more, but not beyond this moment.
    By(Instant),
}

impl PtyBatcher {
    /// `bytes` are gathered; `more` says that the terminal has not run dry.
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

/// Watches whether a pipe floods, so that it is enlarged once and only then.
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
