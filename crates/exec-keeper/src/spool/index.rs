//! The format of the index: a header, then one record for each entry. The number of the record is the entry's seq.
//!
//! ```text
//!   0        128      160      192
//!   │ header │ rec 1  │ rec 2  │ …           little endian throughout
//! ```
//!
//! A reader must understand it after its writer was killed at any instruction. So each fact is one small `pwrite`, in such
//! an order that every prefix is true: bytes come before the record that names them, the header says what is dropped
//! before the hole is punched, and it has the details of the exit before the exit has its record.

use std::os::fd::OwnedFd;
use std::time::Duration;

use exec_core::{Exit, ExitCause, ExitStatus, LimitSet, ResourceUsage, Seq, Stream, TerminalSize};
use rustix::io::Errno;

pub(crate) const HEADER_BYTES: u64 = 128;
pub(crate) const RECORD_BYTES: u64 = exec_core::limits::RECORD_BYTES;
const MAGIC: [u8; 8] = *b"execlog1";
pub(crate) const DROPPED_AT: u64 = 8;
pub(crate) const EXIT_AT: u64 = 48;
/// One byte: [`NOBODY_READS`] if nobody followed the log when its writer last looked.
pub(crate) const READERS_AT: u64 = 96;
const NOBODY_READS: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    Output(Stream),
    /// The header has the details.
    Exited,
    Closed,
}

impl RecordKind {
    const ALL: [RecordKind; 5] = [
        RecordKind::Output(Stream::Stdout),
        RecordKind::Output(Stream::Stderr),
        RecordKind::Output(Stream::Pty),
        RecordKind::Exited,
        RecordKind::Closed,
    ];
}

/// An entry without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexRecord {
    pub kind: RecordKind,
    pub len: u32,
    /// Where its bytes begin in the data file.
    pub offset: u64,
    /// Up to where the other data file was recorded, so that the last record alone says where both ended.
    pub other_end: u64,
    /// When it was made, in microseconds since 1970.
    pub unix_micros: u64,
    /// The size of the terminal at that moment. Only terminals have one; an older writer did not note it.
    pub terminal: Option<TerminalSize>,
}

/// Entries that were dropped: all before `first_seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    pub first_seq: Seq,
    /// Output bytes of these entries.
    pub bytes: u64,
    /// Where the bytes that were not dropped begin in each data file.
    pub starts: [u64; 2],
}

impl Default for Dropped {
    fn default() -> Self {
        Self { first_seq: 1, bytes: 0, starts: [0; 2] }
    }
}

/// Which of the two data files a stream has. Stdout and the terminal share the first, since no process has both.
pub fn slot_of(stream: Stream) -> usize {
    match stream {
        Stream::Stdout | Stream::Pty => 0,
        Stream::Stderr => 1,
    }
}

impl IndexRecord {
    /// Up to where both data files are recorded after this record.
    pub fn ends(&self) -> [u64; 2] {
        match self.kind {
            RecordKind::Output(stream) if slot_of(stream) == 1 => [self.other_end, self.offset + u64::from(self.len)],
            _ => [self.offset + u64::from(self.len), self.other_end],
        }
    }

    fn encode(&self) -> [u8; RECORD_BYTES as usize] {
        let mut bytes = [0; RECORD_BYTES as usize];
        bytes[0] = tag_of(&RecordKind::ALL, self.kind);
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.other_end.to_le_bytes());
        if let (RecordKind::Output(Stream::Pty), Some(size)) = (self.kind, self.terminal) {
            // A process with a terminal has no other stream, so the place is free.
            bytes[16..18].copy_from_slice(&size.rows.to_le_bytes());
            bytes[18..20].copy_from_slice(&size.cols.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&self.unix_micros.to_le_bytes());
        bytes
    }

    /// `None` if it is not a record, which only a damaged disk can bring about.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let kind = from_tag(&RecordKind::ALL, *bytes.first()?)?;
        let len = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        let offset = number(bytes, 8)?;
        offset.checked_add(u64::from(len))?;
        bytes.get(..RECORD_BYTES as usize)?;
        let (other_end, terminal) = match kind {
            RecordKind::Output(Stream::Pty) => {
                let [rows, cols] = [16, 18].map(|at| u16::from_le_bytes([bytes[at], bytes[at + 1]]));
                (0, (rows > 0 && cols > 0).then_some(TerminalSize { rows, cols }))
            }
            _ => (number(bytes, 16)?, None),
        };
        Some(Self { kind, len, offset, other_end, unix_micros: number(bytes, 24)?, terminal })
    }
}

pub(crate) fn empty_header() -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[0..8].copy_from_slice(&MAGIC);
    header[8..48].copy_from_slice(&encode_dropped(&Dropped::default()));
    header
}

pub(crate) fn encode_records(records: &[IndexRecord]) -> Vec<u8> {
    records.iter().flat_map(IndexRecord::encode).collect()
}

/// Where the record of `seq` is in the file.
pub(crate) fn position(seq: Seq) -> u64 {
    HEADER_BYTES + (seq - 1) * RECORD_BYTES
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexHeader {
    pub dropped: Dropped,
    /// The exit and its seq. The record of that seq may still be missing.
    pub exit: Option<(Seq, Exit)>,
    /// Whether nobody followed the log when its writer last looked. An older writer did not look.
    pub nobody_reads: bool,
}

impl IndexHeader {
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.get(0..8)? != MAGIC {
            return None;
        }
        let dropped = Dropped {
            first_seq: number(bytes, 8)?.max(1),
            bytes: number(bytes, 16)?,
            starts: [number(bytes, 24)?, number(bytes, 32)?],
        };
        let nobody_reads = *bytes.get(READERS_AT as usize)? == NOBODY_READS;
        Some(Self { dropped, exit: decode_exit(bytes.get(EXIT_AT as usize..)?), nobody_reads })
    }

    /// Whether the header agrees with records before `next` that name bytes up to `ends`. What we write always does; with
    /// a damaged header the log would count below zero.
    pub(crate) fn fits_records(&self, next: Seq, ends: [u64; 2]) -> bool {
        let Dropped { first_seq, bytes, starts } = self.dropped;
        let within = starts.into_iter().zip(ends).all(|(start, end)| start <= end);
        // No file system holds so much, and with this bound no sum of the log can overflow.
        let possible = ends.iter().all(|end| *end <= u64::MAX / 4);
        first_seq <= next && within && possible && starts[0] + starts[1] == bytes
    }
}

pub(crate) fn encode_nobody_reads(nobody_reads: bool) -> [u8; 1] {
    [if nobody_reads { NOBODY_READS } else { 0 }]
}

pub(crate) fn encode_dropped(dropped: &Dropped) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[0..8].copy_from_slice(&dropped.first_seq.to_le_bytes());
    bytes[8..16].copy_from_slice(&dropped.bytes.to_le_bytes());
    bytes[16..24].copy_from_slice(&dropped.starts[0].to_le_bytes());
    bytes[24..32].copy_from_slice(&dropped.starts[1].to_le_bytes());
    bytes
}

/// Used by the keeper's protocol too, with a seq of 0.
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
    bytes[9] = tag_of(&ExitCause::ALL, exit.cause) - 1;
    bytes[10] = exit.limits_reached.bits();
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
    let cause = *ExitCause::ALL.get(usize::from(bytes[9]))?;
    let limits_reached = LimitSet::from_bits(bytes[10]);
    let usage = ResourceUsage {
        user: Duration::from_micros(number(bytes, 16)?),
        system: Duration::from_micros(number(bytes, 24)?),
        max_rss_bytes: number(bytes, 32)?,
    };
    Some((number(bytes, 0)?, Exit { status, cause, usage, limits_reached }))
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

/// The byte that stands for `value`: its position in `all`, counted from 1.
fn tag_of<T: PartialEq>(all: &[T], value: T) -> u8 {
    all.iter().position(|one| *one == value).map_or(0, |at| at as u8 + 1)
}

fn from_tag<T: Copy>(all: &[T], tag: u8) -> Option<T> {
    all.get(usize::from(tag).checked_sub(1)?).copied()
}
