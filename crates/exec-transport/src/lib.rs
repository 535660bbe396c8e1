//! Frames: messages in and out over WebSocket, unix socket, stdio and memory.
//!
//! A [`Connection`] is a [`Sender`], a [`Receiver`] and the name of its [`Peer`]. A [`Listener`]
//! accepts connections, [`connect`] makes them, [`memory_pair`] gives both ends at once.
//!
//! The modules in the order a byte meets them, coming in:
//!
//! ```text
//! listen   bind, accept, the HTTP front door (Origin, Host, routes, auth), the socket file
//! connect  URLs, TLS, the upgrade as a client, a program as a peer
//! stream   one byte stream as messages: receiver (reads, keeps alive), sender, shared writer
//! websocket / lines   the two ways to find messages in bytes; pure, no I/O
//! ```
//!
//! Contract: reading never waits for writing; a frame is never torn, whatever future is dropped;
//! every buffer has a bound (see [`limits`]); a peer that stalls or falls silent is noticed.
//!
//! Deliberately absent: JSON, methods, sessions. This crate does not know what a message says.

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
mod peer;
mod stdio;
mod stream;
mod websocket;

pub use connect::{ConnectError, ConnectOptions, ConnectUrl, ConnectUrlError, Program, Target, WebSocketUrl, connect};
pub use connection::{Connection, Receiver, SendError, Sender};
pub use limits::Limits;
pub use listen::{
    AcceptError, Auth, AuthError, AuthMode, AuthSettings, BindError, ListenOptions, ListenUrl, ListenUrlError, Listener,
};
pub use memory::memory_pair;
pub use message::{CloseReason, ConnectionEnd, Message, Received};
pub use peer::{Peer, PeerKind};
