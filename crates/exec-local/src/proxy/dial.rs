//! Names become addresses once, and exactly those that were judged are dialled.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use exec_core::network::Host;
use exec_env::BoxFuture;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;

/// Lookups under way at a time, of all processes: each takes a thread for as long as a name server likes.
const LOOKUPS: usize = 64;
/// How long a name server may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an address may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Most addresses of a name that are looked at.
const ADDRESSES: usize = 16;

/// How a name is looked up.
type Lookup = dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync;

/// Looks names up, a bounded number at a time.
pub(crate) struct Lookups {
    lookup: Box<Lookup>,
    room: Semaphore,
}

impl Lookups {
    pub(crate) fn of_this_machine() -> Self {
        Self::with(|name| {
            Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|found| found.ip()).collect()) })
        })
    }

    pub(crate) fn with(
        lookup: impl Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync + 'static,
    ) -> Self {
        Self { lookup: Box::new(lookup), room: Semaphore::new(LOOKUPS) }
    }

    /// The addresses of a host; none if it has none, or nobody knows in time.
    pub(crate) async fn addresses(&self, host: &Host) -> Vec<IpAddr> {
        if let Some(address) = host.address() {
            return vec![address];
        }
        let lookup = async {
            let _room = self.room.acquire().await;
            (self.lookup)(host.as_str().to_owned()).await
        };
        let mut found = match tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        found.dedup();
        found.truncate(ADDRESSES);
        found
    }
}

/// From which of our ports the proxies and the streams have dialled which addresses. A server of ours asks: it must not serve
/// what comes through them, because that may be a sandboxed process, or a client that a token restricts.
#[derive(Debug, Default)]
pub(crate) struct DialledPorts(Mutex<HashSet<(u16, SocketAddr)>>);

impl DialledPorts {
    fn lock(&self) -> MutexGuard<'_, HashSet<(u16, SocketAddr)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn contains(&self, peer: SocketAddr, own: SocketAddr) -> bool {
        self.lock().contains(&(peer.port(), canonical(own)))
    }
}

/// `0.0.0.0` leads to the loopback, and a server that listens for both kinds of addresses sees the old ones as new ones.
fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    SocketAddr::new(ip, address.port())
}

/// A connection to the world. As long as it lives, its port is among the dialled.
pub(crate) struct Dialled {
    pub(crate) stream: TcpStream,
    pub(crate) port: DialledPort,
}

/// Given back when it is dropped.
pub(crate) struct DialledPort {
    ports: Arc<DialledPorts>,
    key: (u16, SocketAddr),
}

impl Drop for DialledPort {
    fn drop(&mut self) {
        self.ports.lock().remove(&self.key);
    }
}

/// Dials one address after the other.
pub(crate) async fn dial(ports: &Arc<DialledPorts>, addresses: &[IpAddr], port: u16) -> io::Result<Dialled> {
    let mut last = io::Error::from(io::ErrorKind::HostUnreachable);
    for address in addresses {
        match tokio::time::timeout(CONNECT_TIMEOUT, dial_one(ports, SocketAddr::new(*address, port))).await {
            Ok(Ok(dialled)) => return Ok(dialled),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

async fn dial_one(ports: &Arc<DialledPorts>, address: SocketAddr) -> io::Result<Dialled> {
    let (socket, any) = match address {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, IpAddr::from(Ipv6Addr::UNSPECIFIED)),
    };
    // Bound first, so that the port is known before anybody can see the connection.
    socket.bind(SocketAddr::new(any, 0))?;
    let key = (socket.local_addr()?.port(), canonical(address));
    ports.lock().insert(key);
    let port = DialledPort { ports: ports.clone(), key };
    let stream = socket.connect(address).await?;
    let _ = stream.set_nodelay(true);
    Ok(Dialled { stream, port })
}
