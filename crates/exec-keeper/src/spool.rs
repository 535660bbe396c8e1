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
mod last_words;
mod recovery;
mod register;
mod retention;
pub mod shelf;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use exec_core::flow::{Quota, SpaceDecision};
use exec_core::lifecycle::{Lifecycle, StreamSet};
use exec_core::limits::{ENTRY_BYTES, STALL_RETRY};
use exec_core::{Exit, Head, Log, Seq, Stream};
use rustix::io::Errno;

use folder::Folder;
use index::{Dropped, Kind, Record, slot};
pub use lane::Source;
use lane::{Bite, Lane};
use register::Register;
use retention::Overfull;
use shelf::Shelf;

/// The mover of one process's output.
#[derive(Debug)]
pub struct Spool {
    shelf: Arc<Shelf>,
    folder: Arc<Folder>,
    quota: Quota,
    log: Log,
    life: Lifecycle,
    dropped: Dropped,
    lanes: [Option<Lane>; 2],
    /// Records that the disk had no room for; made before anything else moves.
    unwritten: Vec<Record>,
    pending_exit: Option<(Exit, Instant)>,
    /// No room for something: when to try again.
    retry_at: Option<Instant>,
    /// Streams that found no room; another one's luck is not theirs.
    stalled: StreamSet,
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
    /// The spool is full of what somebody still wants ([`Turn::wanted`]). The child waits; ask again when that changes.
    Held,
}

/// Circumstances of a turn.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// The time.
    pub now: Instant,
    /// Whether other streams wait for their turn.
    pub others_ready: bool,
    /// The first entry that somebody is about to read: it and those after it are not dropped for newer ones.
    pub wanted: Option<Seq>,
}

/// A file of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The index.
    Index,
    /// The data file of this slot.
    Data(usize),
}

/// Told of each new file before a byte of output goes into it, so that the other holder has it first.
pub type Keep<'a> = &'a mut dyn FnMut(Kept, &OwnedFd) -> Result<(), Errno>;

/// The files of a log found again.
#[derive(Debug)]
pub struct Files {
    /// The index; none if nothing was ever printed.
    pub index: Option<OwnedFd>,
    /// The data files there are.
    pub data: [Option<OwnedFd>; 2],
}

impl Spool {
    /// The log of a process that is about to start.
    pub fn begin(folder: Arc<Folder>, quota: Quota, sources: Vec<(Stream, Source)>) -> Self {
        let open = streams(&sources);
        let shelf = Shelf::new(Register::early());
        let mut spool = Self::over(folder, shelf, quota, Log::default(), Lifecycle::new(open));
        for (stream, source) in sources {
            spool.lanes[slot(stream)] = Some(Lane::new(stream, source, 0));
        }
        spool
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
    pub fn open(&self) -> StreamSet {
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
        self.pump_or(Overfull::Hold, stream, turn, keep)
    }

    fn pump_or(&mut self, overfull: Overfull, stream: Stream, turn: Turn, keep: Keep<'_>) -> Pumped {
        let pumped = self.try_pump(overfull, stream, turn, keep).unwrap_or_else(|errno| {
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

    /// When [`Self::on_time`] has something to do. While it has no room, that is when to try again, streams included.
    pub fn deadline(&self) -> Option<Instant> {
        let seal = self.lanes.iter().flatten().filter_map(|lane| lane.seal_by).min();
        let due = [seal, self.pending_exit.map(|(_, due)| due)].into_iter().flatten().min();
        self.retry_at.or(due)
    }

    /// Time has passed: seals what was gathered long enough, and tells of the exit.
    pub fn on_time(&mut self, now: Instant, keep: Keep<'_>) {
        let done = self.try_on_time(now, keep);
        self.stalled = StreamSet::NONE;
        self.retry_at = done.is_err().then(|| now + STALL_RETRY);
    }

    fn try_on_time(&mut self, now: Instant, keep: Keep<'_>) -> Result<(), Errno> {
        self.write_records()?;
        for at in 0..2 {
            if self.lanes[at].as_ref().is_some_and(|lane| lane.seal_by.is_some_and(|by| by <= now)) {
                self.seal(at)?;
            }
        }
        let ended = self.life.open().is_empty();
        match self.pending_exit {
            Some((exit, due)) if due <= now || ended => self.tell_exit(exit, keep),
            _ => Ok(()),
        }
    }

    fn over(folder: Arc<Folder>, shelf: Shelf, quota: Quota, log: Log, life: Lifecycle) -> Self {
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
            stalled: StreamSet::NONE,
            accounted_bytes: 0,
        }
    }

    fn try_pump(&mut self, overfull: Overfull, stream: Stream, turn: Turn, keep: Keep<'_>) -> Result<Pumped, Errno> {
        self.write_records()?;
        let at = slot(stream);
        let Some(lane) = self.lanes[at].as_ref().filter(|lane| lane.is_open()) else { return Ok(Pumped::Eof) };
        let unsealed_bytes = lane.unsealed_bytes();
        let full = match self.make_room(unsealed_bytes, turn.wanted)? {
            SpaceDecision::Wait => Some(Pumped::Stalled),
            SpaceDecision::Drop { .. } if turn.wanted.is_some() && overfull == Overfull::Hold => Some(Pumped::Held),
            SpaceDecision::Drop { .. } | SpaceDecision::Free => None,
        };
        let Some(lane) = self.lanes[at].as_mut() else { return Ok(Pumped::Eof) };
        if let Some(full) = full {
            return if matches!(lane.peek(), Bite::Eof) { self.end(stream) } else { Ok(full) };
        }
        if self.shelf.data[at].get().is_none() {
            match lane.peek() {
                Bite::Bytes(_) => {}
                Bite::Dry => return Ok(Pumped::Dry),
                Bite::Eof => return self.end(stream),
            }
            self.shelf.index.settle(&self.folder, keep)?;
            let file = self.folder.file()?;
            keep(Kept::Data(at), &file)?;
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
                self.account();
                self.make_room(0, turn.wanted)?;
                Ok(Pumped::Moved { bytes })
            }
        }
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
        self.shelf.index.append(next, &self.unwritten)?;
        for record in self.unwritten.drain(..) {
            match record.kind {
                Kind::Output(_) => self.log.append_output(record.len),
                Kind::Closed => self.log.append_closed(),
                Kind::Exited => next,
            };
        }
        Ok(())
    }

    /// Where the data file beside `at` ends, when its stream is long gone: all of it is recorded.
    fn other_end(&self, at: usize) -> u64 {
        let size = |file: &OwnedFd| rustix::fs::fstat(file).map_or(0, |stat| stat.st_size as u64);
        self.shelf.data[1 - at].get().map_or(0, size)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.folder.leave(self.accounted_bytes);
    }
}

fn streams(sources: &[(Stream, Source)]) -> StreamSet {
    let mut open = StreamSet::NONE;
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
