//! `environment/*`: environments on other machines, which clients add by URL, and the one that this server works on.
//!
//! They are shared by all connections. How to connect is the embedder's knowledge ([`EnvironmentSource`]). A connection is
//! made in the background when an environment is added, and tried again when its information is asked for; `status` only
//! looks. Commands and files are always those of the server's own environment, as with Codex.
//!
//! ```text
//!   add ─► Pending ─► Connected ◄─► (the link breaks and recovers by itself, or is lost)
//!             ▲  └──► Failed ─┐                                                   │
//!             └──── info ─────┴───────────────────────────────────────────────────┘
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exec_env::{BoxFuture, Environment, MachineInfo};
use exec_wire::{PathUri, RpcError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use url::{Host, Url};

use crate::limits::{CONNECT_TIMEOUT, ENVIRONMENT_ID_BYTES, ENVIRONMENTS};
use crate::reply;
use crate::shapes::{
    EnvironmentAddParams, EnvironmentInfoResponse, EnvironmentShellInfo, EnvironmentStatusKind,
    EnvironmentStatusResponse,
};

/// The id of the environment that the server itself works on.
const LOCAL: &str = "local";

/// Knows how to connect to an environment on another machine.
pub trait EnvironmentSource: Send + Sync + 'static {
    /// Connects, within the target's timeout.
    fn connect(&self, target: ConnectTarget) -> BoxFuture<'static, Result<Box<dyn RemoteEnvironment>, ConnectError>>;
}

/// An environment that was connected to.
pub trait RemoteEnvironment: Send + Sync + 'static {
    fn environment(&self) -> &dyn Environment;

    fn connection(&self) -> ConnectionState;
}

/// How the connection to an environment is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionState {
    Connected,
    /// It has broken, and is being made again.
    Recovering,
    /// It has broken, and does not come back: the machine answers no more, or does not know us.
    Lost {
        /// In words for a person.
        why: String,
    },
}

/// Where an environment is.
#[derive(Clone)]
pub struct ConnectTarget {
    pub url: String,
    pub timeout: Duration,
    pub bearer_token: Option<String>,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectError {
    TimedOut,
    /// In words for a person, without the URL.
    Failed {
        why: String,
    },
}

/// The remote environments of a server.
pub(crate) struct Environments {
    source: Arc<dyn EnvironmentSource>,
    entries: Mutex<HashMap<String, Arc<KnownEnvironment>>>,
}

struct KnownEnvironment {
    target: ConnectTarget,
    state: watch::Sender<State>,
    /// The attempt under way; it ends with the entry.
    attempt: Mutex<JoinSet<()>>,
}

#[derive(Clone)]
enum State {
    Pending,
    Failed(String),
    Connected(Arc<dyn RemoteEnvironment>),
}

impl Environments {
    pub(crate) fn new(source: Arc<dyn EnvironmentSource>) -> Self {
        Self { source, entries: Mutex::default() }
    }

    /// Adds an environment, or replaces the one of that id.
    pub(crate) fn add(&self, params: EnvironmentAddParams) -> Result<(), RpcError> {
        let EnvironmentAddParams { environment_id: id, exec_server_url, .. } = params;
        let url = exec_server_url.trim();
        let refuse = |why: String| Err(reply::bad_environment(why));
        if id.is_empty() {
            return refuse("environment id cannot be empty".to_owned());
        }
        if id == LOCAL {
            return refuse(format!("environment id `{LOCAL}` is reserved for EnvironmentManager"));
        }
        if id.len() > ENVIRONMENT_ID_BYTES {
            return refuse(format!("environment id is longer than {ENVIRONMENT_ID_BYTES} bytes"));
        }
        if url.is_empty() {
            return refuse("remote environment requires an exec-server url".to_owned());
        }
        if url.eq_ignore_ascii_case("none") {
            return refuse("remote environment cannot use disabled exec-server url".to_owned());
        }
        let headers = [("authorization", &params.auth_bearer_token), ("x-request-id", &params.websocket_request_id)];
        if headers.iter().any(|(_, value)| value.is_some()) {
            check_confidential(url).map_err(reply::bad_environment)?;
        }
        for (header, value) in headers {
            if value.as_deref().is_some_and(|value| !is_header_value(value)) {
                return refuse(format!("invalid value for exec-server WebSocket header `{header}`"));
            }
        }
        let target = ConnectTarget {
            url: url.to_owned(),
            timeout: params.connect_timeout_ms.map_or(CONNECT_TIMEOUT, Duration::from_millis),
            bearer_token: params.auth_bearer_token,
        };
        let entry =
            Arc::new(KnownEnvironment { target, state: watch::Sender::new(State::Pending), attempt: Mutex::default() });
        let mut entries = self.entries.lock().expect("no holder of this lock panics");
        if entries.len() >= ENVIRONMENTS && !entries.contains_key(&id) {
            return refuse(format!("there are {ENVIRONMENTS} environments already"));
        }
        entry.attempt(&self.source);
        entries.insert(id, entry);
        Ok(())
    }

    /// What is known, without asking anybody.
    pub(crate) fn status(&self, id: &str) -> EnvironmentStatusResponse {
        let answer = |status, error| EnvironmentStatusResponse { status, error };
        if id == LOCAL {
            return answer(EnvironmentStatusKind::Ready, None);
        }
        let Some(entry) = self.find(id) else {
            return answer(EnvironmentStatusKind::Unknown, Some(reply::unknown_environment(id)));
        };
        match &*entry.state.borrow() {
            State::Pending => answer(EnvironmentStatusKind::Pending, None),
            State::Failed(why) => answer(EnvironmentStatusKind::Disconnected, Some(why.clone())),
            State::Connected(environment) => match environment.connection() {
                ConnectionState::Connected => answer(EnvironmentStatusKind::Ready, None),
                ConnectionState::Recovering => answer(
                    EnvironmentStatusKind::Disconnected,
                    Some("exec-server environment is recovering".to_owned()),
                ),
                ConnectionState::Lost { why } => answer(
                    EnvironmentStatusKind::Disconnected,
                    Some(format!("exec-server transport disconnected: {why}")),
                ),
            },
        }
    }

    /// What the machine is; `local` is the one that the server works on. An environment that could not be reached, or whose
    /// connection is lost, is tried once more.
    pub(crate) async fn info(&self, id: &str, local: &MachineInfo) -> Result<EnvironmentInfoResponse, RpcError> {
        if id == LOCAL {
            return Ok(info_of(local));
        }
        let entry = self.find(id).ok_or_else(|| reply::refused(reply::unknown_environment(id)))?;
        match entry.connected(&self.source).await {
            Ok(remote) => Ok(info_of(remote.environment().info())),
            Err(why) => Err(reply::internal(format!("failed to get info for environment `{id}`: {why}"))),
        }
    }

    fn find(&self, id: &str) -> Option<Arc<KnownEnvironment>> {
        self.entries.lock().expect("no holder of this lock panics").get(id).cloned()
    }
}

impl KnownEnvironment {
    /// Begins to connect.
    fn attempt(self: &Arc<Self>, source: &Arc<dyn EnvironmentSource>) {
        let mut attempt = self.attempt.lock().expect("no holder of this lock panics");
        // Attempts that are over.
        while attempt.try_join_next().is_some() {}
        // Of two who find it lost at the same time, one tries.
        if !attempt.is_empty() && matches!(*self.state.borrow(), State::Pending) {
            return;
        }
        self.state.send_replace(State::Pending);
        let connecting = source.connect(self.target.clone());
        let (state, ConnectTarget { url, timeout, .. }) = (self.state.clone(), self.target.clone());
        attempt.spawn(async move {
            // The source keeps to the timeout as well, but must not be trusted with the client's patience.
            let connected = tokio::time::timeout(timeout, connecting).await.unwrap_or(Err(ConnectError::TimedOut));
            state.send_replace(match connected {
                Ok(environment) => State::Connected(environment.into()),
                Err(ConnectError::TimedOut) => State::Failed(format!(
                    "exec-server connection attempt failed: timed out connecting to exec-server websocket `{url}` after \
                     {timeout:?}"
                )),
                Err(ConnectError::Failed { why }) => State::Failed(format!(
                    "exec-server connection attempt failed: failed to connect to exec-server websocket `{url}`: {why}"
                )),
            });
        });
    }

    async fn connected(
        self: &Arc<Self>,
        source: &Arc<dyn EnvironmentSource>,
    ) -> Result<Arc<dyn RemoteEnvironment>, String> {
        let mut state = self.state.subscribe();
        let mut may_try = true;
        loop {
            let now = state.borrow_and_update().clone();
            match now {
                State::Connected(environment) => match environment.connection() {
                    ConnectionState::Lost { .. } if may_try => self.attempt(source),
                    _ => return Ok(environment),
                },
                State::Failed(_) if may_try => self.attempt(source),
                State::Failed(why) => return Err(why),
                State::Pending => {
                    state.changed().await.map_err(|_| "the environment was replaced".to_owned())?;
                }
            }
            may_try = false;
        }
    }
}

fn info_of(info: &MachineInfo) -> EnvironmentInfoResponse {
    let cwd = info.cwd.as_deref().and_then(|cwd| PathUri::from_path(cwd).ok());
    EnvironmentInfoResponse {
        shell: EnvironmentShellInfo {
            name: info.shell.name.clone(),
            path: info.shell.path.to_string_lossy().into_owned(),
        },
        cwd: cwd.map(|uri| uri.as_str().to_owned()),
    }
}

/// A token is sent in the clear over `ws://`, so nothing but this machine may be at the other end.
fn check_confidential(url: &str) -> Result<(), String> {
    let url = Url::parse(url).map_err(|error| format!("invalid exec-server WebSocket URL: {error}"))?;
    let loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        None => false,
    };
    match loopback || url.scheme() == "wss" {
        true => Ok(()),
        false => Err("exec-server WebSocket headers require wss:// or a loopback destination".to_owned()),
    }
}

/// Whether a header of HTTP may have this value.
pub(crate) fn is_header_value(text: &str) -> bool {
    text.bytes().all(|byte| (byte >= 0x20 && byte != 0x7f) || byte == b'\t')
}
