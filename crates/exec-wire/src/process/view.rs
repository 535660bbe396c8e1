//! What to show of a log (ours): lines, chosen and cleaned where the log is.

use super::log::{Exit, LogHead, Stream};
use crate::initialize::is_false;
use crate::shape::shapes;
use crate::text::OsText;

shapes! {
    /// Asks for a view. Without `head`, `tail` and `lines` it shows everything from the beginning on, as far as it goes.
    pub struct ViewParams {
        pub process_id: String,
        /// Only what comes after this number.
        pub after_seq: Option<u64>,
        /// And after so many bytes of the entry that follows it.
        pub skip_bytes: Option<u64>,
        /// Nothing after this number.
        pub upto_seq: Option<u64>,
        /// Only what was printed from this time on: milliseconds since 1970, by the server's clock.
        pub since_ms: Option<u64>,
        /// Only what is not older than this.
        pub since_age_ms: Option<u64>,
        /// Only this stream; all if absent.
        pub stream: Option<Stream>,
        /// So much of the beginning.
        pub head: Option<ViewAmount>,
        /// So much of the end.
        pub tail: Option<ViewAmount>,
        /// The lines with these numbers, instead of `head` and `tail`.
        pub lines: Option<ViewLines>,
        /// Only lines that match.
        pub grep: Option<ViewGrep>,
        /// Without escape sequences and control characters.
        #[serde(default, skip_serializing_if = "is_false")]
        pub plain: bool,
        /// Of text that a carriage return let the program overwrite, only the last state.
        #[serde(default, skip_serializing_if = "is_false")]
        pub collapse_overwritten: bool,
        /// Equal lines that follow one another become one.
        #[serde(default, skip_serializing_if = "is_false")]
        pub collapse_repeats: bool,
        /// Most bytes of the view: of its text, and 96 for each line. 1 MiB if absent, which is also the most.
        pub max_bytes: Option<u64>,
    }

    /// Lines or bytes; one of them.
    #[derive(Copy)]
    pub struct ViewAmount {
        pub lines: Option<u64>,
        /// Of text, line ends included. A line may be cut.
        pub bytes: Option<u64>,
    }

    /// Numbers of lines, counted from 1 where the view begins.
    #[derive(Copy)]
    pub struct ViewLines {
        pub first: u64,
        /// Included.
        pub last: u64,
    }

    pub struct ViewGrep {
        /// The expression, over bytes. It is tried on each line alone.
        pub regex: String,
        /// Whether upper and lower case are the same.
        #[serde(default, skip_serializing_if = "is_false")]
        pub ignore_case: bool,
        /// Lines to show before each match, at most 1,000.
        pub before: Option<u32>,
        /// Lines to show after each match, at most 1,000.
        pub after: Option<u32>,
        /// Matching lines to show; the others are counted.
        pub max_matches: Option<u64>,
    }

    /// What was asked for, and what was left out of it.
    pub struct ViewResult {
        /// In the order in which they ended.
        pub lines: Vec<ViewLine>,
        /// How many of them come before the place where others were left out.
        pub head_lines: u64,
        pub left_out: ViewLeftOut,
        pub collapsed: ViewCollapsed,
        /// Matching lines, shown or not; 0 without an expression.
        pub matches: u64,
        /// The first number of the range.
        pub first_seq: u64,
        /// The last number of the range.
        pub last_seq: u64,
        /// Where to go on: `afterSeq` of the next request.
        pub next_after_seq: u64,
        /// And its `skipBytes`.
        pub next_skip_bytes: u64,
        /// What was asked for and is gone.
        pub gap: Option<ViewGap>,
        /// The log at that moment.
        pub head: LogHead,
        /// How it ended, if it has.
        pub exit: Option<Exit>,
    }

    pub struct ViewLine {
        /// The number of the entry in which it ends.
        pub seq: u64,
        pub stream: Stream,
        /// Counted from 1 where the view begins; absent if the lines before it were not counted.
        pub number: Option<u64>,
        /// Without its line end.
        pub text: OsText,
        /// Whether it does not match itself, but stands near a line that does.
        #[serde(default, skip_serializing_if = "is_false")]
        pub context: bool,
        /// Whether it has no line end yet, or is a piece of a line that is longer than 1 MiB.
        #[serde(default, skip_serializing_if = "is_false")]
        pub unended: bool,
        /// How often the same line came again.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub repeats: u64,
        /// How many of its bytes are not shown.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub cut_bytes: u64,
    }

    /// What is not shown of the range.
    #[derive(Copy)]
    pub struct ViewLeftOut {
        /// As they were printed.
        pub bytes: u64,
        /// Absent if there are too many to have been counted.
        pub lines: Option<u64>,
        /// Matching lines.
        pub matches: u64,
    }

    /// What the lines that are shown have lost.
    #[derive(Copy)]
    pub struct ViewCollapsed {
        /// Escape sequences, overwritten text, repeated lines.
        pub bytes: u64,
        /// Lines that only repeat the one before.
        pub lines: u64,
    }

    /// Entries that a full spool has dropped.
    #[derive(Copy)]
    pub struct ViewGap {
        pub from_seq: u64,
        /// Included.
        pub to_seq: u64,
        /// All that the log has dropped so far.
        pub dropped_bytes: u64,
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
