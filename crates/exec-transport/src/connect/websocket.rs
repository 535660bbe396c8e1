//! The WebSocket upgrade as a client, with hyper's HTTP/1 client over a stream that is already open.
//!
//! The request carries what RFC 6455 demands and the bearer token, nothing else: no Origin (our
//! server refuses it), no subprotocol, no compression, no User-Agent.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::limits::{HEADER_BYTES, REFUSAL_BODY_BYTES};
use crate::websocket::{accept_for, fresh_key};

use super::ConnectErrorKind;

/// What the HTTP request of an upgrade says.
pub(crate) struct UpgradeRequest<'a> {
    pub(crate) host: &'a str,
    pub(crate) path_and_query: &'a str,
    pub(crate) bearer_token: Option<&'a str>,
}

/// Upgrades the stream; returns it with the bytes that were read beyond the HTTP response.
pub(crate) async fn upgrade<S>(stream: S, upgrade: &UpgradeRequest<'_>) -> Result<(S, Bytes), ConnectErrorKind>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let key = fresh_key();
    let request = http_request(upgrade, &key)?;
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEADER_BYTES).handshake(TokioIo::new(stream)).await?;
    let mut connection = Box::pin(connection.with_upgrades());
    let response = sender.send_request(request);
    // The connection must be polled for the response to come; no task is needed for that.
    let response = drive(&mut connection, response).await??;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(drive(&mut connection, refusal(response)).await?);
    }
    let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
    if accept != Some(accept_for(key.as_bytes()).as_bytes()) {
        return Err(ConnectErrorKind::NotWebSocket("its answer to the WebSocket key is wrong"));
    }
    let upgraded = drive(&mut connection, hyper::upgrade::on(response)).await??;
    let parts = upgraded
        .downcast::<TokioIo<S>>()
        .map_err(|_| ConnectErrorKind::NotWebSocket("the upgraded stream is not the one that was given"))?;
    Ok((parts.io.into_inner(), parts.read_buf))
}

/// Waits for `answer` while it polls `connection`, which does the work.
async fn drive<C, A>(connection: &mut C, answer: A) -> Result<A::Output, ConnectErrorKind>
where
    C: Future<Output = hyper::Result<()>> + Unpin,
    A: Future,
{
    let mut answer = std::pin::pin!(answer);
    let ended = tokio::select! {
        biased;
        output = &mut answer => return Ok(output),
        ended = connection => ended,
    };
    ended?;
    // The connection ended without an error, so the answer has all it needs.
    Ok(answer.await)
}

fn http_request(upgrade: &UpgradeRequest<'_>, key: &str) -> Result<Request<Empty<Bytes>>, ConnectErrorKind> {
    let mut request = Request::builder()
        .uri(upgrade.path_and_query)
        .header(HOST, upgrade.host)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, key)
        .body(Empty::new())
        .map_err(|_| ConnectErrorKind::Request("the URL cannot be put into a request"))?;
    if let Some(token) = upgrade.bearer_token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| ConnectErrorKind::Request("the bearer token has characters that a header cannot carry"))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    Ok(request)
}

async fn refusal(response: Response<hyper::body::Incoming>) -> ConnectErrorKind {
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), REFUSAL_BODY_BYTES).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    ConnectErrorKind::Refused { status, body: String::from_utf8_lossy(&body).trim().to_owned() }
}
