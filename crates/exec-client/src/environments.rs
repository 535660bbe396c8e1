//! Which environments are configured: by `environments.toml`, by a URL in a variable, or this machine alone.
//!
//! The file is `environments.toml` in `$EXEC_SERVER_HOME`. If that is not set, it is the one in `~/.config/exec-server`, and
//! what the file in Codex's folder (`$CODEX_HOME` or `~/.codex`) has beside it. If there is a file, variables do not count.
//! Otherwise `EXEC_SERVER_URL`, else `CODEX_EXEC_SERVER_URL`: unset or blank means this
//! machine, `none` means no environment at all, anything else is the one environment `remote`. A file is validated as a
//! whole when it is read; the URL in a variable only when it is used.
//!
//! No connection is made before somebody asks for it; one that failed is tried again when it is asked for again. How to
//! make the local environment is not known here: the caller knows.

mod config_file;
mod save;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exec_transport::{ClientTls, ConnectOptions, ConnectUrl, Program, Target};
use tokio::sync::OnceCell;

use crate::bootstrap::{BootstrapDial, BootstrapOptions, BootstrapTarget};
use crate::environment::{ConnectFailure, Options, RemoteEnvironment};

pub use config_file::{ConfigFileError, ConfigProblem};
pub use save::{SaveError, SavedEnvironment, save, save_to};

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
    /// Whether the file says which is the default, rather than leaving it at that.
    names_default: bool,
    source: ConfigurationSource,
}

/// Where it is written which environments there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigurationSource {
    /// A configuration file.
    File(PathBuf),
    /// Our own, and Codex's.
    Files(PathBuf, PathBuf),
    /// A variable with a URL, or with `none`.
    Variable(&'static str),
    /// Nothing is configured, so there is this machine only.
    BuiltIn,
}

impl std::fmt::Display for ConfigurationSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Files(own, codex) => write!(f, "{} and {}", own.display(), codex.display()),
            Self::Variable(name) => f.write_str(name),
            Self::BuiltIn => f.write_str("built in"),
        }
    }
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
#[derive(Debug, Clone)]
pub struct RemoteServer {
    /// How to connect to it.
    pub endpoint: Endpoint,
    /// How long connecting may take; the default of the transport if `None`.
    pub connect_timeout: Option<Duration>,
    /// How long `initialize` may stay unanswered; the default of [`Options`] if `None`.
    pub initialize_timeout: Option<Duration>,
    /// How long a broken connection is looked for; the default of [`Options`] if `None`, which wins if it has one.
    pub reconnect_timeout: Option<Duration>,
    /// The variable with the token, if the endpoint has none of its own.
    pub token_variable: Option<String>,
    /// Skills that the environment must have. They are not interpreted here, only kept for callers that know skills.
    pub required_skills: Vec<String>,
    /// Whom to trust over `wss://`; what the machine trusts if `None`. No key of the file says it, because Codex, which
    /// reads the same file, refuses keys that it does not know.
    pub tls: Option<ClientTls>,
    /// How `ssh://`, `docker://`, `podman://` and `kubectl://` are gone about.
    pub bootstrap: BootstrapOptions,
    environment: OnceCell<Arc<RemoteEnvironment>>,
}

/// How to connect to a server.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A server that listens, or a machine that it is brought to: `ssh://HOST`, `docker://NAME` and their like.
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
        let mut from_files: Option<Self> = None;
        for folder in configuration_folders(variable) {
            from_files = match (from_files, Self::read(&folder.join(FILE_NAME))?) {
                (Some(own), Some(codex)) => Some(own.and(codex)),
                (one, other) => one.or(other),
            };
        }
        if let Some(environments) = from_files {
            return Ok(environments);
        }
        let name = ["EXEC_SERVER_URL", "CODEX_EXEC_SERVER_URL"].into_iter().find(|name| variable(name).is_some());
        let url = name.and_then(variable).unwrap_or_default().to_string_lossy().trim().to_owned();
        let (environment, source) = match (name, url.as_str()) {
            (None, _) | (_, "") => (Some((LOCAL, EnvironmentKind::Local)), ConfigurationSource::BuiltIn),
            (Some(name), none) if none.eq_ignore_ascii_case("none") => (None, ConfigurationSource::Variable(name)),
            (Some(name), _) => {
                let remote = RemoteServer::new(Endpoint::Url { url, bearer_token: None });
                let kind = EnvironmentKind::Remote(Box::new(remote));
                (Some((REMOTE, kind)), ConfigurationSource::Variable(name))
            }
        };
        let default = environment.as_ref().map(|(id, _)| (*id).to_owned());
        let environments = environment.into_iter().map(|(id, kind)| ConfiguredEnvironment { id: id.to_owned(), kind });
        Ok(Self { environments: environments.collect(), default, names_default: false, source })
    }

    /// These, and those of another file that have other ids. This file decides whether this machine is among them.
    fn and(mut self, other: Self) -> Self {
        let more = other.environments.into_iter().filter(|one| one.id != LOCAL && self.get(&one.id).is_err());
        let more: Vec<ConfiguredEnvironment> = more.collect();
        self.environments.extend(more);
        let is_there = |id: &String| self.get(id).is_ok();
        if !self.names_default && other.names_default && other.default.as_ref().is_none_or(is_there) {
            self.default = other.default;
        }
        if let (ConfigurationSource::File(own), ConfigurationSource::File(codex)) = (&self.source, other.source) {
            self.source = ConfigurationSource::Files(own.clone(), codex);
        }
        self
    }

    /// The environments that a file configures; `None` if it does not exist.
    pub fn read(path: &Path) -> Result<Option<Self>, ConfigFileError> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, path).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ConfigFileError::Read { path: path.to_owned(), why: error.to_string() }),
        }
    }

    /// All of them, in the order of the configuration.
    pub fn all(&self) -> &[ConfiguredEnvironment] {
        &self.environments
    }

    /// The servers among them, to say what no key of the file can.
    pub fn servers_mut(&mut self) -> impl Iterator<Item = &mut RemoteServer> {
        self.environments.iter_mut().filter_map(|environment| match &mut environment.kind {
            EnvironmentKind::Local => None,
            EnvironmentKind::Remote(server) => Some(&mut **server),
        })
    }

    /// The id of the default environment.
    pub fn default_id(&self) -> Option<&str> {
        self.default.as_deref()
    }

    /// Where they are configured.
    pub fn source(&self) -> &ConfigurationSource {
        &self.source
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
            reconnect_timeout: None,
            token_variable: None,
            required_skills: Vec::new(),
            tls: None,
            bootstrap: BootstrapOptions::default(),
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
        let trusted_uids = trusted_uids();
        let mut transport = ConnectOptions { trusted_uids, tls: self.tls.clone(), ..ConnectOptions::default() };
        if let Some(timeout) = self.connect_timeout {
            transport.timeout = timeout;
        }
        if let Some(timeout) = self.initialize_timeout {
            options.initialize_timeout = timeout;
        }
        options.give_up = options.give_up.or(self.reconnect_timeout);
        let target = match &self.endpoint {
            Endpoint::Program(program) => Target::Program(program.clone()),
            Endpoint::Url { url, .. } if BootstrapTarget::is_meant_by(url) => {
                let target = url.parse::<BootstrapTarget>();
                let target = target.map_err(|error| ConnectFailure::Unreachable { why: error.to_string() })?;
                let dial = BootstrapDial::new(target, self.bootstrap.clone());
                return RemoteEnvironment::open(Arc::new(dial), options).await;
            }
            Endpoint::Url { url, bearer_token } => {
                transport.bearer_token = match (bearer_token, &self.token_variable) {
                    (Some(token), _) => Some(token.clone()),
                    (None, Some(name)) => Some(token_of_variable(name)?),
                    (None, None) => None,
                };
                let url = url.parse::<ConnectUrl>();
                Target::Url(url.map_err(|error| ConnectFailure::Unreachable { why: error.to_string() })?)
            }
        };
        crate::environment::connect(target, transport, options).await
    }
}

/// A token that is missing is told here and not by the server, which could say no more than 401.
fn token_of_variable(name: &str) -> Result<String, ConnectFailure> {
    let token = std::env::var(name).ok().map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
    let is_header = |token: &String| token.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    token.filter(is_header).ok_or_else(|| ConnectFailure::Refused {
        why: format!("the variable {name} has no token, and auth_bearer_token_env of {FILE_NAME} names it: set it"),
    })
}

impl Endpoint {
    /// Whether the server is brought there by us, and started for the account.
    pub fn is_bootstrapped(&self) -> bool {
        matches!(self, Self::Url { url, .. } if BootstrapTarget::is_meant_by(url))
    }
}

/// Whose servers on a unix socket are trusted beside our own and root's: those of `EXEC_SERVER_TRUSTED_UID`, and of the
/// user who became root by sudo.
fn trusted_uids() -> Vec<u32> {
    let variables = ["EXEC_SERVER_TRUSTED_UID", "SUDO_UID"].map(|name| std::env::var(name).unwrap_or_default());
    variables.iter().flat_map(|uids| uids.split(',')).filter_map(|uid| uid.trim().parse().ok()).collect()
}

/// Where the configuration file is looked for, in this order. Somebody who sets our variable means that folder alone.
fn configuration_folders(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let in_home = |folder: &str| set("HOME").map(|home| home.join(folder));
    if let Some(own) = set("EXEC_SERVER_HOME") {
        return vec![own];
    }
    let own = set("XDG_CONFIG_HOME").or_else(|| in_home(".config")).map(|config| config.join("exec-server"));
    let codex = set("CODEX_HOME").or_else(|| in_home(".codex"));
    own.into_iter().chain(codex).collect()
}

/// The configuration file that a new environment is written to: the one that is read, unless it is Codex's, which refuses
/// keys of ours.
pub fn own_configuration_file(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = configuration_folders(variable).into_iter().next()?;
    Some(folder.join(FILE_NAME))
}
