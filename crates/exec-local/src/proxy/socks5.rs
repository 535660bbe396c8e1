//! SOCKS5 (RFC 1928): a tunnel to a host and a port, or a relay of datagrams if the process may have one. Without
//! authentication, because only the process reaches its proxy; without BIND, which is answered as not supported.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use exec_core::network::{DecisionSource, DenialReason, Host, NetworkMode, NetworkProtocol};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::judgement::{Asked, Destination, Judge, Refusal};
use super::udp_relay::{RelaySockets, UdpRelay};

/// How long the process may take to say what it wants.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const UDP_ASSOCIATE: u8 = 3;
pub(super) const ADDRESS_V4: u8 = 1;
pub(super) const ADDRESS_NAME: u8 = 3;
pub(super) const ADDRESS_V6: u8 = 4;
/// The port by which limited mode takes a tunnel for one of HTTPS.
const HTTPS_PORT: u16 = 443;

/// What is answered, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    Succeeded = 0,
    Failed = 1,
    Forbidden = 2,
    Unreachable = 4,
    Refused = 5,
    UnknownCommand = 7,
    UnknownAddress = 8,
}

/// What the process wants.
enum SocksRequest {
    Tunnel {
        host: Host,
        port: u16,
    },
    /// Of datagrams that come from this port of the process; 0 if it does not say.
    Relay {
        port: u16,
    },
}

/// Serves one connection until it ends.
pub(super) async fn serve(judge: Arc<Judge>, relays: &RelaySockets, mut stream: TcpStream, client: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let greeting = greet(&mut stream, judge.relays_datagrams());
    // An error is the process's own: what it said is no SOCKS5, or it is gone.
    let Ok(Ok(Ok(wanted))) = tokio::time::timeout(GREETING_TIMEOUT, greeting).await else { return };
    match wanted {
        SocksRequest::Tunnel { host, port } => tunnel(&judge, stream, client, &host, port).await,
        SocksRequest::Relay { port } => relay(&judge, relays, stream, client, port).await,
    }
}

async fn relay(judge: &Judge, relays: &RelaySockets, mut stream: TcpStream, client: SocketAddr, port: u16) {
    match UdpRelay::open(judge, relays, client, port).await {
        Ok(relay) => {
            if reply(&mut stream, Reply::Succeeded, relay.bound()).await.is_ok() {
                relay.run(&mut stream).await;
            }
        }
        Err(error) => {
            tracing::warn!(%error, "a process gets no relay of datagrams");
            let _ = reply(&mut stream, Reply::Failed, None).await;
        }
    }
}

async fn tunnel(judge: &Judge, mut stream: TcpStream, client: SocketAddr, host: &Host, port: u16) {
    let asked = Asked { protocol: NetworkProtocol::Socks5Tcp, host, port, method: None, client };
    let Ok(destination) = judged(judge, &asked).await else {
        let _ = reply(&mut stream, Reply::Forbidden, None).await;
        return;
    };
    let mut dialled = match judge.dial(&destination).await {
        Ok(dialled) => dialled,
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::ConnectionRefused => Reply::Refused,
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::TimedOut => {
                    Reply::Unreachable
                }
                _ => Reply::Failed,
            };
            let _ = reply(&mut stream, why, None).await;
            return;
        }
    };
    let bound = dialled.stream.local_addr().ok();
    if reply(&mut stream, Reply::Succeeded, bound).await.is_ok() {
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut dialled.stream).await;
    }
}

/// Limited mode must see methods, and in a tunnel nobody does.
async fn judged(judge: &Judge, asked: &Asked<'_>) -> Result<Destination, Refusal> {
    let limited = judge.mode() == NetworkMode::Limited;
    if limited && asked.port != HTTPS_PORT {
        return Err(judge.refuse(asked, DecisionSource::Mode, DenialReason::MethodNotAllowed));
    }
    let destination = judge.judge(asked).await?;
    if limited {
        return Err(judge.refuse(asked, DecisionSource::Mode, DenialReason::TunnelInLimitedMode));
    }
    Ok(destination)
}

/// What the process wants. The inner error was answered already.
async fn greet(stream: &mut TcpStream, with_relays: bool) -> io::Result<Result<SocksRequest, Reply>> {
    let [version, methods] = read(stream).await?;
    if version != VERSION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut offered = vec![0; methods.into()];
    stream.read_exact(&mut offered).await?;
    if !offered.contains(&NO_AUTHENTICATION) {
        stream.write_all(&[VERSION, NO_METHOD]).await?;
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let [version, command, _, kind] = read(stream).await?;
    if version != VERSION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let host = match kind {
        ADDRESS_V4 => Ipv4Addr::from(read::<4>(stream).await?).to_string(),
        ADDRESS_V6 => Ipv6Addr::from(read::<16>(stream).await?).to_string(),
        ADDRESS_NAME => {
            let [length] = read(stream).await?;
            let mut name = vec![0; length.into()];
            stream.read_exact(&mut name).await?;
            String::from_utf8(name).map_err(|_| io::ErrorKind::InvalidData)?
        }
        _ => return refuse(stream, Reply::UnknownAddress).await,
    };
    let port = u16::from_be_bytes(read(stream).await?);
    match (command, Host::parse(&host)) {
        (CONNECT, Some(host)) => Ok(Ok(SocksRequest::Tunnel { host, port })),
        (CONNECT, None) => refuse(stream, Reply::Failed).await,
        // Datagrams come from an address, not from a name.
        (UDP_ASSOCIATE, _) if with_relays && kind == ADDRESS_NAME => refuse(stream, Reply::UnknownAddress).await,
        (UDP_ASSOCIATE, _) if with_relays => Ok(Ok(SocksRequest::Relay { port })),
        _ => refuse(stream, Reply::UnknownCommand).await,
    }
}

async fn refuse<T>(stream: &mut TcpStream, why: Reply) -> io::Result<Result<T, Reply>> {
    reply(stream, why, None).await?;
    Ok(Err(why))
}

async fn reply(stream: &mut TcpStream, reply: Reply, bound: Option<SocketAddr>) -> io::Result<()> {
    let bound = bound.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
    let mut message = vec![VERSION, reply as u8, 0];
    match bound.ip() {
        IpAddr::V4(ip) => {
            message.push(ADDRESS_V4);
            message.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            message.push(ADDRESS_V6);
            message.extend(ip.octets());
        }
    }
    message.extend(bound.port().to_be_bytes());
    stream.write_all(&message).await
}

async fn read<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}
