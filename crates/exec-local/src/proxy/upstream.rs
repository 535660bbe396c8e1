//! What is said to a proxy of the machine, through which an allowed request goes on.

use std::time::Duration;

use bytes::Bytes;
use exec_core::network::UpstreamProxy;
use http_body_util::Empty;
use hyper::header::{self, HeaderValue};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;

use super::dial::DialledPort;
use super::judgement::Judge;

/// How long it may take to open a tunnel.
const TUNNEL_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest head of its answer, in bytes.
const HEAD_BYTES: usize = 96 << 10;

/// A tunnel through a proxy of the machine.
pub(super) struct UpstreamTunnel {
    pub(super) stream: TokioIo<Upgraded>,
    pub(super) port: DialledPort,
}

/// Asks for a tunnel to `target`, a host and its port. `None` if there is no proxy, or it refuses.
pub(super) async fn tunnel(judge: &Judge, upstream: &UpstreamProxy, target: &str) -> Option<UpstreamTunnel> {
    tokio::time::timeout(TUNNEL_TIMEOUT, ask_for_tunnel(judge, upstream, target)).await.ok()?
}

async fn ask_for_tunnel(judge: &Judge, upstream: &UpstreamProxy, target: &str) -> Option<UpstreamTunnel> {
    let dialled = judge.dial_upstream(upstream).await.ok()?;
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = target.parse().ok()?;
    request.headers_mut().insert(header::HOST, HeaderValue::from_str(target).ok()?);
    if let Some(authorization) = authorization(upstream) {
        request.headers_mut().insert(header::PROXY_AUTHORIZATION, authorization);
    }
    let mut client = hyper::client::conn::http1::Builder::new();
    client.max_buf_size(HEAD_BYTES);
    let (mut sender, connection) = client.handshake(TokioIo::new(dialled.stream)).await.ok()?;
    let mut connection = std::pin::pin!(connection.with_upgrades());
    let mut upgraded = std::pin::pin!(async {
        let response = sender.send_request(request).await.ok()?;
        let response = Some(response).filter(|response| response.status().is_success())?;
        hyper::upgrade::on(response).await.ok()
    });
    let mut is_over = false;
    let stream = loop {
        tokio::select! {
            upgraded = &mut upgraded => break upgraded?,
            // It ends when it has become a tunnel, and also when it broke; the other side tells which.
            _ = &mut connection, if !is_over => is_over = true,
        }
    };
    Some(UpstreamTunnel { stream: TokioIo::new(stream), port: dialled.port })
}

/// By which we are known to the proxy, if its variable says so.
pub(super) fn authorization(upstream: &UpstreamProxy) -> Option<HeaderValue> {
    let credentials = upstream.credentials.as_ref()?;
    let mut value =
        HeaderValue::from_str(&format!("Basic {}", base64_simd::STANDARD.encode_to_string(credentials))).ok()?;
    value.set_sensitive(true);
    Some(value)
}
