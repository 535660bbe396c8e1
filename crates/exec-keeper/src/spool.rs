//! The spool of one process: it takes what the child prints and appends it to the files of its log, in such a way that
//! a `kill -9` of the writer loses no byte.
//!
//! ```text
//!   pipe ───────────── splice ─────► data file ──► record in the index ──► head
//!   PTY ── splice ──► relay pipe ──► data file (batched) ──► record …
//! ```
//!
//! At every instruction each byte is in exactly one of: the child's pipe, the relay pipe, the data file. The keeper and
//! its owner both hold all three, so whichever of them is left goes on from there ([`Spool::resume`]). Bytes of a data
//! file that no record names yet become the next record. Only one side writes at a time: the owner while it lives, then
//! the keeper.
//!
//! The spool never waits. It is told that a stream is ready or that a deadline has come, and returns what it did.

pub mod directory;
pub mod index;
mod index_file;
pub mod log_files;
pub mod log_scan;
mod recovery;
mod stream_mover;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use exec_core::flow::{Quota, SpaceDecision};
use exec_core::lifecycle::{Append, Lifecycle, StreamSet};
use exec_core::limits::{ENTRY_BYTES, PTY_BATCH_TIME, PUNCH_BYTES, STALL_RETRY};
use exec_core::{Exit, Head, Log, Overflow, Seq, Stall, Stream};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use directory::SpoolDirectory;
use index::{Dropped, IndexRecord, RecordKind, slot_of};
use index_file::IndexFile;
use log_files::{FirstHeld, LogFiles};
pub use stream_mover::OutputSource;
use stream_mover::{MoveResult, StreamMover};

#[derive(Debug)]
pub struct Spool {
    log_files: Arc<LogFiles>,
    directory: Arc<SpoolDirectory>,
    quota: Quota,
    log: Log,
    lifecycle: Lifecycle,
    dropped: Dropped,
    /// By data slot: stdout or the terminal, and stderr.
    movers: [Option<StreamMover>; 2],
    /// Records that the disk had no space for. They are written before anything else moves.
    unwritten: Vec<IndexRecord>,
    /// The exit, and when it is to be appended.
    pending_exit: Option<(Exit, Instant)>,
    /// When to try again what failed for want of space.
    retry_at: Option<Instant>,
    /// What there was no space in, when that last happened.
    stall: Option<Stall>,
    /// Streams that found no space. If one of them succeeds, the others still wait for `retry_at`.
    stalled: StreamSet,
    /// Our share of the bytes that `directory` counts.
    accounted_bytes: u64,
    /// What the index says of readers, for whoever resumes this log.
    nobody_reads: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PumpOutcome {
    /// There may be more.
    Moved {
        bytes: u32,
    },
    /// The stream has nothing now.
    Empty,
    Eof,
    /// There is no space: the spool is full and may not drop, or the disk is full. The child waits until
    /// [`Spool::deadline`].
    Stalled,
    /// The spool is full of entries that a reader still wants ([`PumpContext::wanted`]). The child waits until that
    /// changes.
    WaitingForReader,
}

#[derive(Debug, Clone, Copy)]
pub struct PumpContext {
    pub now: Instant,
    /// Whether other streams have something too. Then less is moved at once.
    pub others_ready: bool,
    /// The first entry that a reader is about to read. This entry and later ones are not dropped for new ones.
    pub wanted: Option<Seq>,
}

/// What to do if the spool is full and may drop nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    WaitForReader,
    /// Used for what the leader left in its pipes when it exited, which is bounded and comes before the exit.
    Exceed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFileKind {
    Index,
    /// With its data slot.
    Data(usize),
}

/// Called with each new file before output goes into it, so that the keeper and the owner both hold it from then on.
pub type RegisterFile<'a> = &'a mut dyn FnMut(LogFileKind, &OwnedFd) -> Result<(), Errno>;

/// The files of a log that somebody else has written.
#[derive(Debug)]
pub struct RecoveredFiles {
    /// `None` if nothing was ever printed.
    pub index: Option<OwnedFd>,
    pub data: [Option<OwnedFd>; 2],
}

impl Spool {
    /// The empty log of a process that was just started.
    pub fn begin(directory: Arc<SpoolDirectory>, quota: Quota, sources: Vec<(Stream, OutputSource)>) -> Self {
        let log_files = LogFiles::new(IndexFile::in_memory());
        let lifecycle = Lifecycle::new(streams(&sources));
        let mut spool = Self::with_files(directory, log_files, quota, Log::default(), lifecycle);
        for (stream, source) in sources {
            spool.movers[slot_of(stream)] = Some(StreamMover::new(stream, Some(source), 0, 0));
        }
        spool
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
            stall: None,
            stalled: StreamSet::NONE,
            accounted_bytes: 0,
            nobody_reads: false,
        }
    }

    /// The files, for readers.
    pub fn log_files(&self) -> &Arc<LogFiles> {
        &self.log_files
    }

    pub fn head(&self) -> Head {
        self.log.head(self.retry_at.and(self.stall))
    }

    /// Whether nobody followed the log at the last move. If somebody did, and its writer was killed, the next one drops
    /// nothing for a while ([`READER_TIMEOUT`](exec_core::limits::READER_TIMEOUT)): the reader may come back.
    pub fn nobody_reads(&self) -> bool {
        self.nobody_reads
    }

    pub fn open_streams(&self) -> StreamSet {
        self.lifecycle.open()
    }

    pub fn cost_bytes(&self) -> u64 {
        self.log.cost_bytes()
    }

    pub fn is_pty(&self) -> bool {
        self.movers[0].as_ref().is_some_and(|mover| mover.stream == Stream::Pty)
    }

    /// Whether all logs together hold too much although this one is within its share.
    pub fn excess_of_others(&self) -> bool {
        self.directory.excess_bytes() > 0 && self.log.cost_bytes() <= self.directory.fair_share_bytes()
    }

    /// The descriptor that becomes readable when `stream` has something.
    pub fn source(&self, stream: Stream) -> Option<&Arc<OwnedFd>> {
        self.movers[slot_of(stream)].as_ref().and_then(StreamMover::descriptor)
    }

    /// When to call [`Self::on_time`]. While there is no space, that is when to try again, the streams included.
    pub fn deadline(&self) -> Option<Instant> {
        let flush = self.movers.iter().flatten().filter_map(|mover| mover.flush_by).min();
        let due = [flush, self.pending_exit.map(|(_, due)| due)].into_iter().flatten().min();
        self.retry_at.or(due)
    }

    /// Records terminal output that was batched long enough, and appends the exit if it is due.
    pub fn on_time(&mut self, now: Instant, wanted: Option<Seq>, register_file: RegisterFile<'_>) {
        let done = self.with_space(wanted, |spool| spool.try_on_time(now, register_file));
        self.stalled = StreamSet::NONE;
        self.retry_at = done.is_err().then(|| now + STALL_RETRY);
        self.stall = Some(Stall::Disk);
    }

    fn try_on_time(&mut self, now: Instant, register_file: RegisterFile<'_>) -> Result<(), Errno> {
        self.write_records()?;
        for slot in 0..2 {
            if self.movers[slot].as_ref().is_some_and(|mover| mover.flush_by.is_some_and(|by| by <= now)) {
                self.record_new_bytes(slot)?;
            }
        }
        let ended = self.lifecycle.open().is_empty();
        match self.pending_exit {
            Some((exit, due)) if due <= now || ended => self.append_exit(exit, register_file),
            _ => Ok(()),
        }
    }
}

/// Moving bytes.
impl Spool {
    /// Moves what `stream` has, in at most one step.
    pub fn pump(&mut self, stream: Stream, context: PumpContext, register_file: RegisterFile<'_>) -> PumpOutcome {
        self.pump_or(WhenFull::WaitForReader, stream, context, register_file)
    }

    fn pump_or(
        &mut self,
        when_full: WhenFull,
        stream: Stream,
        context: PumpContext,
        register_file: RegisterFile<'_>,
    ) -> PumpOutcome {
        let pumped = self.with_space(context.wanted, |spool| spool.try_pump(when_full, stream, context, register_file));
        let outcome = pumped.unwrap_or_else(|errno| {
            debug_assert!(is_temporary(errno), "a child must not wait for an error that stays: {errno}");
            PumpOutcome::Stalled
        });
        if outcome == PumpOutcome::Stalled {
            self.stall = Some(if pumped.is_ok() { Stall::Spool } else { Stall::Disk });
            self.stalled.insert(stream);
            self.retry_at = Some(context.now + STALL_RETRY);
        } else {
            self.stalled.remove(stream);
            self.retry_at = self.retry_at.filter(|_| !self.stalled.is_empty());
        }
        outcome
    }

    fn try_pump(
        &mut self,
        when_full: WhenFull,
        stream: Stream,
        context: PumpContext,
        register_file: RegisterFile<'_>,
    ) -> Result<PumpOutcome, Errno> {
        self.write_records()?;
        self.note_readers(context.wanted);
        let slot = slot_of(stream);
        let Some(mover) = self.movers[slot].as_ref().filter(|mover| mover.is_open()) else {
            return Ok(PumpOutcome::Eof);
        };
        let unrecorded_bytes = mover.unrecorded_bytes();
        let full = match self.make_space(unrecorded_bytes, context.wanted)? {
            _ if when_full == WhenFull::Exceed => None,
            SpaceDecision::Wait => Some(PumpOutcome::Stalled),
            SpaceDecision::Drop { .. } if context.wanted.is_some() => Some(PumpOutcome::WaitingForReader),
            SpaceDecision::Drop { .. } | SpaceDecision::Free => None,
        };
        let Some(mover) = self.movers[slot].as_mut() else { return Ok(PumpOutcome::Eof) };
        if let Some(full) = full {
            if mover.peek() == MoveResult::Eof {
                return self.finish_stream(stream);
            }
            // What is left in a stream that nobody writes to any more is bounded. It may pass the cap, because a log
            // that waits for space would never be complete if nobody frees any.
            if !mover.has_no_writer() {
                return Ok(full);
            }
        }
        if self.log_files.data[slot].get().is_none() {
            match mover.peek() {
                MoveResult::Bytes(_) => {}
                MoveResult::Empty => return Ok(PumpOutcome::Empty),
                MoveResult::Eof => return self.finish_stream(stream),
            }
            self.log_files.index.ensure_file(&self.directory, register_file)?;
            let file = self.directory.create_file()?;
            register_file(LogFileKind::Data(slot), &file)?;
            let _ = self.log_files.data[slot].set(file);
        }
        let file = self.log_files.data[slot].get().ok_or(Errno::IO)?;
        match mover.move_bytes(file.as_fd(), context.others_ready)? {
            MoveResult::Empty => {
                if mover.is_flush_due(false, context.now) {
                    self.record_new_bytes(slot)?;
                }
                Ok(PumpOutcome::Empty)
            }
            MoveResult::Eof => self.finish_stream(stream),
            MoveResult::Bytes(bytes) => {
                if mover.is_flush_due(true, context.now) {
                    self.record_new_bytes(slot)?;
                }
                self.update_accounting();
                self.make_space(0, context.wanted)?;
                Ok(PumpOutcome::Moved { bytes })
            }
        }
    }

    fn note_readers(&mut self, wanted: Option<Seq>) {
        let nobody_reads = wanted.is_none();
        // If it fails it is tried again at the next move. It is one byte of the first page, which is on the disk already.
        if self.nobody_reads != nobody_reads && self.log_files.index.write_nobody_reads(nobody_reads).is_ok() {
            self.nobody_reads = nobody_reads;
        }
    }

    /// Makes records for the bytes of a data file that no record names yet.
    fn record_new_bytes(&mut self, slot: usize) -> Result<(), Errno> {
        let other_end = self.recorded_end(1 - slot);
        let Some(mover) = &mut self.movers[slot] else { return Ok(()) };
        let unix_micros = unix_micros();
        let terminal = mover.terminal_size();
        while mover.recorded < mover.written {
            let len = mover.unrecorded_bytes().min(u64::from(ENTRY_BYTES)) as u32;
            let kind = RecordKind::Output(mover.stream);
            self.unwritten.push(IndexRecord { kind, len, offset: mover.recorded, other_end, unix_micros, terminal });
            mover.recorded += u64::from(len);
        }
        mover.flush_by = None;
        self.write_records()
    }

    /// Writes the pending records. If the disk is full they stay pending, and so do the bytes they name.
    fn write_records(&mut self) -> Result<(), Errno> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let next = self.log.head(None).next_seq;
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

    /// Up to where records name the bytes of a data file. If its stream is long gone, that is all of it.
    fn recorded_end(&self, slot: usize) -> u64 {
        let size = |file: &OwnedFd| rustix::fs::fstat(file).map_or(0, |stat| stat.st_size as u64);
        match &self.movers[slot] {
            Some(mover) => mover.recorded,
            None => self.log_files.data[slot].get().map_or(0, size),
        }
    }
}

/// The end of a log: the last output of the leader, its exit, the end of each stream, `closed`.
impl Spool {
    /// The leader was reaped. What it had printed is moved first.
    pub fn on_exit(&mut self, exit: Exit, context: PumpContext, register_file: RegisterFile<'_>) {
        if self.lifecycle.exited() || self.pending_exit.is_some() {
            return;
        }
        let mut due = context.now;
        for stream in self.lifecycle.open().iter() {
            let drained = self.drain_at_exit(stream, context, register_file);
            // The kernel hands over the last bytes of a terminal a moment after the child has exited.
            if stream == Stream::Pty && drained != PumpOutcome::Eof {
                due = context.now + PTY_BATCH_TIME;
            }
        }
        self.pending_exit = Some((exit, due));
        // Not `on_time`, which would clear `stalled`: a stream that has just found no space still waits for its retry.
        if self.with_space(context.wanted, |spool| spool.try_on_time(context.now, register_file)).is_err() {
            self.retry_at = Some(context.now + STALL_RETRY);
            self.stall = Some(Stall::Disk);
        }
    }

    /// Moves what the leader left in the stream. No more than a pipe holds, or a grandchild that floods the pipe would
    /// put off the exit for ever.
    fn drain_at_exit(&mut self, stream: Stream, context: PumpContext, register_file: RegisterFile<'_>) -> PumpOutcome {
        let mut left = i64::from(self.movers[slot_of(stream)].as_ref().map_or(0, StreamMover::ready_bytes));
        loop {
            match self.pump_or(WhenFull::Exceed, stream, context, register_file) {
                PumpOutcome::Moved { bytes } => left -= i64::from(bytes),
                done => return done,
            }
            if left <= 0 {
                return PumpOutcome::Empty;
            }
        }
    }

    fn finish_stream(&mut self, stream: Stream) -> Result<PumpOutcome, Errno> {
        self.record_new_bytes(slot_of(stream))?;
        if let Some(mover) = &mut self.movers[slot_of(stream)] {
            mover.close();
        }
        if let Some(Append::Closed) = self.lifecycle.on_eof(stream) {
            self.append_closed()?;
        }
        Ok(PumpOutcome::Eof)
    }

    fn append_exit(&mut self, exit: Exit, register_file: RegisterFile<'_>) -> Result<(), Errno> {
        for slot in 0..2 {
            self.record_new_bytes(slot)?;
        }
        if !self.lifecycle.open().is_empty() {
            // Output may follow the exit. Whoever resumes this log must find them in that order, so it needs a file.
            self.log_files.index.ensure_file(&self.directory, register_file)?;
        }
        self.write_records()?;
        let seq = self.log.head(None).next_seq;
        self.log_files.index.write_exit(seq, &exit)?;
        self.log_files.index.append(seq, &[self.record_without_bytes(RecordKind::Exited)])?;
        self.pending_exit = None;
        self.log.append_exit(exit);
        if let (_, Some(Append::Closed)) = self.lifecycle.on_exit(exit) {
            self.append_closed()?;
        }
        Ok(())
    }

    fn append_closed(&mut self) -> Result<(), Errno> {
        self.unwritten.push(self.record_without_bytes(RecordKind::Closed));
        self.write_records()
    }

    /// It still says where both data files end.
    fn record_without_bytes(&self, kind: RecordKind) -> IndexRecord {
        let (offset, other_end) = (self.recorded_end(0), self.recorded_end(1));
        IndexRecord { kind, len: 0, offset, other_end, unix_micros: unix_micros(), terminal: None }
    }
}

/// Retention: the oldest entries are dropped when there is too much.
impl Spool {
    /// Drops what is too much, but nothing from `wanted` on. The result is whether too much is left.
    pub fn trim(&mut self, wanted: Option<Seq>) -> bool {
        matches!(self.make_space(0, wanted), Ok(SpaceDecision::Drop { .. }))
    }

    /// Drops at least `bytes` of the oldest output, if the policy allows, but nothing from `wanted` on. The result is
    /// how many bytes were dropped.
    pub fn shed(&mut self, bytes: u64, wanted: Option<Seq>) -> u64 {
        let before = self.log.cost_bytes();
        if self.quota.overflow == Overflow::DropOldest {
            let _ = self.drop_oldest(bytes, wanted);
            self.update_accounting();
        }
        before - self.log.cost_bytes()
    }

    /// Takes a step that needs space on the disk. If there is none, some of what every reader has read is dropped, and
    /// the step is tried once more.
    fn with_space<T>(
        &mut self,
        wanted: Option<Seq>,
        mut step: impl FnMut(&mut Self) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match step(self) {
            Err(Errno::NOSPC | Errno::DQUOT) if self.drop_read(wanted) => step(self),
            other => other,
        }
    }

    /// Whether something was dropped.
    fn drop_read(&mut self, wanted: Option<Seq>) -> bool {
        if wanted.is_none() || self.quota.overflow == Overflow::Block {
            return false;
        }
        let before = self.log.head(None).first_seq;
        let dropped = self.drop_and_punch(PUNCH_BYTES, wanted, PAGE_BYTES);
        self.update_accounting();
        dropped.is_ok() && self.log.head(None).first_seq > before
    }

    /// Drops what is too much, but nothing from `wanted` on; then decides whether more may come, if `unrecorded_bytes`
    /// are in the data file without a record.
    fn make_space(&mut self, unrecorded_bytes: u64, wanted: Option<Seq>) -> Result<SpaceDecision, Errno> {
        match self.decide_space(unrecorded_bytes) {
            SpaceDecision::Drop { bytes } => {
                self.drop_oldest(bytes, wanted)?;
                self.update_accounting();
                Ok(self.decide_space(unrecorded_bytes))
            }
            decision => Ok(decision),
        }
    }

    fn decide_space(&self, unrecorded_bytes: u64) -> SpaceDecision {
        let cost_bytes = self.log.cost_bytes();
        let over_share = cost_bytes > self.directory.fair_share_bytes();
        let shared_excess = if over_share { self.directory.excess_bytes() } else { 0 };
        self.quota.decide_space(cost_bytes + unrecorded_bytes, shared_excess)
    }

    fn drop_oldest(&mut self, bytes: u64, wanted: Option<Seq>) -> Result<(), Errno> {
        self.drop_and_punch(bytes, wanted, PUNCH_BYTES)
    }

    /// The order matters: first the index says what is dropped, then readers are told, then the holes are punched, up to
    /// a multiple of `punch_bytes`.
    fn drop_and_punch(&mut self, bytes: u64, wanted: Option<Seq>, punch_bytes: u64) -> Result<(), Errno> {
        let head = self.log.head(None);
        let end = wanted.map_or(head.next_seq, |wanted| wanted.min(head.next_seq));
        if head.first_seq >= end {
            return Ok(());
        }
        let (mut freed, mut seq) = (0, head.first_seq);
        let mut dropped = self.dropped;
        let mut held_bytes = head.held_bytes;
        let mut lens = Vec::new();
        while freed < bytes && seq < end {
            // Many records at once: of small entries, one step drops tens of thousands.
            for record in self.log_files.read_some_records(seq, end)? {
                if freed >= bytes {
                    break;
                }
                // A damaged record must not make us drop more than there is.
                held_bytes = held_bytes.checked_sub(u64::from(record.len)).ok_or(Errno::IO)?;
                if let RecordKind::Output(stream) = record.kind {
                    dropped.starts[slot_of(stream)] = record.offset + u64::from(record.len);
                    dropped.bytes += u64::from(record.len);
                }
                freed += u64::from(record.len) + index::RECORD_BYTES;
                lens.push(record.len);
                seq += 1;
            }
        }
        dropped.first_seq = seq;
        self.log_files.index.write_dropped(&dropped)?;
        self.log_files.publish_first_held(FirstHeld { seq, dropped_bytes: dropped.bytes });
        for len in lens {
            self.log.drop_first(len);
        }
        let before = std::mem::replace(&mut self.dropped, dropped);
        for slot in 0..2 {
            if let Some(file) = self.log_files.data[slot].get() {
                punch_hole(file, before.starts[slot], dropped.starts[slot], punch_bytes);
            }
        }
        if let Some(file) = self.log_files.index.file() {
            punch_hole(file, index::position(before.first_seq), index::position(seq), punch_bytes);
        }
        Ok(())
    }

    fn update_accounting(&mut self) {
        let now = self.log.cost_bytes();
        self.directory.add_bytes(now);
        self.directory.remove_bytes(self.accounted_bytes);
        self.accounted_bytes = now;
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

/// There is no space on the disk or in a table of the kernel, or the directory cannot be reached for now. Nothing is
/// lost if we try again later.
fn is_temporary(errno: Errno) -> bool {
    // FBIG: a limit of this process (`ulimit -f`), which is to it what a full disk is to everybody.
    let disk = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG];
    let kernel = [Errno::AGAIN, Errno::NOMEM, Errno::NFILE, Errno::MFILE, Errno::TOOMANYREFS];
    let reach = [Errno::NOENT, Errno::ROFS, Errno::ACCESS, Errno::PERM, Errno::IO];
    [&disk[..], &kernel, &reach].iter().any(|errnos| errnos.contains(&errno))
}

/// The smallest hole that gives something back to the disk.
const PAGE_BYTES: u64 = 4096;

/// Gives the disk back what lies between `from` and `to`, up to a multiple of `step_bytes`. It begins where an earlier
/// hole of larger steps may have ended. If the file system cannot punch holes, the bytes stay and cost only space.
fn punch_hole(file: &OwnedFd, from: u64, to: u64, step_bytes: u64) {
    let from = from / PUNCH_BYTES * PUNCH_BYTES;
    let to = to / step_bytes * step_bytes;
    // The first page stays: in an index it holds the header.
    let from = if from == 0 { PAGE_BYTES } else { from };
    if to > from {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(file, flags, from, to - from);
    }
}

fn unix_micros() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
