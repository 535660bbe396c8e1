//! Moves the bytes of one stream into its data file, with `splice` where the kernel can, so that they do not pass through
//! our memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use exec_core::flow::{FloodDetector, Flush, PtyBatcher, splice_bytes};
use exec_core::limits::{ENTRY_BYTES, FLOOD_PIPE_BYTES};
use exec_core::{Stream, TerminalSize};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;

/// What we put into a relay pipe before we empty it: it has 16 pages, one of which may be half full.
const RELAY_BYTES: u32 = 60 << 10;

/// Where the bytes of a stream come from. The descriptor is shared with the task that waits for it, so that it is never
/// closed while somebody waits.
#[derive(Debug)]
pub enum OutputSource {
    Pipe(Arc<OwnedFd>),
    /// The relay is a pipe (read end, write end) between the terminal and the file: the kernel splices only from or to
    /// a pipe.
    Pty {
        master: Arc<OwnedFd>,
        relay: (OwnedFd, OwnedFd),
    },
}

#[derive(Debug)]
pub(super) struct StreamMover {
    pub(super) stream: Stream,
    source: Option<OutputSource>,
    /// Up to where records name the bytes of the data file.
    pub(super) recorded: u64,
    /// Up to where the data file is written.
    pub(super) written: u64,
    /// When batched bytes must get a record.
    pub(super) flush_by: Option<Instant>,
    batcher: PtyBatcher,
    flood_detector: FloodDetector,
    /// The kernel or the file system cannot splice here, so bytes are read and written.
    through_memory: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoveResult {
    Bytes(u32),
    Empty,
    Eof,
}

impl StreamMover {
    /// Asked of the terminal itself, because the child may change it too, and whoever moves the bytes may be killed.
    pub(super) fn terminal_size(&self) -> Option<TerminalSize> {
        let Some(OutputSource::Pty { master, .. }) = &self.source else { return None };
        let size = rustix::termios::tcgetwinsize(master).ok()?;
        (size.ws_row > 0 && size.ws_col > 0).then_some(TerminalSize { rows: size.ws_row, cols: size.ws_col })
    }

    /// Without a source, it stands for a stream that has ended and whose last bytes have no record yet.
    pub(super) fn new(stream: Stream, source: Option<OutputSource>, recorded: u64, written: u64) -> Self {
        Self {
            stream,
            source,
            recorded,
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
        self.written - self.recorded
    }

    pub(super) fn descriptor(&self) -> Option<&Arc<OwnedFd>> {
        match self.source.as_ref()? {
            OutputSource::Pipe(pipe) => Some(pipe),
            OutputSource::Pty { master, .. } => Some(master),
        }
    }

    /// Bytes that wait in the kernel. A terminal does not say how many, so we assume as many as a large pipe holds.
    pub(super) fn ready_bytes(&self) -> u32 {
        match &self.source {
            Some(OutputSource::Pipe(pipe)) => rustix::io::ioctl_fionread(pipe).map_or(0, |bytes| bytes as u32),
            Some(OutputSource::Pty { .. }) => FLOOD_PIPE_BYTES,
            None => 0,
        }
    }

    /// What `move_bytes` would find; the number of bytes is not known.
    pub(super) fn peek(&self) -> MoveResult {
        let Some(descriptor) = self.descriptor() else { return MoveResult::Eof };
        let mut found = poll_now(descriptor);
        if found.intersects(PollFlags::HUP | PollFlags::ERR) {
            // The kernel looks for bytes first and for writers next. The last writer may have printed and gone between
            // the two, so we look again.
            found |= poll_now(descriptor);
        } else if !found.contains(PollFlags::IN) {
            return MoveResult::Empty;
        }
        if found.contains(PollFlags::IN) || self.is_relaying() { MoveResult::Bytes(0) } else { MoveResult::Eof }
    }

    /// Whether everybody who could write has closed the stream. What is left in it is no more than it holds.
    pub(super) fn has_no_writer(&self) -> bool {
        self.descriptor().is_none_or(|descriptor| poll_now(descriptor).contains(PollFlags::HUP))
    }

    /// Whether an earlier call left bytes of a terminal in the relay, because the disk was full.
    fn is_relaying(&self) -> bool {
        match &self.source {
            Some(OutputSource::Pty { relay, .. }) => rustix::io::ioctl_fionread(&relay.0).is_ok_and(|bytes| bytes > 0),
            _ => false,
        }
    }

    /// Appends bytes to the data file.
    pub(super) fn move_bytes(&mut self, file: BorrowedFd<'_>, others_ready: bool) -> Result<MoveResult, Errno> {
        let moved = match &self.source {
            None => return Ok(MoveResult::Eof),
            Some(OutputSource::Pipe(_)) => self.move_from_pipe(file, splice_bytes(others_ready))?,
            Some(OutputSource::Pty { .. }) => self.move_from_pty(file)?,
        };
        if let (MoveResult::Bytes(bytes), Some(OutputSource::Pipe(pipe))) = (moved, &self.source)
            && self.flood_detector.observe(bytes)
        {
            // The kernel refuses this if the user has many large pipes. Then the pipe stays as it is.
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, FLOOD_PIPE_BYTES as usize);
        }
        Ok(moved)
    }

    /// Whether the new bytes should get a record now. Those of a pipe always should, because one call empties it; those
    /// of a terminal are batched. `more` says that the stream had something.
    pub(super) fn is_flush_due(&mut self, more: bool, now: Instant) -> bool {
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

    /// Moves what a writer that was killed had left in the relay.
    pub(super) fn drain_relay(&mut self, file: Option<&OwnedFd>) -> Result<(), Errno> {
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
        let mut relayed = 0;
        let mut end = MoveResult::Empty;
        while relayed < RELAY_BYTES {
            match splice(master.as_fd(), relay.1.as_fd(), None, RELAY_BYTES - relayed) {
                // The kernel says EIO when no process has the terminal open any more.
                Ok(0) | Err(Errno::IO) => {
                    end = MoveResult::Eof;
                    break;
                }
                Ok(bytes) => relayed += bytes,
                Err(Errno::AGAIN) => break,
                Err(Errno::INVAL) if relayed == 0 => {
                    self.through_memory = true;
                    return self.move_from_pty(file);
                }
                Err(error) => return Err(error),
            }
        }
        // Also when nothing new came: an earlier call may have met a full disk.
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
            // The bytes are no longer in the pipe, so they would be lost if we gave up. We try until there is space.
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
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
