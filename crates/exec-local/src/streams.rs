//! Connections that this machine makes and accepts, straight on the kernel's sockets: its buffers are the window, and its
//! back-pressure the flow control.
//!
//! A connection that was made for a client is never served by a server of ours on this machine (`DialledPorts`): it would
//! come from the server's own user, and whoever is restricted by a token could come back without one.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use exec_core::network::Host;
use exec_env::BoxFuture;
use exec_env::streams::{
    Accepted, ByteStream, STREAM_CHUNK_BYTES, StreamAddress, StreamError, StreamListener, StreamReason, StreamVerb,
    Streams,
};
use rustix::net::{Shutdown, shutdown, sockopt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::descriptors::{DescriptorBudget, DescriptorPermit, DescriptorUse};
use crate::proxy::dial::{DialledPort, DialledPorts, Lookups, dial};

/// The first buffer of a stream: an answer of a chatty protocol. It grows with what comes.
const FIRST_BUFFER_BYTES: usize = 8 << 10;

/// Longest path of a unix socket, in bytes: what the kernel's address has room for.
const SOCKET_PATH_BYTES: usize = 107;

/// Between two tries to accept while the machine has no descriptor or no memory for one more connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const ECONNREFUSED: i32 = 111;
const EADDRINUSE: i32 = 98;
const EINVAL: i32 = 22;
const EIO: i32 = 5;

/// The connections of this machine.
pub struct LocalStreams {
    descriptors: DescriptorBudget,
    dialled: Arc<DialledPorts>,
    lookups: Lookups,
}

impl Default for LocalStreams {
    fn default() -> Self {
        Self::new(DescriptorBudget::of_this_process(), Arc::default())
    }
}

impl LocalStreams {
    /// Connections whose descriptors are part of this budget, and whose ports are among those of `dialled`.
    pub(crate) fn new(descriptors: DescriptorBudget, dialled: Arc<DialledPorts>) -> Self {
        Self { descriptors, dialled, lookups: Lookups::of_this_machine() }
    }

    fn take_descriptor(&self) -> Result<DescriptorPermit, StreamReason> {
        let permit = self.descriptors.take(DescriptorUse::Connections, 1);
        permit.map_err(|error| StreamReason::TooMany { why: error.to_string() })
    }

    async fn connect_to(&self, to: &StreamAddress) -> Result<LocalStream, StreamReason> {
        let permit = self.take_descriptor()?;
        let (socket, port) = match to {
            StreamAddress::Tcp { host, port } => {
                let addresses = self.addresses(host).await?;
                let dialled = dial(&self.dialled, &addresses, *port).await.map_err(|error| os_reason(&error))?;
                (Socket::Tcp(dialled.stream), Some(dialled.port))
            }
            StreamAddress::Unix { path } => {
                check_socket_path(path)?;
                (Socket::Unix(UnixStream::connect(path).await.map_err(|error| os_reason(&error))?), None)
            }
        };
        Ok(LocalStream::new(socket, to.clone(), permit, port))
    }

    async fn addresses(&self, host: &str) -> Result<Vec<std::net::IpAddr>, StreamReason> {
        let unknown = |why: &str| StreamReason::UnknownHost { why: format!("`{host}` {why}") };
        let parsed = Host::parse(host).ok_or_else(|| unknown("is neither a name nor an address"))?;
        let addresses = self.lookups.addresses(&parsed).await;
        if addresses.is_empty() { Err(unknown("has no address")) } else { Ok(addresses) }
    }

    async fn listen_at(&self, at: &StreamAddress) -> Result<LocalListener, StreamReason> {
        let permit = self.take_descriptor()?;
        let (socket, address) = match at {
            StreamAddress::Tcp { host, port } => {
                let addresses = self.addresses(host).await?;
                let addresses: Vec<_> = addresses.into_iter().map(|ip| std::net::SocketAddr::new(ip, *port)).collect();
                let socket = TcpListener::bind(&*addresses).await.map_err(|error| os_reason(&error))?;
                let port = socket.local_addr().map_err(|error| os_reason(&error))?.port();
                (ListeningSocket::Tcp(socket), StreamAddress::Tcp { host: host.clone(), port })
            }
            StreamAddress::Unix { path } => {
                check_socket_path(path)?;
                (ListeningSocket::Unix(SocketFile::bind(path).await?), at.clone())
            }
        };
        let (descriptors, _permit) = (self.descriptors.clone(), permit);
        Ok(LocalListener { socket, address, descriptors, _permit })
    }
}

impl Streams for LocalStreams {
    fn connect(&self, to: StreamAddress) -> BoxFuture<'_, Result<Box<dyn ByteStream>, StreamError>> {
        Box::pin(async move {
            match self.connect_to(&to).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn ByteStream>),
                Err(reason) => Err(StreamError::new(StreamVerb::Connect, &to, reason)),
            }
        })
    }

    fn listen(&self, at: StreamAddress) -> BoxFuture<'_, Result<Box<dyn StreamListener>, StreamError>> {
        Box::pin(async move {
            match self.listen_at(&at).await {
                Ok(listener) => Ok(Box::new(listener) as Box<dyn StreamListener>),
                Err(reason) => Err(StreamError::new(StreamVerb::Listen, &at, reason)),
            }
        })
    }
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The same call on either kind of socket.
macro_rules! on_socket {
    ($socket:expr, $bound:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($bound) => $call,
            Socket::Unix($bound) => $call,
        }
    };
}

struct LocalStream {
    socket: Socket,
    address: StreamAddress,
    /// How much the next read makes room for.
    buffer_bytes: AtomicUsize,
    is_reset: AtomicBool,
    _permit: DescriptorPermit,
    _port: Option<DialledPort>,
}

impl LocalStream {
    fn new(socket: Socket, address: StreamAddress, permit: DescriptorPermit, port: Option<DialledPort>) -> Self {
        Self {
            socket,
            address,
            buffer_bytes: AtomicUsize::new(FIRST_BUFFER_BYTES),
            is_reset: AtomicBool::new(false),
            _permit: permit,
            _port: port,
        }
    }

    async fn read_some(&self) -> io::Result<Bytes> {
        loop {
            on_socket!(&self.socket, socket => socket.readable().await)?;
            let room = self.buffer_bytes.load(Ordering::Relaxed);
            let mut buffer = BytesMut::with_capacity(room);
            match on_socket!(&self.socket, socket => socket.try_read_buf(&mut buffer)) {
                Ok(read) => {
                    let next = match read {
                        full if full >= room => room * 2,
                        little if little <= room / 4 => room / 2,
                        _ => room,
                    };
                    self.buffer_bytes.store(next.clamp(FIRST_BUFFER_BYTES, STREAM_CHUNK_BYTES), Ordering::Relaxed);
                    // Whoever keeps it must not keep a buffer that is many times as large.
                    return Ok(if read <= room / 4 { Bytes::copy_from_slice(&buffer) } else { buffer.freeze() });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn write_all(&self, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            match on_socket!(&self.socket, socket => socket.try_write(&bytes)) {
                Ok(written) => drop(bytes.split_to(written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    on_socket!(&self.socket, socket => socket.writable().await)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn error(&self, verb: StreamVerb, error: &io::Error) -> StreamError {
        StreamError::new(verb, &self.address, os_reason(error))
    }
}

impl ByteStream for LocalStream {
    fn read(&self) -> BoxFuture<'_, Result<Bytes, StreamError>> {
        Box::pin(async move { self.read_some().await.map_err(|error| self.error(StreamVerb::Read, &error)) })
    }

    fn write(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), StreamError>> {
        Box::pin(async move { self.write_all(bytes).await.map_err(|error| self.error(StreamVerb::Write, &error)) })
    }

    fn finish(&self) -> BoxFuture<'_, Result<(), StreamError>> {
        // A socket that is not connected any more has said so to whoever reads or writes.
        let _ = on_socket!(&self.socket, socket => shutdown(socket.as_fd(), Shutdown::Write));
        Box::pin(std::future::ready(Ok(())))
    }

    fn reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
    }
}

impl Drop for LocalStream {
    fn drop(&mut self) {
        if let (Socket::Tcp(socket), true) = (&self.socket, self.is_reset.load(Ordering::Relaxed)) {
            // Without it, the end of a connection that broke would look like the end of a file.
            let _ = sockopt::set_socket_linger(socket.as_fd(), Some(Duration::ZERO));
        }
    }
}

enum ListeningSocket {
    Tcp(TcpListener),
    Unix(SocketFile),
}

struct LocalListener {
    socket: ListeningSocket,
    address: StreamAddress,
    descriptors: DescriptorBudget,
    _permit: DescriptorPermit,
}

impl LocalListener {
    async fn accept_one(&self) -> io::Result<(Socket, Option<String>)> {
        match &self.socket {
            ListeningSocket::Tcp(listener) => {
                let (socket, peer) = listener.accept().await?;
                let _ = socket.set_nodelay(true);
                Ok((Socket::Tcp(socket), Some(peer.to_string())))
            }
            ListeningSocket::Unix(file) => Ok((Socket::Unix(file.listener.accept().await?.0), None)),
        }
    }
}

impl StreamListener for LocalListener {
    fn address(&self) -> &StreamAddress {
        &self.address
    }

    fn accept(&self) -> BoxFuture<'_, Result<Accepted, StreamError>> {
        Box::pin(async move {
            loop {
                // Whoever has no descriptor for one more leaves it in the kernel's queue.
                let Ok(permit) = self.descriptors.take(DescriptorUse::Connections, 1) else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                match self.accept_one().await {
                    Ok((socket, peer)) => {
                        let stream = LocalStream::new(socket, self.address.clone(), permit, None);
                        return Ok(Accepted { stream: Box::new(stream), peer });
                    }
                    Err(error) if error.raw_os_error() == Some(EINVAL) => {
                        return Err(StreamError::new(StreamVerb::Accept, &self.address, os_reason(&error)));
                    }
                    // A peer that is gone already, or no memory: the next one may be better.
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                }
            }
        })
    }
}

/// A unix socket that listens, and its file, which only our user may connect to.
struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode, so that what another has put there since is not removed.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    async fn bind(path: &Path) -> Result<Self, StreamReason> {
        let bound = match UnixListener::bind(path) {
            Err(error) if error.raw_os_error() == Some(EADDRINUSE) && is_abandoned(path).await => {
                // Its listener was killed. Nobody can connect to it any more.
                std::fs::remove_file(path).and_then(|()| UnixListener::bind(path))
            }
            bound => bound,
        };
        let listener = bound.map_err(|error| os_reason(&error))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(|error| os_reason(&error))?;
        let identity = std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()));
        Ok(Self { listener, path: path.to_owned(), identity })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path).ok().map(|found| (found.dev(), found.ino()));
        if found.is_some() && found == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether it is a socket that nobody listens on.
async fn is_abandoned(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    is_socket && UnixStream::connect(path).await.err().and_then(|error| error.raw_os_error()) == Some(ECONNREFUSED)
}

fn check_socket_path(path: &Path) -> Result<(), StreamReason> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.contains(&0) || !path.is_absolute() {
        return Err(StreamReason::BadPath { why: "the path of a socket must be absolute".to_owned() });
    }
    if bytes.len() > SOCKET_PATH_BYTES {
        let why = format!("the path of a socket may have {SOCKET_PATH_BYTES} bytes, this one has {}", bytes.len());
        return Err(StreamReason::BadPath { why });
    }
    Ok(())
}

fn os_reason(error: &io::Error) -> StreamReason {
    let errno = error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::TimedOut => 110,
        io::ErrorKind::HostUnreachable => 113,
        _ => EIO,
    });
    StreamReason::Os(errno)
}
