//! The transports as their users meet them: real sockets, real pipes, real peers. One file per
//! behaviour.

mod auth;
mod browser;
mod cost;
mod half_open;
mod keepalive;
mod memory;
mod our_client;
mod our_server;
mod program;
mod scoped_tokens;
mod stall;
mod stdio;
mod support;
mod tls;
mod unix;
mod upgrade;
mod violations;
mod who_enters;
