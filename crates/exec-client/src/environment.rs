//! The environment itself: connecting, what the machine is, and leaving.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use exec_env::{Environment, Files, Http, MachineInfo, Processes};
use exec_transport::{ConnectOptions, Target};
use exec_wire::environment::InfoParams;
use exec_wire::session::CloseParams;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::convert;
use crate::dial::{Dial, TargetDial};
use crate::error::CallError;
use crate::files::RemoteFiles;
use crate::http::RemoteHttp;
use crate::inbox::{Inbox, InboxLimits};
use crate::limits::{CALL_DEADLINE, INITIALIZE_TIMEOUT};
use crate::link::driver::{Driver, InitializeOptions};
use crate::link::shared::Shared;
use crate::link::{Link, LinkMetrics, LinkState};
use crate::processes::RemoteProcesses;
use crate::session::{LossKind, Session, SessionLoss, SessionTimeouts};

/// How to be a client.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who we are, for the server's log.
    pub client_name: String,
    /// How long a session that was live is tried to be found again; what is usual for the way if `None`.
    pub give_up: Option<Duration>,
    /// How long an ordinary call may stay unanswered on a live connection.
    pub call_deadline: Duration,
    /// How long `initialize` may stay unanswered.
    pub initialize_timeout: Duration,
    /// How long the session should live without a connection; the server's own choice if `None`.
    pub detached_ttl: Option<Duration>,
    /// A session to go on with, as one that another client has left behind.
    pub resume_session: Option<String>,
    /// Whether output may come as raw bytes rather than base64, where the transport can carry them.
    pub binary_frames: bool,
    /// How much pushed output may wait to be read.
    pub inbox_limits: InboxLimits,
    /// Of the jitter between tries; random if `None`.
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
            binary_frames: true,
            inbox_limits: InboxLimits::default(),
            seed: None,
        }
    }
}

/// Why there is no environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectFailure {
    /// Nobody answers.
    #[error("{why}")]
    Unreachable {
        /// What happened.
        why: String,
    },
    /// Somebody answers, and says no.
    #[error("{why}")]
    Refused {
        /// What they said.
        why: String,
    },
    /// The session to go on with is not there any more.
    #[error("{why}: it has ended, or its server was restarted without its state")]
    UnknownSession {
        /// What the server said.
        why: String,
    },
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
    files: RemoteFiles,
    http: RemoteHttp,
    info: MachineInfo,
    link: Link,
    driver: JoinHandle<()>,
    /// Tells the driver to leave, at the latest when this is dropped.
    end: DropGuard,
}

impl RemoteEnvironment {
    /// Connects by any way there is.
    pub async fn open(dial: Arc<dyn Dial>, options: Options) -> Result<Self, ConnectFailure> {
        let shared = Arc::new(Shared::new(options.call_deadline, Inbox::new(options.inbox_limits)));
        let link = Link::new(Arc::clone(&shared));
        let timeouts = SessionTimeouts {
            give_up: options.give_up.unwrap_or_else(|| dial.give_up()),
            initialize: options.initialize_timeout,
        };
        let seed = options.seed.unwrap_or_else(random_seed);
        let session = Session::new(timeouts, options.resume_session, seed);
        let hello = InitializeOptions {
            client_name: options.client_name,
            detached_ttl_ms: options.detached_ttl.and_then(convert::millis),
            binary_frames: options.binary_frames,
        };
        let end = CancellationToken::new();
        let driver = tokio::spawn(Driver::new(Arc::clone(&shared), dial, session, hello, end.clone()).run());
        let end = end.drop_guard();
        connected(&shared).await?;
        let info = known_info(&link).await.map_err(|error| ConnectFailure::Refused { why: error.to_string() })?;
        Ok(Self {
            processes: RemoteProcesses::new(link.clone()),
            files: RemoteFiles::new(link.clone()),
            http: RemoteHttp::new(link.clone()),
            info,
            link,
            driver,
            end,
        })
    }

    /// The link, for verbs that are not of the waist.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The link in numbers.
    pub fn metrics(&self) -> LinkMetrics {
        self.link.metrics()
    }

    /// The session, by which another client can find it again.
    pub fn session_id(&self) -> Option<String> {
        self.link.session_id()
    }

    /// Closes the connection. The session and its processes stay, detached.
    pub async fn close(self) {
        let Self { driver, end, .. } = self;
        drop(end);
        // It panicked, and the panic hook has said so; there is nothing left to close.
        let _ = driver.await;
    }

    /// Ends the session with all its processes, and closes the connection.
    pub async fn end(self) -> Result<(), CallError> {
        let ended = self.end_session().await;
        self.close().await;
        ended
    }

    async fn end_session(&self) -> Result<(), CallError> {
        match self.link.session_id() {
            Some(session_id) if self.link.has("session/close") => {
                let closed = self.link.call(CloseParams { session_id }).await;
                // A server whose operator alone may close sessions: then its processes are ended one by one.
                if let Err(CallError::Refused { .. }) = closed {
                    return self.processes.terminate_all().await;
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
        &self.files
    }

    fn http(&self) -> &dyn Http {
        &self.http
    }

    fn info(&self) -> &MachineInfo {
        &self.info
    }
}

/// Waits for the first session.
async fn connected(shared: &Shared) -> Result<(), ConnectFailure> {
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

/// What the server told with its answer to initialize, or tells when asked.
async fn known_info(link: &Link) -> Result<MachineInfo, CallError> {
    let told = link.shared().lock().info.clone();
    let info = match told {
        Some(info) => info,
        None => {
            let info = link.call(InfoParams {}).await?;
            let mut state = link.shared().lock();
            state.extensions = info.extensions.iter().cloned().collect();
            info
        }
    };
    Ok(convert::info(info))
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

/// The standard library's own randomness, which is all that jitter needs.
pub(crate) fn random_seed() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
