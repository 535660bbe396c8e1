//! A scan of a log's files: consecutive output of one stream at a time, into a buffer that is used again. For readers that
//! look at much and keep little; whoever passes output on reads pages ([`LogFiles::page`]).
//!
//! A scan waits for the disk, so it belongs on a thread that may. Where the log is long, a second thread takes half of the work
//! ([`LogScan::for_each_run`]). The files are not mapped into memory instead of being read, because then a disk that fails would
//! end the whole server by SIGBUS.

mod parallel;

use std::ops::ControlFlow;
use std::sync::Arc;

use exec_core::{Seq, Stream, TerminalSize};
use rustix::io::Errno;

use super::index::{self, IndexRecord, RecordKind};
use super::log_files::LogFiles;
use parallel::HelperPermit;

/// Most output that is read at once, in bytes. It stays in the processor's cache while it is looked at, and is little enough that
/// whoever looks at it with the most expensive expression soon notices that nobody waits for the result.
const RUN_BYTES: u64 = 64 << 10;
/// Below this many bytes it is not worth a second thread.
const PARALLEL_BYTES: u64 = 4 << 20;
/// Most records that one run spans, so that tiny entries take bounded memory too.
const RUN_RECORDS: usize = 4096;

/// A position in a log, and the buffers of the scan.
#[derive(Debug)]
pub struct LogScan {
    files: Arc<LogFiles>,
    stream: Option<Stream>,
    next: Seq,
    end: Seq,
    /// Records that were read and not used yet, from `next` on.
    records: std::collections::VecDeque<IndexRecord>,
    buffer: RunBuffer,
}

/// What the output of a run is read into, again and again.
#[derive(Debug, Default)]
struct RunBuffer {
    /// As long as the longest run so far: to write zeros where output is read next would take as long as to search it.
    bytes: Vec<u8>,
    ends: Vec<(usize, Seq)>,
}

impl RunBuffer {
    fn run(&self, (stream, terminal): RunKind) -> Run<'_> {
        Run { stream, bytes: &self.bytes[..self.ends.last().map_or(0, |(end, _)| *end)], ends: &self.ends, terminal }
    }
}

/// What all entries of a run have in common.
type RunKind = (Stream, Option<TerminalSize>);

/// Output of one stream.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    pub stream: Stream,
    pub bytes: &'a [u8],
    /// Where each of its entries ends in `bytes`, and its number.
    pub ends: &'a [(usize, Seq)],
    /// The size of the terminal when the run was printed; all of it had the same.
    pub terminal: Option<TerminalSize>,
}

/// What a scan does next.
enum NextStep {
    Run(PlannedRun),
    Dropped { to_seq: Seq },
    End,
}

/// A run of which the records were read, and the output was not.
#[derive(Debug, Clone, Copy)]
struct PlannedRun {
    kind: RunKind,
    offset: u64,
}

/// Whether what was read is output.
enum ReadOutcome {
    Held,
    /// It was dropped meanwhile, so it may be a hole; it began with this entry.
    Dropped {
        from: Seq,
    },
}

impl PlannedRun {
    /// Reads the output of the entries whose ends are in the buffer.
    fn read(&self, files: &LogFiles, buffer: &mut RunBuffer) -> Result<ReadOutcome, Errno> {
        let read = self.read_bytes(files, buffer);
        match buffer.ends.first() {
            Some(&(_, from)) if from < files.first_held().seq => Ok(ReadOutcome::Dropped { from }),
            _ => read.map(|()| ReadOutcome::Held),
        }
    }

    fn read_bytes(&self, files: &LogFiles, buffer: &mut RunBuffer) -> Result<(), Errno> {
        let file = files.data[index::slot_of(self.kind.0)].get().ok_or(Errno::IO)?;
        let len = buffer.ends.last().map_or(0, |(end, _)| *end);
        if buffer.bytes.len() < len {
            buffer.bytes.resize(len, 0);
        }
        let mut done = 0;
        while done < len {
            match rustix::io::pread(file, &mut buffer.bytes[done..len], self.offset + done as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// What a scan finds next.
#[derive(Debug)]
pub enum Scanned<'a> {
    Run(Run<'a>),
    /// Entries up to this one were dropped before they could be read.
    Dropped {
        to_seq: Seq,
    },
    End,
}

impl LogScan {
    /// Scans from `from` on and before `end`, which must not be beyond the log; only `stream`, if there is one.
    pub fn new(files: Arc<LogFiles>, from: Seq, end: Seq, stream: Option<Stream>) -> Self {
        let buffer = RunBuffer::default();
        Self { files, stream, next: from.max(1), end, records: Default::default(), buffer }
    }

    pub fn next_run(&mut self) -> Result<Scanned<'_>, Errno> {
        loop {
            match self.plan_own()? {
                NextStep::Run(planned) => match planned.read(&self.files, &mut self.buffer)? {
                    ReadOutcome::Held => return Ok(Scanned::Run(self.buffer.run(planned.kind))),
                    ReadOutcome::Dropped { from } => self.rewind(from),
                },
                NextStep::Dropped { to_seq } => return Ok(Scanned::Dropped { to_seq }),
                NextStep::End => return Ok(Scanned::End),
            }
        }
    }

    /// Shows `visit` everything up to the end of the scan, or until it breaks, in order and with what `look` says of a run. Runs
    /// are looked at before it is their turn, and by two threads if that is worth it; `bytes` is about how much there is. A run
    /// that was looked at is not always visited: it may have been dropped, or `visit` has broken.
    pub fn for_each_run<L: Send>(
        mut self,
        bytes: u64,
        mut look: impl FnMut(&Run<'_>) -> L + Clone + Send,
        mut visit: impl FnMut(Scanned<'_>, Option<L>) -> Result<ControlFlow<()>, Errno>,
    ) -> Result<(), Errno> {
        if bytes >= PARALLEL_BYTES
            && let Some(_permit) = HelperPermit::take()
            && let Some(shown) = parallel::for_each_run(&mut self, &mut look, &mut visit)
        {
            return shown;
        }
        loop {
            let scanned = self.next_run()?;
            let looked = match &scanned {
                Scanned::Run(run) => Some(look(run)),
                Scanned::Dropped { .. } => None,
                Scanned::End => return Ok(()),
            };
            if visit(scanned, looked)?.is_break() {
                return Ok(());
            }
        }
    }

    fn plan_own(&mut self) -> Result<NextStep, Errno> {
        let mut ends = std::mem::take(&mut self.buffer.ends);
        let plan = self.plan(&mut ends);
        self.buffer.ends = ends;
        plan
    }

    /// Where the entries of a planned run end is written into `ends`.
    fn plan(&mut self, ends: &mut Vec<(usize, Seq)>) -> Result<NextStep, Errno> {
        loop {
            let dropped_to = self.files.first_held().seq - 1;
            if self.next <= dropped_to && self.next < self.end {
                self.skip_to(dropped_to.min(self.end - 1) + 1);
                return Ok(NextStep::Dropped { to_seq: self.next - 1 });
            }
            let planned = self.plan_run(ends);
            // Records that we have just read may have been dropped meanwhile, and then they are a hole.
            if let Some(&(_, from)) = ends.first()
                && from < self.files.first_held().seq
            {
                self.rewind(from);
                continue;
            }
            return match planned {
                Ok(Some(planned)) => Ok(NextStep::Run(planned)),
                Ok(None) => Ok(NextStep::End),
                Err(errno) if self.next >= self.files.first_held().seq => Err(errno),
                Err(_) => continue,
            };
        }
    }

    /// Plans again from this entry on, because it was dropped.
    fn rewind(&mut self, seq: Seq) {
        self.next = seq;
        self.records.clear();
    }

    fn skip_to(&mut self, seq: Seq) {
        let skipped = usize::try_from(seq - self.next).unwrap_or(usize::MAX);
        self.records.drain(..skipped.min(self.records.len()));
        self.next = seq;
    }

    /// Reads records until the stream changes or enough is together.
    fn plan_run(&mut self, ends: &mut Vec<(usize, Seq)>) -> Result<Option<PlannedRun>, Errno> {
        ends.clear();
        let (mut run, mut len) = (None::<PlannedRun>, 0);
        while self.next < self.end && ends.len() < RUN_RECORDS {
            if self.records.is_empty() {
                self.records.extend(self.files.read_some_records(self.next, self.end)?);
            }
            let Some(record) = self.records.front().copied() else { break };
            if let RecordKind::Output(stream) = record.kind
                && self.stream.is_none_or(|wanted| wanted == stream)
            {
                let kind = (stream, record.terminal);
                let is_full = len > 0 && len + u64::from(record.len) > RUN_BYTES;
                if run.is_some_and(|run| run.kind != kind) || is_full {
                    break;
                }
                if run.is_none() {
                    run = Some(PlannedRun { kind, offset: record.offset });
                }
                len += u64::from(record.len);
                ends.push((len as usize, self.next));
            }
            self.records.pop_front();
            self.next += 1;
        }
        Ok(run)
    }
}

/// What the index alone can tell, without a look at the output.
impl LogFiles {
    /// Bytes of the two data files before entry `seq`; of the log's end, if `seq` is `end`.
    pub fn bytes_before(&self, seq: Seq, end: Seq) -> Result<[u64; 2], Errno> {
        if seq < end {
            let record = self.read_record(seq)?;
            let mut starts = record.ends();
            if let RecordKind::Output(stream) = record.kind {
                starts[index::slot_of(stream)] = record.offset;
            }
            return Ok(starts);
        }
        if end <= self.first_held().seq {
            return Ok(self.read_header()?.dropped.starts);
        }
        Ok(self.read_record(end - 1)?.ends())
    }

    /// The first entry from `from` on and before `end` that was made at `unix_micros` or later; `end` if none was.
    pub fn first_since(&self, unix_micros: u64, from: Seq, end: Seq) -> Result<Seq, Errno> {
        self.partition_point(from, end, |record| record.unix_micros < unix_micros)
    }

    /// The first entry from `from` on and before `end` behind which the log holds no more than `bytes`.
    pub fn first_of_last_bytes(&self, bytes: u64, from: Seq, end: Seq) -> Result<Seq, Errno> {
        if from >= end {
            return Ok(end);
        }
        let total: u64 = self.read_record(end - 1)?.ends().iter().sum();
        self.partition_point(from, end, |record| total - record.ends().iter().sum::<u64>().min(total) > bytes)
    }

    /// The same for one of the data files: the first entry behind which it holds no more than `bytes`, before `end`.
    pub fn first_of_last_bytes_in(&self, slot: usize, bytes: u64, from: Seq, end: Seq) -> Result<Seq, Errno> {
        if from >= end {
            return Ok(end);
        }
        let total = self.read_record(end - 1)?.ends()[slot];
        self.partition_point(from, end, |record| total - record.ends()[slot].min(total) > bytes)
    }

    /// The size of the terminal when entry `seq` was made, if it is known.
    pub fn terminal_at(&self, seq: Seq) -> Result<Option<TerminalSize>, Errno> {
        Ok(self.read_record(seq)?.terminal)
    }

    /// The last byte that a stream has printed before `seq`, if it is held.
    pub fn byte_before(&self, slot: usize, seq: Seq, end: Seq) -> Result<Option<u8>, Errno> {
        let first = self.first_held().seq;
        let starts = self.bytes_before(first.min(end), end)?;
        let at = self.bytes_before(seq, end)?[slot];
        match self.data[slot].get() {
            Some(file) if at > starts[slot] => {
                let mut byte = [0];
                rustix::io::pread(file, &mut byte, at - 1)?;
                Ok(Some(byte[0]))
            }
            _ => Ok(None),
        }
    }

    /// Records are in the order of their numbers, so it takes few reads.
    fn partition_point(&self, from: Seq, end: Seq, before: impl Fn(&IndexRecord) -> bool) -> Result<Seq, Errno> {
        let (mut low, mut high) = (from.min(end), end);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(&self.read_record(middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}
