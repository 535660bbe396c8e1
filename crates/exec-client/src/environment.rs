//! The environment itself: connecting, information about the machine, closing.

use std::sync::Arc;
use std::time::Duration;

use exec_env::{Environment, Files, Http, MachineInfo, Processes, Streams};
use exec_transport::{ConnectOptions, Target};
use exec_wire::environment::{EnvironmentInfo, InfoParams};

use exec_wire::process::round_up_to_millis;
use exec_wire::session::{CloseParams, Role};
use exec_wire::{Extension, Method};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::convert;
use crate::dial::{Dial, TargetDial};
use crate::error::CallError;
use crate::files::RemoteFiles;
use crate::http::RemoteHttp;
use crate::inbox::{Inbox, InboxLimits};
use crate::limits::{CALL_DEADLINE, INITIALIZE_TIMEOUT, INTRODUCTION_BYTES, LONGEST_RECONNECT};
use crate::link::driver::{Driver, InitializeOptions};
use crate::link::{Link, LinkMetrics, LinkShared, LinkState};
use crate::processes::RemoteProcesses;
use crate::session::{LossKind, Session, SessionLoss, SessionTimeouts, random_seed};
use crate::streams::RemoteStreams;

/// How to connect, and what to do when the connection breaks.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of this client, for the server's log.
    pub client_name: String,
    /// How long we try to resume a session that was live; [`Dial::give_up`] if `None`.
    pub give_up: Option<Duration>,
    /// How long an ordinary call may stay unanswered on a live connection.
    pub call_deadline: Duration,
    /// How long `initialize` may stay unanswered.
    pub initialize_timeout: Duration,
    /// How long the session should live without a connection; the server's default if `None`.
    pub detached_ttl: Option<Duration>,
    /// The id of a session to resume, for example one that another client has left behind.
    pub resume_session: Option<String>,
    /// What this client is to the session: its driver, or an observer of the one in `resume_session`. With `None` it drives,
    /// and is not told of others.
    pub role: Option<Role>,
    /// Which environment of the server to work on, if it has several; its default if `None`.
    pub environment: Option<String>,
    /// Whether output may come as raw bytes rather than base64, where the transport can carry them.
    pub binary_frames: bool,
    /// How much pushed output may wait to be read.
    pub inbox_limits: InboxLimits,
    /// The seed of the jitter between attempts; random if `None`.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client_name: "exec-client".to_owned(),
            give_up: None,
            call_deadline: CALL_DEADLINE,
            initialize_timeout: INITIALIZE_TIMEOUT,
            detached_ttl: None,
            resume_session: None,
            role: None,
            environment: None,
            binary_frames: true,
            inbox_limits: InboxLimits::default(),
            seed: None,
        }
    }
}

/// Why there is no environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // `why` is for people: what happened, or what the server said.
pub enum ConnectFailure {
    /// There is no connection, or the server does not answer.
    #[error("{why}")]
    Unreachable { why: String },
    /// The server refuses us.
    #[error("{why}")]
    Refused { why: String },
    /// The session to resume does not exist any more.
    #[error("{why}: it has ended, or its server was restarted without its state")]
    UnknownSession { why: String },
}

/// Why an observer is not let in by a server that would have made it the driver.
pub(crate) const NO_OBSERVERS: &str = "this server knows no observers: it needs a newer exec-server";

impl ConnectFailure {
    /// Whether the server is one that knows no observers.
    pub fn is_for_want_of_observers(&self) -> bool {
        matches!(self, Self::Refused { why } if why == NO_OBSERVERS)
    }
}

/// Connects to a URL or a program.
pub async fn connect(
    target: Target,
    transport: ConnectOptions,
    options: Options,
) -> Result<RemoteEnvironment, ConnectFailure> {
    RemoteEnvironment::open(Arc::new(TargetDial::new(target, transport)), options).await
}

/// A machine at the far end of a connection. Dropping it closes the connection and leaves the session behind, detached;
/// [`Self::close`] does the same and waits for it, [`Self::end`] ends the session too.
#[derive(Debug)]
pub struct RemoteEnvironment {
    processes: RemoteProcesses,
    files: Arc<RemoteFiles>,
    http: RemoteHttp,
    streams: RemoteStreams,
    info: MachineInfo,
    link: Link,
    driver: JoinHandle<()>,
    /// Makes the driver close the connection, at the latest when this is dropped.
    shutdown: DropGuard,
}

impl RemoteEnvironment {
    /// Connects by `dial`, and again by `dial` whenever the connection breaks.
    pub async fn open(dial: Arc<dyn Dial>, options: Options) -> Result<Self, ConnectFailure> {
        let shared = Arc::new(LinkShared::new(options.call_deadline, Inbox::new(options.inbox_limits)));
        let link = Link::new(Arc::clone(&shared));
        let link = options.environment.as_deref().map(|id| link.for_environment(id)).unwrap_or(link);
        let timeouts = SessionTimeouts {
            give_up: options.give_up.unwrap_or_else(|| dial.give_up()).min(LONGEST_RECONNECT),
            initialize: options.initialize_timeout,
        };
        let seed = options.seed.unwrap_or_else(random_seed);
        let session = Session::new(timeouts, options.resume_session, seed);
        let initialize_options = InitializeOptions {
            client_name: options.client_name,
            detached_ttl_ms: options.detached_ttl.and_then(round_up_to_millis),
            binary_frames: options.binary_frames,
            role: options.role,
        };
        let shutdown = CancellationToken::new();
        let driver = Driver::new(Arc::clone(&shared), dial, session, initialize_options, shutdown.clone());
        let driver = tokio::spawn(driver.run());
        let shutdown = shutdown.drop_guard();
        wait_until_connected(&shared).await?;
        let info = match options.environment {
            None => machine_info(&link).await,
            Some(_) => info_of_named(&link).await,
        };
        let info = info.map_err(|error| ConnectFailure::Refused { why: error.to_string() })?;
        Ok(Self {
            processes: RemoteProcesses::new(link.clone()),
            files: Arc::new(RemoteFiles::new(link.clone())),
            http: RemoteHttp::new(link.clone()),
            streams: RemoteStreams::new(link.clone()),
            info,
            link,
            driver,
            shutdown,
        })
    }

    /// An environment behind the server at the far end, if it is a gateway to several: its calls go over this connection.
    pub async fn environment(self: &Arc<Self>, id: &str) -> Result<GatewayEnvironment, ConnectFailure> {
        let link = self.link.for_environment(id);
        let info = info_of_named(&link).await.map_err(|error| ConnectFailure::Refused { why: error.to_string() })?;
        Ok(GatewayEnvironment {
            processes: RemoteProcesses::new(link.clone()),
            files: Arc::new(RemoteFiles::new(link.clone())),
            http: RemoteHttp::new(link.clone()),
            streams: RemoteStreams::new(link),
            info,
            _gateway: Arc::clone(self),
        })
    }

    /// The link, for methods of the wire that no trait of the environment has.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The link in numbers.
    pub fn metrics(&self) -> LinkMetrics {
        self.link.metrics()
    }

    /// The id of the session, with which another client can resume it.
    pub fn session_id(&self) -> Option<String> {
        self.link.session_id()
    }

    /// Closes the connection. The session and its processes stay, detached.
    pub async fn close(self) {
        let Self { driver, shutdown, .. } = self;
        drop(shutdown);
        // It fails only if the driver panicked, which the panic hook has reported; then nothing is left to close.
        let _ = driver.await;
    }

    /// Ends the session, terminates all its processes, and closes the connection.
    pub async fn end(self) -> Result<(), CallError> {
        let ended = self.end_session().await;
        self.close().await;
        ended
    }

    /// Ends the session and terminates all its processes. Whatever is called later opens another.
    pub async fn end_session(&self) -> Result<(), CallError> {
        match self.link.session_id() {
            // It is not ours to end.
            _ if self.role() == Some(Role::Observer) => Ok(()),
            Some(session_id) if self.link.has(Method::SessionClose) => {
                let closed = self.link.call(CloseParams { session_id }).await;
                // On some servers only the operator may close sessions; then we terminate the processes one by one.
                if let Err(CallError::Refused { .. }) = closed {
                    return self.processes.terminate_all().await;
                }
                // The connection broke behind the close, and the server that we found again knows no such session: it is ended.
                let is_gone =
                    |state: &LinkState| matches!(state, LinkState::Lost(loss) if loss.kind == LossKind::UnknownSession);
                if closed.is_err() && is_gone(&self.link.states().borrow()) {
                    return Ok(());
                }
                closed.map(drop)
            }
            Some(_) => self.processes.terminate_all().await,
            None => Ok(()),
        }
    }
}

impl Environment for RemoteEnvironment {
    fn processes(&self) -> &dyn Processes {
        &self.processes
    }

    fn files(&self) -> &dyn Files {
        &*self.files
    }

    /// Whom its server serves is the server's business: to that, this client is one caller.
    fn files_for_caller(&self) -> Arc<dyn Files> {
        Arc::clone(&self.files) as Arc<dyn Files>
    }

    fn http(&self) -> &dyn Http {
        &self.http
    }

    fn streams(&self) -> &dyn Streams {
        &self.streams
    }

    fn info(&self) -> &MachineInfo {
        &self.info
    }
}

/// One of several environments behind a gateway, over the connection of a [`RemoteEnvironment`].
#[derive(Debug)]
pub struct GatewayEnvironment {
    processes: RemoteProcesses,
    files: Arc<RemoteFiles>,
    http: RemoteHttp,
    streams: RemoteStreams,
    info: MachineInfo,
    /// The connection ends with it.
    _gateway: Arc<RemoteEnvironment>,
}

impl Environment for GatewayEnvironment {
    fn processes(&self) -> &dyn Processes {
        &self.processes
    }

    fn files(&self) -> &dyn Files {
        &*self.files
    }

    fn files_for_caller(&self) -> Arc<dyn Files> {
        Arc::clone(&self.files) as Arc<dyn Files>
    }

    fn http(&self) -> &dyn Http {
        &self.http
    }

    fn streams(&self) -> &dyn Streams {
        &self.streams
    }

    fn info(&self) -> &MachineInfo {
        &self.info
    }
}

async fn wait_until_connected(shared: &LinkShared) -> Result<(), ConnectFailure> {
    let mut states = shared.link_state.subscribe();
    shared.request_connection();
    loop {
        match states.borrow_and_update().clone() {
            LinkState::Connected => return Ok(()),
            LinkState::Lost(loss) => return Err(loss.into()),
            LinkState::Connecting | LinkState::Reconnecting { .. } => {}
            LinkState::Ended => break,
        }
        if states.changed().await.is_err() {
            break;
        }
    }
    Err(ConnectFailure::Unreachable { why: "the link has ended".to_owned() })
}

/// Our server sends it with its answer to `initialize`; others are asked.
async fn machine_info(link: &Link) -> Result<MachineInfo, CallError> {
    let received = link.shared().lock().info.clone();
    let info = match received {
        Some(info) => info,
        // A gateway whose default environment is away is there all the same. Calls say what is wrong with that one.
        None if link.has(Extension::ENVIRONMENT_ID) => return Ok(MachineInfo::unknown()),
        None => {
            let info = ask_for_info(link).await?;
            let mut state = link.shared().lock();
            state.extensions = info.extensions.iter().cloned().collect();
            state.info = Some(info.clone());
            info
        }
    };
    Ok(convert::info(info))
}

/// What the environment is that the link names. The server's own extensions and capabilities stay those of its
/// introduction.
async fn info_of_named(link: &Link) -> Result<MachineInfo, CallError> {
    if !link.has(Extension::ENVIRONMENT_ID) {
        let why = "this server has one environment only: connect without naming one".to_owned();
        return Err(CallError::Lost { why });
    }
    let info = ask_for_info(link).await?;
    let mut state = link.shared().lock();
    if state.info.is_none() {
        state.info = Some(info.clone());
    }
    drop(state);
    Ok(convert::info(info))
}

async fn ask_for_info(link: &Link) -> Result<EnvironmentInfo, CallError> {
    let info = link.call(InfoParams {}).await?;
    let strings = [&info.shell.name, &info.shell.path].into_iter().chain(&info.extensions);
    let strings = strings.chain(&info.platform_os).chain(&info.executor_version);
    if strings.map(String::len).sum::<usize>() > INTRODUCTION_BYTES {
        let reason = format!("the server's introduction is longer than {INTRODUCTION_BYTES} bytes");
        return Err(CallError::Undecodable { method: Method::EnvironmentInfo, reason });
    }
    Ok(info)
}

impl From<SessionLoss> for ConnectFailure {
    fn from(loss: SessionLoss) -> Self {
        let why = loss.why;
        match loss.kind {
            LossKind::UnknownSession => Self::UnknownSession { why },
            LossKind::Refused | LossKind::TakenOver => Self::Refused { why },
            LossKind::Unreachable | LossKind::Ended => Self::Unreachable { why },
        }
    }
}
