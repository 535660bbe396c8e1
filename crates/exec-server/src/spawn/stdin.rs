//! The stdin of a process as something to write to.
//!
//! One write is under way at a time, so that bytes stay in order; the next waits until the kernel of that machine has the
//! one before, which is how a child that does not read slows its writer.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use exec_env::BoxFuture;
use tokio::io::AsyncWrite;
use uuid::Uuid;

use super::output::io_error;
use crate::process::{ProcessError, Written};
use crate::{ProcessId, SharedEnvironment, WriteId};

/// Most bytes of one write: a pipe's worth. More at once would arrive no sooner.
const BLOCK_BYTES: usize = 64 << 10;

/// The stdin of a process: an [`AsyncWrite`] whose shutdown closes it. Dropping it leaves stdin open.
///
/// Bytes have arrived when a flush has returned. If nobody reads stdin any more, writes fail with
/// [`io::ErrorKind::BrokenPipe`].
pub struct Stdin {
    environment: SharedEnvironment,
    id: ProcessId,
    /// Nobody else's writes have it, so each of ours can be repeated after a broken connection and happens once.
    key: Uuid,
    writes: u64,
    under_way: Option<BoxFuture<'static, Result<Written, ProcessError>>>,
    /// What is under way, or was last, is the close.
    closing: bool,
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdin").field("id", &self.id).field("writes", &self.writes).finish_non_exhaustive()
    }
}

impl Stdin {
    pub(super) fn new(environment: SharedEnvironment, id: ProcessId) -> Self {
        Self { environment, id, key: Uuid::new_v4(), writes: 0, under_way: None, closing: false }
    }

    /// Finishes the write that is under way, if there is one.
    fn poll_under_way(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(under_way) = &mut self.under_way else { return Poll::Ready(Ok(())) };
        let written = ready!(under_way.as_mut().poll(context));
        self.under_way = None;
        Poll::Ready(match written {
            Ok(Written::Accepted) => Ok(()),
            Ok(Written::StdinClosed) => {
                Err(io::Error::new(io::ErrorKind::BrokenPipe, format!("nobody reads the stdin of process {}", self.id)))
            }
            Ok(Written::InDoubt) => {
                let why =
                    format!("the server was killed while it wrote to process {}: some of it may be missing", self.id);
                Err(io::Error::other(why))
            }
            Err(error) => Err(io_error(error)),
        })
    }
}

impl AsyncWrite for Stdin {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_under_way(context))?;
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let block = Bytes::copy_from_slice(&bytes[..bytes.len().min(BLOCK_BYTES)]);
        let taken = block.len();
        self.writes += 1;
        let key = WriteId::new(format!("{}-{}", self.key.simple(), self.writes));
        let key = key.expect("two numbers are within the bound of a write id");
        let (environment, id) = (self.environment.clone(), self.id.clone());
        self.under_way = Some(Box::pin(async move { environment.processes().write(&id, key, block).await }));
        // It begins now, and what becomes of it is told to the next call.
        match self.poll_under_way(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_under_way(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closing {
            ready!(self.poll_under_way(context))?;
            self.closing = true;
            let (environment, id) = (self.environment.clone(), self.id.clone());
            self.under_way = Some(Box::pin(async move { environment.processes().close_stdin(&id).await }));
        }
        match ready!(self.poll_under_way(context)) {
            // It was closed before, so it is.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Poll::Ready(Ok(())),
            closed => Poll::Ready(closed),
        }
    }
}
