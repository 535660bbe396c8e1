//! The server: its environments, its sessions, and the connections that come and go. Observers, and who drives: [`drive`].

mod drive;

mod recovery;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use exec_env::process::{ProcessInfo, ProcessReason, Unreachable, WaitCondition, has_tree_ended};
use exec_env::registry::{EnvironmentState, LOCAL, OnlyEnvironment};
use exec_env::{BoxFuture, EnvironmentRegistry, MachineInfo, SharedEnvironment};
use exec_transport::{Connection, Peer};
use exec_wire::error::RpcError;
use exec_wire::limits::{MESSAGE_BYTES, MESSAGE_VALUES};
use exec_wire::session as wire;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::audit::{self, AuditEvent, AuditSink};
use crate::ceiling::{Ceiling, ProcessLimits, Violation};
use crate::connection::{self, CloseRequest};
use crate::limits::{
    CLIENT_NAME_BYTES, CLOSE_TIMEOUT, CLOSED_PROCESSES, CONCURRENT_REQUESTS, DETACHED_TTL, DETACHED_TTL_MAX,
    EXIT_RETRY_PAUSE, HOUSEKEEPING_INTERVAL, INTRODUCTION_WAIT, KEEP_MAX, SESSIONS, SESSIONS_PER_PEER,
};
use crate::network::NetworkFront;
use crate::reply;
use crate::reservations::Lookup;
use crate::routing::{NamedEnvironment, Routing};
use crate::running::{CountedProcess, ExitWaits, RunningCounts};
use crate::session::{
    Attachment, Attendee, ConnectionId, NoRoom, Opener, ProcessLabel, Session, SessionOwner, SessionProcess,
    SessionStore, SessionTable, unix_ms,
};
use crate::workers::keep_blocking_thread;

#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// How long a session lives without a connection.
    pub detached_ttl: Duration,
    /// The longest such time that a client may ask for.
    pub detached_ttl_max: Duration,
    /// The longest time for which a client may have a process kept after its end.
    pub keep_max: Duration,
    /// Requests of one connection that run at once.
    pub concurrent_requests: usize,
    /// Where sessions are stored, so that the next server finds them; `None` to store nothing.
    pub state_dir: Option<PathBuf>,
    /// Allows `session/*` on every connection, not only on those from this machine.
    pub operators_everywhere: bool,
    /// The most that any connection may do.
    pub ceiling: Arc<Ceiling>,
    /// Where to tell what happens.
    pub audit: Option<AuditSink>,
    /// Whether clients may add and remove environments, which makes the server connect to where they say.
    pub allow_environment_add: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            detached_ttl: DETACHED_TTL,
            detached_ttl_max: DETACHED_TTL_MAX,
            keep_max: KEEP_MAX,
            concurrent_requests: CONCURRENT_REQUESTS,
            state_dir: None,
            operators_everywhere: false,
            ceiling: Arc::default(),
            audit: None,
            allow_environment_add: false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServerStartError {
    #[error("cannot use the folder of sessions below {path:?}: {error}")]
    SessionStore { path: PathBuf, error: std::io::Error },
    #[error(transparent)]
    List(#[from] Unreachable),
}

/// Serves one environment or several to any number of connections.
pub struct Server {
    pub(crate) routing: Routing,
    pub(crate) options: ServerOptions,
    store: SessionStore,
    state: Mutex<ServerState>,
    next_connection: AtomicU64,
    /// Lets a client see whether the server that cached its responses is this one.
    pub(crate) response_cache_id: String,
    /// Wakes the housekeeping, because some session has too many processes.
    too_many_processes: Notify,
    running: Arc<RunningCounts>,
    exit_waits: ExitWaits,
    /// Tasks that ask far environments for the processes of an earlier server; they end with this.
    recoveries: Mutex<JoinSet<()>>,
    /// Sessions that were opened before may have processes that nobody here knows yet.
    started_at_ms: u64,
}

const _: () =
    assert!(SESSIONS * 17 + 8 <= MESSAGE_VALUES && SESSIONS * (2 * CLIENT_NAME_BYTES * 6 + 768) <= MESSAGE_BYTES);

#[derive(Default)]
struct ServerState {
    sessions: SessionTable,
    /// How each connection is asked to close.
    connections: HashMap<ConnectionId, watch::Sender<Option<CloseRequest>>>,
    stopping: bool,
}

impl Server {
    /// Recovers the sessions and processes that an earlier server has left in the environment and in the state directory.
    pub async fn start(environment: SharedEnvironment, options: ServerOptions) -> Result<Arc<Self>, ServerStartError> {
        Self::start_with(OnlyEnvironment::new(environment), options).await
    }

    /// The same with several environments. Those that are far away and do not answer soon are asked for their processes
    /// in the background.
    pub async fn start_with(
        registry: Arc<dyn EnvironmentRegistry>,
        options: ServerOptions,
    ) -> Result<Arc<Self>, ServerStartError> {
        // Before anybody can come; from then on the housekeeping sees to it.
        keep_blocking_thread(&tokio::runtime::Handle::current());
        let store = SessionStore::open(options.state_dir.as_deref()).map_err(|error| {
            ServerStartError::SessionStore { path: options.state_dir.clone().unwrap_or_default(), error }
        })?;
        let server = Self {
            routing: Routing::new(registry),
            options,
            store,
            state: Mutex::default(),
            next_connection: AtomicU64::new(1),
            response_cache_id: uuid::Uuid::new_v4().to_string(),
            too_many_processes: Notify::new(),
            running: Arc::default(),
            exit_waits: ExitWaits::default(),
            recoveries: Mutex::default(),
            started_at_ms: unix_ms(SystemTime::now()),
        };
        let server = Arc::new(server);
        server.recover_all().await?;
        Ok(server)
    }

    /// The environment that a request names, or the default.
    pub(crate) fn environment(self: &Arc<Self>, id: Option<&str>) -> Result<NamedEnvironment, RpcError> {
        self.routing.find(id, NetworkFront::new(self))
    }

    /// What the default environment is, if that can be said soon.
    pub(crate) async fn default_info(&self) -> Option<MachineInfo> {
        let registry = self.routing.registry();
        let id = registry.default_id()?;
        if matches!(registry.status(&id)?.state, EnvironmentState::Disconnected { .. }) {
            return None;
        }
        tokio::time::timeout(INTRODUCTION_WAIT, registry.info(&id)).await.ok()??.ok()
    }

    /// Whether a client may say which environments there are.
    pub(crate) fn allow_environment_changes(&self) -> Result<(), RpcError> {
        match self.options.allow_environment_add {
            true => Ok(()),
            false => Err(reply::forbidden(
                "clients of this server do not add or remove environments: start it with --allow-environment-add",
            )),
        }
    }

    /// Serves one connection until it ends.
    pub async fn serve(self: &Arc<Self>, connection: Connection) {
        connection::serve(self.clone(), connection).await;
    }

    /// Ends expired sessions and forgets processes that were closed long ago. Never returns; whoever runs the server must
    /// run this beside it.
    pub async fn run_housekeeping(self: Arc<Self>) {
        let mut tick = tokio::time::interval(HOUSEKEEPING_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // At most one round for each environment, and one for each session that has expired.
        let mut rounds: FuturesUnordered<BoxFuture<'static, Option<Arc<str>>>> = FuturesUnordered::new();
        let mut busy: HashSet<Arc<str>> = HashSet::new();
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.too_many_processes.notified() => {}
                Some(done) = rounds.next(), if !rounds.is_empty() => {
                    if let Some(environment) = done {
                        busy.remove(&environment);
                    }
                    continue;
                }
            }
            // Environments and listeners run beside us.
            keep_blocking_thread(&tokio::runtime::Handle::current());
            let expired = self.lock().sessions.expire(Instant::now());
            for session in expired {
                tracing::info!(session = session.id, "expired");
                let server = self.clone();
                rounds.push(Box::pin(async move {
                    server.end_session(&session, "expired").await;
                    None
                }));
            }
            for session in self.store.unsaved().iter().filter_map(|id| self.find_session(id)) {
                self.store_unsaved(&session);
            }
            for environment in self.routing.used() {
                // One that does not answer is not asked again meanwhile, and keeps nobody else waiting.
                if busy.insert(environment.id.clone()) {
                    let server = self.clone();
                    rounds.push(Box::pin(async move {
                        server.forget_in(&environment).await;
                        Some(environment.id)
                    }));
                }
            }
        }
    }

    /// Asks every connection to close, and waits for none: whoever serves them awaits them.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        for connection in state.connections.values() {
            connection.send_replace(Some(CloseRequest::ServerStopping));
        }
    }

    pub(crate) fn register_connection(
        self: &Arc<Self>,
        peer: &Peer,
        subject: Option<String>,
    ) -> (Registration, watch::Receiver<Option<CloseRequest>>) {
        let id = ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed));
        let mut state = self.lock();
        let (sender, receiver) = watch::channel(state.stopping.then_some(CloseRequest::ServerStopping));
        state.connections.insert(id, sender);
        let owner = SessionOwner::of(peer, subject.as_deref());
        let server = self.clone();
        (Registration { server, id, owner, subject, session_id: None, ended: false }, receiver)
    }

    /// Opens a session for the client that names this scope. Also returns the TTL that the session got.
    pub(crate) async fn open_session(
        &self,
        registration: &mut Registration,
        driver: Attendee,
        scope: Option<&str>,
        ttl: Option<Duration>,
    ) -> Result<(Arc<Session>, Duration), RpcError> {
        let ttl = self.granted_ttl(ttl);
        let id = uuid::Uuid::new_v4().to_string();
        let (name, opened_at_ms) = (driver.client_name.clone(), unix_ms(SystemTime::now()));
        let session = Session::new(id, name, opened_at_ms, registration.owner.clone());
        let session = Arc::new(session.opened_by(Opener::of(registration.subject.clone())));
        session.set_holder(Some(scope.unwrap_or_default()));
        let gone = {
            let mut state = self.lock();
            let owner = &registration.owner;
            let is_operator = owner.is_local() || self.options.operators_everywhere;
            let gone = state.sessions.make_room(owner, is_operator).map_err(|no_room| {
                reply::busy(match no_room {
                    NoRoom::Server => {
                        format!("the server has {SESSIONS} sessions: close some, or wait for detached ones to expire")
                    }
                    NoRoom::Peer => format!("{owner} has {SESSIONS_PER_PEER} sessions: close some of them"),
                })
            })?;
            state.sessions.open(session.clone(), registration.id, ttl);
            session.attendance().set_driver(driver);
            if let Some(gone) = &gone {
                state.dismiss_observers(gone);
            }
            gone
        };
        if let Some(gone) = gone {
            tracing::info!(session = gone.id, "gives way to another: it was detached and had no processes");
            gone.mark_ended();
            self.store.remove(&gone.id);
            self.audit_closed_session(&gone, "gaveWay").await;
        }
        registration.session_id = Some(session.id.clone());
        self.store_session(&session, ttl);
        Ok((session, ttl))
    }

    /// Also returns the TTL that the session got. `only_if_held`: not if a client with another scope has it by now.
    pub(crate) fn resume_session(
        &self,
        registration: &mut Registration,
        id: &str,
        driver: Attendee,
        scope: Option<&str>,
        only_if_held: bool,
        ttl: Option<Duration>,
    ) -> Result<(Arc<Session>, Duration), RpcError> {
        let new_ttl = ttl.map(|ttl| self.granted_ttl(Some(ttl)));
        let scope = scope.unwrap_or_default();
        let (session, ttl, same_holder) = {
            let mut state = self.lock();
            let holder = state.resumable(id, registration)?.holder();
            let same_holder = holder.as_deref() == Some(scope);
            if only_if_held && holder.is_some() && !same_holder {
                return Err(reply::taken_over(id));
            }
            let attached = state.sessions.attach(id, registration.id, new_ttl, Instant::now());
            let (session, ttl, evicted) = attached.ok_or_else(|| RpcError::unknown_session(id))?;
            session.set_holder(Some(scope));
            session.attendance().set_driver(driver);
            if let Some(evicted) = evicted {
                state.request_close(evicted, CloseRequest::TakenOver);
            }
            (session, ttl, same_holder)
        };
        registration.session_id = Some(session.id.clone());
        if new_ttl.is_some() || !same_holder {
            self.store_session(&session, ttl);
        }
        Ok((session, ttl))
    }

    pub(crate) fn find_session(&self, id: &str) -> Option<Arc<Session>> {
        self.lock().sessions.get(id)
    }

    /// Every session that `is_visible`, oldest first. All fit a message: each is 17 values, and the names of the client that
    /// opened it and of the one that drives it may be all escapes.
    pub(crate) fn sessions(&self, is_visible: impl Fn(&Session) -> bool) -> Vec<wire::SessionInfo> {
        let now = Instant::now();
        let info = |(session, attachment): (&Arc<Session>, Attachment)| {
            let (driver, observers) = {
                let attendance = session.attendance();
                (attendance.driver(), attendance.observer_count() as u64)
            };
            wire::SessionInfo {
                session_id: session.id.clone(),
                client_name: session.client_name.clone(),
                opened_at_ms: session.opened_at_ms,
                attachment: match attachment {
                    Attachment::Attached(connection) => {
                        wire::Attachment::Attached { peer: format!("connection {}", connection.0) }
                    }
                    Attachment::Detached { until } => wire::Attachment::Detached {
                        expires_in_ms: until.saturating_duration_since(now).as_millis() as u64,
                    },
                },
                processes: session.process_count() as u64,
                driver,
                observers: Some(observers),
                last_activity_ms: Some(session.last_activity_ms()),
            }
        };
        let state = self.lock();
        let visible = state.sessions.iter().filter(|(session, _)| is_visible(session));
        let mut sessions: Vec<wire::SessionInfo> = visible.map(info).collect();
        drop(state);
        sessions.sort_by_key(|session| session.opened_at_ms);
        sessions
    }

    /// Ends a session and everything it runs; `false` if there is none.
    pub(crate) async fn close_session(&self, id: &str) -> bool {
        let session = {
            let mut state = self.lock();
            let Some((session, attachment)) = state.sessions.remove(id) else { return false };
            if let Attachment::Attached(connection) = attachment {
                state.request_close(connection, CloseRequest::SessionClosed);
            }
            session
        };
        self.end_session(&session, "closed").await;
        true
    }

    /// Counts a process that is about to be started, if anybody wants to know.
    pub(crate) fn count_process(
        &self,
        session: &Session,
        limits: ProcessLimits,
    ) -> Result<Option<CountedProcess>, Violation> {
        if limits.per_session.is_none() && limits.in_all.is_none() {
            return Ok(None);
        }
        self.running.count(&session.id, limits).map(Some)
    }

    /// Waits for the exit of a process that was started, if anybody wants to know.
    pub(crate) fn await_exit(
        self: &Arc<Self>,
        session: &Session,
        process: &Arc<SessionProcess>,
        counted: Option<CountedProcess>,
    ) {
        // An earlier server may have told it.
        let audit = self.audit().filter(|audit| !audit.knows_exit(&session.id, &process.wire_id)).cloned();
        if counted.is_none() && audit.is_none() {
            return;
        }
        let (session, process) = (session.id.clone(), Arc::clone(process));
        let named = self.routing.has_several().then(|| process.environment.id.to_string());
        let server = Arc::downgrade(self);
        self.exit_waits.spawn(async move {
            // One that was forgotten has exited as well.
            let waited = loop {
                let waited = process.environment.processes().wait(&process.id, WaitCondition::Exited, None).await;
                let place_is_lost = server.upgrade().is_some_and(|server| server.is_disconnected(&process.environment));
                if !(place_is_lost
                    && matches!(&waited, Err(error) if matches!(error.reason, ProcessReason::Unreachable(_))))
                {
                    break waited;
                }
                tokio::time::sleep(EXIT_RETRY_PAUSE).await;
            };
            drop(counted);
            if let Some(audit) = audit {
                audit::record_exit(&audit, session, named, &process, waited).await;
            }
        });
    }

    fn is_disconnected(&self, environment: &NamedEnvironment) -> bool {
        let status = self.routing.registry().status(&environment.id);
        status.is_some_and(|status| matches!(status.state, EnvironmentState::Disconnected { .. }))
    }

    /// Waits until the exits of all processes that have ended are told. For whoever has ended them.
    pub async fn finish(&self) {
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.exit_waits.finish()).await;
    }

    pub(crate) fn audit(&self) -> Option<&AuditSink> {
        self.options.audit.as_ref()
    }

    async fn audit_closed_session(&self, session: &Session, reason: &'static str) {
        if let Some(audit) = self.audit() {
            audit.record(AuditEvent::SessionClosed { session: session.id.clone(), reason }).await;
        }
    }

    /// Makes the housekeeping forget the oldest closed processes of a session that has very many.
    pub(crate) fn wake_housekeeping_if_crowded(&self, session: &Session) {
        if session.process_count() > CLOSED_PROCESSES {
            self.too_many_processes.notify_one();
        }
    }

    /// Forgets what is kept no longer in this environment: surplus closed processes, those that were closed long ago, and
    /// those whose session ended while the environment could not be reached.
    async fn forget_in(&self, environment: &NamedEnvironment) {
        let Ok(listed) = environment.processes().list().await else { return };
        let crowded: Vec<Arc<Session>> = {
            let state = self.lock();
            let sessions = state.sessions.iter().map(|(session, _)| session);
            sessions.filter(|session| session.process_count() > CLOSED_PROCESSES).cloned().collect()
        };
        for session in crowded {
            let surplus = session.process_count().saturating_sub(CLOSED_PROCESSES / 2);
            let closed = listed.iter().filter(|info| info.head.closed);
            let closed = closed.filter_map(|info| self.find_listed(environment, info));
            let own = closed.filter(|(owner, _)| owner.id == session.id).map(|(_, process)| async move {
                has_tree_ended(process.environment.processes(), &process.id).await.then_some(process)
            });
            for process in join_all(own).await.into_iter().flatten().take(surplus) {
                self.forget(&session, &process).await;
            }
        }
        let now = Instant::now();
        let mut kept_long = Vec::new();
        for info in &listed {
            match self.find_listed(environment, info) {
                Some((session, process))
                    if info.head.closed && process.record_closed(now) >= process.keep_time(self.options.keep_max) =>
                {
                    kept_long.push(self.forget_unless_left(session, process));
                }
                Some(_) => {}
                None if self.is_orphan(environment, info) => {
                    let _ = environment.processes().forget(&info.id).await;
                }
                None => {}
            }
        }
        join_all(kept_long).await;
    }

    /// Forgets a closed process, but not while something that it has started lives on: that would end it.
    async fn forget_unless_left(&self, session: Arc<Session>, process: Arc<SessionProcess>) {
        if has_tree_ended(process.environment.processes(), &process.id).await {
            self.forget(&session, &process).await;
        }
    }

    /// Whether the session of a process has ended. On this machine whoever ends a session ends its processes at once, and
    /// another server may have some, too.
    fn is_orphan(&self, environment: &NamedEnvironment, info: &ProcessInfo) -> bool {
        let Some(label) = ProcessLabel::decode(&info.label).filter(|_| &*environment.id != LOCAL) else { return false };
        self.lock().sessions.get(&label.session).is_none()
    }

    /// A process that the environment has listed, and the session that it belongs to.
    fn find_listed(
        &self,
        environment: &NamedEnvironment,
        info: &ProcessInfo,
    ) -> Option<(Arc<Session>, Arc<SessionProcess>)> {
        let label = ProcessLabel::decode(&info.label)?;
        let session = self.lock().sessions.get(&label.session)?;
        match session.find(&label.wire_id) {
            Lookup::Present(process) if process.id == info.id && process.environment.is_same(environment) => {
                Some((session, process))
            }
            _ => None,
        }
    }

    async fn forget(&self, session: &Session, process: &Arc<SessionProcess>) {
        session.remove_process(process);
        let _ = process.environment.processes().forget(&process.id).await;
    }

    /// The session is no longer in the table.
    async fn end_session(&self, session: &Session, reason: &'static str) {
        session.mark_ended();
        self.lock().dismiss_observers(session);
        self.store.remove(&session.id);
        self.audit_closed_session(session, reason).await;
        // Those in one environment do not wait for those in another, which may not answer.
        let places = session.environments().into_iter().map(|environment| async move {
            let here = session.processes().into_iter().filter(|process| process.environment.is_same(&environment));
            for process in here {
                self.forget(session, &process).await;
            }
        });
        join_all(places).await;
    }

    fn store_session(&self, session: &Session, ttl: Duration) {
        if let Err(error) = self.store.save(session, ttl) {
            tracing::error!(session = session.id, %error, "the session would not survive a restart; it is stored when that is possible");
        }
    }

    /// Before a session gets a process, and now and then: a disk that was full may have room again.
    pub(crate) fn store_unsaved(&self, session: &Session) {
        if self.store.save_again(session) {
            tracing::info!(session = session.id, "the session is stored by now, and survives a restart");
        }
    }

    fn granted_ttl(&self, asked: Option<Duration>) -> Duration {
        asked.unwrap_or(self.options.detached_ttl).min(self.options.detached_ttl_max)
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of a connection in the server. However the connection ends, even if its task is dropped, its session is
/// detached.
pub(crate) struct Registration {
    server: Arc<Server>,
    pub(crate) id: ConnectionId,
    owner: SessionOwner,
    /// Whom its token names; `None` if it needed none.
    subject: Option<String>,
    session_id: Option<String>,
    ended: bool,
}

impl Registration {
    pub(crate) fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    pub(crate) fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut state = self.server.lock();
        state.connections.remove(&self.id);
        let left = self.session_id.as_ref().and_then(|session_id| state.leave(session_id, self.id));
        drop(state);
        match left {
            Some((session, true)) => self.server.tell_drive(&session),
            Some((session, false)) => session.tell_attendance(),
            None => {}
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end();
    }
}
