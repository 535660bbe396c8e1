//! Which HTTP requests may become a WebSocket, and how the others are answered.
//!
//! The checks, in this order, with Codex's statuses and texts: `Origin` (a browser sends it; refused), `Host` (an unknown
//! name means that a browser was misled by DNS; refused; this check is ours, and made only where no token is asked for,
//! which a page in a browser could not send), route, upgrade headers, authentication.
//! Pure: the time is an argument.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN,
    SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode, Version};

use crate::connection::Identity;
use crate::own_names::own_names;
use crate::websocket::accept_for;

use super::auth::Auth;

/// Which upgrade requests one listener accepts.
#[derive(Debug)]
pub(crate) struct UpgradePolicy {
    pub(crate) auth: Option<Auth>,
    pub(crate) hosts: AllowedHosts,
    pub(crate) paths: HttpPaths,
}

/// What is at which path of a listener. Codex's two servers differ, and so do their clients: that of the app-server asks
/// for `/rpc` on a unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpPaths {
    /// The WebSocket is at `/`, and `/readyz` answers probes.
    #[default]
    ExecServer,
    /// `/readyz` and `/healthz` answer probes, and the WebSocket is at every other path.
    AppServer,
}

impl HttpPaths {
    fn is_probe(self, path: &str) -> bool {
        path == "/readyz" || (self == Self::AppServer && path == "/healthz")
    }

    pub(crate) fn is_websocket(self, path: &str) -> bool {
        match self {
            Self::ExecServer => path == "/",
            Self::AppServer => !self.is_probe(path),
        }
    }
}

/// The `Host` headers that are served.
#[derive(Debug)]
pub(crate) enum AllowedHosts {
    /// For a unix socket, which no browser can reach by name, and for clients that have a token.
    Any,
    /// Addresses, `localhost`, and these names.
    Known(Vec<String>),
}

pub(crate) enum UpgradeResponse {
    /// After this response the stream is a WebSocket.
    Upgrade(Response<Full<Bytes>>, Identity),
    /// After this response the connection is over.
    Final(Response<Full<Bytes>>),
}

impl UpgradePolicy {
    pub(crate) fn respond<B>(&self, request: &Request<B>, now: SystemTime) -> UpgradeResponse {
        match self.accept_key(request, now) {
            Ok((key, identity)) => UpgradeResponse::Upgrade(switching(key), identity),
            Err(refusal) => UpgradeResponse::Final(refusal.response()),
        }
    }

    fn accept_key<'a, B>(
        &self,
        request: &'a Request<B>,
        now: SystemTime,
    ) -> Result<(&'a HeaderValue, Identity), FinalResponse> {
        let headers = request.headers();
        if headers.contains_key(ORIGIN) {
            return Err(FinalResponse::new(StatusCode::FORBIDDEN, ""));
        }
        self.hosts.check(headers)?;
        // A target that is a whole URL names the host once more, and counts for more than the header.
        if let Some(authority) = request.uri().authority() {
            self.hosts.check_name(authority.as_str())?;
        }
        let path = request.uri().path();
        if self.paths.is_probe(path) {
            return Err(probe_response(request.method()));
        }
        if !self.paths.is_websocket(path) {
            return Err(FinalResponse::new(StatusCode::NOT_FOUND, ""));
        }
        let key = websocket_key(request)?;
        let Some(auth) = &self.auth else { return Ok((key, Identity::default())) };
        match auth.check(headers.get(AUTHORIZATION), now) {
            Ok(identity) => Ok((key, identity)),
            Err(text) => Err(FinalResponse::new(StatusCode::UNAUTHORIZED, text)),
        }
    }
}

impl AllowedHosts {
    /// What a listener on a network serves: with a token any name will do.
    pub(crate) fn of_network(auth: Option<&Auth>, allowed: Vec<String>) -> Self {
        match auth {
            Some(_) => Self::Any,
            None => Self::Known(allowed.into_iter().chain(own_names()).collect()),
        }
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), FinalResponse> {
        let mut hosts = headers.get_all(HOST).iter();
        match (hosts.next(), hosts.next()) {
            (Some(host), None) => self.check_name(host.to_str().unwrap_or_default()),
            _ => self.check_name(""),
        }
    }

    /// `text` is a host, and a port if there is one.
    fn check_name(&self, text: &str) -> Result<(), FinalResponse> {
        let Self::Known(names) = self else { return Ok(()) };
        let is_known = |authority: &Authority| {
            let name = authority.host();
            let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
            address.parse::<IpAddr>().is_ok()
                || name.eq_ignore_ascii_case("localhost")
                || names.iter().any(|known| known.eq_ignore_ascii_case(name))
        };
        // `user@host` is not a host name, and no honest client sends it.
        if text.parse().is_ok_and(|authority| is_known(&authority)) && !text.contains('@') {
            return Ok(());
        }
        tracing::warn!(
            host = text,
            "refused a connection by a name that may be a browser's trap; if it is yours, use --allow-host {text}"
        );
        let text = format!(
            "host `{text}` is not served here: connect by IP address or as `localhost`, \
             or name the host in allow_hosts (--allow-host) of the server"
        );
        Err(FinalResponse::new(StatusCode::FORBIDDEN, text))
    }
}

pub(crate) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let text = text.into();
    let is_empty = text.is_empty();
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    // One exchange per connection: an idle keep-alive would hold a slot.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    if !is_empty {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    response
}

/// A response that is not an upgrade: a refusal, or the 200 that a probe gets.
struct FinalResponse {
    status: StatusCode,
    text: Cow<'static, str>,
    allow: Option<HeaderValue>,
}

impl FinalResponse {
    fn new(status: StatusCode, text: impl Into<Cow<'static, str>>) -> Self {
        Self { status, text: text.into(), allow: None }
    }

    fn response(self) -> Response<Full<Bytes>> {
        let length = self.text.len();
        let mut response = match self.text {
            Cow::Borrowed(text) => plain(self.status, text),
            Cow::Owned(text) => plain(self.status, text),
        };
        // Set here because the response to a HEAD has no body to derive it from.
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        if let Some(allow) = self.allow {
            response.headers_mut().insert(ALLOW, allow);
        }
        response
    }
}

fn probe_response(method: &Method) -> FinalResponse {
    if matches!(*method, Method::GET | Method::HEAD) {
        return FinalResponse::new(StatusCode::OK, "");
    }
    let allow = Some(HeaderValue::from_static("GET,HEAD"));
    FinalResponse { allow, ..FinalResponse::new(StatusCode::METHOD_NOT_ALLOWED, "") }
}

fn websocket_key<B>(request: &Request<B>) -> Result<&HeaderValue, FinalResponse> {
    let headers = request.headers();
    let bad = |text: &'static str| Err(FinalResponse::new(StatusCode::BAD_REQUEST, text));
    if request.method() != Method::GET {
        return Err(FinalResponse::new(StatusCode::METHOD_NOT_ALLOWED, "Request method must be `GET`"));
    }
    if !lists(headers, &CONNECTION, "upgrade") {
        return bad("Connection header did not include 'upgrade'");
    }
    if !lists(headers, &UPGRADE, "websocket") {
        return bad("`Upgrade` header did not include 'websocket'");
    }
    if !lists(headers, &SEC_WEBSOCKET_VERSION, "13") {
        return bad("`Sec-WebSocket-Version` header did not include '13'");
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY) else {
        return bad("`Sec-WebSocket-Key` header missing");
    };
    if request.version() != Version::HTTP_11 {
        let text = "WebSocket request couldn't be upgraded since no upgrade state was present";
        return Err(FinalResponse::new(StatusCode::UPGRADE_REQUIRED, text));
    }
    Ok(key)
}

/// Whether a comma-separated header names `wanted`, in any case.
fn lists(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|item| item.trim().eq_ignore_ascii_case(wanted))
}

fn switching(key: &HeaderValue) -> Response<Full<Bytes>> {
    let mut response = plain(StatusCode::SWITCHING_PROTOCOLS, "");
    let accept = HeaderValue::try_from(accept_for(key.as_bytes())).expect("base64 is a legal header value");
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    response
}
