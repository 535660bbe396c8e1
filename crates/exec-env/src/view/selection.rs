//! Which rows are shown: repeats become one, the head is taken first, the tail keeps the last, within the bytes of a view.
//!
//! A row that finds no place is counted, not kept. So the memory of a view is its size, however long the log is.

use std::collections::VecDeque;

use bytes::Bytes;
use exec_core::{Seq, Stream};

use super::{Amount, Collapsed, LINE_OVERHEAD_BYTES, Position, ViewLine, ViewPart};

/// A line that may be shown.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) seq: Seq,
    pub(super) stream: Stream,
    pub(super) number: u64,
    pub(super) is_match: bool,
    pub(super) text: Vec<u8>,
    pub(super) ended: bool,
    /// Lines that it stands for: more than one if it repeats, none for the second part of one that was cut in two.
    pub(super) lines: u64,
    /// What these took in the log.
    pub(super) raw_bytes: u64,
    pub(super) cut_bytes: u64,
    /// The place behind the last of them.
    pub(super) end: Position,
    /// The number of the last of them.
    pub(super) last_number: u64,
    /// Its beginning is not known, so it must not be shown.
    pub(super) torn: bool,
}

impl Row {
    /// Bytes of text, as [`Amount::Bytes`] counts them.
    fn text_bytes(&self) -> u64 {
        self.text.len() as u64 + u64::from(self.ended)
    }

    fn cost(&self) -> usize {
        self.text.len() + LINE_OVERHEAD_BYTES
    }

    /// Leaves out what follows the first `len` bytes.
    fn cut_end(&mut self, len: usize) {
        let len = character_before(&self.text, len);
        self.cut_bytes += (self.text.len() - len) as u64 + u64::from(self.ended);
        self.text.truncate(len);
        self.ended = false;
    }

    /// Leaves out the first `len` bytes.
    fn cut_start(&mut self, len: usize) {
        let len = character_after(&self.text, len);
        self.cut_bytes += len as u64;
        self.text.drain(..len);
    }

    /// Cuts it in two, the first with `len` bytes of text.
    fn split(mut self, len: usize) -> (Self, Self) {
        let len = character_before(&self.text, len);
        let mut second = self.clone();
        second.text.drain(..len);
        second.lines = 0;
        second.raw_bytes = second.text_bytes();
        self.text.truncate(len);
        self.raw_bytes = self.raw_bytes.saturating_sub(second.raw_bytes);
        self.ended = false;
        (self, second)
    }
}

/// The end of the character that `at` falls into is not shown, so it is cut before it.
fn character_before(text: &[u8], at: usize) -> usize {
    let start = (at.saturating_sub(3)..=at).rev().find(|at| text.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80));
    start.unwrap_or(at).min(text.len())
}

fn character_after(text: &[u8], at: usize) -> usize {
    let start = (at..=at + 3).find(|at| text.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80));
    start.unwrap_or(at).min(text.len())
}

#[derive(Debug)]
pub(super) struct Selection {
    lines: std::ops::RangeInclusive<u64>,
    head: Amount,
    tail: Amount,
    /// What the head may still cost, and the tail.
    head_budget: usize,
    tail_budget: usize,
    collapse_repeats: bool,
    /// It may still be repeated.
    last: Option<Row>,
    shown_head: Vec<Row>,
    head_is_full: bool,
    shown_tail: VecDeque<Row>,
    tail_bytes: u64,
    tail_cost: usize,
    /// Rows of the tail that had to go.
    evicted: u64,
    /// A row found no place, and nothing that follows will.
    refused: bool,
}

impl Selection {
    pub(super) fn new(part: ViewPart, collapse_repeats: bool, max_bytes: usize) -> Self {
        let (lines, head, tail) = match part {
            ViewPart::HeadTail { head, tail } => (1..=u64::MAX, head, tail),
            ViewPart::Lines { first, last } => (first..=last, Amount::Lines(u64::MAX), Amount::Lines(0)),
        };
        let tail_budget = match (head.is_nothing(), tail.is_nothing()) {
            (_, true) => 0,
            (true, false) => max_bytes,
            (false, false) => max_bytes / 2,
        };
        Self {
            lines,
            head,
            tail,
            head_budget: max_bytes - tail_budget,
            tail_budget,
            collapse_repeats,
            last: None,
            shown_head: Vec::new(),
            head_is_full: head.is_nothing(),
            shown_tail: VecDeque::new(),
            tail_bytes: 0,
            tail_cost: 0,
            evicted: 0,
            refused: false,
        }
    }

    /// Whether a line of this number can be shown at all.
    pub(super) fn wants(&self, number: u64) -> bool {
        self.lines.contains(&number)
    }

    /// Whether a row would be added to the end of the last one.
    pub(super) fn repeats_last(&self, stream: Stream, text: &[u8], number: u64, is_match: bool) -> bool {
        let same = |last: &Row| {
            last.stream == stream
                && last.is_match == is_match
                && last.last_number + 1 == number
                && last.ended
                && !last.torn
                && last.text == text
        };
        self.collapse_repeats && self.last.as_ref().is_some_and(same)
    }

    pub(super) fn repeat_last(&mut self, raw_bytes: u64, seq: Seq, end: Position) {
        if let Some(last) = &mut self.last {
            last.lines += 1;
            last.raw_bytes += raw_bytes;
            last.last_number += 1;
            last.seq = seq;
            last.end = end;
        }
    }

    pub(super) fn add(&mut self, row: Row) {
        if row.ended && !row.torn && self.repeats_last(row.stream, &row.text, row.number, row.is_match) {
            self.repeat_last(row.raw_bytes, row.seq, row.end);
        } else if self.collapse_repeats {
            if let Some(before) = self.last.replace(row) {
                self.place(before);
            }
        } else {
            self.place(row);
        }
    }

    /// Whether nothing that follows can be shown.
    pub(super) fn is_full(&self) -> bool {
        self.refused
    }

    /// Whether lines of this number and beyond are outside the part that was asked for.
    pub(super) fn is_behind(&self, number: u64) -> bool {
        number > *self.lines.end()
    }

    fn place(&mut self, mut row: Row) {
        if !self.head_is_full && !row.torn {
            match self.space_in_head(&row) {
                Some(len) if len >= row.text.len() => return self.place_in_head(row),
                Some(len) if self.tail.is_nothing() => {
                    row.cut_end(len);
                    self.place_in_head(row);
                    self.head_is_full = true;
                    return;
                }
                Some(len) => {
                    let (first, second) = row.split(len);
                    self.place_in_head(first);
                    row = second;
                }
                None => {}
            }
            self.head_is_full = true;
        }
        if self.tail.is_nothing() {
            self.refused = true;
        } else {
            self.place_in_tail(row);
        }
    }

    /// How many bytes of the row's text the head has space for, if it has space for any.
    fn space_in_head(&self, row: &Row) -> Option<usize> {
        let wanted = match self.head {
            Amount::Lines(0) | Amount::Bytes(0) => return None,
            Amount::Lines(_) => usize::MAX,
            // The line end counts. If there is no space for it alone, the text is whole all the same.
            Amount::Bytes(left) => usize::try_from(left).unwrap_or(usize::MAX),
        };
        let budget = self.head_budget.checked_sub(LINE_OVERHEAD_BYTES);
        match budget {
            // A view shows something, however little it may take.
            None if self.shown_head.is_empty() => Some(0),
            None => None,
            // The next view shows it whole, rather than this one a part of it.
            Some(budget) if budget < row.text.len().min(wanted) && !self.shown_head.is_empty() => None,
            Some(budget) => Some(wanted.min(budget)),
        }
    }

    fn place_in_head(&mut self, row: Row) {
        match &mut self.head {
            Amount::Lines(left) => *left -= 1,
            Amount::Bytes(left) => *left = left.saturating_sub(row.text_bytes()),
        }
        self.head_budget = self.head_budget.saturating_sub(row.cost());
        self.shown_head.push(row);
    }

    fn place_in_tail(&mut self, row: Row) {
        self.tail_bytes += row.text_bytes();
        self.tail_cost += row.cost();
        self.shown_tail.push_back(row);
        loop {
            let excess = match self.tail {
                Amount::Lines(lines) if self.shown_tail.len() as u64 > lines => u64::MAX,
                Amount::Lines(_) => 0,
                Amount::Bytes(bytes) => self.tail_bytes.saturating_sub(bytes),
            };
            let over_budget = self.tail_cost.saturating_sub(self.tail_budget) as u64;
            // Whole lines go first; only the last one that is left is cut to fit the budget.
            let (excess, may_cut) = if over_budget > 0 && self.shown_tail.len() > 1 {
                (u64::MAX, false)
            } else {
                (excess.max(over_budget), true)
            };
            let Some(mut first) = (excess > 0).then(|| self.shown_tail.pop_front()).flatten() else { return };
            self.evicted += 1;
            self.tail_bytes -= first.text_bytes();
            self.tail_cost -= first.cost();
            let cut = usize::try_from(excess).unwrap_or(usize::MAX);
            let is_only_one = self.shown_tail.is_empty() && over_budget > 0;
            if may_cut && (cut < first.text.len() || is_only_one) {
                first.cut_start(cut.min(first.text.len()));
                self.tail_bytes += first.text_bytes();
                self.tail_cost += first.cost();
                self.shown_tail.push_front(first);
                return;
            }
        }
    }

    /// The rows of the head, which has space again.
    pub(super) fn take_head(&mut self) -> Vec<ViewLine> {
        let rows = std::mem::take(&mut self.shown_head);
        self.head_budget += rows.iter().map(Row::cost).sum::<usize>();
        let mut selected = Selected::default();
        rows.into_iter().for_each(|row| selected.show(row));
        selected.lines
    }

    pub(super) fn finish(mut self) -> Selected {
        if let Some(last) = self.last.take() {
            self.place(last);
        }
        let torn = self.shown_tail.iter().any(|row| row.torn);
        let head_lines = self.shown_head.len();
        let mut selected = Selected {
            lines: Vec::with_capacity(head_lines + self.shown_tail.len()),
            head_lines,
            shown_lines: 0,
            shown_matches: 0,
            shown_bytes: 0,
            collapsed: Collapsed::default(),
            refused: self.refused,
            last_end: None,
            complete_tail: !torn && self.evicted > 0,
        };
        for row in self.shown_head.into_iter().chain(self.shown_tail).filter(|row| !row.torn) {
            selected.show(row);
        }
        selected
    }
}

/// The rows that are shown, and their sums.
#[derive(Debug, Default)]
pub(super) struct Selected {
    pub(super) lines: Vec<ViewLine>,
    pub(super) head_lines: usize,
    pub(super) shown_lines: u64,
    pub(super) shown_matches: u64,
    pub(super) shown_bytes: u64,
    pub(super) collapsed: Collapsed,
    /// Rows that follow were refused.
    pub(super) refused: bool,
    /// The place behind the last row that is shown.
    pub(super) last_end: Option<Position>,
    /// More than the tail was seen, and nothing in it is torn.
    pub(super) complete_tail: bool,
}

impl Selected {
    fn show(&mut self, row: Row) {
        let shown = row.raw_bytes.saturating_sub(row.cut_bytes);
        self.shown_bytes += shown;
        self.shown_lines += row.lines;
        self.shown_matches += if row.is_match { row.lines } else { 0 };
        self.collapsed.bytes += shown.saturating_sub(row.text_bytes());
        let repeats = row.lines.saturating_sub(1);
        self.collapsed.lines += repeats;
        self.last_end = Some(row.end);
        self.lines.push(ViewLine {
            seq: row.seq,
            stream: row.stream,
            number: Some(row.number),
            is_match: row.is_match,
            text: Bytes::from(row.text),
            ended: row.ended,
            repeats,
            cut_bytes: row.cut_bytes,
        });
    }
}
