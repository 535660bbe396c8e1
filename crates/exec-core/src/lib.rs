//! Pure rules and vocabulary of exec-server.
//!
//! Everything here is told facts (and the time) and answers with values or effects. Nothing here waits, reads a
//! clock, touches a file, serialises or knows that connections exist; `cargo xtask tidy` keeps it so.
//!
//! Reading order: what is asked ([`command`]), what comes out ([`log`], [`exit`]), how a process lives and ends
//! ([`life`], [`ending`]), what bounds it ([`flow`], [`limits`]), and how a stdin write happens once ([`ledger`]).

pub mod command;
pub mod ending;
pub mod environ;
pub mod exit;
pub mod flow;
pub mod id;
pub mod ledger;
pub mod life;
pub mod limits;
pub mod log;
pub mod signal;

pub use command::{Command, Io, Overflow, Size, TimeLimit};
pub use environ::{EnvPolicy, Environ, Inherit};
pub use exit::{Cause, Exit, Status, Usage};
pub use id::{ProcessId, WriteId};
pub use log::{Body, Entry, Gap, Head, Log, Page, Seq, Stream};
pub use signal::Signal;
