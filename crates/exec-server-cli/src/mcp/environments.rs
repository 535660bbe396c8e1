//! Which environments the agent gets, and how each is reached: through the server of this account, or as environments.toml
//! says. The router connects to them when they are used, and knows since when one is away; each is a [`Sessions`].

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use exec_client::{ConnectFailure, Environments};
use exec_core::Environ;
use exec_env::BoxFuture;
use exec_env::registry::LOCAL;
use exec_router::limits::PATIENCE;
use exec_router::{Connector, ConnectorEntry, LinkedEnvironment, Router};
use exec_tools::environments::{
    CommandDefaults, EnvironmentUnavailable, Environments as ToolEnvironments, RegisteredEnvironments,
    TargetEnvironment,
};

use super::session_files::SessionFiles;
use super::sessions::Sessions;
use crate::args::{ConnectArgs, McpArgs};
use crate::local_daemon::{LocalDaemon, START_TIMEOUT};
use crate::sandbox_choice::SandboxChoice;
use crate::session_server::SessionServer;
use crate::target::{self, Target};

/// The environments of this command.
pub(super) struct McpEnvironments {
    pub(super) confined: Arc<ConfinedEnvironments>,
    connectors: Vec<Arc<SessionsConnector>>,
}

impl McpEnvironments {
    pub(super) fn choose(args: &McpArgs) -> anyhow::Result<Self> {
        let Targets { targets, default } = targets(args)?;
        let mut defaults = HashMap::new();
        let (mut entries, mut connectors) = (Vec::new(), Vec::new());
        for (id, target) in targets {
            let (server, patience) = match target {
                Target::Local => {
                    // The server has the directory and the variables of whoever needed it first; commands get ours.
                    let (workdir, environ) = (std::env::current_dir().ok(), Environ::exactly(std::env::vars_os()));
                    defaults.insert(id.clone(), CommandDefaults { workdir, environ });
                    // It may have to be started.
                    (SessionServer::OfAccount(Arc::new(LocalDaemon::of_this_account()?)), START_TIMEOUT)
                }
                Target::Remote(remote) => (SessionServer::Remote(remote), PATIENCE),
            };
            let connector = Arc::new(SessionsConnector::new(server)?);
            connectors.push(Arc::clone(&connector));
            entries.push(ConnectorEntry { id, connector, patience });
        }
        let router = Router::of_connectors(entries, default);
        let environments = RegisteredEnvironments::new(router, defaults);
        let sandbox = SandboxChoice::load(&args.sandbox)?;
        if let Some(sandbox) = &sandbox {
            // What is wrong with it is told now, and not to every call.
            sandbox.policy(Path::new("/"))?;
        }
        Ok(Self { confined: Arc::new(ConfinedEnvironments { environments, sandbox }), connectors })
    }

    /// Leaves what runs to the next one, everywhere at once.
    pub(super) async fn leave(&self) {
        futures_util::future::join_all(self.connectors.iter().map(|connector| connector.leave())).await;
    }
}

/// The environments, each in the sandbox of this command. Its workspace is where commands run that name no directory; what
/// a model names is not: it could name any.
pub(super) struct ConfinedEnvironments {
    environments: RegisteredEnvironments,
    sandbox: Option<SandboxChoice>,
}

impl ConfinedEnvironments {
    pub(super) fn sandbox_words(&self) -> Option<String> {
        self.sandbox.as_ref().map(SandboxChoice::words)
    }
}

impl ToolEnvironments for ConfinedEnvironments {
    fn find<'a>(&'a self, id: Option<&'a str>) -> BoxFuture<'a, Result<TargetEnvironment, EnvironmentUnavailable>> {
        Box::pin(async move {
            let target = self.environments.find(id).await?;
            let Some(sandbox) = &self.sandbox else { return Ok(target) };
            let policy = sandbox.policy(&target.resolve(None));
            let sandbox = policy.map_err(|why| EnvironmentUnavailable::Unreachable {
                id: target.id.clone(),
                why: format!("{why:#}"),
            })?;
            Ok(TargetEnvironment { sandbox, ..target })
        })
    }

    fn ids(&self) -> Vec<String> {
        self.environments.ids()
    }

    fn default_id(&self) -> Option<String> {
        self.environments.default_id()
    }
}

/// What the arguments mean.
struct Targets {
    /// With their ids.
    targets: Vec<(String, Target)>,
    /// The id of one of them.
    default: Option<String>,
}

fn targets(args: &McpArgs) -> anyhow::Result<Targets> {
    let named = args.target.environment.is_some() || args.target.connect.is_some();
    let known = match &args.environments {
        Some(file) => Environments::read(file)?.with_context(|| format!("{} does not exist", file.display()))?,
        // Whoever names one means no other.
        None if named => {
            let target = target::choose(&args.target)?;
            let id = id_of(&target);
            return Ok(Targets { targets: vec![(id.clone(), target)], default: Some(id) });
        }
        None => Environments::discover()?,
    };
    let default = match (&args.target.connect, &args.target.environment) {
        (Some(_), _) => None,
        (None, Some(environment)) => Some(environment.as_str()),
        (None, None) => known.default_id(),
    };
    let mut targets = Vec::new();
    for environment in known.all() {
        // A token of the command line is for the default, and not to be sent to every server there is.
        let is_default = default == Some(&environment.id);
        let connection = if is_default { args.target.connection.clone() } else { ConnectArgs::default() };
        targets.push((environment.id.clone(), target::by_id(&known, &environment.id, &connection)?));
    }
    let mut default = default.map(str::to_owned);
    if args.target.connect.is_some() {
        let target = target::choose(&args.target)?;
        default = Some(id_of(&target));
        targets.insert(0, (id_of(&target), target));
    }
    if targets.is_empty() {
        bail!("there is no environment, says {}: name one with --environment or --connect, or `local`", known.source());
    }
    if let Some(default) = &default
        && !targets.iter().any(|(id, _)| id == default)
    {
        known.get(default).with_context(|| format!("they come from {}", known.source()))?;
    }
    Ok(Targets { targets, default })
}

fn id_of(target: &Target) -> String {
    match target {
        Target::Local => LOCAL.to_owned(),
        Target::Remote(remote) => remote.address.to_string(),
    }
}

/// What the files of its sessions are found by.
fn address(server: &SessionServer) -> String {
    match server {
        SessionServer::OfAccount(_) => LOCAL.to_owned(),
        SessionServer::Remote(remote) => remote.address.to_string(),
    }
}

struct SessionsConnector {
    server: Arc<SessionServer>,
    files: SessionFiles,
    /// Of the last connection.
    sessions: Mutex<Option<Arc<Sessions>>>,
}

impl SessionsConnector {
    fn new(server: SessionServer) -> anyhow::Result<Self> {
        let files = SessionFiles::of_environment(&address(&server))?;
        Ok(Self { server: Arc::new(server), files, sessions: Mutex::default() })
    }

    async fn leave(&self) {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(sessions) = sessions {
            sessions.leave().await;
        }
    }
}

impl Connector for SessionsConnector {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn LinkedEnvironment>, ConnectFailure>> {
        Box::pin(async move {
            let sessions = Sessions::open(Arc::clone(&self.server), self.files.clone()).await?;
            *self.sessions.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&sessions));
            Ok(sessions as Arc<dyn LinkedEnvironment>)
        })
    }

    fn describe(&self) -> String {
        match &*self.server {
            SessionServer::OfAccount(_) => "this machine".to_owned(),
            SessionServer::Remote(remote) => remote.describe(),
        }
    }
}
