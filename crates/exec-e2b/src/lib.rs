//! The E2B front: what the E2B SDKs call, over any [`exec_env::Environment`].
//!
//! In the order in which a request meets them:
//!
//! - [`server`]: two listeners, and who may speak to them; `request_body`, `response`, `connect`: what is read and written
//!   there.
//! - `api`: the control API, by which sandboxes are made, found, measured (`machine`) and ended.
//! - `envd`: the calls to one sandbox: processes, files, watches; `accounts`: the users that they name.
//! - `sandboxes`, `sandbox`, `record`: the sandboxes there are, one of them, and what is written down about it.
//! - [`session`]: where a sandbox's processes and files are. Whoever starts the server implements it.
//! - `error`: how calls fail; `limits`: what bounds all of this.
//!
//! A sandbox is a session at an environment, with a home directory, variables, a policy and an end. It is no machine of its own:
//! what separates two sandboxes is the policy.
//!
//! Deliberately absent: templates, snapshots, volumes, and whatever else needs a machine per sandbox. Calls for them are
//! refused in words.

#![warn(missing_docs)]

mod accounts;
mod api;
mod connect;
mod envd;
mod error;
mod limits;
mod machine;
mod record;
mod request_body;
mod response;
mod sandbox;
mod sandboxes;
pub mod server;
pub mod session;

pub use sandboxes::{E2bServer, OpenStateError, PolicyChoice, ServerOptions};
pub use server::{ListenOptions, Listener};
pub use session::{OpenFailure, SandboxSession, SessionSource};
