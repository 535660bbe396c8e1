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

pub mod folder;
pub mod index;
mod lane;
pub mod shelf;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use exec_core::flow::{Quota, Room};
use exec_core::life::{Append, Life, Streams};
use exec_core::limits::{ENTRY_BYTES, PTY_GATHER, PUNCH_BYTES, STALL_RETRY};
use exec_core::{Exit, Head, Log, Stream};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use folder::Folder;
use index::{Dropped, Kind, Record, slot};
pub use lane::Source;
use lane::{Bite, Lane};
use shelf::{First, Shelf};

/// The mover of one process's output.
#[derive(Debug)]
pub struct Spool {
    shelf: Arc<Shelf>,
    folder: Arc<Folder>,
    quota: Quota,
    log: Log,
    life: Life,
    dropped: Dropped,
    lanes: [Option<Lane>; 2],
    /// Records that the disk had no room for; made before anything else moves.
    unwritten: Vec<Record>,
    pending_exit: Option<(Exit, Instant)>,
    /// No room for something: when to try again.
    retry_at: Option<Instant>,
    /// Streams that found no room; another one's luck is not theirs.
    stalled: Streams,
    accounted_bytes: u64,
}

/// How one turn went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pumped {
    /// Bytes moved; there may be more.
    Moved {
        /// How many.
        bytes: u32,
    },
    /// Nothing there now.
    Dry,
    /// The stream has ended.
    Eof,
    /// No room: the spool is full and may not drop, or the disk is full. The child waits; ask again later.
    Stalled,
}

/// Circumstances of a turn.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// The time.
    pub now: Instant,
    /// Whether other streams wait for their turn.
    pub others_ready: bool,
}

/// Told of each new data file before a byte goes into it, so that the other holder has it first.
pub type Keep<'a> = &'a mut dyn FnMut(usize, &OwnedFd) -> Result<(), Errno>;

/// The files of a log found again.
#[derive(Debug)]
pub struct Files {
    /// The index.
    pub index: OwnedFd,
    /// The data files there are.
    pub data: [Option<OwnedFd>; 2],
}

impl Spool {
    /// The log of a process that is about to start; `index` is an empty file of `folder`.
    pub fn begin(folder: Arc<Folder>, index: OwnedFd, quota: Quota, sources: Vec<(Stream, Source)>) -> Self {
        let open = streams(&sources);
        let mut spool = Self::over(folder, Shelf::new(index), quota, Log::default(), Life::new(open));
        for (stream, source) in sources {
            spool.lanes[slot(stream)] = Some(Lane::new(stream, source, 0));
        }
        spool
    }

    /// A log whose mover is gone: reads the index, names the bytes no record names yet, and goes on.
    pub fn resume(
        folder: Arc<Folder>,
        files: Files,
        quota: Quota,
        sources: Vec<(Stream, Source)>,
    ) -> Result<Self, Errno> {
        let size = rustix::fs::fstat(&files.index)?.st_size as u64;
        let shelf = Shelf::new(files.index);
        let header = shelf.header()?;
        let next = size.saturating_sub(index::HEADER_BYTES) / index::RECORD_BYTES + 1;
        let last = if next > 1 { Some(shelf.record(next - 1)?) } else { None };
        let ends = last.map_or([0; 2], |last| last.ends());
        if !header.fits(next, ends) {
            return Err(Errno::IO);
        }
        shelf.publish_first(First { seq: header.dropped.first_seq, dropped_bytes: header.dropped.bytes });
        // A mover that was killed between the note of the exit and its record may have had a successor that recorded
        // output in that place, and was killed too.
        let told = |seq| seq < header.dropped.first_seq || shelf.record(seq).is_ok_and(|it| it.kind == Kind::Exited);
        let exited = header.exit.filter(|(seq, _)| *seq < next && told(*seq));
        let closed = last.is_some_and(|last| last.kind == Kind::Closed);
        if closed && exited.is_none() {
            return Err(Errno::IO);
        }
        let log = Log::resume(&Head {
            first_seq: header.dropped.first_seq,
            next_seq: next,
            held_bytes: (ends[0] + ends[1]).saturating_sub(header.dropped.bytes),
            dropped_bytes: header.dropped.bytes,
            exit: exited,
            closed,
            stalled: false,
        });
        let life = Life::resume(streams(&sources), false, closed);
        let mut spool = Self::over(folder, shelf, quota, log, life);
        spool.dropped = header.dropped;
        let sizes = spool.adopt(files.data, sources, ends)?;
        // Nothing follows the end, whatever a damaged disk put into the files.
        let sizes = if closed { ends } else { sizes };
        match spool.complete(sizes, ends, exited.map(|(_, exit)| exit)) {
            // A full disk keeps no new owner out: what cannot be recorded now is recorded when there is room.
            Err(errno) if may_pass(errno) => spool.retry_at = Some(Instant::now()),
            other => other?,
        }
        if let (Some((_, exit)), None) = (header.exit, exited) {
            spool.pending_exit = Some((exit, Instant::now()));
        }
        spool.account();
        Ok(spool)
    }

    /// Where readers find it.
    pub fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    /// What readers may know.
    pub fn head(&self) -> Head {
        self.log.head(self.retry_at.is_some())
    }

    /// Streams that may still bring bytes.
    pub fn open(&self) -> Streams {
        self.life.open()
    }

    /// What it costs on disk.
    pub fn cost_bytes(&self) -> u64 {
        self.log.cost_bytes()
    }

    /// Whether it is a terminal's.
    pub fn is_pty(&self) -> bool {
        self.lanes[0].as_ref().is_some_and(|lane| lane.stream == Stream::Pty)
    }

    /// Whether all logs together hold too much, and this one is not to blame.
    pub fn excess_of_others(&self) -> bool {
        self.folder.excess_bytes() > 0 && self.log.cost_bytes() <= self.folder.fair_bytes()
    }

    /// The descriptor whose readiness means that `stream` has something.
    pub fn source(&self, stream: Stream) -> Option<&Arc<OwnedFd>> {
        self.lanes[slot(stream)].as_ref().and_then(Lane::descriptor)
    }

    /// Moves what `stream` has, at most one bite.
    pub fn pump(&mut self, stream: Stream, turn: Turn, keep: Keep<'_>) -> Pumped {
        let pumped = self.try_pump(stream, turn, keep).unwrap_or_else(|errno| {
            debug_assert!(may_pass(errno), "only what may pass makes a child wait, not {errno}");
            Pumped::Stalled
        });
        if pumped == Pumped::Stalled {
            self.stalled.insert(stream);
            self.retry_at = Some(turn.now + STALL_RETRY);
        } else {
            self.stalled.remove(stream);
            self.retry_at = self.retry_at.filter(|_| !self.stalled.is_empty());
        }
        pumped
    }

    /// The leader was reaped. What it had printed comes first.
    pub fn exited(&mut self, exit: Exit, turn: Turn, keep: Keep<'_>) {
        if self.life.exited() || self.pending_exit.is_some() {
            return;
        }
        let mut due = turn.now;
        for stream in self.life.open().iter() {
            let drained = self.drain(stream, turn, keep);
            // A terminal hands its last bytes over a moment after its child has ended.
            if stream == Stream::Pty && drained != Pumped::Eof {
                due = turn.now + PTY_GATHER;
            }
        }
        self.pending_exit = Some((exit, due));
        // Not `on_time`: a stream that has just found no room still waits for its next try.
        if self.try_on_time(turn.now).is_err() {
            self.retry_at = Some(turn.now + STALL_RETRY);
        }
    }

    /// When [`Self::on_time`] has something to do. While it has no room, that is when to try again, streams included.
    pub fn deadline(&self) -> Option<Instant> {
        let seal = self.lanes.iter().flatten().filter_map(|lane| lane.seal_by).min();
        let due = [seal, self.pending_exit.map(|(_, due)| due)].into_iter().flatten().min();
        self.retry_at.or(due)
    }

    /// Time has passed: seals what was gathered long enough, and tells of the exit.
    pub fn on_time(&mut self, now: Instant) {
        let done = self.try_on_time(now);
        self.stalled = Streams::NONE;
        self.retry_at = done.is_err().then(|| now + STALL_RETRY);
    }

    fn try_on_time(&mut self, now: Instant) -> Result<(), Errno> {
        self.write_records()?;
        for at in 0..2 {
            if self.lanes[at].as_ref().is_some_and(|lane| lane.seal_by.is_some_and(|by| by <= now)) {
                self.seal(at)?;
            }
        }
        let ended = self.life.open().is_empty();
        match self.pending_exit {
            Some((exit, due)) if due <= now || ended => self.tell_exit(exit),
            _ => Ok(()),
        }
    }

    /// Forgets at least `bytes` of the oldest output, if the policy allows; answers how many.
    pub fn shed(&mut self, bytes: u64) -> u64 {
        let before = self.log.cost_bytes();
        if self.quota.overflow == exec_core::Overflow::DropOldest {
            let _ = self.forget(bytes);
            self.account();
        }
        before - self.log.cost_bytes()
    }

    fn over(folder: Arc<Folder>, shelf: Shelf, quota: Quota, log: Log, life: Life) -> Self {
        folder.enter();
        Self {
            shelf: Arc::new(shelf),
            folder,
            quota,
            log,
            life,
            dropped: Dropped::default(),
            lanes: [None, None],
            unwritten: Vec::new(),
            pending_exit: None,
            retry_at: None,
            stalled: Streams::NONE,
            accounted_bytes: 0,
        }
    }

    /// Takes over data files and sources; answers the size of each file.
    fn adopt(
        &mut self,
        data: [Option<OwnedFd>; 2],
        sources: Vec<(Stream, Source)>,
        ends: [u64; 2],
    ) -> Result<[u64; 2], Errno> {
        let mut sizes = ends;
        for (at, file) in data.into_iter().enumerate() {
            if let Some(file) = file {
                sizes[at] = rustix::fs::fstat(&file)?.st_size as u64;
                if sizes[at] < ends[at] {
                    return Err(Errno::IO);
                }
                let _ = self.shelf.data[at].set(file);
            }
        }
        for (stream, source) in sources {
            let at = slot(stream);
            let mut lane = Lane::new(stream, source, ends[at]);
            lane.written = sizes[at];
            self.lanes[at] = Some(lane);
        }
        Ok(sizes)
    }

    /// Names what a mover that died had moved, and says what it would have said next.
    fn complete(&mut self, sizes: [u64; 2], ends: [u64; 2], exited: Option<Exit>) -> Result<(), Errno> {
        let mut outcome = Ok(());
        for (at, size) in sizes.into_iter().enumerate() {
            if let Some(lane) = &mut self.lanes[at] {
                outcome = outcome.and(lane.drain_relay(self.shelf.data[at].get(), size));
            } else if size > ends[at] {
                // The stream had ended, its last bytes had no record yet.
                let stream = if at == 1 { Stream::Stderr } else { Stream::Stdout };
                self.lanes[at] = Some(Lane::ended(stream, ends[at], size));
            }
            outcome = outcome.and(self.seal(at));
        }
        // It may have died between the record of the exit and that of the end, with no stream left to bring about one.
        if let Some(exit) = exited
            && let (_, Some(Append::Closed)) = self.life.on_exit(exit)
        {
            outcome = outcome.and(self.tell_closed());
        }
        outcome
    }

    fn try_pump(&mut self, stream: Stream, turn: Turn, keep: Keep<'_>) -> Result<Pumped, Errno> {
        self.write_records()?;
        let at = slot(stream);
        let Some(lane) = self.lanes[at].as_mut().filter(|lane| lane.is_open()) else { return Ok(Pumped::Eof) };
        let shared_excess = match self.folder.excess_bytes() {
            excess if self.log.cost_bytes() > self.folder.fair_bytes() => excess,
            _ => 0,
        };
        let room = self.quota.room(self.log.cost_bytes() + lane.unsealed_bytes(), shared_excess);
        if room == Room::Wait {
            return Ok(Pumped::Stalled);
        }
        if self.shelf.data[at].get().is_none() {
            match lane.peek() {
                Bite::Bytes(_) => {}
                Bite::Dry => return Ok(Pumped::Dry),
                Bite::Eof => return self.end(stream),
            }
            let file = self.folder.file()?;
            keep(at, &file)?;
            let _ = self.shelf.data[at].set(file);
        }
        let file = self.shelf.data[at].get().ok_or(Errno::IO)?;
        let bite = lane.bite(file.as_fd(), turn.others_ready)?;
        match bite {
            Bite::Dry => {
                let seal = lane.weigh(false, turn.now);
                if seal {
                    self.seal(at)?;
                }
                Ok(Pumped::Dry)
            }
            Bite::Eof => self.end(stream),
            Bite::Bytes(bytes) => {
                if lane.weigh(true, turn.now) {
                    self.seal(at)?;
                }
                if let Room::Drop { bytes } = room {
                    self.forget(bytes)?;
                }
                self.account();
                Ok(Pumped::Moved { bytes })
            }
        }
    }

    /// What the leader left in the stream; but no more than fits a pipe, or a grandchild that floods would keep us.
    fn drain(&mut self, stream: Stream, turn: Turn, keep: Keep<'_>) -> Pumped {
        let mut left = i64::from(self.lanes[slot(stream)].as_ref().map_or(0, Lane::ready_bytes));
        loop {
            match self.pump(stream, turn, keep) {
                Pumped::Moved { bytes } => left -= i64::from(bytes),
                done => return done,
            }
            if left <= 0 {
                return Pumped::Dry;
            }
        }
    }

    fn end(&mut self, stream: Stream) -> Result<Pumped, Errno> {
        self.seal(slot(stream))?;
        if let Some(lane) = &mut self.lanes[slot(stream)] {
            lane.close();
        }
        if let Some(Append::Closed) = self.life.on_eof(stream) {
            self.tell_closed()?;
        }
        Ok(Pumped::Eof)
    }

    /// Names the bytes of a data file that no record names yet.
    fn seal(&mut self, at: usize) -> Result<(), Errno> {
        let other_end = self.lanes[1 - at].as_ref().map_or(self.other_end(at), |lane| lane.end);
        let Some(lane) = &mut self.lanes[at] else { return Ok(()) };
        let unix_micros = unix_micros();
        while lane.end < lane.written {
            let len = (lane.written - lane.end).min(u64::from(ENTRY_BYTES)) as u32;
            let kind = Kind::Output(lane.stream);
            self.unwritten.push(Record { kind, len, offset: lane.end, other_end, unix_micros });
            lane.end += u64::from(len);
        }
        lane.seal_by = None;
        self.write_records()
    }

    /// Makes the records there are; on a full disk they stay for the next turn, and the bytes they name stay too.
    fn write_records(&mut self) -> Result<(), Errno> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let next = self.log.head(false).next_seq;
        index::append(&self.shelf.index, next, &self.unwritten)?;
        for record in self.unwritten.drain(..) {
            match record.kind {
                Kind::Output(_) => self.log.append_output(record.len),
                Kind::Closed => self.log.append_closed(),
                Kind::Exited => next,
            };
        }
        Ok(())
    }

    fn tell_exit(&mut self, exit: Exit) -> Result<(), Errno> {
        for at in 0..2 {
            self.seal(at)?;
        }
        self.write_records()?;
        let seq = self.log.head(false).next_seq;
        index::note_exit(&self.shelf.index, seq, &exit)?;
        index::append(&self.shelf.index, seq, &[self.marker(Kind::Exited)])?;
        self.pending_exit = None;
        self.log.append_exit(exit);
        if let (_, Some(Append::Closed)) = self.life.on_exit(exit) {
            self.tell_closed()?;
        }
        Ok(())
    }

    fn tell_closed(&mut self) -> Result<(), Errno> {
        let marker = self.marker(Kind::Closed);
        self.unwritten.push(marker);
        self.write_records()
    }

    /// A record without bytes, that still tells where both data files end.
    fn marker(&self, kind: Kind) -> Record {
        let end = |at: usize| self.lanes[at].as_ref().map_or(self.other_end(1 - at), |lane| lane.end);
        Record { kind, len: 0, offset: end(0), other_end: end(1), unix_micros: unix_micros() }
    }

    /// Where the data file beside `at` ends, when its stream is long gone: all of it is recorded.
    fn other_end(&self, at: usize) -> u64 {
        let size = |file: &OwnedFd| rustix::fs::fstat(file).map_or(0, |stat| stat.st_size as u64);
        self.shelf.data[1 - at].get().map_or(0, size)
    }

    /// Forgets the oldest entries: notes it, tells readers, then punches.
    fn forget(&mut self, bytes: u64) -> Result<(), Errno> {
        let head = self.log.head(false);
        let (mut freed, mut seq) = (0, head.first_seq);
        let mut dropped = self.dropped;
        let mut held_bytes = head.held_bytes;
        let mut lens = Vec::new();
        while freed < bytes && seq < head.next_seq {
            let record = self.shelf.record(seq)?;
            // A damaged record must not make us forget more than there is.
            held_bytes = held_bytes.checked_sub(u64::from(record.len)).ok_or(Errno::IO)?;
            if let Kind::Output(stream) = record.kind {
                dropped.starts[slot(stream)] = record.offset + u64::from(record.len);
                dropped.bytes += u64::from(record.len);
            }
            freed += u64::from(record.len) + index::RECORD_BYTES;
            lens.push(record.len);
            seq += 1;
        }
        dropped.first_seq = seq;
        index::note_dropped(&self.shelf.index, &dropped)?;
        self.shelf.publish_first(First { seq, dropped_bytes: dropped.bytes });
        for len in lens {
            self.log.forget_first(len);
        }
        let before = std::mem::replace(&mut self.dropped, dropped);
        for at in 0..2 {
            if let Some(file) = self.shelf.data[at].get() {
                punch(file, before.starts[at], dropped.starts[at]);
            }
        }
        punch(&self.shelf.index, index::position(before.first_seq), index::position(seq));
        Ok(())
    }

    fn account(&mut self) {
        let now = self.log.cost_bytes();
        self.folder.take(now);
        self.folder.give_back(self.accounted_bytes);
        self.accounted_bytes = now;
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.folder.leave(self.accounted_bytes);
    }
}

/// Gives whole pages between `from` and `to` back to the disk. What cannot be punched stays, and costs only room.
fn punch(file: &OwnedFd, from: u64, to: u64) {
    // The header's page is never punched: positions below one step stay, and steps begin at multiples.
    let from = from / PUNCH_BYTES * PUNCH_BYTES;
    let to = to / PUNCH_BYTES * PUNCH_BYTES;
    let from = if from == 0 { 4096 } else { from };
    if to > from {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(file, flags, from, to - from);
    }
}

fn streams(sources: &[(Stream, Source)]) -> Streams {
    let mut open = Streams::NONE;
    for (stream, _) in sources {
        open.insert(*stream);
    }
    open
}

/// No room on the disk or in a table of the kernel, or the folder is out of reach for now. Nothing is lost meanwhile.
fn may_pass(errno: Errno) -> bool {
    let room = [Errno::NOSPC, Errno::DQUOT, Errno::AGAIN, Errno::NOMEM, Errno::NFILE, Errno::MFILE, Errno::TOOMANYREFS];
    let reach = [Errno::NOENT, Errno::ROFS, Errno::ACCESS, Errno::PERM, Errno::IO];
    room.contains(&errno) || reach.contains(&errno)
}

fn unix_micros() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
