//! Bodies of HTTP requests that are read to their end, though nobody may want them.
//!
//! A server that answers while its client still sends closes the connection on it: the client sees a broken pipe, and
//! never why it was refused. So a front gives its handlers a [`RequestBody`] instead of hyper's, and before it returns
//! their response, it lets the [`UnreadBody`] read the rest and throw it away, within bounds.
//!
//! Deliberately absent: what a body may hold and how long its pieces may take, which each front decides for itself.

#![warn(missing_docs)]

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;

/// What is read and thrown away of a body that is not wanted, in bytes: more than any front takes in one message. A client that
/// sends more may find its connection closed instead of the response.
pub const DISCARDED_BYTES: usize = 64 << 20;

/// How long that may take: whoever sends more slowly is answered all the same.
pub const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// The body of a request. If it is dropped before its end, the rest is left to [`UnreadBody`].
pub struct RequestBody {
    incoming: Option<Incoming>,
    unread: UnreadBody,
}

/// What was not read of a body, to be read and thrown away before the response.
#[derive(Clone, Default)]
pub struct UnreadBody(Arc<Mutex<Option<Incoming>>>);

impl RequestBody {
    /// The body of `incoming`, whose rest is left to `unread`.
    pub fn new(incoming: Incoming, unread: UnreadBody) -> Self {
        Self { incoming: Some(incoming), unread }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.incoming {
            Some(incoming) => Pin::new(incoming).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(rest) = self.incoming.take().filter(|body| !body.is_end_stream()) {
            *self.unread.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rest);
        }
    }
}

impl UnreadBody {
    /// Reads what is left, if anything is and the client sends it without being asked: one that waits for `100 Continue` is
    /// told by the response that nobody wants it.
    pub async fn discard(self, headers: &HeaderMap) {
        self.discard_within(headers, DISCARD_TIMEOUT).await;
    }

    /// The same for not longer than this.
    pub async fn discard_within(self, headers: &HeaderMap, timeout: Duration) {
        let Some(mut rest) = self.take(headers) else { return };
        let mut bytes = 0;
        let read = async {
            while let Some(Ok(frame)) = rest.frame().await {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                if bytes > DISCARDED_BYTES {
                    return;
                }
            }
        };
        // Whoever sends for ever is answered all the same.
        let _ = tokio::time::timeout(timeout, read).await;
    }

    /// Reads what is left while a response is sent that comes bit by bit: a client may read that before it ends its request, and
    /// without its end the connection would not be there for the next one.
    pub fn discard_beside<B>(self, headers: &HeaderMap, response: B) -> DiscardingBody<B> {
        DiscardingBody { response, unread: self.take(headers), bytes: 0 }
    }

    fn take(self, headers: &HeaderMap) -> Option<Incoming> {
        let rest = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        rest.filter(|_| !headers.contains_key(EXPECT))
    }
}

/// The body of a response, with which the rest of the request's body is read and thrown away.
pub struct DiscardingBody<B> {
    response: B,
    unread: Option<Incoming>,
    bytes: usize,
}

impl<B> DiscardingBody<B> {
    fn discard(&mut self, context: &mut Context<'_>) {
        while let Some(unread) = &mut self.unread {
            match Pin::new(unread).poll_frame(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(frame))) => self.bytes += frame.data_ref().map_or(0, Bytes::len),
                Poll::Ready(None | Some(Err(_))) => self.unread = None,
            }
            if self.bytes > DISCARDED_BYTES {
                self.unread = None;
            }
        }
    }
}

impl<B: Body + Unpin> Body for DiscardingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.discard(context);
        Pin::new(&mut self.response).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.response.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.response.size_hint()
    }
}
