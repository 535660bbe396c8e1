//! The handlers: one file per family of methods, one function per method.
//!
//! A handler gets typed params and the context of its request, calls the environment, and returns a typed result. It
//! knows no JSON, no error codes and no socket.

pub(crate) mod discovery;
pub(crate) mod environment;
pub(crate) mod fs;
pub(crate) mod http;
pub(crate) mod net;
mod notifications;
pub(crate) mod process;
pub(crate) mod session;
