//! Being the far end: any environment behind a listener.
//!
//! ```no_run
//! # #[cfg(feature = "local")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use exec_server::serve::{self, ListenOptions, Listener, Server};
//!
//! let machine = Arc::new(exec_server::open_local().await?);
//! let server = Server::start(machine.clone(), serve::ServerOptions::default()).await?;
//! let listener = Listener::bind(&"ws://127.0.0.1:0".parse()?, ListenOptions::default()).await?;
//! println!("listening on {}", listener.url());
//!
//! let interrupted = async { drop(tokio::signal::ctrl_c().await) };
//! serve::run(&server, listener, interrupted).await?;
//! machine.end().await;
//! # Ok(())
//! # }
//! ```
//!
//! Connections share the limit of open files with everything else that the environment opens. A server with many clients
//! gives its listeners a [`ListenOptions::budget`] that takes their share of `LocalEnvironment::descriptors`.
//!
//! Whoever may connect may do whatever this program may do. A unix socket is for the same user only; a WebSocket
//! listener on anything but the loopback interface needs [`ListenOptions::auth`].

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use exec_rpc::limits::CLOSE_TIMEOUT;
use tokio::task::JoinSet;

pub use exec_rpc::audit;
pub use exec_rpc::{Ceiling, Server, ServerOptions, ServerStartError};
pub use exec_transport::{
    AcceptError, Auth, AuthError, AuthMode, AuthSettings, BindError, CertificateSource, Connection, ConnectionBudget,
    Fingerprint, ListenOptions, ListenUrl, ListenUrlError, Listener, PeerCheck, ServerTls, ServerTlsOptions,
    SharedRoom, TlsError, memory_pair, token,
};

/// Serves every connection that `listener` accepts, until `shutdown` is ready or nothing can be accepted any more.
///
/// In the end the server is stopped: its connections get a short time to finish what they do. What it started still
/// runs; whoever owns the environment ends it. End it by `shutdown` and not by dropping the future, which would cut the
/// connections in the middle of what they do and leave their sessions attached to nobody.
pub async fn run(
    server: &Arc<Server>,
    mut listener: Listener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), AcceptError> {
    let mut shutdown = pin!(shutdown);
    let mut housekeeping = JoinSet::new();
    housekeeping.spawn(server.clone().run_housekeeping());
    let mut connections = JoinSet::new();
    let ended = loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break Ok(()),
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(connection) => {
                let server = server.clone();
                connections.spawn(async move { server.serve(connection).await });
            }
            // Stdio is a single connection, and when it ends there is nothing left to serve.
            Err(AcceptError::StdioTaken) => {
                tokio::select! {
                    () = &mut shutdown => {}
                    () = all_ended(&mut connections) => {}
                }
                break Ok(());
            }
            Err(error) => break Err(error),
        }
        // Connections that have ended leave their results behind, which nobody wants.
        while connections.try_join_next().is_some() {}
    };
    server.stop();
    // A request that waits for a child ends only with the child; it must not hold up our own end.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, all_ended(&mut connections)).await;
    ended
}

async fn all_ended(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
}
