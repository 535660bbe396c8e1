//! How a log ends: what the leader had printed, its exit, the end of each stream, the end of all.

use exec_core::lifecycle::Append;
use exec_core::limits::{PTY_BATCH_TIME, STALL_RETRY};
use exec_core::{Exit, Stream};
use rustix::io::Errno;

use super::index::{IndexRecord, RecordKind, slot};
use super::retention::WhenFull;
use super::stream_mover::StreamMover;
use super::{PumpContext, PumpOutcome, RegisterFile, Spool, unix_micros};

impl Spool {
    /// The leader was reaped. What it had printed comes first.
    pub fn on_exit(&mut self, exit: Exit, context: PumpContext, register_file: RegisterFile<'_>) {
        if self.lifecycle.exited() || self.pending_exit.is_some() {
            return;
        }
        let mut due = context.now;
        for stream in self.lifecycle.open().iter() {
            let drained = self.drain_at_exit(stream, context, register_file);
            // A terminal hands its last bytes over a moment after its child has ended.
            if stream == Stream::Pty && drained != PumpOutcome::Eof {
                due = context.now + PTY_BATCH_TIME;
            }
        }
        self.pending_exit = Some((exit, due));
        // Not `on_time`: a stream that has just found no room still waits for its next try.
        if self.try_on_time(context.now, register_file).is_err() {
            self.retry_at = Some(context.now + STALL_RETRY);
        }
    }

    /// What the leader left in the stream; but no more than fits a pipe, or a grandchild that floods would keep us.
    fn drain_at_exit(&mut self, stream: Stream, context: PumpContext, register_file: RegisterFile<'_>) -> PumpOutcome {
        let mut left = i64::from(self.movers[slot(stream)].as_ref().map_or(0, StreamMover::ready_bytes));
        loop {
            match self.pump_when_full(WhenFull::Take, stream, context, register_file) {
                PumpOutcome::Moved { bytes } => left -= i64::from(bytes),
                done => return done,
            }
            if left <= 0 {
                return PumpOutcome::Empty;
            }
        }
    }

    pub(super) fn finish_stream(&mut self, stream: Stream) -> Result<PumpOutcome, Errno> {
        self.record_new_bytes(slot(stream))?;
        if let Some(mover) = &mut self.movers[slot(stream)] {
            mover.close();
        }
        if let Some(Append::Closed) = self.lifecycle.on_eof(stream) {
            self.append_closed()?;
        }
        Ok(PumpOutcome::Eof)
    }

    pub(super) fn append_exit(&mut self, exit: Exit, register_file: RegisterFile<'_>) -> Result<(), Errno> {
        for at in 0..2 {
            self.record_new_bytes(at)?;
        }
        if !self.lifecycle.open().is_empty() {
            // Output may follow, and must follow it in every mover's log.
            self.log_files.index.create_file(&self.directory, register_file)?;
        }
        self.write_records()?;
        let seq = self.log.head(false).next_seq;
        self.log_files.index.write_exit(seq, &exit)?;
        self.log_files.index.append(seq, &[self.end_record(RecordKind::Exited)])?;
        self.pending_exit = None;
        self.log.append_exit(exit);
        if let (_, Some(Append::Closed)) = self.lifecycle.on_exit(exit) {
            self.append_closed()?;
        }
        Ok(())
    }

    pub(super) fn append_closed(&mut self) -> Result<(), Errno> {
        let record = self.end_record(RecordKind::Closed);
        self.unwritten.push(record);
        self.write_records()
    }

    /// A record without bytes, that still tells where both data files end.
    fn end_record(&self, kind: RecordKind) -> IndexRecord {
        let end = |at: usize| self.movers[at].as_ref().map_or(self.other_end(1 - at), |mover| mover.end);
        IndexRecord { kind, len: 0, offset: end(0), other_end: end(1), unix_micros: unix_micros() }
    }
}
