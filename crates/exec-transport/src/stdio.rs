//! Our own stdin and stdout as a byte stream, without a thread in between where possible.
//!
//! `O_NONBLOCK` belongs to the open file, not to the descriptor: setting it on fd 1 would also set
//! it for a stderr that shares the file, and for the shell that started us. So a pipe is opened
//! anew through `/proc/self/fd` (which makes an open file of our own), and a socket, which cannot
//! be, is used with `MSG_DONTWAIT`. Terminals and files go through tokio's blocking threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::FileType;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

use crate::stream::ReadIo;

pub(crate) fn stdin() -> ReadIo {
    let std_in = io::stdin();
    match open_file(std_in.as_fd(), || pipe::OpenOptions::new().open_receiver("/proc/self/fd/0")) {
        StdStream::Pipe(receiver) => Box::new(receiver),
        StdStream::Socket(socket) => Box::new(socket),
        StdStream::Other => Box::new(tokio::io::stdin()),
    }
}

pub(crate) fn stdout() -> Box<dyn AsyncWrite + Send + Unpin> {
    let std_out = io::stdout();
    match open_file(std_out.as_fd(), || pipe::OpenOptions::new().open_sender("/proc/self/fd/1")) {
        StdStream::Pipe(sender) => Box::new(sender),
        StdStream::Socket(socket) => Box::new(socket),
        StdStream::Other => Box::new(tokio::io::stdout()),
    }
}

enum StdStream<P> {
    Pipe(P),
    Socket(StdSocket),
    Other,
}

fn open_file<P>(fd: BorrowedFd<'_>, open_pipe: impl FnOnce() -> io::Result<P>) -> StdStream<P> {
    let found = rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let opened = match found {
        Ok(FileType::Fifo) => open_pipe().map(StdStream::Pipe),
        Ok(FileType::Socket) => StdSocket::new(fd).map(StdStream::Socket),
        _ => return StdStream::Other,
    };
    opened.unwrap_or(StdStream::Other)
}

/// Lets the runtime watch a descriptor that is no tokio type. tokio 1.54 deprecates this call,
/// because a type might swap or close its descriptor; an `OwnedFd` does neither.
pub(crate) fn async_fd(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(fd)
}

/// A socket that we inherited and share, so its flags must not be changed.
struct StdSocket(AsyncFd<OwnedFd>);

impl StdSocket {
    fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self(async_fd(fd.try_clone_to_owned()?)?))
    }
}

impl AsyncRead for StdSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let space = buf.initialize_unfilled();
            let attempt = ready.try_io(|fd| Ok(recv(fd, space, RecvFlags::DONTWAIT)?));
            match attempt {
                Ok(Ok((_, read_bytes))) => {
                    buf.advance(read_bytes);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for StdSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            match ready.try_io(|fd| Ok(send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = rustix::net::shutdown(self.0.get_ref(), rustix::net::Shutdown::Write);
        Poll::Ready(done.map_err(io::Error::from))
    }
}
