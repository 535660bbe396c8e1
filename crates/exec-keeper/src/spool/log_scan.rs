//! A scan of a log's files: consecutive output of one stream at a time, into a buffer that is used again. For readers that
//! look at much and keep little; whoever passes output on reads pages ([`LogFiles::page`]).
//!
//! A scan waits for the disk, so it belongs on a thread that may. Where the log is long, a second thread reads what comes next
//! while the first one looks at what was read ([`LogScan::for_each_run`]): to copy a log out of the kernel takes about as long as to
//! search it. The files are not mapped into memory instead, because then a disk that fails would end the whole server by SIGBUS.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};

use exec_core::{Seq, Stream, TerminalSize};
use rustix::io::Errno;

use super::index::{self, IndexRecord, RecordKind};
use super::log_files::LogFiles;

/// Most output that is read at once, in bytes. It stays in the processor's cache while it is looked at, and is little enough that
/// whoever looks at it with the most expensive expression soon notices that nobody waits for the result.
const RUN_BYTES: u64 = 64 << 10;
/// Runs that are read ahead, at most: enough that neither thread often waits for the other, and little memory.
const RUNS_AHEAD: usize = 4;
/// Below this many bytes it is not worth a second thread.
const READ_AHEAD_BYTES: u64 = 4 << 20;
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

/// What a scan does next; a run is in its buffer.
enum ScanStep {
    Run(RunKind),
    Dropped { to_seq: Seq },
    End,
}

impl ScanStep {
    /// What it found, unless that is the end.
    fn scanned(self, buffer: &RunBuffer) -> Option<Scanned<'_>> {
        match self {
            Self::Run(kind) => Some(Scanned::Run(buffer.run(kind))),
            Self::Dropped { to_seq } => Some(Scanned::Dropped { to_seq }),
            Self::End => None,
        }
    }
}

/// Shows what a reader sends. It owns the queue, so that however it ends, the reader has nobody to wait for.
fn show(
    steps: mpsc::Receiver<(Result<ScanStep, Errno>, RunBuffer)>,
    give_back: mpsc::SyncSender<RunBuffer>,
    visit: &mut impl FnMut(Scanned<'_>) -> Result<ControlFlow<()>, Errno>,
) -> Result<(), Errno> {
    for (step, buffer) in steps {
        let Some(scanned) = step?.scanned(&buffer) else { break };
        if visit(scanned)?.is_break() {
            break;
        }
        // A buffer that is not taken back is made again.
        let _ = give_back.try_send(buffer);
    }
    Ok(())
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
        Ok(self.step()?.scanned(&self.buffer).unwrap_or(Scanned::End))
    }

    /// Shows `visit` everything up to the end of the scan, or until it breaks. `bytes` is about how much that is.
    pub fn for_each_run(
        mut self,
        bytes: u64,
        mut visit: impl FnMut(Scanned<'_>) -> Result<ControlFlow<()>, Errno>,
    ) -> Result<(), Errno> {
        if bytes >= READ_AHEAD_BYTES
            && std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
            && let Some(shown) = self.read_ahead(&mut visit)
        {
            return shown;
        }
        loop {
            let Some(scanned) = self.step()?.scanned(&self.buffer) else { return Ok(()) };
            if visit(scanned)?.is_break() {
                return Ok(());
            }
        }
    }

    /// `None` if there is no second thread to be had, and nothing was shown.
    fn read_ahead(
        &mut self,
        visit: &mut impl FnMut(Scanned<'_>) -> Result<ControlFlow<()>, Errno>,
    ) -> Option<Result<(), Errno>> {
        let (to_visitor, steps) = mpsc::sync_channel::<(Result<ScanStep, Errno>, RunBuffer)>(RUNS_AHEAD);
        let (give_back, used) = mpsc::sync_channel::<RunBuffer>(RUNS_AHEAD);
        std::thread::scope(|scope| {
            let reader = || {
                // Both ends live in this thread alone, so that it ends with the visitor and the visitor with it.
                let (to_visitor, used) = (to_visitor, used);
                loop {
                    let step = self.step();
                    let is_last = matches!(step, Ok(ScanStep::End) | Err(_));
                    let buffer = std::mem::replace(&mut self.buffer, used.try_recv().unwrap_or_default());
                    if to_visitor.send((step, buffer)).is_err() || is_last {
                        return;
                    }
                }
            };
            std::thread::Builder::new().name("log-reader".to_owned()).spawn_scoped(scope, reader).ok()?;
            Some(show(steps, give_back, visit))
        })
    }

    fn step(&mut self) -> Result<ScanStep, Errno> {
        loop {
            let dropped_to = self.files.first_held().seq - 1;
            if self.next <= dropped_to && self.next < self.end {
                self.skip_to(dropped_to.min(self.end - 1) + 1);
                return Ok(ScanStep::Dropped { to_seq: self.next - 1 });
            }
            let read = self.read_run();
            // What we have just read may have been dropped meanwhile, and then it is a hole.
            if self.buffer.ends.first().is_some_and(|(_, seq)| *seq < self.files.first_held().seq) {
                self.next = self.buffer.ends[0].1;
                self.records.clear();
                continue;
            }
            return match read {
                Ok(Some(kind)) => Ok(ScanStep::Run(kind)),
                Ok(None) => Ok(ScanStep::End),
                Err(errno) if self.next >= self.files.first_held().seq => Err(errno),
                Err(_) => continue,
            };
        }
    }

    fn skip_to(&mut self, seq: Seq) {
        let skipped = usize::try_from(seq - self.next).unwrap_or(usize::MAX);
        self.records.drain(..skipped.min(self.records.len()));
        self.next = seq;
    }

    /// Reads records until the stream changes or enough is together, then their bytes.
    fn read_run(&mut self) -> Result<Option<RunKind>, Errno> {
        let RunBuffer { bytes, ends } = &mut self.buffer;
        ends.clear();
        let (mut run, mut offset, mut len) = (None, 0, 0);
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
                if run.is_some_and(|run| run != kind) || is_full {
                    break;
                }
                if run.is_none() {
                    (run, offset) = (Some(kind), record.offset);
                }
                len += u64::from(record.len);
                ends.push((len as usize, self.next));
            }
            self.records.pop_front();
            self.next += 1;
        }
        if let Some((stream, _)) = run {
            let file = self.files.data[index::slot_of(stream)].get().ok_or(Errno::IO)?;
            let len = len as usize;
            if bytes.len() < len {
                bytes.resize(len, 0);
            }
            let mut done = 0;
            while done < len {
                match rustix::io::pread(file, &mut bytes[done..len], offset + done as u64) {
                    Ok(0) => return Err(Errno::IO),
                    Ok(count) => done += count,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
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
