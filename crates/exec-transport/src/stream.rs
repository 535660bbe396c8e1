//! One byte stream as messages.
//!
//! ```text
//!  Receiver::next ── read half ── Decoder (websocket | lines) ──► message
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

pub(crate) mod decoder;
pub(crate) mod receiver;
pub(crate) mod send_queue;
pub(crate) mod sender;
pub(crate) mod write_half;

use std::sync::Arc;

use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio::net::TcpStream;

use crate::connect::program::Child;
use crate::connection::Connection;
use crate::limits::{Limits, UNREAD_BYTES, UNSENT_BYTES};
use crate::lines::LineDecoder;
use crate::listen::ConnectionPermit;
use crate::peer::Peer;
use crate::websocket::Role;
use crate::websocket::decoder::WebSocketDecoder;

use decoder::Decoder;
use receiver::StreamReceiver;
use send_queue::{Framing, SendQueue};
use sender::{SharedWriter, StreamSender};
use write_half::WriteHalf;

pub(crate) type ReadIo = Box<dyn AsyncRead + Send + Unpin>;
pub(crate) type WriteIo = Box<dyn WriteHalf>;

/// A resource that is released when the connection ends.
#[derive(Debug)]
pub(crate) enum HeldResource {
    Nothing,
    /// One of the connections that a listener allows.
    Permit(#[expect(dead_code, reason = "held for its drop, which frees the place")] ConnectionPermit),
    Child(Box<Child>),
}

/// Bytes leave at once, and the kernel takes no more of them than it can send soon.
pub(crate) fn set_low_latency(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    // Within a machine, whatever is sent is received at once, and lies there until it is read: otherwise megabytes of a
    // flood would stand before an echo. Between machines the kernel must hold what is under way, and finds out for
    // itself how much that is.
    if stream.peer_addr()?.ip().to_canonical().is_loopback() {
        socket.set_recv_buffer_size(UNREAD_BYTES)?;
    }
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)
}

/// Makes a connection of a byte stream, some of which may have been read already.
pub(crate) fn open(
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl WriteHalf + 'static,
    (framing, already_read): (Framing, Bytes),
    limits: &Limits,
    held: HeldResource,
    peer: Peer,
) -> Connection {
    let decoder: Box<dyn Decoder> = match &framing {
        Framing::WebSocket(role) => Box::new(WebSocketDecoder::new(
            matches!(role, Role::Server),
            limits.frame_in_bytes,
            limits.message_in_bytes,
            &already_read,
        )),
        Framing::Lines => Box::new(LineDecoder::new(limits.message_in_bytes, &already_read)),
    };
    let pings = matches!(framing, Framing::WebSocket(_));
    let queue = SendQueue::new(framing, limits.frame_out_bytes);
    let shared = Arc::new(SharedWriter::new(Box::new(write), queue, held));
    let sender = StreamSender::new(Arc::clone(&shared), limits.write_deadline);
    let receiver = StreamReceiver::new(Box::new(read), decoder, pings, shared, limits);
    Connection::over_stream(sender, receiver, peer)
}
