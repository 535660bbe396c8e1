//! What all connections share: the environment, the remote environments, and how this server describes itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exec_core::environ::Variables;
use exec_env::SharedEnvironment;
use exec_transport::Connection;
use tokio::sync::watch;

use crate::connection;
use crate::environments::{EnvironmentSource, Environments};

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct AppServerOptions {
    /// The version that clients are told.
    pub version: String,
    /// Codex's home, which clients are told; nothing of ours is in it.
    pub codex_home: PathBuf,
    /// The variables of the environment's machine, if this process has the same. Without them, a variable that a request
    /// unsets is unset whatever its case.
    pub machine_variables: Option<Variables>,
}

/// Serves one environment to any number of connections.
pub struct AppServer {
    pub(crate) environment: SharedEnvironment,
    pub(crate) environments: Environments,
    pub(crate) options: AppServerOptions,
    stopping: watch::Sender<bool>,
    connections: AtomicU64,
    /// Distinguishes the processes of this server from those of others in the same environment.
    pub(crate) run: u64,
}

impl AppServer {
    pub fn new(
        environment: SharedEnvironment,
        source: Arc<dyn EnvironmentSource>,
        options: AppServerOptions,
    ) -> Arc<Self> {
        use std::hash::{BuildHasher, Hasher};
        Arc::new(Self {
            environment,
            environments: Environments::new(source),
            options,
            stopping: watch::Sender::new(false),
            connections: AtomicU64::new(0),
            // The seed of the standard library's hash maps is random enough for this.
            run: std::hash::RandomState::new().build_hasher().finish(),
        })
    }

    /// Serves one connection until it ends, and ends its processes.
    pub async fn serve(self: Arc<Self>, connection: Connection) {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let stopping = self.stopping.subscribe();
        connection::serve(self, connection, number, stopping).await;
    }

    /// Ends all connections.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }
}
