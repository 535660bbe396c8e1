//! One byte stream as messages.
//!
//! ```text
//!  Receiver::next ── read half ── StreamDecoder (websocket | lines) ──► message
//!       │ ping, pong, close
//!       ▼
//!  Arc<SharedWriter> ── Mutex<FrameWriter { write half, SendQueue }>
//!       ▲
//!       │ messages
//!  Sender::feed, flush, close
//! ```
//!
//! There is no task per connection, because waking a task costs more than writing a frame. The sender writes from its
//! caller's task. The receiver writes only control frames, and only while no sender waits for the
//! socket; otherwise it leaves them in the queue, where the waiting sender takes them at the next
//! frame boundary. The lock is held for one poll of a non-blocking write, never across an await.

pub(crate) mod receiver;
pub(crate) mod send_queue;
pub(crate) mod sender;
pub(crate) mod writer;

use std::sync::Arc;

use bytes::buf::Limit;
use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use crate::connect::program::Child;
use crate::limits::{IDLE_BUFFER_BYTES, KEEP_BUFFER_BYTES, Limits, READ_BYTES, UNSENT_BYTES};
use crate::lines::LineDecoder;
use crate::message::{CloseReason, Message};
use crate::websocket::decoder::Decoder;
use crate::websocket::frame::{MaskKeys, Role};

use receiver::StreamReceiver;
use send_queue::{Framing, SendQueue};
use sender::StreamSender;
use writer::SharedWriter;

pub(crate) type ReadIo = Box<dyn AsyncRead + Send + Unpin>;
pub(crate) type WriteIo = Box<dyn AsyncWrite + Send + Unpin>;

/// How messages are framed, and which end we are.
pub(crate) enum Protocol {
    WebSocketServer { already_read: Bytes },
    WebSocketClient { already_read: Bytes },
    Lines,
}

/// A resource that is released when the connection ends.
#[derive(Debug)]
pub(crate) enum HeldResource {
    Nothing,
    /// One of the connections that a listener allows.
    Permit(#[expect(dead_code, reason = "held for its drop, which frees the place")] OwnedSemaphorePermit),
    Child(Box<Child>),
}

/// Bytes leave at once, and the kernel takes no more of them than it can send soon.
pub(crate) fn set_low_latency(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES)
}

pub(crate) fn open(
    read: ReadIo,
    write: WriteIo,
    protocol: Protocol,
    limits: &Limits,
    held: HeldResource,
) -> (StreamSender, StreamReceiver) {
    let websocket = |peer_masks, already_read: &[u8]| {
        StreamDecoder::WebSocket(Decoder::new(peer_masks, limits.frame_in_bytes, limits.message_in_bytes, already_read))
    };
    let (decoder, framing) = match &protocol {
        Protocol::WebSocketServer { already_read } => (websocket(true, already_read), Framing::WebSocket(Role::Server)),
        Protocol::WebSocketClient { already_read } => {
            (websocket(false, already_read), Framing::WebSocket(Role::Client(MaskKeys::default())))
        }
        Protocol::Lines => (StreamDecoder::Lines(LineDecoder::new(limits.message_in_bytes)), Framing::Lines),
    };
    let shared = Arc::new(SharedWriter::new(write, SendQueue::new(framing, limits.frame_out_bytes), held));
    let sender = StreamSender::new(Arc::clone(&shared), limits.write_deadline);
    (sender, StreamReceiver::new(read, decoder, shared, limits))
}

#[derive(Debug)]
pub(crate) enum DecoderEvent {
    Message(Message),
    Ping(Bytes),
    Pong,
    Close(CloseReason),
}

/// The decoder of either protocol; its methods are theirs.
#[derive(Debug)]
pub(crate) enum StreamDecoder {
    WebSocket(Decoder),
    Lines(LineDecoder),
}

impl StreamDecoder {
    fn is_websocket(&self) -> bool {
        matches!(self, Self::WebSocket(_))
    }

    pub(crate) fn space(&mut self) -> Limit<&mut BytesMut> {
        match self {
            Self::WebSocket(decoder) => decoder.space(),
            Self::Lines(decoder) => decoder.space(),
        }
    }

    pub(crate) fn filled(&mut self, read_bytes: usize) {
        match self {
            Self::WebSocket(decoder) => decoder.filled(read_bytes),
            Self::Lines(decoder) => decoder.filled(read_bytes),
        }
    }

    pub(crate) fn release_idle(&mut self) {
        match self {
            Self::WebSocket(decoder) => decoder.release_idle(),
            Self::Lines(decoder) => decoder.release_idle(),
        }
    }

    fn discard(&mut self) {
        match self {
            Self::WebSocket(decoder) => decoder.discard(),
            Self::Lines(decoder) => decoder.discard(),
        }
    }

    pub(crate) fn next(&mut self) -> Result<Option<DecoderEvent>, CloseReason> {
        match self {
            Self::WebSocket(decoder) => decoder.next(),
            Self::Lines(decoder) => decoder.next(),
        }
    }
}

/// Bytes that were read and not yet decoded. It holds 4 KiB while little is read, grows to 64 KiB while reads come back
/// full, and is freed when it is empty.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    pub(crate) bytes: BytesMut,
    read_size: usize,
}

impl ReadBuffer {
    pub(crate) fn new(already_read: &[u8]) -> Self {
        Self { bytes: BytesMut::from(already_read), read_size: IDLE_BUFFER_BYTES }
    }

    /// Space for the next read, at least `min_bytes`.
    pub(crate) fn space(&mut self, min_bytes: usize) -> Limit<&mut BytesMut> {
        self.bytes.reserve(self.read_size.max(min_bytes));
        let room = self.bytes.capacity() - self.bytes.len();
        (&mut self.bytes).limit(room)
    }

    pub(crate) fn filled(&mut self, read_bytes: usize) {
        if read_bytes >= self.read_size {
            self.read_size = (self.read_size * 2).min(READ_BYTES);
        } else if read_bytes < self.read_size / 4 {
            self.read_size = (self.read_size / 2).max(IDLE_BUFFER_BYTES);
        }
    }

    pub(crate) fn release_idle(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > IDLE_BUFFER_BYTES {
            self.bytes = BytesMut::new();
        }
    }

    /// The first `count` bytes. Few bytes are copied out, so that a short message does not keep a long buffer
    /// alive; many keep the buffer, and what follows them moves to a new one.
    pub(crate) fn take(&mut self, count: usize) -> Bytes {
        if count < KEEP_BUFFER_BYTES {
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
