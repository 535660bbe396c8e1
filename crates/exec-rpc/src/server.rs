//! The server: an environment, its sessions, and the connections that come and go.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use exec_env::SharedEnvironment;
use exec_env::process::{ProcessInfo, Unreachable, WaitCondition};
use exec_transport::{Connection, Peer};
use exec_wire::error::RpcError;
use exec_wire::limits::{MESSAGE_BYTES, MESSAGE_VALUES};
use exec_wire::session as wire;
use tokio::sync::{Notify, watch};

use crate::audit::{self, AuditEvent, AuditSink};
use crate::ceiling::{Ceiling, ProcessLimits, Violation};
use crate::connection::{self, CloseRequest};
use crate::limits::{
    CLIENT_NAME_BYTES, CLOSE_TIMEOUT, CLOSED_PROCESSES, CONCURRENT_REQUESTS, DETACHED_TTL, DETACHED_TTL_MAX,
    HOUSEKEEPING_INTERVAL, KEEP_MAX, SESSIONS, SESSIONS_PER_PEER,
};
use crate::network::NetworkFront;
use crate::reply;
use crate::reservations::Lookup;
use crate::running::{CountedProcess, ExitWaits, RunningCounts};
use crate::session::{
    Attachment, ConnectionId, NoRoom, ProcessLabel, Session, SessionOwner, SessionProcess, SessionStore, SessionTable,
    unix_ms,
};

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

/// Serves an environment to any number of connections.
pub struct Server {
    pub(crate) environment: SharedEnvironment,
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
}

const _: () = assert!(SESSIONS * 9 + 8 <= MESSAGE_VALUES && SESSIONS * (CLIENT_NAME_BYTES * 6 + 512) <= MESSAGE_BYTES);

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
        let store = SessionStore::open(options.state_dir.as_deref()).map_err(|error| {
            ServerStartError::SessionStore { path: options.state_dir.clone().unwrap_or_default(), error }
        })?;
        let server = Self {
            environment,
            options,
            store,
            state: Mutex::default(),
            next_connection: AtomicU64::new(1),
            response_cache_id: uuid::Uuid::new_v4().to_string(),
            too_many_processes: Notify::new(),
            running: Arc::default(),
            exit_waits: ExitWaits::default(),
        };
        let processes = server.environment.processes().list().await?;
        server.recover(processes);
        let server = Arc::new(server);
        server.environment.processes().set_network_decider(Arc::new(NetworkFront::new(&server)));
        Ok(server)
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
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.too_many_processes.notified() => {}
            }
            let sessions: Vec<Arc<Session>> = self.lock().sessions.iter().map(|(session, _)| session.clone()).collect();
            for session in sessions.iter().filter(|session| session.process_count() > CLOSED_PROCESSES) {
                self.forget_surplus_processes(session).await;
            }
            let expired = self.lock().sessions.expire(Instant::now());
            for session in expired {
                tracing::info!(session = session.id, "expired");
                self.end_session(&session, "expired").await;
            }
            self.forget_closed_processes().await;
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
        client_name: &str,
        scope: Option<&str>,
        ttl: Option<Duration>,
    ) -> Result<(Arc<Session>, Duration), RpcError> {
        let ttl = self.granted_ttl(ttl);
        let id = uuid::Uuid::new_v4().to_string();
        let (name, opened_at_ms) = (client_name.to_owned(), unix_ms(SystemTime::now()));
        let session = Session::new(id, name, opened_at_ms, registration.owner.clone());
        let session = Arc::new(session.opened_by(registration.subject.clone()));
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
        scope: Option<&str>,
        only_if_held: bool,
        ttl: Option<Duration>,
    ) -> Result<(Arc<Session>, Duration), RpcError> {
        let new_ttl = ttl.map(|ttl| self.granted_ttl(Some(ttl)));
        let scope = scope.unwrap_or_default();
        let (session, ttl, same_holder) = {
            let mut state = self.lock();
            if let Some(session) = state.sessions.get(id)
                && !session.may_be_resumed_by(registration.subject.as_deref())
            {
                tracing::warn!(session = id, "refused to a token of another subject");
                return Err(RpcError::unknown_session(id));
            }
            let holder = state.sessions.get(id).and_then(|session| session.holder());
            let same_holder = holder.as_deref() == Some(scope);
            if only_if_held && holder.is_some() && !same_holder {
                return Err(reply::taken_over(id));
            }
            let attached = state.sessions.attach(id, registration.id, new_ttl, Instant::now());
            let (session, ttl, evicted) = attached.ok_or_else(|| RpcError::unknown_session(id))?;
            session.set_holder(Some(scope));
            if let Some(evicted) = evicted.and_then(|evicted| state.connections.get(&evicted)) {
                evicted.send_replace(Some(CloseRequest::TakenOver));
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

    /// Every session, oldest first. All fit a message: each is nine values, and its client's name may be all escapes.
    pub(crate) fn sessions(&self) -> Vec<wire::SessionInfo> {
        let now = Instant::now();
        let info = |(session, attachment): (&Arc<Session>, Attachment)| wire::SessionInfo {
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
        };
        let mut sessions: Vec<wire::SessionInfo> = self.lock().sessions.iter().map(info).collect();
        sessions.sort_by_key(|session| session.opened_at_ms);
        sessions
    }

    /// Ends a session and everything it runs; `false` if there is none.
    pub(crate) async fn close_session(&self, id: &str) -> bool {
        let session = {
            let mut state = self.lock();
            let Some((session, attachment)) = state.sessions.remove(id) else { return false };
            if let Attachment::Attached(connection) = attachment
                && let Some(connection) = state.connections.get(&connection)
            {
                connection.send_replace(Some(CloseRequest::SessionClosed));
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
    pub(crate) fn await_exit(&self, session: &Session, process: &Arc<SessionProcess>, counted: Option<CountedProcess>) {
        // An earlier server may have told it.
        let audit = self.audit().filter(|audit| !audit.knows_exit(&session.id, &process.wire_id)).cloned();
        if counted.is_none() && audit.is_none() {
            return;
        }
        let (environment, session, process) = (self.environment.clone(), session.id.clone(), Arc::clone(process));
        self.exit_waits.spawn(async move {
            // One that was forgotten has exited as well.
            let waited = environment.processes().wait(&process.id, WaitCondition::Exited, None).await;
            drop(counted);
            if let Some(audit) = audit {
                audit::record_exit(&audit, environment.processes(), session, &process, waited).await;
            }
        });
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

    async fn forget_surplus_processes(&self, session: &Session) {
        let Ok(listed) = self.environment.processes().list().await else { return };
        let surplus = session.process_count().saturating_sub(CLOSED_PROCESSES / 2);
        let closed = listed.iter().filter(|info| info.head.closed).filter_map(|info| self.find_listed(info));
        let own = closed.filter(|(owner, _)| owner.id == session.id);
        for (_, process) in own.take(surplus) {
            self.forget(session, &process).await;
        }
    }

    async fn forget_closed_processes(&self) {
        let Ok(listed) = self.environment.processes().list().await else { return };
        let now = Instant::now();
        for info in listed.iter().filter(|info| info.head.closed) {
            let Some((session, process)) = self.find_listed(info) else { continue };
            if process.record_closed(now) >= process.keep_time(self.options.keep_max) {
                self.forget(&session, &process).await;
            }
        }
    }

    /// A process that the environment has listed, and the session that it belongs to.
    fn find_listed(&self, info: &ProcessInfo) -> Option<(Arc<Session>, Arc<SessionProcess>)> {
        let label = ProcessLabel::decode(&info.label)?;
        let session = self.lock().sessions.get(&label.session)?;
        match session.find(&label.wire_id) {
            Lookup::Present(process) if process.id == info.id => Some((session, process)),
            _ => None,
        }
    }

    async fn forget(&self, session: &Session, process: &Arc<SessionProcess>) {
        session.remove_process(process);
        let _ = self.environment.processes().forget(&process.id).await;
    }

    /// The session is no longer in the table.
    async fn end_session(&self, session: &Session, reason: &'static str) {
        session.mark_ended();
        self.store.remove(&session.id);
        self.audit_closed_session(session, reason).await;
        for process in session.processes() {
            self.forget(session, &process).await;
        }
    }

    fn recover(&self, processes: Vec<ProcessInfo>) {
        let now = Instant::now();
        let mut state = self.lock();
        for (session, ttl) in self.store.load_all() {
            state.sessions.recover(Arc::new(session), ttl, now);
        }
        for info in processes {
            let Some(label) = ProcessLabel::decode(&info.label) else { continue };
            let session = state.sessions.get(&label.session).unwrap_or_else(|| {
                // The session's file was lost, but its processes were not.
                let (id, opened_at_ms) = (label.session.clone(), unix_ms(info.started));
                let session = Session::new(id, String::new(), opened_at_ms, SessionOwner::Host);
                let session = Arc::new(session);
                state.sessions.recover(session.clone(), self.options.detached_ttl, now);
                session
            });
            if !label.start_key.is_empty() {
                session.record_start(label.start_key);
            }
            let process = Arc::new(SessionProcess::new(label.wire_id, info.id, label.keep, label.sandboxed));
            // It was permitted when it was started, so it counts and is not judged again.
            let ceiling = &self.options.ceiling;
            let is_counted = ceiling.processes.is_some() || ceiling.processes_per_session.is_some();
            let no_limits = ProcessLimits { per_session: None, in_all: None };
            let counted = is_counted.then(|| self.running.count(&session.id, no_limits).ok()).flatten();
            self.await_exit(&session, &process, counted);
            session.insert_process(process);
        }
    }

    fn store_session(&self, session: &Session, ttl: Duration) {
        if let Err(error) = self.store.save(session, ttl) {
            tracing::error!(session = session.id, %error, "the session will not survive a restart of the server");
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
        if let Some(session_id) = &self.session_id {
            state.sessions.detach(session_id, self.id, Instant::now());
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end();
    }
}
