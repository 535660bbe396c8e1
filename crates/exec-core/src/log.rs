//! The log a process writes: its arithmetic, without its bytes.
//!
//! ```text
//!   dropped (counted)      held                          next
//!   1 ……………… first-1 │ first ………… exit … closed │ next = last + 1
//! ```
//!
//! Every entry takes the next seq: 1, 2, 3 … without holes; output, exit and closed share the counter. When a spool
//! forgets its oldest entries, `first` moves up and the bytes are counted, so that a reader always knows what it missed.

use bytes::Bytes;

use crate::exit::Exit;
use crate::limits::RECORD_BYTES;

/// The place of an entry. 0 is "before the first".
pub type Seq = u64;

/// Where bytes came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The terminal, where the two cannot be told apart.
    Pty,
}

/// One entry as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub seq: Seq,
    /// What happened.
    pub body: EntryBody,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryBody {
    /// The child printed.
    Output {
        /// Where.
        stream: Stream,
        /// What; at most [`crate::limits::ENTRY_BYTES`].
        bytes: Bytes,
    },
    /// The leader was reaped. Output of surviving children may still follow.
    Exited(Exit),
    /// No writer is left. Nothing follows.
    Closed,
}

/// What a log is at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The first seq still held.
    pub first_seq: Seq,
    /// The seq the next entry will get.
    pub next_seq: Seq,
    /// Output bytes held.
    pub held_bytes: u64,
    /// Output bytes forgotten so far.
    pub dropped_bytes: u64,
    /// The end of the leader, and its place, once it is known.
    pub exit: Option<(Seq, Exit)>,
    /// Whether the log is complete.
    pub closed: bool,
    /// The child waits: the spool is full or the disk is. Nothing is lost meanwhile.
    pub stalled: bool,
}

impl Head {
    /// Whether a reader that has seen everything up to `after` has something to read or nothing more to wait for.
    pub fn has_news(&self, after: Seq) -> bool {
        self.closed || after < self.next_seq - 1
    }

    /// What a reader at `after` has missed for good.
    pub fn gap(&self, after: Seq) -> Option<Gap> {
        (after < self.first_seq - 1).then(|| Gap {
            from_seq: after + 1,
            to_seq: self.first_seq - 1,
            dropped_bytes: self.dropped_bytes,
        })
    }
}

/// Entries a reader wanted and can no longer have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// First missing.
    pub from_seq: Seq,
    /// Last missing.
    pub to_seq: Seq,
    /// Bytes this process's log has forgotten in all, so far.
    pub dropped_bytes: u64,
}

/// Some entries and the state of the log when they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In order, without holes.
    pub entries: Vec<Entry>,
    /// What lies between the reader's place and the first entry, if it is gone.
    pub gap: Option<Gap>,
    /// The log at that moment.
    pub head: Head,
}

impl Page {
    /// The place after this page for a reader that was at `after`.
    pub fn cursor(&self, after: Seq) -> Seq {
        let past_gap = self.gap.map_or(after, |gap| gap.to_seq);
        self.entries.last().map_or(past_gap, |entry| entry.seq)
    }
}

/// The log's counters. Whoever appends or forgets an entry tells it, and publishes [`Log::head`].
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
    /// A log found again, with the counters its notes give.
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

    /// Output of `bytes` took its place.
    pub fn append_output(&mut self, bytes: u32) -> Seq {
        debug_assert!(!self.closed, "nothing follows closed");
        self.held_bytes += u64::from(bytes);
        self.take()
    }

    /// The leader's end took its place.
    pub fn append_exit(&mut self, exit: Exit) -> Seq {
        debug_assert!(self.exit.is_none() && !self.closed, "a leader ends once");
        let seq = self.take();
        self.exit = Some((seq, exit));
        seq
    }

    /// The last entry took its place.
    pub fn append_closed(&mut self) -> Seq {
        debug_assert!(self.exit.is_some() && !self.closed, "closed comes once, after exited");
        self.closed = true;
        self.take()
    }

    /// The oldest entry, of `output_bytes`, is forgotten. Exit and closed pass with 0 bytes; the exit stays known.
    pub fn drop_first(&mut self, output_bytes: u32) {
        debug_assert!(self.first < self.next, "nothing is held");
        self.first += 1;
        self.held_bytes -= u64::from(output_bytes);
        self.dropped_bytes += u64::from(output_bytes);
    }

    /// What the log costs on disk: its bytes and its records.
    pub fn cost_bytes(&self) -> u64 {
        self.held_bytes + (self.next - self.first) * RECORD_BYTES
    }

    /// What a reader may know.
    pub fn head(&self, stalled: bool) -> Head {
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

    fn take(&mut self) -> Seq {
        let seq = self.next;
        self.next += 1;
        seq
    }
}
