//! Turns an accepted stream into a connection: checks the user, finds the protocol, serves one HTTP exchange.
//!
//! Each handshake is a task that the listener owns, bounded in time except for the first byte on a
//! unix socket. Deliberately absent: the rules of the HTTP exchange; they are in `http`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{Connection, Identity};
use crate::limits::{EXCHANGE_TIMEOUT, HEADER_BYTES, Limits};
use crate::peer::Peer;
use crate::stream::send_queue::Framing;
use crate::stream::{self, HeldResource};
use crate::websocket::Role;

use super::budget::SharedRoom;
use super::http::{UpgradePolicy, UpgradeResponse, plain};
use super::throttle::AuthThrottle;

/// Turns accepted streams into connections; shared by all handshakes of a listener.
#[derive(Debug)]
pub(super) struct Acceptor {
    pub(super) policy: UpgradePolicy,
    pub(super) header_timeout: Duration,
    pub(super) limits: Limits,
    /// Held for a moment, never while anybody waits.
    pub(super) throttle: Mutex<AuthThrottle>,
}

/// Registered with no runtime, so that another thread than the listener's can make the handshake.
#[derive(Debug)]
pub(super) enum AcceptedStream {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream, PathBuf),
}

/// Whether the handshake may lead to a connection, or only to a refusal.
#[derive(Debug)]
pub(super) enum HandshakePermit {
    Serve(ConnectionPermit),
    /// There is no room for one more connection; the client is told why.
    Refuse(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit, String),
}

/// The room of one connection. Dropped when it ends.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    pub(super) _place: OwnedSemaphorePermit,
    pub(super) _shared: Option<SharedRoom>,
}

impl Acceptor {
    /// Makes the handshake; `None` if no connection came of it.
    pub(super) async fn accept(&self, stream: AcceptedStream, permit: HandshakePermit) -> Option<Connection> {
        match stream {
            AcceptedStream::Tcp(stream, address) => {
                self.accept_tcp(TcpStream::from_std(stream).ok()?, address, permit).await
            }
            AcceptedStream::Unix(stream, path) => {
                self.accept_unix(UnixStream::from_std(stream).ok()?, path, permit).await
            }
        }
    }

    async fn accept_tcp(&self, stream: TcpStream, address: SocketAddr, permit: HandshakePermit) -> Option<Connection> {
        if let Err(error) = stream::set_low_latency(&stream) {
            tracing::debug!("{address}: its socket stays as it is: {error}");
        }
        let (stream, already_read, identity) = self.serve_http(stream, Some(address), &permit).await?;
        let HandshakePermit::Serve(permit) = permit else { return None };
        let (read, write) = stream.into_split();
        let framing = (Framing::WebSocket(Role::Server), already_read);
        let held = HeldResource::Permit(permit);
        let connection = stream::open(read, write, framing, &self.limits, held, Peer::WebSocket(address));
        Some(Connection { identity, ..connection })
    }

    /// Only our own user may connect, and root, who could do anything anyhow. The first byte tells the protocol. There is
    /// no time limit for it, because a human with `socat` may be slow, and the user who makes us wait may do all that we
    /// may.
    async fn accept_unix(&self, stream: UnixStream, path: PathBuf, permit: HandshakePermit) -> Option<Connection> {
        let credentials = stream.peer_cred().ok()?;
        let ours = rustix::process::geteuid().as_raw();
        if credentials.uid() != ours && credentials.uid() != 0 {
            tracing::warn!("{}: refused a connection of user {}", path.display(), credentials.uid());
            return None;
        }
        let peer = Peer::Unix { path, pid: credentials.pid(), uid: credentials.uid() };
        let first = match &permit {
            HandshakePermit::Serve(_) => peek_byte(&stream).await?,
            HandshakePermit::Refuse(..) => timeout(self.header_timeout, peek_byte(&stream)).await.ok()??,
        };
        let (stream, framing) = if first == b'G' {
            let (stream, already_read, _) = self.serve_http(stream, None, &permit).await?;
            (stream, (Framing::WebSocket(Role::Server), already_read))
        } else {
            (stream, (Framing::Lines, Bytes::new()))
        };
        let HandshakePermit::Serve(permit) = permit else { return None };
        let (read, write) = stream.into_split();
        Some(stream::open(read, write, framing, &self.limits, HeldResource::Permit(permit), peer))
    }

    /// Serves one HTTP exchange. If it upgraded, returns the stream with the bytes that were read beyond the request.
    async fn serve_http<S>(
        &self,
        stream: S,
        address: Option<SocketAddr>,
        permit: &HandshakePermit,
    ) -> Option<(S, Bytes, Identity)>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let upgrade = Mutex::new(None);
        let service = hyper::service::service_fn(|request| async {
            Ok::<_, Infallible>(self.respond(request, address, permit, &upgrade).await)
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
        let (upgrade, identity) = upgrade.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        let upgraded = upgrade.await.ok()?;
        let parts = upgraded.downcast::<TokioIo<S>>().ok()?;
        Some((parts.io.into_inner(), parts.read_buf, identity))
    }

    async fn respond(
        &self,
        mut request: Request<Incoming>,
        address: Option<SocketAddr>,
        permit: &HandshakePermit,
        upgrade: &Mutex<Option<(OnUpgrade, Identity)>>,
    ) -> Response<Full<Bytes>> {
        if let HandshakePermit::Refuse(_, why) = permit {
            return plain(StatusCode::SERVICE_UNAVAILABLE, why.clone());
        }
        // Only a listener that asks for tokens can be tried by guessing one.
        let guesser = address.filter(|_| self.policy.auth.is_some() && request.uri().path() == "/");
        if let Some(address) = guesser {
            let turn = self.throttle().wait_for_turn(address.ip(), Instant::now());
            match turn {
                Some(wait) => sleep(wait).await,
                None => {
                    let text = "too many wrong tokens came from this address; try again in some seconds";
                    return plain(StatusCode::SERVICE_UNAVAILABLE, text);
                }
            }
        }
        match self.policy.respond(&request, SystemTime::now()) {
            UpgradeResponse::Final(response) => {
                if let Some(address) = guesser.filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
                    tracing::warn!(%address, "refused a connection: its token is missing, wrong or expired");
                    self.throttle().record_failure(address.ip(), Instant::now());
                }
                response
            }
            UpgradeResponse::Upgrade(response, identity) => {
                let upgrading = (hyper::upgrade::on(&mut request), identity);
                *upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrading);
                response
            }
        }
    }

    fn throttle(&self) -> MutexGuard<'_, AuthThrottle> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first byte of the stream, without consuming it. `None` if the stream ends before.
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
