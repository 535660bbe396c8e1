//! HTTP as proxies speak it: requests with a whole address, and CONNECT for a tunnel. Bodies are passed on piece by piece in
//! both directions; nothing is held but what is on its way.
//!
//! What is refused is answered as Codex's proxy answers it, byte for byte.

mod answers;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exec_core::network::{DecisionSource, DenialReason, Host, NetworkMode, NetworkProtocol};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::dial::DialledPort;
use super::judgement::{Asked, Destination, Judge, Route};
use super::upstream;

/// Longest head of a request or a response, in bytes.
const HEAD_BYTES: usize = 96 << 10;
/// How long a head may take, and a connection may be idle between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

type Body = Either<Full<Bytes>, Incoming>;

/// One connection of the process to its proxy.
struct ProxyConnection {
    judge: Arc<Judge>,
    client: SocketAddr,
    /// What becomes of the connection when the response to a CONNECT was sent.
    tunnel: Mutex<Option<Tunnel>>,
    /// The connections to the world that requests were passed on to. Requests come one after the other, so that at most
    /// the last one has something to do.
    upstream: Mutex<JoinSet<()>>,
}

/// A tunnel that was allowed.
struct Tunnel {
    upgrade: OnUpgrade,
    target: Target,
    destination: Destination,
}

/// Serves one connection until it ends.
pub(super) async fn serve(judge: Arc<Judge>, stream: TcpStream, client: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let (tunnel, upstream) = (Mutex::default(), Mutex::new(JoinSet::new()));
    let connection = Arc::new(ProxyConnection { judge, client, tunnel, upstream });
    let service = service_fn(|request| {
        let connection = connection.clone();
        async move { Ok::<_, std::convert::Infallible>(connection.answer(request).await) }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.preserve_header_case(true).max_buf_size(HEAD_BYTES).half_close(true);
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    // An error is the process's own: it has sent something that is no HTTP, or is gone.
    let _ = server.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    let tunnel = connection.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(tunnel) = tunnel {
        connection.run_tunnel(tunnel).await;
    }
    let mut upstream = std::mem::take(&mut *connection.upstream.lock().unwrap_or_else(PoisonError::into_inner));
    upstream.shutdown().await;
}

impl ProxyConnection {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        match request.method() {
            &Method::CONNECT => self.connect(request).await,
            _ => self.pass_on(request).await,
        }
    }

    async fn connect(&self, request: Request<Incoming>) -> Response<Body> {
        let Some(target) = Target::of_uri(request.uri()) else {
            return answers::text(StatusCode::BAD_REQUEST, "missing authority");
        };
        let asked = self.asked(&target, NetworkProtocol::HttpsConnect, "CONNECT");
        let destination = match self.judge.judge(&asked).await {
            Ok(destination) => destination,
            Err(refusal) => return answers::refused_tunnel(&refusal),
        };
        if self.judge.mode() == NetworkMode::Limited {
            let refusal = self.judge.refuse(&asked, DecisionSource::Mode, DenialReason::TunnelInLimitedMode);
            return answers::refused_tunnel(&refusal);
        }
        let tunnel = Tunnel { upgrade: hyper::upgrade::on(request), target, destination };
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
        Response::new(answers::empty())
    }

    /// Until both sides have said all, or one of them breaks.
    async fn run_tunnel(&self, tunnel: Tunnel) {
        let Ok(upgraded) = tunnel.upgrade.await else { return };
        let mut inner = TokioIo::new(upgraded);
        let asked = self.asked(&tunnel.target, NetworkProtocol::HttpsConnect, "CONNECT");
        match self.judge.route(&asked, tunnel.destination).await {
            Route::Straight(destination) => {
                let Ok(mut dialled) = self.judge.dial(&destination).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut inner, &mut dialled.stream).await;
            }
            Route::Through(proxy) => {
                let target = tunnel.target.with_port();
                let Some(mut outer) = upstream::tunnel(&self.judge, proxy, &target).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut inner, &mut outer.stream).await;
                drop(outer.port);
            }
        }
    }

    async fn pass_on(&self, request: Request<Incoming>) -> Response<Body> {
        let method = request.method().as_str().to_owned();
        if let Some(refused) = self.refuse_unix_socket(&request, &method) {
            return refused;
        }
        let hosts: Vec<&HeaderValue> = request.headers().get_all(header::HOST).iter().collect();
        let target = match Target::of_uri(request.uri()) {
            Some(target) => Some(target),
            None => hosts.first().and_then(|host| Target::of_host_header(host)),
        };
        let Some(target) = target.filter(|_| request.uri().authority().is_none_or(Target::reads)) else {
            return answers::text(StatusCode::BAD_REQUEST, "missing host");
        };
        match hosts[..] {
            [] => {}
            [host] => match Target::of_host_header(host) {
                Some(named) if target.is_same(&named) => {}
                _ => return answers::text(StatusCode::BAD_REQUEST, "Host header does not match request target"),
            },
            _ => return answers::text(StatusCode::BAD_REQUEST, "multiple Host headers"),
        }
        let asked = self.asked(&target, NetworkProtocol::Http, &method);
        let destination = match self.judge.judge(&asked).await {
            Ok(destination) => destination,
            Err(refusal) => return answers::refused_request(&asked, &refusal),
        };
        if !self.judge.mode().allows_method(&method) {
            let refusal = self.judge.refuse(&asked, DecisionSource::Mode, DenialReason::MethodNotAllowed);
            return answers::refused_request(&asked, &refusal);
        }
        let route = self.judge.route(&asked, destination).await;
        match self.send(request, &target, route).await {
            Some(mut response) => {
                remove_hop_by_hop(response.headers_mut());
                response.map(Either::Right)
            }
            None => answers::text(StatusCode::BAD_GATEWAY, "upstream failure"),
        }
    }

    /// Codex's proxy reaches unix sockets on another system only.
    fn refuse_unix_socket(&self, request: &Request<Incoming>, method: &str) -> Option<Response<Body>> {
        let value = request.headers().get("x-unix-socket")?;
        if value.to_str().is_err() {
            return Some(answers::text(StatusCode::BAD_REQUEST, "invalid x-unix-socket header"));
        }
        let target = Target { host: Host::parse("unix-socket")?, port: Some(0), default_port: 0, is_tls: false };
        let asked = self.asked(&target, NetworkProtocol::Http, method);
        if !self.judge.mode().allows_method(method) {
            let refusal = self.judge.refuse(&asked, DecisionSource::Mode, DenialReason::MethodNotAllowed);
            return Some(answers::refused_unix_socket(&refusal));
        }
        let _ = self.judge.refuse(&asked, DecisionSource::Proxy, DenialReason::UnixSocket);
        Some(answers::text(StatusCode::NOT_IMPLEMENTED, "unix sockets unsupported"))
    }

    /// `None` if the other side cannot be reached, or does not answer in HTTP. We speak no TLS for a process: it asks for
    /// a tunnel and speaks it itself.
    async fn send(
        &self,
        mut request: Request<Incoming>,
        target: &Target,
        route: Route<'_>,
    ) -> Option<Response<Incoming>> {
        if target.is_tls {
            return None;
        }
        let (dialled, proxy) = match route {
            Route::Straight(destination) => (self.judge.dial(&destination).await.ok()?, None),
            Route::Through(proxy) => (self.judge.dial_upstream(proxy).await.ok()?, Some(proxy)),
        };
        let mut client = hyper::client::conn::http1::Builder::new();
        client.preserve_header_case(true).max_buf_size(HEAD_BYTES);
        let (mut sender, connection) = client.handshake(TokioIo::new(dialled.stream)).await.ok()?;
        self.run_upstream(connection, dialled.port);
        remove_hop_by_hop(request.headers_mut());
        if !request.headers().contains_key(header::HOST) {
            request.headers_mut().insert(header::HOST, HeaderValue::from_str(&target.as_host_header()).ok()?);
        }
        *request.version_mut() = Version::HTTP_11;
        let path = match (request.uri().path_and_query(), request.method()) {
            (Some(path), &Method::OPTIONS) if request.uri().authority().is_none() => Cow::from(path.as_str()),
            // `http://a.test?q` has a query and no path.
            (Some(path), _) if path.as_str().starts_with('?') => Cow::from(format!("/{}", path.as_str())),
            (Some(path), _) if !path.as_str().is_empty() => Cow::from(path.as_str()),
            _ => Cow::from("/"),
        };
        *request.uri_mut() = match proxy {
            None => path.parse().ok()?,
            // A proxy is told all of it.
            Some(_) => {
                let path = if path.starts_with('/') { &path } else { "" };
                format!("http://{}{path}", target.as_host_header()).parse().ok()?
            }
        };
        if let Some(authorization) = proxy.and_then(upstream::authorization) {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, authorization);
        }
        sender.send_request(request).await.ok()
    }

    fn run_upstream<C: Future + Send + 'static>(&self, connection: C, port: DialledPort)
    where
        C::Output: Send,
    {
        let mut upstream = self.upstream.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have ended.
        while upstream.try_join_next().is_some() {}
        upstream.spawn(async move {
            let _ = connection.await;
            drop(port);
        });
    }

    fn asked<'a>(&self, target: &'a Target, protocol: NetworkProtocol, method: &'a str) -> Asked<'a> {
        Asked { protocol, host: &target.host, port: target.port(), method: Some(method), client: self.client }
    }
}

/// Where a request wants to go.
struct Target {
    host: Host,
    port: Option<u16>,
    default_port: u16,
    is_tls: bool,
}

impl Target {
    /// `None` if the address is not in it, or has a host that is none.
    fn of_uri(uri: &Uri) -> Option<Self> {
        let authority = uri.authority()?;
        let is_tls = uri.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
        let default_port = if is_tls { 443 } else { 80 };
        Some(Self { host: Host::parse(authority.host())?, port: authority.port_u16(), default_port, is_tls })
    }

    fn of_host_header(value: &HeaderValue) -> Option<Self> {
        let authority: hyper::http::uri::Authority = value.to_str().ok()?.parse().ok()?;
        // A user before the host is no part of this header.
        let host = Host::parse(authority.host()).filter(|_| !authority.as_str().contains('@'))?;
        Some(Self { host, port: authority.port_u16(), default_port: 80, is_tls: false })
    }

    fn reads(authority: &hyper::http::uri::Authority) -> bool {
        Host::parse(authority.host()).is_some()
    }

    fn port(&self) -> u16 {
        self.port.unwrap_or(self.default_port)
    }

    /// Whether a `Host` header says the same.
    fn is_same(&self, named: &Self) -> bool {
        self.host == named.host && self.port() == named.port.unwrap_or(self.default_port)
    }

    fn as_host_header(&self) -> String {
        match self.port {
            Some(_) => self.with_port(),
            None => self.bracketed(),
        }
    }

    fn with_port(&self) -> String {
        format!("{}:{}", self.bracketed(), self.port())
    }

    fn bracketed(&self) -> String {
        let host = self.host.as_str();
        if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
    }
}

/// Headers that are about one connection, and those that a message itself says are. The others keep their order.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    const ALWAYS: [HeaderName; 8] = [
        header::CONNECTION,
        HeaderName::from_static("keep-alive"),
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        HeaderName::from_static("proxy-connection"),
        header::TE,
        header::TRAILER,
        header::UPGRADE,
    ];
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // How long a body is, and for whom, is not for a connection to say.
        .filter(|name| ![header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING].contains(name))
        .collect();
    // To take one out of the map would put the last in its place.
    let all = std::mem::take(headers);
    let mut last = None;
    for (name, value) in all {
        last = name.or(last);
        let Some(name) = last.as_ref().filter(|name| !ALWAYS.contains(name) && !named.contains(name)) else { continue };
        headers.append(name, value);
    }
}
