//! Where the processes and files of a sandbox are: a session at an environment, opened by whoever starts the server.

use std::sync::Arc;

use exec_env::{BoxFuture, Environment};

/// Opens sessions.
pub trait SessionSource: Send + Sync + 'static {
    /// Opens a session of its own for a sandbox, or goes on with the one that has this id.
    fn open(&self, resume: Option<String>) -> BoxFuture<'_, Result<Arc<dyn SandboxSession>, OpenFailure>>;
}

/// The session of one sandbox.
pub trait SandboxSession: Send + Sync + 'static {
    /// Its processes and files.
    fn environment(&self) -> &dyn Environment;

    /// What it is found by after our death; `None` if it ends with us.
    fn id(&self) -> Option<String>;

    /// Ends it and all that runs in it.
    fn end(&self) -> BoxFuture<'_, ()>;
}

/// Why there is no session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenFailure {
    /// The one to go on with has ended.
    #[error("the session has ended")]
    UnknownSession,
    /// The environment does not answer, or refuses us.
    #[error("{why}")]
    Unreachable {
        /// What happened, for a person.
        why: String,
    },
}
