//! `exec-server app-server`: execution as Codex's app-server serves it, on stdio, a WebSocket or a unix socket.
//!
//! It serves this machine, or the environment that the options name. On stdio there is one connection, and its end is the
//! end of the server. Nothing outlives it: there is no state folder, and the keeper ends with us.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use exec_app_server::limits::WRITE_DEADLINE;
use exec_app_server::{
    AppServer, AppServerOptions, ConnectError, ConnectTarget, ConnectionState, EnvironmentSource,
    RemoteEnvironment as AddedEnvironment,
};
use exec_client::{LinkState, Options, RemoteEnvironment};
use exec_env::{BoxFuture, Environment, SharedEnvironment};
use exec_keeper::start_keeper::KeeperProgram;
use exec_local::{KeeperChoice, LocalEnvironment, LocalOptions};
use exec_rpc::Workers;
use exec_transport::{
    AcceptError, HttpPaths, Limits, ListenOptions, ListenUrl, Listener, PendingConnection, ServerTls,
};
use hyper::StatusCode;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::signal::unix::SignalKind;
use tokio::task::JoinSet;

use crate::args::{AppServerArgs, ConnectArgs};
use crate::signal_listener::SignalListener;
use crate::target::{self, RemoteTarget, Target};
use crate::{messages, runtime, serve};

pub(crate) fn main(args: &AppServerArgs) -> ExitCode {
    // As `serve` does, and for the same reason: the programs that we start must not read our memory.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    runtime::run_server(run(args))
}

async fn run(args: &AppServerArgs) -> anyhow::Result<()> {
    let url = args.url()?;
    // Each connection lives on one of several threads, so that a large result of one does not delay another.
    let workers = Workers::start(Workers::default_count()).context("cannot start threads")?;
    let served = ServedEnvironment::open(args, &url, &workers).await?;
    let options = AppServerOptions {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        codex_home: codex_home(),
        machine_variables: matches!(served, ServedEnvironment::Local(_)).then(|| std::env::vars_os().collect()),
    };
    let source = Arc::new(ClientSource { connection: args.target.connection.clone() });
    let server = AppServer::new(served.environment(), source, options);
    let ended = listen(args, &url, &served, &server, &workers).await;
    drop(server);
    served.end().await;
    workers.stop();
    ended
}

/// The environment behind the server.
enum ServedEnvironment {
    Local(Arc<LocalEnvironment>),
    Remote(Arc<RemoteEnvironment>),
}

impl ServedEnvironment {
    /// This machine, unless the options name another environment: a variable that others read does not change it.
    async fn open(args: &AppServerArgs, url: &ListenUrl, workers: &Workers) -> anyhow::Result<Self> {
        let named = args.target.connect.is_some() || args.target.environment.is_some();
        if named && let Target::Remote(remote) = target::choose(&args.target)? {
            return Ok(Self::Remote(Arc::new(remote.connect(Options::default()).await?)));
        }
        let own = runtime::own_program().context("cannot find our own program, which is also the keeper's")?;
        let local = LocalEnvironment::open(LocalOptions {
            keeper: KeeperChoice::Process(KeeperProgram { program: own, args: vec!["keeper".into()] }),
            runtimes: workers.runtimes(),
            private_paths: private_paths(args, url)?,
            raise_open_files: true,
            ..LocalOptions::default()
        });
        Ok(Self::Local(Arc::new(local.await?)))
    }

    fn environment(&self) -> SharedEnvironment {
        match self {
            Self::Local(local) => Arc::clone(local) as SharedEnvironment,
            Self::Remote(remote) => Arc::clone(remote) as SharedEnvironment,
        }
    }

    async fn end(self) {
        match self {
            Self::Local(local) => local.end().await,
            Self::Remote(remote) => match Arc::into_inner(remote) {
                Some(remote) => target::end_session(remote).await,
                None => tracing::debug!("the environment is still in use; its session will expire by itself"),
            },
        }
    }
}

/// What a sandboxed command must not reach, or it would ask us to run something without a sandbox.
fn private_paths(args: &AppServerArgs, url: &ListenUrl) -> anyhow::Result<Vec<PathBuf>> {
    let socket = match url {
        ListenUrl::Unix(path) => Some(path),
        _ => None,
    };
    let secrets = args.auth.ws_token_file.iter().chain(&args.auth.ws_shared_secret_file).chain(&args.tls.tls_key);
    let paths = secrets.chain(socket).map(std::path::absolute);
    paths.collect::<Result<_, _>>().context("cannot make a path of ours absolute")
}

/// Nothing of ours is there, but clients are told of it.
fn codex_home() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("CODEX_HOME").or_else(|| set("HOME").map(|home| home.join(".codex"))).unwrap_or_else(|| "/".into())
}

async fn listen(
    args: &AppServerArgs,
    url: &ListenUrl,
    served: &ServedEnvironment,
    server: &Arc<AppServer>,
    workers: &Workers,
) -> anyhow::Result<()> {
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let signals = SignalListener::listen(signals.map(|kind| ((), kind.as_raw_value())));
    let mut signals = signals.context("cannot listen for signals")?;
    let mut listener = Listener::bind(url, listen_options(args, url, served)?).await?;
    let stdio = matches!(url, ListenUrl::Stdio);
    // Whoever started us reads this line to learn the port. On stdio, stdout carries the protocol.
    if !stdio {
        messages::print_stdout(format!("{}\n", listener.url()).as_bytes()).context("cannot print the URL")?;
    }
    let mut connections = JoinSet::new();
    let mut accepting = true;
    let ended = loop {
        tokio::select! {
            () = signals.next() => break Ok(()),
            accepted = listener.accept_pending(), if accepting => match accepted {
                Ok(connection) => drop(connections.spawn(workers.spawn(serve_connection(server.clone(), connection)))),
                Err(AcceptError::StdioTaken) => accepting = false,
                Err(error) => break Err(error.into()),
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {
                if stdio {
                    break Ok(());
                }
            }
        }
    };
    server.stop();
    while connections.join_next().await.is_some() {}
    ended
}

/// Runs on a worker, so that the handshake is made there too.
async fn serve_connection(server: Arc<AppServer>, connection: PendingConnection) {
    if let Some(connection) = connection.handshake().await {
        server.serve(connection).await;
    }
}

fn listen_options(args: &AppServerArgs, url: &ListenUrl, served: &ServedEnvironment) -> anyhow::Result<ListenOptions> {
    let urls = std::slice::from_ref(url);
    let tls = args.tls.options(urls, None)?.as_ref().map(ServerTls::load).transpose()?;
    if let Some(tls) = &tls {
        let fingerprint = tls.fingerprint();
        messages::print_note(format_args!("the certificate's fingerprint, for --tls-fingerprint: {fingerprint}"));
    }
    let (peer_check, budget) = match served {
        ServedEnvironment::Local(local) => {
            (Some(serve::peer_check(Arc::clone(local))), Some(serve::connection_budget(local.descriptors().clone())))
        }
        ServedEnvironment::Remote(_) => (None, None),
    };
    Ok(ListenOptions {
        auth: serve::auth(&args.auth, urls)?,
        tls,
        insecure_no_auth: args.insecure_no_auth,
        allow_hosts: args.allow_host.clone(),
        paths: HttpPaths::AppServer,
        max_connections: args.max_connections as usize,
        peer_check,
        budget,
        limits: Limits { write_deadline: WRITE_DEADLINE, ..Limits::default() },
        ..ListenOptions::default()
    })
}

/// Connects to the environments that clients add, trusting whom our options trust.
struct ClientSource {
    connection: ConnectArgs,
}

impl EnvironmentSource for ClientSource {
    fn connect(&self, target: ConnectTarget) -> BoxFuture<'static, Result<Box<dyn AddedEnvironment>, ConnectError>> {
        let connection = self.connection.clone();
        Box::pin(async move {
            let remote = RemoteTarget::from_client(&target.url, target.bearer_token, target.timeout, &connection);
            let remote = remote.map_err(|error| ConnectError::Failed { why: error.to_string() })?;
            match remote.connect_quietly(Options::default()).await {
                Ok(environment) => Ok(Box::new(ConnectedEnvironment(environment)) as Box<dyn AddedEnvironment>),
                Err(failure) => Err(in_words_of_codex(&failure.to_string())),
            }
        })
    }
}

/// Codex's app-server names the URL itself. What the server says beyond its status is not told, as with Codex.
fn in_words_of_codex(failure: &str) -> ConnectError {
    let refused = failure.split_once(" refused the connection: HTTP ").map(|(_, answer)| answer);
    if let Some(status) = refused.and_then(|answer| StatusCode::from_bytes(answer.get(..3)?.as_bytes()).ok()) {
        return ConnectError::Failed { why: format!("HTTP error: {status}") };
    }
    let failed = |why: String| ConnectError::Failed { why };
    match failure.strip_prefix("cannot connect to ").and_then(|rest| rest.split_once(": ")) {
        Some((_, why)) if why.starts_with("no answer within ") => ConnectError::TimedOut,
        Some((_, why)) => failed(format!("IO error: {why}")),
        None => failed(failure.to_owned()),
    }
}

struct ConnectedEnvironment(RemoteEnvironment);

impl AddedEnvironment for ConnectedEnvironment {
    fn environment(&self) -> &dyn Environment {
        &self.0
    }

    fn connection(&self) -> ConnectionState {
        match &*self.0.link().states().borrow() {
            LinkState::Connected => ConnectionState::Connected,
            LinkState::Connecting | LinkState::Reconnecting { .. } => ConnectionState::Recovering,
            LinkState::Lost(loss) => ConnectionState::Lost { why: loss.why.clone() },
            LinkState::Ended => ConnectionState::Lost { why: "it was closed".to_owned() },
        }
    }
}
