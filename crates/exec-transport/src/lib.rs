//! Frames: messages in and out over WebSocket (with TLS or without), unix socket, stdio and memory.
//!
//! A [`Connection`] is a [`Sender`], a [`Receiver`] and the name of its [`Peer`]. A [`Listener`]
//! accepts connections, [`connect`] makes them, [`memory_pair`] returns both ends of one.
//!
//! The modules in the order in which an incoming byte meets them:
//!
//! ```text
//! listen       bind, accept, the HTTP upgrade (Origin, Host, routes, auth and its throttle), the socket file
//! connect      URLs, TLS, the upgrade as a client, a program as the peer
//! token        how tokens are made, what they permit, and the files that keep them
//! tls          the certificates of both sides, and which are trusted; own_names: what this machine is called
//! stdio        our own stdin and stdout as a byte stream
//! stream       one byte stream as messages: receiver (reads, pings), sender with the write half that both share, its
//!              send queue
//! websocket, lines
//!              how messages are framed in bytes; pure, no I/O
//! keepalive    when to ping, and when a silent peer is gone; pure
//! memory       two channels instead of a byte stream
//! connection   what callers hold: sender, receiver, peer; message and peer are its vocabulary
//! limits       every bound
//! ```
//!
//! Contract: reading never waits for writing; a frame is never torn, whatever future is dropped;
//! every buffer has a bound (see [`limits`]); a peer that stalls or falls silent is noticed.
//!
//! Deliberately absent: methods, sessions. This crate does not look into messages; which methods a token permits is only
//! carried to whoever does.

mod connect;
mod connection;
#[cfg(fuzzing)]
pub mod fuzzing;
mod keepalive;
pub mod limits;
mod lines;
mod listen;
mod memory;
mod message;
mod own_names;
mod peer;
mod stdio;
mod stream;
mod tls;
pub mod token;
mod websocket;

pub use connect::{
    ConnectError, ConnectOptions, ConnectUrl, ConnectUrlError, Program, ProgramEnd, ProgramGroup, ProgramLines,
    StartedProgram, Target, WebSocketUrl, connect,
};
pub use connection::{Connection, Identity, Receiver, SendError, Sender};
pub use limits::Limits;
pub use listen::{
    AcceptError, Auth, AuthError, AuthMode, AuthSettings, BindError, ConnectionBudget, HttpPaths, ListenOptions,
    ListenUrl, ListenUrlError, Listener, PassedSocket, PassedSocketError, PeerCheck, PendingConnection, SharedRoom,
};
pub use memory::memory_pair;
pub use message::{CloseReason, ConnectionEnd, Message, Received};
pub use peer::{Peer, PeerKind};
pub use tls::{
    CertificateSource, ClientCertificate, ClientTls, Fingerprint, FingerprintError, ServerTls, ServerTlsOptions,
    TlsError, TlsOptions, TrustedServers,
};
pub use token::Grant;
