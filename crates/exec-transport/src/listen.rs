//! Accepting connections: TCP with WebSocket, a unix socket, our own stdio.
//!
//! There is no accept task. [`Listener::accept`] takes streams and runs their handshakes as tasks
//! in a set that the listener owns, so a slow handshake delays nobody and none outlives the
//! listener. A handshake holds a place among the connections from its first byte on; over the
//! limit it is told so with a 503.

mod auth;
mod handshake;
mod http;
mod socket_file;
mod url;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::connection::Connection;
use crate::limits::{ACCEPT_PAUSE, HEADER_TIMEOUT, Limits, MAX_CONNECTIONS, MAX_REFUSALS};
use crate::peer::Peer;
use crate::stdio;
use crate::stream::{self, HeldResource, Protocol};

pub use auth::{Auth, AuthError, AuthMode, AuthSettings};
pub use url::{ListenUrl, ListenUrlError};

use handshake::{AcceptedStream, Acceptor, HandshakePermit};
use http::{AllowedHosts, UpgradePolicy};
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
    source: ListenSource,
    acceptor: Arc<Acceptor>,
    /// At most `max_connections` and [`MAX_REFUSALS`] tasks, by the two semaphores.
    handshakes: JoinSet<Option<Box<Connection>>>,
    connection_permits: Arc<Semaphore>,
    refusal_permits: Arc<Semaphore>,
    /// Set while the machine is out of descriptors.
    paused_until: Option<Instant>,
}

#[derive(Debug)]
enum ListenSource {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
    Stdio { taken: bool },
}

enum Event {
    Accepted(io::Result<AcceptedStream>),
    Handshake(Option<Box<Connection>>),
    PauseOver,
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
                (ListenSource::Tcp(listener), AllowedHosts::Known(options.allow_hosts))
            }
            ListenUrl::Unix(path) => {
                let (listener, file) = socket_file::listen_at(path).await?;
                (ListenSource::Unix(listener, file), AllowedHosts::Any)
            }
            ListenUrl::Stdio => (ListenSource::Stdio { taken: false }, AllowedHosts::Any),
        };
        let max_connections = options.max_connections.clamp(1, Semaphore::MAX_PERMITS);
        let acceptor = Acceptor {
            policy: UpgradePolicy { auth: options.auth, hosts },
            max_connections,
            header_timeout: options.header_timeout,
            limits: options.limits,
        };
        Ok(Self {
            source,
            acceptor: Arc::new(acceptor),
            handshakes: JoinSet::new(),
            connection_permits: Arc::new(Semaphore::new(max_connections)),
            refusal_permits: Arc::new(Semaphore::new(MAX_REFUSALS)),
            paused_until: None,
        })
    }

    /// Where we listen, with the port the system chose.
    pub fn url(&self) -> String {
        match &self.source {
            ListenSource::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("ws://{address}"),
                Err(error) => format!("ws://(unknown: {error})"),
            },
            ListenSource::Unix(_, file) => format!("unix://{}", file.path.display()),
            ListenSource::Stdio { .. } => "stdio".to_owned(),
        }
    }

    /// The next connection that has completed its handshake. The future may be dropped without
    /// loss, but handshakes are only taken up while somebody waits here.
    pub async fn accept(&mut self) -> Result<Connection, AcceptError> {
        loop {
            if let ListenSource::Stdio { taken } = &mut self.source {
                if std::mem::replace(taken, true) {
                    return Err(AcceptError::StdioTaken);
                }
                let halves = stream::open(
                    stdio::stdin(),
                    stdio::stdout(),
                    Protocol::Lines,
                    &self.acceptor.limits,
                    HeldResource::Nothing,
                );
                return Ok(Connection::over_stream(halves, Peer::Stdio));
            }
            match self.next_event().await {
                Event::Handshake(Some(connection)) => return Ok(*connection),
                Event::Handshake(None) => {}
                Event::PauseOver => self.paused_until = None,
                Event::Accepted(Ok(stream)) => self.start_handshake(stream),
                Event::Accepted(Err(source)) => self.handle_accept_error(source)?,
            }
        }
    }

    /// Stops listening, removes the socket file, and ends the handshakes under way. Connections
    /// that were accepted live on.
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

    fn start_handshake(&mut self, stream: AcceptedStream) {
        let permit = match Arc::clone(&self.connection_permits).try_acquire_owned() {
            Ok(permit) => HandshakePermit::Serve(permit),
            Err(_) => match Arc::clone(&self.refusal_permits).try_acquire_owned() {
                Ok(permit) => HandshakePermit::Refuse(permit),
                // Even the refusals are many: this one learns it from the closed socket.
                Err(_) => return,
            },
        };
        let acceptor = Arc::clone(&self.acceptor);
        self.handshakes.spawn(async move { acceptor.accept(stream, permit).await.map(Box::new) });
    }

    /// Most errors of `accept` belong to the stream that failed to arrive, or pass.
    fn handle_accept_error(&mut self, error: io::Error) -> Result<(), AcceptError> {
        use rustix::io::Errno;
        match Errno::from_io_error(&error) {
            Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK) => Err(AcceptError::Listener { source: error }),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                tracing::warn!("cannot accept connections for now: {error}");
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

impl ListenSource {
    async fn accept(&self) -> io::Result<AcceptedStream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok(AcceptedStream::Tcp(stream, address))
            }
            Self::Unix(listener, file) => {
                let (stream, _) = listener.accept().await?;
                Ok(AcceptedStream::Unix(stream, file.path.clone()))
            }
            Self::Stdio { .. } => std::future::pending().await,
        }
    }
}
