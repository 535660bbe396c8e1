//! What the proxy itself answers, in the words of Codex's proxy: programs and people look for them.

use bytes::Bytes;
use exec_core::network::DenialReason;
use http_body_util::{Either, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use super::Body;
use crate::proxy::judgement::{Asked, Refusal};

pub(super) fn empty() -> Body {
    Either::Left(Full::default())
}

pub(super) fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    answer(status, "text/plain", None, Bytes::from_static(text.as_bytes()))
}

pub(super) fn refused_tunnel(refusal: &Refusal) -> Response<Body> {
    let (error, sentence) = words(&refusal.reason);
    answer(StatusCode::FORBIDDEN, "text/plain", Some(error), Bytes::from_static(sentence.as_bytes()))
}

pub(super) fn refused_request(asked: &Asked<'_>, refusal: &Refusal) -> Response<Body> {
    let (error, sentence) = words(&refusal.reason);
    let body = format!(
        r#"{{"status":"blocked","host":{},"reason":{},"decision":"{}","source":"{}","protocol":"{}","port":{},"message":"{sentence}"}}"#,
        quoted(asked.host.as_str()),
        quoted(&refusal.reason),
        refusal.outcome.name(),
        refusal.source.name(),
        asked.protocol.name(),
        asked.port,
    );
    answer(StatusCode::FORBIDDEN, "application/json", Some(error), body.into())
}

pub(super) fn refused_unix_socket(refusal: &Refusal) -> Response<Body> {
    let (error, _) = words(&refusal.reason);
    let body = format!(r#"{{"status":"blocked","host":"unix-socket","reason":{}}}"#, quoted(&refusal.reason));
    answer(StatusCode::FORBIDDEN, "application/json", Some(error), body.into())
}

fn answer(status: StatusCode, kind: &'static str, error: Option<&'static str>, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(error) = error {
        response.headers_mut().insert("x-proxy-error", HeaderValue::from_static(error));
    }
    response
}

/// For programs, and for people.
fn words(reason: &str) -> (&'static str, &'static str) {
    let is = |known: DenialReason| reason == known.name();
    if is(DenialReason::NotAllowed) {
        ("blocked-by-allowlist", "Domain not in allowlist.")
    } else if is(DenialReason::NotAllowedLocal) {
        ("blocked-by-allowlist", "Sandbox policy blocks local/private network addresses.")
    } else if is(DenialReason::Denied) {
        ("blocked-by-denylist", "Domain denied by the sandbox policy.")
    } else if is(DenialReason::MethodNotAllowed) {
        ("blocked-by-method-policy", "Method not allowed in limited mode.")
    } else if is(DenialReason::TunnelInLimitedMode) {
        ("blocked-by-mitm-required", "MITM required for limited HTTPS.")
    } else {
        ("blocked-by-policy", "Request blocked by network policy.")
    }
}

/// As a string of JSON. There are no control characters in it: a host has none, and a reason that has some counts as none.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', r#"\""#))
}
