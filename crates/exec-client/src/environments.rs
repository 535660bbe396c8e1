//! Which environments are configured: by `environments.toml`, by a URL in a variable, or this machine alone.
//!
//! The file is `$EXEC_SERVER_HOME/environments.toml`, else `$CODEX_HOME/environments.toml`, else the one in `~/.codex`. If
//! it exists, it alone counts. Otherwise `EXEC_SERVER_URL`, else `CODEX_EXEC_SERVER_URL`: unset or blank means this
//! machine, `none` means no environment at all, anything else is the one environment `remote`. A file is validated as a
//! whole when it is read; the URL in a variable only when it is used.
//!
//! No connection is made before somebody asks for it; one that failed is tried again when it is asked for again. How to
//! make the local environment is not known here: the caller knows.

mod config_file;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exec_transport::{ConnectOptions, ConnectUrl, Program, Target};
use tokio::sync::OnceCell;

use crate::environment::{ConnectFailure, Options, RemoteEnvironment};

pub use config_file::{ConfigFileError, ConfigProblem};

/// The id of this machine.
pub const LOCAL: &str = "local";

/// The id of the environment whose URL is in a variable.
pub const REMOTE: &str = "remote";

/// The name of the configuration file.
pub const FILE_NAME: &str = "environments.toml";

/// The configured environments in their order, and which of them is the default.
#[derive(Debug)]
pub struct Environments {
    environments: Vec<ConfiguredEnvironment>,
    default: Option<String>,
}

/// One environment of the configuration.
#[derive(Debug)]
pub struct ConfiguredEnvironment {
    /// Its id, which stays the same as long as the configuration does.
    pub id: String,
    /// Local or remote.
    pub kind: EnvironmentKind,
}

/// Where an environment is.
#[derive(Debug)]
pub enum EnvironmentKind {
    /// This machine.
    Local,
    /// Another machine, or another server on this one.
    Remote(Box<RemoteServer>),
}

/// A configured server, connected to when its environment is first asked for.
#[derive(Debug)]
pub struct RemoteServer {
    /// How to connect to it.
    pub endpoint: Endpoint,
    /// How long connecting may take; the default of the transport if `None`.
    pub connect_timeout: Option<Duration>,
    /// How long `initialize` may stay unanswered; the default of [`Options`] if `None`.
    pub initialize_timeout: Option<Duration>,
    /// Skills that the environment must have. They are not interpreted here, only kept for callers that know skills.
    pub required_skills: Vec<String>,
    environment: OnceCell<Arc<RemoteEnvironment>>,
}

/// How to connect to a server.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A server that listens.
    Url {
        /// As it was configured, not yet parsed.
        url: String,
        /// Sent as the `authorization` header.
        bearer_token: Option<String>,
    },
    /// A program that serves on its stdio; ssh, docker and kubectl are such programs.
    Program(Program),
}

impl std::fmt::Debug for Endpoint {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url { url, .. } => f.debug_struct("Url").field("url", url).finish_non_exhaustive(),
            Self::Program(program) => f.debug_tuple("Program").field(&program.program).finish(),
        }
    }
}

/// No environment has that id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("environment `{id}` is not configured; there is {known}")]
pub struct UnknownEnvironment {
    /// The id that was asked for.
    pub id: String,
    /// The ids there are, for a person.
    pub known: String,
}

impl Environments {
    /// The environments that the variables and the file of this process configure.
    pub fn discover() -> Result<Self, ConfigFileError> {
        Self::from_variables(&|name| std::env::var_os(name))
    }

    /// The same with these variables instead of the process's own.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, ConfigFileError> {
        if let Some(home) = home(variable)
            && let Some(environments) = Self::read(&home.join(FILE_NAME))?
        {
            return Ok(environments);
        }
        let url = variable("EXEC_SERVER_URL").or_else(|| variable("CODEX_EXEC_SERVER_URL")).unwrap_or_default();
        let url = url.to_string_lossy().trim().to_owned();
        Ok(match url.as_str() {
            "" => Self::of(
                vec![ConfiguredEnvironment { id: LOCAL.to_owned(), kind: EnvironmentKind::Local }],
                Some(LOCAL),
            ),
            none if none.eq_ignore_ascii_case("none") => Self::of(Vec::new(), None),
            _ => {
                let remote = RemoteServer::new(Endpoint::Url { url, bearer_token: None });
                let kind = EnvironmentKind::Remote(Box::new(remote));
                Self::of(vec![ConfiguredEnvironment { id: REMOTE.to_owned(), kind }], Some(REMOTE))
            }
        })
    }

    /// The environments that a file configures; `None` if it does not exist.
    pub fn read(path: &Path) -> Result<Option<Self>, ConfigFileError> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, path).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ConfigFileError::Read { path: path.to_owned(), why: error.to_string() }),
        }
    }

    fn of(environments: Vec<ConfiguredEnvironment>, default: Option<&str>) -> Self {
        Self { environments, default: default.map(str::to_owned) }
    }

    /// All of them, in the order of the configuration.
    pub fn all(&self) -> &[ConfiguredEnvironment] {
        &self.environments
    }

    /// The id of the default environment.
    pub fn default_id(&self) -> Option<&str> {
        self.default.as_deref()
    }

    /// The environment with this id.
    pub fn get(&self, id: &str) -> Result<&ConfiguredEnvironment, UnknownEnvironment> {
        self.environments.iter().find(|environment| environment.id == id).ok_or_else(|| {
            let names: Vec<String> =
                self.environments.iter().map(|environment| format!("`{}`", environment.id)).collect();
            let known = if names.is_empty() { "none at all".to_owned() } else { names.join(", ") };
            UnknownEnvironment { id: id.to_owned(), known }
        })
    }
}

impl RemoteServer {
    /// A server with default timeouts and no required skills.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            connect_timeout: None,
            initialize_timeout: None,
            required_skills: Vec::new(),
            environment: OnceCell::new(),
        }
    }

    /// The environment of the server, connected once and shared by all callers.
    pub async fn environment(&self, options: &Options) -> Result<Arc<RemoteEnvironment>, ConnectFailure> {
        let connect = async { self.connect(options.clone()).await.map(Arc::new) };
        self.environment.get_or_try_init(|| connect).await.cloned()
    }

    /// A new connection that is not shared.
    pub async fn connect(&self, mut options: Options) -> Result<RemoteEnvironment, ConnectFailure> {
        let mut transport = ConnectOptions::default();
        if let Some(timeout) = self.connect_timeout {
            transport.timeout = timeout;
        }
        if let Some(timeout) = self.initialize_timeout {
            options.initialize_timeout = timeout;
        }
        let target = match &self.endpoint {
            Endpoint::Program(program) => Target::Program(program.clone()),
            Endpoint::Url { url, bearer_token } => {
                transport.bearer_token.clone_from(bearer_token);
                let url = url.parse::<ConnectUrl>();
                Target::Url(url.map_err(|error| ConnectFailure::Unreachable { why: error.to_string() })?)
            }
        };
        crate::environment::connect(target, transport, options).await
    }
}

/// The directory of the configuration file.
fn home(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("EXEC_SERVER_HOME").or_else(|| set("CODEX_HOME")).or_else(|| set("HOME").map(|home| home.join(".codex")))
}
