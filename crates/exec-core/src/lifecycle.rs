//! When a process's log gets its `exited` and `closed` entries.
//!
//! ```text
//!   running ── exit known ──► exited ── last stream ends ──► closed
//!      └── all streams end ──► silent ── exit known ──► exited, closed
//! ```
//!
//! Bytes, the end of each stream and the exit may be learnt in any order. The log always has one order: what the leader
//! printed, `exited`, what surviving children print, `closed`. `exited` does not wait for the streams to end.

use crate::exit::Exit;
use crate::log::Stream;

/// The entry that must be appended to the log now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Append {
    Exited(Exit),
    Closed,
}

/// Which streams are open, and which of the two entries the log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifecycle {
    open: StreamSet,
    exited: bool,
    closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamSet(u8);

impl StreamSet {
    /// stdout and stderr.
    pub const PIPES: StreamSet = StreamSet(0b011);
    pub const PTY: StreamSet = StreamSet(0b100);
    pub const NONE: StreamSet = StreamSet(0);

    pub fn contains(self, stream: Stream) -> bool {
        self.0 & bit(stream) != 0
    }

    pub fn insert(&mut self, stream: Stream) {
        self.0 |= bit(stream);
    }

    /// Whether `stream` was in the set.
    pub fn remove(&mut self, stream: Stream) -> bool {
        let was_in = self.contains(stream);
        self.0 &= !bit(stream);
        was_in
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// In a fixed order.
    pub fn iter(self) -> impl Iterator<Item = Stream> {
        [Stream::Stdout, Stream::Stderr, Stream::Pty].into_iter().filter(move |stream| self.contains(*stream))
    }
}

fn bit(stream: Stream) -> u8 {
    1 << stream as u8
}

impl Lifecycle {
    /// A process that was just started, with these streams open.
    pub fn new(open: StreamSet) -> Self {
        Self { open, exited: false, closed: false }
    }

    /// A process of an earlier owner, with what its log already contains.
    pub fn resume(open: StreamSet, exited: bool, closed: bool) -> Self {
        Self { open, exited, closed }
    }

    /// Streams that may still bring bytes.
    pub fn open(&self) -> StreamSet {
        self.open
    }

    pub fn exited(&self) -> bool {
        self.exited
    }

    pub fn closed(&self) -> bool {
        self.closed
    }

    /// A stream has no writer left. A second end of the same stream changes nothing.
    pub fn on_eof(&mut self, stream: Stream) -> Option<Append> {
        self.open.remove(stream);
        self.close_if_done()
    }

    /// The leader was reaped (or is lost). The caller has drained what it had printed. A second exit changes nothing.
    pub fn on_exit(&mut self, exit: Exit) -> (Option<Append>, Option<Append>) {
        if self.exited {
            return (None, None);
        }
        self.exited = true;
        (Some(Append::Exited(exit)), self.close_if_done())
    }

    fn close_if_done(&mut self) -> Option<Append> {
        let done = self.exited && self.open.is_empty() && !self.closed;
        self.closed |= done;
        done.then_some(Append::Closed)
    }
}
