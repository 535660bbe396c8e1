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

use crate::stream::{ReadIo, WriteIo};

pub(crate) fn stdin() -> ReadIo {
    let std_in = io::stdin();
    match file_type(std_in.as_fd()) {
        Some(FileType::Fifo) => {
            if let Ok(receiver) = pipe::OpenOptions::new().open_receiver("/proc/self/fd/0") {
                return Box::new(receiver);
            }
        }
        Some(FileType::Socket) => {
            if let Ok(socket) = StdSocket::new(std_in.as_fd()) {
                return Box::new(socket);
            }
        }
        _ => {}
    }
    Box::new(tokio::io::stdin())
}

pub(crate) fn stdout() -> WriteIo {
    let std_out = io::stdout();
    match file_type(std_out.as_fd()) {
        Some(FileType::Fifo) => {
            if let Ok(sender) = pipe::OpenOptions::new().open_sender("/proc/self/fd/1") {
                return Box::new(sender);
            }
        }
        Some(FileType::Socket) => {
            if let Ok(socket) = StdSocket::new(std_out.as_fd()) {
                return Box::new(socket);
            }
        }
        _ => {}
    }
    Box::new(tokio::io::stdout())
}

fn file_type(fd: BorrowedFd<'_>) -> Option<FileType> {
    let stat = rustix::fs::fstat(fd).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
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
