//! The binary as its users meet it: started for real, with real shells, pipes and terminals.
//!
//! One file per subject. The child is a shell or a small tool everywhere, because how a shell sees us is the subject.

mod audit;
mod background;
mod cp;
mod detached;
mod env_command;
mod exit_codes;
mod first_hour;
mod fs;
mod gateway;
mod help;
mod hostile_server;
mod json;
mod json_lines;
mod limits;
mod observers;
mod other_users;
mod passed_sockets;
mod reconnecting;
mod remote;
mod sequences;
mod server;
mod signals;
mod stdio_server;
mod streams;
mod support;
mod terminal;
mod tls;
mod tokens;
mod variables;
