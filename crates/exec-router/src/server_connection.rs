//! The connection to one far server: made when it is first used, kept, and made again when it broke.
//!
//! ```text
//!   idle ── a call ──► connecting ──────► connected ── broken, and coming back by itself ──┐
//!                        ▲   │ failed         ▲ └──────────────────────────────────────────┘
//!              a call ── failed               │ (the session was lost: connect anew)
//! ```
//!
//! A call waits for a connection that is being made for the first time as long as that takes. Where there was one, or
//! should have been, it waits [`PATIENCE`](crate::limits::PATIENCE) and then fails, with since when the server is away
//! and why. The client library resumes its session by itself; what is decided here is how long callers wait for it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use exec_client::environments::{Endpoint, RemoteServer};
use exec_client::{CallError, ConnectFailure, Link, LinkState, Options, RemoteEnvironment};
use exec_env::process::Unreachable;
use exec_env::registry::EnvironmentState;
use exec_env::{BoxFuture, Environment, MachineInfo, NetworkDecider};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::limits::{FAR_SESSION_TTL, FORGOTTEN_SESSION_TTL, RECONNECT_TIME, RETRY_PAUSE};
use crate::session_file::SessionFiles;

/// How an environment is reached by somebody who keeps its sessions in a way of their own.
pub trait Connector: Send + Sync + 'static {
    /// Connects. Called again when the session was lost for good; a connection that breaks comes back by itself.
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn LinkedEnvironment>, ConnectFailure>>;

    /// Where it leads, for people; never a secret.
    fn describe(&self) -> String;
}

/// An environment over a connection that may break.
pub trait LinkedEnvironment: Environment {
    /// The connection.
    fn link(&self) -> &Link;

    /// Ends the session, and all that runs in it.
    fn end_session(&self) -> BoxFuture<'_, Result<(), CallError>>;
}

impl LinkedEnvironment for RemoteEnvironment {
    fn link(&self) -> &Link {
        RemoteEnvironment::link(self)
    }

    fn end_session(&self) -> BoxFuture<'_, Result<(), CallError>> {
        Box::pin(RemoteEnvironment::end_session(self))
    }
}

pub(crate) struct ServerConnection {
    pub(crate) id: String,
    way: Way,
    state: watch::Sender<ConnectionState>,
    patience: Duration,
    decider: Mutex<Option<Arc<dyn NetworkDecider>>>,
    /// What the machine is, since it was first reached.
    pub(crate) info: OnceLock<MachineInfo>,
    /// The attempt that is under way, or the last one.
    attempt: Mutex<Option<JoinHandle<()>>>,
}

/// How we get there.
enum Way {
    /// To a server, in a session that we remember.
    Server {
        /// In a box, because it is much larger than the other way.
        server: Box<Mutex<RemoteServer>>,
        files: SessionFiles,
        /// How long the far server is asked to keep our session while we are away.
        session_ttl: Duration,
    },
    /// As somebody else knows.
    Other(Arc<dyn Connector>),
}

#[derive(Clone)]
enum ConnectionState {
    Idle,
    /// With what was known before, if it was away.
    Connecting(Option<Absence>),
    Connected(Arc<dyn LinkedEnvironment>),
    Failed {
        absence: Absence,
        /// When the last attempt failed.
        at: Instant,
    },
    /// It is not one of ours any more.
    Removed {
        why: &'static str,
    },
}

/// Since when a server cannot be reached, and why.
#[derive(Debug, Clone)]
struct Absence {
    since: Instant,
    why: String,
}

impl ServerConnection {
    pub(crate) fn of_server(id: String, server: RemoteServer, files: SessionFiles, patience: Duration) -> Arc<Self> {
        let session_ttl = if files.are_stored() { FAR_SESSION_TTL } else { FORGOTTEN_SESSION_TTL };
        Self::new(id, Way::Server { server: Box::new(Mutex::new(server)), files, session_ttl }, patience)
    }

    pub(crate) fn of_connector(id: String, connector: Arc<dyn Connector>, patience: Duration) -> Arc<Self> {
        Self::new(id, Way::Other(connector), patience)
    }

    fn new(id: String, way: Way, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            id,
            way,
            state: watch::Sender::new(ConnectionState::Idle),
            patience,
            decider: Mutex::default(),
            info: OnceLock::new(),
            attempt: Mutex::default(),
        })
    }

    /// The environment at the far end. Connects if there is no connection yet.
    pub(crate) async fn connected(self: &Arc<Self>) -> Result<Arc<dyn LinkedEnvironment>, Unreachable> {
        let mut states = self.state.subscribe();
        self.begin_attempt();
        let is_known_to_be_away = matches!(&*states.borrow(), ConnectionState::Connecting(Some(_)));
        let decided = states.wait_for(|state| !matches!(state, ConnectionState::Idle | ConnectionState::Connecting(_)));
        let decided = match is_known_to_be_away {
            true => tokio::time::timeout(self.patience, decided).await,
            false => Ok(decided.await),
        };
        if let Ok(Ok(state)) = decided
            && let ConnectionState::Connected(environment) = &*state
        {
            return Ok(Arc::clone(environment));
        }
        Err(self.unreachable())
    }

    /// The result of a call, unless the server goes away, or is taken away, and does not come back in time.
    pub(crate) async fn perform<T>(
        &self,
        environment: &dyn LinkedEnvironment,
        call: impl Future<Output = T>,
    ) -> Result<T, Unreachable> {
        tokio::select! {
            biased;
            done = call => Ok(done),
            () = self.away_too_long(environment) => Err(self.unreachable()),
        }
    }

    async fn away_too_long(&self, environment: &dyn LinkedEnvironment) {
        let mut states = environment.link().states();
        let mut own = self.state.subscribe();
        let removed = async {
            // The sender is ours, and lives as long as this.
            let _ = own.wait_for(|state| matches!(state, ConnectionState::Removed { .. })).await;
        };
        let away = async {
            loop {
                // Looked at before the outage is asked for, so that no change is missed.
                states.borrow_and_update();
                let left =
                    environment.link().outage().map(|outage| self.patience.saturating_sub(outage.since.elapsed()));
                match left {
                    Some(left) if left.is_zero() => return,
                    Some(left) => drop(tokio::time::timeout(left, states.changed()).await),
                    None if states.changed().await.is_ok() => {}
                    // The link has ended, and with it the call.
                    None => return std::future::pending().await,
                }
            }
        };
        tokio::select! {
            () = removed => {}
            () = away => {}
        }
    }

    /// Connects in the background, if there is no connection, none is being made, and the last attempt was a while ago.
    fn begin_attempt(self: &Arc<Self>) {
        let now = Instant::now();
        let begins = self.state.send_if_modified(|state| {
            let before = match state {
                ConnectionState::Idle => None,
                ConnectionState::Failed { absence, at } if now.duration_since(*at) >= RETRY_PAUSE => {
                    Some(absence.clone())
                }
                ConnectionState::Connected(environment) => match &*environment.link().states().borrow() {
                    LinkState::Lost(loss) => {
                        let since = environment.link().outage().map_or(now, |outage| outage.since);
                        Some(Absence { since, why: loss.why.clone() })
                    }
                    _ => return false,
                },
                ConnectionState::Failed { .. } | ConnectionState::Connecting(_) | ConnectionState::Removed { .. } => {
                    return false;
                }
            };
            *state = ConnectionState::Connecting(before);
            true
        });
        if begins {
            let connection = Arc::clone(self);
            *lock(&self.attempt) = Some(tokio::spawn(async move { connection.attempt().await }));
        }
    }

    async fn attempt(&self) {
        let connected = self.connect().await;
        let now = Instant::now();
        let fresh = match connected {
            Ok(environment) => {
                let _ = self.info.set(environment.info().clone());
                if let Some(decider) = lock(&self.decider).clone() {
                    environment.processes().set_network_decider(decider);
                }
                tracing::info!(environment = self.id, "connected");
                Ok(environment)
            }
            Err(failure) => {
                tracing::info!(environment = self.id, %failure, "cannot be reached");
                Err(failure.to_string())
            }
        };
        self.state.send_if_modified(|state| {
            let ConnectionState::Connecting(before) = state else { return false };
            *state = match fresh {
                Ok(environment) => ConnectionState::Connected(environment),
                Err(why) => {
                    let since = before.as_ref().map_or(now, |absence| absence.since);
                    ConnectionState::Failed { absence: Absence { since, why }, at: now }
                }
            };
            true
        });
    }

    async fn connect(&self) -> Result<Arc<dyn LinkedEnvironment>, ConnectFailure> {
        let (server, files, session_ttl) = match &self.way {
            Way::Server { server, files, session_ttl } => (lock(server).clone(), files, *session_ttl),
            Way::Other(connector) => return connector.connect().await,
        };
        let environment = self.connect_to(&server, files.load(&self.id), session_ttl).await?;
        if let Some(session) = environment.session_id()
            && let Err(error) = files.save(&self.id, &session)
        {
            tracing::error!(environment = self.id, %error, "its processes will not be found after a restart");
        }
        Ok(Arc::new(environment))
    }

    /// Resumes the session that the server has for us. If it has none any more, whatever was there is gone.
    async fn connect_to(
        &self,
        server: &RemoteServer,
        resume_session: Option<String>,
        session_ttl: Duration,
    ) -> Result<RemoteEnvironment, ConnectFailure> {
        let options = Options {
            client_name: "exec-server gateway".to_owned(),
            give_up: Some(RECONNECT_TIME),
            detached_ttl: Some(session_ttl),
            resume_session: resume_session.clone(),
            ..Options::default()
        };
        match server.connect(options.clone()).await {
            Err(ConnectFailure::UnknownSession { why }) if resume_session.is_some() => {
                tracing::warn!(environment = self.id, why, "it has lost our session, and what ran in it");
                server.connect(Options { resume_session: None, ..options }).await
            }
            connected => connected,
        }
    }

    /// Whether an earlier router has used it.
    pub(crate) fn was_used(&self) -> bool {
        match &self.way {
            Way::Server { files, .. } => files.load(&self.id).is_some(),
            // Whoever connects knows what earlier ones have left.
            Way::Other(_) => true,
        }
    }

    pub(crate) fn set_decider(&self, decider: Arc<dyn NetworkDecider>) {
        *lock(&self.decider) = Some(Arc::clone(&decider));
        if let ConnectionState::Connected(environment) = &*self.state.borrow() {
            environment.processes().set_network_decider(decider);
        }
    }

    /// Connects to this server from now on, if it is the same one: with another token or other timeouts.
    pub(crate) fn reconfigure(&self, server: &RemoteServer) -> bool {
        let Way::Server { server: own, .. } = &self.way else { return false };
        let mut own = lock(own);
        let is_same = matches!(
            (&own.endpoint, &server.endpoint),
            (Endpoint::Url { url: own, .. }, Endpoint::Url { url: new, .. }) if own == new
        );
        if is_same {
            *own = server.clone();
        }
        is_same
    }

    /// Ends the connection, and every call that is under way.
    pub(crate) fn remove(&self, why: &'static str) {
        self.state.send_replace(ConnectionState::Removed { why });
        if let Some(attempt) = lock(&self.attempt).take() {
            attempt.abort();
        }
    }

    /// Ends what runs there, if it can be reached now; otherwise that ends with our session there.
    pub(crate) async fn end(&self) {
        let ConnectionState::Connected(environment) = self.state.borrow().clone() else { return };
        if environment.link().outage().is_none() {
            match environment.end_session().await {
                Ok(()) => {
                    if let Way::Server { files, .. } = &self.way {
                        files.remove(&self.id);
                    }
                }
                Err(error) => tracing::warn!(environment = self.id, %error, "what runs there ends with its session"),
            }
        }
    }

    /// Where it is, for people; without the token, and without what a URL may have beside it.
    pub(crate) fn describe(&self) -> String {
        let server = match &self.way {
            Way::Server { server, .. } => lock(server),
            Way::Other(connector) => return connector.describe(),
        };
        match &server.endpoint {
            Endpoint::Url { url, .. } => without_secrets(url),
            // Its arguments may have secrets in them.
            Endpoint::Program(program) => format!("program {}", program.program.to_string_lossy()),
        }
    }

    pub(crate) fn status(&self) -> EnvironmentState {
        match &*self.state.borrow() {
            ConnectionState::Idle | ConnectionState::Connecting(None) => EnvironmentState::Pending,
            ConnectionState::Connecting(Some(absence)) | ConnectionState::Failed { absence, .. } => absence.state(),
            ConnectionState::Connected(environment) => match environment.link().outage() {
                None => EnvironmentState::Ready,
                Some(outage) => Absence { since: outage.since, why: outage.why }.state(),
            },
            ConnectionState::Removed { why } => {
                EnvironmentState::Disconnected { since: Duration::ZERO, why: (*why).to_owned() }
            }
        }
    }

    /// Since when it is away and why, for a person.
    fn unreachable(&self) -> Unreachable {
        let id = &self.id;
        let why = match (&*self.state.borrow(), self.status()) {
            (ConnectionState::Removed { why }, _) => format!("`{id}` {why}"),
            (_, EnvironmentState::Disconnected { since, why }) => {
                format!("`{id}` has been away for {}: {why}", readable(since))
            }
            (_, EnvironmentState::Ready | EnvironmentState::Pending) => format!("`{id}` does not answer"),
        };
        Unreachable { why }
    }
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        if let Some(attempt) = lock(&self.attempt).take() {
            attempt.abort();
        }
    }
}

impl Absence {
    fn state(&self) -> EnvironmentState {
        EnvironmentState::Disconnected { since: self.since.elapsed(), why: self.why.clone() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A URL without user, password and query, any of which may be a secret.
fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) =
                rest.split_once('/').map_or((rest, None), |(authority, path)| (authority, Some(path)));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{}", path.map(|path| format!("/{path}")).unwrap_or_default())
        }
        None => url.to_owned(),
    }
}

/// A time for people: `250 ms`, `12 s`, `3 min 5 s`, `2 h 7 min`.
fn readable(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds @ 1..=59 => format!("{seconds} s"),
        seconds @ 60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_two_units_at_most() {
        for (millis, told) in
            [(0, "0 ms"), (999, "999 ms"), (12_900, "12 s"), (185_000, "3 min 5 s"), (7_620_000, "2 h 7 min")]
        {
            assert_eq!(readable(Duration::from_millis(millis)), told);
        }
    }

    #[test]
    fn a_server_is_described_without_what_may_be_secret() {
        for (url, told) in [
            ("wss://user:s3cret@build:7000/x?token=s3cret#s3cret", "wss://build:7000/x"),
            ("ws://127.0.0.1:1", "ws://127.0.0.1:1"),
            ("unix:///run/a@b", "unix:///run/a@b"),
        ] {
            assert_eq!(without_secrets(url), told);
        }
    }
}
