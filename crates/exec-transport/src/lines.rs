//! Messages out of newline-delimited text.
//!
//! LF or CRLF ends a line, blank lines are skipped, the last line may be unterminated. Invalid UTF-8
//! and a line over the limit end the connection, as with Codex's stdio.

use bytes::buf::Limit;
use bytes::{Bytes, BytesMut};

use crate::message::{CloseReason, Message};
use crate::stream::decoder::{Decoder, DecoderEvent, ReadBuffer};

/// The incoming half of one connection.
#[derive(Debug)]
pub(crate) struct LineDecoder {
    max_bytes: usize,
    input: ReadBuffer,
    /// Bytes at the front of `input` that are known to hold no line end.
    searched: usize,
}

impl LineDecoder {
    pub(crate) fn new(max_bytes: usize, already_read: &[u8]) -> Self {
        Self { max_bytes, input: ReadBuffer::new(already_read), searched: 0 }
    }

    fn message(&self, mut line: Bytes) -> Result<Option<DecoderEvent>, CloseReason> {
        line.truncate(content_bytes(&line));
        if line.len() > self.max_bytes {
            return Err(self.too_long());
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        match std::str::from_utf8(&line) {
            Ok(_) => Ok(Some(DecoderEvent::Message(Message::Text(line)))),
            Err(_) => Err(CloseReason::new(CloseReason::INVALID_DATA, "a line is not valid UTF-8")),
        }
    }

    fn too_long(&self) -> CloseReason {
        CloseReason::new(CloseReason::TOO_BIG, format!("a line of more than {} bytes", self.max_bytes))
    }
}

impl Decoder for LineDecoder {
    fn input(&mut self) -> &mut ReadBuffer {
        &mut self.input
    }

    fn space(&mut self) -> Limit<&mut BytesMut> {
        // A long line doubles the read, so that its bytes are not moved once per small read.
        self.input.space(self.searched)
    }

    fn next(&mut self) -> Result<Option<DecoderEvent>, CloseReason> {
        while let Some(at) = memchr::memchr(b'\n', &self.input.bytes[self.searched..]) {
            let mut line = self.input.take(self.searched + at + 1);
            self.searched = 0;
            line.truncate(line.len() - 1);
            if let Some(message) = self.message(line)? {
                return Ok(Some(message));
            }
        }
        self.searched = self.input.bytes.len();
        if content_bytes(&self.input.bytes) > self.max_bytes {
            return Err(self.too_long());
        }
        Ok(None)
    }

    fn finish(&mut self) -> Result<Option<DecoderEvent>, CloseReason> {
        let rest = self.input.take(self.input.bytes.len());
        self.searched = 0;
        self.message(rest)
    }

    fn at_boundary(&self) -> bool {
        self.input.bytes.is_empty()
    }

    fn discard(&mut self) {
        self.input.bytes.clear();
        self.searched = 0;
    }
}

/// The length without a CR at the end, which belongs to the line end.
fn content_bytes(line: &[u8]) -> usize {
    line.strip_suffix(b"\r").unwrap_or(line).len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::decoder::decode_pieces;

    /// Everything that comes of `bytes`, handed over in pieces of `piece` bytes.
    fn decode(bytes: &[u8], piece: usize, max_bytes: usize) -> Result<Vec<String>, CloseReason> {
        let mut decoder = LineDecoder::new(max_bytes, &[]);
        let mut found = Vec::new();
        decode_pieces(&mut decoder, bytes, piece, &mut found)?;
        found.extend(decoder.finish()?);
        let lines = found.into_iter().map(|event| {
            let DecoderEvent::Message(message) = event else { panic!("lines carry messages only") };
            String::from_utf8(message.into_bytes().to_vec()).expect("checked by the decoder")
        });
        Ok(lines.collect())
    }

    #[test]
    fn lf_crlf_blank_lines_and_an_unterminated_last_line() {
        for piece in 1..20 {
            let lines = decode(b"{\"a\":1}\n\r\n  \n{\"b\":2}\r\n\n{\"c\":3}", piece, 100);
            assert_eq!(lines.expect("well formed"), ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]);
        }
    }

    #[test]
    fn the_limit_counts_neither_cr_nor_lf() {
        assert_eq!(decode(b"12345678\r\n", 3, 8).expect("at the limit"), ["12345678"]);
        assert_eq!(decode(b"12345678", 3, 8).expect("at the limit"), ["12345678"]);
        for line in [&b"123456789\n"[..], b"123456789", b"12345678\r\r\n"] {
            let violation = decode(line, 3, 8).expect_err("one over the limit");
            assert_eq!(violation, CloseReason::new(1009, "a line of more than 8 bytes"));
        }
    }

    #[test]
    fn invalid_utf8_is_a_violation() {
        let violation = decode(b"ok\n\xff\xfe\nnever\n", 2, 100).expect_err("not UTF-8");
        assert_eq!(violation.code, CloseReason::INVALID_DATA);
    }

    proptest! {
        #[test]
        fn lines_survive_any_cut(lengths in proptest::collection::vec(1_usize..9000, 0..5), piece in 1_usize..6000) {
            let lines: Vec<String> = lengths.into_iter().map(|length| "a\u{e4}\u{1f600}\r".repeat(length) + ".").collect();
            let bytes = lines.join("\n").into_bytes();
            prop_assert!(decode(&bytes, piece, 1 << 20).expect("well formed") == lines);
        }
    }
}
