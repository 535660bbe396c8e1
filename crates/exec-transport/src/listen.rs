//! Accepting connections: TCP with WebSocket, a unix socket, our own stdio.
//!
//! There is no accept task. [`Listener::accept`] takes streams and runs their handshakes as tasks
//! in a set that the listener owns, so a slow handshake delays nobody and none outlives the
//! listener. A handshake holds a place among the connections from its first byte on; over the
//! limit it is told so with a 503.

mod auth;
mod http;
mod socket_file;
mod url;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::connection::Connection;
use crate::limits::{ACCEPT_REST, EXCHANGE_TIMEOUT, HEADER_BYTES, HEADER_TIMEOUT, Limits, MAX_CONNECTIONS, MAX_REFUSALS};
use crate::peer::Peer;
use crate::stdio;
use crate::stream::{self, Holding, Protocol};

pub use auth::{Auth, AuthError, AuthMode, AuthSettings};
pub use url::{ListenUrl, ListenUrlError};

use http::{Answer, Door, Hosts, plain};
use socket_file::SocketFile;

/// How to listen.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Who may upgrade; `None` lets everyone in.
    pub auth: Option<Auth>,
    /// Names, besides addresses and `localhost`, that a `Host` header may carry.
    pub allow_hosts: Vec<String>,
    /// Connections at one time, handshakes included.
    pub max_connections: usize,
    /// Within which a request's head must be complete.
    pub header_timeout: Duration,
    /// Of each connection.
    pub limits: Limits,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            auth: None,
            allow_hosts: Vec::new(),
            max_connections: MAX_CONNECTIONS,
            header_timeout: HEADER_TIMEOUT,
            limits: Limits::default(),
        }
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address cannot be had.
    #[error("cannot listen on ws://{address}: {source}")]
    Tcp {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Another server accepts connections there.
    #[error("cannot listen on {}: another server is listening there; stop it or choose another path", path.display())]
    SocketInUse {
        /// The socket file.
        path: PathBuf,
    },
    /// The path names something that is not a socket, and is not ours to remove.
    #[error("cannot listen on {}: the file exists and is not a socket; remove it or choose another path", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Unix {
        /// What was tried.
        operation: &'static str,
        /// The socket file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Bearer tokens need HTTP; elsewhere they would be asked of nobody.
    #[error("WebSocket auth requires a WebSocket listener, not {instead}")]
    AuthNeedsWebSocket {
        /// What was asked for.
        instead: &'static str,
    },
}

/// Why no further connection will come.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Stdio is one connection, and it was handed out.
    #[error("stdio serves one connection, and it has been accepted")]
    StdioTaken,
    /// The listening socket is broken.
    #[error("cannot accept connections: {source}")]
    Listener {
        /// What the system said.
        source: io::Error,
    },
}

/// A place where connections arrive.
#[derive(Debug)]
pub struct Listener {
    source: Source,
    front: Arc<Front>,
    /// At most `max_connections` and [`MAX_REFUSALS`] tasks, by the two semaphores.
    handshakes: JoinSet<Option<Connection>>,
    places: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    /// Set while the machine is out of descriptors.
    rest_until: Option<Instant>,
}

#[derive(Debug)]
enum Source {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
    Stdio { taken: bool },
}

/// What every handshake needs to know.
#[derive(Debug)]
struct Front {
    door: Door,
    max_connections: usize,
    header_timeout: Duration,
    limits: Limits,
}

/// A stream that has arrived.
enum Arrival {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream, PathBuf),
}

/// Whether there is a place for it.
enum Admission {
    Admitted(OwnedSemaphorePermit),
    /// It is only told that there is none.
    Refused(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit),
}

enum Event {
    Arrived(io::Result<Arrival>),
    Handshake(Option<Connection>),
    Rested,
}

impl Listener {
    /// Takes the place. A stale socket file is replaced, a live one is an error.
    pub async fn bind(url: &ListenUrl, options: ListenOptions) -> Result<Self, BindError> {
        if options.auth.is_some() {
            match url {
                ListenUrl::WebSocket(_) => {}
                ListenUrl::Unix(_) => return Err(BindError::AuthNeedsWebSocket { instead: "a unix socket" }),
                ListenUrl::Stdio => return Err(BindError::AuthNeedsWebSocket { instead: "stdio" }),
            }
        }
        let (source, hosts) = match url {
            ListenUrl::WebSocket(address) => {
                let listener = TcpListener::bind(address).await;
                let listener = listener.map_err(|source| BindError::Tcp { address: *address, source })?;
                (Source::Tcp(listener), Hosts::Known(options.allow_hosts))
            }
            ListenUrl::Unix(path) => {
                let (listener, file) = socket_file::listen_at(path).await?;
                (Source::Unix(listener, file), Hosts::Any)
            }
            ListenUrl::Stdio => (Source::Stdio { taken: false }, Hosts::Any),
        };
        let max_connections = options.max_connections.clamp(1, Semaphore::MAX_PERMITS);
        let front = Front {
            door: Door { auth: options.auth, hosts },
            max_connections,
            header_timeout: options.header_timeout,
            limits: options.limits,
        };
        Ok(Self {
            source,
            front: Arc::new(front),
            handshakes: JoinSet::new(),
            places: Arc::new(Semaphore::new(max_connections)),
            refusals: Arc::new(Semaphore::new(MAX_REFUSALS)),
            rest_until: None,
        })
    }

    /// Where we listen, with the port the system chose.
    pub fn url(&self) -> String {
        match &self.source {
            Source::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("ws://{address}"),
                Err(error) => format!("ws://(unknown: {error})"),
            },
            Source::Unix(_, file) => format!("unix://{}", file.path.display()),
            Source::Stdio { .. } => "stdio".to_owned(),
        }
    }

    /// The next connection that has completed its handshake. The future may be dropped without
    /// loss, but handshakes are only taken up while somebody waits here.
    pub async fn accept(&mut self) -> Result<Connection, AcceptError> {
        loop {
            if let Source::Stdio { taken } = &mut self.source {
                if std::mem::replace(taken, true) {
                    return Err(AcceptError::StdioTaken);
                }
                let halves = stream::open(stdio::stdin(), stdio::stdout(), Protocol::Lines, &self.front.limits, Holding::Nothing);
                return Ok(Connection::over_stream(halves, Peer::Stdio));
            }
            match self.next_event().await {
                Event::Handshake(Some(connection)) => return Ok(connection),
                Event::Handshake(None) => {}
                Event::Rested => self.rest_until = None,
                Event::Arrived(Ok(arrival)) => self.welcome(arrival),
                Event::Arrived(Err(source)) => self.consider(source)?,
            }
        }
    }

    /// Stops listening, removes the socket file, and ends the handshakes under way. Connections
    /// that were accepted live on.
    pub async fn close(mut self) {
        self.handshakes.shutdown().await;
    }

    async fn next_event(&mut self) -> Event {
        let Self { source, handshakes, rest_until, .. } = self;
        let rest_until = *rest_until;
        let rested = async {
            match rest_until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(done) = handshakes.join_next() => Event::Handshake(done.unwrap_or_else(|error| {
                tracing::error!("a handshake failed: {error}");
                None
            })),
            arrival = source.arrival(), if rest_until.is_none() => Event::Arrived(arrival),
            () = rested => Event::Rested,
        }
    }

    fn welcome(&mut self, arrival: Arrival) {
        let admission = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => Admission::Admitted(place),
            Err(_) => match Arc::clone(&self.refusals).try_acquire_owned() {
                Ok(place) => Admission::Refused(place),
                // Even the refusals are many: this one learns it from the closed socket.
                Err(_) => return,
            },
        };
        let front = Arc::clone(&self.front);
        self.handshakes.spawn(async move {
            match arrival {
                Arrival::Tcp(stream, address) => front.receive_tcp(stream, address, admission).await,
                Arrival::Unix(stream, path) => front.receive_unix(stream, path, admission).await,
            }
        });
    }

    /// Most errors of `accept` belong to the stream that failed to arrive, or pass.
    fn consider(&mut self, error: io::Error) -> Result<(), AcceptError> {
        use rustix::io::Errno;
        match Errno::from_io_error(&error) {
            Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK) => Err(AcceptError::Listener { source: error }),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                tracing::warn!("cannot accept connections for now: {error}");
                self.rest_until = Some(Instant::now() + ACCEPT_REST);
                Ok(())
            }
            _ => {
                tracing::debug!("a connection was lost before it was accepted: {error}");
                Ok(())
            }
        }
    }
}

impl Source {
    async fn arrival(&self) -> io::Result<Arrival> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok(Arrival::Tcp(stream, address))
            }
            Self::Unix(listener, file) => {
                let (stream, _) = listener.accept().await?;
                Ok(Arrival::Unix(stream, file.path.clone()))
            }
            Self::Stdio { .. } => std::future::pending().await,
        }
    }
}

impl Front {
    async fn receive_tcp(&self, stream: TcpStream, address: SocketAddr, admission: Admission) -> Option<Connection> {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("{address}: cannot set TCP_NODELAY: {error}");
        }
        let (stream, already_read) = self.serve_http(stream, &admission).await?;
        let Admission::Admitted(place) = admission else { return None };
        let (read, write) = stream.into_split();
        let protocol = Protocol::WebSocketServer { already_read };
        let halves = stream::open(Box::new(read), Box::new(write), protocol, &self.limits, Holding::Slot(place));
        Some(Connection::over_stream(halves, Peer::WebSocket(address)))
    }

    /// Only our own user (and root, who could do anything anyhow) may speak here. The first byte
    /// tells the protocol; it may take its time, for a human with `socat` does, and the wait is
    /// paid for by a user who may do all we may.
    async fn receive_unix(&self, stream: UnixStream, path: PathBuf, admission: Admission) -> Option<Connection> {
        let credentials = stream.peer_cred().ok()?;
        let ours = rustix::process::geteuid().as_raw();
        if credentials.uid() != ours && credentials.uid() != 0 {
            tracing::warn!("{}: refused a connection of user {}", path.display(), credentials.uid());
            return None;
        }
        let peer = Peer::Unix { path, pid: credentials.pid() };
        let first = match &admission {
            Admission::Admitted(_) => peek_byte(&stream).await?,
            Admission::Refused(_) => timeout(self.header_timeout, peek_byte(&stream)).await.ok()??,
        };
        let (stream, protocol) = if first == b'G' {
            let (stream, already_read) = self.serve_http(stream, &admission).await?;
            (stream, Protocol::WebSocketServer { already_read })
        } else {
            (stream, Protocol::Lines)
        };
        let Admission::Admitted(place) = admission else { return None };
        let (read, write) = stream.into_split();
        let halves = stream::open(Box::new(read), Box::new(write), protocol, &self.limits, Holding::Slot(place));
        Some(Connection::over_stream(halves, peer))
    }

    /// One HTTP exchange. Gives the stream back, with what was read too far, if it was upgraded.
    async fn serve_http<S>(&self, stream: S, admission: &Admission) -> Option<(S, Bytes)>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let upgrade = Mutex::new(None);
        let service = hyper::service::service_fn(|mut request| {
            let response = self.respond(&mut request, admission, &upgrade);
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let exchange = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .max_buf_size(HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        match timeout(self.header_timeout + EXCHANGE_TIMEOUT, exchange).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("a request failed: {error}"),
            Err(_) => tracing::debug!("a request took too long"),
        }
        let upgrade = upgrade.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        let upgraded = upgrade.await.ok()?;
        let parts = upgraded.downcast::<TokioIo<S>>().ok()?;
        Some((parts.io.into_inner(), parts.read_buf))
    }

    fn respond(&self, request: &mut Request<Incoming>, admission: &Admission, upgrade: &Mutex<Option<OnUpgrade>>) -> Response<Full<Bytes>> {
        if matches!(admission, Admission::Refused(_)) {
            let text = format!("all {} connections are in use; close one or try again later", self.max_connections);
            return plain(StatusCode::SERVICE_UNAVAILABLE, text);
        }
        match self.door.answer(request, SystemTime::now()) {
            Answer::Done(response) => response,
            Answer::Upgrade(response) => {
                *upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(hyper::upgrade::on(request));
                response
            }
        }
    }
}

/// The first byte of the stream, left in it. `None` if it ends before.
async fn peek_byte(stream: &UnixStream) -> Option<u8> {
    use rustix::net::{RecvFlags, recv};
    loop {
        stream.readable().await.ok()?;
        let mut byte = [0];
        let peeked = stream.try_io(Interest::READABLE, || {
            let (_, count) = recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
            Ok(count)
        });
        match peeked {
            Ok(0) => return None,
            Ok(_) => return Some(byte[0]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return None,
        }
    }
}
