//! The server: an environment, its sessions, and the connections that come and go.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use exec_env::SharedEnvironment;
use exec_env::process::{ListError, ProcessInfo};
use exec_transport::Connection;
use exec_wire::environment::{Capabilities, EnvironmentInfo};
use exec_wire::error::RpcError;
use exec_wire::session as wire;
use tokio::sync::{Notify, watch};

use crate::connection::{self, CloseRequest};
use crate::convert;
use crate::limits::{
    CLOSED_PROCESSES, CLOSED_TTL, CONCURRENT_REQUESTS, DETACHED_TTL, DETACHED_TTL_MAX, HOUSEKEEPING_INTERVAL, SESSIONS,
};
use crate::reply;
use crate::session::{
    Attachment, ConnectionId, ProcessLabel, ProcessLookup, Session, SessionProcess, SessionStore, SessionTable,
    StoredSession, unix_ms,
};

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// How long a session lives without a connection.
    pub detached_ttl: Duration,
    /// The longest a client may ask for.
    pub detached_ttl_max: Duration,
    /// Requests of one connection that run at once.
    pub concurrent_requests: usize,
    /// Where sessions are stored for a server that comes back.
    pub state_dir: Option<PathBuf>,
    /// `session/*` for every connection, not only those of this machine.
    pub operators_everywhere: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            detached_ttl: DETACHED_TTL,
            detached_ttl_max: DETACHED_TTL_MAX,
            concurrent_requests: CONCURRENT_REQUESTS,
            state_dir: None,
            operators_everywhere: false,
        }
    }
}

/// Why a server could not begin.
#[derive(Debug, thiserror::Error)]
pub enum ServerStartError {
    /// The folder of sessions cannot be used.
    #[error("cannot use the folder of sessions below {path:?}: {error}")]
    SessionStore {
        /// The state folder.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The environment does not say what it runs.
    #[error(transparent)]
    List(#[from] ListError),
}

/// Serves an environment.
pub struct Server {
    environment: SharedEnvironment,
    options: ServerOptions,
    store: SessionStore,
    state: Mutex<ServerState>,
    next_connection: AtomicU64,
    /// Tells what this server remembers from what another did.
    response_cache_id: String,
    /// Some session has too many closed processes.
    too_many_processes: Notify,
}

#[derive(Default)]
struct ServerState {
    table: SessionTable,
    sessions: HashMap<String, Arc<Session>>,
    connections: HashMap<ConnectionId, watch::Sender<Option<CloseRequest>>>,
    stopping: bool,
}

impl Server {
    /// A server over `environment`. What an earlier one has left there and in the state folder is found again.
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
        };
        let found = server.environment.processes().list().await?;
        server.recover(found);
        Ok(Arc::new(server))
    }

    /// Serves one connection until it ends.
    pub async fn serve(self: &Arc<Self>, connection: Connection) {
        connection::serve(self.clone(), connection).await;
    }

    /// Ends expired sessions and lets go of processes that were closed long ago, for ever. Whoever runs the server
    /// carries this.
    pub async fn run_housekeeping(self: Arc<Self>) {
        let mut tick = tokio::time::interval(HOUSEKEEPING_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.too_many_processes.notified() => {}
            }
            let sessions: Vec<Arc<Session>> = self.lock().sessions.values().cloned().collect();
            for session in sessions.iter().filter(|session| session.count() > CLOSED_PROCESSES) {
                self.forget_surplus_processes(session).await;
            }
            let expired = self.lock().table.expire(Instant::now());
            for session in expired {
                tracing::info!(session, "expired");
                self.end_session(&session).await;
            }
            self.forget_closed_processes().await;
        }
    }

    /// Tells every connection that the server stops, and waits for none; whoever serves them awaits them.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        for connection in state.connections.values() {
            connection.send_replace(Some(CloseRequest::ServerStopping));
        }
    }

    pub(crate) fn environment(&self) -> &SharedEnvironment {
        &self.environment
    }

    /// Tells what this server remembers from what another did.
    pub(crate) fn response_cache_id(&self) -> &str {
        &self.response_cache_id
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.options
    }

    pub(crate) fn environment_info(&self) -> EnvironmentInfo {
        let capabilities = Capabilities {
            environment_config_read: true,
            fs_watch_missing: true,
            file_write_streaming: true,
            http_header_env_vars: true,
            ..Capabilities::default()
        };
        convert::environment_info(self.environment.info(), capabilities)
    }

    pub(crate) fn register_connection(&self) -> (ConnectionId, watch::Receiver<Option<CloseRequest>>) {
        let id = ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed));
        let mut state = self.lock();
        let request = state.stopping.then_some(CloseRequest::ServerStopping);
        let (sender, receiver) = watch::channel(request);
        state.connections.insert(id, sender);
        (id, receiver)
    }

    pub(crate) fn unregister_connection(&self, id: ConnectionId, session: Option<&Session>) {
        let mut state = self.lock();
        state.connections.remove(&id);
        if let Some(session) = session {
            state.table.detach(&session.id, id, Instant::now());
        }
    }

    pub(crate) fn open_session(
        &self,
        connection: ConnectionId,
        client_name: &str,
        ttl: Option<Duration>,
    ) -> Result<(Arc<Session>, Duration), RpcError> {
        let ttl = self.clamp_ttl(ttl);
        let id = uuid::Uuid::new_v4().to_string();
        let session = Session::new(id.clone(), client_name.to_owned(), unix_ms(SystemTime::now()));
        let session = Arc::new(session);
        {
            let mut state = self.lock();
            if state.table.len() >= SESSIONS {
                let text =
                    format!("the server has {SESSIONS} sessions: close some, or wait for detached ones to expire");
                return Err(reply::busy(text));
            }
            state.table.open(&id, connection, ttl);
            state.sessions.insert(id, session.clone());
        }
        self.save_session(&session, ttl);
        Ok((session, ttl))
    }

    pub(crate) fn resume_session(
        &self,
        connection: ConnectionId,
        id: &str,
        ttl: Option<Duration>,
    ) -> Result<(Arc<Session>, Duration), RpcError> {
        let asked = ttl.map(|ttl| self.clamp_ttl(Some(ttl)));
        let session = {
            let mut state = self.lock();
            let unknown = |()| RpcError::unknown_session(id);
            let evicted = state.table.attach(id, connection, asked, Instant::now()).map_err(unknown)?;
            if let Some(evicted) = evicted.and_then(|evicted| state.connections.get(&evicted)) {
                evicted.send_replace(Some(CloseRequest::TakenOver));
            }
            state.sessions.get(id).cloned().ok_or_else(|| RpcError::unknown_session(id))?
        };
        if let Some(ttl) = asked {
            self.save_session(&session, ttl);
        }
        Ok((session, asked.unwrap_or(self.options.detached_ttl)))
    }

    /// Every session, oldest first.
    pub(crate) fn sessions(&self) -> Vec<wire::SessionInfo> {
        let state = self.lock();
        let now = Instant::now();
        let mut sessions: Vec<wire::SessionInfo> = state
            .sessions
            .values()
            .filter_map(|session| {
                let attachment = match state.table.attachment(&session.id)? {
                    Attachment::Attached(connection) => {
                        wire::Attachment::Attached { peer: format!("connection {}", connection.0) }
                    }
                    Attachment::Detached { until } => wire::Attachment::Detached {
                        expires_in_ms: until.saturating_duration_since(now).as_millis() as u64,
                    },
                };
                Some(wire::SessionInfo {
                    session_id: session.id.clone(),
                    client_name: session.client_name.clone(),
                    opened_at_ms: session.opened_at_ms,
                    attachment,
                    processes: session.count() as u64,
                })
            })
            .collect();
        sessions.sort_by_key(|session| session.opened_at_ms);
        sessions
    }

    /// Ends a session and everything it runs; whether there was one.
    pub(crate) async fn close_session(&self, id: &str) -> bool {
        {
            let mut state = self.lock();
            let Some(attachment) = state.table.close(id) else { return false };
            if let Attachment::Attached(connection) = attachment
                && let Some(connection) = state.connections.get(&connection)
            {
                connection.send_replace(Some(CloseRequest::SessionClosed));
            }
        }
        self.end_session(id).await;
        true
    }

    /// A session with very many closed processes lets go of the oldest, at the housekeeper's next turn.
    pub(crate) fn wake_housekeeping_if_crowded(&self, session: &Session) {
        if session.count() > CLOSED_PROCESSES {
            self.too_many_processes.notify_one();
        }
    }

    async fn forget_surplus_processes(&self, session: &Session) {
        let Ok(listed) = self.environment.processes().list().await else { return };
        let surplus = session.count().saturating_sub(CLOSED_PROCESSES / 2);
        let closed =
            listed.into_iter().filter(|info| info.head.closed).filter_map(|info| find_listed_process(session, &info));
        for process in closed.take(surplus) {
            self.forget(session, &process).await;
        }
    }

    async fn forget_closed_processes(&self) {
        let Ok(listed) = self.environment.processes().list().await else { return };
        let sessions: HashMap<String, Arc<Session>> = self.lock().sessions.clone();
        let now = Instant::now();
        for info in listed.into_iter().filter(|info| info.head.closed) {
            let Some(label) = ProcessLabel::decode(&info.label) else { continue };
            let Some(session) = sessions.get(&label.session) else { continue };
            let Some(process) = find_listed_process(session, &info) else { continue };
            if process.record_closed(now) >= CLOSED_TTL {
                self.forget(session, &process).await;
            }
        }
    }

    async fn forget(&self, session: &Session, process: &Arc<SessionProcess>) {
        session.remove_process(process);
        let _ = self.environment.processes().forget(&process.id).await;
    }

    async fn end_session(&self, id: &str) {
        let session = self.lock().sessions.remove(id);
        self.store.remove(id);
        let Some(session) = session else { return };
        for process in session.processes() {
            self.forget(&session, &process).await;
        }
    }

    fn recover(&self, found: Vec<ProcessInfo>) {
        let now = Instant::now();
        let mut state = self.lock();
        for stored in self.store.load_all() {
            state.table.recover(&stored.id, stored.ttl, now);
            let session = Session::new(stored.id.clone(), stored.client_name, stored.opened_at_ms);
            state.sessions.insert(stored.id, Arc::new(session));
        }
        for info in found {
            let Some(label) = ProcessLabel::decode(&info.label) else { continue };
            let session = state.sessions.get(&label.session).cloned().unwrap_or_else(|| {
                // Its file was lost, but its processes were not.
                let session = Session::new(label.session.clone(), String::new(), unix_ms(info.started));
                let session = Arc::new(session);
                state.table.recover(&label.session, self.options.detached_ttl, now);
                state.sessions.insert(label.session.clone(), session.clone());
                session
            });
            session.insert_process(Arc::new(SessionProcess::new(label.wire_id, info.id)));
        }
    }

    fn save_session(&self, session: &Session, ttl: Duration) {
        let stored = StoredSession {
            id: session.id.clone(),
            client_name: session.client_name.clone(),
            ttl,
            opened_at_ms: session.opened_at_ms,
        };
        if let Err(error) = self.store.save(&stored) {
            tracing::error!(session = session.id, %error, "the session will not survive a restart of the server");
        }
    }

    fn clamp_ttl(&self, asked: Option<Duration>) -> Duration {
        asked.unwrap_or(self.options.detached_ttl).min(self.options.detached_ttl_max)
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find_listed_process(session: &Session, info: &ProcessInfo) -> Option<Arc<SessionProcess>> {
    let label = ProcessLabel::decode(&info.label).filter(|label| label.session == session.id)?;
    match session.find(&label.wire_id) {
        ProcessLookup::Live(process) if process.id == info.id => Some(process),
        _ => None,
    }
}
