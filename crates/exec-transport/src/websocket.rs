//! RFC 6455 as pure code: frames out ([`frame`]), messages in ([`decoder`]), the opening
//! handshake's arithmetic ([`handshake`]).
//!
//! Written by hand rather than taken from tungstenite, for three properties: an idle connection
//! holds 4 KiB and not 256, a large payload is copied neither on the way in nor out, and reading and writing
//! share no lock. The tests use tungstenite as the peer, in both roles.
//!
//! Deliberately absent: I/O, timers, extensions and subprotocols (refused by never offering any).

pub(crate) mod decoder;
pub(crate) mod frame;
pub(crate) mod handshake;
