//! Resuming a log whose writer was killed, at any instruction: nothing is lost, and nothing is guessed.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use exec_core::flow::Quota;
use exec_core::lifecycle::{Append, Lifecycle};
use exec_core::{Exit, Head, Log, Stream};
use rustix::io::Errno;

use super::directory::SpoolDirectory;
use super::index::{self, RecordKind, slot_of};
use super::index_file::IndexFile;
use super::log_files::{FirstHeld, LogFiles};
use super::stream_mover::StreamMover;
use super::{OutputSource, RecoveredFiles, Spool, is_temporary, streams};

impl Spool {
    /// Reads the index of a log that somebody else wrote, records the bytes that no record names yet, and goes on. An
    /// index that contradicts itself or its data files is refused; only a damaged disk can bring that about.
    pub fn resume(
        directory: Arc<SpoolDirectory>,
        files: RecoveredFiles,
        quota: Quota,
        sources: Vec<(Stream, OutputSource)>,
    ) -> Result<Self, Errno> {
        let index = match files.index {
            Some(file) => IndexFile::from_file(file),
            None if files.data.iter().all(Option::is_none) => IndexFile::in_memory(),
            // There is output, and the index is registered before any data file. So something is wrong.
            None => return Err(Errno::BADF),
        };
        let size = index.size()?;
        let log_files = LogFiles::new(index);
        let header = log_files.read_header()?;
        let next = size.saturating_sub(index::HEADER_BYTES) / index::RECORD_BYTES + 1;
        let last = if next > 1 { Some(log_files.read_record(next - 1)?) } else { None };
        let ends = last.map_or([0; 2], |last| last.ends());
        if !header.fits_records(next, ends) {
            return Err(Errno::IO);
        }
        log_files.publish_first_held(FirstHeld { seq: header.dropped.first_seq, dropped_bytes: header.dropped.bytes });
        // The exit is written to the header before its record. A writer may have been killed between the two, and the
        // next one may have recorded output under that seq before it was killed too. So the record decides.
        let is_recorded = |seq| {
            seq < header.dropped.first_seq || log_files.read_record(seq).is_ok_and(|it| it.kind == RecordKind::Exited)
        };
        let exited = header.exit.filter(|(seq, _)| *seq < next && is_recorded(*seq));
        let closed = last.is_some_and(|last| last.kind == RecordKind::Closed);
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
            stalled: None,
        });
        let lifecycle = Lifecycle::resume(streams(&sources), false, closed);
        let mut spool = Self::with_files(directory, log_files, quota, log, lifecycle);
        spool.dropped = header.dropped;
        spool.nobody_reads = header.nobody_reads;
        let sizes = spool.take_over(files.data, sources, ends)?;
        // Nothing follows `closed`, even if a damaged disk has made a data file longer.
        let sizes = if closed { ends } else { sizes };
        match spool.record_unfinished(sizes, ends, exited.map(|(_, exit)| exit)) {
            // A full disk must not keep a new owner out. What cannot be recorded now is recorded when there is space.
            Err(errno) if is_temporary(errno) => {
                spool.retry_at = Some(Instant::now());
                spool.stall = Some(exec_core::Stall::Disk);
            }
            other => other?,
        }
        if let (Some((_, exit)), None) = (header.exit, exited) {
            spool.pending_exit = Some((exit, Instant::now()));
        }
        spool.update_accounting();
        Ok(spool)
    }

    /// The result is the size of each data file.
    fn take_over(
        &mut self,
        data: [Option<OwnedFd>; 2],
        sources: Vec<(Stream, OutputSource)>,
        ends: [u64; 2],
    ) -> Result<[u64; 2], Errno> {
        let mut sizes = ends;
        for (slot, file) in data.into_iter().enumerate() {
            if let Some(file) = file {
                sizes[slot] = rustix::fs::fstat(&file)?.st_size as u64;
                if sizes[slot] < ends[slot] {
                    return Err(Errno::IO);
                }
                let _ = self.log_files.data[slot].set(file);
            }
        }
        for (stream, source) in sources {
            let slot = slot_of(stream);
            self.movers[slot] = Some(StreamMover::new(stream, Some(source), ends[slot], sizes[slot]));
        }
        Ok(sizes)
    }

    /// Records what the killed writer had moved but not recorded, and appends `closed` if that was next.
    fn record_unfinished(&mut self, sizes: [u64; 2], ends: [u64; 2], exited: Option<Exit>) -> Result<(), Errno> {
        let mut outcome = Ok(());
        for (slot, size) in sizes.into_iter().enumerate() {
            if let Some(mover) = &mut self.movers[slot] {
                mover.written = size;
                outcome = outcome.and(mover.drain_relay(self.log_files.data[slot].get()));
            } else if size > ends[slot] {
                // The stream had ended, but its last bytes had no record yet.
                let stream = if slot == 1 { Stream::Stderr } else { Stream::Stdout };
                self.movers[slot] = Some(StreamMover::new(stream, None, ends[slot], size));
            }
            outcome = outcome.and(self.record_new_bytes(slot));
        }
        // If it was killed between the records of the exit and of `closed`, no stream is left whose end would append
        // `closed`.
        if let Some(exit) = exited
            && let (_, Some(Append::Closed)) = self.lifecycle.on_exit(exit)
        {
            outcome = outcome.and(self.append_closed());
        }
        outcome
    }
}
