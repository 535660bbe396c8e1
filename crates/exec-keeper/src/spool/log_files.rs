//! The open files of a log, shared between its one writer (the spool) and any number of readers.
//!
//! No output is kept in memory: a page is read from the files by position. The writer publishes what it is about to drop
//! before it punches the hole, and a reader looks at that again after it has read, so it never takes the zeros of a hole
//! for output.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use bytes::{Bytes, BytesMut};
use exec_core::limits::{ENTRY_BYTES, PAGE_ENTRIES};
use exec_core::{Entry, EntryBody, Head, Page, Seq};
use rustix::io::{Errno, ReadWriteFlags};

use super::index::{self, IndexHeader, IndexRecord, RECORD_BYTES, RecordKind};
use super::index_file::IndexFile;

/// Records read from the index at once.
const RECORDS_PER_READ: usize = 256;
/// A page of a request without `max_bytes` ends here.
const PAGE_BYTES: usize = 32 << 20;

#[derive(Debug)]
pub struct LogFiles {
    pub(crate) index: IndexFile,
    pub(crate) data: [OnceLock<OwnedFd>; 2],
    /// A mutex because its two numbers belong together; it is held only to copy them.
    first_held: Mutex<FirstHeld>,
}

/// The first entry that was not dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirstHeld {
    pub(crate) seq: Seq,
    /// Output bytes of the entries before it.
    pub(crate) dropped_bytes: u64,
}

/// Whether a read may wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskWait {
    /// What is not in memory is the error [`Errno::AGAIN`].
    Forbidden,
    Allowed,
}

#[derive(Debug, Clone, Copy)]
pub struct ReadRequest {
    /// The page begins after this seq.
    pub after: Seq,
    /// The page ends before it holds more output than this, or more than [`PAGE_ENTRIES`], but it has at least one entry.
    pub max_bytes: Option<usize>,
    pub disk_wait: DiskWait,
}

impl LogFiles {
    pub(crate) fn new(index: IndexFile) -> Self {
        let first_held = Mutex::new(FirstHeld { seq: 1, dropped_bytes: 0 });
        Self { index, data: [OnceLock::new(), OnceLock::new()], first_held }
    }

    /// Whether nothing was ever printed.
    pub fn is_without_bytes(&self) -> bool {
        self.data.iter().all(|file| file.get().is_none())
    }

    pub(crate) fn publish_first_held(&self, first: FirstHeld) {
        *self.first_held.lock().unwrap_or_else(PoisonError::into_inner) = first;
    }

    pub(super) fn first_held(&self) -> FirstHeld {
        *self.first_held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads entries as far as `head` goes, which is the log at some moment.
    pub fn page(&self, head: Head, request: ReadRequest) -> Result<Page, Errno> {
        loop {
            let first = self.first_held();
            let read = self.read_page_once(without_dropped(head, first), request);
            let first_now = self.first_held();
            match read {
                Ok(page) if page.entries.first().is_none_or(|entry| entry.seq >= first_now.seq) => return Ok(page),
                Err(errno) if first_now == first => return Err(errno),
                // Something that we have just read was dropped meanwhile, so it may be a hole. Read again.
                _ => {}
            }
        }
    }

    fn read_page_once(&self, head: Head, request: ReadRequest) -> Result<Page, Errno> {
        let gap = head.gap(request.after);
        let mut entries = Vec::new();
        let mut next = request.after.saturating_add(1).max(head.first_seq);
        let mut budget = PageBudget { left: request.max_bytes.unwrap_or(PAGE_BYTES), any: false };
        while next < head.next_seq && entries.len() < PAGE_ENTRIES {
            let count = usize::try_from(head.next_seq - next).unwrap_or(usize::MAX);
            let count = count.min(RECORDS_PER_READ).min(PAGE_ENTRIES - entries.len());
            let records = self.read_records(next, count, request.disk_wait)?;
            let taken = records.iter().take_while(|record| budget.admits(record)).count();
            self.read_entries(next, &records[..taken], head.exit, request.disk_wait, &mut entries)?;
            next += taken as u64;
            if taken < records.len() || budget.left == 0 {
                break;
            }
        }
        Ok(Page { entries, gap, head })
    }

    fn read_records(&self, from: Seq, count: usize, disk_wait: DiskWait) -> Result<Vec<IndexRecord>, Errno> {
        let bytes = self.index.read(index::position(from), count * RECORD_BYTES as usize, disk_wait)?;
        // A record that claims more than an entry can have is damaged. We must not reserve memory for it.
        let record = |bytes| IndexRecord::decode(bytes).filter(|record| record.len <= ENTRY_BYTES).ok_or(Errno::IO);
        bytes.chunks_exact(RECORD_BYTES as usize).map(record).collect()
    }

    /// Reads the bodies of `records`. Adjacent records of one stream take one read.
    fn read_entries(
        &self,
        mut seq: Seq,
        records: &[IndexRecord],
        exit: Option<(Seq, exec_core::Exit)>,
        disk_wait: DiskWait,
        entries: &mut Vec<Entry>,
    ) -> Result<(), Errno> {
        let same = |a: &IndexRecord, b: &IndexRecord| matches!(a.kind, RecordKind::Output(_)) && a.kind == b.kind;
        for run in records.chunk_by(same) {
            let body = match run[0].kind {
                RecordKind::Output(stream) => {
                    let len = run.iter().map(|record| record.len as usize).sum();
                    let file = self.data[index::slot_of(stream)].get().ok_or(Errno::IO)?;
                    let mut bytes = read(file, run[0].offset, len, disk_wait)?;
                    for record in run {
                        let bytes = bytes.split_to(record.len as usize);
                        entries.push(Entry { seq, body: EntryBody::Output { stream, bytes } });
                        seq += 1;
                    }
                    continue;
                }
                RecordKind::Exited => {
                    let noted =
                        exit.map_or_else(|| self.read_header().map(|header| header.exit), |exit| Ok(Some(exit)));
                    EntryBody::Exited(noted?.ok_or(Errno::IO)?.1)
                }
                RecordKind::Closed => EntryBody::Closed,
            };
            entries.push(Entry { seq, body });
            seq += 1;
        }
        Ok(())
    }

    /// The first entry that was not dropped.
    pub fn first_held_seq(&self) -> Seq {
        self.first_held().seq
    }

    pub(crate) fn read_header(&self) -> Result<IndexHeader, Errno> {
        let bytes = self.index.read(0, index::HEADER_BYTES as usize, DiskWait::Allowed)?;
        IndexHeader::decode(&bytes).ok_or(Errno::IO)
    }

    /// Records from `from` on and before `end`; at least one, if there are any.
    pub(crate) fn read_some_records(&self, from: Seq, end: Seq) -> Result<Vec<IndexRecord>, Errno> {
        let count = usize::try_from(end - from).unwrap_or(usize::MAX).min(RECORDS_PER_READ);
        self.read_records(from, count, DiskWait::Allowed)
    }

    pub(crate) fn read_record(&self, seq: Seq) -> Result<IndexRecord, Errno> {
        self.read_records(seq, 1, DiskWait::Allowed)?.first().copied().ok_or(Errno::IO)
    }
}

/// `head` without what was dropped since it was taken.
fn without_dropped(head: Head, first: FirstHeld) -> Head {
    if first.seq <= head.first_seq {
        return head;
    }
    let dropped = first.dropped_bytes.saturating_sub(head.dropped_bytes);
    Head {
        first_seq: first.seq,
        next_seq: head.next_seq.max(first.seq),
        held_bytes: head.held_bytes.saturating_sub(dropped),
        dropped_bytes: first.dropped_bytes,
        ..head
    }
}

struct PageBudget {
    left: usize,
    any: bool,
}

impl PageBudget {
    /// At least one output entry is admitted, however large; then none that would pass the budget.
    fn admits(&mut self, record: &IndexRecord) -> bool {
        if !matches!(record.kind, RecordKind::Output(_)) {
            return self.left > 0 || !self.any;
        }
        let len = record.len as usize;
        if self.any && len > self.left {
            return false;
        }
        self.any = true;
        self.left = self.left.saturating_sub(len);
        true
    }
}

pub(super) fn read(file: &OwnedFd, at: u64, len: usize, disk_wait: DiskWait) -> Result<Bytes, Errno> {
    use std::os::fd::AsFd;
    let mut bytes = BytesMut::zeroed(len);
    let mut done = 0;
    while done < len {
        match read_some(file.as_fd(), &mut bytes[done..], at + done as u64, disk_wait) {
            // A record is written after the bytes it names, so an intact file cannot be shorter.
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes.freeze())
}

fn read_some(file: BorrowedFd<'_>, into: &mut [u8], at: u64, disk_wait: DiskWait) -> Result<usize, Errno> {
    if disk_wait == DiskWait::Allowed {
        return rustix::io::pread(file, into, at);
    }
    let mut parts = [std::io::IoSliceMut::new(into)];
    match rustix::io::preadv2(file, &mut parts, at, ReadWriteFlags::NOWAIT) {
        // Some file systems cannot tell whether a read would wait.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => rustix::io::pread(file, into, at),
        other => other,
    }
}
