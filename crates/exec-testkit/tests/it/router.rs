//! Several environments behind one server: client → gateway → two far servers.
//!
//! The conformance suites run here on the environment that is not the default, while the server of the default one has been
//! killed. What they cannot see is in [`routes`] (which environment a request is for) and [`absent_places`] (places that
//! are away, and come back).

mod absent_places;
pub(crate) mod daemon;
mod routes;

use std::sync::Arc;
use std::time::Duration;

use exec_client::{Environments, Options, RemoteEnvironment};
use exec_env::SharedEnvironment;
use exec_router::{Router, RouterOptions};
use exec_rpc::{Server, ServerOptions};
use exec_testkit::suite_files::FilesTestEnvironment;
use exec_testkit::{TestEnvironment, conformance, files_conformance};
use exec_transport::ListenUrl;

use crate::environments::ACTOR;
use crate::remote::{self, InProcessServer};

conformance!(processes_behind_a_gateway, behind_a_gateway());
files_conformance!(files_behind_a_gateway, files());

async fn files() -> FilesTestEnvironment {
    FilesTestEnvironment::new(behind_a_gateway().await).remote()
}

/// The environment `b` of a gateway whose default environment `a` was there and is gone.
async fn behind_a_gateway() -> TestEnvironment {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (a_url, a) = remote::listen(ListenUrl::Unix(folder.path().join("a"))).await;
    let (b_url, b) = remote::listen(ListenUrl::Unix(folder.path().join("b"))).await;
    let gateway = Gateway::start(&format!("default = \"a\"\n{}", two(&a_url, &b_url)), ServerOptions::default()).await;
    let reached = gateway.client.environment("a").await;
    assert!(reached.is_ok(), "it is there: {reached:?}");
    drop(a);
    let environment = gateway.environment("b").await;
    TestEnvironment::new(environment, ACTOR).keep(gateway).keep(b).keep(folder)
}

/// The lines of two environments, `a` and `b`.
pub(crate) fn two(a: &str, b: &str) -> String {
    let line = |id: &str, url: &str| format!("[[environments]]\nid = \"{id}\"\nurl = \"{url}\"\n");
    line("a", a) + &line("b", b)
}

/// A gateway in this process, and a client of it.
struct Gateway {
    client: Arc<RemoteEnvironment>,
    router: Arc<Router>,
    _server: InProcessServer,
}

impl Gateway {
    /// With these environments and without this machine.
    async fn start(environments: &str, options: ServerOptions) -> Self {
        let text = format!("include_local = false\n{environments}");
        let configured = Environments::parse(&text, "environments.toml".as_ref()).expect("it is well formed");
        let patience = Duration::from_millis(500);
        let options_of_router = RouterOptions { state_dir: options.state_dir.clone(), patience };
        let router = Router::open(&configured, None, options_of_router).expect("the state folder is ours");
        let server = Server::start_with(router.clone(), options).await.expect("nothing fails at once");
        let server = InProcessServer::run(server);
        let options = Options { give_up: Some(Duration::from_secs(50)), ..Options::default() };
        let client = RemoteEnvironment::open(server.dial(), options).await.expect("the gateway answers");
        Self { client: Arc::new(client), router, _server: server }
    }

    async fn environment(&self, id: &str) -> SharedEnvironment {
        Arc::new(self.client.environment(id).await.expect("that environment is there"))
    }
}
