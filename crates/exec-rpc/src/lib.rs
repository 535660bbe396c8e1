//! JSON-RPC front for any environment.
//!
//! The way of a request:
//!
//! 1. `server`: an environment, its sessions, and the connections that come and go; `workers`: the threads that serve them;
//! 2. `connection`: the task of one connection reads messages, does the handshake, and starts a task for each request;
//! 3. [`ceiling`]: what the server and the token of a connection permit; `roles`: what an observer may call;
//! 4. `dispatch`: finds the handler of the method, gives it typed params, sends its response; `routing`: which environment
//!    the request is for, if there are several;
//! 5. `handlers`: one function per method, from the wire's verbs to the environment's;
//! 6. `convert`, `reply`: shapes of the wire become values of the domain and back; errors become codes and messages.
//!
//! The way of a byte: the environment's log → `writer`, the one task that writes to a connection, with a follower for
//! each process → the transport. The two ways share only the log.
//!
//! The other way round, `network` asks the client what the proxies of its processes leave open, and tells it what was
//! decided.
//!
//! What lives longer than a request:
//!
//! - `session` is what survives connections: processes, and the cache of responses;
//! - `resources` is what ends with a connection: open files, watches, searches, HTTP bodies;
//! - `reservations` keeps the ids that clients choose, for both;
//! - `running` waits for processes to exit, for a ceiling that counts them and for the [`audit`], whose file is not known
//!   here.
//!
//! [`limits`] has every bound. Nothing here starts a process, opens a file or knows what kind of environment it serves. Only
//! `reply` knows error codes; only `convert` knows both vocabularies.

pub mod audit;
pub mod ceiling;
mod connection;
mod convert;
mod dispatch;
mod handlers;
pub mod limits;
mod network;
mod reply;
mod reservations;
mod resources;
mod roles;
mod routing;
mod running;
mod server;
mod session;
mod workers;
mod writer;

pub use ceiling::Ceiling;
pub use server::{Server, ServerOptions, ServerStartError};
pub use workers::Workers;
