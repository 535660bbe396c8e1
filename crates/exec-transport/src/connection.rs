//! A connection as its users see it: [`Sender`], [`Receiver`], [`Peer`].
//!
//! The halves may live in two tasks. Nothing runs unless one of them is polled; pings are
//! answered and sent, and silence is noticed, while somebody waits in [`Receiver::next`].

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::memory::{MemoryReceiver, MemorySender};
use crate::message::{CloseReason, Message, Received};
use crate::peer::Peer;
use crate::stream::receiver::StreamReceiver;
use crate::stream::sender::StreamSender;
use crate::token::Grant;

#[derive(Debug)]
pub struct Connection {
    pub sender: Sender,
    pub receiver: Receiver,
    pub peer: Peer,
    /// What the peer's token says of it. Nothing, if no token was asked for.
    pub identity: Identity,
}

/// Whom a token names, how long it counts, and what for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// The `sub` of a signed token, empty if it has none; `None` without a signed token.
    pub subject: Option<String>,
    /// From then on the token is worth nothing, and neither should be the connection.
    pub expires: Option<SystemTime>,
    /// What the connection may do.
    pub grant: Grant,
}

/// Sends messages. Dropping it ends our direction of the stream; [`Sender::close`] does it in good order.
#[derive(Debug)]
pub struct Sender(SenderKind);

#[derive(Debug)]
enum SenderKind {
    Stream(StreamSender),
    Memory(MemorySender),
}

#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The connection was closed, by either end, before this call.
    #[error("the connection is closed")]
    Closed,
    /// The peer took no byte for the whole write deadline.
    #[error("the peer read nothing for {after:?}")]
    Stalled { after: Duration },
    /// A binary message on a transport of text lines. Nothing was sent; the connection stays open.
    #[error("this transport carries text lines only, not binary messages")]
    BinaryUnsupported,
    #[error("cannot write to the peer: {source}")]
    Write { source: std::io::Error },
}

impl Sender {
    /// Accepts a message; writes it only once some 64 KiB wait. Dropping the future never tears a
    /// frame: either the message was not accepted, or a later call sends it.
    ///
    /// Text must be UTF-8 and, on line transports, free of line ends.
    pub async fn feed(&mut self, message: Message) -> Result<(), SendError> {
        self.feed_with_body(message, Bytes::new()).await
    }

    /// The same for a message that goes on with `body`. A long body is handed to the kernel where it lies.
    pub async fn feed_with_body(&mut self, message: Message, body: Bytes) -> Result<(), SendError> {
        match &mut self.0 {
            SenderKind::Stream(sender) => sender.feed_with_body(message, body).await,
            SenderKind::Memory(sender) => sender.feed(message.followed_by(&body)).await,
        }
    }

    /// Writes everything that was fed. Fails when no byte moves for the write deadline.
    pub async fn flush(&mut self) -> Result<(), SendError> {
        match &mut self.0 {
            SenderKind::Stream(sender) => sender.drain().await,
            SenderKind::Memory(_) => Ok(()),
        }
    }

    /// Writes everything that was fed, and then waits until the kernel has room for a message of ordinary size, where it can
    /// be asked. Whoever makes a message only then does not hold it while a slow peer reads others.
    pub async fn wait_for_room(&mut self) -> Result<(), SendError> {
        match &mut self.0 {
            SenderKind::Stream(sender) => sender.wait_for_room().await,
            SenderKind::Memory(_) => Ok(()),
        }
    }

    /// Sends what was fed, then the close frame where the transport has one, then ends the
    /// stream; all within [`CLOSE_DEADLINE`](crate::limits::CLOSE_DEADLINE). A program at the
    /// other end is terminated and reaped, which may take
    /// [`CHILD_GRACE`](crate::limits::CHILD_GRACE) more.
    ///
    /// To be sure that the peer sees the reason, call [`Receiver::next`] until it reports the end: a socket that is
    /// closed while unread bytes wait in it is reset, and the peer may lose what we sent.
    pub async fn close(self, reason: CloseReason) {
        match self.0 {
            SenderKind::Stream(sender) => sender.close(reason).await,
            SenderKind::Memory(sender) => sender.close(reason).await,
        }
    }

    /// Whether [`Message::Binary`] can be sent.
    pub fn carries_binary(&self) -> bool {
        match &self.0 {
            SenderKind::Stream(sender) => sender.carries_binary(),
            SenderKind::Memory(_) => true,
        }
    }
}

#[derive(Debug)]
pub struct Receiver(ReceiverKind);

#[derive(Debug)]
enum ReceiverKind {
    Stream(Box<StreamReceiver>),
    Memory(MemoryReceiver),
}

impl Receiver {
    /// The next message, or the end. Its future may be dropped at any time without loss. After
    /// [`Received::Closed`], further calls return `Closed` again.
    pub async fn next(&mut self) -> Received {
        match &mut self.0 {
            ReceiverKind::Stream(receiver) => receiver.next().await,
            ReceiverKind::Memory(receiver) => receiver.next().await,
        }
    }
}

impl Connection {
    pub(crate) fn over_stream(sender: StreamSender, receiver: StreamReceiver, peer: Peer) -> Self {
        Self {
            sender: Sender(SenderKind::Stream(sender)),
            receiver: Receiver(ReceiverKind::Stream(Box::new(receiver))),
            peer,
            identity: Identity::default(),
        }
    }

    pub(crate) fn over_memory(sender: MemorySender, receiver: MemoryReceiver) -> Self {
        Self {
            sender: Sender(SenderKind::Memory(sender)),
            receiver: Receiver(ReceiverKind::Memory(receiver)),
            peer: Peer::Memory,
            identity: Identity::default(),
        }
    }
}
