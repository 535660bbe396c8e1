//! Going on where a mover that died has stopped: nothing is lost, nothing is guessed.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use exec_core::flow::Quota;
use exec_core::lifecycle::{Append, Lifecycle};
use exec_core::{Exit, Head, Log, Stream};
use rustix::io::Errno;

use super::directory::SpoolDirectory;
use super::index::{self, RecordKind, slot};
use super::index_file::IndexFile;
use super::log_files::{FirstHeld, LogFiles};
use super::stream_mover::StreamMover;
use super::{OutputSource, RecoveredFiles, Spool, is_temporary, streams};

impl Spool {
    /// A log whose mover is gone: reads the index, names the bytes no record names yet, and goes on.
    pub fn resume(
        directory: Arc<SpoolDirectory>,
        files: RecoveredFiles,
        quota: Quota,
        sources: Vec<(Stream, OutputSource)>,
    ) -> Result<Self, Errno> {
        let index = match files.index {
            Some(file) => IndexFile::from_file(file),
            None if files.data.iter().all(Option::is_none) => IndexFile::in_memory(),
            // Nothing names its bytes, and somebody has seen to it that nothing can be missing.
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
        // A mover that was killed between the note of the exit and its record may have had a successor that recorded
        // output in that place, and was killed too.
        let told = |seq| {
            seq < header.dropped.first_seq || log_files.read_record(seq).is_ok_and(|it| it.kind == RecordKind::Exited)
        };
        let exited = header.exit.filter(|(seq, _)| *seq < next && told(*seq));
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
            stalled: false,
        });
        let lifecycle = Lifecycle::resume(streams(&sources), false, closed);
        let mut spool = Self::with_files(directory, log_files, quota, log, lifecycle);
        spool.dropped = header.dropped;
        let sizes = spool.take_over(files.data, sources, ends)?;
        // Nothing follows the end, whatever a damaged disk put into the files.
        let sizes = if closed { ends } else { sizes };
        match spool.record_unfinished(sizes, ends, exited.map(|(_, exit)| exit)) {
            // A full disk keeps no new owner out: what cannot be recorded now is recorded when there is room.
            Err(errno) if is_temporary(errno) => spool.retry_at = Some(Instant::now()),
            other => other?,
        }
        if let (Some((_, exit)), None) = (header.exit, exited) {
            spool.pending_exit = Some((exit, Instant::now()));
        }
        spool.update_accounting();
        Ok(spool)
    }

    /// Takes over data files and sources; answers the size of each file.
    fn take_over(
        &mut self,
        data: [Option<OwnedFd>; 2],
        sources: Vec<(Stream, OutputSource)>,
        ends: [u64; 2],
    ) -> Result<[u64; 2], Errno> {
        let mut sizes = ends;
        for (at, file) in data.into_iter().enumerate() {
            if let Some(file) = file {
                sizes[at] = rustix::fs::fstat(&file)?.st_size as u64;
                if sizes[at] < ends[at] {
                    return Err(Errno::IO);
                }
                let _ = self.log_files.data[at].set(file);
            }
        }
        for (stream, source) in sources {
            let at = slot(stream);
            let mut mover = StreamMover::new(stream, source, ends[at]);
            mover.written = sizes[at];
            self.movers[at] = Some(mover);
        }
        Ok(sizes)
    }

    /// Names what a mover that died had moved, and says what it would have said next.
    fn record_unfinished(&mut self, sizes: [u64; 2], ends: [u64; 2], exited: Option<Exit>) -> Result<(), Errno> {
        let mut outcome = Ok(());
        for (at, size) in sizes.into_iter().enumerate() {
            if let Some(mover) = &mut self.movers[at] {
                outcome = outcome.and(mover.drain_relay(self.log_files.data[at].get(), size));
            } else if size > ends[at] {
                // The stream had ended, its last bytes had no record yet.
                let stream = if at == 1 { Stream::Stderr } else { Stream::Stdout };
                self.movers[at] = Some(StreamMover::ended(stream, ends[at], size));
            }
            outcome = outcome.and(self.record_new_bytes(at));
        }
        // It may have died between the record of the exit and that of the end, with no stream left to bring about one.
        if let Some(exit) = exited
            && let (_, Some(Append::Closed)) = self.lifecycle.on_exit(exit)
        {
            outcome = outcome.and(self.append_closed());
        }
        outcome
    }
}
