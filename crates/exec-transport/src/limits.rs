//! Every bound of this crate: its name, its unit, its reason.
//!
//! [`Limits`] carries those that an embedder or a test may set per connection; the constants are
//! their defaults and the bounds nobody needs to move.

use std::time::Duration;

/// Largest frame payload we send. Larger messages leave as continuation frames, so that no
/// peer's frame limit (16 MiB for Codex) is met and a pong waits behind one frame at most.
pub const FRAME_OUT_BYTES: usize = 1 << 20;

/// Largest frame payload we accept; what Codex's server accepts.
pub const FRAME_IN_BYTES: usize = 16 << 20;

/// Largest message (or line) we accept; what Codex's server accepts.
pub const MESSAGE_IN_BYTES: usize = 64 << 20;

/// How often we ping, whether or not there is traffic.
pub const PING_INTERVAL: Duration = Duration::from_secs(30);

/// A peer from which nothing came for so long is gone. Three pings.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(90);

/// A write that moves no byte for so long fails; the peer does not read.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(30);

/// How long closing (close frame, shutdown, waiting for the peer's end) may take in all.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// `feed` writes through once so much is buffered: one large write is cheaper than many small
/// ones, but the peer should not wait for more.
pub const WRITE_THROUGH_BYTES: usize = 64 << 10;

/// What the kernel may hold of ours that it has not sent yet. More would gain nothing and stand before a keystroke's echo:
/// on a slow link, seconds of it.
pub(crate) const UNSENT_BYTES: u32 = 128 << 10;

/// What the kernel may hold for us that we have not read yet, of a peer on this machine: as much as it holds of a unix socket.
pub(crate) const UNREAD_BYTES: usize = 208 << 10;

/// Payloads up to this size are copied next to their header and to each other; larger ones are
/// handed to the kernel where they lie.
pub(crate) const COPY_MAX_BYTES: usize = 16 << 10;

/// What a buffer keeps while nothing happens. An idle connection costs less than 16 KiB in all.
pub(crate) const IDLE_BUFFER_BYTES: usize = 4 << 10;

/// The most one read asks for while the message it belongs to is not known to be larger.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// The most memory that a message gets before its bytes arrive, if the one before it was as long. A block of a file or a chunk
/// of a stream is then read at once, and not moved as its memory grows.
pub(crate) const KNOWN_LENGTH_BYTES: usize = 512 << 10;

/// From here on a received payload keeps the buffer it was read into instead of being copied out.
pub(crate) const KEEP_BUFFER_BYTES: usize = 4 << 10;

/// An HTTP request's head must be complete within this time; a slow one holds a slot no longer.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest head of an HTTP request or answer.
pub const HEADER_BYTES: usize = 16 << 10;

/// The whole of an HTTP exchange that is not an upgrade, the peer's reading of it included.
pub(crate) const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections at one time. Codex has no cap; 200 were seen in use.
pub const MAX_CONNECTIONS: usize = 1024;

/// Handshakes over TCP under way at one time; beyond, the oldest end. An honest one takes milliseconds, so that as many
/// would have to begin within those to end one.
pub const MAX_HANDSHAKES: usize = 512;

/// Streams that the kernel accepts for us while we are busy; it may allow fewer. What does not fit tries again only after
/// a second.
pub(crate) const ACCEPT_BACKLOG: u32 = 4096;

/// Wrong tokens that an address may send before it is slowed down.
pub const AUTH_FREE_FAILURES: u32 = 5;

/// Then its tokens are looked at this far apart: four guesses a second are no attack.
pub const AUTH_PAUSE: Duration = Duration::from_millis(250);

/// A token that would have to wait longer is refused unseen.
pub const AUTH_MAX_WAIT: Duration = Duration::from_secs(5);

/// An address that sent no wrong token for so long starts anew.
pub const AUTH_FORGET_AFTER: Duration = Duration::from_secs(60);

/// Addresses whose wrong tokens are counted; beyond, the others are counted as one.
pub(crate) const AUTH_ADDRESSES: usize = 4096;

/// Connections to a unix socket over the limit that are being answered by a 503. Further ones are dropped unanswered: each
/// costs a descriptor that nobody has set aside.
pub(crate) const MAX_REFUSALS: usize = 16;

/// How long accepting pauses when the machine is out of descriptors or memory.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time to connect, TLS and upgrade included; what Codex's client allows.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of a refusal's body is kept for the error message.
pub(crate) const REFUSAL_BODY_BYTES: usize = 4 << 10;

/// Between SIGTERM and SIGKILL of a child's process group.
pub const CHILD_GRACE: Duration = Duration::from_secs(2);

/// A child's stderr line longer than this is logged in pieces.
pub(crate) const CHILD_LOG_LINE_BYTES: usize = 8 << 10;

/// How many lines of a child's stderr are kept, to be told when it fails: a warning of ssh's fills a dozen.
pub(crate) const CHILD_LAST_LINES: usize = 24;

/// Longest line of a program that has not become a connection yet; a longer one comes in pieces.
pub(crate) const PROGRAM_LINE_BYTES: usize = 4 << 10;

/// The bounds that may be set for one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// See [`FRAME_OUT_BYTES`].
    pub frame_out_bytes: usize,
    /// See [`FRAME_IN_BYTES`].
    pub frame_in_bytes: usize,
    /// See [`MESSAGE_IN_BYTES`].
    pub message_in_bytes: usize,
    /// See [`PING_INTERVAL`].
    pub ping_interval: Duration,
    /// See [`SILENCE_LIMIT`].
    pub silence_limit: Duration,
    /// See [`WRITE_DEADLINE`].
    pub write_deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_out_bytes: FRAME_OUT_BYTES,
            frame_in_bytes: FRAME_IN_BYTES,
            message_in_bytes: MESSAGE_IN_BYTES,
            ping_interval: PING_INTERVAL,
            silence_limit: SILENCE_LIMIT,
            write_deadline: WRITE_DEADLINE,
        }
    }
}
