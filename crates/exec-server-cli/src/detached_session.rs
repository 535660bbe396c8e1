//! A visit to a process that `run --detach` left somewhere: its session is taken up again, and put down after.

use std::time::Duration;

use anyhow::bail;
use exec_client::{ConnectFailure, Options, RemoteEnvironment};
use exec_core::ProcessId;
use exec_env::Environment;
use exec_env::process::{ProcessInfo, Processes};

use crate::detached_store::{DetachedProcess, DetachedStore, SessionLock};
use crate::target::RemoteTarget;

/// Visits of others that last a moment (`ps`, `logs`, `kill`) are waited for.
const LOCK_WAIT: Duration = Duration::from_millis(500);

/// Whoever was thrown out needs a moment to leave.
const TAKE_OVER_WAIT: Duration = Duration::from_secs(2);

/// A visit under way.
#[derive(Debug)]
pub(crate) struct DetachedSession {
    pub(crate) process: DetachedProcess,
    pub(crate) id: ProcessId,
    environment: RemoteEnvironment,
    _lock: Option<SessionLock>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResumeError {
    /// Somebody else is there, and would be thrown out.
    #[error("{id} is attached in another place on this machine: leave it there first, or say --take-over")]
    Busy { id: String },
    /// Its server has forgotten it.
    #[error("{id} is gone: {why}; it is no longer listed")]
    Gone { id: String, why: String },
    /// Nobody answers, for now.
    #[error("{why}")]
    Unreachable { why: String },
    /// We cannot even try.
    #[error(transparent)]
    Local(#[from] anyhow::Error),
}

fn forget_gone(store: &DetachedStore, process: &DetachedProcess, why: &str) -> ResumeError {
    store.remove(process);
    ResumeError::Gone { id: process.id.clone(), why: why.to_owned() }
}

impl DetachedSession {
    /// Goes there. `take_over`: even if somebody else is there.
    pub(crate) async fn resume(
        store: &DetachedStore,
        process: DetachedProcess,
        take_over: bool,
    ) -> Result<Self, ResumeError> {
        let lock = store.lock_session(&process, LOCK_WAIT).await?;
        if lock.is_none() && !take_over {
            return Err(ResumeError::Busy { id: process.id });
        }
        let remote = RemoteTarget::from_address(&process.at)?;
        let options = Options { resume_session: Some(process.session.clone()), ..Options::default() };
        let environment = remote.connect(options).await.map_err(|failure| match failure {
            ConnectFailure::UnknownSession { .. } => {
                forget_gone(store, &process, "its session has ended, or its server has")
            }
            failure => ResumeError::Unreachable { why: remote.explain(&failure) },
        })?;
        let lock = match lock {
            Some(lock) => Some(lock),
            None => store.lock_session(&process, TAKE_OVER_WAIT).await?,
        };
        let id = ProcessId::new(&process.id).map_err(anyhow::Error::from)?;
        Ok(Self { process, id, environment, _lock: lock })
    }

    pub(crate) fn processes(&self) -> &dyn Processes {
        self.environment.processes()
    }

    pub(crate) fn environment(&self) -> &RemoteEnvironment {
        &self.environment
    }

    /// The process as its server lists it. One that ended long ago is forgotten there, and here.
    pub(crate) async fn process_info(&self, store: &DetachedStore) -> Result<ProcessInfo, ResumeError> {
        let listed = self.processes().list().await.map_err(anyhow::Error::from)?;
        let info = listed.into_iter().find(|info| info.id == self.id);
        info.ok_or_else(|| forget_gone(store, &self.process, "it ended a while ago, and its server has let go of it"))
    }

    /// Leaves; the process goes on.
    pub(crate) async fn close(self) {
        self.environment.close().await;
    }

    /// Ends the session with all that is in it, and the note of it.
    pub(crate) async fn forget(self, store: &DetachedStore) -> anyhow::Result<()> {
        store.remove(&self.process);
        match self.environment.end().await {
            Ok(()) => Ok(()),
            // The server hangs up on a session that was closed, sometimes before it has answered.
            Err(exec_client::CallError::Lost { .. }) => Ok(()),
            Err(error) => bail!("cannot close the session of {}: {error}", self.process.id),
        }
    }
}
