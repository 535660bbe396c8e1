//! A started process: its environment and its id, and the verbs that need no more than these.

use std::time::Duration;

use crate::process::{ProcessError, ProcessReason, ProcessVerb, Signalled, Terminated, WaitCondition, Waited};
use crate::screen::{Screen, ScreenQuery};
use crate::spawn::{Command, Events, Output, OutputReader, Stdin};
use crate::{Exit, ProcessId, Processes, Seq, SharedEnvironment, Signal, Stream, TerminalSize};

/// A process of an environment.
///
/// Dropping it changes nothing: the process runs on, and its output and exit are kept for [`super::EnvironmentExt::attach`].
/// They are kept until [`Self::forget`], until the environment ends, or as long as its server keeps them.
#[derive(Clone)]
pub struct Process {
    environment: SharedEnvironment,
    id: ProcessId,
    pid: u32,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("id", &self.id).field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl Process {
    pub(super) async fn start(environment: SharedEnvironment, command: Command) -> Result<Self, ProcessError> {
        let (id, request) = command.into_request(environment.info());
        let pid = environment.processes().start(&id, request).await?.pid;
        Ok(Self { environment, id, pid })
    }

    pub(super) async fn find(environment: SharedEnvironment, id: ProcessId) -> Result<Self, ProcessError> {
        let failed = |reason| ProcessError::new(ProcessVerb::Follow, &id, reason);
        let listed = environment.processes().list().await.map_err(|error| failed(error.into()))?;
        let found = listed.into_iter().find(|info| info.id == id);
        let pid = found.ok_or_else(|| failed(ProcessReason::UnknownProcess))?.pid;
        Ok(Self { environment, id, pid })
    }

    /// The id that leads back to it.
    pub fn id(&self) -> &ProcessId {
        &self.id
    }

    /// The pid on its machine; for people to read.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until it has exited. What it has started may go on printing; [`Self::output`] waits for that, too.
    pub async fn wait(&self) -> Result<Exit, ProcessError> {
        loop {
            // Without a deadline there is no other answer from a machine that behaves, and nothing better than to ask again.
            if let Waited::Exited(exit) | Waited::Closed(exit) = self.wait_for(WaitCondition::Exited, None).await? {
                return Ok(exit);
            }
        }
    }

    /// Waits for something, but not longer than `deadline`.
    pub async fn wait_for(&self, until: WaitCondition, deadline: Option<Duration>) -> Result<Waited, ProcessError> {
        self.processes().wait(&self.id, until, deadline).await
    }

    /// Everything it has printed and will print, once it has exited and nobody is left who could print more.
    pub async fn output(&self) -> Result<Output, ProcessError> {
        Output::collect(self.events()).await
    }

    /// Its log from the beginning, as it grows: a stream of output, exit and close, that ends behind the close.
    pub fn events(&self) -> Events {
        self.events_after(0)
    }

    /// Its log after the entry with this number.
    pub fn events_after(&self, after: Seq) -> Events {
        Events::new(self.environment.clone(), self.id.clone(), after)
    }

    /// Its stdout from the beginning, to be read as it grows; of a process with a terminal, what that shows.
    pub fn stdout(&self) -> OutputReader {
        OutputReader::new(self.events(), &[Stream::Stdout, Stream::Pty])
    }

    /// Its stderr from the beginning, to be read as it grows; of a process with a terminal, nothing.
    pub fn stderr(&self) -> OutputReader {
        OutputReader::new(self.events(), &[Stream::Stderr])
    }

    /// Its stdin, to be written. Several of these may write at once; what each writes stays in order.
    pub fn stdin(&self) -> Stdin {
        Stdin::new(self.environment.clone(), self.id.clone())
    }

    /// Ends it and everything that it has started, at once.
    pub async fn kill(&self) -> Result<Terminated, ProcessError> {
        self.terminate(Duration::ZERO).await
    }

    /// Ends it and everything that it has started: by SIGTERM, and after `grace` by SIGKILL.
    pub async fn terminate(&self, grace: Duration) -> Result<Terminated, ProcessError> {
        self.processes().terminate(&self.id, grace).await
    }

    /// Sends a signal to its process group.
    pub async fn signal(&self, signal: Signal) -> Result<Signalled, ProcessError> {
        self.processes().signal(&self.id, signal).await
    }

    /// Changes the size of its terminal.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), ProcessError> {
        self.processes().resize(&self.id, size).await
    }

    /// What a person would see on its terminal now.
    pub async fn screen(&self) -> Result<Screen, ProcessError> {
        self.processes().screen(&self.id, ScreenQuery::default()).await
    }

    /// Lets go of its log and its id. If it is still running, it is ended.
    pub async fn forget(self) -> Result<(), ProcessError> {
        self.processes().forget(&self.id).await
    }

    fn processes(&self) -> &dyn Processes {
        self.environment.processes()
    }
}
