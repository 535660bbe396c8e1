//! `exec-server mcp` as clients use it: the real binary, driven by raw messages and by the clients of others.
//!
//! Reading order: [`server`] (the binary, and the account it runs for), then the behaviours; [`exec_testkit::packages`]
//! installs the clients of others.

pub(crate) mod server;

mod approval;
mod claude_code;
mod clients;
mod codex_cli;
mod environments;
mod files;
mod http;
mod idle_daemon;
mod protocol;
mod sandbox;
mod survival;
