//! One message from the server: what it says, told to the shared state. Decoding is done before the lock is taken.

use std::sync::Arc;

use bytes::Bytes;
use exec_core::{EntryBody, Entry};
use exec_transport::Message;
use exec_wire::envelope::{self, RequestId, Incoming, Notification, Request};
use exec_wire::network::{PolicyDecision, PolicyRequestResult};
use exec_wire::process::{ClosedParams, ExitedParams, OutputParams};
use exec_wire::{Method, NotificationMethod, RpcError, SharedJson, binary, output_codec};

use super::shared::{ReplyOutcome, Shared};
use super::writer::OutgoingMessage;
use crate::{convert, error};

/// What the driver must know of a message.
#[derive(Debug)]
pub(super) enum MessageOutcome {
    /// It was for somebody else, who has it.
    Delivered,
    /// The answer to the driver's own call.
    InitializeReply(Result<SharedJson, RpcError>),
    /// It must be answered with this.
    Answer(OutgoingMessage),
    /// The session belongs to another connection now.
    TakenOver,
    /// It makes no sense; the connection cannot be trusted further.
    Malformed(String),
}

/// Takes in one message. `initialize_id` is the id of the driver's own call, if one is open.
pub(super) fn handle_message(shared: &Shared, message: Message, initialize_id: Option<i64>) -> MessageOutcome {
    if let Message::Binary(frame) = &message
        && binary::is_binary(frame)
    {
        return handle_binary_frame(shared, frame);
    }
    let frame = message.into_bytes();
    let Ok(text) = std::str::from_utf8(&frame) else {
        return MessageOutcome::Malformed("the server sent text that is not UTF-8".to_owned());
    };
    if let Some(output) = output_codec::decode_output(text) {
        let body = EntryBody::Output { stream: convert::stream(output.stream), bytes: output.bytes.into() };
        shared.lock().push(output.process_id, Entry { seq: output.seq, body });
        return MessageOutcome::Delivered;
    }
    match envelope::decode(text) {
        Ok(Incoming::Response(response)) => {
            let json = SharedJson::new(&frame, response.result);
            deliver_response(shared, response.id, initialize_id, Ok(json))
        }
        Ok(Incoming::Error(reply)) => deliver_response(shared, reply.id, initialize_id, Err(reply.error)),
        Ok(Incoming::Notification(notification)) => handle_notification(shared, &frame, &notification),
        Ok(Incoming::Request(request)) => answer_request(shared, &request),
        Err(malformed) => {
            MessageOutcome::Malformed(format!("the server sent a message that cannot be read: {malformed}"))
        }
    }
}

fn deliver_response(
    shared: &Shared,
    id: RequestId,
    initialize_id: Option<i64>,
    answer: Result<SharedJson, RpcError>,
) -> MessageOutcome {
    // We only ever use numbers; anything else, like an answer nobody waits for, is no harm.
    let RequestId::Number(id) = id else { return MessageOutcome::Delivered };
    if initialize_id == Some(id) {
        return MessageOutcome::InitializeReply(answer);
    }
    let outcome = match answer {
        Ok(json) => ReplyOutcome::Json(json),
        Err(error) => ReplyOutcome::Refused(error),
    };
    shared.lock().answer(id, outcome);
    MessageOutcome::Delivered
}

/// Output or a file block as raw bytes, which stay where they were received.
fn handle_binary_frame(shared: &Shared, frame: &Bytes) -> MessageOutcome {
    match binary::decode(frame) {
        Ok((binary::FrameHeader::Output { process_id, seq, stream }, payload)) => {
            let body = EntryBody::Output { stream: convert::stream(stream), bytes: frame.slice_ref(payload) };
            shared.lock().push(process_id, Entry { seq, body });
        }
        Ok((binary::FrameHeader::Block { request_id, eof, .. }, payload)) => {
            if let Ok(id) = request_id.parse() {
                shared.lock().answer(id, ReplyOutcome::Block { bytes: frame.slice_ref(payload), eof });
            }
        }
        Ok((binary::FrameHeader::Write { .. }, _)) => {
            return MessageOutcome::Malformed("the server sent a frame that only clients send".to_owned());
        }
        Err(bad) => return MessageOutcome::Malformed(format!("the server sent a frame that cannot be read: {bad}")),
    }
    MessageOutcome::Delivered
}

/// What a notification is about; each kind has one of these.
#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NotificationSubject {
    search_id: Option<String>,
    request_id: Option<String>,
    progress_id: Option<String>,
    watch_id: Option<WatchId>,
}

/// The original's watches have numbers, ours have names.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum WatchId {
    Number(u64),
    Name(String),
}

impl NotificationSubject {
    fn name(self) -> Option<String> {
        let watch = self.watch_id.map(|id| match id {
            WatchId::Number(number) => number.to_string(),
            WatchId::Name(name) => name,
        });
        self.search_id.or(self.request_id).or(self.progress_id).or(watch)
    }
}

fn handle_notification(shared: &Shared, frame: &Bytes, notification: &Notification<'_>) -> MessageOutcome {
    // What we do not know is not for us.
    let Some(method) = NotificationMethod::parse(&notification.method) else { return MessageOutcome::Delivered };
    let params = notification.params;
    let pushed = match method {
        NotificationMethod::ProcessOutput => params.decode::<OutputParams>().map(|output| {
            let body = EntryBody::Output { stream: convert::stream(output.stream), bytes: output.chunk.0 };
            (output.process_id, Entry { seq: output.seq, body })
        }),
        NotificationMethod::ProcessExited => params.decode::<ExitedParams>().map(|exited| {
            let exit = exited.exit.map_or_else(|| convert::exit_of_code(Some(exited.exit_code)), convert::exit);
            (exited.process_id, Entry { seq: exited.seq, body: EntryBody::Exited(exit) })
        }),
        NotificationMethod::ProcessClosed => params
            .decode::<ClosedParams>()
            .map(|closed| (closed.process_id, Entry { seq: closed.seq, body: EntryBody::Closed })),
        NotificationMethod::SessionTakenOver => return MessageOutcome::TakenOver,
        other => {
            let about = params.decode::<NotificationSubject>().unwrap_or_default().name();
            shared.lock().notify(other, about.as_deref(), &SharedJson::new(frame, params));
            return MessageOutcome::Delivered;
        }
    };
    match pushed {
        Ok((id, entry)) => {
            shared.lock().push(&id, entry);
            MessageOutcome::Delivered
        }
        Err(error) => {
            MessageOutcome::Malformed(format!("the server sent {} that cannot be read: {error}", method.name()))
        }
    }
}

/// We decide nothing about networks: what the server asks about is denied, the rest is not known.
fn answer_request(shared: &Shared, request: &Request<'_>) -> MessageOutcome {
    // With so many answers waiting, the server does not read; no answer means no.
    let Ok(permit) = Arc::clone(&shared.answer_permits).try_acquire_owned() else { return MessageOutcome::Delivered };
    let mut out = Vec::new();
    match Method::parse(&request.method) {
        Some(Method::NetworkPolicyRequest) => {
            let reason = "no network policy is configured".to_owned();
            let result = PolicyRequestResult { decision: PolicyDecision::Deny { reason } };
            envelope::write_response(&mut out, &request.id, &result, request.jsonrpc);
        }
        _ => envelope::write_error(&mut out, &request.id, &error::not_implemented(&request.method), request.jsonrpc),
    }
    MessageOutcome::Answer(OutgoingMessage::new(Message::Text(out.into()), permit))
}
