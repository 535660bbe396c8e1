//! Messages, and how a connection ends: [`Message`], [`Received`], [`CloseReason`], [`ConnectionEnd`].
//!
//! Deliberately absent: what a message means. Both kinds may carry JSON.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// UTF-8. Checked on receive; on send the caller guarantees it.
    Text(Bytes),
    /// Any bytes. Line transports cannot carry it.
    Binary(Bytes),
}

impl Message {
    /// The payload, whichever kind it is.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Text(bytes) | Self::Binary(bytes) => bytes,
        }
    }

    /// The message with more bytes at its end.
    pub(crate) fn followed_by(self, more: &[u8]) -> Self {
        let join = |bytes: Bytes| if more.is_empty() { bytes } else { [&bytes, more].concat().into() };
        match self {
            Self::Text(bytes) => Self::Text(join(bytes)),
            Self::Binary(bytes) => Self::Binary(join(bytes)),
        }
    }

    /// The payload, whichever kind it was.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Text(bytes) | Self::Binary(bytes) => bytes,
        }
    }
}

#[derive(Debug)]
pub enum Received {
    Message(Message),
    /// The peer broke the framing: invalid UTF-8, an oversize message, an unmasked frame. It has
    /// been told by a close frame where the transport has one; the next call returns
    /// [`Received::Closed`].
    Malformed {
        /// What was wrong, for a log.
        reason: String,
    },
    Closed(ConnectionEnd),
}

/// Why a connection ended.
#[derive(Debug)]
pub enum ConnectionEnd {
    /// The peer sent a close frame.
    ByPeer(CloseReason),
    /// The stream ended between two messages.
    EndOfStream,
    /// The peer broke the framing and was cut off with this code and reason.
    Violation(CloseReason),
    /// Nothing came from the peer for so long.
    Silent(Duration),
    /// The peer did not read for so long, and our pings and pongs could not be written.
    Stalled(Duration),
    /// The stream broke, or ended inside a message.
    Lost(std::io::Error),
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByPeer(reason) => write!(f, "the peer closed the connection: {reason}"),
            Self::EndOfStream => write!(f, "the peer ended the connection"),
            Self::Violation(reason) => write!(f, "the peer was cut off: {reason}"),
            Self::Silent(time) => write!(f, "nothing came from the peer for {time:?}"),
            Self::Stalled(time) => write!(f, "the peer read nothing for {time:?}"),
            Self::Lost(error) => write!(f, "the connection broke: {error}"),
        }
    }
}

/// Why one end closes the connection, in the terms of RFC 6455 §7.4. Transports without close frames drop it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseReason {
    /// The status code. 1005 means that the peer named none; it is never sent.
    pub code: u16,
    /// For a human. Cut to 123 bytes on the wire.
    pub reason: Cow<'static, str>,
}

impl CloseReason {
    pub const NORMAL: u16 = 1000;
    /// The server stops, or the client leaves.
    pub const GOING_AWAY: u16 = 1001;
    /// The peer broke RFC 6455.
    pub const PROTOCOL_ERROR: u16 = 1002;
    /// The close frame carried no code.
    pub const NO_STATUS: u16 = 1005;
    /// A text message was not UTF-8.
    pub const INVALID_DATA: u16 = 1007;
    /// A rule of ours was broken; also used when a session was taken over.
    pub const POLICY: u16 = 1008;
    /// A frame or message was larger than we accept.
    pub const TOO_BIG: u16 = 1009;
    pub const INTERNAL_ERROR: u16 = 1011;

    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code, reason: reason.into() }
    }

    /// 1000, without a text.
    pub fn normal() -> Self {
        Self::new(Self::NORMAL, "")
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reason.is_empty() {
            write!(f, "code {}", self.code)
        } else {
            write!(f, "{} (code {})", self.reason, self.code)
        }
    }
}
