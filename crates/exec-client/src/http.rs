//! HTTP requests made by the server. Every body is streamed; it belongs to its connection, and ends with it.

use bytes::Bytes;
use exec_env::BoxFuture;
use exec_env::http::{Http, HttpBody, HttpError, HttpRequest, HttpResponse};
use exec_wire::http::{AcknowledgeBodyParams, BodyDeltaParams, CancelRequestParams};
use exec_wire::limits::BODY_DELTA_LEAST_BYTES;
use exec_wire::{Extension, Method, NotificationMethod};
use tokio::sync::mpsc;

use crate::convert;
use crate::error;
use crate::files::{send_detached, unique_id};
use crate::limits::{BODY_ACKNOWLEDGE_BYTES, BODY_WINDOW_BYTES, NOTIFICATION_QUEUE};
use crate::link::{Link, Notification, next_params};

#[derive(Debug)]
pub(crate) struct RemoteHttp {
    link: Link,
}

impl RemoteHttp {
    pub(crate) fn new(link: Link) -> Self {
        Self { link }
    }
}

impl Http for RemoteHttp {
    fn request(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>> {
        Box::pin(async move {
            let request_id = unique_id();
            let notifications =
                self.link.subscribe(&[NotificationMethod::HttpBodyDelta], Some(&request_id), NOTIFICATION_QUEUE);
            let window = self.link.has(Extension::REQUEST_BODY_WINDOW).then_some(BODY_WINDOW_BYTES as u64);
            let params = convert::http_params(request, request_id.clone(), window);
            let acknowledges = window.is_some();
            // It is there before there is a response, so that whoever no longer waits for the response ends the request.
            let link = self.link.clone();
            let mut body =
                RemoteBody { link, request_id, notifications, seq: 0, ended: false, acknowledges, untold_bytes: 0 };
            // The request may have had its effect on the third party, so it is never sent twice.
            let options = self.link.default_options(Method::HttpRequest);
            let answer = self.link.call_with(&params, options).await.result;
            let answer = answer.inspect_err(|_| body.ended = true).map_err(error::http_error)?;
            let headers = answer.headers.into_iter().map(|header| (header.name, header.value)).collect();
            Ok(HttpResponse { status: answer.status, headers, body: Box::new(body) })
        })
    }
}

/// The body of a response. Our servers send no more than a window of it before it is taken. Others send it as fast as the
/// connection allows; if it is not taken in time, the subscription ends and reading fails. Dropping it ends the request.
struct RemoteBody {
    link: Link,
    request_id: String,
    notifications: mpsc::Receiver<Notification>,
    seq: u64,
    ended: bool,
    acknowledges: bool,
    /// What was taken of the window since it was last acknowledged.
    untold_bytes: usize,
}

impl Drop for RemoteBody {
    fn drop(&mut self) {
        if !self.ended && self.link.has(Method::HttpCancel) {
            send_detached(&self.link, CancelRequestParams { request_id: std::mem::take(&mut self.request_id) });
        }
    }
}

impl RemoteBody {
    async fn receive(&mut self) -> Result<BodyDeltaParams, HttpError> {
        let broken = |why: &str| HttpError::Body { why: why.to_owned() };
        // A notification that was received already may come again.
        let is_new = |delta: &BodyDeltaParams| delta.request_id == self.request_id && delta.seq > self.seq;
        let Some(delta) = next_params(&mut self.notifications, is_new).await else {
            return Err(broken("the connection to the executor broke, or the body was not taken in time"));
        };
        self.seq += 1;
        if delta.seq != self.seq {
            return Err(broken("a part of the body is missing"));
        }
        self.acknowledge(delta.delta_base64.0.len());
        Ok(delta)
    }

    fn acknowledge(&mut self, taken_bytes: usize) {
        self.untold_bytes += taken_bytes.max(BODY_DELTA_LEAST_BYTES);
        if self.acknowledges && self.untold_bytes >= BODY_ACKNOWLEDGE_BYTES {
            self.untold_bytes = 0;
            send_detached(&self.link, AcknowledgeBodyParams { request_id: self.request_id.clone(), seq: self.seq });
        }
    }
}

impl HttpBody for RemoteBody {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, HttpError>> {
        Box::pin(async move {
            while !self.ended {
                let delta = self.receive().await.inspect_err(|_| self.ended = true)?;
                self.ended = delta.done;
                if let Some(why) = delta.error {
                    return Err(HttpError::Body { why });
                }
                if !delta.delta_base64.0.is_empty() {
                    return Ok(Some(delta.delta_base64.0));
                }
            }
            Ok(None)
        })
    }
}
