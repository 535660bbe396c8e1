//! Sends messages: buffering, writing through, the write deadline, closing in good order.
//!
//! Any of these futures may be dropped. A message that was accepted stays accepted, and the next
//! call continues where the dropped one stopped.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::SendError;
use crate::limits::CLOSE_DEADLINE;
use crate::message::{CloseReason, Message};

use super::HeldResource;
use super::writer::{FrameWriter, SharedWriter};

#[derive(Debug)]
pub(crate) struct StreamSender {
    shared: Arc<SharedWriter>,
    deadline: Duration,
}

impl StreamSender {
    pub(crate) fn new(shared: Arc<SharedWriter>, deadline: Duration) -> Self {
        Self { shared, deadline }
    }

    pub(crate) fn carries_binary(&self) -> bool {
        self.shared.writer().queue.carries_binary()
    }

    pub(crate) async fn feed(&mut self, message: Message) -> Result<(), SendError> {
        if !self.shared.writer().queue.has_room() {
            self.drain().await?;
        }
        let has_room = {
            let mut writer = self.shared.writer();
            if !writer.is_open() {
                return Err(SendError::Closed);
            }
            if matches!(message, Message::Binary(_)) && !writer.queue.carries_binary() {
                return Err(SendError::BinaryUnsupported);
            }
            writer.queue.push(message);
            writer.queue.has_room()
        };
        if has_room { Ok(()) } else { self.drain().await }
    }

    pub(crate) async fn flush(&mut self) -> Result<(), SendError> {
        self.drain().await
    }

    pub(crate) async fn close(self, reason: CloseReason) {
        let closing = async {
            self.shared.writer().queue.close(reason);
            if self.drain().await.is_ok() {
                let shutdown = poll_fn(|cx| self.shared.writer().poll_shutdown(cx)).await;
                tracing::trace!(?shutdown, "write half shut down");
            }
        };
        if timeout(CLOSE_DEADLINE, closing).await.is_err() {
            tracing::debug!("the connection was not closed in good order within {CLOSE_DEADLINE:?}");
        }
        self.shared.writer().shut_down_now();
        if let HeldResource::Child(child) = &self.shared.held {
            child.terminate().await;
        }
    }

    /// Writes everything, as long as some byte moves within each deadline.
    async fn drain(&self) -> Result<(), SendError> {
        let mut waiting = Waiting(&self.shared);
        let mut until = Instant::now() + self.deadline;
        loop {
            match timeout_at(until, poll_fn(|cx| waiting.poll_drain(cx))).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(source)) => return Err(SendError::Write { source }),
                Err(_) => {
                    let mut writer = self.shared.writer();
                    let stalled_since = writer.stalled_since.unwrap_or_else(Instant::now);
                    until = stalled_since + self.deadline;
                    if until <= Instant::now() {
                        writer.shut_down_now();
                        return Err(SendError::Stalled { after: self.deadline });
                    }
                }
            }
        }
    }
}

impl Drop for StreamSender {
    /// Nothing more will be sent; the end of the stream tells the peer so.
    fn drop(&mut self) {
        self.shared.writer().shut_down_now();
    }
}

/// Sets `sender_waits` while a sender waits for the socket, and clears it even if the sender's future is dropped.
struct Waiting<'a>(&'a SharedWriter);

impl Waiting<'_> {
    fn poll_drain(&mut self, cx: &mut std::task::Context<'_>) -> Poll<std::io::Result<()>> {
        let mut writer = self.0.writer();
        let writer: &mut FrameWriter = &mut writer;
        let poll = writer.poll_drain(cx);
        writer.sender_waits = poll.is_pending();
        poll
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.writer().sender_waits = false;
    }
}
