//! How a log ends: what the leader had printed, its exit, the end of each stream, the end of all.

use exec_core::lifecycle::Append;
use exec_core::limits::{PTY_BATCH_TIME, STALL_RETRY};
use exec_core::{Exit, Stream};
use rustix::io::Errno;

use super::index::{Kind, Record, slot};
use super::lane::Lane;
use super::retention::Overfull;
use super::{Keep, Pumped, Spool, Turn, unix_micros};

impl Spool {
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
                due = turn.now + PTY_BATCH_TIME;
            }
        }
        self.pending_exit = Some((exit, due));
        // Not `on_time`: a stream that has just found no room still waits for its next try.
        if self.try_on_time(turn.now, keep).is_err() {
            self.retry_at = Some(turn.now + STALL_RETRY);
        }
    }

    /// What the leader left in the stream; but no more than fits a pipe, or a grandchild that floods would keep us.
    fn drain(&mut self, stream: Stream, turn: Turn, keep: Keep<'_>) -> Pumped {
        let mut left = i64::from(self.lanes[slot(stream)].as_ref().map_or(0, Lane::ready_bytes));
        loop {
            match self.pump_or(Overfull::Take, stream, turn, keep) {
                Pumped::Moved { bytes } => left -= i64::from(bytes),
                done => return done,
            }
            if left <= 0 {
                return Pumped::Dry;
            }
        }
    }

    pub(super) fn end(&mut self, stream: Stream) -> Result<Pumped, Errno> {
        self.seal(slot(stream))?;
        if let Some(lane) = &mut self.lanes[slot(stream)] {
            lane.close();
        }
        if let Some(Append::Closed) = self.life.on_eof(stream) {
            self.tell_closed()?;
        }
        Ok(Pumped::Eof)
    }

    pub(super) fn tell_exit(&mut self, exit: Exit, keep: Keep<'_>) -> Result<(), Errno> {
        for at in 0..2 {
            self.seal(at)?;
        }
        if !self.life.open().is_empty() {
            // Output may follow, and must follow it in every mover's log.
            self.shelf.index.settle(&self.folder, keep)?;
        }
        self.write_records()?;
        let seq = self.log.head(false).next_seq;
        self.shelf.index.note_exit(seq, &exit)?;
        self.shelf.index.append(seq, &[self.marker(Kind::Exited)])?;
        self.pending_exit = None;
        self.log.append_exit(exit);
        if let (_, Some(Append::Closed)) = self.life.on_exit(exit) {
            self.tell_closed()?;
        }
        Ok(())
    }

    pub(super) fn tell_closed(&mut self) -> Result<(), Errno> {
        let marker = self.marker(Kind::Closed);
        self.unwritten.push(marker);
        self.write_records()
    }

    /// A record without bytes, that still tells where both data files end.
    fn marker(&self, kind: Kind) -> Record {
        let end = |at: usize| self.lanes[at].as_ref().map_or(self.other_end(1 - at), |lane| lane.end);
        Record { kind, len: 0, offset: end(0), other_end: end(1), unix_micros: unix_micros() }
    }
}
