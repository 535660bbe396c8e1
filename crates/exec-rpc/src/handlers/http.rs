//! HTTP requests from this machine: the response as a whole, or its head, and then its body in notifications.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use exec_env::http::HttpBody;
use exec_wire::base64::Base64;
use exec_wire::error::RpcError;
use exec_wire::http::{
    AcknowledgeBodyParams, AcknowledgeBodyResult, BodyDeltaParams, CancelRequestParams, CancelRequestResult,
    RequestParams, RequestResult,
};
use exec_wire::limits::{BODY_DELTA_BYTES, BODY_DELTA_LEAST_BYTES};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::notifications::{NotificationSender, spawn_after_response};
use crate::audit::HttpAudit;
use crate::convert;
use crate::dispatch::{HandlerResult, RequestContext, Response};
use crate::limits::{BODY_WINDOW_BYTES, STREAM_ID_BYTES, WHOLE_BODY_BYTES};
use crate::reply;

pub(crate) async fn request(context: RequestContext, params: RequestParams) -> HandlerResult<RequestResult> {
    let request_id = params.request_id.clone();
    if request_id.len() > STREAM_ID_BYTES {
        return Err(reply::too_long("requestId", request_id.len(), STREAM_ID_BYTES));
    }
    let window_bytes = params.body_window_bytes;
    if let Some(bytes) = window_bytes.filter(|bytes| *bytes > BODY_WINDOW_BYTES) {
        return Err(reply::window_too_large(bytes, BODY_WINDOW_BYTES));
    }
    context.connection.permissions.allow_network().map_err(reply::violation)?;
    // Before the request is made, so that none is made whose response could not be streamed.
    let reservation = match params.stream_response {
        true => {
            let reservation = context.connection.resources.bodies.reserve(&request_id);
            Some(reservation.map_err(|error| reply::body_refused(&request_id, error))?)
        }
        false => None,
    };
    let environment = context.environment()?;
    let audit = HttpAudit::begin(&context, &params.method, &params.url);
    let response = environment.environment.http().request(convert::http_request(params));
    let response = match &reservation {
        Some(reservation) => reservation.stop_token().run_until_cancelled(response).await,
        None => Some(response.await),
    };
    let response = response.ok_or_else(reply::request_cancelled).and_then(|made| made.map_err(reply::http_error));
    audit.finish(response.as_ref().map(|response| response.status)).await;
    let response = response?;
    let Some(reservation) = reservation else {
        let (body, memory) = read_whole_body(&context, response.body).await?;
        return Ok(Response { memory, ..convert::http_response(response.status, response.headers, body).into() });
    };
    let stop = reservation.stop_token();
    let window = window_bytes.map(|bytes| BodyWindow::new(bytes, reservation.acknowledged()));
    let then = spawn_after_response(&context, stop, reservation, |sender| {
        send_body(sender, request_id, response.body, window)
    });
    Ok(Response { then: Some(then), ..convert::http_response(response.status, response.headers, Bytes::new()).into() })
}

/// Reads a whole body. It may come as slowly as its sender likes, so its memory is not that of other responses, and it is
/// refused rather than kept waiting when other bodies have all of it.
async fn read_whole_body(
    context: &RequestContext,
    mut body: Box<dyn HttpBody>,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), RpcError> {
    let mut bytes = BytesMut::new();
    let mut memory = None;
    while let Some(chunk) = body.next().await.map_err(reply::http_error)? {
        if bytes.len() + chunk.len() > WHOLE_BODY_BYTES {
            return Err(reply::body_too_large(WHOLE_BODY_BYTES));
        }
        let taken = context.connection.try_reserve_body_memory(chunk.len());
        let taken =
            taken.ok_or_else(|| reply::busy("the bodies of other requests take the memory there is for them"))?;
        match &mut memory {
            None => memory = Some(taken),
            Some(memory) => OwnedSemaphorePermit::merge(memory, taken),
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes.freeze(), memory))
}

pub(crate) async fn acknowledge(
    context: RequestContext,
    params: AcknowledgeBodyParams,
) -> HandlerResult<AcknowledgeBodyResult> {
    context.connection.resources.bodies.acknowledge(&params.request_id, params.seq);
    Ok(AcknowledgeBodyResult {}.into())
}

pub(crate) async fn cancel(context: RequestContext, params: CancelRequestParams) -> HandlerResult<CancelRequestResult> {
    context.connection.resources.bodies.stop(&params.request_id).await;
    Ok(CancelRequestResult {}.into())
}

/// What of a body the client has not acknowledged yet, and how much that may be.
struct BodyWindow {
    limit_bytes: u64,
    /// The pieces that were sent and not acknowledged: their numbers, and what they take of the window.
    unacknowledged: VecDeque<(u64, u64)>,
    taken_bytes: u64,
    acknowledged: watch::Receiver<u64>,
}

impl BodyWindow {
    fn new(limit_bytes: u64, acknowledged: watch::Receiver<u64>) -> Self {
        Self { limit_bytes, unacknowledged: VecDeque::new(), taken_bytes: 0, acknowledged }
    }

    /// Waits until there is room for piece `seq`. Where nothing is unacknowledged, there is.
    async fn take(&mut self, seq: u64, len: usize) {
        let bytes = len.max(BODY_DELTA_LEAST_BYTES) as u64;
        loop {
            let last = *self.acknowledged.borrow_and_update();
            while let Some((_, freed)) = self.unacknowledged.pop_front_if(|(seq, _)| *seq <= last) {
                self.taken_bytes -= freed;
            }
            if self.unacknowledged.is_empty() || self.taken_bytes + bytes <= self.limit_bytes {
                self.unacknowledged.push_back((seq, bytes));
                self.taken_bytes += bytes;
                return;
            }
            if self.acknowledged.changed().await.is_err() {
                // Nobody can acknowledge anything: the source is being stopped.
                return std::future::pending().await;
            }
        }
    }
}

async fn send_body(
    sender: NotificationSender,
    request_id: String,
    mut body: Box<dyn HttpBody>,
    mut window: Option<BodyWindow>,
) {
    let mut seq = 0;
    let mut delta = |bytes, done, error| {
        seq += 1;
        BodyDeltaParams { request_id: request_id.clone(), seq, delta_base64: Base64(bytes), done, error }
    };
    while let Some(next) = sender.unless_stopped(body.next()).await {
        match next {
            Ok(Some(mut bytes)) => {
                while !bytes.is_empty() {
                    let piece = delta(bytes.split_to(bytes.len().min(BODY_DELTA_BYTES)), false, None);
                    if let Some(window) = &mut window
                        && sender.unless_stopped(window.take(piece.seq, piece.delta_base64.0.len())).await.is_none()
                    {
                        return;
                    }
                    if !sender.send(&piece).await {
                        return;
                    }
                }
            }
            Ok(None) => {
                sender.send(&delta(Bytes::new(), true, None)).await;
                return;
            }
            Err(error) => {
                sender.send(&delta(Bytes::new(), true, Some(reply::body_message(&error)))).await;
                return;
            }
        }
    }
}
