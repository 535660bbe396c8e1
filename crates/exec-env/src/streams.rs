//! Connections that the environment's machine makes and accepts: TCP and unix sockets, as streams of bytes.
//!
//! A stream has two directions that end apart: [`ByteStream::finish`] ends ours, an empty [`ByteStream::read`] is the end of
//! theirs. Nothing is read ahead of the caller but a bounded window, and a write waits when the other end does not read. A
//! stream that is dropped is closed; [`ByteStream::reset`] makes the other end see an error instead of an end.
//!
//! A remote stream outlives a connection that breaks and is resumed. Where it cannot (the server was killed, the session is
//! gone), reading and writing fail with [`StreamReason::Lost`].
//!
//! Deliberately absent: datagrams, raw addresses of sockets, TLS. What flows is the business of the two ends.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;

use crate::BoxFuture;
use crate::process::Unreachable;

/// Making and accepting connections.
pub trait Streams: Send + Sync {
    /// Connects from the machine to an address that it can reach.
    fn connect(&self, to: StreamAddress) -> BoxFuture<'_, Result<Box<dyn ByteStream>, StreamError>>;

    /// Listens on the machine.
    fn listen(&self, at: StreamAddress) -> BoxFuture<'_, Result<Box<dyn StreamListener>, StreamError>>;
}

/// Where to connect to, or to listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "fields of variants: their names say it")]
pub enum StreamAddress {
    /// A name or an address, and a port. To listen on port 0 is to listen on any free one.
    Tcp { host: String, port: u16 },
    /// A socket in the file system.
    Unix { path: PathBuf },
}

impl StreamAddress {
    /// An address of the machine's loopback.
    pub fn loopback(port: u16) -> Self {
        Self::Tcp { host: "127.0.0.1".to_owned(), port }
    }
}

/// As people write it: `localhost:3000`, `[::1]:3000`, `/run/x.sock`.
impl fmt::Display for StreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { path } => write!(f, "{}", path.display()),
        }
    }
}

/// A connection. Reading and writing may go on at the same time; of each, one at a time.
pub trait ByteStream: Send + Sync {
    /// The next bytes, at most [`STREAM_CHUNK_BYTES`]; empty when the other end has finished. Dropping the future loses
    /// nothing.
    fn read(&self) -> BoxFuture<'_, Result<Bytes, StreamError>>;

    /// Writes all of `bytes`. It may return before they have arrived; an error may be about earlier ones. When the future is
    /// dropped, nobody knows how many were written.
    fn write(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), StreamError>>;

    /// Ends our direction, behind all that was written. The other one goes on.
    fn finish(&self) -> BoxFuture<'_, Result<(), StreamError>>;

    /// When this is dropped, the other end is to see an error and not an end.
    fn reset(&self);
}

/// Most bytes that one read returns.
pub const STREAM_CHUNK_BYTES: usize = 256 << 10;

/// A socket that listens. Dropping it ends that, and removes the file of a unix socket.
pub trait StreamListener: Send + Sync {
    /// Where it listens, with the port that it got.
    fn address(&self) -> &StreamAddress;

    /// The next connection. Dropping the future loses none.
    fn accept(&self) -> BoxFuture<'_, Result<Accepted, StreamError>>;
}

/// A connection that was accepted.
pub struct Accepted {
    /// The connection.
    pub stream: Box<dyn ByteStream>,
    /// Who connected, for people; `None` for a unix socket.
    pub peer: Option<String>,
}

/// What was being done when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the verbs say it")]
pub enum StreamVerb {
    Connect,
    Listen,
    Accept,
    Read,
    Write,
}

impl StreamVerb {
    fn words(self) -> &'static str {
        match self {
            Self::Connect => "cannot connect to",
            Self::Listen => "cannot listen at",
            Self::Accept => "cannot accept at",
            Self::Read => "cannot read from",
            Self::Write => "cannot write to",
        }
    }
}

/// Why a verb over a stream failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {address}: {reason}", verb.words())]
pub struct StreamError {
    /// What was being done.
    pub verb: StreamVerb,
    /// The address that the stream was made with.
    pub address: StreamAddress,
    /// Why.
    pub reason: StreamReason,
}

impl StreamError {
    /// An error of a verb over the stream at this address.
    pub fn new(verb: StreamVerb, address: &StreamAddress, reason: StreamReason) -> Self {
        Self { verb, address: address.clone(), reason }
    }
}

/// Why a stream failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields of variants: their names say it")]
pub enum StreamReason {
    /// The kernel's number.
    Os(i32),
    /// Nobody knows the name.
    UnknownHost { why: String },
    /// The path is no socket's, or is longer than one may be.
    BadPath { why: String },
    /// As many as may be are open.
    TooMany { why: String },
    /// The stream or the listener is gone: its server was restarted, or its session has ended.
    Lost { why: String },
    /// The ceiling of the server, or the token, does not permit it.
    Forbidden { rule: String, why: String },
    /// The server has no streams.
    Unsupported,
    /// The machine cannot be reached.
    Unreachable(Unreachable),
}

const EACCES: i32 = 13;
const EADDRINUSE: i32 = 98;
const EADDRNOTAVAIL: i32 = 99;

impl StreamReason {
    /// The error that says that the other end has reset the connection.
    pub const RESET: Self = Self::Os(104);

    /// How it is called on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Os(_) => "streamFailed",
            Self::UnknownHost { .. } => "unknownHost",
            Self::BadPath { .. } => "badSocketPath",
            Self::TooMany { .. } => "tooManyStreams",
            Self::Lost { .. } => "unknownStream",
            Self::Forbidden { .. } => "forbidden",
            Self::Unsupported => "unsupported",
            Self::Unreachable(_) => "unreachable",
        }
    }

    /// The reason of that name; `None` if there is none.
    pub fn from_name(name: &str, errno: Option<i32>, why: &str) -> Option<Self> {
        let why = why.to_owned();
        Some(match name {
            "streamFailed" => Self::Os(errno?),
            "unknownHost" => Self::UnknownHost { why },
            "badSocketPath" => Self::BadPath { why },
            "tooManyStreams" => Self::TooMany { why },
            "unknownStream" => Self::Lost { why },
            _ => return None,
        })
    }

    /// What the name and the number do not say.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::UnknownHost { why } | Self::BadPath { why } | Self::TooMany { why } | Self::Lost { why } => Some(why),
            Self::Forbidden { why, .. } => Some(why),
            Self::Os(_) | Self::Unsupported | Self::Unreachable(_) => None,
        }
    }
}

impl fmt::Display for StreamReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(errno) => {
                let text = std::io::Error::from_raw_os_error(*errno).to_string();
                let words = text.split(" (os error").next().unwrap_or_default();
                match *errno {
                    EADDRINUSE => {
                        write!(f, "the address is in use: end what listens there, or choose another (port 0 takes any)")
                    }
                    EADDRNOTAVAIL => {
                        write!(f, "the machine has no such address: listen at one of its own, such as 127.0.0.1")
                    }
                    EACCES => write!(
                        f,
                        "permission denied: ports below 1024 are for root, and the folder of a socket must be yours"
                    ),
                    _ => write!(f, "{}", words.to_lowercase()),
                }
            }
            Self::UnknownHost { why } => write!(f, "the name is not known there: {why}"),
            Self::BadPath { why } | Self::TooMany { why } | Self::Lost { why } | Self::Forbidden { why, .. } => {
                f.write_str(why)
            }
            Self::Unsupported => f.write_str("this server has no port forwarding: it needs a newer exec-server"),
            Self::Unreachable(unreachable) => unreachable.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_as_people_write_them() {
        let tcp = |host: &str| StreamAddress::Tcp { host: host.to_owned(), port: 80 }.to_string();
        assert_eq!([tcp("localhost"), tcp("::1")], ["localhost:80", "[::1]:80"]);
        assert_eq!(StreamAddress::Unix { path: "/run/x".into() }.to_string(), "/run/x");
    }

    #[test]
    fn a_reason_comes_back_by_its_name() {
        for reason in [
            StreamReason::RESET,
            StreamReason::UnknownHost { why: "x".to_owned() },
            StreamReason::BadPath { why: "x".to_owned() },
            StreamReason::TooMany { why: "x".to_owned() },
            StreamReason::Lost { why: "x".to_owned() },
        ] {
            let errno = if reason == StreamReason::RESET { Some(104) } else { None };
            assert_eq!(StreamReason::from_name(reason.name(), errno, "x"), Some(reason));
        }
    }
}
