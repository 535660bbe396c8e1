//! An environment at the far end of a connection.
//!
//! In the order in which a call meets them:
//!
//! ```text
//! environment   RemoteEnvironment: connect, what the place is, leaving
//! processes     the verbs of the waist as calls; followers; waiting
//! files         the verbs of files as calls; open files that outlive connections; streams
//! http          requests from there
//! link          calls and answers over connections that break; the driver and the writer
//! session       rules: when to dial, resume, rest, give up            (pure)
//! inbox, page   rules: what was pushed, what is fetched, in order     (pure)
//! retry        rules: what may be asked twice                        (pure)
//! convert       the domain's words to the wire's and back
//! error         what a refusal means; the only file that knows error codes
//! environments  environments.toml and the variables: which places there are
//! ```
//!
//! Contract: a process behind a link behaves as a local one does, but for time. A break is noticed by nobody but the
//! clock, as long as the session can be found again; when it cannot, everything of it fails with a text that says why.
//!
//! Deliberately absent: starting servers, local environments, tables and spinners.

#![warn(missing_docs)]

mod backoff;
mod convert;
mod dial;
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
mod retry;
pub mod session;

pub use backoff::SeededRng;
pub use dial::{Dial, TargetDial};
pub use environment::{ConnectFailure, Options, RemoteEnvironment, connect};

pub use environments::Environments;
pub use error::CallError;
pub use link::{CallOptions, CallOutcome, Link, LinkMetrics, LinkState, Notification};
pub use retry::RetryPolicy;
