//! Input for sessions. A program may read it late or never, so whoever types waits no longer than they want to; what is not read
//! by then waits for the program, in the order in which it was typed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exec_core::{Signal, WriteId};
use exec_env::process::{Signalled, WaitCondition, Waited, Written};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinSet;

use super::{Session, SessionNumber, ShellError, WriteRequest};

/// The character that interrupts, as a terminal would send it.
const INTERRUPT: &str = "\u{3}";
/// The character that ends the input.
const END_OF_INPUT: &str = "\u{4}";

/// InputTasks that are being written: one for each session at most, for as long as the program does not read it. They end with this.
#[derive(Default)]
pub(super) struct InputTasks(Mutex<JoinSet<()>>);

/// Why input of a session failed after its call had returned, until somebody is told.
#[derive(Clone, Default)]
pub(super) struct FailedInput(Arc<Mutex<Option<ShellError>>>);

/// Input whose call waited no longer. Whoever drops this does not want to know what becomes of it, so the next look tells.
pub(super) struct InputUnderWay {
    done: oneshot::Receiver<Result<(), ShellError>>,
    session: SessionNumber,
    failed: FailedInput,
}

impl InputTasks {
    /// Writes to a session, and returns when the input is taken, or with the input that is still under way after `time`.
    pub(super) async fn write(
        &self,
        session: &Session,
        request: WriteRequest,
        time: Duration,
    ) -> Result<Option<InputUnderWay>, ShellError> {
        if session.is_outside_sandbox() && !request.outside_sandbox {
            return Err(ShellError::OutsideSandbox { session: session.number });
        }
        let deadline = tokio::time::Instant::now() + time;
        // An interrupt that is a signal overtakes all input; one that would be typed behind input that waits becomes one.
        if request.chars == INTERRUPT && (!session.tty || session.input_turn.try_lock().is_err()) {
            return session.interrupt().await.map(|()| None);
        }
        let turn = tokio::time::timeout_at(deadline, session.input_turn.clone().lock_owned()).await;
        let Ok(turn) = turn else { return Err(ShellError::InputWaits { session: session.number }) };
        // What was typed before is known to have failed, so whoever types on must hear of that first. An interrupt goes on
        // nothing.
        if request.chars != INTERRUPT
            && let Some(why) = session.failed_input.take()
        {
            return Err(ShellError::InputBeforeFailed { session: session.number, why: Box::new(why) });
        }
        let (reply, done) = oneshot::channel();
        let writing = session.clone();
        {
            let mut inputs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            while inputs.try_join_next().is_some() {}
            inputs.spawn(async move {
                match writing.input(&request).await {
                    // The turn ends first, so that whoever hears of this may type on at once.
                    Ok(()) => {
                        drop(turn);
                        let _ = reply.send(Ok(()));
                    }
                    // If its call waits no longer it is kept, before the turn ends, so that no look finds neither input that
                    // waits nor this.
                    failed => {
                        if let Err(Err(error)) = reply.send(failed) {
                            writing.failed_input.keep(error);
                        }
                        drop(turn);
                    }
                }
            });
        }
        let mut input = InputUnderWay { done, session: session.number, failed: session.failed_input.clone() };
        match tokio::time::timeout_at(deadline, &mut input.done).await {
            Ok(Ok(done)) => done.map(|()| None),
            // The task has panicked.
            Ok(Err(_)) => Err(ShellError::InputInDoubt { session: session.number }),
            Err(_) => Ok(Some(input)),
        }
    }
}

impl InputUnderWay {
    /// Why it has failed by now, if it has. If it fails later, the next look tells.
    pub(super) fn check(mut self) -> Result<(), ShellError> {
        match self.done.try_recv() {
            Ok(done) => done,
            Err(TryRecvError::Empty) => Ok(()),
            Err(TryRecvError::Closed) => Err(ShellError::InputInDoubt { session: self.session }),
        }
    }
}

impl Drop for InputUnderWay {
    fn drop(&mut self) {
        // From here on the task keeps the result itself; what it has sent before is kept here.
        self.done.close();
        if let Ok(Err(error)) = self.done.try_recv() {
            self.failed.keep(error);
        }
    }
}

impl FailedInput {
    fn keep(&self, error: ShellError) {
        self.lock().get_or_insert(error);
    }

    /// For whoever tells it.
    pub(super) fn take(&self) -> Option<ShellError> {
        self.lock().take()
    }

    /// For a state that may be asked for any number of times.
    pub(super) fn get(&self) -> Option<ShellError> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<ShellError>> {
        // It is whole after every statement, so a panic elsewhere does not damage it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    async fn interrupt(&self) -> Result<(), ShellError> {
        let signalled = self.target.environment.processes().signal(&self.process, Signal::Interrupt).await;
        match signalled.map_err(|error| ShellError::of_session(self.number, error))? {
            Signalled::Sent => Ok(()),
            Signalled::AlreadyExited => Err(self.refused_input().await),
        }
    }

    async fn input(&self, request: &WriteRequest) -> Result<(), ShellError> {
        let processes = self.target.environment.processes();
        let failed = |error| ShellError::of_session(self.number, error);
        let ends = request.close_stdin || (!self.tty && request.chars == END_OF_INPUT);
        let chars = if ends && request.chars == END_OF_INPUT { "" } else { request.chars.as_str() };
        let mut written = Written::Accepted;
        if !chars.is_empty() {
            let id = WriteId::new(uuid::Uuid::new_v4().to_string()).expect("it is short and not empty");
            let bytes = Bytes::copy_from_slice(chars.as_bytes());
            written = processes.write(&self.process, id, bytes).await.map_err(failed)?;
        }
        if ends && written == Written::Accepted {
            written = processes.close_stdin(&self.process).await.map_err(failed)?;
        }
        match written {
            Written::Accepted => Ok(()),
            Written::StdinClosed => Err(self.refused_input().await),
            Written::InDoubt => Err(ShellError::InputInDoubt { session: self.number }),
        }
    }

    /// Why input was not taken: the end of the process, or that its stdin is not open.
    async fn refused_input(&self) -> ShellError {
        let now = self.target.environment.processes().wait(&self.process, WaitCondition::Exited, Some(Duration::ZERO));
        match now.await {
            Ok(Waited::Exited(exit)) => ShellError::Ended { session: self.number, exit_code: exit.shell_code() },
            _ => ShellError::StdinClosed { session: self.number },
        }
    }
}
