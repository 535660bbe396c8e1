//! Accepting connections: TCP with WebSocket, TLS in front of it or not, a unix socket, our own stdio.
//!
//! There is no accept task. [`Listener::accept`] takes streams and runs their handshakes as tasks
//! in a set that the listener owns, so a slow handshake delays nobody and none outlives the
//! listener. On a unix socket, a stream counts as a connection from the moment it is accepted. Over TCP, where anybody may
//! open streams and say nothing, handshakes have slots of their own (`handshake_slots`), and only a request that may enter
//! counts as a connection. Over the limit of connections it is answered by a 503, and the log says so once, until there is
//! room again.

mod auth;
mod budget;
mod handshake;
mod handshake_slots;
mod http;
mod passed_socket;
mod peer_check;
mod socket_file;
mod throttle;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::connection::Connection;
use crate::limits::{
    ACCEPT_BACKLOG, ACCEPT_PAUSE, HEADER_TIMEOUT, Limits, MAX_CONNECTIONS, MAX_HANDSHAKES, MAX_REFUSALS,
};
use crate::peer::Peer;
use crate::stdio;
use crate::stream::send_queue::Framing;
use crate::stream::{self, HeldResource};
use crate::tls::ServerTls;

pub use auth::{Auth, AuthError, AuthMode, AuthSettings};
pub use budget::{ConnectionBudget, SharedRoom};
pub use http::HttpPaths;
pub use passed_socket::{PassedSocket, PassedSocketError};
pub use peer_check::PeerCheck;

pub(crate) use budget::ConnectionPermit;
use budget::ConnectionRoom;
use handshake::{Acceptor, UnixAdmission};
use handshake_slots::{HandshakeSlot, HandshakeSlots};
use http::{AllowedHosts, UpgradePolicy};
use socket_file::SocketFile;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenUrl {
    /// WebSocket over TCP. Port 0 lets the system choose.
    WebSocket(SocketAddr),
    /// The same inside TLS; see [`ListenOptions::tls`].
    SecureWebSocket(SocketAddr),
    /// A unix socket, with WebSocket or lines as the client chooses.
    Unix(PathBuf),
    /// Our own stdin and stdout; one connection.
    Stdio,
}

/// The texts are Codex's, with `wss://` and `unix://` added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListenUrlError {
    #[error("unsupported --listen URL `{0}`; expected `ws://IP:PORT`, `wss://IP:PORT`, `unix://PATH` or `stdio`")]
    Unsupported(String),
    /// `ws://` without a literal address and a port.
    #[error("invalid websocket --listen URL `{0}`; expected `ws://IP:PORT`")]
    InvalidWebSocket(String),
    /// `wss://` without a literal address and a port.
    #[error("invalid websocket --listen URL `{0}`; expected `wss://IP:PORT`")]
    InvalidSecureWebSocket(String),
    /// `unix://` without a path.
    #[error("invalid unix --listen URL `{0}`; expected `unix://PATH`")]
    InvalidUnix(String),
}

impl FromStr for ListenUrl {
    type Err = ListenUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if matches!(text, "stdio" | "stdio://") {
            return Ok(Self::Stdio);
        }
        if let Some(path) = text.strip_prefix("unix://") {
            return match path {
                "" => Err(ListenUrlError::InvalidUnix(text.to_owned())),
                path => Ok(Self::Unix(PathBuf::from(path))),
            };
        }
        if let Some(address) = text.strip_prefix("wss://") {
            let address = address.parse().map_err(|_| ListenUrlError::InvalidSecureWebSocket(text.to_owned()))?;
            return Ok(Self::SecureWebSocket(address));
        }
        let address = text.strip_prefix("ws://").ok_or_else(|| ListenUrlError::Unsupported(text.to_owned()))?;
        let address = address.parse().map_err(|_| ListenUrlError::InvalidWebSocket(text.to_owned()))?;
        Ok(Self::WebSocket(address))
    }
}

impl ListenUrl {
    /// Where a WebSocket listener, with TLS or without, listens.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        match self {
            Self::WebSocket(address) | Self::SecureWebSocket(address) => Some(*address),
            Self::Unix(_) | Self::Stdio => None,
        }
    }
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WebSocket(address) => write!(f, "ws://{address}"),
            Self::SecureWebSocket(address) => write!(f, "wss://{address}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Stdio => write!(f, "stdio"),
        }
    }
}

#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// `None` lets everyone in.
    pub auth: Option<Auth>,
    /// The certificate of a `wss://` listener; there must be one for it, and none for others.
    pub tls: Option<ServerTls>,
    /// Listen without `auth` where others than this machine can reach it. Whoever does may run programs as our user.
    pub insecure_no_auth: bool,
    /// Names, besides addresses, `localhost` and the machine's own, that a `Host` header may carry. With `auth` any may.
    pub allow_hosts: Vec<String>,
    /// Where the WebSocket and the probes are.
    pub paths: HttpPaths,
    /// Connections at one time; on a unix socket handshakes included.
    pub max_connections: usize,
    /// Handshakes over TCP under way at one time; beyond, the oldest end.
    pub max_handshakes: usize,
    /// Which peers over TCP may not enter, whatever they bring: those whom the server itself has confined.
    pub peer_check: Option<PeerCheck>,
    /// What connections share with others, if it may run out before: the descriptors of this process.
    pub budget: Option<ConnectionBudget>,
    /// The time within which a request's head must be complete.
    pub header_timeout: Duration,
    pub limits: Limits,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            auth: None,
            tls: None,
            insecure_no_auth: false,
            allow_hosts: Vec::new(),
            paths: HttpPaths::default(),
            max_connections: MAX_CONNECTIONS,
            max_handshakes: MAX_HANDSHAKES,
            peer_check: None,
            budget: None,
            header_timeout: HEADER_TIMEOUT,
            limits: Limits::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {url}: {source}")]
    Tcp { url: ListenUrl, source: io::Error },
    #[error("cannot listen on {}: another server is listening there; stop it or choose another path", path.display())]
    SocketInUse { path: PathBuf },
    /// The path names something that is not a socket, and is not ours to remove.
    #[error("cannot listen on {}: the file exists and is not a socket; remove it or choose another path", path.display())]
    NotASocket { path: PathBuf },
    #[error("cannot {operation} {}: {source}", path.display())]
    Unix { operation: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "refusing to listen on {url} without authentication, because whoever reaches it could run programs as this \
         user: use --ws-auth, a loopback address or a unix socket, or --insecure-no-auth if you mean it"
    )]
    AuthMissing { url: ListenUrl },
    /// Begins as the refusal of a URL that we do not know, which `wss://` is to Codex.
    #[error(
        "unsupported --listen URL `{url}` without a certificate: give --tls-cert and --tls-key, or --tls-self-signed"
    )]
    CertificateMissing { url: ListenUrl },
    /// Whoever gives a certificate expects that connections are encrypted.
    #[error("a certificate is of use to `wss://` listeners only, not to {url}: listen on `wss://IP:PORT`")]
    CertificateUnused { url: ListenUrl },
    /// Bearer tokens need HTTP; on other transports nobody would be asked for one.
    #[error("WebSocket auth requires a WebSocket listener, not {instead}")]
    AuthNeedsWebSocket { instead: &'static str },
}

#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Stdio is one connection, and it was accepted before.
    #[error("stdio serves one connection, and it has been accepted")]
    StdioTaken,
    #[error("cannot accept connections: {source}")]
    Listener { source: io::Error },
}

/// A source of connections.
#[derive(Debug)]
pub struct Listener {
    source: ListenSource,
    acceptor: Arc<Acceptor>,
    /// At most `max_handshakes` tasks over TCP, by the slots; `max_connections` and [`MAX_REFUSALS`] on a unix socket, by
    /// the semaphores.
    handshakes: JoinSet<Option<Box<Connection>>>,
    slots: Arc<HandshakeSlots>,
    refusal_permits: Arc<Semaphore>,
    /// Set while the machine is out of descriptors or memory.
    paused_until: Option<Instant>,
}

#[derive(Debug)]
enum ListenSource {
    Tcp(TcpListener),
    Unix(UnixListener, SocketPath),
    Stdio { taken: bool },
}

#[derive(Debug)]
enum SocketPath {
    /// Ours to remove.
    Own(SocketFile),
    /// Of whoever passed the socket to us.
    Passed(PathBuf),
}

impl SocketPath {
    fn path(&self) -> &Path {
        match self {
            Self::Own(file) => &file.path,
            Self::Passed(path) => path,
        }
    }
}

enum Event {
    Accepted(io::Result<AcceptedStream>),
    Handshake(Option<Box<Connection>>),
    PauseOver,
}

impl Listener {
    /// Starts to listen. A stale socket file is replaced; one on which a server listens is an error.
    pub async fn bind(url: &ListenUrl, options: ListenOptions) -> Result<Self, BindError> {
        Self::open(url, None, options).await
    }

    /// Accepts on a socket that a service manager has bound, and listens on, for us. It stays when we end.
    pub async fn bind_passed(socket: PassedSocket, options: ListenOptions) -> Result<Self, BindError> {
        Self::open(&socket.url, Some(socket.descriptor), options).await
    }

    async fn open(url: &ListenUrl, passed: Option<OwnedFd>, options: ListenOptions) -> Result<Self, BindError> {
        if let Some(auth) = &options.auth {
            match url {
                ListenUrl::WebSocket(_) | ListenUrl::SecureWebSocket(_) => {}
                ListenUrl::Unix(_) => return Err(BindError::AuthNeedsWebSocket { instead: "a unix socket" }),
                ListenUrl::Stdio => return Err(BindError::AuthNeedsWebSocket { instead: "stdio" }),
            }
            auth.warn_if_exposed();
        }
        match (url, &options.tls) {
            (ListenUrl::SecureWebSocket(_), None) => return Err(BindError::CertificateMissing { url: url.clone() }),
            (ListenUrl::SecureWebSocket(_), Some(_)) | (_, None) => {}
            (_, Some(_)) => return Err(BindError::CertificateUnused { url: url.clone() }),
        }
        let (source, hosts) = match url {
            ListenUrl::WebSocket(address) | ListenUrl::SecureWebSocket(address) => {
                let identifies =
                    options.auth.is_some() || options.tls.as_ref().is_some_and(ServerTls::asks_for_certificates);
                if !identifies && !address.ip().to_canonical().is_loopback() {
                    if !options.insecure_no_auth {
                        return Err(BindError::AuthMissing { url: url.clone() });
                    }
                    tracing::warn!("whoever reaches {url} may run programs here: no token is asked for");
                }
                let listener = match passed {
                    Some(socket) => TcpListener::from_std(socket.into()),
                    None => listen_tcp(*address),
                };
                let listener = listener.map_err(|source| BindError::Tcp { url: url.clone(), source })?;
                (ListenSource::Tcp(listener), AllowedHosts::of_network(options.auth.as_ref(), options.allow_hosts))
            }
            ListenUrl::Unix(path) => {
                let (listener, path) = match passed {
                    Some(socket) => (passed_socket::unix_listener(socket, path)?, SocketPath::Passed(path.clone())),
                    None => {
                        let (listener, file) = socket_file::listen_at(path).await?;
                        (listener, SocketPath::Own(file))
                    }
                };
                (ListenSource::Unix(listener, path), AllowedHosts::Any)
            }
            ListenUrl::Stdio => (ListenSource::Stdio { taken: false }, AllowedHosts::Any),
        };
        let max_connections = options.max_connections.clamp(1, Semaphore::MAX_PERMITS);
        let acceptor = Acceptor {
            policy: UpgradePolicy { auth: options.auth, hosts, paths: options.paths },
            tls: options.tls.as_ref().map(ServerTls::acceptor),
            room: ConnectionRoom::new(max_connections, options.budget),
            peer_check: options.peer_check,
            header_timeout: options.header_timeout,
            limits: options.limits,
            throttle: Mutex::default(),
        };
        Ok(Self {
            source,
            acceptor: Arc::new(acceptor),
            handshakes: JoinSet::new(),
            slots: HandshakeSlots::new(options.max_handshakes),
            refusal_permits: Arc::new(Semaphore::new(MAX_REFUSALS)),
            paused_until: None,
        })
    }

    /// The URL to connect to, with the port that the system chose.
    pub fn url(&self) -> String {
        match &self.source {
            ListenSource::Tcp(listener) => match listener.local_addr() {
                Ok(address) if self.acceptor.tls.is_some() => ListenUrl::SecureWebSocket(address).to_string(),
                Ok(address) => ListenUrl::WebSocket(address).to_string(),
                Err(error) => format!("ws://(unknown: {error})"),
            },
            ListenSource::Unix(_, path) => format!("unix://{}", path.path().display()),
            ListenSource::Stdio { .. } => "stdio".to_owned(),
        }
    }

    /// The next connection that has completed its handshake. The future may be dropped without
    /// loss, but streams are accepted only while somebody waits here.
    pub async fn accept(&mut self) -> Result<Connection, AcceptError> {
        loop {
            if matches!(self.source, ListenSource::Stdio { .. }) {
                let stdio = self.accept_pending().await?;
                return Ok(stdio.handshake().await.expect("stdio has no handshake that could fail"));
            }
            match self.next_event().await {
                Event::Handshake(Some(connection)) => return Ok(*connection),
                Event::Handshake(None) => {}
                Event::PauseOver => self.paused_until = None,
                Event::Accepted(Ok(stream)) => {
                    if let Some(pending) = self.admit(stream) {
                        self.handshakes.spawn(async move { pending.handshake().await.map(Box::new) });
                    }
                }
                Event::Accepted(Err(source)) => self.handle_accept_error(source)?,
            }
        }
    }

    /// The next stream before its handshake, which can be made on another thread. The future may be dropped without loss.
    pub async fn accept_pending(&mut self) -> Result<PendingConnection, AcceptError> {
        if let ListenSource::Stdio { taken } = &mut self.source {
            if std::mem::replace(taken, true) {
                return Err(AcceptError::StdioTaken);
            }
            return Ok(PendingConnection(PendingStream::Stdio { limits: self.acceptor.limits.clone() }));
        }
        loop {
            if let Some(until) = self.paused_until {
                sleep_until(until).await;
                self.paused_until = None;
            }
            match self.source.accept().await {
                Ok(stream) => {
                    if let Some(pending) = self.admit(stream) {
                        return Ok(pending);
                    }
                }
                Err(error) => self.handle_accept_error(error)?,
            }
        }
    }

    /// Stops listening, removes the socket file, and ends the handshakes under way. Connections
    /// that were accepted stay open.
    pub async fn close(mut self) {
        self.handshakes.shutdown().await;
    }

    async fn next_event(&mut self) -> Event {
        let Self { source, handshakes, paused_until, .. } = self;
        let paused_until = *paused_until;
        let pause_over = async {
            match paused_until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(done) = handshakes.join_next() => Event::Handshake(done.unwrap_or_else(|error| {
                tracing::error!("a handshake failed: {error}");
                None
            })),
            stream = source.accept(), if paused_until.is_none() => Event::Accepted(stream),
            () = pause_over => Event::PauseOver,
        }
    }

    /// `None` if a unix socket has too many connections, and too many refusals as well: this client is only disconnected.
    fn admit(&self, stream: AcceptedStream) -> Option<PendingConnection> {
        let acceptor = Arc::clone(&self.acceptor);
        Some(PendingConnection(match stream {
            AcceptedStream::Tcp(stream, address) => {
                let slot = self.slots.take(address.ip());
                PendingStream::Tcp { acceptor, stream, address, slot }
            }
            AcceptedStream::Unix(stream, path) => {
                let admission = match acceptor.room.take() {
                    Ok(permit) => UnixAdmission::Connection(permit),
                    Err(why) => {
                        UnixAdmission::Refusal(Arc::clone(&self.refusal_permits).try_acquire_owned().ok()?, why)
                    }
                };
                PendingStream::Unix { acceptor, stream, path, admission }
            }
        }))
    }

    /// Most errors of `accept` belong to the one connection that failed, or pass by themselves.
    fn handle_accept_error(&mut self, error: io::Error) -> Result<(), AcceptError> {
        use rustix::io::Errno;
        match Errno::from_io_error(&error) {
            Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK) => Err(AcceptError::Listener { source: error }),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                self.acceptor.room.log_overload(&error.to_string());
                self.slots.end_half();
                self.paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                Ok(())
            }
            _ => {
                tracing::debug!("a connection was lost before it was accepted: {error}");
                Ok(())
            }
        }
    }
}

/// Registered with no runtime, so that another thread than the listener's can make the handshake.
enum AcceptedStream {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream, PathBuf),
}

/// A stream that was accepted and has yet to make its handshake. It belongs to no runtime.
#[derive(Debug)]
pub struct PendingConnection(PendingStream);

#[derive(Debug)]
enum PendingStream {
    Tcp { acceptor: Arc<Acceptor>, stream: std::net::TcpStream, address: SocketAddr, slot: HandshakeSlot },
    Unix { acceptor: Arc<Acceptor>, stream: std::os::unix::net::UnixStream, path: PathBuf, admission: UnixAdmission },
    Stdio { limits: Limits },
}

impl PendingConnection {
    /// Makes the handshake, on the runtime that polls this; `None` if no connection came of it.
    pub async fn handshake(self) -> Option<Connection> {
        match self.0 {
            PendingStream::Tcp { acceptor, stream, address, slot } => {
                slot.unless_ended(acceptor.accept_tcp(stream, address)).await
            }
            PendingStream::Unix { acceptor, stream, path, admission } => {
                acceptor.accept_unix(stream, path, admission).await
            }
            PendingStream::Stdio { limits } => {
                let (read, write) = (stdio::stdin(), stdio::stdout());
                let lines = (Framing::Lines, Bytes::new());
                Some(stream::open(read, write, lines, &limits, HeldResource::Nothing, Peer::Stdio))
            }
        }
    }
}

/// As tokio's own, with a longer queue.
fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_BACKLOG)
}

impl ListenSource {
    async fn accept(&self) -> io::Result<AcceptedStream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok(AcceptedStream::Tcp(stream.into_std()?, address))
            }
            Self::Unix(listener, path) => {
                let (stream, _) = listener.accept().await?;
                Ok(AcceptedStream::Unix(stream.into_std()?, path.path().to_owned()))
            }
            Self::Stdio { .. } => std::future::pending().await,
        }
    }
}
