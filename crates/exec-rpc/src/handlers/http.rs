//! HTTP from the machine: a whole answer, or its head and then its body piece by piece.

use bytes::{Bytes, BytesMut};
use exec_env::http::{HttpBody, HttpError};
use exec_wire::base64::Base64;
use exec_wire::error::RpcError;
use exec_wire::http::{BodyDeltaParams, RequestParams, RequestResult};
use exec_wire::limits::BODY_DELTA_BYTES;
use tokio::sync::OwnedSemaphorePermit;

use super::fs::{DeferredSender, NotificationSender};
use crate::convert;
use crate::dispatch::{RequestContext, Response};
use crate::limits::{SMALL_MESSAGE_BYTES, WHOLE_BODY_BYTES};
use crate::reply;
use crate::resources::SourceReservation;

pub(crate) async fn request(
    context: RequestContext,
    params: RequestParams,
) -> Result<Response<RequestResult>, RpcError> {
    let request_id = params.request_id.clone();
    let resources = context.connection.resources();
    // Taken before anything is sent: a request that cannot be answered is not made.
    let reservation = match params.stream_response {
        true => {
            let reservation = resources.bodies.reserve(&request_id);
            Some(reservation.map_err(|refusal| reply::body_refused(&request_id, refusal))?)
        }
        false => None,
    };
    let http = context.connection.server().environment().http();
    let answer = http.request(convert::http_request(params)).await.map_err(|error| reply::http_error(&error))?;
    let Some(reservation) = reservation else {
        let (body, memory) = read_whole_body(&context, answer.body).await?;
        return Ok(Response { memory, ..convert::http_answer(answer.status, answer.headers, body).into() });
    };
    let (deferred, begin) = NotificationSender::after_response(context.connection.clone(), reservation.stop());
    resources.run(send_body(deferred, reservation, answer.body));
    Ok(Response { then: Some(begin), ..convert::http_answer(answer.status, answer.headers, Bytes::new()).into() })
}

/// All of a body. Once it is more than a little, it takes the room of the largest; what it did not need is given back.
async fn read_whole_body(
    context: &RequestContext,
    mut body: Box<dyn HttpBody>,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), RpcError> {
    let mut bytes = BytesMut::new();
    let mut memory = None;
    while let Some(chunk) = body.next().await.map_err(|error| reply::http_error(&error))? {
        if bytes.len() + chunk.len() > WHOLE_BODY_BYTES {
            return Err(reply::body_too_large(WHOLE_BODY_BYTES));
        }
        if memory.is_none() && bytes.len() + chunk.len() > SMALL_MESSAGE_BYTES {
            memory = context.connection.reserve_response_memory(WHOLE_BODY_BYTES).await;
        }
        bytes.extend_from_slice(&chunk);
    }
    if let Some(held) = &mut memory {
        let needed = (bytes.len() / 3 * 4) >> 10;
        drop(held.split(held.num_permits().saturating_sub(needed)));
    }
    Ok((bytes.freeze(), memory))
}

async fn send_body(deferred: DeferredSender, reservation: SourceReservation, body: Box<dyn HttpBody>) {
    let Some(sender) = deferred.wait_for_response().await else { return };
    send_until_stopped(&sender, &reservation, body).await;
    sender.flush().await;
}

async fn send_until_stopped(sender: &NotificationSender, reservation: &SourceReservation, mut body: Box<dyn HttpBody>) {
    let mut seq = 0;
    let mut delta = |bytes, done, error| {
        seq += 1;
        BodyDeltaParams { request_id: reservation.id().to_owned(), seq, delta_base64: Base64(bytes), done, error }
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
                sender.send(&delta(Bytes::new(), true, Some(body_error_text(&error)))).await;
                return;
            }
        }
    }
}

/// A body's failure in the words of the original, which tells the bare cause here.
fn body_error_text(error: &HttpError) -> String {
    match error {
        HttpError::Body { why } => why.clone(),
        other => other.to_string(),
    }
}
