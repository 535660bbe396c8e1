//! A network of its own for a sandboxed child, with nothing in it but its loopback and the sockets of the process's proxy:
//! those on which it listens, and those on which it takes datagrams.
//!
//! A socket stays in the network in which it was made. So the child makes them, before its program runs, and hands them out;
//! whoever serves them is elsewhere and reaches the machine's network. No process stands between the two. The rules for
//! a child between `clone` and `exec` are those of [`super::confine`]: system calls only.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::confine::{ConfineStep, Failure};
use crate::protocol::PROXY_ROLES;

const MOST_SOCKETS: usize = PROXY_ROLES.len();
/// One for HTTP and one for SOCKS5; those behind them are for datagrams.
const LISTENING_SOCKETS: usize = 2;
const BACKLOG: i32 = 128;

#[derive(Debug)]
pub(super) struct PreparedNetwork {
    ports: [u16; MOST_SOCKETS],
    count: usize,
    /// Where to send the sockets; -1 in a trial, which needs none.
    transfer: RawFd,
}

/// The kernel's `struct ifreq`, as far as it concerns us.
#[repr(C)]
struct InterfaceFlags {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

/// A `cmsghdr` with its descriptors right behind it.
#[repr(C)]
struct DescriptorMessage {
    length: usize,
    level: i32,
    kind: i32,
    descriptors: [RawFd; MOST_SOCKETS],
}

impl PreparedNetwork {
    pub(super) fn new(ports: &[u16], transfer: Option<BorrowedFd<'_>>) -> Self {
        let mut own = [0; MOST_SOCKETS];
        let count = ports.len().min(MOST_SOCKETS);
        own[..count].copy_from_slice(&ports[..count]);
        Self { ports: own, count, transfer: transfer.map_or(-1, |socket| socket.as_raw_fd()) }
    }

    /// # Safety
    /// As for [`super::confine::PreparedConfinement::enter`].
    pub(super) unsafe fn enter(&self) -> Result<(), Failure> {
        // SAFETY: as promised by the caller; every call is a bare system call on plain values or on locals.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNET))?;
            self.raise_loopback()?;
            let mut sockets = [-1; MOST_SOCKETS];
            for (at, (socket, port)) in sockets.iter_mut().zip(self.ports).take(self.count).enumerate() {
                *socket = if at < LISTENING_SOCKETS { listen(port)? } else { bind(libc::SOCK_DGRAM, port)? };
            }
            if self.transfer >= 0 {
                self.send(sockets)?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Self::enter`].
    unsafe fn raise_loopback(&self) -> Result<(), Failure> {
        let mut request =
            InterfaceFlags { name: [0; 16], flags: (libc::IFF_UP | libc::IFF_RUNNING) as i16, rest: [0; 22] };
        request.name[..2].copy_from_slice(b"lo");
        // SAFETY: as for `enter`; the request is a local of the kernel's own shape and size.
        unsafe {
            let socket = check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?;
            check(libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw mut request))?;
            libc::close(socket);
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Self::enter`].
    unsafe fn send(&self, sockets: [RawFd; MOST_SOCKETS]) -> Result<(), Failure> {
        let header = std::mem::offset_of!(DescriptorMessage, descriptors);
        let mut control = DescriptorMessage {
            length: header + self.count * size_of::<RawFd>(),
            level: libc::SOL_SOCKET,
            kind: libc::SCM_RIGHTS,
            descriptors: sockets,
        };
        let mut byte = 0u8;
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // SAFETY: as for `enter`; all that the message points to is a local that outlives the call.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = control.length as _;
            if libc::sendmsg(self.transfer, &raw const message, libc::MSG_NOSIGNAL) < 0 {
                check(-1)?;
            }
        }
        Ok(())
    }
}

/// # Safety
/// As for [`PreparedNetwork::enter`].
unsafe fn listen(port: u16) -> Result<RawFd, Failure> {
    // SAFETY: as for `enter`.
    unsafe {
        let socket = bind(libc::SOCK_STREAM, port)?;
        check(libc::listen(socket, BACKLOG))?;
        Ok(socket)
    }
}

/// # Safety
/// As for [`PreparedNetwork::enter`].
unsafe fn bind(kind: i32, port: u16) -> Result<RawFd, Failure> {
    // SAFETY: as for `enter`; zeroed is a valid value of this plain C struct.
    unsafe {
        let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = check(libc::socket(libc::AF_INET, kind, 0))?;
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = libc::INADDR_LOOPBACK.to_be();
        let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        check(libc::bind(socket, (&raw const address).cast(), length))?;
        Ok(socket)
    }
}

fn check(returned: i32) -> Result<RawFd, Failure> {
    if returned < 0 {
        // SAFETY: the slot of this thread; in a child that shares our memory it is the one of the suspended thread.
        return Err((ConfineStep::Network, unsafe { *libc::__errno_location() }));
    }
    Ok(returned)
}
