//! Lines out of pieces: the beginning of a line waits here for its end.

use exec_core::{Seq, Stream};

use super::{LINE_BYTES, Position};

/// A line as it was printed, with what the engine must know about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawLine<'a> {
    pub(super) stream: Stream,
    /// Without its line end; overwritten text is gone already, if it shall be.
    pub(super) text: &'a [u8],
    /// What it took in the log, line end included.
    pub(super) raw_bytes: u64,
    pub(super) ended: bool,
    /// The entry in which it ends.
    pub(super) seq: Seq,
    /// The place behind it.
    pub(super) end: Position,
    /// Its beginning is not known.
    pub(super) torn: bool,
}

/// The unfinished line of one stream.
#[derive(Debug, Default)]
pub(super) struct UnfinishedLine {
    pub(super) text: Vec<u8>,
    pub(super) raw_bytes: u64,
    /// A carriage return was the last byte: text that follows overwrites the line, a line end does not.
    returned: bool,
    pub(super) torn: bool,
    pub(super) seq: Seq,
    pub(super) end: Position,
}

impl UnfinishedLine {
    pub(super) fn is_empty(&self) -> bool {
        self.raw_bytes == 0 && !self.torn
    }

    /// Takes the bytes of `piece` up to its line end, or as many as a line may have. The result is how many were taken, and
    /// whether the line is complete; `ended` tells whether by a line end.
    pub(super) fn take(&mut self, piece: &[u8], collapse_overwritten: bool) -> Taken {
        if self.text.len() >= LINE_BYTES && piece.first() != Some(&b'\n') {
            return Taken { bytes: 0, complete: true, ended: false };
        }
        let line_end = memchr::memchr(b'\n', piece);
        let text = &piece[..line_end.unwrap_or(piece.len())];
        let taken = if self.torn {
            // Nobody will see it, so it takes no memory.
            text.len()
        } else if collapse_overwritten {
            self.overwrite(text)
        } else {
            let taken = text.len().min(LINE_BYTES - self.text.len());
            self.text.extend_from_slice(&text[..taken]);
            taken
        };
        let ended = taken == text.len() && line_end.is_some();
        let taken = taken + usize::from(ended);
        self.raw_bytes += taken as u64;
        Taken { bytes: taken, complete: ended, ended }
    }

    /// As a terminal would, but that text which is not overwritten by a shorter one goes too.
    fn overwrite(&mut self, text: &[u8]) -> usize {
        let mut at = 0;
        while at < text.len() && self.text.len() < LINE_BYTES {
            if text[at] == b'\r' {
                self.returned = true;
                at += 1;
                continue;
            }
            if std::mem::take(&mut self.returned) {
                self.text.clear();
            }
            let run = memchr::memchr(b'\r', &text[at..]).unwrap_or(text.len() - at);
            let run = run.min(LINE_BYTES - self.text.len());
            self.text.extend_from_slice(&text[at..at + run]);
            at += run;
        }
        at
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.raw_bytes = 0;
        self.returned = false;
        self.torn = false;
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) bytes: usize,
    pub(super) complete: bool,
    pub(super) ended: bool,
}
