//! The sessions of one MCP server as one environment: its own, in which it starts commands, and those that servers before
//! it have left.
//!
//! A session has one client at a time, so each server has its own, and two at the same time do not disturb each other. When
//! one ends or is killed, its session stays at the environment's server, and [`SessionFiles`] names it. Whoever lists
//! processes adopts such sessions first: so a command is found again by its id, whoever has started it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exec_client::{CallError, ConnectFailure, Link, RemoteEnvironment};
use exec_core::{Command, Page, ProcessId, Seq, Signal, TerminalSize, WriteId};
use exec_env::process::{
    LogFollower, ProcessError, ProcessInfo, ProcessReason, ReadQuery, Signalled, Started, Terminated, Unreachable,
    WaitCondition, Waited, Written,
};
use exec_env::screen::{Screen, ScreenQuery};
use exec_env::view::{View, ViewQuery};
use exec_env::{BoxFuture, Environment, Files, Http, MachineInfo, NetworkDecider, Processes};
use exec_router::LinkedEnvironment;

use super::session_files::{SessionFile, SessionFiles};
use crate::session_server::SessionServer;

/// The client name that servers show.
const CLIENT_NAME: &str = "exec-server-mcp";

/// How long a session that was left lives on: the longest that a server grants by default.
const DETACHED_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long leaving may take: whoever ends us waits for it.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Sessions that are adopted at most: each is a connection. More are adopted when these have ended.
const ADOPTED: usize = 32;

pub(super) struct Sessions {
    server: Arc<SessionServer>,
    files: SessionFiles,
    own: Arc<Held>,
    state: Mutex<State>,
    /// One adopts at a time, or two would resume the same session.
    adopting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    adopted: Vec<Arc<Held>>,
    /// Which session has a process, as far as it was listed; if unknown, our own.
    holders: HashMap<ProcessId, Arc<Held>>,
}

/// A session that is ours.
struct Held {
    environment: RemoteEnvironment,
    /// `None` while it is replaced.
    file: Mutex<Option<SessionFile>>,
}

impl Sessions {
    pub(super) async fn open(server: Arc<SessionServer>, files: SessionFiles) -> Result<Arc<Self>, ConnectFailure> {
        let environment = server.open(CLIENT_NAME, DETACHED_TTL, None).await?;
        let own = Arc::new(Held { environment, file: Mutex::default() });
        let sessions = Self { server, files, own, state: Mutex::default(), adopting: tokio::sync::Mutex::default() };
        sessions.write_down_own();
        Ok(Arc::new(sessions))
    }

    /// Leaves all sessions for the next one; those in which nothing is, are ended.
    pub(super) async fn leave(&self) {
        let state = std::mem::take(&mut *self.lock());
        let all = std::iter::once(Arc::clone(&self.own)).chain(state.adopted);
        for held in all {
            // A failure leaves the session to its time limit.
            let _ = tokio::time::timeout(LEAVE_TIMEOUT, held.leave()).await;
        }
    }

    /// If the connection was lost for so long that our own session was given up, the client has a new one. Then the old
    /// one is left, to be adopted if it is still there.
    fn write_down_own(&self) {
        let Some(session) = self.own.environment.session_id() else { return };
        let mut file = self.own.lock_file();
        if file.as_ref().is_some_and(|file| file.session == session) {
            return;
        }
        *file = None;
        match self.files.add(&session) {
            Ok(added) => *file = Some(added),
            Err(error) => tracing::warn!(%error, "cannot write down the session: it will not be found after our death"),
        }
    }

    /// Takes over what others have left.
    async fn adopt(&self) {
        let _one = self.adopting.lock().await;
        self.write_down_own();
        let lost: Vec<Arc<Held>> = {
            let mut state = self.lock();
            let (kept, lost) = state.adopted.drain(..).partition(|held| held.has_its_session());
            state.adopted = kept;
            lost
        };
        // Dropping the file releases its lock, so that it is taken again below.
        lost.iter().for_each(|held| drop(held.lock_file().take()));
        for file in self.files.take_left() {
            if self.lock().adopted.len() >= ADOPTED {
                break;
            }
            match self.server.open(CLIENT_NAME, DETACHED_TTL, Some(file.session.clone())).await {
                Ok(environment) => {
                    let held = Arc::new(Held { environment, file: Mutex::new(Some(file)) });
                    match held.environment.processes().list().await {
                        Ok(listed) if listed.is_empty() => held.leave().await,
                        _ => self.lock().adopted.push(held),
                    }
                }
                Err(ConnectFailure::UnknownSession { .. }) => file.remove(),
                Err(failure) => tracing::debug!(%failure, "cannot resume a session that was left"),
            }
        }
    }

    async fn list_all(&self) -> Result<Vec<ProcessInfo>, Unreachable> {
        self.adopt().await;
        let mut listed = Vec::new();
        let mut holders = HashMap::new();
        let all: Vec<Arc<Held>> = std::iter::once(&self.own).chain(&self.lock().adopted).cloned().collect();
        for held in all {
            let found = match held.environment.processes().list().await {
                Ok(found) => found,
                Err(unreachable) if Arc::ptr_eq(&held, &self.own) => return Err(unreachable),
                // A session that was given up hides nothing of the others. It is adopted anew, if it is still there.
                Err(_) => continue,
            };
            for info in found {
                holders.insert(info.id.clone(), Arc::clone(&held));
                listed.push(info);
            }
        }
        self.lock().holders = holders;
        listed.sort_by_key(|info| info.started);
        Ok(listed)
    }

    fn holder(&self, id: &ProcessId) -> Arc<Held> {
        self.lock().holders.get(id).unwrap_or(&self.own).clone()
    }

    /// Calls a verb in the session that has the process. If that has it no longer, the sessions are listed anew.
    fn call<'a, T: Send + 'a>(
        &'a self,
        id: &'a ProcessId,
        verb: impl for<'p> Fn(&'p dyn Processes, &'p ProcessId) -> BoxFuture<'p, Result<T, ProcessError>> + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<T, ProcessError>> {
        Box::pin(async move {
            let held = self.holder(id);
            match verb(held.environment.processes(), id).await {
                Err(error) if error.reason == ProcessReason::UnknownProcess => {
                    let listed = self.list_all().await;
                    let next = self.holder(id);
                    if listed.is_err() || Arc::ptr_eq(&held, &next) {
                        return Err(error);
                    }
                    verb(next.environment.processes(), id).await
                }
                done => done,
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn lock_file(&self) -> MutexGuard<'_, Option<SessionFile>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_its_session(&self) -> bool {
        let session = self.environment.session_id();
        self.lock_file().as_ref().is_some_and(|file| session.as_ref() == Some(&file.session))
    }

    /// Ends the session if nothing is in it. Its processes stay otherwise, and so does its file.
    async fn leave(&self) {
        let is_empty = self.environment.processes().list().await.is_ok_and(|listed| listed.is_empty());
        if is_empty && self.environment.end_session().await.is_ok() {
            let file = self.lock_file().take();
            if let Some(file) = file {
                file.remove();
            }
        }
    }
}

impl LinkedEnvironment for Sessions {
    fn link(&self) -> &Link {
        self.own.environment.link()
    }

    fn end_session(&self) -> BoxFuture<'_, Result<(), CallError>> {
        Box::pin(self.own.environment.end_session())
    }
}

impl Environment for Sessions {
    fn processes(&self) -> &dyn Processes {
        self
    }

    fn files(&self) -> &dyn Files {
        self.own.environment.files()
    }

    fn files_for_caller(&self) -> Arc<dyn Files> {
        self.own.environment.files_for_caller()
    }

    fn http(&self) -> &dyn Http {
        self.own.environment.http()
    }

    fn streams(&self) -> &dyn exec_env::Streams {
        self.own.environment.streams()
    }

    fn info(&self) -> &MachineInfo {
        self.own.environment.info()
    }
}

impl Processes for Sessions {
    fn start<'a>(&'a self, id: &'a ProcessId, command: Command) -> BoxFuture<'a, Result<Started, ProcessError>> {
        Box::pin(async move {
            let started = self.own.environment.processes().start(id, command).await?;
            // A connection that was lost for long has got a new session with this.
            self.write_down_own();
            self.lock().holders.insert(id.clone(), Arc::clone(&self.own));
            Ok(started)
        })
    }

    fn read<'a>(&'a self, id: &'a ProcessId, query: ReadQuery) -> BoxFuture<'a, Result<Page, ProcessError>> {
        self.call(id, move |processes, id| processes.read(id, query))
    }

    fn view<'a>(&'a self, id: &'a ProcessId, query: ViewQuery) -> BoxFuture<'a, Result<View, ProcessError>> {
        self.call(id, move |processes, id| processes.view(id, query.clone()))
    }

    fn screen<'a>(&'a self, id: &'a ProcessId, query: ScreenQuery) -> BoxFuture<'a, Result<Screen, ProcessError>> {
        self.call(id, move |processes, id| processes.screen(id, query))
    }

    fn follow<'a>(
        &'a self,
        id: &'a ProcessId,
        after: Seq,
    ) -> BoxFuture<'a, Result<Box<dyn LogFollower>, ProcessError>> {
        self.call(id, move |processes, id| processes.follow(id, after))
    }

    fn write<'a>(
        &'a self,
        id: &'a ProcessId,
        write_id: WriteId,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<Written, ProcessError>> {
        self.call(id, move |processes, id| processes.write(id, write_id.clone(), bytes.clone()))
    }

    fn close_stdin<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<Written, ProcessError>> {
        self.call(id, |processes, id| processes.close_stdin(id))
    }

    fn resize<'a>(&'a self, id: &'a ProcessId, size: TerminalSize) -> BoxFuture<'a, Result<(), ProcessError>> {
        self.call(id, move |processes, id| processes.resize(id, size))
    }

    fn signal<'a>(&'a self, id: &'a ProcessId, signal: Signal) -> BoxFuture<'a, Result<Signalled, ProcessError>> {
        self.call(id, move |processes, id| processes.signal(id, signal))
    }

    fn signal_once<'a>(
        &'a self,
        id: &'a ProcessId,
        signal: Signal,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Signalled, ProcessError>> {
        let key = key.to_owned();
        self.call(id, move |processes, id| {
            let key = key.clone();
            Box::pin(async move { processes.signal_once(id, signal, &key).await })
        })
    }

    fn terminate<'a>(&'a self, id: &'a ProcessId, grace: Duration) -> BoxFuture<'a, Result<Terminated, ProcessError>> {
        self.call(id, move |processes, id| processes.terminate(id, grace))
    }

    fn wait<'a>(
        &'a self,
        id: &'a ProcessId,
        until: WaitCondition,
        deadline: Option<Duration>,
    ) -> BoxFuture<'a, Result<Waited, ProcessError>> {
        self.call(id, move |processes, id| processes.wait(id, until.clone(), deadline))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, Unreachable>> {
        Box::pin(self.list_all())
    }

    fn forget<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<(), ProcessError>> {
        self.call(id, |processes, id| processes.forget(id))
    }

    fn set_network_decider(&self, decider: Arc<dyn NetworkDecider>) {
        self.own.environment.processes().set_network_decider(Arc::clone(&decider));
        for held in &self.lock().adopted {
            held.environment.processes().set_network_decider(Arc::clone(&decider));
        }
    }
}
