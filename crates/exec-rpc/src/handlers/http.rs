//! HTTP from the machine: a whole answer, or its head and then its body piece by piece.

use bytes::{Bytes, BytesMut};
use exec_env::http::{HttpBody, HttpError};
use exec_wire::base64::Base64;
use exec_wire::error::RpcError;
use exec_wire::http::{BodyDeltaParams, RequestParams, RequestResult};
use exec_wire::limits::BODY_DELTA_BYTES;
use tokio::sync::OwnedSemaphorePermit;

use super::fs::{Later, Voice};
use crate::belongings::Place;
use crate::convert;
use crate::dispatch::{Counter, Done};
use crate::limits::{SMALL_ANSWER_BYTES, WHOLE_BODY_BYTES};
use crate::reply;

pub(crate) async fn request(counter: Counter, params: RequestParams) -> Result<Done<RequestResult>, RpcError> {
    let request_id = params.request_id.clone();
    let belongings = counter.desk.belongings();
    // Taken before anything is sent: a request that cannot be answered is not made.
    let place = match params.stream_response {
        true => {
            let place = belongings.bodies.reserve(&request_id);
            Some(place.map_err(|refusal| reply::body_active(&request_id, refusal))?)
        }
        false => None,
    };
    let http = counter.desk.server().environment().http();
    let answer = http.request(convert::http_request(params)).await.map_err(|error| reply::http_error(&error))?;
    let Some(place) = place else {
        let (body, room) = whole(&counter, answer.body).await?;
        return Ok(Done { bytes: room, ..convert::http_answer(answer.status, answer.headers, body).into() });
    };
    let (later, begin) = Voice::after_the_answer(counter.desk.clone(), place.stop());
    belongings.run(tell_body(later, place, answer.body));
    Ok(Done { then: Some(begin), ..convert::http_answer(answer.status, answer.headers, Bytes::new()).into() })
}

/// All of a body. Once it is more than a little, it takes the room of the largest; what it did not need is given back.
async fn whole(counter: &Counter, mut body: Box<dyn HttpBody>) -> Result<(Bytes, Option<OwnedSemaphorePermit>), RpcError> {
    let mut bytes = BytesMut::new();
    let mut room = None;
    while let Some(chunk) = body.next().await.map_err(|error| reply::http_error(&error))? {
        if bytes.len() + chunk.len() > WHOLE_BODY_BYTES {
            return Err(reply::body_too_large(WHOLE_BODY_BYTES));
        }
        if room.is_none() && bytes.len() + chunk.len() > SMALL_ANSWER_BYTES {
            room = counter.desk.room(WHOLE_BODY_BYTES).await;
        }
        bytes.extend_from_slice(&chunk);
    }
    if let Some(held) = &mut room {
        let needed = (bytes.len() / 3 * 4) >> 10;
        drop(held.split(held.num_permits().saturating_sub(needed)));
    }
    Ok((bytes.freeze(), room))
}

async fn tell_body(later: Later, place: Place, body: Box<dyn HttpBody>) {
    let Some(voice) = later.begin().await else { return };
    tell_until_stopped(&voice, &place, body).await;
    voice.settle().await;
}

async fn tell_until_stopped(voice: &Voice, place: &Place, mut body: Box<dyn HttpBody>) {
    let mut seq = 0;
    let mut delta = |bytes, done, error| {
        seq += 1;
        BodyDeltaParams { request_id: place.id().to_owned(), seq, delta_base64: Base64(bytes), done, error }
    };
    while let Some(next) = voice.unless_stopped(body.next()).await {
        match next {
            Ok(Some(mut bytes)) => {
                while !bytes.is_empty() {
                    let piece = bytes.split_to(bytes.len().min(BODY_DELTA_BYTES));
                    if !voice.say(&delta(piece, false, None)).await {
                        return;
                    }
                }
            }
            Ok(None) => {
                voice.say(&delta(Bytes::new(), true, None)).await;
                return;
            }
            Err(error) => {
                voice.say(&delta(Bytes::new(), true, Some(body_words(&error)))).await;
                return;
            }
        }
    }
}

/// A body's failure in the words of the original, which tells the bare cause here.
fn body_words(error: &HttpError) -> String {
    match error {
        HttpError::Body { why } => why.clone(),
        other => other.to_string(),
    }
}
