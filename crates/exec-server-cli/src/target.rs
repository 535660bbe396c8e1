//! Which environment a command works on, and the connection to it.
//!
//! A user names an environment by its id or by a URL, or means the default. A detached process is remembered by an
//! [`Address`]: the id as long as environments.toml has it, because URL and token may change there; else the URL.
//!
//! Deliberately absent: what is done over the connection.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use exec_client::bootstrap::ProgressSink;
use exec_client::environments::{self, ConfigurationSource, Endpoint, EnvironmentKind, RemoteServer};
use exec_client::{ConnectFailure, Dial, Environments, LinkState, Options, RemoteEnvironment};
use exec_env::MachineInfo;
use exec_transport::{ClientTls, ConnectUrl};
use exec_wire::Extension;
use serde::{Deserialize, Serialize};

use crate::args::{ConnectArgs, TargetArgs};
use crate::connection_status::{LateSpinner, LinkMonitor, RawScreen, Spinner};
use crate::local_daemon::LocalDaemon;
use crate::{table, terminal};

/// The client name that we send to servers.
const CLIENT_NAME: &str = "exec-server-cli";

/// How long a server keeps our session after the connection broke, unless we look for it longer.
const DETACHED_TTL: Duration = Duration::from_secs(60);

/// How much longer than the client tries to reconnect a server is to keep the session, or the last try would be of no use.
const DETACHED_MARGIN: Duration = Duration::from_secs(35);

/// The same for a machine that ssh leads to. The machine that we run on may be a laptop that sleeps over a weekend.
const BOOTSTRAPPED_TTL: Duration = Duration::from_secs(72 * 3600);

/// How long a command whose work is done waits for its server to confirm the end of the session: longer than a server takes to
/// kill what is left of it, and not as long as for an answer that somebody needs.
const END_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) enum Target {
    /// This machine, embedded in our process.
    Local,
    Remote(Box<RemoteTarget>),
}

/// An environment that a connection leads to.
#[derive(Debug)]
pub(crate) struct RemoteTarget {
    pub(crate) address: Address,
    reach: Reach,
}

/// What leads to an environment.
#[derive(Debug)]
enum Reach {
    Server(Box<RemoteServer>),
    /// The server of this account on this machine, which is started if there is none.
    Account(Arc<LocalDaemon>),
}

/// What is written down to find a remote environment again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Address {
    /// An id of environments.toml.
    Environment(String),
    Url(String),
    /// One of the environments behind a server.
    Behind {
        url: String,
        environment: String,
    },
    /// The server of this account, on this machine.
    Account,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Account => f.write_str(environments::LOCAL),
            Self::Environment(name) | Self::Url(name) => f.write_str(name),
            Self::Behind { url, environment } => write!(f, "{environment} at {url}"),
        }
    }
}

/// The environment with that id.
pub(crate) fn by_id(known: &Environments, id: &str, connection: &ConnectArgs) -> anyhow::Result<Target> {
    let found = match known.get(id) {
        Ok(found) => found,
        // A variable or a file may leave `local` out of the choices, but this machine is there all the same.
        Err(_) if id == environments::LOCAL => return Ok(Target::Local),
        Err(unknown) => bail!("{unknown}: they come from {}", known.source()),
    };
    Ok(match &found.kind {
        EnvironmentKind::Local => Target::Local,
        EnvironmentKind::Remote(remote) => {
            let address = match (known.source(), &remote.endpoint) {
                // The variable may be gone tomorrow, so the URL that it holds is remembered instead of an id.
                (ConfigurationSource::Variable(_), Endpoint::Url { url, .. }) => Address::Url(url.clone()),
                _ => Address::Environment(id.to_owned()),
            };
            Target::Remote(Box::new(RemoteTarget::new(address, RemoteServer::clone(remote), connection)?))
        }
    })
}

/// The environment that the options of a command name, or the default.
pub(crate) fn choose(args: &TargetArgs) -> anyhow::Result<Target> {
    if let Some(url) = &args.connect {
        let mut remote = RemoteTarget::from_url(url, &args.connection)?.behind(args.environment.as_deref());
        if let Reach::Server(server) = &mut remote.reach {
            server.bootstrap.binary.clone_from(&args.binary);
        }
        return Ok(Target::Remote(Box::new(remote)));
    }
    let known = Environments::discover()?;
    match args.environment.as_deref().or(known.default_id()) {
        Some(id) => by_id(&known, id, &args.connection),
        None => bail!(
            "no environment is the default, says {}: name one with --environment or --connect, or `local`",
            known.source()
        ),
    }
}

impl RemoteTarget {
    fn new(address: Address, mut remote: RemoteServer, connection: &ConnectArgs) -> anyhow::Result<Self> {
        let variable = |name: &str| std::env::var_os(name);
        remote.reconnect_timeout = connection.reconnect_timeout(&variable)?.or(remote.reconnect_timeout);
        // What is no URL is told when it is used, with the others' reasons why there is no connection.
        if let Endpoint::Url { url, bearer_token } = &mut remote.endpoint
            && let Ok(ConnectUrl::WebSocket(parsed)) = url.parse()
        {
            // A variable that the file names is read when we connect, and counts as much as a token in the file.
            if remote.token_variable.is_none() || connection.token_file.is_some() {
                *bearer_token = connection.token(bearer_token.take(), &variable)?;
            }
            if bearer_token.is_some() && !parsed.keeps_secrets() {
                bail!("a token is not sent to {url}, where others could read it: use wss://, or a loopback address");
            }
            if parsed.is_encrypted() {
                remote.tls = Some(ClientTls::load(&connection.options(&variable)?)?);
            }
        }
        remote.bootstrap.may_ask = terminal::is_ours();
        Ok(Self { address, reach: Reach::Server(Box::new(remote)) })
    }

    /// The server of this account, which need not run yet.
    pub(crate) fn of_this_account() -> anyhow::Result<Self> {
        let daemon = Arc::new(LocalDaemon::of_this_account()?);
        Ok(Self { address: Address::Account, reach: Reach::Account(daemon) })
    }

    /// The same, if it runs or has left something behind.
    pub(crate) fn of_this_account_if_used() -> anyhow::Result<Option<Self>> {
        let daemon = LocalDaemon::of_this_account()?;
        Ok(match daemon.is_or_was_there() {
            true => Some(Self { address: Address::Account, reach: Reach::Account(Arc::new(daemon)) }),
            false => None,
        })
    }

    pub(crate) fn from_url(url: &str, connection: &ConnectArgs) -> anyhow::Result<Self> {
        let remote = RemoteServer::new(Endpoint::Url { url: url.to_owned(), bearer_token: None });
        Self::new(Address::Url(url.to_owned()), remote, connection)
    }

    /// A server that a client of ours names, with a token of the client's own.
    pub(crate) fn from_client(
        url: &str,
        bearer_token: Option<String>,
        connect_timeout: Duration,
        connection: &ConnectArgs,
    ) -> anyhow::Result<Self> {
        let mut remote = RemoteServer::new(Endpoint::Url { url: url.to_owned(), bearer_token });
        remote.connect_timeout = Some(connect_timeout);
        Self::new(Address::Url(url.to_owned()), remote, connection)
    }

    /// The environment of that id behind the server; the server's default if there is none.
    fn behind(mut self, environment: Option<&str>) -> Self {
        if let (Some(environment), Address::Url(url)) = (environment, &self.address) {
            self.address = Address::Behind { url: url.clone(), environment: environment.to_owned() };
        }
        self
    }

    pub(crate) fn from_address(address: &Address, connection: &ConnectArgs) -> anyhow::Result<Self> {
        match address {
            Address::Account => Self::of_this_account(),
            Address::Url(url) => Self::from_url(url, connection),
            Address::Behind { url, environment } => Ok(Self::from_url(url, connection)?.behind(Some(environment))),
            Address::Environment(id) => match by_id(&Environments::discover()?, id, connection)? {
                Target::Remote(remote) => Ok(*remote),
                Target::Local => Self::of_this_account(),
            },
        }
    }

    /// Whether a session there can be resumed. A server over stdio ends with its connection, but with a state folder the
    /// next one has its sessions. The folder is named on the program's command line, or in the line that it passes to a
    /// shell; if it is named elsewhere (in a script), we do not know of it.
    pub(crate) fn survives_disconnect(&self) -> bool {
        let Reach::Server(server) = &self.reach else { return true };
        match &server.endpoint {
            Endpoint::Url { .. } => true,
            Endpoint::Program(program) => {
                program.args.iter().any(|argument| argument.to_string_lossy().contains("--state-dir"))
            }
        }
    }

    /// Whether it is this machine, so that our folders and variables mean something there.
    pub(crate) fn is_this_account(&self) -> bool {
        matches!(self.reach, Reach::Account(_))
    }

    /// The URL or the program, for the user.
    pub(crate) fn describe(&self) -> String {
        match &self.reach {
            Reach::Account(_) => environments::LOCAL.to_owned(),
            Reach::Server(server) => describe_endpoint(&server.endpoint),
        }
    }

    /// Whether exec-server is brought there by ssh or its like.
    fn is_bootstrapped(&self) -> bool {
        matches!(&self.reach, Reach::Server(server) if server.endpoint.is_bootstrapped())
    }

    /// How long its server keeps our session after the connection broke.
    fn detached_ttl(&self) -> Duration {
        let usual = if self.is_bootstrapped() { BOOTSTRAPPED_TTL } else { DETACHED_TTL };
        let asked = match &self.reach {
            Reach::Server(server) => server.reconnect_timeout,
            Reach::Account(_) => None,
        };
        asked.map_or(usual, |asked| usual.max(asked.saturating_add(DETACHED_MARGIN)))
    }

    /// Connects, with a spinner meanwhile. A failure is explained to the user.
    pub(crate) async fn connect(&self, options: Options) -> anyhow::Result<RemoteEnvironment> {
        self.try_connect(options).await.map_err(|failure| anyhow::Error::msg(self.explain(&failure)))
    }

    /// Like [`Self::connect`], for callers that tell failures apart.
    pub(crate) async fn try_connect(&self, options: Options) -> Result<RemoteEnvironment, ConnectFailure> {
        let text = format!("connecting to {}", self.address);
        // ssh may ask something on this terminal. The line waits until it has let us in.
        if let Reach::Server(server) = &self.reach
            && server.endpoint.is_bootstrapped()
        {
            let spinner = Arc::new(LateSpinner::new(text, server.bootstrap.may_ask));
            let mut server = RemoteServer::clone(server);
            let shown = Arc::clone(&spinner);
            server.bootstrap.progress = Some(ProgressSink(Arc::new(move |progress| shown.report(progress))));
            let connected = self.connect_to(&server, options).await;
            spinner.clear();
            return connected;
        }
        let spinner = Spinner::show(text);
        let connected = self.connect_quietly(options).await;
        drop(spinner);
        connected
    }

    /// The same with nobody at a terminal.
    pub(crate) async fn connect_quietly(&self, options: Options) -> Result<RemoteEnvironment, ConnectFailure> {
        match &self.reach {
            Reach::Server(server) => {
                // With nobody at a terminal, nobody can answer.
                let mut server = RemoteServer::clone(server);
                server.bootstrap.may_ask = false;
                self.connect_to(&server, options).await
            }
            Reach::Account(daemon) => {
                let options = Options { client_name: CLIENT_NAME.to_owned(), ..options };
                RemoteEnvironment::open(Arc::clone(daemon) as Arc<dyn Dial>, options).await
            }
        }
    }

    async fn connect_to(&self, server: &RemoteServer, options: Options) -> Result<RemoteEnvironment, ConnectFailure> {
        let environment = match &self.address {
            Address::Behind { environment, .. } => Some(environment.clone()),
            Address::Environment(_) | Address::Url(_) | Address::Account => None,
        };
        server.connect(Options { client_name: CLIENT_NAME.to_owned(), environment, ..options }).await
    }

    /// Why the connection failed, and what the user can do about it.
    pub(crate) fn explain(&self, failure: &ConnectFailure) -> String {
        let prefix = match &self.address {
            Address::Environment(id) => format!("environment `{id}`: "),
            Address::Url(_) | Address::Behind { .. } | Address::Account => String::new(),
        };
        let why = failure.to_string();
        let advice = match failure {
            _ if why.contains("HTTP 401") => {
                ": name the file of its token with --token-file, or put it into environments.toml (auth_bearer_token, or auth_bearer_token_env)"
            }
            // What to do about it is said already.
            ConnectFailure::Unreachable { .. } if self.is_this_account() || self.is_bootstrapped() => "",
            ConnectFailure::Unreachable { .. } if matches!(&self.reach, Reach::Server(server) if matches!(server.endpoint, Endpoint::Program(_))) => {
                ": does the program work by hand, and speak only the protocol on its stdout?"
            }
            ConnectFailure::Unreachable { .. } => ": is `exec-server serve` running there?",
            ConnectFailure::Refused { .. } | ConnectFailure::UnknownSession { .. } => "",
        };
        format!("{prefix}{why}{advice}")
    }
}

/// Whom to trust over `wss://` as the variables say it, for a server of environments.toml.
pub(crate) fn trust_as_variables_say(server: &mut RemoteServer) -> anyhow::Result<()> {
    let variable = |name: &str| std::env::var_os(name);
    if let Endpoint::Url { url, .. } = &server.endpoint
        && let Ok(ConnectUrl::WebSocket(parsed)) = url.parse()
        && parsed.is_encrypted()
    {
        server.tls = Some(ClientTls::load(&ConnectArgs::default().options(&variable)?)?);
    }
    Ok(())
}

impl Address {
    /// Whether it is this one, or one behind it.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Behind { url, .. }, Self::Url(other)) => url == other,
            _ => self == other,
        }
    }
}

/// The URL or the command line of an environment, for the user.
pub(crate) fn describe_endpoint(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Url { url, .. } => url.clone(),
        Endpoint::Program(program) => {
            let words = std::iter::once(&program.program).chain(&program.args);
            words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        }
    }
}

/// A target that is ready for use: `L` is what a command needs of this machine.
pub(crate) enum OpenTarget<L> {
    Local(Box<L>),
    Remote(Box<OpenConnection>),
}

pub(crate) struct OpenConnection {
    pub(crate) environment: RemoteEnvironment,
    /// The address, for the user and for programs.
    pub(crate) name: String,
    /// How long the server keeps the session without us.
    kept: Duration,
}

impl<L> OpenTarget<L> {
    fn connection(&self) -> Option<&OpenConnection> {
        match self {
            Self::Local(_) => None,
            Self::Remote(connection) => Some(connection),
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        self.connection().is_none()
    }

    /// The address; `None` for this machine.
    pub(crate) fn name(&self) -> Option<&str> {
        self.connection().map(|connection| connection.name.as_str())
    }

    /// Whether it implements an optional part of the protocol.
    pub(crate) fn supports(&self, extension: impl Into<Extension>) -> bool {
        self.connection().is_none_or(|connection| connection.environment.link().has(extension))
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection().is_none_or(|connection| is_connected(&connection.environment))
    }

    /// What becomes of a program there when we leave without a word.
    pub(crate) fn describe_leftover(&self) -> Option<String> {
        self.connection().map(OpenConnection::describe_leftover)
    }

    pub(crate) fn link_monitor(&self, raw: Option<RawScreen>, quiet: bool) -> Option<LinkMonitor> {
        let OpenConnection { environment, name, .. } = self.connection()?;
        Some(LinkMonitor::new(environment.link(), name.clone(), raw, quiet))
    }
}

impl OpenConnection {
    pub(crate) async fn open(remote: &RemoteTarget) -> anyhow::Result<Self> {
        let kept = remote.detached_ttl();
        let options = Options { detached_ttl: Some(kept), ..Options::default() };
        Ok(Self { environment: remote.connect(options).await?, name: remote.address.to_string(), kept })
    }

    /// What becomes of a program whose connection is gone.
    pub(crate) fn describe_leftover(&self) -> String {
        let name = &self.name;
        match self.kept {
            DETACHED_TTL => "if the program still runs there, its server ends it within a minute".to_owned(),
            kept => format!(
                "if the program still runs there, `exec-server ps --all --connect {name}` finds it; its server ends it \
                 within {}",
                table::duration(kept)
            ),
        }
    }

    /// Ends the session with all that runs in it. If the server cannot be reached, it does so when the session expires.
    pub(crate) async fn end(self) {
        match is_connected(&self.environment) {
            true => end_session(self.environment).await,
            false => self.environment.close().await,
        }
    }
}

/// Where a relative path begins in a remote environment, if that is known.
pub(crate) fn base_directory(info: &MachineInfo) -> Option<PathBuf> {
    info.cwd.clone().or_else(|| info.home.clone())
}

fn is_connected(environment: &RemoteEnvironment) -> bool {
    *environment.link().states().borrow() == LinkState::Connected
}

/// Ends the session with all that runs in it. A failure costs nothing: the session expires soon.
pub(crate) async fn end_session(environment: RemoteEnvironment) {
    match tokio::time::timeout(END_TIMEOUT, environment.end()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the session will expire by itself"),
        Err(_) => tracing::debug!("the server does not confirm the end of the session"),
    }
}

/// The directory for files of our own, such as the records of detached processes.
pub(crate) fn state_directory() -> anyhow::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = set("EXEC_SERVER_HOME")
        .or_else(|| set("XDG_STATE_HOME").map(|state| state.join("exec-server")))
        .or_else(|| set("HOME").map(|home| home.join(".local/state/exec-server")));
    let directory = directory.context("there is no folder to remember processes in: set EXEC_SERVER_HOME, or HOME")?;
    std::path::absolute(&directory).context("cannot make the path of our folder absolute")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(variables: &[(&str, &str)]) -> Environments {
        let variable = |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into());
        Environments::from_variables(&variable).expect("well formed")
    }

    #[test]
    fn with_nothing_configured_the_default_is_here() {
        let known = known(&[]);
        assert_eq!((known.default_id(), known.source()), (Some("local"), &ConfigurationSource::BuiltIn));
        assert!(matches!(by_id(&known, "local", &ConnectArgs::default()), Ok(Target::Local)));
    }

    #[test]
    fn a_target_of_a_variable_is_remembered_by_its_url_and_one_of_a_file_by_its_id() {
        let of_variable = known(&[("CODEX_EXEC_SERVER_URL", "ws://127.0.0.1:1")]);
        assert_eq!(of_variable.source(), &ConfigurationSource::Variable("CODEX_EXEC_SERVER_URL"));
        let Ok(Target::Remote(remote)) = by_id(&of_variable, "remote", &ConnectArgs::default()) else {
            panic!("it is far")
        };
        assert_eq!(remote.address, Address::Url("ws://127.0.0.1:1".into()));

        let home = tempfile::tempdir().expect("a folder can be made");
        let path = home.path().join("environments.toml");
        std::fs::write(&path, "[[environments]]\nid = \"b\"\nurl = \"ws://127.0.0.1:1\"\n").expect("it is ours");
        let of_file = known(&[("EXEC_SERVER_HOME", &home.path().to_string_lossy())]);
        assert_eq!(of_file.source(), &ConfigurationSource::File(path));
        let Ok(Target::Remote(remote)) = by_id(&of_file, "b", &ConnectArgs::default()) else { panic!("it is far") };
        assert_eq!(remote.address, Address::Environment("b".into()));
    }

    #[test]
    fn an_environment_nobody_has_heard_of_is_told_with_those_there_are() {
        let error = by_id(&known(&[]), "x", &ConnectArgs::default()).expect_err("there is none");
        assert_eq!(error.to_string(), "environment `x` is not configured; there is `local`: they come from built in");
    }
}
