//! The log of a process: its entries, and the arithmetic of its sequence numbers. The bytes are kept elsewhere.
//!
//! ```text
//!   dropped (counted)      held                          next
//!   1 ……………… first-1 │ first ………… exit … closed │ next = last + 1
//! ```
//!
//! Every entry takes the next seq: 1, 2, 3 … without holes; output, exit and closed share the counter. When a spool
//! drops its oldest entries, `first` moves up and the bytes are counted, so that a reader always knows what it missed.

use bytes::Bytes;

use crate::exit::Exit;
use crate::limits::RECORD_BYTES;

/// The number of an entry in its log. 0 is "before the first".
pub type Seq = u64;

/// Where output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    Stdout,
    Stderr,
    /// The terminal, where stdout and stderr cannot be told apart.
    Pty,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub seq: Seq,
    pub body: EntryBody,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryBody {
    /// At most [`crate::limits::ENTRY_BYTES`].
    Output { stream: Stream, bytes: Bytes },
    /// The leader was reaped. Output of surviving children may still follow.
    Exited(Exit),
    /// No writer is left. Nothing follows.
    Closed,
}

/// The state of a log at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The first seq still held.
    pub first_seq: Seq,
    /// The seq the next entry will get.
    pub next_seq: Seq,
    /// Output bytes.
    pub held_bytes: u64,
    /// Output bytes dropped so far.
    pub dropped_bytes: u64,
    /// The exit of the leader and the seq of its entry, once it is known. Stays when the entry itself is dropped.
    pub exit: Option<(Seq, Exit)>,
    /// The log is complete.
    pub closed: bool,
    /// Why the child waits, if it does. Nothing is lost meanwhile.
    pub stalled: Option<Stall>,
}

/// Why a child waits with its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// The disk is full, or cannot be written for now.
    Disk,
    /// The spool is full, and may drop nothing.
    Spool,
    /// The spool is full of what a reader has yet to read.
    Reader,
}

impl Head {
    /// Whether a reader that has seen everything up to `after` has something to read or nothing more to wait for.
    pub fn has_news(&self, after: Seq) -> bool {
        self.closed || after < self.next_seq - 1
    }

    /// The entries after `after` that a reader can no longer get.
    pub fn gap(&self, after: Seq) -> Option<Gap> {
        (after < self.first_seq - 1).then(|| Gap {
            from_seq: after + 1,
            to_seq: self.first_seq - 1,
            dropped_bytes: self.dropped_bytes,
        })
    }
}

/// Entries that were dropped before a reader got them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first that is missing.
    pub from_seq: Seq,
    /// The last that is missing.
    pub to_seq: Seq,
    /// All bytes that this process's log has dropped so far.
    pub dropped_bytes: u64,
}

/// Some entries and the state of the log when they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In order, without holes.
    pub entries: Vec<Entry>,
    /// What was dropped between the reader's position and the first entry.
    pub gap: Option<Gap>,
    pub head: Head,
}

impl Page {
    /// The position after this page, for a reader that was at `after`.
    pub fn cursor(&self, after: Seq) -> Seq {
        let past_gap = self.gap.map_or(after, |gap| gap.to_seq);
        self.entries.last().map_or(past_gap, |entry| entry.seq)
    }
}

/// The counters of a log. Whoever appends or drops an entry calls it, and publishes [`Log::head`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    first: Seq,
    next: Seq,
    held_bytes: u64,
    dropped_bytes: u64,
    exit: Option<(Seq, Exit)>,
    closed: bool,
}

impl Default for Log {
    fn default() -> Self {
        Self { first: 1, next: 1, held_bytes: 0, dropped_bytes: 0, exit: None, closed: false }
    }
}

impl Log {
    /// A log of an earlier owner, with the counters that its files give.
    pub fn resume(head: &Head) -> Self {
        Self {
            first: head.first_seq,
            next: head.next_seq,
            held_bytes: head.held_bytes,
            dropped_bytes: head.dropped_bytes,
            exit: head.exit,
            closed: head.closed,
        }
    }

    pub fn append_output(&mut self, bytes: u32) -> Seq {
        debug_assert!(!self.closed, "nothing follows closed");
        self.held_bytes += u64::from(bytes);
        self.take_seq()
    }

    pub fn append_exit(&mut self, exit: Exit) -> Seq {
        debug_assert!(self.exit.is_none() && !self.closed, "a leader exits once");
        let seq = self.take_seq();
        self.exit = Some((seq, exit));
        seq
    }

    pub fn append_closed(&mut self) -> Seq {
        debug_assert!(self.exit.is_some() && !self.closed, "closed comes once, after exited");
        self.closed = true;
        self.take_seq()
    }

    /// The oldest entry is dropped; exit and closed have 0 `output_bytes`. The exit stays known.
    pub fn drop_first(&mut self, output_bytes: u32) {
        debug_assert!(self.first < self.next, "nothing is held");
        self.first += 1;
        self.held_bytes -= u64::from(output_bytes);
        self.dropped_bytes += u64::from(output_bytes);
    }

    /// What the log takes on disk: its bytes and its index records.
    pub fn cost_bytes(&self) -> u64 {
        self.held_bytes + (self.next - self.first) * RECORD_BYTES
    }

    pub fn head(&self, stalled: Option<Stall>) -> Head {
        Head {
            first_seq: self.first,
            next_seq: self.next,
            held_bytes: self.held_bytes,
            dropped_bytes: self.dropped_bytes,
            exit: self.exit,
            closed: self.closed,
            stalled,
        }
    }

    fn take_seq(&mut self) -> Seq {
        let seq = self.next;
        self.next += 1;
        seq
    }
}
