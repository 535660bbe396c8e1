//! What a stream of a process has printed, within its cap: pieces to send on, or text to keep. Pure.
//!
//! A cap that is met exactly counts as reached, as with Codex: nobody looks whether there would have been more.

use bytes::Bytes;

use crate::limits::CAPTURED_BYTES;

/// Counts one stream against its cap.
#[derive(Debug)]
pub(crate) struct CappedStream {
    left: Option<usize>,
    reached: bool,
}

impl CappedStream {
    /// `None`: everything passes.
    pub(crate) fn new(cap: Option<usize>) -> Self {
        Self { left: cap, reached: false }
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.reached
    }

    /// The part of `bytes` that passes; `None` once the cap was reached.
    pub(crate) fn take(&mut self, mut bytes: Bytes) -> Option<Bytes> {
        if self.reached {
            return None;
        }
        if let Some(left) = &mut self.left {
            bytes.truncate(*left);
            *left -= bytes.len();
            self.reached = *left == 0;
        }
        Some(bytes)
    }
}

/// Keeps one stream as a result returns it.
#[derive(Debug)]
pub(crate) struct CapturedStream {
    capped: CappedStream,
    bytes: Vec<u8>,
}

impl CapturedStream {
    pub(crate) fn new(cap: Option<usize>) -> Self {
        Self { capped: CappedStream::new(Some(cap.unwrap_or(CAPTURED_BYTES).min(CAPTURED_BYTES))), bytes: Vec::new() }
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        if let Some(bytes) = self.capped.take(bytes) {
            self.bytes.extend_from_slice(&bytes);
        }
    }

    /// The text and whether the cap was reached. What is not UTF-8 becomes U+FFFD; whoever needs the bytes streams them.
    pub(crate) fn into_text(self) -> (String, bool) {
        let text = String::from_utf8(self.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        (text, self.capped.reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(cap: Option<usize>) -> Vec<(Option<&'static str>, bool)> {
        let mut stream = CappedStream::new(cap);
        ["123", "45", "6"]
            .map(|piece| {
                let taken = stream.take(Bytes::from_static(piece.as_bytes()));
                let taken = taken.map(|bytes| &piece[..bytes.len()]);
                (taken, stream.is_reached())
            })
            .to_vec()
    }

    #[test]
    fn a_cap_that_is_met_exactly_counts_as_reached() {
        assert_eq!(pieces(Some(5)), [(Some("123"), false), (Some("45"), true), (None, true)]);
        assert_eq!(pieces(Some(4)), [(Some("123"), false), (Some("4"), true), (None, true)]);
    }

    #[test]
    fn a_cap_of_nothing_is_reached_by_the_first_piece_and_no_cap_never_is() {
        assert_eq!(pieces(Some(0)), [(Some(""), true), (None, true), (None, true)]);
        assert_eq!(pieces(None), [(Some("123"), false), (Some("45"), false), (Some("6"), false)]);
    }

    #[test]
    fn text_that_is_not_utf8_keeps_what_is() {
        let mut stream = CapturedStream::new(None);
        stream.push(Bytes::from_static(b"caf\xe9 ok"));
        assert_eq!(stream.into_text(), ("caf\u{fffd} ok".to_owned(), false));
    }
}
