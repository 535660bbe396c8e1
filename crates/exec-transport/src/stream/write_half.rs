//! The write half of a byte stream, and whether the kernel has room for what would be written to it.
//!
//! Tokio remembers that a socket was writable until a write fails, so it cannot tell. The kernel can: it calls a socket writable
//! while a good part of its buffer is free, and that is when a message of ordinary size goes into it whole.

use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

/// Bytes go out here.
pub(crate) trait WriteHalf: AsyncWrite + Send + Unpin {
    /// Ready when the kernel has room for more, or will say what is wrong. A stream that cannot be asked always has room.
    fn poll_room(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl WriteHalf for tcp::OwnedWriteHalf {
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream: &TcpStream = self.as_ref();
        loop {
            ready!(stream.poll_write_ready(cx))?;
            match stream.try_io(Interest::WRITABLE, || has_room(stream)) {
                // The runtime has taken note, and wakes us when the kernel says otherwise.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                asked => return Poll::Ready(asked),
            }
        }
    }
}

impl WriteHalf for unix::OwnedWriteHalf {
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream: &UnixStream = self.as_ref();
        loop {
            ready!(stream.poll_write_ready(cx))?;
            match stream.try_io(Interest::WRITABLE, || has_room(stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                asked => return Poll::Ready(asked),
            }
        }
    }
}

/// TLS, which has buffers of its own.
impl<S: AsyncRead + AsyncWrite + Send + Unpin> WriteHalf for tokio::io::WriteHalf<S> {}

/// A program that we have started.
impl WriteHalf for tokio::process::ChildStdin {}

/// Our own stdout.
impl WriteHalf for Box<dyn AsyncWrite + Send + Unpin> {}

fn has_room(socket: impl AsFd) -> io::Result<()> {
    let mut asked = [PollFd::new(&socket, PollFlags::OUT)];
    match poll(&mut asked, Some(&Timespec::default())) {
        Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
        // A broken socket counts as one with room: the write says what is wrong with it.
        Ok(_) | Err(_) => Ok(()),
    }
}
