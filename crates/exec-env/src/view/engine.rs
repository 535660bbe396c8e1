//! The engine: it is told what a log holds, in order and in any pieces, and makes a [`View`] of it.
//!
//! A line is looked at for itself, but where an expression is searched in output that is shown as it was printed: there
//! the expression runs over whole pieces, and only lines in which it finds something are looked at. That is what makes
//! it as fast as `grep`. Whoever has several pieces may search them at once, before the engine is told them
//! ([`ViewEngine::line_search`]).

use std::collections::VecDeque;
use std::sync::Arc;

use exec_core::{Gap, Head, Seq, Stream};

use super::lines::{RawLine, UnfinishedLine};
use super::matcher::{FoundLine, FoundLines, LineSearch, Matcher, PIECE_BYTES, count_lines};
use super::plain::{plain_prefix, without_escapes};
use super::selection::{Row, Selection};
use super::{CONTEXT_LINES, LINE_OVERHEAD_BYTES, LeftOut, Position, VIEW_BYTES, View, ViewLine, ViewPart, ViewQuery};

/// Output of one stream.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// Where it came from.
    pub stream: Stream,
    /// Of one or more entries.
    pub bytes: &'a [u8],
    /// Where each of these entries ends, counted from the beginning of the first one, and its number.
    pub ends: &'a [(usize, Seq)],
    /// How many bytes of the first entry come before `bytes`.
    pub skipped_bytes: usize,
}

impl Chunk<'_> {
    /// The entry that holds the byte before `at`, and the place behind that byte.
    fn place(&self, at: usize) -> (Seq, Position) {
        let at = at + self.skipped_bytes;
        let index = self.ends.partition_point(|(end, _)| *end < at);
        let Some(&(end, seq)) = self.ends.get(index) else { return (0, Position::default()) };
        if at == end {
            return (seq, Position { after: seq, skip_bytes: 0 });
        }
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before].0);
        (seq, Position { after: seq - 1, skip_bytes: (at - start) as u64 })
    }
}

/// Whether the engine wants more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    More,
    /// Nothing that follows can be shown.
    Enough,
}

/// What the engine was not told, for whoever drives it to add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outside {
    /// Bytes of the range, of the streams that were asked for, whether the engine was told them or not.
    pub range_bytes: u64,
    /// The first entry of the range.
    pub first_seq: Seq,
    /// The last entry of the range.
    pub last_seq: Seq,
    /// Entries that were asked for and dropped.
    pub gap: Option<Gap>,
    /// The log.
    pub head: Head,
    /// The engine was told the end of the range only, so its lines have no numbers.
    pub began_late: bool,
}

/// Makes a view out of pieces of a log.
#[derive(Debug)]
pub struct ViewEngine {
    query: ViewQuery,
    matcher: Option<Arc<Matcher>>,
    /// One for each stream.
    unfinished: [UnfinishedLine; 3],
    /// Lines before the next match, if it comes soon; their bytes are bounded like those of a view.
    before: VecDeque<Row>,
    before_cost: usize,
    /// Lines to show after the last match.
    after_left: u32,
    selection: Selection,
    lines: u64,
    bytes: u64,
    matches: u64,
    /// Matches beyond the maximum were found.
    matches_refused: bool,
}

impl ViewEngine {
    /// An engine for this query; the error is what is wrong with the expression.
    pub fn new(query: ViewQuery) -> Result<Self, String> {
        let matcher = query.grep.as_ref().map(Matcher::new).transpose()?.map(Arc::new);
        let max_bytes = query.max_bytes.min(VIEW_BYTES);
        Ok(Self {
            matcher,
            unfinished: Default::default(),
            before: VecDeque::new(),
            before_cost: 0,
            after_left: 0,
            selection: Selection::new(query.part, query.collapse_repeats, max_bytes),
            lines: 0,
            bytes: 0,
            matches: 0,
            matches_refused: false,
            query,
        })
    }

    /// The first line of this stream has begun before what the engine will be told. It is not shown.
    pub fn begins_within_line(&mut self, stream: Stream) {
        self.unfinished[stream as usize].torn = true;
    }

    /// So many lines are shown, because the last match came before what the engine will be told.
    pub fn owes_context(&mut self, lines: u32) {
        self.after_left = lines.min(CONTEXT_LINES);
    }

    /// The next output. Streams that were not asked for may be told too.
    pub fn push(&mut self, chunk: Chunk<'_>) -> Flow {
        if self.query.stream.is_some_and(|wanted| wanted != chunk.stream) {
            return Flow::More;
        }
        self.bytes += chunk.bytes.len() as u64;
        let mut at = 0;
        while at < chunk.bytes.len() {
            let end = chunk.bytes.len().min(at + PIECE_BYTES);
            if self.push_piece(&chunk, at, end) == Flow::Enough {
                return Flow::Enough;
            }
            at = end;
        }
        Flow::More
    }

    /// The search that may be done for this engine beforehand, if lines can be judged without those around them. Whether lines
    /// are wanted only up to some number is known here alone, so then there is none.
    pub fn line_search(&self) -> Option<LineSearch> {
        let matcher = self.matcher.as_ref().filter(|matcher| matcher.is_line_wise)?.clone();
        let is_unbounded = matches!(self.query.part, ViewPart::HeadTail { .. });
        let shows_all = !self.query.plain && !self.query.collapse_overwritten;
        is_unbounded.then_some(LineSearch { matcher, shows_all })
    }

    /// The next output, the same as by [`push`](Self::push), with what this engine's [`line_search`](Self::line_search) found in
    /// exactly these bytes. Of lines that it has searched, only those are looked at that are shown.
    pub fn push_searched(&mut self, chunk: Chunk<'_>, found: &FoundLines) -> Flow {
        if found.lines == 0 || self.query.stream.is_some_and(|wanted| wanted != chunk.stream) {
            return self.push(chunk);
        }
        self.bytes += chunk.bytes.len() as u64;
        // Whatever was unfinished ends here, because the lines that were searched begin behind a line end.
        self.push_piece(&chunk, 0, found.start);
        let (mut at, mut lines) = (found.start, 0);
        for line in &found.matches {
            let lines_before = u64::from(line.lines_before);
            self.pass_lines(&chunk, at, line.start as usize, lines_before - lines);
            self.found_line(&chunk, line);
            (at, lines) = (line.end as usize + 1, lines_before + 1);
        }
        self.pass_lines(&chunk, at, found.end, found.lines - lines);
        self.push_piece(&chunk, found.end, chunk.bytes.len())
    }

    /// Entries are missing here, so lines that began before do not go on behind.
    pub fn gap(&mut self) {
        self.end_unfinished_lines();
    }

    /// The lines that can be shown by now, for whoever shows them as they come. They are gone from the view then.
    pub fn take_lines(&mut self) -> Vec<ViewLine> {
        self.selection.take_head()
    }

    /// The last of these, those that have not ended included.
    pub fn finish_lines(mut self) -> Vec<ViewLine> {
        self.end_unfinished_lines();
        self.selection.finish().lines
    }

    /// Whether what was told so far is enough for a tail that is complete and has whole lines only. For whoever begins near
    /// the end.
    pub fn finish_tail(mut self, outside: Outside) -> Option<View> {
        let torn = self.unfinished.iter().any(|line| line.torn);
        self.end_unfinished_lines();
        if torn {
            return None;
        }
        self.into_view(outside, true)
    }

    /// The view of what was told.
    pub fn finish(mut self, outside: Outside) -> View {
        self.end_unfinished_lines();
        self.into_view(outside, false).expect("only a tail that must be complete can fail")
    }

    fn push_piece(&mut self, chunk: &Chunk<'_>, mut at: usize, end: usize) -> Flow {
        let stream = chunk.stream as usize;
        let collapse = self.query.collapse_overwritten;
        let searches_pieces = self.matcher.as_ref().is_some_and(|matcher| matcher.is_line_wise);
        // Up to here the text is as it is shown, so it may be searched and taken as it lies here.
        let mut as_shown = if self.query.plain || collapse { at } else { end };
        while at < end {
            if as_shown <= at && as_shown < end {
                as_shown = at + plain_prefix(&chunk.bytes[at..end]).bytes;
            }
            let can_skip = searches_pieces && self.unfinished[stream].is_empty() && self.after_left == 0;
            if can_skip && at < as_shown {
                at = self.skip_to_match(chunk, at, as_shown);
                if at == end {
                    break;
                }
            }
            // A whole line of the piece need not be copied.
            if self.unfinished[stream].is_empty()
                && let Some(len) = memchr::memchr(b'\n', &chunk.bytes[at..if collapse { as_shown } else { end }])
            {
                let text = &chunk.bytes[at..at + len];
                let text = if collapse { text.strip_suffix(b"\r").unwrap_or(text) } else { text };
                at += len + 1;
                let (seq, place) = chunk.place(at);
                let raw_bytes = len as u64 + 1;
                self.line(RawLine { stream: chunk.stream, text, raw_bytes, ended: true, seq, end: place, torn: false });
            } else {
                let taken = self.unfinished[stream].take(&chunk.bytes[at..end], collapse);
                at += taken.bytes;
                if taken.bytes > 0 {
                    let (seq, place) = chunk.place(at);
                    (self.unfinished[stream].seq, self.unfinished[stream].end) = (seq, place);
                }
                if taken.complete {
                    self.end_line(stream, taken.ended);
                }
            }
            if self.selection.is_full() && self.query.grep.is_none() || self.selection.is_behind(self.lines + 1) {
                self.bytes -= (chunk.bytes.len() - at) as u64;
                return Flow::Enough;
            }
        }
        Flow::More
    }

    /// Counts whole lines without a match, and stops at the beginning of a line that may have one, or of the last line if that
    /// has not ended. All of it must be as it is shown.
    fn skip_to_match(&mut self, chunk: &Chunk<'_>, at: usize, end: usize) -> usize {
        let piece = &chunk.bytes[at..end];
        let Some(last) = memchr::memrchr(b'\n', piece) else { return at };
        let whole = &piece[..=last];
        let Some(matcher) = &self.matcher else { return at };
        let skipped = matcher.next_candidate(whole).unwrap_or(whole.len());
        if skipped > 0 {
            self.skip_lines(chunk, at, at + skipped, count_lines(&whole[..skipped]));
        }
        at + skipped
    }

    /// Takes the whole lines from `at` to `end`, of which none matches. All of it must be as it is shown.
    fn pass_lines(&mut self, chunk: &Chunk<'_>, mut at: usize, end: usize, mut lines: u64) {
        while self.after_left > 0 && lines > 0 {
            let len = memchr::memchr(b'\n', &chunk.bytes[at..end]).unwrap_or(end - at);
            self.lines += 1;
            let line = self.shown_line(chunk, at, len);
            self.judged_line(&line, line.text, self.lines, false);
            at += len + 1;
            lines -= 1;
        }
        if lines > 0 {
            self.skip_lines(chunk, at, end, lines);
        }
    }

    /// Takes a line that matches. It must be as it is shown.
    fn found_line(&mut self, chunk: &Chunk<'_>, found: &FoundLine) {
        let start = found.start as usize;
        self.lines += 1;
        let line = self.shown_line(chunk, start, found.end as usize - start);
        self.judged_line(&line, line.text, self.lines, true);
    }

    /// Counts whole lines without a match, and keeps the last of them if a match that follows shall show them.
    fn skip_lines(&mut self, chunk: &Chunk<'_>, at: usize, end: usize, lines: u64) {
        let skipped = &chunk.bytes[at..end];
        let context = self.context_before() as usize;
        if context > 0 {
            let mut starts: Vec<usize> = memchr::memrchr_iter(b'\n', &skipped[..skipped.len() - 1])
                .map(|before| before + 1)
                .take(context)
                .collect();
            if starts.len() < context {
                starts.push(0);
            }
            let first = self.lines + lines - starts.len() as u64;
            for (index, start) in starts.iter().rev().enumerate() {
                let len = memchr::memchr(b'\n', &skipped[*start..]).unwrap_or(0);
                let line = self.shown_line(chunk, at + start, len);
                let number = first + index as u64 + 1;
                self.keep_before(row(&line, line.text.to_vec(), number, false));
            }
        }
        self.lines += lines;
    }

    /// The line of `len` bytes and a line end that begins at `at`. It must be as it is shown: then nothing is removed
    /// from it but a carriage return before its end.
    fn shown_line<'a>(&self, chunk: &Chunk<'a>, at: usize, len: usize) -> RawLine<'a> {
        let text = &chunk.bytes[at..at + len];
        let strips_return = self.query.plain || self.query.collapse_overwritten;
        let (seq, end) = chunk.place(at + len + 1);
        RawLine {
            stream: chunk.stream,
            text: if strips_return { text.strip_suffix(b"\r").unwrap_or(text) } else { text },
            raw_bytes: len as u64 + 1,
            ended: true,
            seq,
            end,
            torn: false,
        }
    }

    fn end_line(&mut self, stream: usize, ended: bool) {
        let mut line = std::mem::take(&mut self.unfinished[stream]);
        self.line(RawLine {
            stream: STREAMS[stream],
            text: &line.text,
            raw_bytes: line.raw_bytes,
            ended,
            seq: line.seq,
            end: line.end,
            torn: line.torn,
        });
        // Its memory is used again.
        line.clear();
        self.unfinished[stream] = line;
    }

    /// In the order of their last bytes.
    fn end_unfinished_lines(&mut self) {
        let mut open: Vec<usize> = (0..STREAMS.len()).filter(|stream| self.unfinished[*stream].raw_bytes > 0).collect();
        open.sort_by_key(|stream| self.unfinished[*stream].end);
        for stream in open {
            self.end_line(stream, false);
        }
    }

    fn line(&mut self, line: RawLine<'_>) {
        self.lines += 1;
        let number = self.lines;
        if !self.selection.wants(number) {
            return;
        }
        let plain;
        let text = if self.query.plain {
            plain = without_escapes(line.text);
            &plain
        } else {
            line.text
        };
        let Some(matcher) = &self.matcher else {
            return self.add(&line, text, number, true);
        };
        let is_match = !line.torn && matcher.is_match(text);
        self.judged_line(&line, text, number, is_match);
    }

    /// Takes a line of which is known whether it matches.
    fn judged_line(&mut self, line: &RawLine<'_>, text: &[u8], number: u64, is_match: bool) {
        if is_match {
            self.matches += 1;
            if self.matches > self.query.grep.as_ref().map_or(0, |grep| grep.max_matches) {
                self.matches_refused = true;
                self.after_left = 0;
                return;
            }
            self.before_cost = 0;
            for row in std::mem::take(&mut self.before) {
                if self.selection.wants(row.number) {
                    self.selection.add(row);
                }
            }
            self.after_left = self.query.grep.as_ref().map_or(0, |grep| grep.after.min(CONTEXT_LINES));
            self.add(line, text, number, true);
        } else if self.after_left > 0 {
            self.after_left -= 1;
            self.add(line, text, number, false);
        } else if self.context_before() > 0 {
            self.keep_before(row(line, text.to_vec(), number, false));
        }
    }

    fn add(&mut self, line: &RawLine<'_>, text: &[u8], number: u64, is_match: bool) {
        if self.selection.is_full() {
            return;
        }
        if line.ended && !line.torn && self.selection.repeats_last(line.stream, text, number, is_match) {
            self.selection.repeat_last(line.raw_bytes, line.seq, line.end);
        } else {
            self.selection.add(row(line, text.to_vec(), number, is_match));
        }
    }

    fn context_before(&self) -> u32 {
        match &self.query.grep {
            Some(grep) if self.matches < grep.max_matches && !self.selection.is_full() => {
                grep.before.min(CONTEXT_LINES)
            }
            _ => 0,
        }
    }

    fn keep_before(&mut self, row: Row) {
        self.before_cost += row.text.len() + LINE_OVERHEAD_BYTES;
        self.before.push_back(row);
        let too_many = |engine: &Self| {
            engine.before.len() > engine.context_before() as usize
                || engine.before_cost > VIEW_BYTES && engine.before.len() > 1
        };
        while too_many(self)
            && let Some(first) = self.before.pop_front()
        {
            self.before_cost -= first.text.len() + LINE_OVERHEAD_BYTES;
        }
    }

    fn into_view(self, outside: Outside, must_be_complete: bool) -> Option<View> {
        let selected = self.selection.finish();
        if must_be_complete && !selected.complete_tail {
            return None;
        }
        let mut lines = selected.lines;
        if outside.began_late {
            lines.iter_mut().for_each(|line| line.number = None);
        }
        let range_end = Position { after: outside.last_seq, skip_bytes: 0 };
        let untold_bytes = outside.range_bytes.saturating_sub(self.bytes);
        let stopped_behind = matches!(self.query.part, ViewPart::Lines { .. }) && untold_bytes > 0;
        let next = if selected.refused || self.matches_refused || stopped_behind {
            selected.last_end.unwrap_or(self.query.from)
        } else {
            range_end
        };
        Some(View {
            lines,
            head_lines: selected.head_lines,
            left_out: LeftOut {
                bytes: (self.bytes + untold_bytes).saturating_sub(selected.shown_bytes),
                lines: (untold_bytes == 0).then(|| self.lines.saturating_sub(selected.shown_lines)),
                matches: self.matches.saturating_sub(selected.shown_matches),
            },
            collapsed: selected.collapsed,
            matches: self.matches,
            first_seq: outside.first_seq,
            last_seq: outside.last_seq,
            next,
            gap: outside.gap,
            head: outside.head,
        })
    }
}

/// In the order of `Stream as usize`.
const STREAMS: [Stream; 3] = [Stream::Stdout, Stream::Stderr, Stream::Pty];

fn row(line: &RawLine<'_>, text: Vec<u8>, number: u64, is_match: bool) -> Row {
    Row {
        seq: line.seq,
        stream: line.stream,
        number,
        is_match,
        text,
        ended: line.ended,
        lines: 1,
        raw_bytes: line.raw_bytes,
        cut_bytes: 0,
        end: line.end,
        last_number: number,
        torn: line.torn,
    }
}
