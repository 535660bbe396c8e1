//! The JSON-RPC envelope: which kind of message this is, and which request it answers.
//!
//! ```text
//!   has `method` and `id` ──► request          has `result` ──► response
//!   has `method` only ──────► notification     anything else ─► must be an error reply
//! ```
//!
//! [`decode`] reads one message and borrows everything from it: params and results stay text until somebody knows their
//! type. The writers produce compact JSON, `error` before `id` as Codex's server does, and `jsonrpc` only for a peer
//! that writes it. No method is known here, and no state.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write as _};

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;

use crate::decode::DecodeError;
use crate::environment::EnvironmentId;
use crate::error::RpcError;
use crate::scan::{self, RawJson, ScanError};

/// One message from a peer.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming<'a> {
    Request(Request<'a>),
    Notification(Notification<'a>),
    Response(Response<'a>),
    Error(ErrorReply),
}

/// A call that expects a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Request<'a> {
    /// The client's choice; the reply carries it unchanged.
    pub id: RequestId,
    pub method: Cow<'a, str>,
    /// `null` if the message has none.
    pub params: RawJson<'a>,
    /// For distributed tracing.
    pub trace: Option<TraceContext>,
    /// Whether the peer writes `jsonrpc`, and so expects it in the reply.
    pub jsonrpc: bool,
}

/// A message that expects no reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification<'a> {
    pub method: Cow<'a, str>,
    /// `null` if the message has none.
    pub params: RawJson<'a>,
    pub jsonrpc: bool,
}

/// The reply to a request that succeeded.
#[derive(Debug, Clone, PartialEq)]
pub struct Response<'a> {
    /// The id of the request that this answers.
    pub id: RequestId,
    pub result: RawJson<'a>,
}

/// The reply to a request that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorReply {
    /// The id of the request that this answers, or [`RequestId::MALFORMED`].
    pub id: RequestId,
    pub error: RpcError,
}

/// The id of a request: the caller chooses it, and the reply carries it unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Id")]
pub enum RequestId {
    /// A signed 64-bit integer.
    Number(i64),
    Text(String),
}

impl RequestId {
    /// The id of the answer to a message that could not be read.
    pub const MALFORMED: RequestId = RequestId::Number(-1);

    /// Reads an id from its JSON text, as a binary frame carries it.
    pub fn parse(text: &str) -> Result<Self, MalformedMessage> {
        decode_id(RawJson::parse(text)?)
    }
}

impl From<i64> for RequestId {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// A W3C trace context.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(expecting = "struct W3cTraceContext")]
pub struct TraceContext {
    /// Version, trace id, parent id and flags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Data of tracing vendors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// A message that cannot be read. It is answered by an error, and the connection stays open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct MalformedMessage {
    /// In the words of Codex's server.
    pub reason: String,
}

impl From<DecodeError> for MalformedMessage {
    fn from(error: DecodeError) -> Self {
        Self { reason: error.reason().to_owned() }
    }
}

/// Reads one message.
pub fn decode(text: &str) -> Result<Incoming<'_>, MalformedMessage> {
    let refused = |ScanError| MalformedMessage { reason: scan::refusal_reason(text) };
    let scanned = scan::scan(text).map_err(refused)?;
    let Some(members) = &scanned.members else {
        return Err(MalformedMessage { reason: "expected a JSON-RPC object".to_owned() });
    };
    let incoming = classify(members)?;
    // Codex's server reports what is wrong inside the message before what follows it.
    if scanned.trailing {
        return Err(refused(ScanError));
    }
    Ok(incoming)
}

/// A piece of JSON that keeps its frame alive, so that it can move into another task without being copied.
#[derive(Debug, Clone)]
pub struct SharedJson {
    text: Bytes,
    by_tree: bool,
}

impl SharedJson {
    /// `part` as a part of `frame`, from which it was decoded.
    pub fn new(frame: &Bytes, part: RawJson<'_>) -> Self {
        let text = match part.as_str() {
            // An absent member is no part of the frame.
            "null" => Bytes::from_static(b"null"),
            text => frame.slice_ref(text.as_bytes()),
        };
        Self { text, by_tree: part.by_tree() }
    }

    /// How long its text is.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The text itself.
    pub fn raw(&self) -> RawJson<'_> {
        let text = std::str::from_utf8(&self.text).expect("a part of a frame that was decoded as text");
        RawJson::trusted(text, self.by_tree)
    }

    /// Reads the value as a `T`.
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Result<T, DecodeError> {
        self.raw().decode()
    }
}

/// Finds the kind of the message and reads its members. Members are read in the order of the text, because the first that is
/// wrong is the one that the answer names.
fn classify<'a>(members: &[(Cow<'a, str>, RawJson<'a>)]) -> Result<Incoming<'a>, MalformedMessage> {
    let has = |name: &str| members.iter().any(|(key, _)| key == name);
    let (method, id, result) = (has("method"), has("id"), has("result"));
    let mut found = EnvelopeMembers::default();
    for (key, value) in members {
        match &**key {
            "jsonrpc" => found.jsonrpc = true,
            "params" if method => found.params = Some(*value),
            "method" => found.method = Some(value.decode::<Name<'a>>()?.0),
            "trace" if method && id => found.trace = value.decode()?,
            "id" => found.id = Some(decode_id(*value)?),
            "result" if !method => found.result = Some(*value),
            "error" if !method && !result => found.error = Some(value.decode()?),
            _ => {}
        }
    }
    if let Some(method) = found.method {
        let params = found.params.unwrap_or(RawJson::NULL);
        let jsonrpc = found.jsonrpc;
        return Ok(match found.id {
            Some(id) => Incoming::Request(Request { id, method, params, trace: found.trace, jsonrpc }),
            None => Incoming::Notification(Notification { method, params, jsonrpc }),
        });
    }
    match (found.result, found.error, found.id) {
        (Some(result), _, Some(id)) => Ok(Incoming::Response(Response { id, result })),
        (None, Some(error), Some(id)) => Ok(Incoming::Error(ErrorReply { id, error })),
        (None, None, _) => Err(missing("error")),
        (_, _, None) => Err(missing("id")),
    }
}

#[derive(Default)]
struct EnvelopeMembers<'a> {
    jsonrpc: bool,
    method: Option<Cow<'a, str>>,
    params: Option<RawJson<'a>>,
    trace: Option<TraceContext>,
    id: Option<RequestId>,
    result: Option<RawJson<'a>>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// The words for a bad id are an accident of Codex's decoder, which tries the variants of an enum; the numbers
/// beyond 64 bits fail before it comes to that.
fn decode_id(raw: RawJson<'_>) -> Result<RequestId, MalformedMessage> {
    let text = raw.as_str();
    if text.starts_with('"') {
        return Ok(RequestId::Text(raw.decode()?));
    }
    if let Ok(number) = text.parse() {
        return Ok(RequestId::Number(number));
    }
    let width = if text.parse::<u64>().is_ok() {
        None
    } else if text.parse::<u128>().is_ok() {
        Some("u128")
    } else if text.parse::<i128>().is_ok() {
        Some("i128")
    } else {
        None
    };
    Err(MalformedMessage {
        reason: match width {
            Some(width) => {
                format!("invalid type: integer `{text}` as {width}, expected any value")
            }
            None => "data did not match any variant of untagged enum RequestId".to_owned(),
        },
    })
}

fn missing(member: &str) -> MalformedMessage {
    MalformedMessage { reason: format!("missing field `{member}`") }
}

const INFALLIBLE: &str = "wire shapes have string keys, and a vector takes every byte";

/// Appends a response. Returns how many JSON values the message has, which a reader bounds by
/// [`MESSAGE_VALUES`](crate::limits::MESSAGE_VALUES).
pub fn write_response(out: &mut Vec<u8>, id: &RequestId, result: &impl Serialize, jsonrpc: bool) -> usize {
    out.extend_from_slice(opening(jsonrpc));
    out.extend_from_slice(b"\"id\":");
    write_id(out, id);
    out.extend_from_slice(b",\"result\":");
    // The root, its id and its result; and what marks the version.
    let mut counter = ValueCounter { values: 3 + usize::from(jsonrpc) };
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, &mut counter);
    result.serialize(&mut serializer).expect(INFALLIBLE);
    out.push(b'}');
    counter.values
}

/// Writes as `serde_json` does, and counts the values in arrays and objects.
struct ValueCounter {
    values: usize,
}

impl Formatter for &mut ValueCounter {
    fn begin_array_value<W: io::Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.values += 1;
        if first { Ok(()) } else { out.write_all(b",") }
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.values += 1;
        out.write_all(b":")
    }
}

/// Appends an error reply.
pub fn write_error(out: &mut Vec<u8>, id: &RequestId, error: &RpcError, jsonrpc: bool) {
    out.extend_from_slice(opening(jsonrpc));
    out.extend_from_slice(b"\"error\":");
    serde_json::to_writer(&mut *out, error).expect(INFALLIBLE);
    out.extend_from_slice(b",\"id\":");
    write_id(out, id);
    out.push(b'}');
}

/// Appends a notification.
pub fn write_notification(out: &mut Vec<u8>, method: &str, params: &impl Serialize, jsonrpc: bool) {
    out.extend_from_slice(opening(jsonrpc));
    write_method(out, method, params);
    out.push(b'}');
}

/// Appends a request.
pub fn write_request(
    out: &mut Vec<u8>,
    id: &RequestId,
    method: &str,
    params: &impl Serialize,
    trace: Option<&TraceContext>,
    jsonrpc: bool,
) {
    out.extend_from_slice(opening(jsonrpc));
    out.extend_from_slice(b"\"id\":");
    write_id(out, id);
    out.push(b',');
    write_method(out, method, params);
    if let Some(trace) = trace {
        out.extend_from_slice(b",\"trace\":");
        serde_json::to_writer(&mut *out, trace).expect(INFALLIBLE);
    }
    out.push(b'}');
}

/// A request for one of several environments of a server, or for its default. Params of requests are objects.
pub fn write_request_for(
    out: &mut Vec<u8>,
    id: &RequestId,
    method: &str,
    params: &impl Serialize,
    environment: Option<&str>,
) {
    out.extend_from_slice(b"{\"id\":");
    write_id(out, id);
    out.push(b',');
    write_method(out, method, params);
    if let Some(environment) = environment {
        EnvironmentId::append_to(environment, out);
    }
    out.push(b'}');
}

pub(crate) fn opening(jsonrpc: bool) -> &'static [u8] {
    match jsonrpc {
        true => b"{\"jsonrpc\":\"2.0\",",
        false => b"{",
    }
}

fn write_method(out: &mut Vec<u8>, method: &str, params: &impl Serialize) {
    out.extend_from_slice(b"\"method\":");
    serde_json::to_writer(&mut *out, method).expect(INFALLIBLE);
    out.extend_from_slice(b",\"params\":");
    serde_json::to_writer(&mut *out, params).expect(INFALLIBLE);
}

fn write_id(out: &mut Vec<u8>, id: &RequestId) {
    match id {
        RequestId::Number(number) => write!(out, "{number}").expect(INFALLIBLE),
        RequestId::Text(text) => serde_json::to_writer(out, text).expect(INFALLIBLE),
    }
}
