//! One byte stream as messages.
//!
//! ```text
//!  Receiver::next ── read half ── Decoding (websocket | lines) ──► message
//!       │ ping, pong, close
//!       ▼
//!  Arc<Link> ── Mutex<Writer { write half, Outbox }>
//!       ▲
//!       │ messages
//!  Sender::feed, flush, close
//! ```
//!
//! There is no task per connection: a hop costs more than a frame. The sender writes from its
//! caller's task. The receiver writes only control frames, and only while no sender waits for the
//! socket; otherwise it leaves them in the outbox, where the waiting sender takes them at the next
//! frame boundary. The lock is held for one poll of a non-blocking write, never across an await.

pub(crate) mod outbox;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod writer;

use std::sync::Arc;

use bytes::buf::Limit;
use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use crate::connect::program::Child;
use crate::limits::{IDLE_BUFFER_BYTES, KEEP_BYTES, Limits, READ_BYTES, UNSENT_BYTES};
use crate::lines::LineDecoder;
use crate::message::{CloseReason, Message};
use crate::websocket::decoder::Decoder;
use crate::websocket::frame::{Masks, Role};

use outbox::{Framing, Outbox};
use receiver::StreamReceiver;
use sender::StreamSender;
use writer::Link;

/// The half that is read.
pub(crate) type ReadIo = Box<dyn AsyncRead + Send + Unpin>;
/// The half that is written.
pub(crate) type WriteIo = Box<dyn AsyncWrite + Send + Unpin>;

/// How messages lie in the bytes, and which end we are.
pub(crate) enum Protocol {
    WebSocketServer { already_read: Bytes },
    WebSocketClient { already_read: Bytes },
    Lines,
}

/// What lives exactly as long as the connection does.
#[derive(Debug)]
pub(crate) enum Holding {
    Nothing,
    /// A place among the connections of a listener.
    Slot(#[expect(dead_code, reason = "held for its drop, which frees the place")] OwnedSemaphorePermit),
    /// The program at the other end.
    Child(Box<Child>),
}

/// What is written leaves at once, and no more is taken than leaves soon.
pub(crate) fn be_prompt(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES)
}

/// Makes the two halves of a connection.
pub(crate) fn open(
    read: ReadIo,
    write: WriteIo,
    protocol: Protocol,
    limits: &Limits,
    holding: Holding,
) -> (StreamSender, StreamReceiver) {
    let websocket = |peer_masks, already_read: &[u8]| {
        Decoding::WebSocket(Decoder::new(peer_masks, limits.frame_in_bytes, limits.message_in_bytes, already_read))
    };
    let (decoding, framing) = match &protocol {
        Protocol::WebSocketServer { already_read } => (websocket(true, already_read), Framing::WebSocket(Role::Server)),
        Protocol::WebSocketClient { already_read } => {
            (websocket(false, already_read), Framing::WebSocket(Role::Client(Masks::default())))
        }
        Protocol::Lines => (Decoding::Lines(LineDecoder::new(limits.message_in_bytes)), Framing::Lines),
    };
    let link = Arc::new(Link::new(write, Outbox::new(framing, limits.frame_out_bytes), holding));
    let sender = StreamSender::new(Arc::clone(&link), limits.write_deadline);
    (sender, StreamReceiver::new(read, decoding, link, limits))
}

/// What a decoder finds.
#[derive(Debug)]
pub(crate) enum Incoming {
    Message(Message),
    Ping(Bytes),
    Pong,
    Close(CloseReason),
}

/// The decoder of either protocol; each verb is theirs.
#[derive(Debug)]
pub(crate) enum Decoding {
    WebSocket(Decoder),
    Lines(LineDecoder),
}

impl Decoding {
    fn is_websocket(&self) -> bool {
        matches!(self, Self::WebSocket(_))
    }

    fn space(&mut self) -> Limit<&mut BytesMut> {
        match self {
            Self::WebSocket(decoder) => decoder.space(),
            Self::Lines(decoder) => decoder.space(),
        }
    }

    fn filled(&mut self, read_bytes: usize) {
        match self {
            Self::WebSocket(decoder) => decoder.filled(read_bytes),
            Self::Lines(decoder) => decoder.filled(read_bytes),
        }
    }

    fn rest(&mut self) {
        match self {
            Self::WebSocket(decoder) => decoder.rest(),
            Self::Lines(decoder) => decoder.rest(),
        }
    }

    fn discard(&mut self) {
        match self {
            Self::WebSocket(decoder) => decoder.discard(),
            Self::Lines(decoder) => decoder.discard(),
        }
    }

    fn next(&mut self) -> Result<Option<Incoming>, CloseReason> {
        match self {
            Self::WebSocket(decoder) => decoder.next(),
            Self::Lines(decoder) => decoder.next(),
        }
    }
}

/// Bytes that were read and not yet understood. It holds 4 KiB while little happens, asks for up
/// to 64 KiB while reads come back full, and gives everything back when nothing waits in it.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    pub(crate) bytes: BytesMut,
    ask_bytes: usize,
}

impl ReadBuffer {
    pub(crate) fn new(already_read: &[u8]) -> Self {
        Self { bytes: BytesMut::from(already_read), ask_bytes: IDLE_BUFFER_BYTES }
    }

    /// Room for the next read, at least `wish_bytes` of it.
    pub(crate) fn space(&mut self, wish_bytes: usize) -> Limit<&mut BytesMut> {
        self.bytes.reserve(self.ask_bytes.max(wish_bytes));
        let room = self.bytes.capacity() - self.bytes.len();
        (&mut self.bytes).limit(room)
    }

    pub(crate) fn filled(&mut self, read_bytes: usize) {
        if read_bytes >= self.ask_bytes {
            self.ask_bytes = (self.ask_bytes * 2).min(READ_BYTES);
        } else if read_bytes < self.ask_bytes / 4 {
            self.ask_bytes = (self.ask_bytes / 2).max(IDLE_BUFFER_BYTES);
        }
    }

    pub(crate) fn rest(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > IDLE_BUFFER_BYTES {
            self.bytes = BytesMut::new();
        }
    }

    /// The first `count` bytes. Small ones are copied out, lest a short message pin a long
    /// buffer; large ones keep the buffer, and what follows them moves to a new one.
    pub(crate) fn take(&mut self, count: usize) -> Bytes {
        if count < KEEP_BYTES {
            let taken = Bytes::copy_from_slice(&self.bytes[..count]);
            bytes::Buf::advance(&mut self.bytes, count);
            return taken;
        }
        let taken = self.bytes.split_to(count).freeze();
        if self.bytes.len() <= IDLE_BUFFER_BYTES {
            self.bytes = BytesMut::from(&self.bytes[..]);
        }
        taken
    }
}
