//! Several environments behind one, each known by its id.
//!
//! ```text
//! router        the environments there are, by id: this machine, and servers far away      (EnvironmentRegistry)
//! environment   one far server as an environment: every call connects first, if it must
//! server_connection  the connection to it: made when it is first used, made again when it broke; since when it is away
//! session_file  which session a server has for us, so that the next router finds its processes
//! limits        every bound, with its unit and its reason
//! ```
//!
//! Contract: what one server does or does not do is nobody else's business. Its calls fail while it is away, and say for how
//! long it has been; what runs there goes on, and is found again when it is back.
//!
//! Deliberately absent: protocols of fronts, sessions of clients. A front that serves a router keeps its own.

#![warn(missing_docs)]

mod environment;
pub mod limits;
mod router;
mod server_connection;
mod session_file;

pub use router::{ConnectorEntry, Router, RouterOptions};
pub use server_connection::{Connector, LinkedEnvironment};
