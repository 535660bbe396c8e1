//! JSON-RPC front for any environment.
//!
//! The way of a request: `connection` (front desk: reads, handshake) → `dispatch` (switchboard: lane, typed params)
//! → `handlers` (counters) → the environment. The way of a byte: the environment's log → `mailroom` (one follower per
//! process, fair turns) → the connection. The two share only the log.
//!
//! `session` is what survives connections, `belongings` what does not: open files, watches, searches, bodies. Only `reply` knows error codes; only `convert` knows both vocabularies.
//! Nothing here starts a process, opens a file or knows what kind of environment it serves.

mod belongings;
mod connection;
mod convert;
mod dispatch;
mod handlers;
pub mod limits;
mod mailroom;
mod reply;
mod server;
mod session;

pub use server::{BeginError, Options, Server};
