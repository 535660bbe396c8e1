//! The mover: takes what a child prints and appends it to the log's files, without losing a byte to a `kill -9`.
//!
//! ```text
//!   pipe ───────────── splice ─────► data file ──► record in the index ──► head
//!   PTY ── splice ──► relay pipe ──► data file (gathered) ──► record …
//! ```
//!
//! At every instruction each byte is in exactly one of: the child's pipe, the relay pipe, the data file. All three are
//! held by the keeper and by its owner; whoever is left goes on from there ([`Spool::resume`]). Bytes in a data file
//! that no record names yet become the next record. One mover at a time: the owner while it lives, else the keeper.
//!
//! It never waits: told that a stream is ready, it moves what there is and says how it went.

pub mod directory;
mod finish;
pub mod index;
mod index_file;
pub mod log_files;
mod recovery;
mod retention;
mod stream_mover;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use exec_core::flow::{Quota, SpaceDecision};
use exec_core::lifecycle::{Lifecycle, StreamSet};
use exec_core::limits::{ENTRY_BYTES, STALL_RETRY};
use exec_core::{Exit, Head, Log, Seq, Stream};
use rustix::io::Errno;

use directory::SpoolDirectory;
use index::{Dropped, IndexRecord, RecordKind, slot};
use index_file::IndexFile;
use log_files::LogFiles;
use retention::WhenFull;
pub use stream_mover::OutputSource;
use stream_mover::{MoveResult, StreamMover};

/// The mover of one process's output.
#[derive(Debug)]
pub struct Spool {
    log_files: Arc<LogFiles>,
    directory: Arc<SpoolDirectory>,
    quota: Quota,
    log: Log,
    lifecycle: Lifecycle,
    dropped: Dropped,
    movers: [Option<StreamMover>; 2],
    /// Records that the disk had no room for; made before anything else moves.
    unwritten: Vec<IndexRecord>,
    pending_exit: Option<(Exit, Instant)>,
    /// No room for something: when to try again.
    retry_at: Option<Instant>,
    /// Streams that found no room; another one's luck is not theirs.
    stalled: StreamSet,
    accounted_bytes: u64,
}

/// How one turn went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PumpOutcome {
    /// Bytes moved; there may be more.
    Moved {
        /// How many.
        bytes: u32,
    },
    /// Nothing there now.
    Empty,
    /// The stream has ended.
    Eof,
    /// No room: the spool is full and may not drop, or the disk is full. The child waits; ask again later.
    Stalled,
    /// The spool is full of what somebody still wants ([`PumpContext::wanted`]). The child waits; ask again when that changes.
    WaitingForReader,
}

/// Circumstances of a context.
#[derive(Debug, Clone, Copy)]
pub struct PumpContext {
    /// The time.
    pub now: Instant,
    /// Whether other streams wait for their context.
    pub others_ready: bool,
    /// The first entry that somebody is about to read: it and those after it are not dropped for newer ones.
    pub wanted: Option<Seq>,
}

/// A file of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFileKind {
    /// The index.
    Index,
    /// The data file of this slot.
    Data(usize),
}

/// Told of each new file before a byte of output goes into it, so that the other holder has it first.
pub type RegisterFile<'a> = &'a mut dyn FnMut(LogFileKind, &OwnedFd) -> Result<(), Errno>;

/// The files of a log found again.
#[derive(Debug)]
pub struct RecoveredFiles {
    /// The index; none if nothing was ever printed.
    pub index: Option<OwnedFd>,
    /// The data files there are.
    pub data: [Option<OwnedFd>; 2],
}

impl Spool {
    /// The log of a process that is about to start.
    pub fn begin(directory: Arc<SpoolDirectory>, quota: Quota, sources: Vec<(Stream, OutputSource)>) -> Self {
        let open = streams(&sources);
        let log_files = LogFiles::new(IndexFile::in_memory());
        let mut spool = Self::with_files(directory, log_files, quota, Log::default(), Lifecycle::new(open));
        for (stream, source) in sources {
            spool.movers[slot(stream)] = Some(StreamMover::new(stream, source, 0));
        }
        spool
    }

    /// Where readers find it.
    pub fn log_files(&self) -> &Arc<LogFiles> {
        &self.log_files
    }

    /// What readers may know.
    pub fn head(&self) -> Head {
        self.log.head(self.retry_at.is_some())
    }

    /// Streams that may still bring bytes.
    pub fn open_streams(&self) -> StreamSet {
        self.lifecycle.open()
    }

    /// What it costs on disk.
    pub fn cost_bytes(&self) -> u64 {
        self.log.cost_bytes()
    }

    /// Whether it is a terminal's.
    pub fn is_pty(&self) -> bool {
        self.movers[0].as_ref().is_some_and(|mover| mover.stream == Stream::Pty)
    }

    /// Whether all logs together hold too much, and this one is not to blame.
    pub fn excess_of_others(&self) -> bool {
        self.directory.excess_bytes() > 0 && self.log.cost_bytes() <= self.directory.fair_share_bytes()
    }

    /// The descriptor whose readiness means that `stream` has something.
    pub fn source(&self, stream: Stream) -> Option<&Arc<OwnedFd>> {
        self.movers[slot(stream)].as_ref().and_then(StreamMover::descriptor)
    }

    /// Moves what `stream` has, at most one bite.
    pub fn pump(&mut self, stream: Stream, context: PumpContext, register_file: RegisterFile<'_>) -> PumpOutcome {
        self.pump_when_full(WhenFull::WaitForReader, stream, context, register_file)
    }

    fn pump_when_full(
        &mut self,
        when_full: WhenFull,
        stream: Stream,
        context: PumpContext,
        register_file: RegisterFile<'_>,
    ) -> PumpOutcome {
        let outcome = self.try_pump(when_full, stream, context, register_file).unwrap_or_else(|errno| {
            debug_assert!(is_temporary(errno), "only what may pass makes a child wait, not {errno}");
            PumpOutcome::Stalled
        });
        if outcome == PumpOutcome::Stalled {
            self.stalled.insert(stream);
            self.retry_at = Some(context.now + STALL_RETRY);
        } else {
            self.stalled.remove(stream);
            self.retry_at = self.retry_at.filter(|_| !self.stalled.is_empty());
        }
        outcome
    }

    /// When [`Self::on_time`] has something to do. While it has no room, that is when to try again, streams included.
    pub fn deadline(&self) -> Option<Instant> {
        let flush = self.movers.iter().flatten().filter_map(|mover| mover.flush_by).min();
        let due = [flush, self.pending_exit.map(|(_, due)| due)].into_iter().flatten().min();
        self.retry_at.or(due)
    }

    /// Time has passed: seals what was gathered long enough, and tells of the exit.
    pub fn on_time(&mut self, now: Instant, register_file: RegisterFile<'_>) {
        let done = self.try_on_time(now, register_file);
        self.stalled = StreamSet::NONE;
        self.retry_at = done.is_err().then(|| now + STALL_RETRY);
    }

    fn try_on_time(&mut self, now: Instant, register_file: RegisterFile<'_>) -> Result<(), Errno> {
        self.write_records()?;
        for at in 0..2 {
            if self.movers[at].as_ref().is_some_and(|mover| mover.flush_by.is_some_and(|by| by <= now)) {
                self.record_new_bytes(at)?;
            }
        }
        let ended = self.lifecycle.open().is_empty();
        match self.pending_exit {
            Some((exit, due)) if due <= now || ended => self.append_exit(exit, register_file),
            _ => Ok(()),
        }
    }

    fn with_files(
        directory: Arc<SpoolDirectory>,
        log_files: LogFiles,
        quota: Quota,
        log: Log,
        lifecycle: Lifecycle,
    ) -> Self {
        directory.add_spool();
        Self {
            log_files: Arc::new(log_files),
            directory,
            quota,
            log,
            lifecycle,
            dropped: Dropped::default(),
            movers: [None, None],
            unwritten: Vec::new(),
            pending_exit: None,
            retry_at: None,
            stalled: StreamSet::NONE,
            accounted_bytes: 0,
        }
    }

    fn try_pump(
        &mut self,
        when_full: WhenFull,
        stream: Stream,
        context: PumpContext,
        register_file: RegisterFile<'_>,
    ) -> Result<PumpOutcome, Errno> {
        self.write_records()?;
        let at = slot(stream);
        let Some(mover) = self.movers[at].as_ref().filter(|mover| mover.is_open()) else { return Ok(PumpOutcome::Eof) };
        let unrecorded_bytes = mover.unrecorded_bytes();
        let full = match self.make_space(unrecorded_bytes, context.wanted)? {
            SpaceDecision::Wait => Some(PumpOutcome::Stalled),
            SpaceDecision::Drop { .. } if context.wanted.is_some() && when_full == WhenFull::WaitForReader => {
                Some(PumpOutcome::WaitingForReader)
            }
            SpaceDecision::Drop { .. } | SpaceDecision::Free => None,
        };
        let Some(mover) = self.movers[at].as_mut() else { return Ok(PumpOutcome::Eof) };
        if let Some(full) = full {
            return if matches!(mover.peek(), MoveResult::Eof) { self.finish_stream(stream) } else { Ok(full) };
        }
        if self.log_files.data[at].get().is_none() {
            match mover.peek() {
                MoveResult::Bytes(_) => {}
                MoveResult::Empty => return Ok(PumpOutcome::Empty),
                MoveResult::Eof => return self.finish_stream(stream),
            }
            self.log_files.index.create_file(&self.directory, register_file)?;
            let file = self.directory.create_file()?;
            register_file(LogFileKind::Data(at), &file)?;
            let _ = self.log_files.data[at].set(file);
        }
        let file = self.log_files.data[at].get().ok_or(Errno::IO)?;
        let moved = mover.move_bytes(file.as_fd(), context.others_ready)?;
        match moved {
            MoveResult::Empty => {
                let flush = mover.flush_due(false, context.now);
                if flush {
                    self.record_new_bytes(at)?;
                }
                Ok(PumpOutcome::Empty)
            }
            MoveResult::Eof => self.finish_stream(stream),
            MoveResult::Bytes(bytes) => {
                if mover.flush_due(true, context.now) {
                    self.record_new_bytes(at)?;
                }
                self.update_accounting();
                self.make_space(0, context.wanted)?;
                Ok(PumpOutcome::Moved { bytes })
            }
        }
    }

    /// Names the bytes of a data file that no record names yet.
    fn record_new_bytes(&mut self, at: usize) -> Result<(), Errno> {
        let other_end = self.movers[1 - at].as_ref().map_or(self.other_end(at), |mover| mover.end);
        let Some(mover) = &mut self.movers[at] else { return Ok(()) };
        let unix_micros = unix_micros();
        while mover.end < mover.written {
            let len = (mover.written - mover.end).min(u64::from(ENTRY_BYTES)) as u32;
            let kind = RecordKind::Output(mover.stream);
            self.unwritten.push(IndexRecord { kind, len, offset: mover.end, other_end, unix_micros });
            mover.end += u64::from(len);
        }
        mover.flush_by = None;
        self.write_records()
    }

    /// Makes the records there are; on a full disk they stay for the next context, and the bytes they name stay too.
    fn write_records(&mut self) -> Result<(), Errno> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let next = self.log.head(false).next_seq;
        self.log_files.index.append(next, &self.unwritten)?;
        for record in self.unwritten.drain(..) {
            match record.kind {
                RecordKind::Output(_) => self.log.append_output(record.len),
                RecordKind::Closed => self.log.append_closed(),
                RecordKind::Exited => next,
            };
        }
        Ok(())
    }

    /// Where the data file beside `at` ends, when its stream is long gone: all of it is recorded.
    fn other_end(&self, at: usize) -> u64 {
        let size = |file: &OwnedFd| rustix::fs::fstat(file).map_or(0, |stat| stat.st_size as u64);
        self.log_files.data[1 - at].get().map_or(0, size)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.directory.remove_spool(self.accounted_bytes);
    }
}

fn streams(sources: &[(Stream, OutputSource)]) -> StreamSet {
    let mut open = StreamSet::NONE;
    for (stream, _) in sources {
        open.insert(*stream);
    }
    open
}

/// No room on the disk or in a table of the kernel, or the folder is out of reach for now. Nothing is lost meanwhile.
fn is_temporary(errno: Errno) -> bool {
    let room = [Errno::NOSPC, Errno::DQUOT, Errno::AGAIN, Errno::NOMEM, Errno::NFILE, Errno::MFILE, Errno::TOOMANYREFS];
    let reach = [Errno::NOENT, Errno::ROFS, Errno::ACCESS, Errno::PERM, Errno::IO];
    room.contains(&errno) || reach.contains(&errno)
}

fn unix_micros() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
