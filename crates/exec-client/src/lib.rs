//! An environment at the far end of a connection.
//!
//! The modules, in the order in which a call meets them:
//!
//! ```text
//! environments   which environments are configured: environments.toml and the variables
//! environment    RemoteEnvironment: connect, information about the machine, close
//! drive          who is attached to the session, and who drives it
//! processes      the verbs on processes as calls; followers; waiting
//! files          the verbs on files as calls; open files that outlive connections; streams
//! http           HTTP requests made by the server
//! streams        connections made and accepted by the server; they outlive ours
//! convert        values of the domain to values of the wire and back
//! error          what a refusal means for each verb; the only file that knows error codes
//! link           calls and answers over connections that break; the driver task and the writer task
//! session        rules: when to dial, resume, back off, give up              (pure)
//! dial           how a connection is made
//! bootstrap      the same where no server runs yet: ssh, docker, podman, kubectl
//! inbox, page    rules: what was pushed, what must be fetched, in order      (pure)
//! process_cache  what is remembered of each process beside its log
//! limits         every bound, with its unit and its reason
//! ```
//!
//! Contract: a remote process behaves as a local one does, but for time. A break of the connection only costs time, as
//! long as the session can be resumed; when it cannot, everything of the session fails with a text that says why.
//!
//! Deliberately absent: starting servers on this machine, local environments, tables and spinners.

#![warn(missing_docs)]

pub mod bootstrap;
mod convert;
mod dial;
mod drive;
mod environment;
pub mod environments;
mod error;
pub mod files;
mod http;
pub mod inbox;
pub mod limits;
mod link;
pub mod page;
mod process_cache;
mod processes;
pub mod session;
mod streams;

pub use dial::{Dial, TargetDial};
pub use drive::{AttachedClient, Attendance, DriveStatus, Role};
pub use environment::{ConnectFailure, GatewayEnvironment, Options, RemoteEnvironment, connect};
pub use environments::Environments;
pub use error::CallError;
pub use exec_wire::RetryPolicy;
pub use link::{CallOptions, CallOutcome, Link, LinkMetrics, LinkState, Notification, Outage};
