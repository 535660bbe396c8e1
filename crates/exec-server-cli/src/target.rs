//! Which environment is meant, and the way to it.
//!
//! A person names one by its id or by a URL, or means the default. What a detached process is remembered by is an
//! [`Address`]: an id as long as environments.toml has it, because its URL and its token may change there; else the URL.
//!
//! Deliberately absent: what is done once we are there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use exec_client::environments::{self, EnvironmentKind, RemoteServer, Endpoint};
use exec_client::{ConnectFailure, Environments, Options, RemoteEnvironment};
use serde::{Deserialize, Serialize};

use crate::args::TargetArgs;
use crate::spinner::Spinner;

/// Who we say we are.
const CLIENT_NAME: &str = "exec-server-cli";

/// A place a person may mean.
#[derive(Debug)]
pub(crate) enum Target {
    /// This machine, embedded.
    Local,
    /// Somewhere a connection leads to.
    Remote(Box<RemoteTarget>),
}

/// A far place and the way to it.
#[derive(Debug)]
pub(crate) struct RemoteTarget {
    pub(crate) address: Address,
    remote: RemoteServer,
}

/// By what a far place is found again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Address {
    /// An id of environments.toml.
    Environment(String),
    /// A URL.
    Url(String),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Environment(name) | Self::Url(name)) = self;
        f.write_str(name)
    }
}

/// The environments there are, and what says so.
#[derive(Debug)]
pub(crate) struct KnownEnvironments {
    pub(crate) environments: Environments,
    pub(crate) source: EnvironmentSource,
}

/// What says which environments there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EnvironmentSource {
    File(PathBuf),
    Variable(&'static str),
    /// Nobody says anything, so there is this machine.
    BuiltIn,
}

impl std::fmt::Display for EnvironmentSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::BuiltIn => f.write_str("built in"),
        }
    }
}

impl KnownEnvironments {
    /// As this process's variables and files say.
    pub(crate) fn discover() -> anyhow::Result<Self> {
        Self::from_variables(&|name| std::env::var_os(name))
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> anyhow::Result<Self> {
        let environments = Environments::from_variables(variable)?;
        let set = |name: &&str| variable(name).is_some_and(|value| !value.is_empty());
        let file = environments_file(variable).filter(|path| path.exists());
        let source = match file {
            Some(path) => EnvironmentSource::File(path),
            None => match ["EXEC_SERVER_URL", "CODEX_EXEC_SERVER_URL"].into_iter().find(set) {
                Some(name) => EnvironmentSource::Variable(name),
                None => EnvironmentSource::BuiltIn,
            },
        };
        Ok(Self { environments, source })
    }

    /// The environment of that id.
    pub(crate) fn target(&self, id: &str) -> anyhow::Result<Target> {
        let found = match self.environments.get(id) {
            Ok(found) => found,
            // A variable or a file may leave it out as a choice, and it is there all the same.
            Err(_) if id == environments::LOCAL => return Ok(Target::Local),
            Err(unknown) => bail!("{unknown}: they come from {}", self.source),
        };
        Ok(match &found.kind {
            EnvironmentKind::Local => Target::Local,
            EnvironmentKind::Remote(remote) => {
                let address = match (&self.source, &remote.endpoint) {
                    // The variable may be gone tomorrow; the URL is what it meant.
                    (EnvironmentSource::Variable(_), Endpoint::Url { url, .. }) => Address::Url(url.clone()),
                    _ => Address::Environment(id.to_owned()),
                };
                Target::Remote(Box::new(RemoteTarget { address, remote: unconnected_copy(remote) }))
            }
        })
    }
}

/// The place that is meant by these words.
pub(crate) fn choose(args: &TargetArgs) -> anyhow::Result<Target> {
    if let Some(url) = &args.connect {
        return Ok(Target::Remote(Box::new(RemoteTarget::from_url(url))));
    }
    let known = KnownEnvironments::discover()?;
    match args.environment.as_deref().or(known.environments.default_id()) {
        Some(id) => known.target(id),
        None => bail!(
            "no environment is the default, says {}: name one with --environment or --connect, or `local`",
            known.source
        ),
    }
}

impl RemoteTarget {
    /// A server by its URL.
    pub(crate) fn from_url(url: &str) -> Self {
        let remote = RemoteServer::new(Endpoint::Url { url: url.to_owned(), bearer_token: None });
        Self { address: Address::Url(url.to_owned()), remote }
    }

    /// The place that is remembered so.
    pub(crate) fn from_address(address: &Address) -> anyhow::Result<Self> {
        match address {
            Address::Url(url) => Ok(Self::from_url(url)),
            Address::Environment(id) => match KnownEnvironments::discover()?.target(id)? {
                Target::Remote(remote) => Ok(*remote),
                Target::Local => bail!("environment `{id}` is this machine now, which has no server to ask"),
            },
        }
    }

    /// Whether what is left there can be found again: a server over stdio ends with its connection.
    pub(crate) fn survives_disconnect(&self) -> bool {
        matches!(self.remote.endpoint, Endpoint::Url { .. })
    }

    /// The way, for people.
    pub(crate) fn describe(&self) -> String {
        describe_way(&self.remote.endpoint)
    }

    /// Connects, with something to look at meanwhile.
    pub(crate) async fn connect(&self, options: Options) -> Result<RemoteEnvironment, ConnectFailure> {
        let spinner = Spinner::show(format!("connecting to {}", self.address));
        let options = Options { client_name: CLIENT_NAME.to_owned(), ..options };
        let connected = self.remote.connect(options).await;
        spinner.clear();
        connected
    }

    /// What to tell a person whose connection failed: what, and what to do about it.
    pub(crate) fn explain(&self, failure: &ConnectFailure) -> String {
        let prefix = match &self.address {
            Address::Environment(id) => format!("environment `{id}`: "),
            Address::Url(_) => String::new(),
        };
        let why = failure.to_string();
        let advice = match failure {
            _ if why.contains("HTTP 401") => {
                ": put its token into environments.toml, as auth_bearer_token, and use --environment"
            }
            ConnectFailure::Unreachable { .. } if matches!(self.remote.endpoint, Endpoint::Program(_)) => {
                ": does the program work by hand, and speak only the protocol on its stdout?"
            }
            ConnectFailure::Unreachable { .. } => ": is `exec-server serve` running there?",
            ConnectFailure::Refused { .. } | ConnectFailure::UnknownSession { .. } => "",
        };
        format!("{prefix}{why}{advice}")
    }
}

/// A way, for people.
pub(crate) fn describe_way(way: &Endpoint) -> String {
    match way {
        Endpoint::Url { url, .. } => url.clone(),
        Endpoint::Program(program) => {
            let args = std::iter::once(&program.program).chain(&program.args);
            args.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        }
    }
}

/// The same way, not connected yet.
fn unconnected_copy(remote: &RemoteServer) -> RemoteServer {
    let mut copy = RemoteServer::new(remote.endpoint.clone());
    copy.connect_timeout = remote.connect_timeout;
    copy.initialize_timeout = remote.initialize_timeout;
    copy
}

/// Where the file is looked for; as `exec_client::environments` does, which does not tell.
fn environments_file(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("EXEC_SERVER_HOME").or_else(|| set("CODEX_HOME"));
    let home = home.or_else(|| set("HOME").map(|home| home.join(".codex")));
    home.map(|home| home.join(environments::FILE_NAME))
}

/// The folder of our own notes.
pub(crate) fn state_directory() -> anyhow::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = set("EXEC_SERVER_HOME")
        .or_else(|| set("XDG_STATE_HOME").map(|state| state.join("exec-server")))
        .or_else(|| set("HOME").map(|home| home.join(".local/state/exec-server")));
    let directory = directory.context("there is no folder to remember processes in: set EXEC_SERVER_HOME, or HOME")?;
    std::path::absolute(Path::new(&directory)).context("cannot make the path of our folder absolute")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(variables: &[(&str, &str)]) -> anyhow::Result<KnownEnvironments> {
        KnownEnvironments::from_variables(&|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn with_nothing_configured_the_default_is_here() {
        let known = known(&[]).expect("nothing to be wrong");
        assert_eq!((known.environments.default_id(), &known.source), (Some("local"), &EnvironmentSource::BuiltIn));
        assert!(matches!(known.target("local"), Ok(Target::Local)));
    }

    #[test]
    fn a_target_of_a_variable_is_remembered_by_its_url_and_one_of_a_file_by_its_id() {
        let of_variable = known(&[("CODEX_EXEC_SERVER_URL", "ws://127.0.0.1:1")]).expect("well formed");
        assert_eq!(of_variable.source, EnvironmentSource::Variable("CODEX_EXEC_SERVER_URL"));
        let Ok(Target::Remote(remote)) = of_variable.target("remote") else { panic!("it is far") };
        assert_eq!(remote.address, Address::Url("ws://127.0.0.1:1".into()));

        let home = tempfile::tempdir().expect("a folder can be made");
        let path = home.path().join("environments.toml");
        std::fs::write(&path, "[[environments]]\nid = \"b\"\nurl = \"ws://127.0.0.1:1\"\n").expect("it is ours");
        let of_file = known(&[("EXEC_SERVER_HOME", &home.path().to_string_lossy())]).expect("well formed");
        assert_eq!(of_file.source, EnvironmentSource::File(path));
        let Ok(Target::Remote(remote)) = of_file.target("b") else { panic!("it is far") };
        assert_eq!(remote.address, Address::Environment("b".into()));
    }

    #[test]
    fn an_environment_nobody_has_heard_of_is_told_with_those_there_are() {
        let known = known(&[]).expect("nothing to be wrong");
        let error = known.target("x").expect_err("there is none");
        assert_eq!(error.to_string(), "environment `x` is not configured; there is `local`: they come from built in");
    }
}
