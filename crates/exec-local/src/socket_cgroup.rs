//! Which cgroup a socket belongs to: the kernel remembers in which one it was made, whoever holds it now.
//!
//! By it a server knows connections that its own sandboxed processes make: they have a cgroup each, and cannot leave it.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// The kernel's numbers for these questions.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const INET_DIAG_CGROUP_ID: u16 = 21;
const TCP: u8 = 6;
/// Lengths of `nlmsghdr`, `inet_diag_req_v2` and `inet_diag_msg`.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
const ANSWER_BYTES: usize = 72;

/// The cgroup of the TCP socket on this machine that is at `own` and connected to `other`; `None` if there is no such
/// socket here.
pub(crate) fn cgroup_of_socket(own: SocketAddr, other: SocketAddr) -> Result<Option<u64>, Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    let request = request(own, other);
    rustix::net::sendto(&socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0u8; 4096];
    let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    read_answer(answer.get(..length).unwrap_or_default())
}

fn request(own: SocketAddr, other: SocketAddr) -> Vec<u8> {
    let (own_ip, other_ip) = (own.ip().to_canonical(), other.ip().to_canonical());
    let family = if own_ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    bytes.extend_from_slice(&((HEADER_BYTES + REQUEST_BYTES) as u32).to_ne_bytes());
    bytes.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[family.as_raw() as u8, TCP, 0, 0]);
    bytes.extend_from_slice(&u32::MAX.to_ne_bytes());
    bytes.extend_from_slice(&own.port().to_be_bytes());
    bytes.extend_from_slice(&other.port().to_be_bytes());
    for ip in [own_ip, other_ip] {
        match ip {
            IpAddr::V4(ip) => {
                bytes.extend_from_slice(&ip.octets());
                bytes.extend_from_slice(&[0; 12]);
            }
            IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
        }
    }
    // Any interface, any cookie.
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[0xff; 8]);
    bytes
}

fn read_answer(bytes: &[u8]) -> Result<Option<u64>, Errno> {
    let number = |at: usize| bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes);
    if number(4) == Some(NLMSG_ERROR) {
        let errno = bytes.get(HEADER_BYTES..).and_then(<[u8]>::first_chunk).copied().map_or(0, i32::from_ne_bytes);
        return match Errno::from_raw_os_error(-errno) {
            Errno::NOENT => Ok(None),
            errno => Err(errno),
        };
    }
    let mut at = HEADER_BYTES + ANSWER_BYTES;
    while let (Some(length), Some(kind)) = (number(at), number(at + 2)) {
        if kind == INET_DIAG_CGROUP_ID {
            let id = bytes.get(at + 4..).and_then(<[u8]>::first_chunk).copied().map(u64::from_ne_bytes);
            return id.map(Some).ok_or(Errno::BADMSG);
        }
        // Attributes are aligned to four bytes.
        at += usize::from(length.max(4)).next_multiple_of(4);
    }
    // A kernel that does not tell.
    Err(Errno::NOTSUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_of_our_own_connection_is_known_and_that_of_a_connection_elsewhere_is_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the loopback is there");
        let address = listener.local_addr().expect("it is bound");
        let stream = std::net::TcpStream::connect(address).expect("it listens");
        let own = stream.local_addr().expect("it is connected");
        assert!(matches!(cgroup_of_socket(own, address), Ok(Some(_))));
        let elsewhere = "192.0.2.1:1".parse().expect("an address of documents");
        assert_eq!(cgroup_of_socket(elsewhere, address), Ok(None));
    }
}
