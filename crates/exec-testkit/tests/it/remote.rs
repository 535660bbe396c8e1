//! The same machine at the far end of a connection: the suite judges it unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exec_client::{Dial, Options as ClientOptions, RemoteEnvironment};
use exec_env::BoxFuture;
use exec_local::{LocalEnvironment, LocalOptions};
use exec_rpc::{Server, ServerOptions};
use exec_testkit::Bench;
use exec_testkit::faulty::{Faults, faulty_pair};
use exec_transport::{
    ConnectError, ConnectOptions, Connection, ListenOptions, ListenUrl, Listener, Program, Target, memory_pair,
};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::environments::ACTOR;

/// Messages a memory connection holds.
const CAPACITY: usize = 64;

/// A server over this machine, and the tasks that carry it; they end with the bench.
pub(crate) struct Served {
    server: Arc<Server>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

async fn served() -> Served {
    let environment = LocalEnvironment::open(LocalOptions::default()).await.expect("this machine can be set up");
    let server = Server::start(Arc::new(environment), ServerOptions::default()).await.expect("a server can begin");
    let mut tasks = JoinSet::new();
    tasks.spawn(server.clone().run_housekeeping());
    Served { server, tasks: Arc::new(Mutex::new(tasks)) }
}

async fn bench(dial: Arc<dyn Dial>, guard: impl std::any::Any + Send + Sync) -> Bench {
    let options = ClientOptions { give_up: Some(Duration::from_secs(50)), ..ClientOptions::default() };
    let environment = RemoteEnvironment::open(dial, options).await.expect("the server answers");
    Bench::new(Arc::new(environment), ACTOR).keep(guard)
}

/// A dial whose every connection is served within this process.
fn within(
    served: &Served,
    pair: impl Fn(&mut JoinSet<()>) -> (Connection, Connection) + Send + Sync + 'static,
) -> Arc<dyn Dial> {
    let (server, tasks) = (served.server.clone(), served.tasks.clone());
    let pair = Arc::new(pair);
    Arc::new(move || -> BoxFuture<'static, Result<Connection, ConnectError>> {
        let (server, tasks, pair) = (server.clone(), tasks.clone(), pair.clone());
        Box::pin(async move {
            let mut tasks = tasks.lock().await;
            let (ours, theirs) = pair(&mut tasks);
            tasks.spawn(async move { server.serve(theirs).await });
            Ok(ours)
        })
    })
}

pub(crate) async fn over_memory() -> Bench {
    let served = served().await;
    let dial = within(&served, |_| memory_pair(CAPACITY));
    bench(dial, served).await
}

pub(crate) async fn over_a_transport_that_breaks() -> Bench {
    static DIALS: AtomicU64 = AtomicU64::new(0);
    // Each test is a process of its own, so `EXEC_FAULT_SEED` gives it other faults.
    let seed: u64 = std::env::var("EXEC_FAULT_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let served = served().await;
    let dial = within(&served, move |tasks| {
        let seed = seed + DIALS.fetch_add(1, Ordering::Relaxed);
        let (ours, theirs, carrier) = faulty_pair(Faults::default(), seed);
        tasks.spawn(carrier);
        (ours, theirs)
    });
    bench(dial, served).await
}

pub(crate) async fn over_websocket() -> Bench {
    over_listener(ListenUrl::WebSocket("127.0.0.1:0".parse().expect("an address"))).await
}

pub(crate) async fn over_unix_socket() -> Bench {
    let folder = tempfile::tempdir().expect("a temporary folder");
    over_listener(ListenUrl::Unix(folder.path().join("exec.sock"))).await.keep(folder)
}

async fn over_listener(url: ListenUrl) -> Bench {
    let (url, served) = listening(url).await;
    let target: Target = url.parse().expect("what is listened on can be connected to");
    let dial = exec_client::TargetDial::new(target, ConnectOptions::default());
    bench(Arc::new(dial), served).await
}

/// A server that listens, and where.
pub(crate) async fn listening(url: ListenUrl) -> (String, Served) {
    let served = served().await;
    let mut listener = Listener::bind(&url, ListenOptions::default()).await.expect("it can listen");
    let url = listener.url();
    let server = served.server.clone();
    let acceptor = async move {
        let mut connections = JoinSet::new();
        while let Ok(connection) = listener.accept().await {
            let server = server.clone();
            connections.spawn(async move { server.serve(connection).await });
        }
    };
    served.tasks.lock().await.spawn(acceptor);
    (url, served)
}

pub(crate) async fn over_stdio() -> Bench {
    let program = Program {
        program: exec_testkit::binaries::exec_server().into(),
        args: ["serve", "--listen", "stdio"].map(Into::into).to_vec(),
        ..Program::default()
    };
    let dial = exec_client::TargetDial::new(Target::Program(program), ConnectOptions::default());
    bench(Arc::new(dial), ()).await
}
