//! Where a test runs: this machine, or this machine behind a server and a proxy that cuts.

use std::sync::Arc;
use std::time::Duration;

use exec_server::SharedEnvironment;
use exec_server::client::{self, ConnectOptions, Options};
use exec_server::local::LocalEnvironment;
use exec_server::serve::{self, ListenOptions, ListenUrl, Listener, Server, ServerOptions};
use exec_testkit::proxy::CuttingProxy;
use exec_testkit::runner::run_test;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// No test takes this long unless something hangs.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs the test on this machine, then on a far one.
pub(crate) fn everywhere<F: Future<Output = ()>>(name: &str, test: impl Fn(SharedEnvironment) -> F) {
    run_test(name, DEADLINE, Box::pin(async { test(Arc::new(open().await)).await }));
    far_away(name, |stage| test(stage.environment));
}

/// Runs the test on a far machine only.
pub(crate) fn far_away<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Far) -> F) {
    run_test(
        name,
        DEADLINE,
        Box::pin(async {
            let machine = Arc::new(open().await);
            let server = Server::start(machine.clone(), ServerOptions::default()).await.expect("a server can begin");
            let address = ListenUrl::WebSocket("127.0.0.1:0".parse().expect("an address"));
            let listener = Listener::bind(&address, ListenOptions::default()).await.expect("the loopback has a port");
            let url = listener.url();
            let address = url.trim_start_matches("ws://").trim_end_matches('/').parse().expect("an address");
            let (stop, stopped) = oneshot::channel::<()>();
            let mut serving = JoinSet::new();
            serving.spawn(async move { serve::run(&server, listener, async { drop(stopped.await) }).await });
            let proxy = Arc::new(CuttingProxy::start(address).await);
            let target = format!("ws://{}", proxy.address()).parse().expect("a URL");
            let remote = client::connect(target, ConnectOptions::default(), Options::default()).await;
            let environment = Arc::new(remote.expect("the server answers"));
            test(Far { environment, proxy: Arc::clone(&proxy) }).await;
            drop(proxy);
            drop(stop);
            serving.join_next().await.expect("it serves").expect("without a panic").expect("and without an error");
            machine.end().await;
        }),
    );
}

/// A far machine, and what is between us and it.
pub(crate) struct Far {
    pub(crate) environment: SharedEnvironment,
    pub(crate) proxy: Arc<CuttingProxy>,
}

async fn open() -> LocalEnvironment {
    exec_server::open_local().await.expect("this machine can be set up")
}
