//! A [`ByteStream`] as something to read from and write to, for the HTTP library.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use exec_env::BoxFuture;
use exec_env::streams::{ByteStream, StreamError, StreamReason};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes that are taken by one write.
const WRITE_BYTES: usize = 64 << 10;

pub(super) struct StreamIo {
    stream: Arc<dyn ByteStream>,
    /// What was read and not taken.
    unread: Bytes,
    reading: Option<BoxFuture<'static, Result<Bytes, StreamError>>>,
    /// A write or the end that is under way.
    writing: Option<BoxFuture<'static, Result<(), StreamError>>>,
    is_finishing: bool,
}

impl StreamIo {
    pub(super) fn new(stream: Box<dyn ByteStream>) -> Self {
        Self { stream: Arc::from(stream), unread: Bytes::new(), reading: None, writing: None, is_finishing: false }
    }

    /// Waits until what is being written was taken.
    fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let written = ready!(writing.as_mut().poll(context));
        self.writing = None;
        Poll::Ready(written.map_err(io_error))
    }
}

impl AsyncRead for StreamIo {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.unread.is_empty() {
            let stream = &this.stream;
            let reading = this.reading.get_or_insert_with(|| {
                let stream = Arc::clone(stream);
                Box::pin(async move { stream.read().await })
            });
            let read = ready!(reading.as_mut().poll(context));
            this.reading = None;
            this.unread = read.map_err(io_error)?;
        }
        let taken = this.unread.split_to(this.unread.len().min(into.remaining()));
        into.put_slice(&taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StreamIo {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_written(context))?;
        let bytes = Bytes::copy_from_slice(&bytes[..bytes.len().min(WRITE_BYTES)]);
        let (taken, stream) = (bytes.len(), Arc::clone(&self.stream));
        self.writing = Some(Box::pin(async move { stream.write(bytes).await }));
        // Begun now; the next write waits for it.
        match self.poll_written(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_written(context))?;
        if !self.is_finishing {
            self.is_finishing = true;
            let stream = Arc::clone(&self.stream);
            self.writing = Some(Box::pin(async move { stream.finish().await }));
        }
        self.poll_written(context)
    }
}

fn io_error(error: StreamError) -> io::Error {
    match error.reason {
        StreamReason::Os(errno) => io::Error::from_raw_os_error(errno),
        _ => io::Error::other(error),
    }
}
