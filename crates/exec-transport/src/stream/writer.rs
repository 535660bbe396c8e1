//! The write half that sender and receiver share, and the polling of it.
//!
//! A socket remembers one waker for writing: that of the last poll. So only one of the two may wait for it. While a
//! sender waits, the receiver does not poll the socket and leaves control frames in the queue; the sender writes them
//! when it is woken. A sender that comes while the receiver waits writes everything.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::AsyncWrite;
use tokio::time::Instant;

use super::send_queue::{SLICES, SendQueue};
use super::{HeldResource, WriteIo};

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
