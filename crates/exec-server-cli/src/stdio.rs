//! Our stdin and stdout, and what stands for them, where we read and write them ourselves.
//!
//! Whoever shares one of them with us (a program in another language, a shell's other children) may have made it non-blocking,
//! which it is then for us too. Then we wait until it can be read or written.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// A descriptor that is read and written as if it were blocking.
pub(crate) struct Blocking<D>(pub(crate) D);

impl<D: AsFd> Read for Blocking<D> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match rustix::io::read(&self.0, &mut *into) {
                Err(Errno::AGAIN) => wait_for(self.0.as_fd(), PollFlags::IN),
                other => return Ok(other?),
            }
        }
    }
}

impl<D: AsFd> Write for Blocking<D> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        loop {
            match rustix::io::write(&self.0, bytes) {
                Err(Errno::AGAIN) => wait_for(self.0.as_fd(), PollFlags::OUT),
                other => return Ok(other?),
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn wait_for(descriptor: BorrowedFd<'_>, flags: PollFlags) {
    // If it fails, the next attempt tells why.
    let _ = poll(&mut [PollFd::new(&descriptor, flags)], None);
}

pub(crate) fn stdin() -> Blocking<BorrowedFd<'static>> {
    Blocking(rustix::stdio::stdin())
}

pub(crate) fn stdout() -> Blocking<BorrowedFd<'static>> {
    Blocking(rustix::stdio::stdout())
}

pub(crate) fn stderr() -> Blocking<BorrowedFd<'static>> {
    Blocking(rustix::stdio::stderr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_others_made_non_blocking_carries_everything_both_ways() {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).expect("two descriptors");
        let sent: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
        let expected = sent.clone();
        let writing = std::thread::spawn(move || Blocking(write).write_all(&sent));
        let mut received = Vec::new();
        Blocking(read).read_to_end(&mut received).expect("a pipe");
        assert!(writing.join().is_ok_and(|written| written.is_ok()) && received == expected);
    }
}
