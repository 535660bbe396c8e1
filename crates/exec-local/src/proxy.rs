//! The proxies of processes: each process that asks for one has its own, with its own rules.
//!
//! ```text
//!   the process ──► listening socket ──► http (hyper), socks5 ──► judgement: rules, decider, addresses ──► dial ──► the world
//!                   the keeper holds it too    │                           │
//!               ──► datagrams ──────────► udp_relay ───────────────────────┤
//!                                                                          └──► the decider hears of every decision
//! ```
//!
//! - `sockets`: where the proxy of a process that is being started will listen;
//! - `judgement`: whether a request may go where it wants to, and what is told of that;
//! - `http`: requests to a proxy and tunnels; `socks5`: the other way to ask for a tunnel;
//! - `udp_relay`: datagrams of a process, as SOCKS5 carries them, as long as the connection lives that asked for it;
//! - `upstream`: through which proxy of the machine a request goes on, if it may;
//! - `dial`: a name is resolved once, and exactly the addresses that were judged are dialled.
//!
//! A process without a network of its own finds its proxy on the machine's loopback. In a sandbox whose only network is the
//! proxy, the sockets were made in the process's own network (see `sys/own_network` in the keeper), and are served here all
//! the same. Either way the keeper holds the sockets as well: if we are killed, connections wait until the next owner takes
//! over, and nobody else accepts them.

pub(crate) mod dial;
mod http;
mod judgement;
mod sockets;
mod socks5;
#[cfg(test)]
mod tests;
mod udp_relay;
mod upstream;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use exec_core::ProcessId;
use exec_core::network::{NetworkProxy, ProxyRules, UpstreamProxies};
use exec_env::NetworkDecider;
use exec_keeper::protocol::PROXY_ROLES;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::descriptors::{DescriptorBudget, DescriptorPermit, DescriptorUse};
use dial::{DialledPorts, Lookups};
use judgement::Judge;
pub(crate) use sockets::ProxySockets;
use udp_relay::RelaySockets;

/// The ports of the proxy in a network of the process's own, in which no other port is taken: for HTTP, for SOCKS5, and for
/// datagrams. In the order of the keeper's roles.
pub(crate) const PROXY_PORTS: [u16; PROXY_ROLES.len()] = [43128, 41080, 41081, 41082, 41083, 41084];

/// Connections of one process to its proxy at a time. One more waits in the socket's queue, as at a busy server.
const CONNECTIONS: usize = 128;

/// Sockets of a connection: the process's and the world's.
const CONNECTION_DESCRIPTORS: usize = 2;

/// Between two tries to accept while no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What all proxies of an environment share.
pub(crate) struct ProxyHost {
    decider: Mutex<Option<Arc<dyn NetworkDecider>>>,
    descriptors: DescriptorBudget,
    dialled: Arc<DialledPorts>,
    lookups: Lookups,
    /// Of this process's own variables, never of a request's.
    upstream: UpstreamProxies,
}

impl ProxyHost {
    pub(crate) fn new(descriptors: DescriptorBudget) -> Self {
        Self {
            decider: Mutex::default(),
            descriptors,
            dialled: Arc::default(),
            lookups: Lookups::of_this_machine(),
            upstream: UpstreamProxies::from_variables(|name| std::env::var(name).ok()),
        }
    }

    pub(crate) fn set_decider(&self, decider: Arc<dyn NetworkDecider>) {
        *self.decider.lock().unwrap_or_else(PoisonError::into_inner) = Some(decider);
    }

    fn decider(&self) -> Option<Arc<dyn NetworkDecider>> {
        self.decider.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The ports from which connections were made for others, to which streams add theirs.
    pub(crate) fn dialled(&self) -> Arc<DialledPorts> {
        Arc::clone(&self.dialled)
    }

    /// Of what processes may open, but only so much that starts go on.
    fn take_descriptors(&self, count: usize) -> Option<[DescriptorPermit; 2]> {
        let take = |purpose| self.descriptors.take(purpose, count);
        let taken = take(DescriptorUse::Proxies).and_then(|part| Ok([part, take(DescriptorUse::Processes)?]));
        taken.inspect_err(|error| tracing::warn!(%error, "a connection to a proxy is refused")).ok()
    }

    /// Whether a connection from `peer` to `own`, an address of this machine, was made by one of the proxies.
    pub(crate) fn has_dialled(&self, peer: SocketAddr, own: SocketAddr) -> bool {
        self.dialled.contains(peer, own)
    }

    /// A proxy that serves these sockets for as long as the future runs. `None` if the rules cannot be read, which were
    /// checked when the process was started, or if a socket is none.
    pub(crate) fn serve(
        self: &Arc<Self>,
        process: &ProcessId,
        proxy: &NetworkProxy,
        sockets: Vec<OwnedFd>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let rules = ProxyRules::new(proxy).ok()?;
        let judge = Arc::new(Judge::new(self.clone(), process.clone(), proxy.clone(), rules));
        let listener = |socket: OwnedFd| {
            let socket = TcpListener::from(socket);
            socket.set_nonblocking(true).ok()?;
            tokio::net::TcpListener::from_std(socket).ok()
        };
        let mut sockets = sockets.into_iter();
        let http = listener(sockets.next()?)?;
        let socks = match sockets.next() {
            Some(socks) => Some(listener(socks)?),
            None => None,
        };
        let relays = Arc::new(RelaySockets::new(sockets)?);
        let host = self.clone();
        Some(async move { ProxyTask { host, judge, http, socks, relays, connections: JoinSet::new() }.run().await })
    }
}

/// Accepts, and owns the tasks of its connections: they end with it.
struct ProxyTask {
    host: Arc<ProxyHost>,
    judge: Arc<Judge>,
    http: tokio::net::TcpListener,
    socks: Option<tokio::net::TcpListener>,
    relays: Arc<RelaySockets>,
    connections: JoinSet<()>,
}

enum Event {
    Http(std::io::Result<(TcpStream, SocketAddr)>),
    Socks(std::io::Result<(TcpStream, SocketAddr)>),
    ConnectionDone,
}

impl ProxyTask {
    async fn run(mut self) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let has_room = room.available_permits() > 0;
            let socks = async {
                match &self.socks {
                    Some(socks) => socks.accept().await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                Some(_) = self.connections.join_next(), if !self.connections.is_empty() => Event::ConnectionDone,
                accepted = self.http.accept(), if has_room => Event::Http(accepted),
                accepted = socks, if has_room => Event::Socks(accepted),
            };
            let (accepted, is_http) = match event {
                Event::ConnectionDone => continue,
                Event::Http(accepted) => (accepted, true),
                Event::Socks(accepted) => (accepted, false),
            };
            let Ok((stream, client)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // A connection that there is no descriptor for is closed: the process sees a proxy that is too busy.
            let Some(permit) = self.take_descriptors() else { continue };
            let Ok(place) = room.clone().try_acquire_owned() else { continue };
            let (judge, relays) = (self.judge.clone(), self.relays.clone());
            self.connections.spawn(async move {
                if is_http {
                    http::serve(judge, stream, client).await;
                } else {
                    socks5::serve(judge, &relays, stream, client).await;
                }
                drop((permit, place));
            });
        }
    }

    fn take_descriptors(&self) -> Option<[DescriptorPermit; 2]> {
        self.host.take_descriptors(CONNECTION_DESCRIPTORS)
    }
}
