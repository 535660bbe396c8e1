//! A visit to a process that `run --detach` left somewhere: its session is taken up again, and put down after.

use std::time::Duration;

use anyhow::bail;
use exec_client::{ConnectFailure, Options, RemoteEnvironment};
use exec_core::ProcessId;
use exec_env::Environment;
use exec_env::process::{ProcessInfo, Processes};

use crate::notebook::{Hold, Note, Notebook};
use crate::place::There;

/// Visits of others that last a moment (`ps`, `logs`, `kill`) are waited for.
const OTHERS_TAKE: Duration = Duration::from_millis(500);

/// Whoever was thrown out needs a moment to leave.
const EVICTED_TAKES: Duration = Duration::from_secs(2);

/// A visit under way.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) note: Note,
    pub(crate) id: ProcessId,
    environment: RemoteEnvironment,
    _hold: Option<Hold>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoVisit {
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
    Ours(#[from] anyhow::Error),
}

/// Goes there. `take_over`: even if somebody else is there.
pub(crate) async fn visit(notebook: &Notebook, note: Note, take_over: bool) -> Result<Visit, NoVisit> {
    let hold = notebook.hold(&note, OTHERS_TAKE).await?;
    if hold.is_none() && !take_over {
        return Err(NoVisit::Busy { id: note.id });
    }
    let there = There::at(&note.at)?;
    let options = Options { resume_session: Some(note.session.clone()), ..Options::default() };
    let environment = there.connect(options).await.map_err(|failure| match failure {
        ConnectFailure::UnknownSession { .. } => gone(notebook, &note, "its session has ended, or its server has"),
        failure => NoVisit::Unreachable { why: there.failure(&failure) },
    })?;
    let hold = match hold {
        Some(hold) => Some(hold),
        None => notebook.hold(&note, EVICTED_TAKES).await?,
    };
    let id = ProcessId::new(&note.id).map_err(anyhow::Error::from)?;
    Ok(Visit { note, id, environment, _hold: hold })
}

fn gone(notebook: &Notebook, note: &Note, why: &str) -> NoVisit {
    notebook.remove(note);
    NoVisit::Gone { id: note.id.clone(), why: why.to_owned() }
}

impl Visit {
    pub(crate) fn processes(&self) -> &dyn Processes {
        self.environment.processes()
    }

    pub(crate) fn environment(&self) -> &RemoteEnvironment {
        &self.environment
    }

    /// The process as its server lists it. One that ended long ago is forgotten there, and here.
    pub(crate) async fn look(&self, notebook: &Notebook) -> Result<ProcessInfo, NoVisit> {
        let listed = self.processes().list().await.map_err(anyhow::Error::from)?;
        let found = listed.into_iter().find(|info| info.id == self.id);
        found.ok_or_else(|| gone(notebook, &self.note, "it ended a while ago, and its server has let go of it"))
    }

    /// Leaves; the process goes on.
    pub(crate) async fn leave(self) {
        self.environment.close().await;
    }

    /// Ends the session with all that is in it, and the note of it.
    pub(crate) async fn forget(self, notebook: &Notebook) -> anyhow::Result<()> {
        notebook.remove(&self.note);
        match self.environment.end().await {
            Ok(()) => Ok(()),
            // The server hangs up on a session that was closed, sometimes before it has answered.
            Err(exec_client::CallError::Lost { .. }) => Ok(()),
            Err(error) => bail!("cannot close the session of {}: {error}", self.note.id),
        }
    }
}
