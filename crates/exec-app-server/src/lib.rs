//! The part of Codex's app-server protocol that concerns execution, for any environment.
//!
//! The modules in the order in which a request meets them:
//!
//! ```text
//! server        what connections share: the environment, the remote environments, the options
//! connection    one connection: reads messages, the handshake, dispatch; owns every task that it starts
//! method        the table of all methods: name, params, result, whether it is experimental
//! params        params out of their text, with Codex's words for what does not fit
//! shapes, native_path
//!               params, results and notifications as types; absolute paths, as Codex reads them
//! command       command/exec and process/spawn: params become a command of the domain, checked in Codex's order
//! sandbox       sandbox policies and permission profiles become policies of the domain
//! process_table the processes of a connection by the client's ids
//! process, stdin_queue, captured_output
//!               one process from its start to its end: output, stdin, resizing, termination
//! files, watches
//!               fs/*
//! environments  environment/*: remote environments, which the embedder knows how to connect to
//! outbox        the one task that writes to a connection
//! reply         the one file that knows which error has which code and which words
//! limits        every bound
//! ```
//!
//! Contract: what a streamed process prints arrives whole and in order, or the connection ends; a client that reads slowly
//! slows its processes down and nobody else; when a connection ends, so does every process that it started, with all that
//! those have started. The deliberate differences from Codex's app-server are in `docs/app-server.md`.
//!
//! Deliberately absent: threads, turns, models, accounts and configuration; sessions (a process lives no longer than its
//! connection); how to connect to another machine.

mod captured_output;
mod command;
mod connection;
mod environments;
mod files;
pub mod limits;
mod method;
mod native_path;
mod outbox;
mod params;
mod process;
mod process_table;
mod reply;
mod sandbox;
mod server;
mod shapes;
mod stdin_queue;
mod watches;

pub use environments::{ConnectError, ConnectTarget, ConnectionState, EnvironmentSource, RemoteEnvironment};
pub use server::{AppServer, AppServerOptions};
