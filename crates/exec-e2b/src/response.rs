//! Responses: their body type, and the makers of the usual ones.

use std::error::Error;

use bytes::Bytes;
use futures_util::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

/// A body of which an error breaks the connection, so that nobody takes the part for the whole.
pub(crate) type Body = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;
pub(crate) type HttpResponse = Response<Body>;

pub(crate) fn whole(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(Full::new(body.into()).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn json(status: StatusCode, value: &serde_json::Value) -> HttpResponse {
    whole(status, "application/json", value.to_string())
}

pub(crate) fn empty(status: StatusCode) -> HttpResponse {
    let mut response = Response::new(Full::default().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// A body that is made while it is sent: hyper asks for the next piece when the socket has taken the one before.
pub(crate) fn streamed(
    content_type: &'static str,
    pieces: impl Stream<Item = Result<Bytes, Box<dyn Error + Send + Sync>>> + Send + 'static,
) -> HttpResponse {
    use futures_util::TryStreamExt;
    let mut response = Response::new(StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
