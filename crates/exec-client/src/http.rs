//! HTTP requests made by the server. Every body is streamed; it belongs to its connection, and ends with it.

use bytes::Bytes;
use exec_env::BoxFuture;
use exec_env::http::{Http, HttpBody, HttpError, HttpRequest, HttpResponse};
use exec_wire::http::BodyDeltaParams;
use exec_wire::{Method, NotificationMethod};
use tokio::sync::mpsc;

use crate::convert;
use crate::error;
use crate::files::unique_id;
use crate::limits::NOTIFICATION_QUEUE;
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
            // The request may have had its effect on the third party, so it is never sent twice.
            let options = self.link.default_options(Method::HttpRequest);
            let params = convert::http_params(request, request_id.clone());
            let answer = self.link.call_with(&params, options).await.result.map_err(error::http_error)?;
            let headers = answer.headers.into_iter().map(|header| (header.name, header.value)).collect();
            let body = Box::new(RemoteBody { request_id, notifications, seq: 0, ended: false });
            Ok(HttpResponse { status: answer.status, headers, body })
        })
    }
}

/// The body of a response. The server sends it as fast as the connection allows; if it is not read here in time, the
/// subscription ends and reading fails.
struct RemoteBody {
    request_id: String,
    notifications: mpsc::Receiver<Notification>,
    seq: u64,
    ended: bool,
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
        match delta.seq == self.seq {
            true => Ok(delta),
            false => Err(broken("a part of the body is missing")),
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
