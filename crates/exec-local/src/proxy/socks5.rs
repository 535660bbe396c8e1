//! SOCKS5 (RFC 1928): a tunnel to a host and a port. Without authentication, because only the process reaches its proxy;
//! without BIND and UDP, which are answered as not supported.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use exec_core::network::{DecisionSource, DenialReason, Host, NetworkMode, NetworkProtocol};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::judgement::{Asked, Destination, Judge, Refusal};

/// How long the process may take to say what it wants.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const ADDRESS_V4: u8 = 1;
const ADDRESS_NAME: u8 = 3;
const ADDRESS_V6: u8 = 4;
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

/// Serves one connection until it ends.
pub(super) async fn serve(judge: Arc<Judge>, mut stream: TcpStream, client: SocketAddr) {
    let _ = stream.set_nodelay(true);
    // An error is the process's own: what it said is no SOCKS5, or it is gone.
    let Ok(Ok(Ok((host, port)))) = tokio::time::timeout(GREETING_TIMEOUT, greet(&mut stream)).await else { return };
    let asked = Asked { protocol: NetworkProtocol::Socks5Tcp, host: &host, port, method: None, client };
    let Ok(destination) = judged(&judge, &asked).await else {
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
async fn greet(stream: &mut TcpStream) -> io::Result<Result<(Host, u16), Reply>> {
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
    if command != CONNECT {
        return refuse(stream, Reply::UnknownCommand).await;
    }
    match Host::parse(&host) {
        Some(host) => Ok(Ok((host, port))),
        None => refuse(stream, Reply::Failed).await,
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
