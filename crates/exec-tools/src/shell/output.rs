//! What a model is shown of a log: a beginning and an end within a budget, and in numbers what is between them.
//!
//! ```text
//!   last look │ head … │ left out: told, with the call that shows it │ … tail │ now
//! ```
//!
//! The log is read where it is: as many bytes as are shown, and a little more to find where the end begins. So a flood of
//! 250 MB costs what a short one costs, and nothing is held between calls but a position.

use std::collections::VecDeque;

use bytes::Bytes;
use exec_core::{EntryBody, Head, Page, ProcessId, Seq, Stream};
use exec_env::Processes;
use exec_env::process::{ProcessError, ReadQuery};
use exec_env::view::{Amount, Position as ViewPosition, ViewPart, ViewQuery};

use super::SessionNumber;
use super::limits::{PAGE_BYTES, TOKEN_BYTES};
use super::stream_text::{StreamText, cut_head, incomplete_tail};

/// Fewest and most entries that are read at once in the search for the beginning of the tail.
const STEP_ENTRIES: std::ops::RangeInclusive<u64> = 16..=4096;

/// The longest character in UTF-8.
const CHARACTER_BYTES: u64 = 4;

/// A part of the output of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputView {
    /// The output, stdout and stderr in the order of the log. What is left out is told in it, too.
    pub text: String,
    /// All bytes of the part, shown or not.
    pub bytes: u64,
    /// What is left out, and where it begins.
    pub omitted: Option<Omitted>,
    /// Bytes that the log had dropped before this look: nobody can show them any more.
    pub lost_bytes: u64,
    /// The last entry that this part reaches.
    pub to_seq: Seq,
}

impl OutputView {
    /// How many tokens the whole part would be, about.
    pub fn original_tokens(&self) -> u64 {
        self.bytes.div_ceil(TOKEN_BYTES as u64)
    }
}

/// Output that was left out, and where to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Omitted {
    /// How much, where that is known: not after an entry in the middle of a log, or for one stream of two.
    pub bytes: Option<u64>,
    /// The entry in which it begins.
    pub from_seq: Seq,
    /// How much of that entry was shown.
    pub skip_bytes: u64,
}

/// How far a session was looked at.
#[derive(Debug, Clone, Default)]
pub(super) struct Position {
    pub(super) seq: Seq,
    /// All output up to there, dropped output included.
    bytes: u64,
    /// Characters that were cut there.
    text: StreamText,
}

/// The log of one session.
#[derive(Clone, Copy)]
pub(super) struct SessionLog<'a> {
    pub(super) processes: &'a dyn Processes,
    pub(super) process: &'a ProcessId,
    pub(super) session: SessionNumber,
}

/// A piece of output, and the entry it is from.
struct Piece {
    stream: Stream,
    bytes: Bytes,
}

/// Where the head of a view ends: within this entry, after so many of its bytes.
#[derive(Debug, Clone, Copy)]
struct Cut {
    seq: Seq,
    offset: u64,
}

/// Output in the order of the log, as text. Where it is cut, it ends before the first character whose rest has not come: that
/// may have begun in an earlier entry than the last, and who goes on from there must find it whole.
#[derive(Default)]
struct ShownText {
    text: String,
    bytes: u64,
    decoder: StreamText,
    /// For each stream, where its unfinished character begins.
    unfinished: [Option<Unfinished>; 3],
}

#[derive(Clone, Copy)]
struct Unfinished {
    at: Cut,
    /// What was shown before it.
    text_len: usize,
    bytes: u64,
}

impl ShownText {
    /// Appends bytes that begin at `at`.
    fn push(&mut self, at: Cut, stream: Stream, bytes: &[u8]) {
        self.decoder.push(stream, bytes, &mut self.text);
        self.bytes += bytes.len() as u64;
        let pending = self.decoder.pending_bytes_of(stream);
        let slot = &mut self.unfinished[stream as usize];
        match bytes.len().checked_sub(pending) {
            _ if pending == 0 => *slot = None,
            Some(whole) => {
                let at = Cut { seq: at.seq, offset: at.offset + whole as u64 };
                *slot = Some(Unfinished { at, text_len: self.text.len(), bytes: self.bytes - pending as u64 });
            }
            // It has begun earlier.
            None => {}
        }
    }

    /// Nothing follows: what is unfinished is no character.
    fn finish(&mut self) {
        self.decoder.finish(&mut self.text);
        self.unfinished = Default::default();
    }

    /// Ends the text at `at`, or before the first unfinished character. The result is where it ends.
    fn cut(&mut self, at: Cut) -> Cut {
        // One at the very beginning that much else follows is none, and whoever goes on from there must get on.
        let counts = |unfinished: &Unfinished| unfinished.bytes > 0 || self.bytes < CHARACTER_BYTES;
        let unfinished = std::mem::take(&mut self.unfinished);
        let first = unfinished.into_iter().flatten().filter(counts).min_by_key(|unfinished| unfinished.bytes);
        let Some(first) = first else {
            self.decoder.finish(&mut self.text);
            return at;
        };
        self.decoder = StreamText::default();
        self.text.truncate(first.text_len);
        self.bytes = first.bytes;
        first.at
    }
}

impl SessionLog<'_> {
    /// What came since `position`, within `budget` bytes, and moves it to the end.
    pub(super) async fn since(
        &self,
        position: &mut Position,
        budget: usize,
    ) -> Result<(OutputView, Head), ProcessError> {
        let mut page = self.page(position.seq, budget.div_ceil(2).max(1)).await?;
        let head = page.head;
        let (last, total) = (head.next_seq - 1, head.held_bytes + head.dropped_bytes);
        let mut view =
            OutputView { to_seq: last, bytes: total.saturating_sub(position.bytes), ..OutputView::default() };
        let mut shown = ShownText { decoder: std::mem::take(&mut position.text), ..ShownText::default() };
        let mut after = position.seq;
        let head_limit = match total.saturating_sub(position.bytes) <= budget as u64 {
            true => u64::MAX,
            false => (budget / 2) as u64,
        };
        let cut = 'head: loop {
            if let Some(gap) = page.gap {
                let lost = gap.dropped_bytes.saturating_sub(position.bytes + view.lost_bytes + shown.bytes);
                view.lost_bytes += lost;
                shown.finish();
                shown.text.push_str(&format!("[… {lost} bytes were dropped from the full log and are gone …]\n"));
            }
            after = page.cursor(after);
            for entry in page.entries {
                let EntryBody::Output { stream, bytes } = entry.body else { continue };
                if entry.seq > last {
                    break;
                }
                let left = head_limit - shown.bytes;
                let fits = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                shown.push(Cut { seq: entry.seq, offset: 0 }, stream, &bytes[..fits]);
                if fits < bytes.len() {
                    break 'head Some(Cut { seq: entry.seq, offset: fits as u64 });
                }
            }
            if after >= last {
                break None;
            }
            page = self.page(after, PAGE_BYTES.min(budget.max(1))).await?;
        };
        if let Some(cut) = cut {
            let cut = shown.cut(cut);
            let (pieces, tail_bytes) = self.tail(cut, last, budget - budget / 2).await?;
            let left_out = view.bytes.saturating_sub(view.lost_bytes + shown.bytes + tail_bytes);
            view.omitted = Some(Omitted { bytes: Some(left_out), from_seq: cut.seq, skip_bytes: cut.offset });
            shown.text.push_str(&self.left_out(left_out, cut, None));
            for piece in pieces {
                shown.decoder.push(piece.stream, &piece.bytes, &mut shown.text);
            }
        }
        if head.closed {
            shown.finish();
        }
        view.text = shown.text;
        *position = Position { seq: last, bytes: total, text: shown.decoder };
        Ok((view, head))
    }

    /// Entries after `asked`, without the first `skip` bytes of them (of `stream`, if there is one), as far as `budget` goes.
    pub(super) async fn forward(
        &self,
        asked: Seq,
        mut skip: u64,
        stream: Option<Stream>,
        budget: usize,
    ) -> Result<(OutputView, Head), ProcessError> {
        let (mut view, mut shown, mut after) = (OutputView::default(), ShownText::default(), asked);
        let mut has_begun = [false; 3];
        loop {
            let page = self.page(after, PAGE_BYTES).await?;
            let head = page.head;
            if let Some(gap) = page.gap {
                view.lost_bytes = gap.dropped_bytes;
                // From the beginning it is known what the skipped bytes were. Elsewhere, to show some twice is better than not at all.
                skip = if asked == 0 && stream.is_none() { skip.saturating_sub(gap.dropped_bytes) } else { 0 };
                shown.finish();
                let lost = gap.dropped_bytes;
                shown.text.push_str(&format!("[… the {lost} first bytes were dropped from the full log …]\n"));
            }
            after = page.cursor(after);
            for entry in page.entries {
                let EntryBody::Output { stream: from, bytes } = entry.body else { continue };
                if stream.is_some_and(|stream| stream != from) {
                    continue;
                }
                let skipped = skip.min(bytes.len() as u64) as usize;
                skip -= skipped as u64;
                let is_first = !std::mem::replace(&mut has_begun[from as usize], true) && skipped == 0;
                if is_first && cut_head(&bytes) > 0 {
                    let begun = self.begun_before(asked, from).await?;
                    shown.decoder.push(from, &begun, &mut shown.text);
                }
                let fits = (budget as u64).saturating_sub(shown.bytes).min((bytes.len() - skipped) as u64) as usize;
                shown.push(Cut { seq: entry.seq, offset: skipped as u64 }, from, &bytes[skipped..skipped + fits]);
                if skipped + fits < bytes.len() {
                    let cut = shown.cut(Cut { seq: entry.seq, offset: (skipped + fits) as u64 });
                    let rest = self.bytes_from(cut, stream).await;
                    view.omitted = Some(Omitted { bytes: rest, from_seq: cut.seq, skip_bytes: cut.offset });
                    view.bytes = shown.bytes + rest.unwrap_or(0);
                    let call = self.read_call(cut, stream);
                    let rest = rest.map(|rest| format!("{rest} bytes ")).unwrap_or_default();
                    shown.text.push_str(&format!("\n[… {rest}more follow: {call} goes on …]\n"));
                    (view.text, view.to_seq) = (shown.text, cut.seq);
                    return Ok((view, head));
                }
            }
            view.to_seq = after;
            if after + 1 >= head.next_seq {
                shown.finish();
                let is_beyond = asked + 1 >= head.next_seq || skip > 0;
                if is_beyond && shown.bytes == 0 && view.lost_bytes == 0 {
                    let last = head.next_seq - 1;
                    shown.text.push_str(&format!("[… nothing is there: the log ends with entry {last} so far …]\n"));
                }
                (view.text, view.bytes) = (shown.text, shown.bytes);
                return Ok((view, head));
            }
        }
    }

    /// The beginning of a character that entries up to this one have, and that ends after them. Where a view ends before the
    /// unfinished character of one stream, that of another may have begun still earlier, and is for the next view to show.
    async fn begun_before(&self, end: Seq, stream: Stream) -> Result<Vec<u8>, ProcessError> {
        let after = end.saturating_sub(*STEP_ENTRIES.start());
        let mut pieces = self.segment(after, end, Cut { seq: 0, offset: 0 }, usize::MAX).await?;
        pieces.retain(|piece| piece.stream == stream);
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes.iter().copied()).collect();
        Ok(bytes[bytes.len() - incomplete_tail(&bytes)..].to_vec())
    }

    /// How many bytes there are from here to the end, if whoever has the log tells.
    async fn bytes_from(&self, cut: Cut, stream: Option<Stream>) -> Option<u64> {
        let from = ViewPosition { after: cut.seq.saturating_sub(1), skip_bytes: cut.offset };
        let query = ViewQuery { from, stream, part: ViewPart::head(0), ..ViewQuery::default() };
        self.processes.view(self.process, query).await.ok().map(|view| view.left_out.bytes)
    }

    /// The end of the log, as far back as `budget` goes.
    pub(super) async fn last(&self, budget: usize) -> Result<(OutputView, Head), ProcessError> {
        let head = self.page(0, 1).await?.head;
        let (last, total) = (head.next_seq - 1, head.held_bytes + head.dropped_bytes);
        let start = Cut { seq: head.first_seq, offset: 0 };
        let (pieces, shown) = self.tail(start, last, budget).await?;
        let mut view =
            OutputView { bytes: total, lost_bytes: head.dropped_bytes, to_seq: last, ..OutputView::default() };
        let left_out = head.held_bytes.saturating_sub(shown);
        if left_out > 0 {
            view.omitted = Some(Omitted { bytes: Some(left_out), from_seq: start.seq, skip_bytes: 0 });
            view.text.push_str(self.left_out(left_out, start, None).trim_start());
        }
        let mut text = StreamText::default();
        for piece in pieces {
            text.push(piece.stream, &piece.bytes, &mut view.text);
        }
        text.finish(&mut view.text);
        Ok((view, head))
    }

    /// The first bytes of one stream and its last ones. The other stream may be any times longer, so this is computed where the
    /// log is.
    pub(super) async fn of_stream(
        &self,
        stream: Stream,
        head_bytes: usize,
        tail_bytes: usize,
    ) -> Result<(OutputView, Head), ProcessError> {
        let part =
            ViewPart::HeadTail { head: Amount::Bytes(head_bytes as u64), tail: Amount::Bytes(tail_bytes as u64) };
        let found = self.processes.view(self.process, ViewQuery { stream: Some(stream), part, ..ViewQuery::default() });
        let found = found.await?;
        let mut view = OutputView { to_seq: found.last_seq, ..OutputView::default() };
        if let Some(gap) = found.gap {
            view.lost_bytes = gap.dropped_bytes;
            view.text.push_str(&format!("[… {} bytes were dropped from the full log …]\n", gap.dropped_bytes));
        }
        let (head, tail) = found.lines.split_at(found.head_lines.min(found.lines.len()));
        let (mut text, mut left_out) = (StreamText::default(), found.left_out.bytes);
        let push = |text: &mut StreamText, view: &mut OutputView, bytes: &[u8], ended: bool| {
            text.push(stream, bytes, &mut view.text);
            if ended {
                text.push(stream, b"\n", &mut view.text);
            }
            view.bytes += bytes.len() as u64 + u64::from(ended);
        };
        for line in head {
            push(&mut text, &mut view, &line.text, line.ended);
        }
        if left_out > 0 {
            // A character that is cut is told as left out, at the end of the head and at the beginning of the tail.
            let pending = std::mem::take(&mut text).pending_bytes() as u64;
            let cut_in_tail = tail.first().map_or(0, |line| cut_head(&line.text)) as u64;
            let cut = Cut { seq: found.first_seq, offset: view.bytes - pending };
            view.bytes -= pending;
            left_out += pending + cut_in_tail;
            view.omitted = Some(Omitted { bytes: Some(left_out), from_seq: cut.seq, skip_bytes: cut.offset });
            let note = self.left_out(left_out, cut, Some(stream));
            view.text.push_str(if view.text.is_empty() { note.trim_start() } else { &note });
        }
        for (at, line) in tail.iter().enumerate() {
            let cut = if at == 0 && left_out > 0 { cut_head(&line.text) } else { 0 };
            push(&mut text, &mut view, &line.text[cut..], line.ended);
        }
        text.finish(&mut view.text);
        view.bytes += left_out;
        Ok((view, found.head))
    }

    /// The last bytes up to entry `last`, at most `limit`, and nothing before `start`. From the end to the front, in steps
    /// whose length follows from the size of the entries.
    async fn tail(&self, start: Cut, last: Seq, limit: usize) -> Result<(VecDeque<Piece>, u64), ProcessError> {
        let (mut pieces, mut kept) = (VecDeque::new(), 0);
        let (mut end, mut step) = (last, *STEP_ENTRIES.start());
        while kept < limit && end >= start.seq {
            let after = end.saturating_sub(step).max(start.seq - 1);
            let mut segment = self.segment(after, end, start, limit - kept).await?;
            let found: usize = segment.iter().map(|piece| piece.bytes.len()).sum();
            kept += found;
            segment.append(&mut pieces);
            pieces = segment;
            let entry_bytes = (found as u64 / (end - after)).max(1);
            step = ((limit - kept) as u64 / entry_bytes + 1).clamp(*STEP_ENTRIES.start(), *STEP_ENTRIES.end());
            end = after;
        }
        // Of each stream, a character may have begun before it.
        for stream in [Stream::Stdout, Stream::Stderr, Stream::Pty] {
            let mut most = CHARACTER_BYTES as usize - 1;
            for piece in pieces.iter_mut().filter(|piece| piece.stream == stream) {
                let cut = cut_head(&piece.bytes).min(most);
                piece.bytes = piece.bytes.slice(cut..);
                (kept, most) = (kept - cut, most - cut);
                if !piece.bytes.is_empty() {
                    break;
                }
            }
        }
        Ok((pieces, kept as u64))
    }

    /// Entries after `after` up to `end`: the last `limit` bytes of them.
    async fn segment(
        &self,
        mut after: Seq,
        end: Seq,
        start: Cut,
        limit: usize,
    ) -> Result<VecDeque<Piece>, ProcessError> {
        let (mut pieces, mut kept) = (VecDeque::<Piece>::new(), 0);
        while after < end {
            let page = self.page(after, PAGE_BYTES).await?;
            after = page.cursor(after);
            for entry in page.entries {
                let EntryBody::Output { stream, mut bytes } = entry.body else { continue };
                if entry.seq > end {
                    break;
                }
                if entry.seq == start.seq {
                    bytes = bytes.slice(bytes.len().min(start.offset as usize)..);
                }
                kept += bytes.len();
                pieces.push_back(Piece { stream, bytes });
                while let Some(first) = pieces.front_mut()
                    && kept > limit
                {
                    let surplus = (kept - limit).min(first.bytes.len());
                    first.bytes = first.bytes.slice(surplus..);
                    kept -= surplus;
                    if first.bytes.is_empty() {
                        pieces.pop_front();
                    }
                }
            }
        }
        Ok(pieces)
    }

    async fn page(&self, after: Seq, max_bytes: usize) -> Result<Page, ProcessError> {
        let query = ReadQuery { after, max_bytes: Some(max_bytes), ..ReadQuery::default() };
        self.processes.read(self.process, query).await
    }

    fn left_out(&self, bytes: u64, cut: Cut, stream: Option<Stream>) -> String {
        format!("\n[… {bytes} bytes left out here: {} shows them …]\n", self.read_call(cut, stream))
    }

    fn read_call(&self, Cut { seq, offset }: Cut, stream: Option<Stream>) -> String {
        let skip = if offset > 0 { format!(", skip_bytes={offset}") } else { String::new() };
        let stream = match stream {
            None => "",
            Some(Stream::Stdout) => ", stream=\"stdout\"",
            Some(Stream::Stderr) => ", stream=\"stderr\"",
            Some(Stream::Pty) => ", stream=\"pty\"",
        };
        format!("read_output(session_id={}, from_seq={seq}{skip}{stream})", self.session)
    }
}
