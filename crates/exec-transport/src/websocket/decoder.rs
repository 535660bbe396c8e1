//! Messages out of WebSocket bytes.
//!
//! Memory follows what arrived, never what a header claims: a frame that announces 16 MiB and
//! sends nothing costs nothing. Only a peer that has sent a long message gets memory for another of that length at once
//! ([`KNOWN_LENGTH_BYTES`]). Large payloads are read straight into the memory of their message, so that
//! they are unmasked in place and never moved.

use std::borrow::Cow;

use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::limits::{IDLE_BUFFER_BYTES, KNOWN_LENGTH_BYTES, READ_BYTES};
use crate::message::{CloseReason, Message};
use crate::stream::decoder::{Decoder, DecoderEvent, ReadBuffer};

use super::{CONTROL_MAX_BYTES, Opcode, apply_mask, parse_close};

/// The incoming half of one connection.
#[derive(Debug)]
pub(crate) struct WebSocketDecoder {
    /// Clients mask, servers do not; the peer must do what its role demands.
    peer_masks: bool,
    frame_max_bytes: usize,
    message_max_bytes: usize,
    input: ReadBuffer,
    frame: Option<FrameInProgress>,
    message: Option<PartialMessage>,
    /// How much memory a message gets at once, because the last long one took as much.
    known_length: usize,
}

#[derive(Debug)]
struct FrameInProgress {
    fin: bool,
    opcode: Opcode,
    remaining: usize,
    /// Rotated as payload is consumed, so that it always begins with the key of the next byte.
    mask: Option<[u8; 4]>,
}

#[derive(Debug)]
struct PartialMessage {
    binary: bool,
    data: BytesMut,
    /// How much of `data` is counted and unmasked; beyond lies what was read directly into it.
    unmasked_bytes: usize,
}

impl WebSocketDecoder {
    pub(crate) fn new(peer_masks: bool, frame_max_bytes: usize, message_max_bytes: usize, already_read: &[u8]) -> Self {
        Self {
            peer_masks,
            frame_max_bytes,
            message_max_bytes,
            input: ReadBuffer::new(already_read),
            frame: None,
            message: None,
            known_length: 0,
        }
    }
}

impl Decoder for WebSocketDecoder {
    fn input(&mut self) -> &mut ReadBuffer {
        &mut self.input
    }

    fn space(&mut self) -> Limit<&mut BytesMut> {
        if let (Some(frame), Some(message)) = (&self.frame, &mut self.message)
            && !frame.opcode.is_control()
            && frame.remaining >= IDLE_BUFFER_BYTES
            && self.input.bytes.is_empty()
        {
            message.reserve(frame.remaining, self.known_length);
            return (&mut message.data).limit(frame.remaining);
        }
        self.input.space(0)
    }

    fn next(&mut self) -> Result<Option<DecoderEvent>, CloseReason> {
        loop {
            if self.frame.is_none() {
                match self.parse_header()? {
                    Some(frame) => self.begin_frame(frame)?,
                    None => return Ok(None),
                }
            }
            let frame = self.frame.as_ref().expect("begun above, or before");
            if frame.opcode.is_control() {
                return self.control();
            }
            match self.data()? {
                DataProgress::NeedsBytes => return Ok(None),
                DataProgress::FrameDone => {}
                DataProgress::Message(message) => return Ok(Some(DecoderEvent::Message(message))),
            }
        }
    }

    fn finish(&mut self) -> Result<Option<DecoderEvent>, CloseReason> {
        Ok(None)
    }

    fn at_boundary(&self) -> bool {
        self.frame.is_none() && self.message.is_none() && self.input.bytes.is_empty()
    }

    fn discard(&mut self) {
        self.input.bytes.clear();
        self.frame = None;
        self.message = None;
    }
}

impl WebSocketDecoder {
    fn parse_header(&mut self) -> Result<Option<FrameInProgress>, CloseReason> {
        let [first, second, rest @ ..] = &self.input.bytes[..] else { return Ok(None) };
        if first & 0x70 != 0 {
            return Err(violation("a frame with reserved bits; no extension was agreed on"));
        }
        let Some(opcode) = Opcode::from_bits(first & 0x0F) else {
            return Err(violation(format!("a frame with the unknown opcode {}", first & 0x0F)));
        };
        let masked = second & 0x80 != 0;
        if masked != self.peer_masks {
            return Err(violation(if masked {
                "a masked frame from a server"
            } else {
                "an unmasked frame from a client"
            }));
        }
        let length_bytes = match second & 0x7F {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_bytes = if masked { 4 } else { 0 };
        if rest.len() < length_bytes + mask_bytes {
            return Ok(None);
        }
        let (length, rest) = rest.split_at(length_bytes);
        let length = match length_bytes {
            0 => u64::from(second & 0x7F),
            _ => length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        let mask = rest.first_chunk::<4>().copied().filter(|_| masked);
        let remaining = usize::try_from(length).ok().filter(|bytes| *bytes <= self.frame_max_bytes);
        let Some(remaining) = remaining else {
            return Err(too_big(format!("a frame of {length} bytes; at most {} are accepted", self.frame_max_bytes)));
        };
        let fin = first & 0x80 != 0;
        self.input.bytes.advance(2 + length_bytes + mask_bytes);
        Ok(Some(FrameInProgress { fin, opcode, remaining, mask }))
    }

    /// Checks that the frame may come now, and begins or continues its message.
    fn begin_frame(&mut self, frame: FrameInProgress) -> Result<(), CloseReason> {
        match (frame.opcode, &self.message) {
            (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => {
                if !frame.fin || frame.remaining > CONTROL_MAX_BYTES {
                    return Err(violation("a control frame that is fragmented or longer than 125 bytes"));
                }
            }
            (Opcode::Continuation, None) => {
                return Err(violation("a continuation frame without a message to continue"));
            }
            (Opcode::Continuation, Some(message)) => {
                if message.data.len() + frame.remaining > self.message_max_bytes {
                    return Err(self.message_too_big());
                }
            }
            (Opcode::Text | Opcode::Binary, Some(_)) => {
                return Err(violation("a new message inside an unfinished one"));
            }
            (Opcode::Text | Opcode::Binary, None) => {
                if frame.remaining > self.message_max_bytes {
                    return Err(self.message_too_big());
                }
                let binary = frame.opcode == Opcode::Binary;
                self.message = Some(PartialMessage { binary, data: BytesMut::new(), unmasked_bytes: 0 });
            }
        }
        self.frame = Some(frame);
        Ok(())
    }

    fn control(&mut self) -> Result<Option<DecoderEvent>, CloseReason> {
        let Some(frame) = self.frame.take_if(|frame| self.input.bytes.len() >= frame.remaining) else {
            return Ok(None);
        };
        let mut payload = [0; CONTROL_MAX_BYTES];
        let payload = &mut payload[..frame.remaining];
        self.input.bytes.copy_to_slice(payload);
        apply_mask(payload, frame.mask.unwrap_or_default());
        Ok(Some(match frame.opcode {
            Opcode::Ping => DecoderEvent::Ping(Bytes::copy_from_slice(payload)),
            Opcode::Close => DecoderEvent::Close(parse_close(payload)?),
            _ => DecoderEvent::Pong,
        }))
    }

    fn data(&mut self) -> Result<DataProgress, CloseReason> {
        let frame = self.frame.as_mut().expect("the caller began a frame");
        let message = self.message.as_mut().expect("a data frame has opened or continued a message");
        let whole = frame.fin && message.data.is_empty() && self.input.bytes.len() >= frame.remaining;
        if whole {
            apply_mask(&mut self.input.bytes[..frame.remaining], frame.mask.unwrap_or_default());
            let payload = self.input.take(frame.remaining);
            let binary = message.binary;
            self.frame = None;
            self.message = None;
            return finished(binary, payload).map(DataProgress::Message);
        }
        let copied = frame.remaining.min(self.input.bytes.len());
        if message.data.len() == message.unmasked_bytes && copied > 0 {
            message.reserve(frame.remaining, self.known_length);
            message.data.put((&mut self.input.bytes).take(copied));
        }
        let fresh = &mut message.data[message.unmasked_bytes..];
        frame.unmask(fresh);
        message.unmasked_bytes = message.data.len();
        if frame.remaining > 0 {
            return Ok(DataProgress::NeedsBytes);
        }
        let fin = frame.fin;
        self.frame = None;
        if !fin {
            return Ok(DataProgress::FrameDone);
        }
        let message = self.message.take().expect("held above");
        self.known_length = message.data.len().min(KNOWN_LENGTH_BYTES);
        if message.data.len() >= READ_BYTES {
            self.input.expect_long_message();
        }
        finished(message.binary, message.data.freeze()).map(DataProgress::Message)
    }

    fn message_too_big(&self) -> CloseReason {
        too_big(format!("a message of more than {} bytes", self.message_max_bytes))
    }
}

enum DataProgress {
    NeedsBytes,
    FrameDone,
    Message(Message),
}

impl FrameInProgress {
    /// Unmasks payload that has arrived, and counts it.
    fn unmask(&mut self, fresh: &mut [u8]) {
        if let Some(mask) = &mut self.mask {
            apply_mask(fresh, *mask);
            mask.rotate_left(fresh.len() % 4);
        }
        self.remaining -= fresh.len();
    }
}

impl PartialMessage {
    /// Grows by doubling from what is known to come, and never beyond the rest of the frame.
    fn reserve(&mut self, remaining: usize, known_length: usize) {
        if self.data.capacity() == self.data.len() {
            self.data.reserve(remaining.min(self.data.len().max(READ_BYTES).max(known_length)));
        }
    }
}

fn finished(binary: bool, payload: Bytes) -> Result<Message, CloseReason> {
    if binary {
        return Ok(Message::Binary(payload));
    }
    match std::str::from_utf8(&payload) {
        Ok(_) => Ok(Message::Text(payload)),
        Err(_) => Err(CloseReason::new(CloseReason::INVALID_DATA, "a text message is not valid UTF-8")),
    }
}

fn violation(reason: impl Into<Cow<'static, str>>) -> CloseReason {
    CloseReason::new(CloseReason::PROTOCOL_ERROR, reason)
}

fn too_big(reason: String) -> CloseReason {
    CloseReason::new(CloseReason::TOO_BIG, reason)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::decoder::decode_pieces;
    use crate::websocket::{MaskKeys, Role};

    const LIMIT: usize = 1 << 20;

    fn decode(decoder: &mut WebSocketDecoder, bytes: &[u8], piece: usize) -> Result<Vec<DecoderEvent>, CloseReason> {
        let mut found = Vec::new();
        decode_pieces(decoder, bytes, piece, &mut found).map(|()| found)
    }

    fn client(frame_max: usize, message_max: usize) -> WebSocketDecoder {
        WebSocketDecoder::new(false, frame_max, message_max, &[])
    }

    fn violation(bytes: &[u8]) -> CloseReason {
        decode(&mut client(LIMIT, LIMIT), bytes, 1).expect_err("a violation")
    }

    #[test]
    fn control_frames_may_come_between_fragments() {
        for piece in 1..30 {
            let bytes = b"\x01\x03abc\x89\x02hi\x00\x00\x8a\x00\x80\x03def";
            let found = decode(&mut client(LIMIT, LIMIT), bytes, piece).expect("well formed");
            let shown = format!("{found:?}");
            assert_eq!(shown, r#"[Ping(b"hi"), Pong, Message(Text(b"abcdef"))]"#);
        }
    }

    #[test]
    fn each_violation_has_its_code_and_reason() {
        for (bytes, code, reason) in [
            (&b"\xc1\x00"[..], 1002, "a frame with reserved bits; no extension was agreed on"),
            (b"\x83\x00", 1002, "a frame with the unknown opcode 3"),
            (b"\x81\x80\0\0\0\0", 1002, "a masked frame from a server"),
            (b"\x80\x00", 1002, "a continuation frame without a message to continue"),
            (b"\x01\x00\x81\x00", 1002, "a new message inside an unfinished one"),
            (b"\x09\x00", 1002, "a control frame that is fragmented or longer than 125 bytes"),
            (b"\x89\x7e\x00\x7e", 1002, "a control frame that is fragmented or longer than 125 bytes"),
            (b"\x88\x01\x03", 1002, "a close frame of one byte"),
            (b"\x88\x02\x03\xee", 1002, "a close frame with the invalid code 1006"),
            (b"\x88\x03\x03\xe8\xff", 1007, "the reason in a close frame is not valid UTF-8"),
            (b"\x81\x01\xff", 1007, "a text message is not valid UTF-8"),
            (b"\x82\x7f\0\0\0\0\0\x10\0\x01", 1009, "a frame of 1048577 bytes; at most 1048576 are accepted"),
            (
                b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
                1009,
                "a frame of 18446744073709551615 bytes; at most 1048576 are accepted",
            ),
        ] {
            assert_eq!(violation(bytes), CloseReason::new(code, reason));
        }
    }

    #[test]
    fn a_server_refuses_unmasked_frames() {
        let mut server = WebSocketDecoder::new(true, LIMIT, LIMIT, &[]);
        let refused = decode(&mut server, b"\x81\x01a", 1).expect_err("clients must mask");
        assert_eq!(refused, CloseReason::new(1002, "an unmasked frame from a client"));
    }

    #[test]
    fn the_message_limit_counts_all_fragments() {
        let bytes = b"\x02\x04abcd\x80\x04efgh";
        assert_eq!(decode(&mut client(8, 8), bytes, 3).expect("at the limit").len(), 1);
        let refused = decode(&mut client(8, 7), bytes, 3).expect_err("over the limit");
        assert_eq!(refused, CloseReason::new(1009, "a message of more than 7 bytes"));
    }

    #[test]
    fn a_close_frame_carries_code_and_reason_or_nothing() {
        for (bytes, expected) in [
            (&b"\x88\x00"[..], CloseReason::new(1005, "")),
            (b"\x88\x05\x03\xe9bye", CloseReason::new(1001, "bye")),
            (b"\x88\x02\x0f\xa0", CloseReason::new(4000, "")),
        ] {
            let found = decode(&mut client(LIMIT, LIMIT), bytes, 1).expect("well formed");
            assert!(matches!(&found[..], [DecoderEvent::Close(reason)] if *reason == expected), "{found:?}");
        }
    }

    #[test]
    fn a_header_that_promises_much_costs_little() {
        let mut decoder = client(16 << 20, 64 << 20);
        let found = decode(&mut decoder, b"\x82\x7f\0\0\0\0\x01\0\0\0ab", 100).expect("well formed so far");
        assert!(found.is_empty());
        let _ = decoder.space();
        let held = decoder.message.as_ref().expect("it began").data.capacity();
        assert!(held <= 2 * READ_BYTES, "{held} bytes are held for two that came");
        assert!(!decoder.at_boundary());
    }

    #[test]
    fn the_length_of_a_message_is_believed_after_one_as_long_but_not_beyond_the_bound() {
        let promise = b"\x82\x7f\0\0\0\0\x01\0\0\0ab";
        for (length, least, most) in
            [(300 << 10, 300 << 10, 600 << 10), (3 << 20, KNOWN_LENGTH_BYTES, 2 * KNOWN_LENGTH_BYTES)]
        {
            let mut decoder = client(16 << 20, 64 << 20);
            let mut bytes = BytesMut::new();
            Role::Server.append_frame(&mut bytes, true, Opcode::Binary, &vec![7; length]);
            let found = decode(&mut decoder, &bytes, READ_BYTES).expect("well formed");
            assert_eq!(found, [DecoderEvent::Message(Message::Binary(vec![7; length].into()))]);
            assert!(decode(&mut decoder, promise, 100).expect("well formed so far").is_empty());
            let held = decoder.message.as_ref().expect("it began").data.capacity();
            assert!((least..=most).contains(&held), "{held} bytes are held after a message of {length}");
        }
    }

    proptest! {
        #[test]
        fn what_a_role_encodes_the_other_decodes_under_any_cut(
            messages in proptest::collection::vec((any::<bool>(), 0_usize..40_000), 1..5),
            fragment in 1_usize..20_000,
            piece in 1_usize..9_000,
            masked in any::<bool>(),
        ) {
            let mut role = if masked { Role::Client(MaskKeys::default()) } else { Role::Server };
            let mut bytes = BytesMut::new();
            let mut sent = Vec::new();
            for (binary, length) in messages {
                let payload: Vec<u8> = (0..length).map(|at| b'a' + (at % 23) as u8).collect();
                let mut opcode = if binary { Opcode::Binary } else { Opcode::Text };
                let pieces: Vec<&[u8]> = if payload.is_empty() { vec![&[]] } else { payload.chunks(fragment).collect() };
                for (at, part) in pieces.iter().enumerate() {
                    role.append_frame(&mut bytes, at + 1 == pieces.len(), opcode, part);
                    opcode = Opcode::Continuation;
                }
                let payload = Bytes::from(payload);
                sent.push(if binary { Message::Binary(payload) } else { Message::Text(payload) });
            }
            let mut decoder = WebSocketDecoder::new(masked, LIMIT, LIMIT, &[]);
            let found = decode(&mut decoder, &bytes, piece).expect("well formed");
            let found: Vec<Message> = found.into_iter().filter_map(|incoming| match incoming {
                DecoderEvent::Message(message) => Some(message),
                _ => None,
            }).collect();
            prop_assert_eq!(found, sent);
            prop_assert!(decoder.at_boundary());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000), masked in any::<bool>(), piece in 1_usize..100) {
            let _ = decode(&mut WebSocketDecoder::new(masked, 500, 900, &[]), &bytes, piece);
        }
    }
}
