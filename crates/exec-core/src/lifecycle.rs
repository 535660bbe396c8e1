//! The life of a process, as its log tells it.
//!
//! ```text
//!   running ── exit known ──► exited ── last stream ends ──► closed
//!      └── all streams end ──► silent ── exit known ──► exited, closed
//! ```
//!
//! Bytes, the end of each stream and the exit may be learnt in any order. The log has one order: what the leader
//! printed, `exited`, what survivors print, `closed`. `exited` waits for nobody.

use crate::exit::Exit;
use crate::log::Stream;

/// What must be appended now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Append {
    /// The leader's end.
    Exited(Exit),
    /// The end of the log.
    Closed,
}

/// What is known so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifecycle {
    open: StreamSet,
    exited: bool,
    closed: bool,
}

/// A set of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamSet(u8);

impl StreamSet {
    /// stdout and stderr.
    pub const PIPES: StreamSet = StreamSet(0b011);
    /// The terminal.
    pub const PTY: StreamSet = StreamSet(0b100);
    /// None.
    pub const NONE: StreamSet = StreamSet(0);

    /// Whether `stream` is one of them.
    pub fn contains(self, stream: Stream) -> bool {
        self.0 & bit(stream) != 0
    }

    /// Puts `stream` in.
    pub fn insert(&mut self, stream: Stream) {
        self.0 |= bit(stream);
    }

    /// Takes `stream` out; whether it was in.
    pub fn remove(&mut self, stream: Stream) -> bool {
        let was_in = self.contains(stream);
        self.0 &= !bit(stream);
        was_in
    }

    /// Whether none is left.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in the set, in a fixed order.
    pub fn iter(self) -> impl Iterator<Item = Stream> {
        [Stream::Stdout, Stream::Stderr, Stream::Pty].into_iter().filter(move |stream| self.contains(*stream))
    }
}

fn bit(stream: Stream) -> u8 {
    match stream {
        Stream::Stdout => 1,
        Stream::Stderr => 2,
        Stream::Pty => 4,
    }
}

impl Lifecycle {
    /// A process that was just started, with these streams open.
    pub fn new(open: StreamSet) -> Self {
        Self { open, exited: false, closed: false }
    }

    /// A process found again: what its log already says.
    pub fn resume(open: StreamSet, exited: bool, closed: bool) -> Self {
        Self { open, exited, closed }
    }

    /// Streams that may still bring bytes.
    pub fn open(&self) -> StreamSet {
        self.open
    }

    /// Whether the log tells of the leader's end.
    pub fn exited(&self) -> bool {
        self.exited
    }

    /// Whether the log is complete.
    pub fn closed(&self) -> bool {
        self.closed
    }

    /// A stream has no writer left. A second end of the same stream is no news.
    pub fn on_eof(&mut self, stream: Stream) -> Option<Append> {
        self.open.remove(stream);
        self.close_if_done()
    }

    /// The leader was reaped (or is lost). The caller has drained what it had printed. A second exit is no news.
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
