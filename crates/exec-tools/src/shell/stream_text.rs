//! Bytes of several streams become one text: a character that two reads share is shown once, whole.
//!
//! Pure. Bytes that are no UTF-8 become U+FFFD, as everywhere.

use exec_core::Stream;

/// The beginnings of characters whose rest has not come yet, at most three bytes a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StreamText {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    pty: Vec<u8>,
}

impl StreamText {
    /// Appends what `bytes` complete.
    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8], text: &mut String) {
        let pending = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
            Stream::Pty => &mut self.pty,
        };
        let joined;
        let bytes = if pending.is_empty() {
            bytes
        } else {
            joined = [&pending[..], bytes].concat();
            &joined[..]
        };
        let (whole, rest) = bytes.split_at(bytes.len() - incomplete_tail(bytes));
        text.push_str(&String::from_utf8_lossy(whole));
        *pending = rest.to_vec();
    }

    /// Nothing follows: what is left is no character.
    pub(super) fn finish(&mut self, text: &mut String) {
        for pending in [&mut self.stdout, &mut self.stderr, &mut self.pty] {
            text.push_str(&String::from_utf8_lossy(pending));
            pending.clear();
        }
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.stdout.len() + self.stderr.len() + self.pty.len()
    }

    pub(super) fn pending_bytes_of(&self, stream: Stream) -> usize {
        match stream {
            Stream::Stdout => self.stdout.len(),
            Stream::Stderr => self.stderr.len(),
            Stream::Pty => self.pty.len(),
        }
    }
}

/// How many bytes at the beginning are the rest of a character that was cut.
pub(super) fn cut_head(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count()
}

/// How many bytes at the end begin a character that more bytes could complete.
pub(super) fn incomplete_tail(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let tail = &bytes[bytes.len() - back..];
        if tail[0] & 0b1100_0000 != 0b1000_0000 {
            let unfinished = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
            return if unfinished { back } else { 0 };
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[(Stream, &[u8])]) -> String {
        let (mut decoder, mut text) = (StreamText::default(), String::new());
        for (stream, bytes) in pieces {
            decoder.push(*stream, bytes, &mut text);
        }
        decoder.finish(&mut text);
        text
    }

    #[test]
    fn every_cut_of_every_character_gives_the_same_text() {
        let whole = "aé€😀z".as_bytes();
        for first in 0..=whole.len() {
            for second in first..=whole.len() {
                let pieces = [&whole[..first], &whole[first..second], &whole[second..]];
                assert_eq!(decode(&pieces.map(|piece| (Stream::Stdout, piece))), "aé€😀z", "{first} {second}");
            }
        }
    }

    #[test]
    fn a_character_of_one_stream_is_not_completed_by_another() {
        let pieces: [(Stream, &[u8]); 3] =
            [(Stream::Stdout, b"\xc3"), (Stream::Stderr, b"err"), (Stream::Stdout, b"\xa9")];
        assert_eq!(decode(&pieces), "erré");
    }

    #[test]
    fn what_is_no_text_is_replaced_and_never_waited_for() {
        assert_eq!(decode(&[(Stream::Stdout, b"\xff\xfe ok \x80")]), "\u{fffd}\u{fffd} ok \u{fffd}");
        assert_eq!(incomplete_tail(b"\xff"), 0);
        assert_eq!(incomplete_tail(b"a\xf0\x9f\x98"), 3);
        assert_eq!(decode(&[(Stream::Pty, b"\xe2\x82")]), "\u{fffd}");
        assert_eq!((cut_head("€".as_bytes()), cut_head(&"€".as_bytes()[1..])), (0, 2));
    }
}
