//! The preview: an HTTP/1.1 server on our loopback, in which `/preview/PORT/…` is whatever serves HTTP at that port of the
//! environment's loopback. Bodies are streamed, and upgrades (WebSocket) pass through.
//!
//! It asks nobody for a token, so it serves only what comes from a page of the loopback: the `Host` must be a name of the
//! loopback (or a page of the web could reach it under a name of its own: DNS rebinding), and so must be the `Origin`. A
//! request that a browser calls `cross-site` is served only if it opens a page.
//!
//! All ports share one origin: a page of one may read the others. Whoever does not trust a page forwards its port alone.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use exec_env::streams::StreamAddress;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, ORIGIN, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Ends;
use super::stream_io::StreamIo;

/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections to the preview at a time. One more waits to be accepted.
const CONNECTIONS: usize = 256;

/// Between two tries to accept while there is no descriptor for one more.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

type Body = BoxBody<Bytes, hyper::Error>;

pub(super) struct Preview {
    listener: TcpListener,
    address: SocketAddr,
    ends: Arc<Ends>,
}

impl Preview {
    pub(super) async fn bind(address: SocketAddr, ends: Arc<Ends>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await;
        let listener =
            listener.with_context(|| format!("cannot listen at {address}: choose another port, or 0 for any"))?;
        let address = listener.local_addr().context("a socket has no address")?;
        Ok(Self { listener, address, ends })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) async fn serve(self) -> anyhow::Result<()> {
        let mut connections = JoinSet::new();
        loop {
            let has_room = connections.len() < CONNECTIONS;
            let accepted = tokio::select! {
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                accepted = self.listener.accept(), if has_room => accepted,
            };
            match accepted {
                Ok((socket, _)) => drop(connections.spawn(serve_connection(socket, Arc::clone(&self.ends)))),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }
}

async fn serve_connection(socket: TcpStream, ends: Arc<Ends>) {
    let _ = socket.set_nodelay(true);
    // Streams that were upgraded end with the connection that they came in on.
    let upgraded = Arc::new(std::sync::Mutex::new(JoinSet::new()));
    let tunnels = Arc::clone(&upgraded);
    let service = service_fn(move |request| {
        let (ends, tunnels) = (Arc::clone(&ends), Arc::clone(&tunnels));
        async move { Ok::<_, Infallible>(answer(request, &ends, &tunnels).await) }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).half_close(true);
    // A browser that is gone is no fault of ours.
    let _ = server.serve_connection(TokioIo::new(socket), service).with_upgrades().await;
    let mut tunnels = std::mem::take(&mut *upgraded.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    while tunnels.join_next().await.is_some() {}
}

type Tunnels = std::sync::Mutex<JoinSet<()>>;

async fn answer(request: Request<Incoming>, ends: &Arc<Ends>, tunnels: &Tunnels) -> Response<Body> {
    if let Err((status, why)) = admit(request.headers()) {
        return text(status, why);
    }
    let Some((port, path)) = preview_path(request.uri()) else {
        return text(StatusCode::NOT_FOUND, "write /preview/PORT/, with a port on which something serves HTTP there\n");
    };
    // Relative links of a page need the slash.
    let Some(path) = path else {
        let mut response = text(StatusCode::PERMANENT_REDIRECT, "");
        let location = HeaderValue::from_str(&format!("/preview/{port}/"));
        response.headers_mut().extend(location.ok().map(|location| (LOCATION, location)));
        return response;
    };
    match pass_on(request, port, path, ends, tunnels).await {
        Ok(response) => response,
        Err(why) => text(StatusCode::BAD_GATEWAY, &format!("{why}\n")),
    }
}

/// Whether a request may be served at all.
fn admit(headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) {
        (Some(host), None) if is_loopback_name(host) => {}
        _ => return Err((StatusCode::MISDIRECTED_REQUEST, "this server is reached as localhost or 127.0.0.1 only\n")),
    }
    for origin in headers.get_all(ORIGIN) {
        let host = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
        if !host.is_some_and(is_loopback_name) {
            return Err((StatusCode::FORBIDDEN, "pages of other origins may not use this server\n"));
        }
    }
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if header("sec-fetch-site") == Some("cross-site") && header("sec-fetch-mode") != Some("navigate") {
        return Err((StatusCode::FORBIDDEN, "pages of other sites may not use this server\n"));
    }
    Ok(())
}

/// Whether a `Host`, with or without a port, means this machine and nothing else.
fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(bracketed) => match bracketed.split_once(']') {
            Some((address, port)) if port.is_empty() || is_port(port) => {
                return address.parse::<std::net::Ipv6Addr>().is_ok_and(|address| address.is_loopback());
            }
            _ => return false,
        },
        None => match host.find(':') {
            Some(colon) if is_port(&host[colon..]) => &host[..colon],
            Some(_) => return false,
            None => host,
        },
    };
    let name = name.to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// `:8000`
fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|digits| digits.parse::<u16>().is_ok() && !digits.starts_with('+'))
}

/// The port, and the path there; `None` for a path that wants a slash.
fn preview_path(uri: &Uri) -> Option<(u16, Option<String>)> {
    let rest = uri.path().strip_prefix("/preview/")?;
    let (port, path) = rest.split_once('/').map_or((rest, None), |(port, path)| (port, Some(path)));
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port| digits && *port != 0)?;
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    Some((port, path.map(|path| format!("/{path}{query}"))))
}

async fn pass_on(
    mut request: Request<Incoming>,
    port: u16,
    path: String,
    ends: &Arc<Ends>,
    tunnels: &Tunnels,
) -> Result<Response<Body>, String> {
    let to = StreamAddress::Tcp { host: "localhost".to_owned(), port };
    let stream = ends.there().connect(to).await.map_err(|error| error.to_string())?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(StreamIo::new(stream))).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let upgrade = upgrade_of(request.headers());
    let from = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    let (mut head, body) = request.into_parts();
    head.uri = path.parse().map_err(|_| "the path cannot be passed on".to_owned())?;
    prepare_request(&mut head.headers, port, upgrade.as_ref());
    let request = Request::from_parts(head, body);
    // It carries the body of the answer, or what was upgraded; then it ends by itself.
    let connection = async move { drop(connection.with_upgrades().await) };
    spawn(tunnels, connection);
    let mut response = sender.send_request(request).await.map_err(|error| format!("port {port} there: {error}"))?;
    let switched = match (response.status(), from) {
        (StatusCode::SWITCHING_PROTOCOLS, Some(from)) => Some((from, hyper::upgrade::on(&mut response))),
        (StatusCode::SWITCHING_PROTOCOLS, None) => return Err(format!("port {port} there switched protocols unasked")),
        _ => None,
    };
    let upgrade = switched.as_ref().and_then(|_| upgrade_of(response.headers()).or(upgrade));
    prepare_response(response.headers_mut(), port, upgrade.as_ref());
    if let Some((from, to)) = switched {
        let tunnel = async move {
            let (Ok(from), Ok(to)) = (from.await, to.await) else { return };
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(from), &mut TokioIo::new(to)).await;
        };
        spawn(tunnels, tunnel);
    }
    Ok(response.map(|body| body.boxed()))
}

/// Those that have ended are let go of: a browser may ask for very much on one connection.
fn spawn(tunnels: &Tunnels, task: impl Future<Output = ()> + Send + 'static) {
    let mut tunnels = tunnels.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    while tunnels.try_join_next().is_some() {}
    tunnels.spawn(task);
}

/// The protocol that a message wants to switch to.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    connection_words(headers).any(|word| word.eq_ignore_ascii_case("upgrade")).then(|| headers.get(UPGRADE).cloned())?
}

fn connection_words(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Removes what is about one connection and not about the message, and what `Connection` names.
fn remove_hop_by_hop(headers: &mut HeaderMap, upgrade: Option<&HeaderValue>) {
    let named: Vec<HeaderName> = connection_words(headers).filter_map(|word| word.parse().ok()).collect();
    let known = [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
    let others = ["keep-alive", "proxy-connection"].map(HeaderName::from_static);
    for name in known.into_iter().chain(others).chain(named) {
        headers.remove(name);
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
}

fn prepare_request(headers: &mut HeaderMap, port: u16, upgrade: Option<&HeaderValue>) {
    remove_hop_by_hop(headers, upgrade);
    let own = |text: String| HeaderValue::from_str(&text).expect("digits and letters");
    if let Some(host) = headers.insert(HOST, own(format!("localhost:{port}"))) {
        headers.insert("x-forwarded-host", host);
    }
    headers.insert("x-forwarded-proto", HeaderValue::from_static("http"));
    headers.insert("x-forwarded-prefix", own(format!("/preview/{port}")));
    // A program that compares the two must find them the same.
    if headers.remove(ORIGIN).is_some() {
        headers.insert(ORIGIN, own(format!("http://localhost:{port}")));
    }
}

fn prepare_response(headers: &mut HeaderMap, port: u16, upgrade: Option<&HeaderValue>) {
    remove_hop_by_hop(headers, upgrade);
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    if let Some(location) = location.and_then(|location| rewrite_location(location, port))
        && let Ok(location) = HeaderValue::from_str(&location)
    {
        headers.insert(LOCATION, location);
    }
    let cookies: Vec<HeaderValue> =
        headers.get_all(SET_COOKIE).iter().map(|cookie| rewrite_cookie(cookie, port)).collect();
    headers.remove(SET_COOKIE);
    for cookie in cookies {
        headers.append(SET_COOKIE, cookie);
    }
}

/// A redirection to the same server, as it is called here; `None` if it leads elsewhere, or is relative.
fn rewrite_location(location: &str, port: u16) -> Option<String> {
    let path = match location.split_once("://") {
        Some((_, rest)) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let own = format!(":{port}");
            let is_same =
                is_loopback_name(authority) && (authority.ends_with(&own) || (port == 80 && !authority.contains(':')));
            is_same.then_some(path)?
        }
        // `//host/` is another server.
        None if location.starts_with("//") => return None,
        None => location.strip_prefix('/').map(|_| location)?,
    };
    let slash = if path.starts_with('/') { "" } else { "/" };
    Some(format!("/preview/{port}{slash}{path}"))
}

/// A cookie for a path there is one for that path here.
fn rewrite_cookie(cookie: &HeaderValue, port: u16) -> HeaderValue {
    let Ok(text) = cookie.to_str() else { return cookie.clone() };
    let parts = text.split(';').map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.trim().eq_ignore_ascii_case("path") && value.trim().starts_with('/') {
            true => format!(" Path=/preview/{port}{}", value.trim()),
            false => part.to_owned(),
        }
    });
    HeaderValue::from_str(&parts.collect::<Vec<_>>().join(";")).unwrap_or_else(|_| cookie.clone())
}

fn text(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never: Infallible| match never {});
    let mut response = Response::new(body.boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_loopback_are_served() {
        for host in ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "127.8.9.1", "[::1]:80", "app.localhost:80"] {
            assert!(is_loopback_name(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]",
            "[::1",
            "[::1]x",
            "localhost:x",
            "localhost:80:80",
            "localhost@evil.example",
            "0.0.0.0",
            "127.1",
            "xlocalhost",
            "localhost:+80",
        ] {
            assert!(!is_loopback_name(host), "{host}");
        }
    }

    #[test]
    fn requests_of_other_pages_are_refused() {
        let admitted = |headers: &[(&'static str, &'static str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, HeaderValue::from_static(value));
            }
            admit(&map).map_err(|(status, _)| status.as_u16())
        };
        let host = ("host", "127.0.0.1:8000");
        assert_eq!(admitted(&[host]), Ok(()));
        assert_eq!(admitted(&[host, ("origin", "http://127.0.0.1:8000")]), Ok(()));
        assert_eq!(admitted(&[]), Err(421));
        assert_eq!(admitted(&[host, ("host", "localhost")]), Err(421));
        assert_eq!(admitted(&[("host", "rebound.example:8000")]), Err(421));
        assert_eq!(admitted(&[host, ("origin", "https://evil.example")]), Err(403));
        assert_eq!(admitted(&[host, ("origin", "null")]), Err(403));
        assert_eq!(admitted(&[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]), Err(403));
        assert_eq!(admitted(&[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]), Ok(()));
    }

    #[test]
    fn a_path_names_its_port() {
        let path = |text: &str| preview_path(&text.parse().expect("a path"));
        assert_eq!(path("/preview/3000/a/b?c=d"), Some((3000, Some("/a/b?c=d".to_owned()))));
        assert_eq!(path("/preview/3000/"), Some((3000, Some("/".to_owned()))));
        assert_eq!(path("/preview/3000"), Some((3000, None)));
        for text in ["/", "/preview/", "/preview/x/", "/preview/0/", "/preview/70000/", "/preview/+80/", "/3000/"] {
            assert_eq!(path(text), None, "{text}");
        }
    }

    #[test]
    fn redirections_and_cookies_stay_within_the_preview() {
        let to = |location: &str| rewrite_location(location, 3000);
        assert_eq!(to("/login?a=b").as_deref(), Some("/preview/3000/login?a=b"));
        assert_eq!(to("http://localhost:3000/x").as_deref(), Some("/preview/3000/x"));
        assert_eq!(to("http://127.0.0.1:3000").as_deref(), Some("/preview/3000/"));
        assert_eq!(to("http://localhost:3000?q").as_deref(), Some("/preview/3000/?q"));
        for elsewhere in ["relative", "//evil.example/", "https://example.com/", "http://localhost:4000/"] {
            assert_eq!(to(elsewhere), None, "{elsewhere}");
        }
        let cookie = rewrite_cookie(&HeaderValue::from_static("a=b; Path=/; HttpOnly"), 3000);
        assert_eq!(cookie, "a=b; Path=/preview/3000/; HttpOnly");
    }

    #[test]
    fn what_is_about_one_connection_is_not_passed_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("connection", "keep-alive, x-secret"), ("x-secret", "1"), ("te", "trailers"), ("accept", "*/*")]
        {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        remove_hop_by_hop(&mut headers, None);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
