//! Streamable HTTP: our own accept loop under rmcp's service.
//!
//! A browser on this machine reaches loopback listeners, too. So requests must name us by a host we know and may carry no
//! `Origin` but our own; and a token is asked for if there is one. Slow headers and many connections are
//! bounded here, bodies by rmcp. What is refused is read to its end, so that its sender sees the answer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use exec_http_body::{RequestBody, UnreadBody};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::http_sessions::{HttpSessions, SESSION_HEADER};
use crate::limits::{ACCEPT_PAUSE, HEADER_TIMEOUT, HTTP_BODY_BYTES, HTTP_CONNECTIONS};
use crate::server::McpServer;

/// Who may connect.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// Names of this host beside those of the loopback, as clients write them.
    pub allow_hosts: Vec<String>,
    /// What clients must send as `Authorization: Bearer`.
    pub bearer_token: Option<String>,
}

/// A listener for MCP over HTTP, on the path `/mcp`.
pub struct HttpServer {
    listener: TcpListener,
    service: Arc<McpService>,
    token: Option<Arc<str>>,
    stop: CancellationToken,
}

struct McpService {
    rmcp: StreamableHttpService<McpServer, LocalSessionManager>,
    sessions: HttpSessions,
}

type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

impl HttpServer {
    /// Listens on `address`.
    pub async fn bind(server: McpServer, address: SocketAddr, options: HttpOptions) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let stop = CancellationToken::new();
        let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        // Our own origin is allowed, because some clients send it; no page has it.
        let port = listener.local_addr()?.port();
        let origins = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}:{port}"));
        let config = StreamableHttpServerConfig::default()
            .with_allowed_origins(origins)
            .with_allowed_hosts(loopback.into_iter().chain(options.allow_hosts))
            .enforce_origin_validation()
            .with_max_request_body_bytes(HTTP_BODY_BYTES)
            .with_cancellation_token(stop.clone());
        let sessions = HttpSessions::new();
        let rmcp = StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions.manager), config);
        let service = Arc::new(McpService { rmcp, sessions });
        Ok(Self { listener, service, token: options.bearer_token.map(Into::into), stop })
    }

    /// Where clients find it.
    pub fn url(&self) -> std::io::Result<String> {
        Ok(format!("http://{}/mcp", self.listener.local_addr()?))
    }

    /// Serves until `stop` is ready.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let permits = Arc::new(Semaphore::new(HTTP_CONNECTIONS));
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let next = async {
                let permit = Arc::clone(&permits).acquire_owned().await.expect("nobody closes it");
                (permit, self.listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                next = next => next,
                () = &mut stop => break,
            };
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) => {
                    let (service, token) = (Arc::clone(&self.service), self.token.clone());
                    connections.spawn(async move {
                        serve_connection(stream, service, token).await;
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
        self.stop.cancel();
        connections.shutdown().await;
    }
}

async fn serve_connection(stream: TcpStream, service: Arc<McpService>, token: Option<Arc<str>>) {
    let handle = service_fn(move |request| {
        let (service, token) = (Arc::clone(&service), token.clone());
        async move { Ok::<_, Infallible>(answer(request, &service, token.as_deref()).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), handle).await {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn answer(request: Request<Incoming>, service: &McpService, token: Option<&str>) -> HttpResponse {
    let unread = UnreadBody::default();
    let headers = request.headers().clone();
    let request = request.map(|incoming| RequestBody::new(incoming, unread.clone()));
    let response = answer_checked(request, service, token).await;
    unread.discard(&headers).await;
    response
}

async fn answer_checked(request: Request<RequestBody>, service: &McpService, token: Option<&str>) -> HttpResponse {
    if !matches!(request.uri().path(), "/mcp" | "/mcp/") {
        return plain(StatusCode::NOT_FOUND, "MCP is at /mcp\n");
    }
    if let Some(token) = token
        && !carries(&request, token)
    {
        let mut refused = plain(StatusCode::UNAUTHORIZED, "a bearer token is needed\n");
        refused.headers_mut().insert(WWW_AUTHENTICATE, "Bearer".parse().expect("plain ASCII"));
        return refused;
    }
    let named = session_in(request.headers());
    if named.is_none() {
        // Before there is one more: a client that hangs up at once is not heard of afterwards.
        service.sessions.make_room(Instant::now()).await;
    }
    let response = service.rmcp.handle(request).await;
    if let Some(session) = named.or_else(|| session_in(response.headers())) {
        service.sessions.used(&session, Instant::now()).await;
    }
    response
}

fn session_in(headers: &HeaderMap) -> Option<String> {
    headers.get(SESSION_HEADER)?.to_str().ok().map(str::to_owned)
}

/// Compared in a time that tells nothing about where they differ.
fn carries<B>(request: &Request<B>, token: &str) -> bool {
    use subtle::ConstantTimeEq;
    let header = request.headers().get(AUTHORIZATION).map(|header| header.as_bytes());
    header.and_then(|header| header.strip_prefix(b"Bearer ")).is_some_and(|sent| sent.ct_eq(token.as_bytes()).into())
}

fn plain(status: StatusCode, text: &'static str) -> HttpResponse {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use exec_env::BoxFuture;
    use exec_tools::environments::{EnvironmentUnavailable, Environments, TargetEnvironment};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::limits::HTTP_SESSIONS;
    use crate::server::McpOptions;

    struct NoEnvironments;

    impl Environments for NoEnvironments {
        fn find<'a>(
            &'a self,
            _id: Option<&'a str>,
        ) -> BoxFuture<'a, Result<TargetEnvironment, EnvironmentUnavailable>> {
            Box::pin(std::future::ready(Err(EnvironmentUnavailable::NoDefault { known: Vec::new() })))
        }

        fn ids(&self) -> Vec<String> {
            Vec::new()
        }

        fn default_id(&self) -> Option<String> {
            None
        }
    }

    /// It hangs up between the moment when its session is there and the answer that names it.
    #[tokio::test]
    async fn a_client_that_hangs_up_before_it_has_its_session_takes_no_room_from_the_most() {
        use rmcp::transport::streamable_http_server::SessionManager;

        let server = McpServer::new(Arc::new(NoEnvironments), McpOptions::default());
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let http = HttpServer::bind(server, address, HttpOptions::default()).await.expect("a port is free");
        let (service, address) = (Arc::clone(&http.service), http.listener.local_addr().expect("it is bound"));
        let stop = CancellationToken::new();
        let running = tokio::spawn(http.run(stop.clone().cancelled_owned()));
        let mut transports = Vec::new();
        for _ in 0..HTTP_SESSIONS + 40 {
            transports.push(service.sessions.manager.create_session().await.expect("it is only memory"));
        }
        // No session comes of this one either, and no answer that names one.
        let request =
            format!("POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        stream.read_to_end(&mut Vec::new()).await.expect("it answers");
        assert_eq!(service.sessions.manager.sessions.read().await.len(), HTTP_SESSIONS);
        stop.cancel();
        running.await.expect("it does not panic");
    }
}
