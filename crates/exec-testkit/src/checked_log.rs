//! What a reader has seen of a log, with every promise of the log checked page by page.
//!
//! Seqs are dense from where the reader began, except for reported gaps; `exited` comes once, `closed` once and last;
//! no entry is empty or too large; the head agrees with the entries. A log that was read without a panic is well
//! formed; the test then compares what it is about.

use exec_core::limits::ENTRY_BYTES;
use exec_core::{Entry, EntryBody, Exit, Gap, Head, Page, Seq, Stream};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedLog {
    pub entries: Vec<Entry>,
    /// The gaps that pages reported.
    pub gaps: Vec<Gap>,
    /// The log as the last page described it.
    pub head: Option<Head>,
    began_after: Seq,
    cursor: Seq,
}

impl CheckedLog {
    pub fn new(after: Seq) -> Self {
        Self { entries: Vec::new(), gaps: Vec::new(), head: None, began_after: after, cursor: after }
    }

    /// Adds the next page, and checks what every page must keep.
    pub fn add_page(&mut self, page: Page) {
        if let Some(gap) = page.gap {
            assert_eq!(gap.from_seq, self.cursor + 1, "a gap begins where we are");
            assert!(gap.to_seq >= gap.from_seq, "a gap is not empty: {gap:?}");
            assert!(gap.to_seq < page.head.first_seq, "what is held is not in a gap: {gap:?}, {:?}", page.head);
            self.gaps.push(gap);
            self.cursor = gap.to_seq;
        }
        for entry in page.entries {
            self.add_entry(entry);
        }
        self.check_head(page.head);
        self.head = Some(page.head);
    }

    /// The seq of the last entry, or of the end of the last gap: the next read begins after it.
    pub fn cursor(&self) -> Seq {
        self.cursor
    }

    pub fn exit(&self) -> Exit {
        self.exited().expect("the log tells of the leader's end").1
    }

    /// Seq and content of the `exited` entry, if it was seen.
    pub fn exited(&self) -> Option<(Seq, Exit)> {
        self.entries.iter().find_map(|entry| match entry.body {
            EntryBody::Exited(exit) => Some((entry.seq, exit)),
            _ => None,
        })
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.entries.last(), Some(Entry { body: EntryBody::Closed, .. }))
    }

    pub fn bytes(&self, stream: Stream) -> Vec<u8> {
        self.outputs().filter(|(_, from, _)| *from == stream).flat_map(|(_, _, bytes)| bytes.iter().copied()).collect()
    }

    pub fn stdout(&self) -> String {
        text(self.bytes(Stream::Stdout))
    }

    pub fn stderr(&self) -> String {
        text(self.bytes(Stream::Stderr))
    }

    /// The terminal, as text, with plain line ends.
    pub fn terminal(&self) -> String {
        text(self.bytes(Stream::Pty)).replace("\r\n", "\n")
    }

    /// Everything printed, whatever the stream, in the order of the log, as far as it is text.
    pub fn printed(&self) -> String {
        let outputs = self.outputs().flat_map(|(_, _, bytes)| bytes.iter());
        let bytes: Vec<u8> = outputs.copied().collect();
        String::from_utf8_lossy(&bytes).replace("\r\n", "\n")
    }

    /// The rest of the first printed line that begins with `prefix`.
    pub fn text_after(&self, prefix: &str) -> Option<String> {
        self.printed()
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'))
            .find_map(|line| line.strip_prefix(prefix).map(str::to_owned))
    }

    /// Output entries: seq, stream, bytes.
    pub fn outputs(&self) -> impl Iterator<Item = (Seq, Stream, &bytes::Bytes)> {
        self.entries.iter().filter_map(|entry| match &entry.body {
            EntryBody::Output { stream, bytes } => Some((entry.seq, *stream, bytes)),
            _ => None,
        })
    }

    pub fn output_bytes(&self) -> u64 {
        self.outputs().map(|(_, _, bytes)| bytes.len() as u64).sum()
    }

    fn add_entry(&mut self, entry: Entry) {
        assert!(!self.is_closed(), "nothing follows closed, but {entry:?}");
        assert_eq!(entry.seq, self.cursor + 1, "seqs have no holes");
        match &entry.body {
            EntryBody::Output { bytes, .. } => {
                assert!(!bytes.is_empty(), "an entry {} without bytes", entry.seq);
                assert!(bytes.len() <= ENTRY_BYTES as usize, "an entry of {} bytes", bytes.len());
            }
            EntryBody::Exited(_) => assert_eq!(self.exited(), None, "a leader ends once"),
            // A reader that began behind `exited`, or lost it in a gap, cannot have seen it.
            EntryBody::Closed => assert!(
                self.exited().is_some() || self.began_after > 0 || !self.gaps.is_empty(),
                "closed comes after exited"
            ),
        }
        self.cursor = entry.seq;
        self.entries.push(entry);
    }

    fn check_head(&self, head: Head) {
        let seen = self.entries.last().map_or(0, |entry| entry.seq);
        assert!(head.next_seq > seen, "seen {seen}, but the log is {head:?}");
        assert!(head.first_seq <= head.next_seq, "{head:?}");
        assert!(head.exit.is_some() || !head.closed, "{head:?}");
        if let Some(exited) = self.exited() {
            assert_eq!(head.exit, Some(exited), "entry and head disagree");
        }
        if self.is_closed() {
            assert!(head.closed, "closed was read, but the log is {head:?}");
            assert_eq!(head.next_seq, seen + 1, "nothing follows closed");
        }
        if let Some(before) = self.head {
            assert!(head.next_seq >= before.next_seq, "{before:?} then {head:?}");
            assert!(head.dropped_bytes >= before.dropped_bytes, "{before:?} then {head:?}");
        }
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("what an actor prints is text, except floods, which are compared as bytes")
}
