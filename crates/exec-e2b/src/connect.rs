//! The Connect protocol with JSON over HTTP/1.1, as far as the E2B SDKs use it.
//!
//! A unary call is a POST of a JSON message. In a stream each message has an envelope: a byte of flags and four of length,
//! big-endian. The last envelope of a response has the flag [`END_OF_STREAM`] and says how the call ended; the HTTP status is
//! 200 whatever it says.
//!
//! Deliberately absent: compression, binary messages, GET, trailers. No SDK uses them, and a client that does is told.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hyper::header::CONTENT_TYPE;
use hyper::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::{Code, ServiceError};
use crate::limits::{KEEPALIVE, LONGEST_DEADLINE, MESSAGE_BYTES, SHORTEST_KEEPALIVE};
use crate::request_body::{BodyPieces, MessageBudget};
use crate::response::{self, HttpResponse};

pub(crate) const STREAM_TYPE: &str = "application/connect+json";

const COMPRESSED: u8 = 1;
const END_OF_STREAM: u8 = 2;
const HEADER_BYTES: usize = 5;

/// How the messages of a call come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Unary,
    Stream,
}

/// Refuses what is not JSON of the right kind.
pub(crate) fn check_content_type(headers: &HeaderMap, kind: CallKind) -> Result<(), ServiceError> {
    let wanted = match kind {
        CallKind::Unary => "application/json",
        CallKind::Stream => STREAM_TYPE,
    };
    let sent = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let sent = sent.split(';').next().unwrap_or_default().trim();
    if sent.eq_ignore_ascii_case(wanted) {
        return Ok(());
    }
    Err(ServiceError::unimplemented(format!(
        "this call takes {wanted}, not {sent:?}: only Connect with JSON is served"
    )))
}

pub(crate) fn decode<T: DeserializeOwned>(message: &[u8]) -> Result<T, ServiceError> {
    let message = if message.is_empty() { b"{}" } else { message };
    // serde would take an array for an object with its members in order.
    if !message.trim_ascii_start().starts_with(b"{") {
        return Err(ServiceError::invalid("the message is not a JSON object"));
    }
    serde_json::from_slice(message).map_err(|error| ServiceError::invalid(format!("the message is not valid: {error}")))
}

pub(crate) fn unary_response(result: Result<serde_json::Value, ServiceError>) -> HttpResponse {
    match result {
        Ok(value) => response::json(StatusCode::OK, &value),
        Err(error) => response::json(error.code.status(), &error.connect_json()),
    }
}

/// A stream that ends before it has begun. A sandbox that is gone is told by the status, as E2B's proxy does.
pub(crate) fn failed_stream(error: &ServiceError) -> HttpResponse {
    if error.code == Code::SandboxGone {
        return response::json(error.code.status(), &error.connect_json());
    }
    response::whole(StatusCode::OK, STREAM_TYPE, end_of_stream(Some(error)))
}

/// A message of a stream in its envelope, at the end of `out`.
pub(crate) fn put_message(out: &mut Vec<u8>, message: &[u8]) {
    put_envelope(out, 0, message);
}

pub(crate) fn put_end(out: &mut Vec<u8>, error: Option<&ServiceError>) {
    let message = match error {
        Some(error) => error.end_of_stream_json().to_string(),
        None => "{}".to_owned(),
    };
    put_envelope(out, END_OF_STREAM, message.as_bytes());
}

fn end_of_stream(error: Option<&ServiceError>) -> Vec<u8> {
    let mut out = Vec::new();
    put_end(&mut out, error);
    out
}

fn put_envelope(out: &mut Vec<u8>, flags: u8, message: &[u8]) {
    let length = u32::try_from(message.len()).expect("messages of ours are made of pages of some hundred KiB");
    out.push(flags);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
}

/// The messages of a request, one by one.
pub(crate) struct EnvelopeReader {
    pieces: BodyPieces,
    buffer: BytesMut,
    budget: MessageBudget,
    /// What the buffer may hold so far; it grows with a large message and is kept for the next.
    permit: Option<OwnedSemaphorePermit>,
    permitted: usize,
}

impl EnvelopeReader {
    pub(crate) fn new(pieces: BodyPieces, budget: MessageBudget) -> Self {
        Self { pieces, buffer: BytesMut::new(), budget, permit: None, permitted: 0 }
    }

    /// `None` at the end of the body.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ServiceError> {
        if !self.fill(HEADER_BYTES).await? {
            return match self.buffer.is_empty() {
                true => Ok(None),
                false => Err(ServiceError::invalid("the body ends within the header of a message")),
            };
        }
        let flags = self.buffer[0];
        let length = (&self.buffer[1..HEADER_BYTES]).get_u32() as usize;
        if flags & COMPRESSED != 0 {
            return Err(ServiceError::unimplemented("compressed messages are not served: send them as they are"));
        }
        if flags != 0 {
            return Err(ServiceError::invalid(format!("a message has the flags {flags}, and none are known")));
        }
        if length > MESSAGE_BYTES {
            let message = format!("a message of {length} bytes is refused: at most {MESSAGE_BYTES} are allowed");
            return Err(ServiceError::new(Code::ResourceExhausted, message));
        }
        let whole = HEADER_BYTES + length;
        if whole > self.permitted {
            // Counted before anything is read: the length is the client's word.
            self.budget.take(&mut self.permit, whole - self.permitted)?;
            self.permitted = whole;
        }
        if !self.fill(whole).await? {
            return Err(ServiceError::invalid(format!("the body ends within a message of {length} bytes")));
        }
        self.buffer.advance(HEADER_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// The only message of a call whose response is a stream.
    pub(crate) async fn only<T: DeserializeOwned>(&mut self) -> Result<T, ServiceError> {
        let message = self.next().await?.ok_or_else(|| ServiceError::invalid("the call has no message"))?;
        decode(&message)
    }

    async fn fill(&mut self, bytes: usize) -> Result<bool, ServiceError> {
        while self.buffer.len() < bytes {
            match self.pieces.next().await? {
                Some(piece) => self.buffer.extend_from_slice(&piece),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// How long the client gives the call; `None` if for ever.
pub(crate) fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, ServiceError> {
    let Some(value) = headers.get("connect-timeout-ms") else { return Ok(None) };
    let millis = value.to_str().ok().and_then(|text| text.parse().ok()).map(Duration::from_millis);
    match millis.filter(|millis| *millis <= LONGEST_DEADLINE) {
        Some(deadline) => Ok(Some(deadline)),
        None => Err(ServiceError::invalid("Connect-Timeout-Ms is not a number of at most 10 digits")),
    }
}

/// After how much silence a stream says that it lives.
pub(crate) fn keepalive(headers: &HeaderMap) -> Duration {
    let seconds = headers.get("keepalive-ping-interval").and_then(|value| value.to_str().ok()?.parse().ok());
    seconds.map_or(KEEPALIVE, |seconds| Duration::from_secs(seconds).max(SHORTEST_KEEPALIVE).min(KEEPALIVE))
}
