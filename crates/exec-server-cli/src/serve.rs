//! `exec-server serve`: serves this machine to clients.
//!
//! It opens the environment, listens, prints the URLs, and then handles one event at a time: a new connection, the end of
//! one, a signal. On stdio there is one connection, and its end is the end of the server; but not of its processes, if
//! there is a state folder in which the next server finds them.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use exec_client::{Environments, environments};
use exec_env::Environment;
use exec_keeper::passed_sockets;
use exec_keeper::start_keeper::KeeperProgram;
use exec_local::descriptors::{DescriptorBudget, DescriptorUse};
use exec_local::{KeeperChoice, LocalEnvironment, LocalOptions, OpenError};
use exec_router::{Router, RouterOptions};
use exec_rpc::audit::{AuditEvent, AuditSink};
use exec_rpc::limits::CLOSE_TIMEOUT;
use exec_rpc::{Ceiling, Server, ServerOptions, Workers};
use exec_transport::{
    AcceptError, Auth, AuthSettings, ConnectionBudget, ListenOptions, ListenUrl, Listener, PassedSocket, PeerCheck,
    PendingConnection, ServerTls, ServerTlsOptions, SharedRoom,
};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::args::{AuthArgs, ListenPlace, ServeArgs, ServeAuditArgs};
use crate::audit::log::{AuditLog, AuditOptions};
use crate::idle::IdleTime;
use crate::signal_listener::SignalListener;
use crate::{audit, messages, runtime, target};

/// Accepted connections that wait to be served. Beyond this nothing is accepted, so the kernel's queue fills instead of
/// our memory.
const ACCEPT_QUEUE: usize = 16;

/// How long a server on stdio waits for the one before it to leave the state folder: longer than an orderly end takes.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(5);

/// Without a limit nobody looks whether it is passed.
const NO_LOOKS: Duration = Duration::from_secs(3600);

/// How often it looks.
const PREDECESSOR_PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn main(args: &ServeArgs) -> ExitCode {
    // The programs that we start run as the same user. They must not be able to read our memory, where tokens and the
    // variables of others are, or to take our descriptors. Without the right to do this we serve all the same.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if args.own_session {
        // It fails only if we lead a process group already, and then nobody's terminal is left to leave.
        let _ = rustix::process::setsid();
    }
    runtime::run_server(serve(args))
}

/// Where we listen: a socket that we bind, or one that was bound for us.
enum ListenTarget {
    Own(ListenUrl),
    Passed(PassedSocket),
}

impl ListenTarget {
    fn url(&self) -> &ListenUrl {
        match self {
            Self::Own(url) => url,
            Self::Passed(socket) => socket.url(),
        }
    }
}

/// What was named, with `fd://` replaced by what was passed to us.
fn listen_targets(args: &ServeArgs) -> anyhow::Result<Vec<ListenTarget>> {
    let tls = args.tls.tls_cert.is_some() || args.tls.tls_self_signed;
    let mut targets = Vec::new();
    for place in args.places()? {
        match place {
            ListenPlace::Url(url) => targets.push(ListenTarget::Own(url)),
            ListenPlace::Passed => {
                let passed = passed_sockets::take().context("cannot use the sockets that were passed to us")?;
                anyhow::ensure!(
                    !passed.is_empty(),
                    "--listen fd:// is for sockets that systemd passes (LISTEN_FDS), and there are none: start it by a \
                     .socket unit, or with systemd-socket-activate"
                );
                for socket in passed {
                    targets.push(ListenTarget::Passed(PassedSocket::new(socket, tls)?));
                }
            }
        }
    }
    Ok(targets)
}

#[derive(Clone, Copy)]
enum Shutdown {
    /// Processes are ended.
    Stop,
    /// Processes go on in the keeper, for the next server on the same state directory.
    HandOver,
}

impl Shutdown {
    /// What the end of the connection over stdio means, in whatever way we hear of it.
    fn of_lost_connection(args: &ServeArgs) -> Self {
        if args.state_dir.is_some() { Self::HandOver } else { Self::Stop }
    }
}

async fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    let targets = listen_targets(args)?;
    let urls: Vec<ListenUrl> = targets.iter().map(|target| target.url().clone()).collect();
    let auth = auth(&args.auth, &urls)?;
    let tls = args.tls.options(&urls, args.state_dir.as_ref())?;
    let ceiling = args.policy.as_deref().map(Ceiling::read_file).transpose()?.unwrap_or_default();
    let configured = configured_environments(args)?;
    let audit = ServedAudit::start(&args.audit)?;
    let workers =
        Workers::start(args.workers.unwrap_or_else(Workers::default_count)).context("cannot start threads")?;
    let environment = Arc::new(open_environment(args, &urls, &workers, &ceiling).await?);
    let options = ServerOptions {
        detached_ttl: args.detached_ttl,
        detached_ttl_max: args.max_detached_ttl.max(args.detached_ttl),
        keep_max: args.max_keep,
        concurrent_requests: args.concurrent_requests as usize,
        state_dir: args.state_dir.clone(),
        operators_everywhere: args.operators_everywhere,
        ceiling: Arc::new(ceiling),
        audit: audit.as_ref().map(|audit| audit.sink.clone()),
        allow_environment_add: args.allow_environment_add,
    };
    let router = configured.map(|configured| router(args, &configured, environment.clone())).transpose()?;
    let server = match &router {
        Some(router) => Server::start_with(router.clone(), options).await?,
        None => Server::start(environment.clone(), options).await?,
    };
    if !is_stdio_only(&urls) {
        // Such a server would say where it listens, and refuse everybody who comes.
        let room = environment.descriptors().take(DescriptorUse::Connections, 1);
        room.context("a server needs more open files: raise their limit with `ulimit -n`, or LimitNOFILE= in systemd")?;
    }
    let admission = Admission {
        auth,
        tls,
        budget: connection_budget(environment.descriptors().clone()),
        peer_check: peer_check(environment.clone()),
    };
    let end = listen(args, targets, &admission, &server, &environment, &workers).await;
    server.stop();
    // A keeper without processes has nothing to wait for. Sessions are in the state folder.
    let is_empty = has_no_processes(&environment).await;
    if let (Some(router), Ok(Shutdown::Stop)) = (&router, &end) {
        router.end().await;
    }
    match end {
        Ok(Shutdown::HandOver) | Err(_) if !is_empty => environment.hand_over().await,
        Ok(_) | Err(_) => {
            environment.end().await;
            server.finish().await;
        }
    }
    if let Some(audit) = audit {
        audit.finish().await;
    }
    workers.stop();
    end.map(drop)
}

/// What a gateway serves; `None` if this machine is all there is.
fn configured_environments(args: &ServeArgs) -> anyhow::Result<Option<Environments>> {
    let mut configured = match &args.environments {
        Some(path) => {
            let read = Environments::read(path)?;
            read.with_context(|| format!("{} does not exist", path.display()))?
        }
        None if args.allow_environment_add => Environments::parse("", Path::new(environments::FILE_NAME))?,
        None => return Ok(None),
    };
    for server in configured.servers_mut() {
        target::trust_as_variables_say(server)?;
    }
    Ok(Some(configured))
}

fn router(args: &ServeArgs, configured: &Environments, local: Arc<LocalEnvironment>) -> anyhow::Result<Arc<Router>> {
    let options = RouterOptions { state_dir: args.state_dir.clone(), ..RouterOptions::default() };
    Router::open(configured, Some(local), options).context("cannot use the state folder for what runs elsewhere")
}

/// The audit of this server, and the thread that writes it.
struct ServedAudit {
    sink: AuditSink,
    writer: std::thread::JoinHandle<()>,
}

impl ServedAudit {
    fn start(args: &ServeAuditArgs) -> anyhow::Result<Option<Self>> {
        let Some(path) = args.file.clone() else { return Ok(None) };
        let options = AuditOptions { path, max_bytes: args.max_bytes, keep: args.keep };
        let (log, exited) = AuditLog::open(options)?;
        let (sink, receiver) = exec_rpc::audit::audit_queue(args.required);
        receiver.set_known_exits(exited);
        let writer = log.run(receiver).context("cannot start a thread")?;
        Ok(Some(Self { sink, writer }))
    }

    /// The writer ends with this line.
    async fn finish(self) {
        self.sink.flush(AuditEvent::ServerStopped { pid: std::process::id() }).await;
        let _ = self.writer.join();
    }
}

/// Over stdio, the server of a connection that has just broken may still be leaving the state folder when the client
/// comes back with the next one; and so may one that has just ended because nobody used it.
async fn open_environment(
    args: &ServeArgs,
    urls: &[ListenUrl],
    workers: &Workers,
    ceiling: &Ceiling,
) -> anyhow::Result<LocalEnvironment> {
    let give_up = tokio::time::Instant::now() + PREDECESSOR_TIMEOUT;
    let waits_for_predecessor = is_stdio_only(urls) || args.exit_when_idle.is_some();
    loop {
        match LocalEnvironment::open(local_options(args, urls, workers, ceiling)?).await {
            Err(OpenError::Busy { .. }) if waits_for_predecessor && tokio::time::Instant::now() < give_up => {
                tokio::time::sleep(PREDECESSOR_PAUSE).await;
            }
            other => return Ok(other?),
        }
    }
}

fn is_stdio_only(urls: &[ListenUrl]) -> bool {
    urls.iter().all(|url| matches!(url, ListenUrl::Stdio))
}

async fn listen(
    args: &ServeArgs,
    targets: Vec<ListenTarget>,
    admission: &Admission,
    server: &Arc<Server>,
    environment: &LocalEnvironment,
    workers: &Workers,
) -> anyhow::Result<Shutdown> {
    // We listen before the URL is printed, because whoever reads it may send a signal at once.
    let stdio_only = targets.iter().all(|target| matches!(target.url(), ListenUrl::Stdio));
    let lost = Shutdown::of_lost_connection(args);
    let mut signals = shutdown_signals(stdio_only, lost)?;
    // Only now, because a self-signed certificate is kept in the state folder, which is ours from here on.
    let tls = admission.tls.as_ref().map(ServerTls::load).transpose()?;
    if let Some(tls) = &tls {
        let fingerprint = tls.fingerprint();
        messages::print_note(format_args!("the certificate's fingerprint, for --tls-fingerprint: {fingerprint}"));
    }
    let (accepted, mut incoming) = mpsc::channel(ACCEPT_QUEUE);
    let mut listeners = JoinSet::new();
    for target in targets {
        let url = target.url();
        let options = ListenOptions {
            auth: admission.auth.clone().filter(|_| url.socket_address().is_some()),
            tls: tls.clone().filter(|_| matches!(url, ListenUrl::SecureWebSocket(_))),
            insecure_no_auth: args.insecure_no_auth,
            allow_hosts: args.allow_host.clone(),
            max_connections: args.max_connections as usize,
            peer_check: Some(admission.peer_check.clone()),
            budget: Some(admission.budget.clone()),
            ..ListenOptions::default()
        };
        let is_stdio = matches!(url, ListenUrl::Stdio);
        let listener = match target {
            ListenTarget::Own(url) => Listener::bind(&url, options).await?,
            ListenTarget::Passed(socket) => Listener::bind_passed(socket, options).await?,
        };
        // Whoever started us reads this line to learn the port. On stdio, stdout carries the protocol.
        if !is_stdio {
            messages::print_stdout(format!("{}\n", listener.url()).as_bytes()).context("cannot print the URL")?;
        }
        listeners.spawn(accept(listener, accepted.clone()));
    }
    drop(accepted);
    let mut housekeeping = JoinSet::new();
    housekeeping.spawn(server.clone().run_housekeeping());
    let mut connections = JoinSet::new();
    let mut idle = args.exit_when_idle.map(IdleTime::new);
    let mut looks = tokio::time::interval(idle.as_ref().map_or(NO_LOOKS, IdleTime::look_interval));
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            end = signals.next() => {
                server.stop();
                // A write to a child that does not read ends only with the child, which we end after this timeout.
                let finished = async { while connections.join_next().await.is_some() {} };
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, finished).await;
                return Ok(end);
            }
            Some(connection) = incoming.recv() => {
                connections.spawn(workers.spawn(serve_connection(server.clone(), connection)));
            }
            _ = looks.tick(), if idle.is_some() => {
                let Some(idle) = &mut idle else { continue };
                let is_idle = connections.is_empty() && has_no_processes(environment).await;
                // Whoever was accepted meanwhile is served. Whoever comes later is hung up on before a word was said, and
                // finds the next server.
                if let Ok(connection) = incoming.try_recv() {
                    connections.spawn(workers.spawn(serve_connection(server.clone(), connection)));
                    idle.is_over(false, std::time::Instant::now());
                } else if idle.is_over(is_idle, std::time::Instant::now()) {
                    tracing::info!("nobody needs us any more");
                    return Ok(Shutdown::HandOver);
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {
                if stdio_only {
                    return Ok(lost);
                }
            }
            Some(ended) = listeners.join_next(), if !listeners.is_empty() => match ended {
                Ok(AcceptError::StdioTaken) => {}
                Ok(error) => return Err(error.into()),
                Err(error) => return Err(error.into()),
            },
        }
    }
}

/// The signals that end the server, and what becomes of its processes then; `lost` is what a lost connection means.
fn shutdown_signals(stdio_only: bool, lost: Shutdown) -> anyhow::Result<SignalListener<Shutdown>> {
    let actions = [
        // Over stdio this is how the program that carried the connection takes leave.
        (if stdio_only { lost } else { Shutdown::Stop }, SignalKind::terminate()),
        (lost, SignalKind::hangup()),
        (Shutdown::Stop, SignalKind::interrupt()),
        (Shutdown::HandOver, SignalKind::user_defined2()),
    ];
    let signals = SignalListener::listen(actions.map(|(shutdown, kind)| (shutdown, kind.as_raw_value())));
    signals.context("cannot listen for signals")
}

/// Neither running ones, nor any whose results are kept.
async fn has_no_processes(environment: &LocalEnvironment) -> bool {
    environment.processes().list().await.is_ok_and(|processes| processes.is_empty())
}

/// What decides who may connect.
struct Admission {
    auth: Option<Auth>,
    tls: Option<ServerTlsOptions>,
    budget: ConnectionBudget,
    peer_check: PeerCheck,
}

/// A process that we have confined must not ask us for another one that is not, and neither may a client that a token
/// restricts, through a connection that we make for it.
pub(crate) fn peer_check(environment: Arc<LocalEnvironment>) -> PeerCheck {
    PeerCheck::new(move |peer, own| {
        let environment = Arc::clone(&environment);
        async move {
            match environment.is_from_a_sandbox(peer, own).await {
                true => {
                    Err("this connection comes from a sandbox or a stream of this server, which serves nobody inside"
                        .to_owned())
                }
                false => Ok(()),
            }
        }
    })
}

/// Each connection has one of the descriptors that are set aside for them, over all listeners.
pub(crate) fn connection_budget(descriptors: DescriptorBudget) -> ConnectionBudget {
    ConnectionBudget::new(move || match descriptors.take(DescriptorUse::Connections, 1) {
        Ok(permit) => Ok(Box::new(permit) as SharedRoom),
        Err(full) => Err(full.to_string()),
    })
}

/// Runs on a worker, so that the handshake is made there too.
async fn serve_connection(server: Arc<Server>, connection: PendingConnection) {
    if let Some(connection) = connection.handshake().await {
        server.serve(connection).await;
    }
}

/// Accepts connections until the listener fails.
async fn accept(mut listener: Listener, accepted: mpsc::Sender<PendingConnection>) -> AcceptError {
    loop {
        match listener.accept_pending().await {
            Ok(connection) => drop(accepted.send(connection).await),
            Err(error) => return error,
        }
    }
}

fn local_options(
    args: &ServeArgs,
    urls: &[ListenUrl],
    workers: &Workers,
    ceiling: &Ceiling,
) -> anyhow::Result<LocalOptions> {
    let own = runtime::own_program().context("cannot find our own program, which is also the keeper's")?;
    let program = KeeperProgram { program: own, args: vec!["keeper".into()] };
    let keeper = match &args.state_dir {
        Some(state) => {
            let state = std::path::absolute(state).context("cannot make the state folder's path absolute")?;
            KeeperChoice::Durable { program, state, orphan_ttl: args.max_detached_ttl.max(args.detached_ttl) }
        }
        None => KeeperChoice::Process(program),
    };
    Ok(LocalOptions {
        keeper,
        spool_bytes: (args.max_spool_mib << 20).min(ceiling.spool_bytes.unwrap_or(u64::MAX)),
        spool_total_bytes: (args.max_total_spool_mib << 20).min(ceiling.total_spool_bytes.unwrap_or(u64::MAX)),
        runtimes: workers.runtimes(),
        private_paths: private_paths(args, urls)?,
        // Each process needs a few descriptors, and the usual limit of 1,024 is soon reached.
        raise_open_files: true,
        ..LocalOptions::default()
    })
}

/// What a sandboxed program must not reach, or it would ask us to run something without a sandbox.
fn private_paths(args: &ServeArgs, urls: &[ListenUrl]) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let sockets = urls.iter().filter_map(|url| match url {
        ListenUrl::Unix(path) => Some(path),
        _ => None,
    });
    let secrets = args.auth.ws_token_file.iter().chain(&args.auth.ws_shared_secret_file).chain(&args.tls.tls_key);
    let secrets = secrets.chain(&args.policy).chain(&args.environments);
    let absolute = sockets.chain(secrets).map(std::path::absolute);
    let mut paths: Vec<_> = absolute.collect::<Result<_, _>>().context("cannot make a path of ours absolute")?;
    if let Some(log) = &args.audit.file {
        paths.push(audit::log::folder_of(log)?);
    }
    Ok(paths)
}

pub(crate) fn auth(flags: &AuthArgs, urls: &[ListenUrl]) -> anyhow::Result<Option<Auth>> {
    let auth = Auth::from_settings(&AuthSettings {
        mode: flags.ws_auth,
        token_file: flags.ws_token_file.clone(),
        token_sha256: flags.ws_token_sha256.clone(),
        shared_secret_file: flags.ws_shared_secret_file.clone(),
        public_key_file: flags.ws_public_key.clone(),
        issuer: flags.ws_issuer.clone(),
        audience: flags.ws_audience.clone(),
        max_clock_skew_seconds: flags.ws_max_clock_skew_seconds,
    })?;
    let has_websocket = urls.iter().any(|url| url.socket_address().is_some());
    anyhow::ensure!(auth.is_none() || has_websocket, "WebSocket auth requires a WebSocket listener, not stdio");
    Ok(auth)
}
