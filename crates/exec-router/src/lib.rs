//! Several environments behind one, each known by its id.
//!
//! ```text
//! router        the environments there are, by id: this machine, and servers far away      (EnvironmentRegistry)
//! environment   one far server as an environment: every call connects first, if it must
//! place         the connection to it: made when it is first used, made again when it broke; since when it is away
//! session_file  which session a place has for us, so that the next router finds its processes
//! limits        every bound, with its unit and its reason
//! ```
//!
//! Contract: what one place does or does not do is nobody else's business. Its calls fail while it is away, and say for how
//! long it has been; what runs there goes on, and is found again when it is back.
//!
//! Deliberately absent: protocols of fronts, sessions of clients. A front that serves a router keeps its own.

#![warn(missing_docs)]

mod environment;
pub mod limits;
mod place;
mod router;
mod session_file;

pub use place::{Connector, LinkedEnvironment};
pub use router::{ConnectedPlace, Router, RouterOptions};
