//! Streamable HTTP: our own accept loop under rmcp's service.
//!
//! A browser on this machine reaches loopback listeners, too. So requests must name us by a host we know and may carry no
//! `Origin` but our own; and a token is asked for if there is one. Slow headers and many connections are
//! bounded here, bodies by rmcp. What is refused is read to its end, so that its sender sees the answer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use exec_http_body::{RequestBody, UnreadBody};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

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

type McpService = StreamableHttpService<McpServer, LocalSessionManager>;
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
        let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config);
        Ok(Self { listener, service: Arc::new(service), token: options.bearer_token.map(Into::into), stop })
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
    service.handle(request).await
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
