//! The session of a process that `run --detach` started: resumed by a later command, and left again.

use std::time::Duration;

use anyhow::bail;
use exec_client::{
    AttachedClient, Attendance, CallError, ConnectFailure, DriveStatus, Options, RemoteEnvironment, Role,
};
use exec_core::ProcessId;
use exec_env::Environment;
use exec_env::process::{ProcessInfo, Processes};

use crate::args::ConnectArgs;
use crate::detached_store::{DetachedProcess, DetachedStore, SessionLock};
use crate::find_process;
use crate::target::RemoteTarget;

/// How long we wait for another command that has the session, or its drive. `kill --signal` has it for a moment only.
const LOCK_WAIT: Duration = Duration::from_millis(500);

/// How long a command whose session was taken over may need to notice and to release its lock.
const TAKE_OVER_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct DetachedSession {
    pub(crate) process: DetachedProcess,
    pub(crate) id: ProcessId,
    /// The process as its server listed it when the session was resumed.
    pub(crate) info: ProcessInfo,
    pub(crate) environment: RemoteEnvironment,
    _lock: Option<SessionLock>,
}

/// Why a session could not be resumed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResumeError {
    /// Another command has the session and would lose its connection.
    #[error("{id} is attached in another place on this machine: leave it there first, or say --take-over")]
    Busy { id: String },
    /// Another client drives the session and would lose the drive.
    #[error("{driver} is driving {id}: have it leave first, or say --take-over")]
    Driven { id: String, driver: String },
    /// The server no longer knows it, and we have removed our record of it.
    #[error("{id} is gone: {why}; it is no longer listed")]
    Gone { id: String, why: String },
    /// The server does not answer now.
    #[error("{why}")]
    Unreachable { why: String },
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

impl ResumeError {
    /// Its server knows it no longer.
    pub(crate) fn forgotten(store: &DetachedStore, process: &DetachedProcess) -> Self {
        Self::gone(store, process, "it ended a while ago, and its server has let go of it")
    }

    fn of(store: &DetachedStore, process: &DetachedProcess, remote: &RemoteTarget, failure: &ConnectFailure) -> Self {
        match failure {
            ConnectFailure::UnknownSession { .. } => {
                Self::gone(store, process, "its session has ended, or its server has")
            }
            failure => Self::Unreachable { why: remote.explain(failure) },
        }
    }

    fn gone(store: &DetachedStore, process: &DetachedProcess, why: &str) -> Self {
        store.remove(process);
        Self::Gone { id: process.id.clone(), why: why.to_owned() }
    }
}

impl DetachedSession {
    /// Observes the session where the note says that it is.
    pub(crate) async fn observe_noted(
        store: &DetachedStore,
        process: DetachedProcess,
        take_over: bool,
    ) -> Result<Self, ResumeError> {
        let remote = RemoteTarget::from_address(&process.at, &ConnectArgs::default())?;
        Self::observe(store, process, &remote, take_over).await
    }

    /// Looks at the session as an observer. Where the server knows none, the session is resumed, with `take_over` even if
    /// another command has it.
    pub(crate) async fn observe(
        store: &DetachedStore,
        process: DetachedProcess,
        remote: &RemoteTarget,
        take_over: bool,
    ) -> Result<Self, ResumeError> {
        match find_process::observe(remote, &process.session).await {
            Ok(environment) => Self::look_up(store, process, environment, None).await,
            Err(failure) if failure.is_for_want_of_observers() => Self::resume(store, process, take_over).await,
            Err(failure) => Err(ResumeError::of(store, &process, remote, &failure)),
        }
    }

    /// Resumes the session, with `take_over` even if another command has it.
    pub(crate) async fn resume(
        store: &DetachedStore,
        process: DetachedProcess,
        take_over: bool,
    ) -> Result<Self, ResumeError> {
        let lock = store.lock_session(&process, LOCK_WAIT).await?;
        if lock.is_none() && !take_over {
            return Err(ResumeError::Busy { id: process.id });
        }
        let remote = RemoteTarget::from_address(&process.at, &ConnectArgs::default())?;
        let options = Options { resume_session: Some(process.session.clone()), ..Options::default() };
        let environment = remote.try_connect(options).await;
        let environment = environment.map_err(|failure| ResumeError::of(store, &process, &remote, &failure))?;
        let lock = match lock {
            Some(lock) => Some(lock),
            None => store.lock_session(&process, TAKE_OVER_WAIT).await?,
        };
        Self::look_up(store, process, environment, lock).await
    }

    async fn look_up(
        store: &DetachedStore,
        process: DetachedProcess,
        environment: RemoteEnvironment,
        lock: Option<SessionLock>,
    ) -> Result<Self, ResumeError> {
        let id = ProcessId::new(&process.id).map_err(anyhow::Error::from)?;
        let listed = environment.processes().list().await.map_err(anyhow::Error::from);
        let info = listed.map(|listed| listed.into_iter().find(|info| info.id == id));
        match info {
            Ok(Some(info)) => Ok(Self { process, id, info, environment, _lock: lock }),
            Ok(None) => {
                environment.close().await;
                Err(ResumeError::forgotten(store, &process))
            }
            Err(error) => {
                environment.close().await;
                Err(error.into())
            }
        }
    }

    /// Whoever drives the session, if it is somebody else and the server says so.
    pub(crate) fn other_driver(&self) -> Option<AttachedClient> {
        let attendance = self.environment.attendance();
        attendance.borrow().as_ref().and_then(|attendance| {
            let driver = attendance.driver.clone()?;
            (driver.id != attendance.own_id).then_some(driver)
        })
    }

    /// Gets the drive for a call that an observer may not make; with `take_over` also from somebody else, who is returned.
    pub(crate) async fn get_drive(&self, take_over: bool) -> Result<Option<AttachedClient>, ResumeError> {
        // A server that knows no observers has given us the session already.
        if self.environment.role() != Some(Role::Observer) {
            return Ok(None);
        }
        let failed = |error: CallError| {
            let failure = anyhow::Error::from(error).context(format!("cannot get the drive of {}", self.process.id));
            ResumeError::Failed(failure)
        };
        if take_over {
            let former = self.other_driver();
            self.environment.take_drive().await.map_err(failed)?;
            return Ok(former);
        }
        match tokio::time::timeout(LOCK_WAIT, self.drive_once_free()).await {
            Ok(Ok(DriveStatus::Granted)) => Ok(None),
            Ok(Err(error)) => Err(failed(error)),
            Ok(Ok(_)) | Err(_) => {
                let driver =
                    self.other_driver().map_or_else(|| "another client".to_owned(), |driver| driver.client_name);
                Err(ResumeError::Driven { id: self.process.id.clone(), driver })
            }
        }
    }

    /// Whoever drives is asked only if they came in between our look and our request: it is granted at once if nobody drives.
    async fn drive_once_free(&self) -> Result<DriveStatus, CallError> {
        let mut attendance = self.environment.attendance();
        let is_free = |seen: &Option<Attendance>| seen.as_ref().is_some_and(|seen| seen.driver.is_none());
        // The connection has ended if this fails, which the call tells better.
        let _ = attendance.wait_for(is_free).await;
        self.environment.ask_for_drive().await
    }

    pub(crate) fn processes(&self) -> &dyn Processes {
        self.environment.processes()
    }

    /// Disconnects; the process goes on.
    pub(crate) async fn close(self) {
        self.environment.close().await;
    }

    /// Ends the session with everything in it, and removes our record of it.
    pub(crate) async fn forget(self, store: &DetachedStore) -> anyhow::Result<()> {
        store.remove(&self.process);
        match self.environment.end().await {
            // The server closes the connection of a session that was ended, sometimes before it has answered.
            Ok(()) | Err(CallError::Lost { .. }) => Ok(()),
            Err(error) => bail!("cannot close the session of {}: {error}", self.process.id),
        }
    }
}
