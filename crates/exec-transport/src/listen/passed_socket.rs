//! A socket that somebody else has bound and passes to us, as a service manager does: what it is, so that it is judged as
//! one that we would have bound ourselves. It is asked itself; no variable and no file is believed.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, getsockname};
use tokio::net::UnixListener;

use super::{BindError, ListenUrl};

/// A listening stream socket, and the URL of who connects to it.
#[derive(Debug)]
pub struct PassedSocket {
    pub(super) url: ListenUrl,
    pub(super) descriptor: OwnedFd,
}

#[derive(Debug, thiserror::Error)]
pub enum PassedSocketError {
    #[error("cannot look at a socket that was passed to us: {source}")]
    Look { source: io::Error },
    #[error(
        "a socket that was passed to us does not listen for streams; in a systemd unit it is ListenStream= and Accept=no"
    )]
    NotListening,
    #[error("a socket that was passed to us is neither of TCP nor a unix socket with a path")]
    Unsupported,
}

impl PassedSocket {
    /// Looks at the socket; with `tls`, one of TCP is a `wss://` listener.
    pub fn new(descriptor: OwnedFd, tls: bool) -> Result<Self, PassedSocketError> {
        let failed = |errno: rustix::io::Errno| PassedSocketError::Look { source: errno.into() };
        let is_stream = socket_type(&descriptor).map_err(failed)? == SocketType::STREAM;
        if !is_stream || !socket_acceptconn(&descriptor).map_err(failed)? {
            return Err(PassedSocketError::NotListening);
        }
        // Whoever passes it may have used it to wait.
        rustix::io::ioctl_fionbio(&descriptor, true).map_err(failed)?;
        let address = getsockname(&descriptor).map_err(failed)?;
        let url = match address.address_family() {
            AddressFamily::INET | AddressFamily::INET6 => {
                let address = SocketAddr::try_from(address).map_err(failed)?;
                if tls { ListenUrl::SecureWebSocket(address) } else { ListenUrl::WebSocket(address) }
            }
            AddressFamily::UNIX => {
                let address = SocketAddrUnix::try_from(address).map_err(failed)?;
                let path = address.path_bytes().ok_or(PassedSocketError::Unsupported)?;
                ListenUrl::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(path)))
            }
            _ => return Err(PassedSocketError::Unsupported),
        };
        Ok(Self { url, descriptor })
    }

    pub fn url(&self) -> &ListenUrl {
        &self.url
    }
}

pub(super) fn unix_listener(socket: OwnedFd, path: &Path) -> Result<UnixListener, BindError> {
    let failed = |source| BindError::Unix { operation: "listen on", path: path.to_owned(), source };
    UnixListener::from_std(socket.into()).map_err(failed)
}
