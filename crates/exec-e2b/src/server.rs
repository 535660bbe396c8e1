//! The two listeners: envd (the calls to sandboxes) and the control API.
//!
//! A browser on this machine reaches listeners on the loopback, too. So a request must call us by an address or by a name that we
//! know, which a page that rebinds its own name cannot; and one with an `Origin` is refused, whatever it is. Slow headers, slow
//! bodies and many connections are bounded.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use exec_http_body::{RequestBody, UnreadBody};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, ORIGIN};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::error::{Code, ServiceError};
use crate::limits::{ACCEPT_PAUSE, CONNECTIONS, HEADER_TIMEOUT, STREAM_END_TIMEOUT};
use crate::response::{self, HttpResponse};
use crate::sandboxes::E2bServer;
use crate::{api, envd};

/// By which names clients may call us.
#[derive(Debug, Clone, Default)]
pub struct ListenOptions {
    /// Names of this host beside `localhost` and addresses.
    pub allow_hosts: Vec<String>,
    /// The domain below which sandboxes have names: `49983-ID.DOMAIN`, `api.DOMAIN`.
    pub domain: Option<String>,
}

/// What a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Envd,
    Api,
}

/// A listener that is bound.
pub struct Listener {
    socket: TcpListener,
    service: Service,
    server: Arc<E2bServer>,
    options: Arc<ListenOptions>,
}

impl Listener {
    /// For the calls to sandboxes.
    pub async fn envd(server: Arc<E2bServer>, address: SocketAddr, options: ListenOptions) -> io::Result<Self> {
        Self::bind(server, address, options, Service::Envd).await
    }

    /// For the control API.
    pub async fn api(server: Arc<E2bServer>, address: SocketAddr, options: ListenOptions) -> io::Result<Self> {
        Self::bind(server, address, options, Service::Api).await
    }

    async fn bind(
        server: Arc<E2bServer>,
        address: SocketAddr,
        options: ListenOptions,
        service: Service,
    ) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        Ok(Self { socket, service, server, options: Arc::new(options) })
    }

    /// Where clients find it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until `stop` is ready.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let next = async {
                let permit = Arc::clone(&permits).acquire_owned().await.expect("nobody closes it");
                (permit, self.socket.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                next = next => next,
                () = &mut stop => break,
            };
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) => {
                    // Events are small, and somebody waits for each.
                    let _ = stream.set_nodelay(true);
                    let (server, options, service) = (self.server.clone(), self.options.clone(), self.service);
                    connections.spawn(async move {
                        serve_connection(stream, service, server, options).await;
                        drop(permit);
                    });
                }
                // Out of descriptors, or a connection that broke before we had it: the next may work.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        connections.shutdown().await;
    }
}

async fn serve_connection(stream: TcpStream, service: Service, server: Arc<E2bServer>, options: Arc<ListenOptions>) {
    let handle = service_fn(move |request| {
        let (server, options) = (server.clone(), options.clone());
        async move { Ok::<_, Infallible>(answer(request, service, server, &options).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), handle).await {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn answer(
    request: Request<Incoming>,
    service: Service,
    server: Arc<E2bServer>,
    options: &ListenOptions,
) -> HttpResponse {
    let unread = UnreadBody::default();
    let headers = request.headers().clone();
    let request = request.map(|incoming| RequestBody::new(incoming, unread.clone()));
    let response = match check_caller(request.headers(), options) {
        Err(error) => {
            drop(request);
            response::json(error.code.status(), &error.rest_json())
        }
        Ok(()) => match service {
            Service::Envd => envd::answer(request, &server).await,
            Service::Api => api::answer(request, &server, options).await,
        },
    };
    if !is_message_stream(&headers) {
        unread.discard(&headers).await;
        return response;
    }
    if response.body().size_hint().exact().is_none() {
        return response.map(|body| unread.discard_beside(&headers, body).boxed_unsync());
    }
    // A length says where a body ends, so its end is not sent by itself.
    if !headers.contains_key(CONTENT_LENGTH) {
        unread.discard_within(&headers, STREAM_END_TIMEOUT).await;
    }
    response
}

/// Whether a client reads the response before its body has ended.
fn is_message_stream(headers: &HeaderMap) -> bool {
    let is_stream = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/connect+");
    headers.get(CONTENT_TYPE).is_some_and(is_stream)
}

/// Refuses pages of browsers.
fn check_caller(headers: &HeaderMap, options: &ListenOptions) -> Result<(), ServiceError> {
    let refused = |message: &str| Err(ServiceError::new(Code::PermissionDenied, message));
    if headers.contains_key(ORIGIN) {
        return refused("requests of pages in browsers, which have an Origin, are refused");
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    match is_known_host(host, options) {
        true => Ok(()),
        false => refused(
            "the Host header names another machine: call this one by its address, or allow the name with --allow-host",
        ),
    }
}

fn is_known_host(host: &str, options: &ListenOptions) -> bool {
    let name = host_name(host);
    // Only a name can be rebound to our address, and an address is none.
    if name.parse::<IpAddr>().is_ok() {
        return true;
    }
    let below = |domain: &String| {
        let name = name.to_ascii_lowercase();
        name.strip_suffix(&domain.to_ascii_lowercase()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    // `NAME.localhost` is this machine for everybody: RFC 6761.
    name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || options.allow_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
        || options.domain.as_ref().is_some_and(below)
}

/// Without its port and brackets.
pub(crate) fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_known_names_may_be_used_and_others_not() {
        let options = ListenOptions { allow_hosts: vec!["box".to_owned()], domain: Some("e2b.test".to_owned()) };
        let known = |host: &str| is_known_host(host, &options);
        for host in ["127.0.0.1:49983", "[::1]:3000", "10.0.0.7", "localhost:3000", "LOCALHOST", "a.localhost:1", "Box"]
        {
            assert!(known(host), "{host}");
        }
        for host in ["49983-abc.e2b.test", "api.E2B.test:443", "e2b.test"] {
            assert!(known(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example", "note2b.test", "e2b.test.evil", "[evil]"] {
            assert!(!known(host), "{host}");
        }
    }
}
