//! Datagrams of a process through its proxy (RFC 1928, UDP ASSOCIATE), for as long as the connection lives that asked for them.
//!
//! ```text
//!   the process ──► relay socket ──► header read, destination judged ──► a socket of this relay ──► the world
//!               ◄── header put before it ◄── only from where something was sent to ◄──────────────
//! ```
//!
//! A destination is judged when the first datagram goes there, as a tunnel is when it is opened, and its name is looked up
//! once. A destination that is refused ends the relay, as in Codex's proxy: that is the only way to tell the process. One
//! datagram at a time is judged; those behind it wait in the kernel's buffer, which drops what does not fit. So nothing here
//! grows with what a process sends.
//!
//! Deliberately absent: fragments, which the RFC lets us drop.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use exec_core::network::{DecisionSource, DenialReason, Host, NetworkMode, NetworkProtocol};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::judgement::{Asked, Judge};
use super::socks5::{ADDRESS_NAME, ADDRESS_V4, ADDRESS_V6};
use crate::descriptors::DescriptorPermit;

/// Relays of one process at a time: each has two buffers of 64 KiB and three sockets.
const RELAYS: usize = 16;
/// Sockets of a relay: the process's, and the world's for each kind of addresses. Its connection is counted already.
const RELAY_DESCRIPTORS: usize = 3;
/// Destinations that a relay remembers. The one that was not used for longest is forgotten for one more: it is judged again
/// when something goes there, and nothing comes from there until then.
const DESTINATIONS: usize = 256;
/// Most bytes of a datagram of the internet, header of the relay included.
const DATAGRAM_BYTES: usize = 65_507;
/// Bytes before the data of a datagram whose address is of the longer kind: two reserved, the number of the fragment, the
/// kind, the address and the port.
const LONGEST_HEADER: usize = 2 + 1 + 1 + 16 + 2;
/// Datagrams that are thrown away before a socket is used again. More than its buffer holds.
const LEFT_OVER: usize = 4096;

/// Where relays take the datagrams of the process.
pub(super) struct RelaySockets {
    /// Those that were made in the process's own network and are free. `None`: each relay binds one on the machine's loopback.
    own: Option<Mutex<Vec<UdpSocket>>>,
    room: Semaphore,
}

impl RelaySockets {
    /// `None` if one of them is no socket.
    pub(super) fn new(own: impl Iterator<Item = OwnedFd>) -> Option<Self> {
        let socket = |socket: OwnedFd| {
            let socket = std::net::UdpSocket::from(socket);
            socket.set_nonblocking(true).ok()?;
            UdpSocket::from_std(socket).ok()
        };
        let own: Vec<UdpSocket> = own.map(socket).collect::<Option<_>>()?;
        Some(Self { own: (!own.is_empty()).then(|| Mutex::new(own)), room: Semaphore::new(RELAYS) })
    }

    async fn take(&self) -> io::Result<RelaySocket<'_>> {
        let room = self.room.try_acquire().map_err(|_| io::ErrorKind::QuotaExceeded)?;
        let socket = match &self.own {
            Some(own) => {
                let socket = lock(own).pop().ok_or(io::ErrorKind::QuotaExceeded)?;
                // What came before is not for this relay.
                for _ in 0..LEFT_OVER {
                    if socket.try_recv_from(&mut [0]).is_err() {
                        break;
                    }
                }
                socket
            }
            None => UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?,
        };
        Ok(RelaySocket { socket: Some(socket), own: self.own.as_ref(), _room: room })
    }
}

/// Given back when it is dropped, if it is one that can be used again.
struct RelaySocket<'a> {
    socket: Option<UdpSocket>,
    own: Option<&'a Mutex<Vec<UdpSocket>>>,
    _room: SemaphorePermit<'a>,
}

impl RelaySocket<'_> {
    fn get(&self) -> &UdpSocket {
        self.socket.as_ref().expect("it is taken only when this is dropped")
    }
}

impl Drop for RelaySocket<'_> {
    fn drop(&mut self) {
        let (Some(own), Some(socket)) = (self.own, self.socket.take()) else { return };
        lock(own).push(socket);
    }
}

/// The relay of one connection.
pub(super) struct UdpRelay<'a> {
    judge: &'a Judge,
    /// The process's end of the connection.
    client: SocketAddr,
    socket: RelaySocket<'a>,
    /// Where the process sends from: what it has named, or else whoever sends first.
    sender: OnceLock<SocketAddr>,
    world_v4: UdpSocket,
    world_v6: Option<UdpSocket>,
    /// The last one that was used is the first.
    destinations: Mutex<Vec<KnownDestination>>,
    _descriptors: [DescriptorPermit; 2],
}

struct KnownDestination {
    host: Host,
    port: u16,
    address: SocketAddr,
}

impl<'a> UdpRelay<'a> {
    /// `port` is where the process says that it will send from; 0 if it does not know yet. Its address is that of its
    /// connection, whatever it says.
    pub(super) async fn open(
        judge: &'a Judge,
        sockets: &'a RelaySockets,
        client: SocketAddr,
        port: u16,
    ) -> io::Result<Self> {
        let descriptors = judge.take_descriptors(RELAY_DESCRIPTORS).ok_or(io::ErrorKind::QuotaExceeded)?;
        let socket = sockets.take().await?;
        let sender = OnceLock::new();
        if port != 0 {
            let _ = sender.set(SocketAddr::new(client.ip(), port));
        }
        Ok(Self {
            judge,
            client,
            socket,
            sender,
            world_v4: UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?,
            // A machine may have no addresses of this kind.
            world_v6: UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await.ok(),
            destinations: Mutex::default(),
            _descriptors: descriptors,
        })
    }

    /// Where the process sends its datagrams to. The address is left open, as in Codex's answer: it is where the proxy is.
    pub(super) fn bound(&self) -> Option<SocketAddr> {
        let port = self.socket.get().local_addr().ok()?.port();
        Some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
    }

    /// Until the connection ends or a destination is refused.
    pub(super) async fn run(&self, connection: &mut TcpStream) {
        tokio::select! {
            () = ended(connection) => {}
            () = self.outwards() => {}
            () = self.inwards() => {}
        }
    }

    async fn outwards(&self) {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            let Ok((length, from)) = self.socket.get().recv_from(&mut buffer).await else { return };
            if !self.is_sender(from) {
                continue;
            }
            let Some((host, port, data)) = read_datagram(&buffer[..length]) else { continue };
            let address = match self.destination(&host, port).await {
                Ok(Some(address)) => address,
                Ok(None) => continue,
                Err(Refused) => return,
            };
            // What cannot be sent is lost, as datagrams are.
            if let Some(world) = self.world(address.ip()) {
                let _ = world.send_to(data, address).await;
            }
        }
    }

    async fn inwards(&self) {
        let mut buffer_v4 = vec![0; LONGEST_HEADER + DATAGRAM_BYTES];
        let mut buffer_v6 = Vec::new();
        loop {
            let from_v6 = async {
                match &self.world_v6 {
                    Some(world) => {
                        buffer_v6.resize(LONGEST_HEADER + DATAGRAM_BYTES, 0);
                        world.recv_from(&mut buffer_v6[LONGEST_HEADER..]).await
                    }
                    None => std::future::pending().await,
                }
            };
            let (received, is_v4) = tokio::select! {
                received = self.world_v4.recv_from(&mut buffer_v4[LONGEST_HEADER..]) => (received, true),
                received = from_v6 => (received, false),
            };
            let Ok((length, from)) = received else { return };
            let is_known = lock(&self.destinations).iter().any(|known| known.address == from);
            let Some(sender) = self.sender.get().filter(|_| is_known) else { continue };
            let buffer = if is_v4 { &mut buffer_v4 } else { &mut buffer_v6 };
            let header = header(from);
            let start = LONGEST_HEADER - header.len();
            buffer[start..LONGEST_HEADER].copy_from_slice(&header);
            let _ = self.socket.get().send_to(&buffer[start..LONGEST_HEADER + length], sender).await;
        }
    }

    /// Datagrams of anybody else are dropped.
    fn is_sender(&self, from: SocketAddr) -> bool {
        from.ip() == self.client.ip() && *self.sender.get_or_init(|| from) == from
    }

    /// Where a datagram goes; `None` if there is no way there.
    async fn destination(&self, host: &Host, port: u16) -> Result<Option<SocketAddr>, Refused> {
        {
            let mut known = lock(&self.destinations);
            if let Some(at) = known.iter().position(|known| known.port == port && known.host == *host) {
                known[..=at].rotate_right(1);
                return Ok(Some(known[0].address));
            }
        }
        let asked = Asked { protocol: NetworkProtocol::Socks5Udp, host, port, method: None, client: self.client };
        if self.judge.mode() == NetworkMode::Limited {
            self.judge.refuse(&asked, DecisionSource::Mode, DenialReason::MethodNotAllowed);
            return Err(Refused);
        }
        let destination = self.judge.judge(&asked).await.map_err(|_| Refused)?;
        let found = self.judge.addresses(&destination).await;
        let Some(address) = found.into_iter().find(|address| self.world(*address).is_some()) else { return Ok(None) };
        let address = SocketAddr::new(address, port);
        let mut known = lock(&self.destinations);
        known.truncate(DESTINATIONS - 1);
        known.insert(0, KnownDestination { host: host.clone(), port, address });
        Ok(Some(address))
    }

    fn world(&self, address: IpAddr) -> Option<&UdpSocket> {
        match address {
            IpAddr::V4(_) => Some(&self.world_v4),
            IpAddr::V6(_) => self.world_v6.as_ref(),
        }
    }
}

/// The destination of a datagram may not be reached.
struct Refused;

/// Until the process closes its connection. What it says there means nothing.
async fn ended(connection: &mut TcpStream) {
    let mut ignored = [0; 512];
    while let Ok(1..) = connection.read(&mut ignored).await {}
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a datagram of the process wants to go, and what it carries. `None` if it is a fragment, or no such datagram.
fn read_datagram(datagram: &[u8]) -> Option<(Host, u16, &[u8])> {
    let ([_, _, 0, kind], rest) = datagram.split_first_chunk()? else { return None };
    let (host, rest) = match *kind {
        ADDRESS_V4 => {
            let (address, rest) = rest.split_first_chunk::<4>()?;
            (Ipv4Addr::from(*address).to_string(), rest)
        }
        ADDRESS_V6 => {
            let (address, rest) = rest.split_first_chunk::<16>()?;
            (Ipv6Addr::from(*address).to_string(), rest)
        }
        ADDRESS_NAME => {
            let (length, rest) = rest.split_first()?;
            let (name, rest) = rest.split_at_checked(usize::from(*length))?;
            (str::from_utf8(name).ok()?.to_owned(), rest)
        }
        _ => return None,
    };
    let (port, data) = rest.split_first_chunk::<2>()?;
    Some((Host::parse(&host)?, u16::from_be_bytes(*port), data))
}

/// What is put before a datagram that came from there.
fn header(from: SocketAddr) -> Vec<u8> {
    let mut header = vec![0, 0, 0];
    match from.ip() {
        IpAddr::V4(address) => {
            header.push(ADDRESS_V4);
            header.extend(address.octets());
        }
        IpAddr::V6(address) => {
            header.push(ADDRESS_V6);
            header.extend(address.octets());
        }
    }
    header.extend(from.port().to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_read_by_its_header_and_anything_else_is_dropped() {
        let read = |datagram: &[u8]| {
            read_datagram(datagram).map(|(host, port, data)| (host.as_str().to_owned(), port, data.to_vec()))
        };
        let expected = |host: &str, data: &[u8]| Some((host.to_owned(), 53, data.to_vec()));
        assert_eq!(read(b"\0\0\0\x01\x01\x02\x03\x04\0\x35hi"), expected("1.2.3.4", b"hi"));
        assert_eq!(read(b"\x07\x07\0\x01\x01\x02\x03\x04\0\x35"), expected("1.2.3.4", b""));
        assert_eq!(read(b"\0\0\0\x03\x06A.test\0\x35hi"), expected("a.test", b"hi"));
        let v6 = [&[0, 0, 0, 4][..], &Ipv6Addr::LOCALHOST.octets(), &[0, 53], b"hi"].concat();
        assert_eq!(read(&v6), expected("::1", b"hi"));
        let whole = b"\0\0\0\x03\x06a.test\0\x35";
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), None, "{length} bytes");
        }
        for dropped in [&b"\0\0\x01\x01\x01\x02\x03\x04\0\x35hi"[..], b"\0\0\0\x09abcdef", b"\0\0\0\x03\x03a b\0\x35"] {
            assert_eq!(read(dropped), None, "{dropped:?}");
        }
    }

    #[test]
    fn what_comes_back_has_a_header_that_reads_as_where_it_came_from() {
        for from in ["1.2.3.4:53", "[2606:2800::1]:53"] {
            let from: SocketAddr = from.parse().expect("an address");
            let header = header(from);
            assert!(header.len() <= LONGEST_HEADER);
            let (host, port, data) = read_datagram(&header).expect("a header");
            assert_eq!((host.address(), port, data), (Some(from.ip()), from.port(), &b""[..]));
        }
    }
}
