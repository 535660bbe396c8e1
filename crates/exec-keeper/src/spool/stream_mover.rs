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
pub enum OutputSource {
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
pub(super) struct StreamMover {
    pub(super) stream: Stream,
    source: Option<OutputSource>,
    /// Bytes of the data file that records name.
    pub(super) end: u64,
    /// Bytes in the data file.
    pub(super) written: u64,
    pub(super) flush_by: Option<Instant>,
    batcher: PtyBatcher,
    flood_detector: FloodDetector,
    /// The kernel or the file system cannot splice here: bytes take the way through our memory, as they would anywhere.
    through_memory: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoveResult {
    Bytes(u32),
    Empty,
    Eof,
}

impl StreamMover {
    pub(super) fn new(stream: Stream, source: OutputSource, end: u64) -> Self {
        Self {
            stream,
            source: Some(source),
            end,
            written: end,
            flush_by: None,
            batcher: PtyBatcher::default(),
            flood_detector: FloodDetector::default(),
            through_memory: false,
        }
    }

    /// A stream without a source whose last bytes have no record yet.
    pub(super) fn ended(stream: Stream, end: u64, written: u64) -> Self {
        Self {
            stream,
            source: None,
            end,
            written,
            flush_by: None,
            batcher: PtyBatcher::default(),
            flood_detector: FloodDetector::default(),
            through_memory: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.source.is_some()
    }

    pub(super) fn close(&mut self) {
        self.source = None;
    }

    pub(super) fn unrecorded_bytes(&self) -> u64 {
        self.written - self.end
    }

    pub(super) fn descriptor(&self) -> Option<&Arc<OwnedFd>> {
        match self.source.as_ref()? {
            OutputSource::Pipe(pipe) => Some(pipe),
            OutputSource::Pty { master, .. } => Some(master),
        }
    }

    /// Bytes that wait in the kernel. A terminal does not tell; one pipe's worth is enough for its last words.
    pub(super) fn ready_bytes(&self) -> u32 {
        match &self.source {
            Some(OutputSource::Pipe(pipe)) => rustix::io::ioctl_fionread(pipe).map_or(0, |bytes| bytes as u32),
            Some(OutputSource::Pty { .. }) => FLOOD_PIPE_BYTES,
            None => 0,
        }
    }

    /// What a bite would find, without taking it.
    pub(super) fn peek(&self) -> MoveResult {
        let Some(descriptor) = self.descriptor() else { return MoveResult::Eof };
        let mut found = poll_now(descriptor);
        if found.intersects(PollFlags::HUP | PollFlags::ERR) {
            // The kernel looks for bytes first and for writers then; the last one may have printed between the two.
            found |= poll_now(descriptor);
        } else if !found.contains(PollFlags::IN) {
            return MoveResult::Empty;
        }
        if found.contains(PollFlags::IN) || self.is_relaying() { MoveResult::Bytes(0) } else { MoveResult::Eof }
    }

    /// Whether an earlier turn left bytes of a terminal on the way.
    fn is_relaying(&self) -> bool {
        match &self.source {
            Some(OutputSource::Pty { relay, .. }) => rustix::io::ioctl_fionread(&relay.0).is_ok_and(|bytes| bytes > 0),
            _ => false,
        }
    }

    /// Moves bytes into the data file, behind those that are there.
    pub(super) fn move_bytes(&mut self, file: BorrowedFd<'_>, others_ready: bool) -> Result<MoveResult, Errno> {
        let moved = match &self.source {
            None => return Ok(MoveResult::Eof),
            Some(OutputSource::Pipe(_)) => self.move_from_pipe(file, splice_bytes(others_ready))?,
            Some(OutputSource::Pty { .. }) => self.move_from_pty(file)?,
        };
        if let (MoveResult::Bytes(bytes), Some(OutputSource::Pipe(pipe))) = (moved, &self.source)
            && self.flood_detector.observe(bytes)
        {
            // May be refused when the user has many large pipes; then it stays as it is.
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, FLOOD_PIPE_BYTES as usize);
        }
        Ok(moved)
    }

    /// Whether what was gathered should be sealed now. Pipes are emptied in one bite, so theirs always is.
    pub(super) fn flush_due(&mut self, more: bool, now: Instant) -> bool {
        let unrecorded = u32::try_from(self.unrecorded_bytes()).unwrap_or(u32::MAX);
        if unrecorded == 0 {
            return false;
        }
        if !matches!(self.source, Some(OutputSource::Pty { .. })) {
            return true;
        }
        match self.batcher.on_read(unrecorded, more, now) {
            Flush::Now => true,
            Flush::By(by) => {
                self.flush_by = Some(by);
                false
            }
        }
    }

    /// After a mover's death: what it had in the relay pipe goes into the file first. `size` is the file's.
    pub(super) fn drain_relay(&mut self, file: Option<&OwnedFd>, size: u64) -> Result<(), Errno> {
        self.written = size;
        let (Some(OutputSource::Pty { .. }), Some(file)) = (&self.source, file) else { return Ok(()) };
        while self.empty_relay(file.as_fd())? > 0 {}
        Ok(())
    }

    fn move_from_pipe(&mut self, file: BorrowedFd<'_>, most: u32) -> Result<MoveResult, Errno> {
        let Some(OutputSource::Pipe(pipe)) = &self.source else { return Ok(MoveResult::Eof) };
        if self.through_memory {
            return copy_through_memory(pipe.as_fd(), file, &mut self.written);
        }
        match splice(pipe.as_fd(), file, Some(&mut self.written), most) {
            Ok(0) => Ok(MoveResult::Eof),
            Ok(bytes) => Ok(MoveResult::Bytes(bytes)),
            Err(Errno::AGAIN) => Ok(MoveResult::Empty),
            Err(Errno::INVAL) => {
                self.through_memory = true;
                self.move_from_pipe(file, most)
            }
            Err(error) => Err(error),
        }
    }

    fn move_from_pty(&mut self, file: BorrowedFd<'_>) -> Result<MoveResult, Errno> {
        let Some(OutputSource::Pty { master, relay }) = &self.source else { return Ok(MoveResult::Eof) };
        if self.through_memory {
            return copy_through_memory(master.as_fd(), file, &mut self.written);
        }
        let mut gathered = 0;
        let mut end = MoveResult::Empty;
        while gathered < RELAY_BYTES {
            match splice(master.as_fd(), relay.1.as_fd(), None, RELAY_BYTES - gathered) {
                // The last slave is closed: the kernel says EIO.
                Ok(0) | Err(Errno::IO) => {
                    end = MoveResult::Eof;
                    break;
                }
                Ok(bytes) => gathered += bytes,
                Err(Errno::AGAIN) => break,
                Err(Errno::INVAL) if gathered == 0 => {
                    self.through_memory = true;
                    return self.move_from_pty(file);
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
        Ok(if moved > 0 { MoveResult::Bytes(moved) } else { end })
    }

    fn empty_relay(&mut self, file: BorrowedFd<'_>) -> Result<u32, Errno> {
        let Some(OutputSource::Pty { relay, .. }) = &self.source else { return Ok(0) };
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

fn copy_through_memory(from: BorrowedFd<'_>, file: BorrowedFd<'_>, written: &mut u64) -> Result<MoveResult, Errno> {
    let mut buffer = [0; 16 << 10];
    let count = match rustix::io::read(from, &mut buffer) {
        Ok(0) | Err(Errno::IO) => return Ok(MoveResult::Eof),
        Ok(count) => count,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(MoveResult::Empty),
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
    Ok(MoveResult::Bytes(count as u32))
}
