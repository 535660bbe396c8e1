//! What a log lets go of: the oldest entries, noted and told before their bytes are given back to the disk.

use std::os::fd::OwnedFd;

use exec_core::Seq;
use exec_core::flow::SpaceDecision;
use exec_core::limits::PUNCH_BYTES;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::Spool;
use super::index::{self, RecordKind, slot};
use super::log_files::FirstHeld;

/// What a bite may do when the spool is full of what is still wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenFull {
    WaitForReader,
    /// Last words, a pipe's worth at the most.
    Take,
}

impl Spool {
    /// Forgets what is too much, but nothing from `wanted` on; then whether more may come beside so many bytes that have
    /// no record yet.
    pub(super) fn make_space(&mut self, unrecorded_bytes: u64, wanted: Option<Seq>) -> Result<SpaceDecision, Errno> {
        match self.space_decision(unrecorded_bytes) {
            SpaceDecision::Drop { bytes } => {
                self.drop_oldest(bytes, wanted)?;
                self.update_accounting();
                Ok(self.space_decision(unrecorded_bytes))
            }
            decision => Ok(decision),
        }
    }

    /// Forgets what is too much, but nothing from `wanted` on; whether too much is left.
    pub fn trim(&mut self, wanted: Option<Seq>) -> bool {
        matches!(self.make_space(0, wanted), Ok(SpaceDecision::Drop { .. }))
    }

    fn space_decision(&self, unrecorded_bytes: u64) -> SpaceDecision {
        let shared_excess = match self.directory.excess_bytes() {
            excess if self.log.cost_bytes() > self.directory.fair_share_bytes() => excess,
            _ => 0,
        };
        self.quota.decide_space(self.log.cost_bytes() + unrecorded_bytes, shared_excess)
    }

    /// Forgets at least `bytes` of the oldest output, if the policy allows, but nothing from `wanted` on; answers how
    /// many.
    pub fn shed(&mut self, bytes: u64, wanted: Option<Seq>) -> u64 {
        let before = self.log.cost_bytes();
        if self.quota.overflow == exec_core::Overflow::DropOldest {
            let _ = self.drop_oldest(bytes, wanted);
            self.update_accounting();
        }
        before - self.log.cost_bytes()
    }

    /// Forgets the oldest entries: notes it, tells readers, then punches.
    pub(super) fn drop_oldest(&mut self, bytes: u64, wanted: Option<Seq>) -> Result<(), Errno> {
        let head = self.log.head(false);
        let end = wanted.map_or(head.next_seq, |wanted| wanted.min(head.next_seq));
        if head.first_seq >= end {
            return Ok(());
        }
        let (mut freed, mut seq) = (0, head.first_seq);
        let mut dropped = self.dropped;
        let mut held_bytes = head.held_bytes;
        let mut lens = Vec::new();
        while freed < bytes && seq < end {
            let record = self.log_files.read_record(seq)?;
            // A damaged record must not make us forget more than there is.
            held_bytes = held_bytes.checked_sub(u64::from(record.len)).ok_or(Errno::IO)?;
            if let RecordKind::Output(stream) = record.kind {
                dropped.starts[slot(stream)] = record.offset + u64::from(record.len);
                dropped.bytes += u64::from(record.len);
            }
            freed += u64::from(record.len) + index::RECORD_BYTES;
            lens.push(record.len);
            seq += 1;
        }
        dropped.first_seq = seq;
        self.log_files.index.write_dropped(&dropped)?;
        self.log_files.publish_first_held(FirstHeld { seq, dropped_bytes: dropped.bytes });
        for len in lens {
            self.log.drop_first(len);
        }
        let before = std::mem::replace(&mut self.dropped, dropped);
        for at in 0..2 {
            if let Some(file) = self.log_files.data[at].get() {
                punch(file, before.starts[at], dropped.starts[at]);
            }
        }
        if let Some(file) = self.log_files.index.file() {
            punch(file, index::position(before.first_seq), index::position(seq));
        }
        Ok(())
    }

    pub(super) fn update_accounting(&mut self) {
        let now = self.log.cost_bytes();
        self.directory.add_bytes(now);
        self.directory.remove_bytes(self.accounted_bytes);
        self.accounted_bytes = now;
    }
}

/// Gives whole pages between `from` and `to` back to the disk. What cannot be punched stays, and costs only room.
fn punch(file: &OwnedFd, from: u64, to: u64) {
    // The header's page is never punched: positions below one step stay, and steps begin at multiples.
    let from = from / PUNCH_BYTES * PUNCH_BYTES;
    let to = to / PUNCH_BYTES * PUNCH_BYTES;
    let from = if from == 0 { 4096 } else { from };
    if to > from {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(file, flags, from, to - from);
    }
}
