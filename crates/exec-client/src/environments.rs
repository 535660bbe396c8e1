//! Which places there are: `environments.toml`, or a URL in a variable, or this machine alone.
//!
//! The file is `$EXEC_SERVER_HOME/environments.toml`, else `$CODEX_HOME/environments.toml`, else the one in `~/.codex`. If
//! it exists, it alone counts. Otherwise `EXEC_SERVER_URL`, else `CODEX_EXEC_SERVER_URL`: unset or blank means this
//! machine, `none` means no place at all, anything else is the one place `remote`. A variable is not judged before it is
//! used; a file is, whole, with its lines.
//!
//! Nothing is connected here before somebody asks; a connection that failed is tried again by the next who asks. What
//! `local` is, is not known here: the caller has it.

mod file;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exec_transport::{ConnectOptions, ConnectUrl, Program, Target};
use tokio::sync::OnceCell;

use crate::environment::{ConnectFailure, Options, RemoteEnvironment};

pub use file::{FileError, Problem};

/// The name of this machine.
pub const LOCAL: &str = "local";

/// The name of the place that a variable gives.
pub const REMOTE: &str = "remote";

/// The name of the file.
pub const FILE_NAME: &str = "environments.toml";

/// The places, in the order of their configuration, and which of them is meant if none is named.
#[derive(Debug)]
pub struct Environments {
    environments: Vec<ConfiguredEnvironment>,
    default: Option<String>,
}

/// One place.
#[derive(Debug)]
pub struct ConfiguredEnvironment {
    /// Its name, which stays the same as long as the configuration does.
    pub id: String,
    /// What it is.
    pub kind: EnvironmentKind,
}

/// What a place is.
#[derive(Debug)]
pub enum EnvironmentKind {
    /// This machine.
    Local,
    /// Another.
    Remote(Box<RemoteServer>),
}

/// A far place, connected when it is first asked for.
#[derive(Debug)]
pub struct RemoteServer {
    /// How to get there.
    pub endpoint: Endpoint,
    /// How long a connection may take to be made; what is usual if `None`.
    pub connect_timeout: Option<Duration>,
    /// How long `initialize` may stay unanswered; what is usual if `None`.
    pub initialize_timeout: Option<Duration>,
    /// Skills that must be there for the place to be of use; kept for whoever knows skills.
    pub required_skills: Vec<String>,
    environment: OnceCell<Arc<RemoteEnvironment>>,
}

/// How to get to a far place.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A server that listens.
    Url {
        /// Where.
        url: String,
        /// What it wants to see.
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

/// No place of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("environment `{id}` is not configured; there is {known}")]
pub struct UnknownEnvironment {
    /// The name.
    pub id: String,
    /// Those there are.
    pub known: String,
}

impl Environments {
    /// The places of this process's variables.
    pub fn discover() -> Result<Self, FileError> {
        Self::from_variables(&|name| std::env::var_os(name))
    }

    /// The places of these variables.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, FileError> {
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

    /// The places of a file; `None` if it does not exist.
    pub fn read(path: &Path) -> Result<Option<Self>, FileError> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, path).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError::Read { path: path.to_owned(), why: error.to_string() }),
        }
    }

    /// The places that `text` names; `path` is where it was found, for errors and for relative folders.
    pub fn parse(text: &str, path: &Path) -> Result<Self, FileError> {
        file::parse(text, path)
    }

    fn of(environments: Vec<ConfiguredEnvironment>, default: Option<&str>) -> Self {
        Self { environments, default: default.map(str::to_owned) }
    }

    /// All of them.
    pub fn all(&self) -> &[ConfiguredEnvironment] {
        &self.environments
    }

    /// The name of the one that is meant if none is named.
    pub fn default_id(&self) -> Option<&str> {
        self.default.as_deref()
    }

    /// The one of that name.
    pub fn get(&self, id: &str) -> Result<&ConfiguredEnvironment, UnknownEnvironment> {
        self.environments.iter().find(|place| place.id == id).ok_or_else(|| {
            let names: Vec<String> = self.environments.iter().map(|place| format!("`{}`", place.id)).collect();
            let known = if names.is_empty() { "none at all".to_owned() } else { names.join(", ") };
            UnknownEnvironment { id: id.to_owned(), known }
        })
    }
}

impl RemoteServer {
    /// A far place with nothing out of the ordinary.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            connect_timeout: None,
            initialize_timeout: None,
            required_skills: Vec::new(),
            environment: OnceCell::new(),
        }
    }

    /// The environment, connected once and shared by all who ask.
    pub async fn environment(&self, options: &Options) -> Result<Arc<RemoteEnvironment>, ConnectFailure> {
        let connect = async { self.connect(options.clone()).await.map(Arc::new) };
        self.environment.get_or_try_init(|| connect).await.cloned()
    }

    /// A connection of one's own.
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

/// Where the file would be.
fn home(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("EXEC_SERVER_HOME").or_else(|| set("CODEX_HOME")).or_else(|| set("HOME").map(|home| home.join(".codex")))
}
