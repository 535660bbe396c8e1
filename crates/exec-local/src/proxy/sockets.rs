//! Where the proxy of a process that is being started will listen, and how the process finds it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use exec_core::Command;
use exec_core::network::{NetworkProxy, proxy_variables};
use exec_core::sandbox::{Confinement, NetworkPolicy};

use super::PROXY_PORTS;

/// Where the proxy of a process that is being started listens.
pub(crate) enum ProxySockets {
    None,
    /// On the machine's loopback; the keeper gets them to hold, and gives them back with the process.
    Loopback(Vec<TcpListener>, NetworkProxy),
    /// The child makes them, in its own network, those for datagrams too: nobody else can make one there.
    OwnNetwork(Vec<u16>, NetworkProxy),
}

impl ProxySockets {
    /// How many there will be; two if there is a proxy at all, whatever it speaks.
    pub(crate) fn needed(command: &Command) -> usize {
        match &command.network_proxy {
            None => 0,
            Some(proxy) if has_own_network(command) => own_ports(proxy).len().max(2),
            Some(_) => 2,
        }
    }

    pub(crate) fn new(command: &Command) -> std::io::Result<Self> {
        let Some(proxy) = &command.network_proxy else { return Ok(Self::None) };
        if has_own_network(command) {
            return Ok(Self::OwnNetwork(own_ports(proxy), proxy.clone()));
        }
        Ok(Self::Loopback(listen(proxy)?, proxy.clone()))
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Loopback(sockets, _) => sockets.len(),
            Self::OwnNetwork(ports, _) => ports.len(),
        }
    }

    /// How many the keeper is given.
    pub(crate) fn given(&self) -> u8 {
        match self {
            Self::Loopback(sockets, _) => sockets.len() as u8,
            Self::None | Self::OwnNetwork(..) => 0,
        }
    }

    /// By which the process finds its proxy.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let (ports, proxy): (Vec<u16>, _) = match self {
            Self::None => return Vec::new(),
            Self::Loopback(sockets, proxy) => {
                let port = |socket: &TcpListener| socket.local_addr().map_or(0, |address| address.port());
                (sockets.iter().map(port).collect(), proxy)
            }
            Self::OwnNetwork(ports, proxy) => (ports.clone(), proxy),
        };
        let at = |port: &u16| SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
        let Some(http) = ports.first().map(at) else { return Vec::new() };
        proxy_variables(http, ports.get(1).map(at), proxy.allow_local)
    }

    pub(crate) fn put_in(&self, confinement: &mut Confinement) {
        if let Self::OwnNetwork(ports, _) = self {
            confinement.network = Some(ports.clone());
        }
    }

    pub(crate) fn into_descriptors(self) -> Vec<OwnedFd> {
        match self {
            Self::Loopback(sockets, _) => sockets.into_iter().map(OwnedFd::from).collect(),
            Self::None | Self::OwnNetwork(..) => Vec::new(),
        }
    }
}

fn has_own_network(command: &Command) -> bool {
    command.sandbox.as_ref().is_some_and(|policy| policy.network == NetworkPolicy::ProxyOnly)
}

/// The sockets of a proxy on the machine's loopback: for HTTP, and for SOCKS5 if it shall speak that.
fn listen(proxy: &NetworkProxy) -> std::io::Result<Vec<TcpListener>> {
    let count = if proxy.socks5 { 2 } else { 1 };
    (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect()
}

/// The ports of a proxy in a network of the process's own: for HTTP, for SOCKS5, and for datagrams, if it shall speak those.
fn own_ports(proxy: &NetworkProxy) -> Vec<u16> {
    let count = match (proxy.socks5, proxy.socks5_udp) {
        (false, _) => 1,
        (true, false) => 2,
        (true, true) => PROXY_PORTS.len(),
    };
    PROXY_PORTS[..count].to_vec()
}
