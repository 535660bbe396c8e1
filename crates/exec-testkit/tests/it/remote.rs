//! Environments at the far end of a connection, for the conformance suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exec_client::{Dial, Options as ClientOptions, RemoteEnvironment};
use exec_core::{Command, ProcessId};
use exec_env::{BoxFuture, Environment};
use exec_local::{LocalEnvironment, LocalOptions};
use exec_rpc::{Server, ServerOptions, Workers};
use exec_testkit::TestEnvironment;
use exec_testkit::faulty_transport::{Faults, faulty_pair};
use exec_transport::{
    ConnectError, ConnectOptions, Connection, ListenOptions, ListenUrl, Listener, Program, Target, memory_pair,
};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::environments::ACTOR;

/// Messages a memory connection holds.
const CAPACITY: usize = 64;

/// A server in this process, and its tasks; they end with this.
pub(crate) struct InProcessServer {
    server: Arc<Server>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl InProcessServer {
    pub(crate) fn run(server: Arc<Server>) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(server.clone().run_housekeeping());
        Self { server, tasks: Arc::new(Mutex::new(tasks)) }
    }

    /// Dials it over memory.
    pub(crate) fn dial(&self) -> Arc<dyn Dial> {
        in_process_dial(self, |_| memory_pair(CAPACITY))
    }
}

async fn start_server() -> InProcessServer {
    let environment = LocalEnvironment::open(LocalOptions::default()).await.expect("this machine can be set up");
    let server = Server::start(Arc::new(environment), ServerOptions::default()).await.expect("a server can begin");
    InProcessServer::run(server)
}

async fn test_environment(dial: Arc<dyn Dial>, guard: impl std::any::Any + Send + Sync) -> TestEnvironment {
    let options = ClientOptions { give_up: Some(Duration::from_secs(50)), ..ClientOptions::default() };
    let environment = RemoteEnvironment::open(dial, options).await.expect("the server answers");
    TestEnvironment::new(Arc::new(environment), ACTOR).keep(guard)
}

/// Dials the server in this process.
fn in_process_dial(
    server: &InProcessServer,
    pair: impl Fn(&mut JoinSet<()>) -> (Connection, Connection) + Send + Sync + 'static,
) -> Arc<dyn Dial> {
    let (server, tasks) = (server.server.clone(), server.tasks.clone());
    let pair = Arc::new(pair);
    Arc::new(move || -> BoxFuture<'static, Result<Connection, ConnectError>> {
        let (server, tasks, pair) = (server.clone(), tasks.clone(), pair.clone());
        Box::pin(async move {
            let mut tasks = tasks.lock().await;
            let (client_end, server_end) = pair(&mut tasks);
            tasks.spawn(async move { server.serve(server_end).await });
            Ok(client_end)
        })
    })
}

pub(crate) async fn over_memory() -> TestEnvironment {
    let server = start_server().await;
    test_environment(server.dial(), server).await
}

pub(crate) async fn over_a_transport_that_breaks() -> TestEnvironment {
    static DIALS: AtomicU64 = AtomicU64::new(0);
    // `EXEC_FAULT_SEED` gives a test other faults; each test is a process of its own.
    let seed: u64 = std::env::var("EXEC_FAULT_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let server = start_server().await;
    let dial = in_process_dial(&server, move |tasks| {
        let seed = seed + DIALS.fetch_add(1, Ordering::Relaxed);
        let (client_end, server_end, relay) = faulty_pair(Faults::default(), seed);
        tasks.spawn(relay);
        (client_end, server_end)
    });
    test_environment(dial, server).await
}

pub(crate) async fn over_websocket() -> TestEnvironment {
    over_listener(ListenUrl::WebSocket("127.0.0.1:0".parse().expect("an address"))).await
}

pub(crate) async fn over_unix_socket() -> TestEnvironment {
    let folder = tempfile::tempdir().expect("a temporary folder");
    over_listener(ListenUrl::Unix(folder.path().join("exec.sock"))).await.keep(folder)
}

async fn over_listener(url: ListenUrl) -> TestEnvironment {
    let (url, server) = listen(url).await;
    let target: Target = url.parse().expect("what is listened on can be connected to");
    let dial = exec_client::TargetDial::new(target, ConnectOptions::default());
    test_environment(Arc::new(dial), server).await
}

/// Starts a server on `url`; returns the URL with the actual port.
pub(crate) async fn listen(url: ListenUrl) -> (String, InProcessServer) {
    let server = start_server().await;
    let mut listener = Listener::bind(&url, ListenOptions::default()).await.expect("it can listen");
    let url = listener.url();
    let rpc = server.server.clone();
    // As in the daemon: connections live on other threads than the environment, and a session may change its thread.
    let workers = Workers::start(exec_testkit::worker_count()).expect("threads can be started");
    let acceptor = async move {
        let mut connections = JoinSet::new();
        while let Ok(pending) = listener.accept_pending().await {
            let server = rpc.clone();
            connections.spawn(workers.spawn(async move {
                if let Some(connection) = pending.handshake().await {
                    server.serve(connection).await;
                }
            }));
        }
    };
    server.tasks.lock().await.spawn(acceptor);
    (url, server)
}

pub(crate) async fn over_stdio() -> TestEnvironment {
    let program = Program {
        program: exec_testkit::binaries::exec_server().into(),
        args: ["serve", "--listen", "stdio"].map(Into::into).to_vec(),
        ..Program::default()
    };
    let dial = exec_client::TargetDial::new(Target::Program(program), ConnectOptions::default());
    test_environment(Arc::new(dial), ()).await
}

#[tokio::test]
async fn whoever_ends_its_session_hears_that_it_is_ended_before_the_connection_closes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (url, _server) = listen(ListenUrl::Unix(folder.path().join("exec.sock"))).await;
    for round in 0..20 {
        let target: Target = url.parse().expect("what is listened on can be connected to");
        let dial = exec_client::TargetDial::new(target, ConnectOptions::default());
        let options = ClientOptions { give_up: Some(Duration::from_secs(50)), ..ClientOptions::default() };
        let environment = RemoteEnvironment::open(Arc::new(dial), options).await.expect("the server answers");
        let id = ProcessId::new("p").expect("short");
        environment.processes().start(&id, Command::new([ACTOR, "wait-forever"], "/")).await.expect("it starts");
        assert_eq!(environment.end().await, Ok(()), "in round {round}");
    }
}
