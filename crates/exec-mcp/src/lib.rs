//! The MCP front: the tools of exec-tools, and tasks that are processes.
//!
//! In the order in which a request meets them:
//!
//! - [`serve_stdio`], [`HttpServer`]: the transports; rmcp speaks the protocol versions 2025-06-18 to 2026-07-28;
//! - [`McpServer`]: what the server is, and where requests go;
//! - `arguments`: what a model has sent, read as the schema asks for it;
//! - `tools`: the table of tools, one file a family; `call`: what a tool needs of its request;
//! - `approval`: questions to a person, before something is done;
//! - `tasks`: commands that go on after their call, for clients that know the Tasks extension;
//! - `resources`: logs by URI.
//!
//! Nothing here remembers a process: tasks and sessions are found by listing the environment's processes, so they outlive
//! the client, this server and the daemon. Deliberately absent: how environments are reached.

#![warn(missing_docs)]

mod approval;
mod arguments;
mod call;
mod http;
mod http_sessions;
mod limits;
mod resources;
mod server;
mod stdio;
mod tasks;
mod tools;

pub use approval::Ask;
pub use http::{HttpOptions, HttpServer};
pub use server::{McpOptions, McpServer, serve_stdio};
