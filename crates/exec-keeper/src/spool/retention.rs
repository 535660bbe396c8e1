//! What a log lets go of: the oldest entries, noted and told before their bytes are given back to the disk.

use std::os::fd::OwnedFd;

use exec_core::Seq;
use exec_core::flow::SpaceDecision;
use exec_core::limits::PUNCH_BYTES;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::Spool;
use super::index::{self, Kind, slot};
use super::shelf::First;

/// What a bite may do when the spool is full of what is still wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overfull {
    Hold,
    /// Last words, a pipe's worth at the most.
    Take,
}

impl Spool {
    /// Forgets what is too much, but nothing from `wanted` on; then whether more may come beside so many bytes that have
    /// no record yet.
    pub(super) fn make_room(&mut self, unsealed_bytes: u64, wanted: Option<Seq>) -> Result<SpaceDecision, Errno> {
        match self.room(unsealed_bytes) {
            SpaceDecision::Drop { bytes } => {
                self.forget(bytes, wanted)?;
                self.account();
                Ok(self.room(unsealed_bytes))
            }
            room => Ok(room),
        }
    }

    /// Forgets what is too much, but nothing from `wanted` on; whether too much is left.
    pub fn trim(&mut self, wanted: Option<Seq>) -> bool {
        matches!(self.make_room(0, wanted), Ok(SpaceDecision::Drop { .. }))
    }

    fn room(&self, unsealed_bytes: u64) -> SpaceDecision {
        let shared_excess = match self.folder.excess_bytes() {
            excess if self.log.cost_bytes() > self.folder.fair_bytes() => excess,
            _ => 0,
        };
        self.quota.decide_space(self.log.cost_bytes() + unsealed_bytes, shared_excess)
    }

    /// Forgets at least `bytes` of the oldest output, if the policy allows, but nothing from `wanted` on; answers how
    /// many.
    pub fn shed(&mut self, bytes: u64, wanted: Option<Seq>) -> u64 {
        let before = self.log.cost_bytes();
        if self.quota.overflow == exec_core::Overflow::DropOldest {
            let _ = self.forget(bytes, wanted);
            self.account();
        }
        before - self.log.cost_bytes()
    }

    /// Forgets the oldest entries: notes it, tells readers, then punches.
    pub(super) fn forget(&mut self, bytes: u64, wanted: Option<Seq>) -> Result<(), Errno> {
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
            let record = self.shelf.record(seq)?;
            // A damaged record must not make us forget more than there is.
            held_bytes = held_bytes.checked_sub(u64::from(record.len)).ok_or(Errno::IO)?;
            if let Kind::Output(stream) = record.kind {
                dropped.starts[slot(stream)] = record.offset + u64::from(record.len);
                dropped.bytes += u64::from(record.len);
            }
            freed += u64::from(record.len) + index::RECORD_BYTES;
            lens.push(record.len);
            seq += 1;
        }
        dropped.first_seq = seq;
        self.shelf.index.note_dropped(&dropped)?;
        self.shelf.publish_first(First { seq, dropped_bytes: dropped.bytes });
        for len in lens {
            self.log.drop_first(len);
        }
        let before = std::mem::replace(&mut self.dropped, dropped);
        for at in 0..2 {
            if let Some(file) = self.shelf.data[at].get() {
                punch(file, before.starts[at], dropped.starts[at]);
            }
        }
        if let Some(file) = self.shelf.index.file() {
            punch(file, index::position(before.first_seq), index::position(seq));
        }
        Ok(())
    }

    pub(super) fn account(&mut self) {
        let now = self.log.cost_bytes();
        self.folder.take(now);
        self.folder.give_back(self.accounted_bytes);
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
