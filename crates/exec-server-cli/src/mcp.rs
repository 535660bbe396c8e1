//! `exec-server mcp`: the tools for agents, on stdio or HTTP, over this machine or another.
//!
//! The client is answered at once; the connection to the environment is made meanwhile, and starts the account's server
//! if need be. What is found again after the death of this command, and how, is in [`sessions`].

mod session_files;
mod sessions;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use exec_client::{ConnectFailure, Options, RemoteEnvironment};
use exec_core::Environ;
use exec_env::BoxFuture;
use exec_mcp::{HttpOptions, HttpServer, McpServer};
use exec_tools::environments::{Environments, NoPlace, Place};
use tokio::signal::unix::SignalKind;
use tokio::sync::OnceCell;

use crate::args::McpArgs;
use crate::local_daemon::LocalDaemon;
use crate::messages;
use crate::signal_listener::SignalListener;
use crate::target::{self, RemoteTarget, Target};
use session_files::SessionFiles;
use sessions::Sessions;

/// The client name that servers show.
const CLIENT_NAME: &str = "exec-server-mcp";

pub(crate) fn main(args: &McpArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            messages::print_note(format_args!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(run(args));
    // A thread that is blocked in a read of stdin must not keep us from exiting.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            messages::print_note(messages::error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &McpArgs) -> anyhow::Result<()> {
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let signals = SignalListener::listen(signals.map(|kind| ((), kind.as_raw_value())));
    let mut signals = signals.context("cannot listen for signals")?;
    let environment = Arc::new(TargetEnvironment::choose(args)?);
    let server = McpServer::new(environment.clone());
    // The first call then finds it connected. A failure is told to whoever needs the environment.
    let warm_up = tokio::spawn({
        let environment = environment.clone();
        async move { drop(environment.find(None).await) }
    });
    let served = match args.http {
        Some(_) => serve_http(args, server, &mut signals).await,
        None => tokio::select! {
            served = exec_mcp::serve_stdio(server) => served.context("cannot serve MCP on stdio"),
            () = signals.next() => Ok(()),
        },
    };
    // Whoever left has no use for it; what it has done so far is found or started again.
    warm_up.abort();
    let _ = warm_up.await;
    environment.leave().await;
    served
}

async fn serve_http(args: &McpArgs, server: McpServer, signals: &mut SignalListener<()>) -> anyhow::Result<()> {
    let address = args.http.expect("the caller has looked");
    let bearer_token = match &args.http_token_file {
        Some(path) => {
            let token = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            let token = token.trim().to_owned();
            anyhow::ensure!(!token.is_empty(), "the token file {} is empty", path.display());
            Some(token)
        }
        None => None,
    };
    anyhow::ensure!(
        address.ip().is_loopback() || bearer_token.is_some(),
        "{address} can be reached from elsewhere: protect it with --http-token-file, or use 127.0.0.1"
    );
    let options = HttpOptions { allow_hosts: args.http_allow_host.clone(), bearer_token };
    let http = HttpServer::bind(server, address, options).await;
    let http = http.with_context(|| format!("cannot listen on {address}"))?;
    messages::print_stdout(format!("{}\n", http.url()?).as_bytes()).context("cannot print the URL")?;
    http.run(signals.next()).await;
    Ok(())
}

/// How the environment is reached.
enum Connector {
    /// The server of this account.
    Local(Arc<LocalDaemon>),
    Remote(Box<RemoteTarget>),
}

impl Connector {
    async fn open(&self, resume_session: Option<String>) -> Result<RemoteEnvironment, ConnectFailure> {
        let detached_ttl = Some(sessions::DETACHED_TTL);
        let options =
            Options { client_name: CLIENT_NAME.to_owned(), detached_ttl, resume_session, ..Options::default() };
        match self {
            Self::Local(daemon) => RemoteEnvironment::open(daemon.clone(), options).await,
            Self::Remote(remote) => remote.try_connect(options).await,
        }
    }
}

/// The one environment of this command, connected when it is needed.
struct TargetEnvironment {
    id: String,
    connector: Arc<Connector>,
    files: SessionFiles,
    sessions: OnceCell<Arc<Sessions>>,
}

impl TargetEnvironment {
    fn choose(args: &McpArgs) -> anyhow::Result<Self> {
        let (id, connector) = match target::choose(&args.target)? {
            Target::Local => ("local".to_owned(), Connector::Local(Arc::new(LocalDaemon::of_this_account()?))),
            Target::Remote(remote) => (remote.address.to_string(), Connector::Remote(remote)),
        };
        let files = SessionFiles::of_environment(&id)?;
        Ok(Self { id, connector: Arc::new(connector), files, sessions: OnceCell::new() })
    }

    /// Leaves what runs to the next one.
    async fn leave(&self) {
        if let Some(sessions) = self.sessions.get() {
            sessions.leave().await;
        }
    }
}

impl Environments for TargetEnvironment {
    fn find<'a>(&'a self, id: Option<&'a str>) -> BoxFuture<'a, Result<Place, NoPlace>> {
        Box::pin(async move {
            if let Some(id) = id.filter(|id| *id != self.id) {
                return Err(NoPlace::Unknown { id: id.to_owned(), known: self.ids() });
            }
            let open = || Sessions::open(self.connector.clone(), self.files.clone());
            let sessions = self.sessions.get_or_try_init(open).await;
            let sessions = sessions.map_err(|why| NoPlace::Unreachable { id: self.id.clone(), why })?;
            let place = Place::new(self.id.clone(), sessions.clone());
            Ok(match *self.connector {
                // The server has the directory and the variables of whoever needed it first; commands get ours.
                Connector::Local(_) => Place {
                    workdir: std::env::current_dir().ok(),
                    environ: Environ::exactly(std::env::vars_os()),
                    ..place
                },
                Connector::Remote(_) => place,
            })
        })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.id.clone()]
    }
}
