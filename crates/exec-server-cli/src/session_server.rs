//! The server at which a front of ours (MCP, E2B) opens its sessions: that of this account, which is started if there is none,
//! or another machine's. Which one is chosen, and how long a session outlives its front, is the front's business.

use std::sync::Arc;
use std::time::Duration;

use exec_client::{ConnectFailure, Options, RemoteEnvironment};
use exec_router::limits::RECONNECT_TIME;

use crate::local_daemon::LocalDaemon;
use crate::target::RemoteTarget;

pub(crate) enum SessionServer {
    /// The server of this account.
    OfAccount(Arc<LocalDaemon>),
    Remote(Box<RemoteTarget>),
}

impl SessionServer {
    /// Opens a session, or goes on with one. A connection that breaks is made again for as long as we live.
    pub(crate) async fn open(
        &self,
        client_name: &str,
        detached_ttl: Duration,
        resume_session: Option<String>,
    ) -> Result<RemoteEnvironment, ConnectFailure> {
        let options = Options {
            client_name: client_name.to_owned(),
            give_up: Some(RECONNECT_TIME),
            detached_ttl: Some(detached_ttl),
            resume_session,
            ..Options::default()
        };
        match self {
            Self::OfAccount(daemon) => match RemoteEnvironment::open(daemon.clone(), options.clone()).await {
                // A server that was about to end, because nobody used it, has hung up on us. The next one is ours.
                Err(ConnectFailure::Unreachable { .. }) => RemoteEnvironment::open(daemon.clone(), options).await,
                opened => opened,
            },
            Self::Remote(remote) => remote.connect_quietly(options).await,
        }
    }
}
