//! Where a run happens: this machine, embedded, or one at the far end of a connection.

use std::time::Duration;

use anyhow::Context;
use exec_client::{LinkState, Options, RemoteEnvironment};
use exec_core::limits::SPOOL_TOTAL_BYTES;
use exec_env::Environment;
use exec_local::LocalEnvironment;

use super::command::CommandDefaults;
use crate::spinner::LinkMonitor;
use crate::target::{RemoteTarget, Target};
use crate::terminal;

/// How long a run survives the loss of us. Longer than a lost connection is looked for, or finding it were no use.
const DETACHED_TTL: Duration = Duration::from_secs(60);

/// Where it happens.
pub(super) enum RunEnvironment {
    Local(Box<LocalEnvironment>),
    Remote { environment: Box<RemoteEnvironment>, name: String },
}

impl RunEnvironment {
    pub(super) async fn open(target: Target, spool_bytes: u64) -> anyhow::Result<Self> {
        match target {
            Target::Local => {
                let total = SPOOL_TOTAL_BYTES.max(spool_bytes);
                let options = exec_local::LocalOptions { spool_total_bytes: total, ..exec_local::LocalOptions::default() };
                let environment = LocalEnvironment::open(options).await.context("cannot set up this machine")?;
                Ok(Self::Local(Box::new(environment)))
            }
            Target::Remote(remote) => {
                let environment = connect(&remote, DETACHED_TTL).await?;
                Ok(Self::Remote { environment: Box::new(environment), name: remote.address.to_string() })
            }
        }
    }

    pub(super) fn as_dyn(&self) -> &dyn Environment {
        match self {
            Self::Local(environment) => environment.as_ref(),
            Self::Remote { environment, .. } => environment.as_ref(),
        }
    }

    /// What the words of a run mean there.
    pub(super) fn command_defaults(&self) -> CommandDefaults {
        let size = terminal::size().filter(|_| self.supports("process/start.size"));
        match self {
            Self::Local(_) => CommandDefaults::local(size),
            Self::Remote { environment, .. } => CommandDefaults::remote(size, environment.info()),
        }
    }

    /// Whether it can do what not every server can; by the names of `exec_wire::environment::EXTENSIONS`.
    pub(super) fn supports(&self, extension: &str) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Remote { environment, .. } => environment.link().has(extension),
        }
    }

    /// News of the link, if there is one.
    pub(super) fn link_monitor(&self, raw: bool, quiet: bool) -> Option<LinkMonitor> {
        match self {
            Self::Local(_) => None,
            Self::Remote { environment, name } => Some(LinkMonitor::new(environment.link(), name.clone(), raw, quiet)),
        }
    }

    /// Whether anything can be asked at this moment.
    pub(super) fn is_connected(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Remote { environment, .. } => *environment.link().states().borrow() == LinkState::Connected,
        }
    }

    /// Ends everything that runs there for us. What cannot be reached ends by itself, when its session's time is over.
    pub(super) async fn end(self) {
        let is_connected = self.is_connected();
        match self {
            Self::Local(environment) => environment.end().await,
            Self::Remote { environment, .. } if is_connected => {
                if let Err(error) = environment.end().await {
                    tracing::debug!(%error, "the session ends by itself");
                }
            }
            Self::Remote { environment, .. } => environment.close().await,
        }
    }
}

/// Connects, with words for a person if it fails.
pub(super) async fn connect(remote: &RemoteTarget, ttl: Duration) -> anyhow::Result<RemoteEnvironment> {
    let options = Options { detached_ttl: Some(ttl), ..Options::default() };
    let connected = remote.connect(options).await;
    connected.map_err(|failure| anyhow::Error::msg(remote.explain(&failure)))
}
