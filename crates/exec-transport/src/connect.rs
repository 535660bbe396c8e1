//! Making connections: to a `ws://`, `wss://` or `unix://` URL, or to a program over its stdio.

pub(crate) mod program;
mod url;
mod websocket;

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use rustls::pki_types::ServerName;
use tokio::io::AsyncRead;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::connection::Connection;
use crate::limits::{CONNECT_TIMEOUT, Limits};
use crate::peer::Peer;
use crate::stream::send_queue::Framing;
use crate::stream::write_half::WriteHalf;
use crate::stream::{self, HeldResource};
use crate::tls::{ClientTls, TlsFailure};
use crate::websocket::{MaskKeys, Role};

pub use program::{Program, ProgramEnd, ProgramGroup, ProgramLines, StartedProgram};
pub use url::{ConnectUrl, ConnectUrlError, WebSocketUrl};

use websocket::UpgradeRequest;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Url(ConnectUrl),
    /// A program that serves on its stdio; it is started here, and terminated with the connection.
    Program(Program),
}

impl FromStr for Target {
    type Err = ConnectUrlError;

    /// A URL. Programs have no text form.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::Url)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => url.fmt(f),
            Self::Program(program) => program.program.display().fmt(f),
        }
    }
}

#[derive(Clone)]
pub struct ConnectOptions {
    /// Sent as `Authorization: Bearer` to `ws://` and `wss://` servers.
    pub bearer_token: Option<String>,
    /// For name lookup, TCP, TLS and upgrade together.
    pub timeout: Duration,
    /// For `wss://`; `None` trusts what the machine trusts.
    pub tls: Option<ClientTls>,
    pub limits: Limits,
    /// Users, beside us and root, whose servers are trusted on a unix socket.
    pub trusted_uids: Vec<u32>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        let trusted_uids = Vec::new();
        Self { bearer_token: None, timeout: CONNECT_TIMEOUT, tls: None, limits: Limits::default(), trusted_uids }
    }
}

impl fmt::Debug for ConnectOptions {
    /// Hides the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("bearer_token", &self.bearer_token.as_ref().map(|_| "…"))
            .field("timeout", &self.timeout)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot connect to {target}: no answer within {after:?}")]
    Timeout { target: String, after: Duration },
    /// Nobody listens, the name is unknown, or the network does not reach it.
    #[error("cannot connect to {target}: {source}")]
    Unreachable { target: String, source: io::Error },
    #[error("cannot connect to {target}: {problem}")]
    Tls { target: String, problem: String },
    /// One side does not trust the certificate of the other, and will not the next time.
    #[error("cannot connect to {target}: {problem}")]
    Certificate {
        target: String,
        /// Which side, and what to do about it.
        problem: String,
    },
    /// It answered, but not with an upgrade; 401 means that the token is missing or wrong.
    #[error("{target} refused the connection: HTTP {status}{}{body}", if body.is_empty() { "" } else { ": " })]
    Refused {
        target: String,
        status: u16,
        /// The beginning of the answer's text.
        body: String,
    },
    /// The server does not speak WebSocket correctly.
    #[error("cannot connect to {target}: {problem}")]
    Handshake { target: String, problem: String },
    /// Anybody may listen on a socket in a directory that others can write to.
    #[error(
        "refused to talk to {target}: its server runs as user {uid}, and you are {ours}; if you trust that user, set \
         EXEC_SERVER_TRUSTED_UID={uid}"
    )]
    OtherUser { target: String, uid: u32, ours: u32 },
    #[error("cannot start {program}: {source}")]
    Spawn { program: String, source: io::Error },
    /// The program that was to lead to a server did not.
    #[error("cannot reach {target}: {problem}")]
    NoWayIn {
        target: String,
        /// What happened, and what to do about it.
        problem: String,
        /// Whether the next attempt will end the same way.
        permanent: bool,
    },
}

/// Connects. An attempt that fails or is dropped leaves nothing behind.
pub async fn connect(target: &Target, options: &ConnectOptions) -> Result<Connection, ConnectError> {
    match target {
        Target::Program(program) => connect_program(program, &options.limits),
        Target::Url(url) => {
            let attempt = async {
                match url {
                    ConnectUrl::Unix(path) => connect_unix(path, options).await,
                    ConnectUrl::WebSocket(url) => connect_websocket(url, options).await,
                }
            };
            match timeout(options.timeout, attempt).await {
                Ok(result) => result.map_err(|error| error.with_target(target.to_string())),
                Err(_) => Err(ConnectError::Timeout { target: target.to_string(), after: options.timeout }),
            }
        }
    }
}

fn connect_program(program: &Program, limits: &Limits) -> Result<Connection, ConnectError> {
    let name = program.program.to_string_lossy().into_owned();
    match program::spawn(program, ProgramGroup::Own) {
        Err(source) => Err(ConnectError::Spawn { program: name, source }),
        Ok((child, stdin, stdout)) => {
            let pid = child.pid.as_raw_nonzero().get().unsigned_abs();
            let peer = Peer::Program { program: name, pid };
            let lines = (Framing::Lines, Bytes::new());
            Ok(stream::open(stdout, stdin, lines, limits, HeldResource::Child(Box::new(child)), peer))
        }
    }
}

async fn connect_unix(path: &std::path::Path, options: &ConnectOptions) -> Result<Connection, ConnectErrorKind> {
    let stream = UnixStream::connect(path).await.map_err(ConnectErrorKind::Unreachable)?;
    let server = stream.peer_cred().map_err(ConnectErrorKind::Unreachable)?;
    let (uid, ours) = (server.uid(), rustix::process::geteuid().as_raw());
    if uid != ours && uid != 0 && !options.trusted_uids.contains(&uid) {
        return Err(ConnectErrorKind::OtherUser { uid, ours });
    }
    let pid = server.pid();
    let request = UpgradeRequest { host: "localhost", path_and_query: "/", bearer_token: None };
    let (stream, already_read) = websocket::upgrade(stream, &request).await?;
    let (read, write) = stream.into_split();
    let peer = Peer::Unix { path: path.to_owned(), pid, uid };
    Ok(client_connection(read, write, already_read, options, peer))
}

async fn connect_websocket(url: &WebSocketUrl, options: &ConnectOptions) -> Result<Connection, ConnectErrorKind> {
    let stream = TcpStream::connect((url.host.as_str(), url.port)).await.map_err(ConnectErrorKind::Unreachable)?;
    let address = stream.peer_addr().map_err(ConnectErrorKind::Unreachable)?;
    stream::set_low_latency(&stream).map_err(ConnectErrorKind::Unreachable)?;
    let peer = Peer::WebSocket(address);
    let request = UpgradeRequest {
        host: &url.authority,
        path_and_query: &url.path_and_query,
        bearer_token: options.bearer_token.as_deref(),
    };
    if !url.tls {
        let (stream, already_read) = websocket::upgrade(stream, &request).await?;
        let (read, write) = stream.into_split();
        return Ok(client_connection(read, write, already_read, options, peer));
    }
    let ClientTls(config) = match &options.tls {
        Some(tls) => tls.clone(),
        None => ClientTls::system().map_err(|error| TlsFailure::Other(error.to_string()))?,
    };
    let name = ServerName::try_from(url.host.clone()).map_err(|error| TlsFailure::Other(error.to_string()))?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|error| match TlsFailure::find(&error) {
        Some(failure) => ConnectErrorKind::Tls(failure),
        None => ConnectErrorKind::Unreachable(error),
    })?;
    let upgraded = websocket::upgrade(stream, &request).await;
    // A server refuses a client's certificate only after the client has seen the handshake succeed.
    let (stream, already_read) = upgraded.map_err(|error| match error {
        ConnectErrorKind::Http(error) => match TlsFailure::find(&error) {
            Some(failure) => ConnectErrorKind::Tls(failure),
            None => ConnectErrorKind::Http(error),
        },
        other => other,
    })?;
    // TLS keeps one state for both directions, so the halves share a lock, which tokio's split holds for one poll.
    let (read, write) = tokio::io::split(stream);
    Ok(client_connection(read, write, already_read, options, peer))
}

fn client_connection<R, W>(read: R, write: W, already_read: Bytes, options: &ConnectOptions, peer: Peer) -> Connection
where
    R: AsyncRead + Send + Unpin + 'static,
    W: WriteHalf + 'static,
{
    let framing = Framing::WebSocket(Role::Client(MaskKeys::default()));
    stream::open(read, write, (framing, already_read), &options.limits, HeldResource::Nothing, peer)
}

/// A [`ConnectError`] without its target.
#[derive(Debug)]
pub(crate) enum ConnectErrorKind {
    Unreachable(io::Error),
    Tls(TlsFailure),
    Refused { status: u16, body: String },
    OtherUser { uid: u32, ours: u32 },
    Request(&'static str),
    NotWebSocket(&'static str),
    Http(hyper::Error),
}

impl From<hyper::Error> for ConnectErrorKind {
    fn from(error: hyper::Error) -> Self {
        Self::Http(error)
    }
}

impl From<TlsFailure> for ConnectErrorKind {
    fn from(failure: TlsFailure) -> Self {
        Self::Tls(failure)
    }
}

impl ConnectErrorKind {
    fn with_target(self, target: String) -> ConnectError {
        match self {
            Self::Unreachable(source) => ConnectError::Unreachable { target, source },
            Self::Tls(TlsFailure::Certificate(problem)) => ConnectError::Certificate { target, problem },
            Self::Tls(TlsFailure::Other(problem)) => ConnectError::Tls { target, problem },
            Self::Refused { status, body } => ConnectError::Refused { target, status, body },
            Self::OtherUser { uid, ours } => ConnectError::OtherUser { target, uid, ours },
            Self::Request(problem) => ConnectError::Handshake { target, problem: problem.to_owned() },
            Self::NotWebSocket(problem) => {
                ConnectError::Handshake { target, problem: format!("this is no WebSocket server: {problem}") }
            }
            Self::Http(error) => {
                ConnectError::Handshake { target, problem: format!("the HTTP exchange failed: {error}") }
            }
        }
    }
}
