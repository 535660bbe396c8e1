//! The counters: one file per family, one function per method.
//!
//! A counter gets typed params and a session, talks to the environment, and gives a typed result. It knows no JSON, no
//! codes and no socket.

pub(crate) mod discovery;
pub(crate) mod environment;
pub(crate) mod fs;
pub(crate) mod http;
pub(crate) mod process;
pub(crate) mod session;
