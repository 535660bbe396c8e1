//! Who may not connect though everybody may: what that depends on is not known here.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Asked of each TCP connection before anything is read from it. Clones ask the same.
#[derive(Clone)]
pub struct PeerCheck(Arc<CheckPeer>);

type CheckPeer = dyn Fn(SocketAddr, SocketAddr) -> Result<(), String> + Send + Sync;

impl PeerCheck {
    /// `check` gets the address of the peer and ours. Its error says why the peer may not enter; the peer is told that.
    pub fn new(check: impl Fn(SocketAddr, SocketAddr) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    pub(super) fn check(&self, peer: SocketAddr, own: SocketAddr) -> Result<(), String> {
        (self.0)(peer, own)
    }
}

impl fmt::Debug for PeerCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerCheck")
    }
}
