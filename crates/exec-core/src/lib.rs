//! Pure rules and vocabulary of exec-server.
//!
//! Everything here gets facts (and the time) as arguments and returns values or effects. Nothing here waits, reads a
//! clock, touches a file, serialises or knows that connections exist; `cargo xtask tidy` checks that.
//!
//! In the order in which a process meets them:
//!
//! - [`id`], [`command`], [`environ`]: what somebody asks to run, and under which name, and the steps of starting it;
//! - [`sandbox`], [`writable_paths`]: what it may reach, and what it may change under a supervisor;
//! - [`network`]: whom it may reach through a proxy of its own;
//! - [`resource_limits`]: how much it may use;
//! - [`write_history`]: how a write to its stdin happens once, however often it is sent;
//! - [`log`], [`lifecycle`], [`exit`]: what it prints, and the order in which its log tells of its end;
//! - [`flow`]: when output may move, and what a full spool does;
//! - [`signal`], [`termination`]: how it is ended by its owner or by its time limit;
//! - [`text`]: what of it must not reach a person as it is, and where lines end; [`timestamp`]: how its times are written;
//! - [`limits`]: every bound on the above.

pub mod command;
pub mod environ;
pub mod exit;
pub mod flow;
pub mod id;
pub mod lifecycle;
pub mod limits;
pub mod log;
pub mod network;
pub mod resource_limits;
pub mod sandbox;
pub mod signal;
pub mod termination;
pub mod text;
pub mod timestamp;
pub mod writable_paths;
pub mod write_history;

pub use command::{Command, Io, Overflow, RunAs, SpawnStep, TerminalSize, TimeLimit};
pub use environ::{EnvPolicy, Environ, Inherit};
pub use exit::{Exit, ExitCause, ExitStatus, ResourceUsage};
pub use id::{ProcessId, WriteId};
pub use log::{Entry, EntryBody, Gap, Head, Log, Page, Seq, Stall, Stream};
pub use network::NetworkProxy;
pub use resource_limits::{Limit, LimitMeans, LimitReport, LimitSet, ResourceLimits};
pub use sandbox::SandboxPolicy;
pub use signal::Signal;
