//! The environments there are, by id.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use exec_client::environments::{EnvironmentKind, RemoteServer};
use exec_env::process::Unreachable;
use exec_env::registry::{
    AddEnvironmentError, EnvironmentState, EnvironmentStatus, LOCAL, NewEnvironment, RemoveEnvironmentError,
};
use exec_env::{BoxFuture, EnvironmentRegistry, MachineInfo, SharedEnvironment};

use crate::environment::RoutedEnvironment;
use crate::limits::{END_TIMEOUT, ENVIRONMENTS, PATIENCE};
use crate::server_connection::{Connector, ServerConnection};
use crate::session_file::SessionFiles;

/// How a router works.
#[derive(Debug, Clone)]
pub struct RouterOptions {
    /// Where it is remembered which session each server has for us, so that the next router finds what runs there; `None` to
    /// remember nothing.
    pub state_dir: Option<PathBuf>,
    /// How long a call waits for a server that is away.
    pub patience: Duration,
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self { state_dir: None, patience: PATIENCE }
    }
}

/// Several environments, each by its id. Far ones are connected to when they are first used.
pub struct Router {
    /// In the order in which they were configured or added.
    entries: Mutex<Vec<RouterEntry>>,
    default: Option<String>,
    files: SessionFiles,
    options: RouterOptions,
}

/// An environment that somebody connects to who keeps its sessions in a way of their own.
pub struct ConnectorEntry {
    /// Its id.
    pub id: String,
    /// How it is reached.
    pub connector: Arc<dyn Connector>,
    /// How long a call waits for it while it is away.
    pub patience: Duration,
}

struct RouterEntry {
    id: String,
    environment: SharedEnvironment,
    /// `None` for this machine.
    connection: Option<Arc<ServerConnection>>,
}

impl Router {
    /// The environments of a configuration. `local` is this machine, which is left out if it is not given or not configured.
    pub fn open(
        configured: &exec_client::Environments,
        local: Option<SharedEnvironment>,
        options: RouterOptions,
    ) -> std::io::Result<Arc<Self>> {
        let files = SessionFiles::open(options.state_dir.as_deref())?;
        let router = Self { entries: Mutex::default(), default: None, files, options };
        let mut entries = Vec::new();
        for environment in configured.all() {
            entries.extend(match (&environment.kind, &local) {
                (EnvironmentKind::Remote(server), _) => Some(router.far(&environment.id, RemoteServer::clone(server))),
                (EnvironmentKind::Local, Some(local)) => {
                    Some(RouterEntry { id: environment.id.clone(), environment: Arc::clone(local), connection: None })
                }
                (EnvironmentKind::Local, None) => None,
            });
        }
        let default = configured.default_id().filter(|id| entries.iter().any(|entry| entry.id == *id));
        Ok(Arc::new(Self { entries: Mutex::new(entries), default: default.map(str::to_owned), ..router }))
    }

    /// These environments. `default` is one of them, if there is one.
    pub fn of_connectors(connections: Vec<ConnectorEntry>, default: Option<String>) -> Arc<Self> {
        let entries = connections.into_iter().map(|ConnectorEntry { id, connector, patience }| {
            let connection = ServerConnection::of_connector(id.clone(), connector, patience);
            RouterEntry {
                id,
                environment: Arc::new(RoutedEnvironment::new(Arc::clone(&connection))),
                connection: Some(connection),
            }
        });
        let (entries, options) = (Mutex::new(entries.collect()), RouterOptions::default());
        Arc::new(Self { entries, default, files: SessionFiles::nowhere(), options })
    }

    /// The environment with this id.
    pub fn environment(&self, id: &str) -> Option<SharedEnvironment> {
        self.lock().iter().find(|entry| entry.id == id).map(|entry| Arc::clone(&entry.environment))
    }

    /// Ends what was started through this router, in every environment that can be reached now, but not on this machine.
    pub async fn end(&self) {
        let connections: Vec<Arc<ServerConnection>> =
            self.lock().iter().filter_map(|entry| entry.connection.clone()).collect();
        let ends = futures_util::future::join_all(connections.iter().map(|connection| connection.end()));
        let _ = tokio::time::timeout(END_TIMEOUT, ends).await;
    }

    fn far(&self, id: &str, server: RemoteServer) -> RouterEntry {
        let connection = ServerConnection::of_server(id.to_owned(), server, self.files.clone(), self.options.patience);
        RouterEntry {
            id: id.to_owned(),
            environment: Arc::new(RoutedEnvironment::new(Arc::clone(&connection))),
            connection: Some(connection),
        }
    }

    fn describe(&self, entry: &RouterEntry) -> EnvironmentStatus {
        let is_default = self.default.as_deref() == Some(&entry.id);
        let id = entry.id.clone();
        match &entry.connection {
            None => {
                let (place, state) = ("this machine".to_owned(), EnvironmentState::Ready);
                EnvironmentStatus { id, is_default, place, state, was_used: true }
            }
            Some(connection) => {
                let (was_used, state) = (connection.was_used(), connection.status());
                EnvironmentStatus { id, is_default, place: connection.describe(), state, was_used }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RouterEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EnvironmentRegistry for Router {
    fn default_id(&self) -> Option<String> {
        self.default.clone()
    }

    fn get(&self, id: &str) -> Option<SharedEnvironment> {
        self.environment(id)
    }

    fn count(&self) -> usize {
        self.lock().len()
    }

    fn list(&self) -> Vec<EnvironmentStatus> {
        self.lock().iter().map(|entry| self.describe(entry)).collect()
    }

    fn status(&self, id: &str) -> Option<EnvironmentStatus> {
        self.lock().iter().find(|entry| entry.id == id).map(|entry| self.describe(entry))
    }

    fn info<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Option<Result<MachineInfo, Unreachable>>> {
        let entry = self.lock().iter().find(|entry| entry.id == id).map(|entry| {
            let environment = Arc::clone(&entry.environment);
            (environment, entry.connection.clone())
        });
        Box::pin(async move {
            let (environment, connection) = entry?;
            if let Some(connection) = connection
                && let Err(unreachable) = connection.connected().await
            {
                return Some(Err(unreachable));
            }
            Some(Ok(environment.info().clone()))
        })
    }

    fn add(&self, id: &str, new: NewEnvironment) -> Result<(), AddEnvironmentError> {
        let invalid = |why: String| AddEnvironmentError::Invalid { why };
        // A socket of this machine is not for others to name.
        if !new.url.trim_start().to_ascii_lowercase().starts_with("ws") {
            return Err(invalid(format!("environment url `{}` must use ws:// or wss://", new.url)));
        }
        let server = RemoteServer::checked(id, &new.url, new.bearer_token.as_deref());
        let mut server = server.map_err(|problem| invalid(problem.to_string()))?;
        server.connect_timeout = new.connect_timeout;
        let mut entries = self.lock();
        let Some(at) = entries.iter().position(|entry| entry.id == id) else {
            if entries.len() >= ENVIRONMENTS {
                return Err(AddEnvironmentError::Full { limit: ENVIRONMENTS });
            }
            entries.push(self.far(id, server));
            return Ok(());
        };
        if let Some(connection) = &entries[at].connection
            && !connection.reconfigure(&server)
        {
            connection.remove("leads to another server by now");
            entries[at] = self.far(id, server);
        }
        Ok(())
    }

    fn remove(&self, id: &str) -> Result<(), RemoveEnvironmentError> {
        let needed = |what| Err(RemoveEnvironmentError::Needed { id: id.to_owned(), what });
        let mut entries = self.lock();
        let Some(at) = entries.iter().position(|entry| entry.id == id) else {
            return Err(RemoveEnvironmentError::Unknown { id: id.to_owned() });
        };
        if id == LOCAL {
            return needed("the machine of the server itself");
        }
        if self.default.as_deref() == Some(id) {
            return needed("the default");
        }
        if let Some(connection) = entries.remove(at).connection {
            connection.remove("was removed");
        }
        Ok(())
    }
}
