//! One stream on its way into its data file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use exec_core::Stream;
use exec_core::flow::{FloodDetector, PtyBatcher, Flush, splice_bytes};
use exec_core::limits::{ENTRY_BYTES, FLOOD_PIPE_BYTES};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;

/// What a relay pipe takes before it is emptied: 16 pages, less one that may be half full.
const RELAY_BYTES: u32 = 60 << 10;

/// Where a stream's bytes come from. Shared with whoever waits for it, so that nobody waits for a closed descriptor.
#[derive(Debug)]
pub enum Source {
    /// The read end of a pipe.
    Pipe(Arc<OwnedFd>),
    /// A terminal's master, and the pipe between it and the file: a terminal cannot be spliced into a file at once.
    Pty {
        /// The master.
        master: Arc<OwnedFd>,
        /// The pipe between: read end, write end.
        relay: (OwnedFd, OwnedFd),
    },
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) stream: Stream,
    source: Option<Source>,
    /// Bytes of the data file that records name.
    pub(super) end: u64,
    /// Bytes in the data file.
    pub(super) written: u64,
    pub(super) seal_by: Option<Instant>,
    gather: PtyBatcher,
    flood: FloodDetector,
    /// The kernel or the file system cannot splice here: bytes take the way through our memory, as they would anywhere.
    by_hand: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bite {
    Bytes(u32),
    Dry,
    Eof,
}

impl Lane {
    pub(super) fn new(stream: Stream, source: Source, end: u64) -> Self {
        Self {
            stream,
            source: Some(source),
            end,
            written: end,
            seal_by: None,
            gather: PtyBatcher::default(),
            flood: FloodDetector::default(),
            by_hand: false,
        }
    }

    /// A stream without a source whose last bytes have no record yet.
    pub(super) fn ended(stream: Stream, end: u64, written: u64) -> Self {
        Self {
            stream,
            source: None,
            end,
            written,
            seal_by: None,
            gather: PtyBatcher::default(),
            flood: FloodDetector::default(),
            by_hand: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.source.is_some()
    }

    pub(super) fn close(&mut self) {
        self.source = None;
    }

    pub(super) fn unsealed_bytes(&self) -> u64 {
        self.written - self.end
    }

    pub(super) fn descriptor(&self) -> Option<&Arc<OwnedFd>> {
        match self.source.as_ref()? {
            Source::Pipe(pipe) => Some(pipe),
            Source::Pty { master, .. } => Some(master),
        }
    }

    /// Bytes that wait in the kernel. A terminal does not tell; one pipe's worth is enough for its last words.
    pub(super) fn ready_bytes(&self) -> u32 {
        match &self.source {
            Some(Source::Pipe(pipe)) => rustix::io::ioctl_fionread(pipe).map_or(0, |bytes| bytes as u32),
            Some(Source::Pty { .. }) => FLOOD_PIPE_BYTES,
            None => 0,
        }
    }

    /// What a bite would find, without taking it.
    pub(super) fn peek(&self) -> Bite {
        let Some(descriptor) = self.descriptor() else { return Bite::Eof };
        let mut found = poll_now(descriptor);
        if found.intersects(PollFlags::HUP | PollFlags::ERR) {
            // The kernel looks for bytes first and for writers then; the last one may have printed between the two.
            found |= poll_now(descriptor);
        } else if !found.contains(PollFlags::IN) {
            return Bite::Dry;
        }
        if found.contains(PollFlags::IN) || self.is_relaying() { Bite::Bytes(0) } else { Bite::Eof }
    }

    /// Whether an earlier turn left bytes of a terminal on the way.
    fn is_relaying(&self) -> bool {
        match &self.source {
            Some(Source::Pty { relay, .. }) => rustix::io::ioctl_fionread(&relay.0).is_ok_and(|bytes| bytes > 0),
            _ => false,
        }
    }

    /// Moves bytes into the data file, behind those that are there.
    pub(super) fn bite(&mut self, file: BorrowedFd<'_>, others_ready: bool) -> Result<Bite, Errno> {
        let bite = match &self.source {
            None => return Ok(Bite::Eof),
            Some(Source::Pipe(_)) => self.bite_pipe(file, splice_bytes(others_ready))?,
            Some(Source::Pty { .. }) => self.bite_pty(file)?,
        };
        if let (Bite::Bytes(bytes), Some(Source::Pipe(pipe))) = (bite, &self.source)
            && self.flood.observe(bytes)
        {
            // May be refused when the user has many large pipes; then it stays as it is.
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, FLOOD_PIPE_BYTES as usize);
        }
        Ok(bite)
    }

    /// Whether what was gathered should be sealed now. Pipes are emptied in one bite, so theirs always is.
    pub(super) fn weigh(&mut self, more: bool, now: Instant) -> bool {
        let unsealed = u32::try_from(self.unsealed_bytes()).unwrap_or(u32::MAX);
        if unsealed == 0 {
            return false;
        }
        if !matches!(self.source, Some(Source::Pty { .. })) {
            return true;
        }
        match self.gather.on_read(unsealed, more, now) {
            Flush::Now => true,
            Flush::By(by) => {
                self.seal_by = Some(by);
                false
            }
        }
    }

    /// After a mover's death: what it had in the relay pipe goes into the file first. `size` is the file's.
    pub(super) fn drain_relay(&mut self, file: Option<&OwnedFd>, size: u64) -> Result<(), Errno> {
        self.written = size;
        let (Some(Source::Pty { .. }), Some(file)) = (&self.source, file) else { return Ok(()) };
        while self.empty_relay(file.as_fd())? > 0 {}
        Ok(())
    }

    fn bite_pipe(&mut self, file: BorrowedFd<'_>, most: u32) -> Result<Bite, Errno> {
        let Some(Source::Pipe(pipe)) = &self.source else { return Ok(Bite::Eof) };
        if self.by_hand {
            return by_hand(pipe.as_fd(), file, &mut self.written);
        }
        match splice(pipe.as_fd(), file, Some(&mut self.written), most) {
            Ok(0) => Ok(Bite::Eof),
            Ok(bytes) => Ok(Bite::Bytes(bytes)),
            Err(Errno::AGAIN) => Ok(Bite::Dry),
            Err(Errno::INVAL) => {
                self.by_hand = true;
                self.bite_pipe(file, most)
            }
            Err(error) => Err(error),
        }
    }

    fn bite_pty(&mut self, file: BorrowedFd<'_>) -> Result<Bite, Errno> {
        let Some(Source::Pty { master, relay }) = &self.source else { return Ok(Bite::Eof) };
        if self.by_hand {
            return by_hand(master.as_fd(), file, &mut self.written);
        }
        let mut gathered = 0;
        let mut end = Bite::Dry;
        while gathered < RELAY_BYTES {
            match splice(master.as_fd(), relay.1.as_fd(), None, RELAY_BYTES - gathered) {
                // The last slave is closed: the kernel says EIO.
                Ok(0) | Err(Errno::IO) => {
                    end = Bite::Eof;
                    break;
                }
                Ok(bytes) => gathered += bytes,
                Err(Errno::AGAIN) => break,
                Err(Errno::INVAL) if gathered == 0 => {
                    self.by_hand = true;
                    return self.bite_pty(file);
                }
                Err(error) => return Err(error),
            }
        }
        // Also when nothing was gathered: an earlier turn may have met a full disk.
        let mut moved = 0;
        loop {
            match self.empty_relay(file)? {
                0 => break,
                bytes => moved += bytes,
            }
        }
        Ok(if moved > 0 { Bite::Bytes(moved) } else { end })
    }

    fn empty_relay(&mut self, file: BorrowedFd<'_>) -> Result<u32, Errno> {
        let Some(Source::Pty { relay, .. }) = &self.source else { return Ok(0) };
        match splice(relay.0.as_fd(), file, Some(&mut self.written), ENTRY_BYTES) {
            Err(Errno::AGAIN) => Ok(0),
            other => other,
        }
    }
}

fn poll_now(descriptor: &OwnedFd) -> PollFlags {
    let mut poll = [PollFd::new(descriptor, PollFlags::IN)];
    match rustix::event::poll(&mut poll, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => poll[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, at: Option<&mut u64>, most: u32) -> Result<u32, Errno> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    let mut at = at;
    loop {
        match rustix::pipe::splice(from, None, to, at.as_deref_mut(), most as usize, flags) {
            Err(Errno::INTR) => {}
            other => return other.map(|bytes| bytes as u32),
        }
    }
}

fn by_hand(from: BorrowedFd<'_>, file: BorrowedFd<'_>, written: &mut u64) -> Result<Bite, Errno> {
    let mut buffer = [0; 16 << 10];
    let count = match rustix::io::read(from, &mut buffer) {
        Ok(0) | Err(Errno::IO) => return Ok(Bite::Eof),
        Ok(count) => count,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Bite::Dry),
        Err(error) => return Err(error),
    };
    let mut done = 0;
    while done < count {
        done += match rustix::io::pwrite(file, &buffer[done..count], *written + done as u64) {
            // Taken from the child already, so it must not be forgotten: insist until there is room.
            Err(Errno::NOSPC | Errno::DQUOT) => {
                std::thread::sleep(exec_core::limits::STALL_RETRY);
                0
            }
            Err(Errno::INTR) => 0,
            other => other?,
        };
    }
    *written += count as u64;
    Ok(Bite::Bytes(count as u32))
}
