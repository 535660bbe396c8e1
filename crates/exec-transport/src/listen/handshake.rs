//! Turns an accepted stream into a connection: TLS, or the check of the user; finds the protocol, serves one HTTP exchange.
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
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::connection::{Connection, Identity};
use crate::limits::{EXCHANGE_TIMEOUT, HEADER_BYTES, Limits};
use crate::peer::Peer;
use crate::stream::send_queue::Framing;
use crate::stream::write_half::WriteHalf;
use crate::stream::{self, HeldResource};
use crate::websocket::Role;

use super::budget::{ConnectionPermit, ConnectionRoom};
use super::http::{UpgradePolicy, UpgradeResponse, plain};
use super::peer_check::PeerCheck;
use super::throttle::AuthThrottle;

/// Turns accepted streams into connections; shared by all handshakes of a listener.
pub(super) struct Acceptor {
    pub(super) policy: UpgradePolicy,
    /// For a `wss://` listener.
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) room: ConnectionRoom,
    pub(super) peer_check: Option<PeerCheck>,
    pub(super) header_timeout: Duration,
    pub(super) limits: Limits,
    /// Held for a moment, never while anybody waits.
    pub(super) throttle: Mutex<AuthThrottle>,
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// By what right the handshake on a unix socket goes on.
#[derive(Debug)]
pub(super) enum UnixAdmission {
    /// It counts as a connection.
    Connection(ConnectionPermit),
    /// There is no room for one more connection; the client is told why.
    Refusal(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit, String),
}

/// What came of an HTTP exchange that upgraded.
struct Upgraded<S> {
    stream: S,
    /// What was read beyond the request.
    already_read: Bytes,
    identity: Identity,
    permit: ConnectionPermit,
}

/// The permit of the connection that an exchange may become.
enum UpgradePermit {
    Held(ConnectionPermit),
    /// Taken when the request may enter, so that those who may not take nobody's.
    AtUpgrade,
    /// There is none for it, and every request is told why.
    Refused(StatusCode, String),
}

impl Acceptor {
    /// Makes the handshake on a TCP stream; `None` if no connection came of it.
    pub(super) async fn accept_tcp(&self, stream: std::net::TcpStream, address: SocketAddr) -> Option<Connection> {
        let stream = TcpStream::from_std(stream).ok()?;
        if let Err(error) = stream::set_low_latency(&stream) {
            tracing::debug!("{address}: its socket stays as it is: {error}");
        }
        // Encrypted or not, the head must be complete by then.
        let deadline = Instant::now() + self.header_timeout;
        let peer = Peer::WebSocket(address);
        let permit = match self.check_peer(&stream, address).await {
            Ok(()) => UpgradePermit::AtUpgrade,
            Err(why) => {
                tracing::warn!(%address, "refused a connection: {why}");
                UpgradePermit::Refused(StatusCode::FORBIDDEN, why)
            }
        };
        let Some(tls) = &self.tls else {
            let upgraded = self.serve_http(stream, Some(address), deadline, permit).await?;
            return Some(self.websocket(upgraded, TcpStream::into_split, peer));
        };
        let stream = match timeout_at(deadline, tls.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!("{address}: no TLS came about: {error}");
                return None;
            }
            Err(_) => {
                tracing::debug!("{address}: TLS took too long");
                return None;
            }
        };
        let upgraded = self.serve_http(stream, Some(address), deadline, permit).await?;
        // TLS keeps one state for both directions, so the halves share a lock, which tokio's split holds for one poll.
        Some(self.websocket(upgraded, tokio::io::split, peer))
    }

    async fn check_peer(&self, stream: &TcpStream, address: SocketAddr) -> Result<(), String> {
        match (&self.peer_check, stream.local_addr()) {
            (Some(check), Ok(own)) => check.check(address, own).await,
            // Without an address the stream has ended already.
            (_, _) => Ok(()),
        }
    }

    fn websocket<S, R, W>(&self, upgraded: Upgraded<S>, split: impl FnOnce(S) -> (R, W), peer: Peer) -> Connection
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: WriteHalf + 'static,
    {
        let Upgraded { stream, already_read, identity, permit } = upgraded;
        let (read, write) = split(stream);
        let framing = (Framing::WebSocket(Role::Server), already_read);
        let connection = stream::open(read, write, framing, &self.limits, HeldResource::Permit(permit), peer);
        Connection { identity, ..connection }
    }

    /// Only our own user may connect, and root, who could do anything anyhow. The first byte tells the protocol. There is
    /// no time limit for it, because a human with `socat` may be slow, and the user who makes us wait may do all that we
    /// may.
    pub(super) async fn accept_unix(
        &self,
        stream: std::os::unix::net::UnixStream,
        path: PathBuf,
        admission: UnixAdmission,
    ) -> Option<Connection> {
        let stream = UnixStream::from_std(stream).ok()?;
        let credentials = stream.peer_cred().ok()?;
        let ours = rustix::process::geteuid().as_raw();
        if credentials.uid() != ours && credentials.uid() != 0 {
            tracing::warn!("{}: refused a connection of user {}", path.display(), credentials.uid());
            return None;
        }
        let peer = Peer::Unix { path, pid: credentials.pid(), uid: credentials.uid() };
        let first = match &admission {
            UnixAdmission::Connection(_) => peek_byte(&stream).await?,
            UnixAdmission::Refusal(..) => timeout(self.header_timeout, peek_byte(&stream)).await.ok()??,
        };
        if first == b'G' {
            let deadline = Instant::now() + self.header_timeout;
            let permit = match admission {
                UnixAdmission::Connection(permit) => UpgradePermit::Held(permit),
                UnixAdmission::Refusal(_, why) => UpgradePermit::Refused(StatusCode::SERVICE_UNAVAILABLE, why),
            };
            let upgraded = self.serve_http(stream, None, deadline, permit).await?;
            return Some(self.websocket(upgraded, UnixStream::into_split, peer));
        }
        let UnixAdmission::Connection(permit) = admission else { return None };
        let (read, write) = stream.into_split();
        let lines = (Framing::Lines, Bytes::new());
        Some(stream::open(read, write, lines, &self.limits, HeldResource::Permit(permit), peer))
    }

    /// Serves one HTTP exchange; `None` if it did not upgrade.
    async fn serve_http<S>(
        &self,
        stream: S,
        address: Option<SocketAddr>,
        deadline: Instant,
        permit: UpgradePermit,
    ) -> Option<Upgraded<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let permit = Mutex::new(permit);
        let upgrade = Mutex::new(None);
        let service = hyper::service::service_fn(|request| async {
            Ok::<_, Infallible>(self.respond(request, address, &permit, &upgrade).await)
        });
        let exchange = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(deadline.saturating_duration_since(Instant::now()))
            .max_buf_size(HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        match timeout_at(deadline + EXCHANGE_TIMEOUT, exchange).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("a request failed: {error}"),
            Err(_) => tracing::debug!("a request took too long"),
        }
        let PendingUpgrade { upgrade, identity, permit } = unlocked(upgrade)?;
        let upgraded = upgrade.await.ok()?;
        let parts = upgraded.downcast::<TokioIo<S>>().ok()?;
        Some(Upgraded { stream: parts.io.into_inner(), already_read: parts.read_buf, identity, permit })
    }

    /// A permit for the connection that a request may become, or why there is none.
    fn take_permit(&self, permit: &Mutex<UpgradePermit>) -> Result<ConnectionPermit, String> {
        let why = "this exchange has become a connection already".to_owned();
        match std::mem::replace(&mut *locked(permit), UpgradePermit::Refused(StatusCode::SERVICE_UNAVAILABLE, why)) {
            UpgradePermit::Held(permit) => Ok(permit),
            UpgradePermit::AtUpgrade => self.room.take(),
            UpgradePermit::Refused(_, why) => Err(why),
        }
    }

    async fn respond(
        &self,
        mut request: Request<Incoming>,
        address: Option<SocketAddr>,
        permit: &Mutex<UpgradePermit>,
        upgrade: &Mutex<Option<PendingUpgrade>>,
    ) -> Response<Full<Bytes>> {
        if let UpgradePermit::Refused(status, why) = &*locked(permit) {
            return plain(*status, why.clone());
        }
        // Only a listener that asks for tokens can be tried by guessing one.
        let asks_for_token = self.policy.auth.is_some() && self.policy.paths.is_websocket(request.uri().path());
        let guesser = address.filter(|_| asks_for_token);
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
                let permit = match self.take_permit(permit) {
                    Ok(permit) => permit,
                    Err(why) => return plain(StatusCode::SERVICE_UNAVAILABLE, why),
                };
                let upgrading = PendingUpgrade { upgrade: hyper::upgrade::on(&mut request), identity, permit };
                *locked(upgrade) = Some(upgrading);
                response
            }
        }
    }

    fn throttle(&self) -> MutexGuard<'_, AuthThrottle> {
        locked(&self.throttle)
    }
}

/// An exchange whose response promises an upgrade.
struct PendingUpgrade {
    upgrade: OnUpgrade,
    identity: Identity,
    permit: ConnectionPermit,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unlocked<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
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
