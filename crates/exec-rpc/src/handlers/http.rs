//! HTTP requests from this machine: the response as a whole, or its head, and then its body in notifications.

use bytes::{Bytes, BytesMut};
use exec_env::http::HttpBody;
use exec_wire::base64::Base64;
use exec_wire::error::RpcError;
use exec_wire::http::{BodyDeltaParams, RequestParams, RequestResult};
use exec_wire::limits::BODY_DELTA_BYTES;
use tokio::sync::OwnedSemaphorePermit;

use super::notifications::{NotificationSender, spawn_after_response};
use crate::audit::HttpAudit;
use crate::convert;
use crate::dispatch::{HandlerResult, RequestContext, Response};
use crate::limits::{STREAM_ID_BYTES, WHOLE_BODY_BYTES};
use crate::reply;

pub(crate) async fn request(context: RequestContext, params: RequestParams) -> HandlerResult<RequestResult> {
    let request_id = params.request_id.clone();
    if request_id.len() > STREAM_ID_BYTES {
        return Err(reply::too_long("requestId", request_id.len(), STREAM_ID_BYTES));
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
    let response =
        environment.environment.http().request(convert::http_request(params)).await.map_err(reply::http_error);
    audit.finish(response.as_ref().map(|response| response.status)).await;
    let response = response?;
    let Some(reservation) = reservation else {
        let (body, memory) = read_whole_body(&context, response.body).await?;
        return Ok(Response { memory, ..convert::http_response(response.status, response.headers, body).into() });
    };
    let stop = reservation.stop_token();
    let then = spawn_after_response(&context, stop, reservation, |sender| send_body(sender, request_id, response.body));
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

async fn send_body(sender: NotificationSender, request_id: String, mut body: Box<dyn HttpBody>) {
    let mut seq = 0;
    let mut delta = |bytes, done, error| {
        seq += 1;
        BodyDeltaParams { request_id: request_id.clone(), seq, delta_base64: Base64(bytes), done, error }
    };
    while let Some(next) = sender.unless_stopped(body.next()).await {
        match next {
            Ok(Some(mut bytes)) => {
                while !bytes.is_empty() {
                    let piece = bytes.split_to(bytes.len().min(BODY_DELTA_BYTES));
                    if !sender.send(&delta(piece, false, None)).await {
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
