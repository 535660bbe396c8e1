//! Where a run happens: this machine, embedded, or one at the far end of a connection.

use std::time::Duration;

use anyhow::Context;
use exec_client::{LinkState, Options, RemoteEnvironment};
use exec_core::limits::SPOOL_TOTAL_BYTES;
use exec_env::Environment;
use exec_local::LocalEnvironment;

use super::command::Setting;
use crate::place::{Place, There};
use crate::spinner::LinkNews;
use crate::terminal;

/// How long a run survives the loss of us. Longer than a lost connection is looked for, or finding it were no use.
const LIVES_WITHOUT_US: Duration = Duration::from_secs(60);

/// Where it happens.
pub(super) enum Machine {
    Here(Box<LocalEnvironment>),
    There { environment: Box<RemoteEnvironment>, name: String },
}

impl Machine {
    pub(super) async fn open(place: Place, spool_bytes: u64) -> anyhow::Result<Self> {
        match place {
            Place::Here => {
                let total = SPOOL_TOTAL_BYTES.max(spool_bytes);
                let options = exec_local::LocalOptions { spool_total_bytes: total, ..exec_local::LocalOptions::default() };
                let environment = LocalEnvironment::open(options).await.context("cannot set up this machine")?;
                Ok(Self::Here(Box::new(environment)))
            }
            Place::There(there) => {
                let environment = connect(&there, LIVES_WITHOUT_US).await?;
                Ok(Self::There { environment: Box::new(environment), name: there.address.to_string() })
            }
        }
    }

    pub(super) fn environment(&self) -> &dyn Environment {
        match self {
            Self::Here(environment) => environment.as_ref(),
            Self::There { environment, .. } => environment.as_ref(),
        }
    }

    /// What the words of a run mean there.
    pub(super) fn setting(&self) -> Setting {
        let size = terminal::size().filter(|_| self.can("process/start.size"));
        match self {
            Self::Here(_) => Setting::here(size),
            Self::There { environment, .. } => Setting::there(size, environment.info()),
        }
    }

    /// Whether it can do what not every server can; by the names of `exec_wire::environment::EXTENSIONS`.
    pub(super) fn can(&self, extension: &str) -> bool {
        match self {
            Self::Here(_) => true,
            Self::There { environment, .. } => environment.link().has(extension),
        }
    }

    /// News of the link, if there is one.
    pub(super) fn link(&self, raw: bool, quiet: bool) -> Option<LinkNews> {
        match self {
            Self::Here(_) => None,
            Self::There { environment, name } => Some(LinkNews::of(environment.link(), name.clone(), raw, quiet)),
        }
    }

    /// Whether anything can be asked at this moment.
    pub(super) fn is_within_reach(&self) -> bool {
        match self {
            Self::Here(_) => true,
            Self::There { environment, .. } => *environment.link().states().borrow() == LinkState::Connected,
        }
    }

    /// Ends everything that runs there for us. What cannot be reached ends by itself, when its session's time is over.
    pub(super) async fn end(self) {
        let within_reach = self.is_within_reach();
        match self {
            Self::Here(environment) => environment.end().await,
            Self::There { environment, .. } if within_reach => {
                if let Err(error) = environment.end().await {
                    tracing::debug!(%error, "the session ends by itself");
                }
            }
            Self::There { environment, .. } => environment.close().await,
        }
    }
}

/// Connects, with words for a person if it fails.
pub(super) async fn connect(there: &There, ttl: Duration) -> anyhow::Result<RemoteEnvironment> {
    let options = Options { detached_ttl: Some(ttl), ..Options::default() };
    let connected = there.connect(options).await;
    connected.map_err(|failure| anyhow::Error::msg(there.failure(&failure)))
}
