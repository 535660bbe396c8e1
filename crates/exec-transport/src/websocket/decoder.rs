//! Messages out of WebSocket bytes. Pure: bytes are put into [`Decoder::space`], messages taken
//! from [`Decoder::next`].
//!
//! Memory follows what arrived, never what a header claims: a frame that announces 16 MiB and
//! sends nothing costs nothing. Large payloads are read to where the message will lie, so that
//! they are unmasked in place and never moved.

use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::limits::{IDLE_BUFFER_BYTES, READ_BYTES};
use crate::message::{CloseReason, Message};
use crate::stream::{DecoderEvent, ReadBuffer};

use super::frame::{CONTROL_MAX_BYTES, Opcode, apply_mask, parse_close};

/// One connection's incoming half.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Clients mask, servers do not; the peer must do what its role demands.
    peer_masks: bool,
    frame_max_bytes: usize,
    message_max_bytes: usize,
    input: ReadBuffer,
    frame: Option<FrameInProgress>,
    message: Option<PartialMessage>,
}

/// The frame whose payload is being read.
#[derive(Debug)]
struct FrameInProgress {
    fin: bool,
    opcode: Opcode,
    remaining: usize,
    /// Rotated as payload is consumed, so that it always fits the next byte.
    mask: Option<[u8; 4]>,
}

/// The message whose frames are being read.
#[derive(Debug)]
struct PartialMessage {
    binary: bool,
    data: BytesMut,
    /// How much of `data` is counted and unmasked; beyond lies what was read directly into it.
    unmasked_bytes: usize,
}

impl Decoder {
    pub(crate) fn new(peer_masks: bool, frame_max_bytes: usize, message_max_bytes: usize, already_read: &[u8]) -> Self {
        Self {
            peer_masks,
            frame_max_bytes,
            message_max_bytes,
            input: ReadBuffer::new(already_read),
            frame: None,
            message: None,
        }
    }

    /// Where the next bytes of the stream go.
    pub(crate) fn space(&mut self) -> Limit<&mut BytesMut> {
        if let (Some(frame), Some(message)) = (&self.frame, &mut self.message)
            && !frame.opcode.is_control()
            && frame.remaining >= IDLE_BUFFER_BYTES
            && self.input.bytes.is_empty()
        {
            message.reserve(frame.remaining);
            return (&mut message.data).limit(frame.remaining);
        }
        self.input.space(0)
    }

    /// Tells how many bytes the last read brought; the size of the next one follows it.
    pub(crate) fn filled(&mut self, read_bytes: usize) {
        if !self.input.bytes.is_empty() {
            self.input.filled(read_bytes);
        }
    }

    /// Nothing is waiting: give back what an idle connection does not need.
    pub(crate) fn release_idle(&mut self) {
        self.input.release_idle();
    }

    /// True between two messages, where a stream may end in good order.
    pub(crate) fn at_boundary(&self) -> bool {
        self.frame.is_none() && self.message.is_none() && self.input.bytes.is_empty()
    }

    /// Forgets everything; used once the peer has been cut off.
    pub(crate) fn discard(&mut self) {
        self.input.bytes.clear();
        self.frame = None;
        self.message = None;
    }

    /// The next event, `None` when more bytes are needed, or the violation to close with.
    pub(crate) fn next(&mut self) -> Result<Option<DecoderEvent>, CloseReason> {
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

    /// Checks that the frame may come here, and opens or continues its message.
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
            message.reserve(frame.remaining);
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
    /// Grows by doubling, and never past what the frame still brings.
    fn reserve(&mut self, remaining: usize) {
        if self.data.capacity() == self.data.len() {
            self.data.reserve(remaining.min(self.data.len().max(READ_BYTES)));
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

fn violation(reason: impl Into<std::borrow::Cow<'static, str>>) -> CloseReason {
    CloseReason::new(CloseReason::PROTOCOL_ERROR, reason)
}

fn too_big(reason: String) -> CloseReason {
    CloseReason::new(CloseReason::TOO_BIG, reason)
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
