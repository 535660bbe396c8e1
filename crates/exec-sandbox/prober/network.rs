//! Ways to other machines, and to sockets of this one. The addresses are of the loopback; nothing leaves the machine.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use libc::c_int;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::attempt::{Attempt, Failure, Probe, absent, got, probe, refused};
use crate::system_call::call;
use crate::targets::Targets;

pub(crate) const PROBES: &[Probe] = &[
    probe("socket-inet-stream", |_| socket(libc::AF_INET, libc::SOCK_STREAM, 0)),
    probe("socket-inet-datagram", |_| socket(libc::AF_INET, libc::SOCK_DGRAM, 0)),
    probe("socket-inet6-stream", |_| socket(libc::AF_INET6, libc::SOCK_STREAM, 0)),
    probe("socket-inet6-datagram", |_| socket(libc::AF_INET6, libc::SOCK_DGRAM, 0)),
    probe("socket-ping", |_| socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)),
    probe("socket-raw", |_| socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)),
    probe("socket-raw6", |_| socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6)),
    probe("socket-multipath-tcp", |_| socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)),
    probe("socket-sctp", |_| socket(libc::AF_INET, libc::SOCK_SEQPACKET, libc::IPPROTO_SCTP)),
    probe("socket-udp-lite", |_| socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE)),
    probe("socket-netlink-route", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)),
    probe("socket-netlink-uevent", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_KOBJECT_UEVENT)),
    probe("socket-netlink-diagnosis", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG)),
    probe("socket-netlink-generic", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)),
    probe("socket-vsock", |_| socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)),
    probe("socket-packet", |_| socket(libc::AF_PACKET, libc::SOCK_RAW, 0)),
    probe("socket-alg", |_| socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)),
    probe("socket-bluetooth", |_| socket(libc::AF_BLUETOOTH, libc::SOCK_RAW, 1)),
    probe("socket-can", |_| socket(libc::AF_CAN, libc::SOCK_RAW, 1)),
    probe("socket-tipc", |_| socket(libc::AF_TIPC, libc::SOCK_STREAM, 0)),
    probe("socket-rds", |_| socket(libc::AF_RDS, libc::SOCK_SEQPACKET, 0)),
    probe("socket-key", |_| socket(libc::AF_KEY, libc::SOCK_RAW, 2)),
    probe("socket-xdp", |_| socket(libc::AF_XDP, libc::SOCK_RAW, 0)),
    probe("socket-smc", |_| socket(43, libc::SOCK_STREAM, 0)),
    probe("socket-qualcomm", |_| socket(42, libc::SOCK_DGRAM, 0)),
    probe("socket-phone", |_| socket(35, libc::SOCK_DGRAM, 0)),
    probe("socket-nfc", |_| socket(39, libc::SOCK_RAW, 1)),
    probe("socket-x25", |_| socket(libc::AF_X25, libc::SOCK_SEQPACKET, 0)),
    probe("socket-family-upper-bits", |_| {
        // The kernel looks at the lower 32 bits of the family only.
        call!(libc::SYS_socket, 0x1_0000_0002_u64, libc::SOCK_STREAM, 0)?;
        got("a socket of the family inet")
    }),
    probe("socket-pair-inet", |_| {
        // The kernel makes both sockets and then says that it cannot pair them.
        let mut pair = [0i32; 2];
        let result = call!(libc::SYS_socketpair, libc::AF_INET, libc::SOCK_STREAM, 0, pair.as_mut_ptr());
        crate::attempt::reached(result, &[libc::EOPNOTSUPP])
    }),
    probe("connect-tcp", |t| spoken(TcpStream::connect(loopback(t, "tcp")?)?)),
    probe("connect-tcp-mapped", |t| {
        let address = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        spoken(TcpStream::connect(SocketAddr::from((address, t.number::<u16>("tcp")?)))?)
    }),
    probe("connect-tcp-any", |t| {
        // To connect to the address 0.0.0.0 is to connect to this machine.
        spoken(TcpStream::connect(SocketAddr::from((Ipv4Addr::UNSPECIFIED, t.number::<u16>("tcp")?)))?)
    }),
    probe("connect-tcp-multipath", |t| {
        let socket = call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)?;
        let address = inet_address(t.number("tcp")?);
        call!(libc::SYS_connect, socket, &raw const address, size_of_val(&address))?;
        got("a connection")
    }),
    probe("connect-tcp-fast-open", |t| {
        let socket = call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0)?;
        let address = inet_address(t.number("tcp")?);
        let length = size_of_val(&address);
        call!(libc::SYS_sendto, socket, b"x".as_ptr(), 1, libc::MSG_FASTOPEN, &raw const address, length)?;
        got("a byte was sent")
    }),
    probe("connect-server", connect_server),
    probe("send-udp", |t| {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.send_to(b"x", loopback(t, "udp")?)?;
        got("a datagram was sent")
    }),
    probe("ask-name", |t| {
        // A question for `probe.invalid` to the port where the test listens, as a resolver would send it.
        let question = b"\x01\x01\x01\0\0\x01\0\0\0\0\0\0\x05probe\x07invalid\0\0\x01\0\x01";
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(loopback(t, "udp")?)?;
        socket.send(question)?;
        got("a name server was asked")
    }),
    probe("bind-tcp", |_| {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        got("a listening socket")
    }),
    probe("bind-tcp6", |_| {
        TcpListener::bind((Ipv6Addr::LOCALHOST, 0))?;
        got("a listening socket")
    }),
    probe("listen-without-bind", |_| {
        // `listen` chooses a port by itself.
        let socket = call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0)?;
        call!(libc::SYS_listen, socket, 1)?;
        got("a listening socket")
    }),
    probe("bind-udp", |_| {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        got("a bound socket")
    }),
    probe("connect-unix", |t| {
        UnixStream::connect(t.get("socket")?)?;
        got("a connection")
    }),
    probe("connect-unix-by-root-of-self", |t| {
        UnixStream::connect(Path::new("/proc/self/root").join(t.get("socket")?.trim_start_matches('/')))?;
        got("a connection")
    }),
    probe("connect-unix-by-symlink", |t| {
        std::os::unix::fs::symlink(t.get("socket")?, t.own_missing()?)?;
        UnixStream::connect(t.own_missing()?)?;
        got("a connection")
    }),
    probe("connect-unix-by-path-descriptor", |t| {
        let path = t.get("socket")?;
        let socket = rustix::fs::open(path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())?;
        UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()))?;
        got("a connection")
    }),
    probe("connect-abstract", |t| {
        let address = std::os::unix::net::SocketAddr::from_abstract_name(t.get("abstract")?)?;
        UnixStream::connect_addr(&address)?;
        got("a connection")
    }),
    probe("send-abstract", |t| {
        let name = format!("{}.datagram", t.get("abstract")?);
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        UnixDatagram::unbound()?.send_to_addr(b"x", &address)?;
        got("a datagram was sent")
    }),
    probe("send-unix", |t| {
        UnixDatagram::unbound()?.send_to(b"x", format!("{}.datagram", t.get("socket")?))?;
        got("a datagram was sent")
    }),
    // To the kernel a raw socket of this family is one for datagrams, by another name.
    probe("send-unix-as-raw", |t| {
        send_datagram(call!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_RAW, 0)?, &datagram_path(t)?)
    }),
    probe("send-unix-from-raw-pair", |t| {
        let mut pair = [0i32; 2];
        call!(libc::SYS_socketpair, libc::AF_UNIX, libc::SOCK_RAW, 0, pair.as_mut_ptr())?;
        send_datagram(pair[0] as usize, &datagram_path(t)?)
    }),
    probe("send-unix-from-datagram-pair", |t| {
        let mut pair = [0i32; 2];
        call!(libc::SYS_socketpair, libc::AF_UNIX, libc::SOCK_DGRAM, 0, pair.as_mut_ptr())?;
        send_datagram(pair[0] as usize, &datagram_path(t)?)
    }),
    probe("bind-abstract", |_| {
        let name = format!("prober-{}", std::process::id());
        UnixListener::bind_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)?;
        got("a listening socket")
    }),
    probe("unix-stream-socket", |_| socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)),
    probe("unix-socket-pair", |_| {
        let (mut a, mut b) = UnixStream::pair()?;
        a.write_all(b"x")?;
        b.read_exact(&mut [0])?;
        got("a byte went through")
    }),
    probe("descriptor-over-socket-pair", descriptor_over_socket_pair),
];

fn datagram_path(t: &Targets<'_>) -> Result<Vec<u8>, Failure> {
    Ok(format!("{}.datagram", t.get("socket")?).into_bytes())
}

fn send_datagram(socket: usize, path: &[u8]) -> Attempt {
    let mut address = [0u8; 110];
    let end = 2 + path.len();
    address[..2].copy_from_slice(&(libc::AF_UNIX as libc::sa_family_t).to_ne_bytes());
    address.get_mut(2..end).ok_or_else(|| absent("the path is too long"))?.copy_from_slice(path);
    call!(libc::SYS_sendto, socket, b"x".as_ptr(), 1, 0, address.as_ptr(), end)?;
    got("a datagram was sent")
}

fn socket(family: c_int, kind: c_int, protocol: c_int) -> Attempt {
    call!(libc::SYS_socket, family, kind, protocol)?;
    got("a socket")
}

fn loopback(t: &Targets<'_>, key: &str) -> Result<SocketAddr, Failure> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, t.number::<u16>(key)?)))
}

fn inet_address(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    }
}

fn spoken(mut stream: TcpStream) -> Attempt {
    stream.write_all(b"x")?;
    got("a connection")
}

/// To have a connection to the server's port is nothing yet: the server may know whom it does not serve.
fn connect_server(t: &Targets<'_>) -> Attempt {
    let mut stream = TcpStream::connect(loopback(t, "server")?)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let host = format!("127.0.0.1:{}", t.get("server")?);
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).map_err(|_| refused("the server closed the connection"))?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    if answer.ends_with("101") { got("the server's service") } else { Err(refused(answer)) }
}

fn descriptor_over_socket_pair(_: &Targets<'_>) -> Attempt {
    use rustix::net::{
        RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    };
    let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
    let (reader, _writer) = rustix::pipe::pipe()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut sent = SendAncillaryBuffer::new(&mut space);
    let descriptors = [reader.as_fd()];
    sent.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(&a, &[IoSlice::new(b"x")], &mut sent, SendFlags::empty())?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut received = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&b, &mut [IoSliceMut::new(&mut [0])], &mut received, RecvFlags::empty())?;
    match received.drain().next() {
        Some(_) => got("a descriptor went through"),
        None => Err(refused("no descriptor came")),
    }
}
