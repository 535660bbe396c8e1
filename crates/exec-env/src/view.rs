//! Views: the part of a log that somebody wants to see, computed where the log is, so that megabytes need not travel to be
//! thrown away.
//!
//! ```text
//!   entries ─► lines ─► plain, overwritten ─► grep with context ─► repeats ─► head and tail, within `max_bytes`
//!             [`lines`]     [`plain`]             [`engine`]                      [`selection`]
//! ```
//!
//! A view consists of lines. A line belongs to one stream and is never torn by the other; it stands where it ended. What a
//! view leaves out it says in numbers, together with the position from which to go on.
//!
//! The engine is pure: it is told bytes, in any pieces, and never waits. Whoever has the log drives it: this machine over
//! its files, a client over pages ([`view_by_reading`]). Deliberately absent: files, clocks, threads.

mod engine;
mod lines;
mod matcher;
mod paging;
mod plain;
mod selection;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use exec_core::{Gap, Head, Seq, Stream};

pub use engine::{Chunk, Flow, Outside, ViewEngine};
pub use matcher::{FoundLines, LineSearch};
pub use paging::{PagedProgress, PagedView, view_by_reading};
pub use plain::without_escapes;

/// Most bytes of a view, [`LINE_OVERHEAD_BYTES`] of each line included. Any client accepts a reply of that size.
pub const VIEW_BYTES: usize = 1 << 20;

/// What a line costs beside its bytes where it is held and where it is sent: its numbers and their names.
pub const LINE_OVERHEAD_BYTES: usize = 96;

/// Longest line. A longer one is treated as several, so that a log without line ends takes no more memory than others.
pub const LINE_BYTES: usize = 1 << 20;

/// Most lines of context before a match, and after it.
pub const CONTEXT_LINES: u32 = 1000;

/// Most memory of a compiled expression, in bytes. What would take more is refused.
pub const REGEX_BYTES: usize = 4 << 20;

/// Longest expression, in bytes. To parse it costs many times as much.
pub const PATTERN_BYTES: usize = 64 << 10;

/// What to show of a log. The default shows all of it, as far as a view goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewQuery {
    /// Where to begin.
    pub from: Position,
    /// Only what is newer than this, by the clock of the machine that has the log.
    pub since: Option<Since>,
    /// Nothing after this entry.
    pub upto: Option<Seq>,
    /// Only this stream.
    pub stream: Option<Stream>,
    /// Which of the lines.
    pub part: ViewPart,
    /// Only lines that match, with some lines around them.
    pub grep: Option<Grep>,
    /// Without escape sequences and control characters.
    pub plain: bool,
    /// Of text that a carriage return let the program overwrite, only the last state.
    pub collapse_overwritten: bool,
    /// Equal lines that follow one another become one.
    pub collapse_repeats: bool,
    /// Most bytes of the view, at most [`VIEW_BYTES`]; each line counts [`LINE_OVERHEAD_BYTES`] more than its text.
    pub max_bytes: usize,
}

impl Default for ViewQuery {
    fn default() -> Self {
        Self {
            from: Position::default(),
            since: None,
            upto: None,
            stream: None,
            part: ViewPart::ALL,
            grep: None,
            plain: false,
            collapse_overwritten: false,
            collapse_repeats: false,
            max_bytes: VIEW_BYTES,
        }
    }
}

/// A place in a log: between two entries, or within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Position {
    /// Behind this entry.
    pub after: Seq,
    /// And behind so many bytes of the entry that follows it.
    pub skip_bytes: u64,
}

/// From when on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// From this moment on.
    Time(SystemTime),
    /// Not older than this.
    Age(Duration),
}

/// Which of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewPart {
    /// The first and the last ones. What lies between is left out.
    HeadTail {
        /// How much of the beginning.
        head: Amount,
        /// How much of the end.
        tail: Amount,
    },
    /// The lines with these numbers, both included, counted from 1 where the view begins.
    Lines {
        /// The first one.
        first: u64,
        /// The last one.
        last: u64,
    },
}

impl ViewPart {
    /// Everything, from the beginning on.
    pub const ALL: Self = Self::HeadTail { head: Amount::Lines(u64::MAX), tail: Amount::Lines(0) };

    /// The first `lines`.
    pub const fn head(lines: u64) -> Self {
        Self::HeadTail { head: Amount::Lines(lines), tail: Amount::Lines(0) }
    }

    /// The last `lines`.
    pub const fn tail(lines: u64) -> Self {
        Self::HeadTail { head: Amount::Lines(0), tail: Amount::Lines(lines) }
    }

    /// How much of the end is wanted, if nothing of the beginning is.
    pub fn only_tail(self) -> Option<Amount> {
        match self {
            Self::HeadTail { head, tail } if head.is_nothing() => Some(tail),
            _ => None,
        }
    }
}

/// How much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// So many lines.
    Lines(u64),
    /// So many bytes of text, line ends included. A line may be cut.
    Bytes(u64),
}

impl Amount {
    /// Whether it is none at all.
    pub fn is_nothing(self) -> bool {
        matches!(self, Self::Lines(0) | Self::Bytes(0))
    }
}

/// Which lines match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grep {
    /// Over bytes, in the syntax of the `regex` crate. It is tried on each line alone, after escape sequences and overwritten
    /// text were removed, if they are.
    pub regex: String,
    /// Whether upper and lower case are the same.
    pub ignore_case: bool,
    /// Lines to show before each match, at most [`CONTEXT_LINES`].
    pub before: u32,
    /// Lines to show after each match, at most [`CONTEXT_LINES`].
    pub after: u32,
    /// Matching lines to show. Those beyond are counted.
    pub max_matches: u64,
}

impl Grep {
    /// All lines that match, without others around them.
    pub fn new(regex: impl Into<String>) -> Self {
        Self { regex: regex.into(), ignore_case: false, before: 0, after: 0, max_matches: u64::MAX }
    }
}

/// What was asked for, and what was left out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// In the order in which they ended.
    pub lines: Vec<ViewLine>,
    /// How many of `lines` come before the place where others were left out: all, unless a head and a tail were asked for.
    pub head_lines: usize,
    /// What was left out of the range.
    pub left_out: LeftOut,
    /// What the lines that are shown have lost to `plain` and the collapsing.
    pub collapsed: Collapsed,
    /// Lines that match the expression, shown or not; 0 without one.
    pub matches: u64,
    /// The first entry of the range.
    pub first_seq: Seq,
    /// The last entry of the range; one before `first_seq` if it is empty.
    pub last_seq: Seq,
    /// Where to go on: behind what is shown, if something after it was left out, else behind the range.
    pub next: Position,
    /// Entries that were asked for and that a full spool has dropped.
    pub gap: Option<Gap>,
    /// The log when it was looked at.
    pub head: Head,
}

/// A line of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewLine {
    /// The entry in which it ends.
    pub seq: Seq,
    /// Where it came from.
    pub stream: Stream,
    /// Its number, counted from 1 where the view begins. `None` if the lines before it were not counted.
    pub number: Option<u64>,
    /// Whether it matches, or is only near a line that does. Without an expression all lines match.
    pub is_match: bool,
    /// Without its line end.
    pub text: Bytes,
    /// Whether it ends in a line end. What a program has not ended yet, does not; neither does a piece of a line that is longer
    /// than [`LINE_BYTES`].
    pub ended: bool,
    /// How often the same line came again.
    pub repeats: u64,
    /// How many bytes of it were left out, at its end or, in a tail, at its beginning.
    pub cut_bytes: u64,
}

/// What a view does not show of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Bytes as they were printed.
    pub bytes: u64,
    /// Lines; `None` if there are too many to have been counted.
    pub lines: Option<u64>,
    /// Matching lines.
    pub matches: u64,
}

/// What became of the text that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collapsed {
    /// Bytes that are not shown: escape sequences, overwritten text, repeated lines.
    pub bytes: u64,
    /// Lines that only repeat the one before.
    pub lines: u64,
}
