//! Who may not connect though everybody may: what that depends on is not known here.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

/// Asked of each TCP connection before anything is read from it. Clones ask the same.
#[derive(Clone)]
pub struct PeerCheck(Arc<CheckFunction>);

type CheckFunction = dyn Fn(SocketAddr, SocketAddr) -> CheckFuture + Send + Sync;

type CheckFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

impl PeerCheck {
    /// `check` gets the address of the peer and ours. Its error says why the peer may not enter; the peer is told that.
    pub fn new<F>(check: impl Fn(SocketAddr, SocketAddr) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self(Arc::new(move |peer, own| Box::pin(check(peer, own))))
    }

    pub(super) async fn check(&self, peer: SocketAddr, own: SocketAddr) -> Result<(), String> {
        (self.0)(peer, own).await
    }
}

impl fmt::Debug for PeerCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerCheck")
    }
}
