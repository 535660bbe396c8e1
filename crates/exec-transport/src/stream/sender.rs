//! The sending half: buffering, writing through, the write deadline, closing in good order; and the write half of the
//! stream, which the receiver shares for its control frames.
//!
//! Any of the sender's futures may be dropped. A message that was accepted stays accepted, and the next call continues
//! where the dropped one stopped.
//!
//! A socket remembers one waker for writing: that of the last poll. So only one of the two may wait for it. While a
//! sender waits, the receiver does not poll the socket and leaves control frames in the queue; the sender writes them
//! when it is woken. A sender that comes while the receiver waits writes everything.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::SendError;
use crate::limits::CLOSE_DEADLINE;
use crate::message::{CloseReason, Message};

use super::send_queue::{SLICES, SendQueue};
use super::{HeldResource, WriteIo};

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

    pub(crate) async fn feed_with_body(&mut self, message: Message, body: Bytes) -> Result<(), SendError> {
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
            writer.queue.push(message, body);
            writer.queue.has_room()
        };
        if has_room { Ok(()) } else { self.drain().await }
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
    pub(crate) async fn drain(&self) -> Result<(), SendError> {
        self.wait(FrameWriter::poll_drain).await
    }

    /// The same, and then waits for room in the kernel, as long.
    pub(crate) async fn wait_for_room(&self) -> Result<(), SendError> {
        self.wait(FrameWriter::poll_room).await
    }

    async fn wait(&self, poll: PollWriter) -> Result<(), SendError> {
        let mut waiting = Waiting(&self.shared);
        let mut until = Instant::now() + self.deadline;
        loop {
            match timeout_at(until, poll_fn(|cx| waiting.poll(poll, cx))).await {
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

/// What a sender waits for.
type PollWriter = fn(&mut FrameWriter, &mut Context<'_>) -> Poll<io::Result<()>>;

/// Sets `sender_waits` while a sender waits for the socket, and clears it even if the sender's future is dropped.
struct Waiting<'a>(&'a SharedWriter);

impl Waiting<'_> {
    fn poll(&mut self, poll: PollWriter, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut writer = self.0.writer();
        let poll = poll(&mut writer, cx);
        writer.sender_waits = poll.is_pending();
        poll
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.writer().sender_waits = false;
    }
}

/// The write half, shared by the sender and the receiver of a connection.
#[derive(Debug)]
pub(crate) struct SharedWriter {
    writer: Mutex<FrameWriter>,
    pub(crate) held: HeldResource,
}

impl SharedWriter {
    pub(crate) fn new(io: WriteIo, queue: SendQueue, held: HeldResource) -> Self {
        let writer = FrameWriter {
            io: Some(io),
            queue,
            unflushed: false,
            sender_waits: false,
            stalled_since: None,
            last_drained: None,
        };
        Self { writer: Mutex::new(writer), held }
    }

    /// The lock is held for one poll at most.
    pub(crate) fn writer(&self) -> MutexGuard<'_, FrameWriter> {
        // Nothing here panics while the state is inconsistent, so a poisoned lock may be used.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct FrameWriter {
    /// `None` once nothing more can be written.
    io: Option<WriteIo>,
    pub(crate) queue: SendQueue,
    /// Bytes were written to a stream that may hold them back (TLS, stdout).
    unflushed: bool,
    /// A sender's future is waiting for the socket.
    pub(crate) sender_waits: bool,
    /// When the socket stopped taking bytes.
    pub(crate) stalled_since: Option<Instant>,
    /// When the socket last took bytes after it had been full: the peer reads, so it is alive.
    pub(crate) last_drained: Option<Instant>,
}

impl std::fmt::Debug for FrameWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameWriter")
            .field("open", &self.io.is_some())
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl FrameWriter {
    pub(crate) fn is_open(&self) -> bool {
        self.io.is_some() && self.queue.is_open()
    }

    /// Writes until the queue is empty and flushed.
    pub(crate) fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.queue.stage() {
            ready!(self.poll_write(cx))?;
        }
        self.poll_flush(cx)
    }

    /// Writes until the queue is empty and flushed, and the kernel has room for more.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        let Some(io) = &self.io else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        match io.poll_room(cx) {
            Poll::Ready(result) => {
                self.progress();
                Poll::Ready(result)
            }
            Poll::Pending => self.stalled(),
        }
    }

    /// Writes until no control frame is pending; messages that are already staged are written too.
    pub(crate) fn poll_control(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.sender_waits || self.io.is_none() {
            return Poll::Ready(Ok(()));
        }
        while self.queue.owes_control() && self.queue.stage() {
            ready!(self.poll_write(cx))?;
        }
        // What is staged but not written yet: without this, a pong would wait for the next message.
        while self.queue.is_staged() {
            ready!(self.poll_write(cx))?;
        }
        self.poll_flush(cx)
    }

    /// Ends the stream in good order; called after a drain.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(io) = &mut self.io else { return Poll::Ready(Ok(())) };
        let result = ready!(Pin::new(io).poll_shutdown(cx));
        self.io = None;
        Poll::Ready(result)
    }

    /// Ends the stream without waiting. The peer sees its end if the kernel can still say so.
    pub(crate) fn shut_down_now(&mut self) {
        let _ = self.poll_shutdown(&mut Context::from_waker(Waker::noop()));
        self.io = None;
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(io) = &mut self.io else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let mut slices = [IoSlice::new(&[]); SLICES];
        let count = self.queue.slices(&mut slices);
        let result = match Pin::new(io).poll_write_vectored(cx, &slices[..count]) {
            Poll::Ready(Ok(0)) => Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(Ok(written)) => {
                self.queue.consume(written);
                self.unflushed = true;
                self.progress();
                Ok(())
            }
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => return self.stalled(),
        };
        if result.is_err() {
            self.io = None;
        }
        Poll::Ready(result)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.unflushed {
            return Poll::Ready(Ok(()));
        }
        let Some(io) = &mut self.io else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        match Pin::new(io).poll_flush(cx) {
            Poll::Ready(result) => {
                self.unflushed = false;
                self.progress();
                if result.is_err() {
                    self.io = None;
                }
                Poll::Ready(result)
            }
            Poll::Pending => self.stalled(),
        }
    }

    fn stalled<T>(&mut self) -> Poll<T> {
        self.stalled_since.get_or_insert_with(Instant::now);
        Poll::Pending
    }

    fn progress(&mut self) {
        if self.stalled_since.take().is_some() {
            self.last_drained = Some(Instant::now());
        }
    }
}
