//! Frames messages and decides in which order the bytes are written. Pure: it returns byte slices and does no I/O.
//!
//! ```text
//! buffer   small messages, framed, one after another
//! large    one message, sent frame by frame
//! pong, ping, close   at most one of each; the newest pong wins
//!    │ stage(), only when nothing is staged: control first, then buffer, then one frame of large
//!    ▼
//! staged   pieces the kernel is taking; never reordered
//! ```
//!
//! So a control frame waits for one large frame at most, and no frame is ever interrupted by another.
//! It holds at most [`WRITE_THROUGH_BYTES`], one message and one frame: `push` may only be called
//! when [`SendQueue::has_room`].

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

use crate::limits::{COPY_MAX_BYTES, IDLE_BUFFER_BYTES, WRITE_THROUGH_BYTES};
use crate::message::{CloseReason, Message};
use crate::websocket::{HEADER_MAX_BYTES, Opcode, Role, close_payload, put_header};

/// How many pieces one write may gather; control, buffer, header and payload need four.
pub(crate) const SLICES: usize = 4;

#[derive(Debug)]
pub(crate) enum Framing {
    Lines,
    WebSocket(Role),
}

/// The outgoing half of one connection, up to the socket.
#[derive(Debug)]
pub(crate) struct SendQueue {
    framing: Framing,
    frame_max_bytes: usize,
    staged: VecDeque<Bytes>,
    buffer: BytesMut,
    /// What the buffer held when it was last staged: a guess at what it will hold again.
    buffer_hint: usize,
    large: Option<Large>,
    pong: Option<Bytes>,
    ping: bool,
    close_state: CloseState,
}

/// A message too large to copy.
#[derive(Debug)]
struct Large {
    opcode: Opcode,
    /// The little that comes before the rest. It is copied.
    head: Bytes,
    rest: Bytes,
}

#[derive(Debug, PartialEq, Eq)]
enum CloseState {
    Open,
    /// No more messages; the close frame is sent after those in the queue.
    Pending(CloseReason),
    /// The close frame is staged, or the framing has none. Nothing may follow.
    Sent,
}

impl SendQueue {
    pub(crate) fn new(framing: Framing, frame_max_bytes: usize) -> Self {
        Self {
            framing,
            frame_max_bytes: frame_max_bytes.max(1),
            staged: VecDeque::new(),
            buffer: BytesMut::new(),
            buffer_hint: 0,
            large: None,
            pong: None,
            ping: false,
            close_state: CloseState::Open,
        }
    }

    pub(crate) fn carries_binary(&self) -> bool {
        matches!(self.framing, Framing::WebSocket(_))
    }

    /// False once the connection is being closed; no message may be pushed then.
    pub(crate) fn is_open(&self) -> bool {
        self.close_state == CloseState::Open
    }

    /// True if another message may be pushed before some of the queue is written.
    pub(crate) fn has_room(&self) -> bool {
        let held: usize = self.staged.iter().map(Bytes::len).sum();
        self.large.is_none() && held + self.buffer.len() < WRITE_THROUGH_BYTES
    }

    /// Adds a message that goes on with `body`, which is not copied if it is long.
    pub(crate) fn push(&mut self, message: Message, body: Bytes) {
        debug_assert!(self.is_open() && self.large.is_none(), "the caller asked has_room and is_open");
        let opcode = match &message {
            Message::Text(_) => Opcode::Text,
            Message::Binary(_) => Opcode::Binary,
        };
        let payload = message.into_bytes();
        debug_assert!(opcode == Opcode::Binary || std::str::from_utf8(&payload).is_ok(), "text must be UTF-8");
        if body.len() > COPY_MAX_BYTES {
            self.large = Some(Large { opcode, head: payload, rest: body });
            return;
        }
        let payload = if body.is_empty() { payload } else { [payload, body].concat().into() };
        if payload.len() > COPY_MAX_BYTES {
            self.large = Some(Large { opcode, head: Bytes::new(), rest: payload });
            return;
        }
        if self.buffer.is_empty() {
            self.buffer.reserve(self.buffer_hint);
        }
        match &mut self.framing {
            Framing::Lines => append_line(&mut self.buffer, &payload),
            Framing::WebSocket(role) if payload.len() <= self.frame_max_bytes => {
                role.append_frame(&mut self.buffer, true, opcode, &payload);
            }
            // Only with a frame limit below the copy limit, as tests set it.
            Framing::WebSocket(_) => self.large = Some(Large { opcode, head: Bytes::new(), rest: payload }),
        }
    }

    /// Answers a ping. An older answer that has not been sent is replaced, as RFC 6455 §5.5.3 allows.
    pub(crate) fn pong(&mut self, payload: Bytes) {
        self.pong = Some(payload);
    }

    pub(crate) fn ping(&mut self) {
        self.ping = true;
    }

    /// Ends the messages. The close frame is sent after those that were pushed.
    pub(crate) fn close(&mut self, reason: CloseReason) {
        if self.close_state == CloseState::Open {
            self.close_state = match self.framing {
                Framing::Lines => CloseState::Sent,
                Framing::WebSocket(_) => CloseState::Pending(reason),
            };
        }
    }

    /// True if a ping, a pong or a close frame has not been staged yet.
    pub(crate) fn owes_control(&self) -> bool {
        self.pong.is_some() || self.ping || matches!(self.close_state, CloseState::Pending(_))
    }

    /// Decides what is written next, if nothing is being written. False if there is nothing.
    pub(crate) fn stage(&mut self) -> bool {
        if !self.staged.is_empty() {
            return true;
        }
        if let Framing::WebSocket(role) = &mut self.framing
            && (self.ping || self.pong.is_some())
            && self.close_state != CloseState::Sent
        {
            let mut control = BytesMut::new();
            if let Some(payload) = self.pong.take() {
                role.append_frame(&mut control, true, Opcode::Pong, &payload);
            }
            if std::mem::take(&mut self.ping) {
                role.append_frame(&mut control, true, Opcode::Ping, &[]);
            }
            self.staged.push_back(control.freeze());
        }
        if !self.buffer.is_empty() {
            self.buffer_hint = self.buffer.len();
            self.staged.push_back(std::mem::take(&mut self.buffer).freeze());
        }
        self.stage_large();
        if self.staged.is_empty() {
            self.stage_close();
        }
        !self.staged.is_empty()
    }

    /// True while the kernel has not taken all that was staged.
    pub(crate) fn is_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// The staged pieces, for one gathering write.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES]) -> usize {
        let count = self.staged.len().min(SLICES);
        for (slice, piece) in slices.iter_mut().zip(&self.staged) {
            *slice = IoSlice::new(piece);
        }
        count
    }

    /// The kernel took `count` bytes.
    pub(crate) fn consume(&mut self, mut count: usize) {
        while let Some(piece) = self.staged.front_mut() {
            if count < piece.len() {
                piece.advance(count);
                return;
            }
            count -= piece.len();
            let piece = self.staged.pop_front().expect("just seen");
            // A small buffer is used again, so that an echo allocates nothing.
            if self.buffer.capacity() == 0
                && piece.is_unique()
                && let Ok(mut buffer) = piece.try_into_mut()
                && buffer.capacity() <= IDLE_BUFFER_BYTES
            {
                buffer.clear();
                self.buffer = buffer;
            }
        }
    }

    fn stage_large(&mut self) {
        let Some(large) = &mut self.large else { return };
        match &mut self.framing {
            Framing::Lines => {
                self.staged.extend(Some(std::mem::take(&mut large.head)).filter(|head| !head.is_empty()));
                self.staged.push_back(std::mem::take(&mut large.rest));
                self.staged.push_back(Bytes::from_static(b"\n"));
            }
            Framing::WebSocket(role) => {
                let head = large.head.split_to(large.head.len().min(self.frame_max_bytes));
                let body = large.rest.split_to(large.rest.len().min(self.frame_max_bytes - head.len()));
                let opcode = std::mem::replace(&mut large.opcode, Opcode::Continuation);
                let fin = large.head.is_empty() && large.rest.is_empty();
                match role {
                    Role::Server => {
                        let mut header = BytesMut::with_capacity(HEADER_MAX_BYTES + head.len());
                        put_header(&mut header, fin, opcode, head.len() + body.len(), None);
                        header.extend_from_slice(&head);
                        self.staged.push_back(header.freeze());
                        self.staged.extend(Some(body).filter(|body| !body.is_empty()));
                    }
                    Role::Client(_) => {
                        let mut frame = BytesMut::new();
                        role.append_frame_of_two(&mut frame, fin, opcode, &head, &body);
                        self.staged.push_back(frame.freeze());
                    }
                }
            }
        }
        if large.head.is_empty() && large.rest.is_empty() {
            self.large = None;
        }
    }

    fn stage_close(&mut self) {
        let Framing::WebSocket(role) = &mut self.framing else { return };
        if let CloseState::Pending(reason) = &self.close_state {
            let mut frame = BytesMut::new();
            role.append_frame(&mut frame, true, Opcode::Close, &close_payload(reason));
            self.staged.push_back(frame.freeze());
            self.close_state = CloseState::Sent;
        }
    }
}

fn append_line(buffer: &mut BytesMut, payload: &[u8]) {
    debug_assert!(memchr::memchr(b'\n', payload).is_none(), "a line end inside a message would tear it");
    buffer.reserve(payload.len() + 1);
    buffer.extend_from_slice(payload);
    buffer.extend_from_slice(b"\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::decoder::{DecoderEvent, decode_pieces};
    use crate::websocket::decoder::WebSocketDecoder;

    fn text(content: &str) -> Message {
        Message::Text(Bytes::copy_from_slice(content.as_bytes()))
    }

    /// Everything the queue would write, taken `step` bytes at a time.
    fn drain(queue: &mut SendQueue, step: usize) -> Vec<u8> {
        let mut written = Vec::new();
        while queue.stage() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = queue.slices(&mut slices);
            let taken: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).take(step).collect();
            queue.consume(taken.len());
            written.extend(taken);
        }
        written
    }

    fn server(frame_max_bytes: usize) -> SendQueue {
        SendQueue::new(Framing::WebSocket(Role::Server), frame_max_bytes)
    }

    #[test]
    fn a_large_message_leaves_in_frames_of_at_most_the_limit() {
        for step in [1, 3, 100] {
            let mut queue = server(4);
            queue.push(text("0123456789"), Bytes::new());
            assert!(!queue.has_room());
            assert_eq!(drain(&mut queue, step), b"\x01\x040123\x00\x044567\x80\x0289");
            assert!(queue.has_room());
        }
    }

    #[test]
    fn a_message_with_a_body_leaves_as_one_message_however_long_its_parts_are() {
        for (head, body) in [(0, 3), (3, 0), (3, 3), (3, COPY_MAX_BYTES + 1), (9, COPY_MAX_BYTES + 3)] {
            let bytes: Vec<u8> = (0..head + body).map(|at| at as u8).collect();
            for frame_max_bytes in [4, 7, 1 << 20] {
                for role in [Role::Server, Role::Client(crate::websocket::MaskKeys::default())] {
                    let peer_masks = matches!(role, Role::Client(_));
                    let mut queue = SendQueue::new(Framing::WebSocket(role), frame_max_bytes);
                    let parts = (&bytes[..head], &bytes[head..]);
                    queue.push(Message::Binary(Bytes::copy_from_slice(parts.0)), Bytes::copy_from_slice(parts.1));
                    let written = drain(&mut queue, 1000);
                    let mut decoder = WebSocketDecoder::new(peer_masks, 1 << 20, 1 << 20, &[]);
                    let mut found = Vec::new();
                    decode_pieces(&mut decoder, &written, 777, &mut found).expect("it is well-formed");
                    assert_eq!(found, [DecoderEvent::Message(Message::Binary(bytes.clone().into()))]);
                }
            }
        }
    }

    #[test]
    fn a_pong_goes_between_two_fragments_and_the_newest_wins() {
        let mut queue = server(4);
        queue.push(text("01234567"), Bytes::new());
        assert!(queue.stage());
        queue.consume(3);
        queue.pong(Bytes::from_static(b"old"));
        queue.pong(Bytes::from_static(b"new"));
        assert_eq!(drain(&mut queue, 100), b"123\x8a\x03new\x80\x044567");
    }

    #[test]
    fn the_close_frame_leaves_last_and_nothing_follows_it() {
        let mut queue = server(100);
        queue.push(text("hi"), Bytes::new());
        queue.close(CloseReason::new(1001, "bye"));
        assert!(!queue.is_open());
        queue.ping();
        assert_eq!(drain(&mut queue, 100), b"\x89\x00\x81\x02hi\x88\x05\x03\xe9bye");
        queue.ping();
        assert_eq!(drain(&mut queue, 100), b"");
    }

    #[test]
    fn lines_end_with_lf_whether_small_or_large() {
        let mut queue = SendQueue::new(Framing::Lines, 1 << 20);
        let long = "x".repeat(COPY_MAX_BYTES + 1);
        queue.push(text("{}"), Bytes::new());
        queue.push(text(&long), Bytes::new());
        assert_eq!(drain(&mut queue, 1000), format!("{{}}\n{long}\n").as_bytes());
    }

    #[test]
    fn a_close_reason_is_cut_at_a_character() {
        let mut queue = server(1000);
        queue.close(CloseReason::new(1011, "\u{e4}".repeat(100)));
        let frame = drain(&mut queue, 1000);
        assert_eq!(frame[..2], [0x88, 124]);
        assert!(std::str::from_utf8(&frame[4..]).is_ok());
    }
}
