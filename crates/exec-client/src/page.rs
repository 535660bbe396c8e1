//! From what `process/read` answers to a page of the log. Pure.
//!
//! The wire's page has output only; a page of the log also has the entries `exited` and `closed`. Our server tells their
//! seqs (`head`). Another one does not, but they can be inferred: `closed` is the last, and `exited` is the one seq that
//! no chunk has. If the server has silently forgotten entries, a longer hole is a gap; unless the seq of `exited` is
//! known otherwise, it is taken to be the end of that hole.

use std::collections::VecDeque;

use exec_core::{Entry, EntryBody, Exit, Gap, Head, Page, Seq};
use exec_wire::process::{Chunk, LogHead, ReadResult};

use crate::convert;

/// How many entries go into one page: those whose bytes fit the budget, but at least one entry of output. Entries without
/// bytes are free.
#[derive(Debug, Clone, Copy)]
pub struct PageBudget {
    left_bytes: usize,
    outputs: usize,
}

impl PageBudget {
    /// A budget of `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self { left_bytes: max_bytes, outputs: 0 }
    }

    /// Whether `body` goes into the page, too.
    pub fn accepts(&mut self, body: &EntryBody) -> bool {
        let EntryBody::Output { bytes, .. } = body else { return true };
        if self.outputs > 0 && bytes.len() > self.left_bytes {
            return false;
        }
        self.outputs += 1;
        self.left_bytes = self.left_bytes.saturating_sub(bytes.len());
        true
    }
}

/// Takes the entries of one page off the front of `entries`.
pub fn take_page(entries: &mut VecDeque<Entry>, max_bytes: usize) -> Vec<Entry> {
    let mut budget = PageBudget::new(max_bytes);
    let mut taken = Vec::new();
    while entries.front().is_some_and(|entry| budget.accepts(&entry.body)) {
        taken.extend(entries.pop_front());
    }
    taken
}

/// The page that a read after `after` returned. `known_exit` is the exit with its seq, if it was pushed.
pub fn page_of(after: Seq, result: ReadResult, known_exit: Option<(Seq, Exit)>) -> Page {
    let exit = result.exit.map(Into::into).or(result.exited.then(|| convert::exit_of_code(result.exit_code)));
    match result.head {
        Some(head) => page_with_head(after, result.chunks, head, exit),
        None => page_from_seqs(after, result, known_exit, exit),
    }
}

/// The server has told all seqs.
fn page_with_head(after: Seq, chunks: Vec<Chunk>, head: LogHead, exit: Option<Exit>) -> Page {
    let mut head = Head {
        // Seqs begin with 1; a server that says otherwise must not make our arithmetic underflow.
        first_seq: head.first_seq.max(1),
        next_seq: head.next_seq.max(1),
        held_bytes: head.held_bytes,
        dropped_bytes: head.dropped_bytes,
        exit: head.exit_seq.zip(exit),
        // A page that was cut to its size does not tell the exit; then `closed` comes with a later page.
        closed: head.closed && exit.is_some(),
        stalled: exec_wire::process::stall(head.stalled, head.stalled_by),
    };
    let exit_seq = head.exit.map(|(seq, _)| seq);
    // The log may have forgotten more entries after the server read its counters and before it read the bytes.
    let expected = head.first_seq.max(after.saturating_add(1));
    if let Some(first) = chunks.first()
        && first.seq > expected
        && !is_explained(expected, first.seq, exit_seq)
    {
        head.first_seq = first.seq;
    }
    let gap = head.gap(after);
    assemble(after, chunks, head, gap)
}

/// Whether `exited` is the only entry from `from` up to `chunk`.
fn is_explained(from: Seq, chunk: Seq, exit_seq: Option<Seq>) -> bool {
    exit_seq == Some(from) && from.checked_add(1) == Some(chunk)
}

/// The server has told neither the seq of `exited` nor what it forgot.
fn page_from_seqs(after: Seq, result: ReadResult, known_exit: Option<(Seq, Exit)>, exit: Option<Exit>) -> Page {
    let ReadResult { chunks, next_seq, closed, .. } = result;
    let end = if closed { next_seq.saturating_sub(1) } else { next_seq };
    let holes = holes(after, &chunks, end);
    let exit = match (known_exit, exit, holes.last()) {
        (Some(known), _, _) => Some(known),
        (None, Some(exit), Some((_, to))) => Some((*to, exit)),
        (None, Some(exit), None) => Some((after.min(end.saturating_sub(1)), exit)),
        (None, None, _) => None,
    };
    let exit_seq = exit.map(|(seq, _)| seq);
    // A hole that is `exited` alone is no gap; every other one is.
    let lost = holes.iter().rev().find(|(from, to)| !(from == to && exit_seq == Some(*from)));
    let to_seq = lost.map(|(_, to)| if exit_seq == Some(*to) { to - 1 } else { *to });
    let gap = to_seq.filter(|to| *to > after).map(|to_seq| Gap { from_seq: after + 1, to_seq, dropped_bytes: 0 });
    let head = Head {
        first_seq: gap.map_or(1, |gap| gap.to_seq + 1),
        next_seq: next_seq.max(1),
        held_bytes: chunks.iter().map(|chunk| chunk.chunk.0.len() as u64).sum(),
        dropped_bytes: 0,
        exit,
        closed: closed && exit.is_some(),
        stalled: None,
    };
    assemble(after, chunks, head, gap)
}

/// The ranges of seqs after `after` and below `end` that no chunk has.
fn holes(after: Seq, chunks: &[Chunk], end: Seq) -> Vec<(Seq, Seq)> {
    let mut holes = Vec::new();
    let mut expected = after.saturating_add(1);
    for seq in chunks.iter().map(|chunk| chunk.seq).chain([end]) {
        if seq > expected {
            holes.push((expected, seq - 1));
        }
        expected = expected.max(seq.saturating_add(1));
    }
    holes
}

/// Puts chunks, `exited` and `closed` in order from the reader's position on, up to the first hole.
fn assemble(after: Seq, chunks: Vec<Chunk>, head: Head, gap: Option<Gap>) -> Page {
    let mut entries = Vec::with_capacity(chunks.len() + 2);
    let mut chunks = chunks.into_iter().peekable();
    let mut seq = gap.map_or(after, |gap| gap.to_seq).saturating_add(1);
    while seq < head.next_seq {
        while chunks.next_if(|chunk| chunk.seq < seq).is_some() {}
        let body = match (chunks.next_if(|chunk| chunk.seq == seq), head.exit) {
            (Some(chunk), _) => EntryBody::Output { stream: chunk.stream.into(), bytes: chunk.chunk.0 },
            (None, Some((exit_seq, exit))) if exit_seq == seq => EntryBody::Exited(exit),
            (None, _) if head.closed && seq + 1 == head.next_seq => EntryBody::Closed,
            (None, _) => break,
        };
        entries.push(Entry { seq, body });
        seq += 1;
    }
    Page { entries, gap, head }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use exec_wire::base64::Base64;
    use exec_wire::process::Stream;

    use super::*;

    fn result(seqs: &[Seq], next_seq: Seq, exit_code: Option<i32>, closed: bool) -> ReadResult {
        let chunk = |seq: &Seq| Chunk { seq: *seq, stream: Stream::Stdout, chunk: Base64(Bytes::from_static(b"x")) };
        ReadResult {
            chunks: seqs.iter().map(chunk).collect(),
            next_seq,
            exited: exit_code.is_some(),
            exit_code,
            closed,
            failure: None,
            sandbox_denied: false,
            first_seq: None,
            dropped_bytes: None,
            exit: None,
            head: None,
        }
    }

    /// What stands where: `x` output, `e` exited, `c` closed; and the gap.
    fn shape(page: &Page) -> (String, Option<(Seq, Seq)>) {
        let row = page.entries.iter().map(|entry| match entry.body {
            EntryBody::Output { .. } => 'x',
            EntryBody::Exited(_) => 'e',
            EntryBody::Closed => 'c',
        });
        (row.collect(), page.gap.map(|gap| (gap.from_seq, gap.to_seq)))
    }

    #[test]
    fn numbers_alone_tell_where_exited_and_closed_stand() {
        let check = |after, seqs: &[Seq], next_seq, exit_code, closed, row: &str| {
            let page = page_of(after, result(seqs, next_seq, exit_code, closed), None);
            assert_eq!(shape(&page), (row.to_owned(), None), "after {after}: {seqs:?} {next_seq}");
            assert_eq!(page.head.next_seq, next_seq);
        };
        check(0, &[1, 2], 5, Some(3), true, "xxec");
        check(0, &[1, 3], 5, Some(0), true, "xexc");
        check(2, &[], 5, Some(3), true, "ec");
        check(3, &[], 5, Some(3), true, "c");
        check(4, &[], 5, Some(3), true, "");
        check(0, &[1, 2], 3, None, false, "xx");
        check(0, &[1, 2], 4, Some(0), false, "xxe");
        check(9, &[], 5, Some(0), true, "");
    }

    #[test]
    fn a_longer_hole_is_a_gap_with_its_numbers() {
        let page = page_of(0, result(&[6, 7], 8, None, false), None);
        assert_eq!(shape(&page), ("xx".to_owned(), Some((1, 5))));
        let page = page_of(0, result(&[6, 7], 10, Some(0), true), None);
        assert_eq!(shape(&page), ("xxec".to_owned(), Some((1, 5))));
        // Its seq cannot be known, because the entries around it are gone; but the exit itself must not be lost.
        let page = page_of(0, result(&[6, 7], 9, Some(0), true), None);
        assert_eq!(shape(&page), ("exxc".to_owned(), Some((1, 4))));
    }

    #[test]
    fn numbers_that_no_log_has_do_no_harm() {
        for (after, next_seq, head_seq) in [(0, 0, None), (0, 0, Some(0)), (u64::MAX, 1, Some(0)), (u64::MAX, 0, None)]
        {
            let mut result = result(&[u64::MAX], next_seq, Some(0), true);
            result.head = head_seq.map(|seq| LogHead {
                first_seq: seq,
                next_seq: seq,
                held_bytes: 0,
                dropped_bytes: 0,
                exit_seq: Some(seq),
                closed: true,
                stalled: false,
                stalled_by: None,
            });
            let page = page_of(after, result, None);
            assert!(page.cursor(after) >= after);
            let _ = (page.head.has_news(after), page.head.gap(after));
        }
    }

    #[test]
    fn a_pushed_exit_is_not_guessed_again() {
        let exit = convert::exit_of_code(Some(0));
        let page = page_of(3, result(&[8], 10, Some(0), true), Some((2, exit)));
        assert_eq!(shape(&page), ("xc".to_owned(), Some((4, 7))));
        assert_eq!(page.head.exit, Some((2, exit)));
    }

    #[test]
    fn a_page_that_ends_early_is_dense_up_to_its_end() {
        let head = LogHead {
            first_seq: 1,
            next_seq: 6,
            held_bytes: 3,
            dropped_bytes: 0,
            exit_seq: Some(3),
            closed: true,
            stalled: false,
            stalled_by: None,
        };
        let with_head = |seqs: &[Seq], next| ReadResult { head: Some(head), ..result(seqs, next, Some(0), true) };
        assert_eq!(shape(&page_of(0, with_head(&[1], 2), None)).0, "x");
        assert_eq!(shape(&page_of(0, with_head(&[1, 2], 3), None)).0, "xxe");
        assert_eq!(shape(&page_of(1, with_head(&[2, 4], 5), None)).0, "xexc");
        assert_eq!(shape(&page_of(2, with_head(&[4], 5), None)).0, "exc");
        assert_eq!(
            shape(&page_of(
                0,
                ReadResult { head: Some(LogHead { first_seq: 4, ..head }), ..result(&[4], 5, Some(0), true) },
                None
            )),
            ("xc".into(), Some((1, 3)))
        );
    }
}
