//! The index of a process's log: a header, then one record per entry. The record's number is its seq.
//!
//! ```text
//!   0        128      160      192
//!   │ header │ rec 1  │ rec 2  │ …           little endian throughout
//! ```
//!
//! It is read back after its writer was killed at any instruction. So each fact is one small `pwrite`, made in an order
//! in which every prefix is true: bytes before the record that names them, the note of what is dropped before the hole,
//! the exit's details before its record.

use std::os::fd::OwnedFd;
use std::time::Duration;

use exec_core::{ExitCause, Exit, Seq, ExitStatus, Stream, ResourceUsage};
use rustix::io::Errno;

pub(crate) const HEADER_BYTES: u64 = 128;
pub(crate) const RECORD_BYTES: u64 = exec_core::limits::RECORD_BYTES;
const MAGIC: [u8; 8] = *b"execlog1";
pub(crate) const DROPPED_AT: u64 = 8;
pub(crate) const EXIT_AT: u64 = 48;

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Bytes of a stream.
    Output(Stream),
    /// The leader's end; details in the header.
    Exited,
    /// The end of the log.
    Closed,
}

/// One entry, without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexRecord {
    /// What it says.
    pub kind: RecordKind,
    /// Length of its bytes.
    pub len: u32,
    /// Where they begin in the stream's data file.
    pub offset: u64,
    /// How far the other slot's data file was recorded, so that the last record alone tells where both ended.
    pub other_end: u64,
    /// When it was made, in microseconds since 1970.
    pub unix_micros: u64,
}

/// What is forgotten: everything before `first_seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// FirstHeld seq still held.
    pub first_seq: Seq,
    /// Output bytes forgotten.
    pub bytes: u64,
    /// Where held bytes begin in each data file.
    pub starts: [u64; 2],
}

impl Default for Dropped {
    fn default() -> Self {
        Self { first_seq: 1, bytes: 0, starts: [0; 2] }
    }
}

/// The data file of a stream: stdout and the terminal share the first.
pub fn slot(stream: Stream) -> usize {
    match stream {
        Stream::Stdout | Stream::Pty => 0,
        Stream::Stderr => 1,
    }
}

impl IndexRecord {
    /// Where recorded bytes end in both data files, after this record.
    pub fn ends(&self) -> [u64; 2] {
        match self.kind {
            RecordKind::Output(stream) if slot(stream) == 1 => [self.other_end, self.offset + u64::from(self.len)],
            _ => [self.offset + u64::from(self.len), self.other_end],
        }
    }

    fn encode(&self) -> [u8; RECORD_BYTES as usize] {
        let mut bytes = [0; RECORD_BYTES as usize];
        bytes[0] = match self.kind {
            RecordKind::Output(Stream::Stdout) => 1,
            RecordKind::Output(Stream::Stderr) => 2,
            RecordKind::Output(Stream::Pty) => 3,
            RecordKind::Exited => 4,
            RecordKind::Closed => 5,
        };
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.other_end.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.unix_micros.to_le_bytes());
        bytes
    }

    /// Reads a record; `None` if it is not one, which only a damaged disk can bring about.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let kind = match bytes.first()? {
            1 => RecordKind::Output(Stream::Stdout),
            2 => RecordKind::Output(Stream::Stderr),
            3 => RecordKind::Output(Stream::Pty),
            4 => RecordKind::Exited,
            5 => RecordKind::Closed,
            _ => return None,
        };
        let len = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        let offset = number(bytes, 8)?;
        offset.checked_add(u64::from(len))?;
        Some(Self { kind, len, offset, other_end: number(bytes, 16)?, unix_micros: number(bytes, 24)? })
    }
}

/// How an index begins.
pub(crate) fn empty_header() -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[0..8].copy_from_slice(&MAGIC);
    header[8..48].copy_from_slice(&encode_dropped(&Dropped::default()));
    header
}

pub(crate) fn encode_records(records: &[IndexRecord]) -> Vec<u8> {
    records.iter().flat_map(IndexRecord::encode).collect()
}

/// Where the record of `seq` begins.
pub(crate) fn position(seq: Seq) -> u64 {
    HEADER_BYTES + (seq - 1) * RECORD_BYTES
}

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexHeader {
    /// What is forgotten.
    pub dropped: Dropped,
    /// The exit and its place, if it was noted.
    pub exit: Option<(Seq, Exit)>,
}

impl IndexHeader {
    /// Reads a header; `None` if it is not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.get(0..8)? != MAGIC {
            return None;
        }
        let dropped = Dropped {
            first_seq: number(bytes, 8)?.max(1),
            bytes: number(bytes, 16)?,
            starts: [number(bytes, 24)?, number(bytes, 32)?],
        };
        Some(Self { dropped, exit: decode_exit(bytes.get(EXIT_AT as usize..)?) })
    }

    /// Whether it can stand before records up to `next` that name bytes up to `ends`. Ours always can; after a damaged
    /// one the log would count below zero.
    pub(crate) fn fits_records(&self, next: Seq, ends: [u64; 2]) -> bool {
        let Dropped { first_seq, bytes, starts } = self.dropped;
        let within = starts.into_iter().zip(ends).all(|(start, end)| start <= end);
        // No file system holds as much, so the log's account cannot run over either.
        let possible = ends.iter().all(|end| *end <= u64::MAX / 4);
        first_seq <= next && within && possible && starts[0] + starts[1] == bytes
    }
}

pub(crate) fn encode_dropped(dropped: &Dropped) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[0..8].copy_from_slice(&dropped.first_seq.to_le_bytes());
    bytes[8..16].copy_from_slice(&dropped.bytes.to_le_bytes());
    bytes[16..24].copy_from_slice(&dropped.starts[0].to_le_bytes());
    bytes[24..32].copy_from_slice(&dropped.starts[1].to_le_bytes());
    bytes
}

/// Exit as 48 bytes; shared with the keeper's protocol.
pub(crate) fn encode_exit(seq: Seq, exit: &Exit) -> [u8; 48] {
    let (tag, value) = match exit.status {
        ExitStatus::Code(code) => (1, code),
        ExitStatus::Signal { number, core_dumped: false } => (2, number),
        ExitStatus::Signal { number, core_dumped: true } => (3, number),
        ExitStatus::Lost => (4, 0),
    };
    let mut bytes = [0; 48];
    bytes[0..8].copy_from_slice(&seq.to_le_bytes());
    bytes[8] = tag;
    bytes[9] = match exit.cause {
        ExitCause::Own => 0,
        ExitCause::TimedOut => 1,
        ExitCause::Terminated => 2,
        ExitCause::OutOfMemory => 3,
    };
    bytes[12..16].copy_from_slice(&value.to_le_bytes());
    bytes[16..24].copy_from_slice(&(exit.usage.user.as_micros() as u64).to_le_bytes());
    bytes[24..32].copy_from_slice(&(exit.usage.system.as_micros() as u64).to_le_bytes());
    bytes[32..40].copy_from_slice(&exit.usage.max_rss_bytes.to_le_bytes());
    bytes
}

pub(crate) fn decode_exit(bytes: &[u8]) -> Option<(Seq, Exit)> {
    let value = i32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?);
    let status = match bytes[8] {
        1 => ExitStatus::Code(value),
        2 => ExitStatus::Signal { number: value, core_dumped: false },
        3 => ExitStatus::Signal { number: value, core_dumped: true },
        4 => ExitStatus::Lost,
        _ => return None,
    };
    let cause = match bytes[9] {
        0 => ExitCause::Own,
        1 => ExitCause::TimedOut,
        2 => ExitCause::Terminated,
        3 => ExitCause::OutOfMemory,
        _ => return None,
    };
    let usage = ResourceUsage {
        user: Duration::from_micros(number(bytes, 16)?),
        system: Duration::from_micros(number(bytes, 24)?),
        max_rss_bytes: number(bytes, 32)?,
    };
    Some((number(bytes, 0)?, Exit { status, cause, usage }))
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

pub(crate) fn write_all(file: &OwnedFd, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, at) {
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
