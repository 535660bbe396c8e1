//! `exec-server e2b`: what the E2B SDKs call, over this machine or another.
//!
//! Each sandbox has a session of its own, at the server of this account (which is started if there is none) or at the one that
//! the options name. Sessions outlive us; [`exec_e2b`] writes down whose they are.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use exec_client::{ConnectFailure, RemoteEnvironment};
use exec_e2b::{
    E2bServer, ListenOptions, Listener, OpenFailure, PolicyChoice, SandboxSession, ServerOptions, SessionSource,
};
use exec_env::{BoxFuture, Environment};
use exec_transport::token::{Exposure, read_secret_file};
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;

use crate::args::E2bArgs;
use crate::local_daemon::LocalDaemon;
use crate::sandbox_choice::SandboxChoice;
use crate::session_server::SessionServer;
use crate::signal_listener::SignalListener;
use crate::target::{self, Target};
use crate::{messages, runtime};

/// The client name that servers show.
const CLIENT_NAME: &str = "exec-server-e2b";

/// How long what runs in a sandbox waits for the next `exec-server e2b`: as long as a sandbox may live.
const DETACHED_TTL: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn main(args: &E2bArgs) -> ExitCode {
    runtime::run_server(run(args))
}

async fn run(args: &E2bArgs) -> anyhow::Result<()> {
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let signals = SignalListener::listen(signals.map(|kind| ((), kind.as_raw_value())));
    let mut signals = signals.context("cannot listen for signals")?;
    let state_directory = match &args.state_dir {
        Some(path) => std::path::absolute(path).context("cannot make --state-dir absolute")?,
        None => target::state_directory()?.join("e2b"),
    };
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&state_directory);
    made.with_context(|| format!("cannot make the folder {}", state_directory.display()))?;
    let key = ApiKey::choose(args, &state_directory)?;
    let session_server = choose_server(args)?;
    let options = ServerOptions {
        homes: homes(args, &session_server, &state_directory)?,
        sessions: Arc::new(Sessions(session_server)),
        policy: policy(args)?,
        templates: std::iter::once("base".to_owned()).chain(args.template.iter().cloned()).collect(),
        debug_sandbox: args.listen_envd.ip().is_loopback() && !args.no_debug,
        api_key: key.key.clone(),
        state_directory,
    };
    let server = E2bServer::open(options).await?;
    let listen = ListenOptions { allow_hosts: args.allow_host.clone(), domain: args.domain.clone() };
    let cannot = |address| move || format!("cannot listen on {address}");
    let envd = Listener::envd(server.clone(), args.listen_envd, listen.clone()).await;
    let envd = envd.with_context(cannot(args.listen_envd))?;
    let api = Listener::api(server.clone(), args.listen_api, listen).await.with_context(cannot(args.listen_api))?;
    announce(&envd, &api, &key)?;
    let (stop, stopped) = watch::channel(false);
    let stopped = || {
        let mut stopped = stopped.clone();
        async move { drop(stopped.wait_for(|stop| *stop).await) }
    };
    let signalled = async {
        signals.next().await;
        stop.send_replace(true);
    };
    tokio::join!(envd.run(stopped()), api.run(stopped()), server.end_expired(stopped()), signalled);
    Ok(())
}

/// Whoever started us reads these lines to learn the ports. They are in the form of an environment file.
fn announce(envd: &Listener, api: &Listener, key: &ApiKey) -> anyhow::Result<()> {
    let mut lines = format!("E2B_API_URL=http://{}\nE2B_SANDBOX_URL=http://{}\n", api.address()?, envd.address()?);
    // A key in a file of the user's is known to them, and shown to nobody.
    if key.is_ours {
        lines.push_str(&format!("E2B_API_KEY={}\n", key.key));
    }
    messages::print_stdout(lines.as_bytes()).context("cannot print the addresses")
}

struct ApiKey {
    key: String,
    is_ours: bool,
}

impl ApiKey {
    fn choose(args: &E2bArgs, state: &Path) -> anyhow::Result<Self> {
        let (path, is_ours) = match &args.api_key_file {
            Some(path) => (path.clone(), false),
            None => (state.join("api-key"), true),
        };
        if is_ours && !path.exists() {
            Self::make(&path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let read = read_secret_file(&path, Exposure::Refused)?.content;
        let key = String::from_utf8(read).ok().map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        let key = key.with_context(|| format!("there is no API key in {}", path.display()))?;
        Ok(Self { key, is_ours })
    }

    /// In the form that SDKs up to 2.45 insist on.
    fn make(path: &Path) -> std::io::Result<()> {
        let random = || uuid::Uuid::new_v4().simple().to_string();
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "e2b_{}{}", random(), &random()[..8])
    }
}

/// On this machine homes are in the state folder; elsewhere that folder means nothing.
fn homes(args: &E2bArgs, server: &SessionServer, state: &Path) -> anyhow::Result<Option<PathBuf>> {
    match (&args.homes, server) {
        (Some(homes), _) if !homes.is_absolute() => {
            anyhow::bail!("--homes {} is not absolute: it is a folder of the sandboxes' machine", homes.display())
        }
        (Some(homes), _) => Ok(Some(homes.clone())),
        (None, SessionServer::OfAccount(_)) => Ok(Some(state.join("homes"))),
        (None, SessionServer::Remote(_)) => Ok(None),
    }
}

fn policy(args: &E2bArgs) -> anyhow::Result<PolicyChoice> {
    let sandbox = SandboxChoice::load(&args.sandbox)?;
    if let Some(sandbox) = &sandbox {
        // What is wrong with it is told now, and not to every client.
        sandbox.policy(Path::new("/"))?;
    }
    Ok(Arc::new(move |home: &Path| match &sandbox {
        Some(sandbox) => sandbox.policy(home).map_err(|why| format!("{why:#}")),
        None => Ok(None),
    }))
}

/// This machine's server, unless the options name another environment: a variable that others read does not change it.
fn choose_server(args: &E2bArgs) -> anyhow::Result<SessionServer> {
    let named = args.target.connect.is_some() || args.target.environment.is_some();
    if named && let Target::Remote(remote) = target::choose(&args.target)? {
        return Ok(SessionServer::Remote(remote));
    }
    Ok(SessionServer::OfAccount(Arc::new(LocalDaemon::of_this_account()?)))
}

/// The sessions of the sandboxes.
struct Sessions(SessionServer);

impl SessionSource for Sessions {
    fn open(&self, resume: Option<String>) -> BoxFuture<'_, Result<Arc<dyn SandboxSession>, OpenFailure>> {
        Box::pin(async move {
            match self.0.open(CLIENT_NAME, DETACHED_TTL, resume).await {
                Ok(environment) => Ok(Arc::new(RemoteSession(environment)) as Arc<dyn SandboxSession>),
                Err(ConnectFailure::UnknownSession { .. }) => Err(OpenFailure::UnknownSession),
                Err(failure) => Err(OpenFailure::Unreachable { why: failure.to_string() }),
            }
        })
    }
}

struct RemoteSession(RemoteEnvironment);

impl SandboxSession for RemoteSession {
    fn environment(&self) -> &dyn Environment {
        &self.0
    }

    fn id(&self) -> Option<String> {
        self.0.session_id()
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // A failure leaves the session to its time limit.
            if let Err(error) = self.0.end_session().await {
                tracing::warn!(%error, "cannot end the session of a sandbox");
            }
        })
    }
}
