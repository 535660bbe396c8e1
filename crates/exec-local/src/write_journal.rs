//! The record of stdin writes for the next owner, in case this one is killed.
//!
//! Before bytes go to a child, their write id is recorded as begun, and afterwards as applied, in a file that the
//! keeper holds too. The next owner reads it: a write that was begun and not applied is in doubt, and is never written
//! again.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use exec_core::WriteId;
use exec_core::write_history::{WriteHistory, WriteState};
use exec_keeper::spool::directory::SpoolDirectory;
use rustix::io::Errno;

/// When the file has grown to this, a new one is begun with the writes that are still remembered.
const ROLL_BYTES: u64 = 1 << 20;

const BEGUN: u8 = 1;
const APPLIED: u8 = 2;
const REFUSED: u8 = 3;

#[derive(Debug)]
pub(crate) struct WriteJournal {
    spool_directory: Arc<SpoolDirectory>,
    file: Option<OwnedFd>,
    end: u64,
}

impl WriteJournal {
    /// An empty journal; it has no file until the first write.
    pub(crate) fn new(spool_directory: Arc<SpoolDirectory>) -> Self {
        Self { spool_directory, file: None, end: 0 }
    }

    /// The journal of an earlier owner.
    pub(crate) fn recover(spool_directory: Arc<SpoolDirectory>, file: OwnedFd) -> Result<(Self, WriteHistory), Errno> {
        let size = rustix::fs::fstat(&file)?.st_size as u64;
        let mut bytes = vec![0; usize::try_from(size).map_err(|_| Errno::FBIG)?];
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pread(&file, &mut bytes[done..], done as u64)? {
                0 => break,
                count => done += count,
            }
        }
        let mut history = WriteHistory::default();
        let mut rest = &bytes[..done];
        let mut end = 0;
        // A kill may have cut the last record short. If it was a `begun`, the write had not started; if it was the end
        // of a write, that write stays in doubt.
        while let [tag, low, high, tail @ ..] = rest {
            let len = usize::from(u16::from_le_bytes([*low, *high]));
            let Some((id, next)) = tail.split_at_checked(len) else { break };
            let Some(id) = std::str::from_utf8(id).ok().and_then(|id| WriteId::new(id).ok()) else { break };
            match *tag {
                BEGUN => drop(history.begin(&id)),
                APPLIED => {
                    history.begin(&id);
                    history.applied(&id);
                }
                REFUSED => history.refused(&id),
                _ => break,
            }
            rest = next;
            end += 3 + len as u64;
        }
        history.mark_in_flight_in_doubt();
        Ok((Self { spool_directory, file: Some(file), end }, history))
    }

    /// Whether a new file must be begun before the next write is recorded.
    pub(crate) fn needs_file(&self) -> bool {
        self.file.is_none() || self.end > ROLL_BYTES
    }

    /// A journal with a new file that has all writes which are remembered. It takes the place of this one when the
    /// keeper has the file: without it, the next owner would not know of a write and would do it again.
    pub(crate) fn with_new_file(&self, history: &WriteHistory) -> Result<Self, Errno> {
        let file = self.spool_directory.create_file()?;
        let mut new = Self { spool_directory: self.spool_directory.clone(), file: Some(file), end: 0 };
        for (id, state) in history.iter() {
            new.append(if state == WriteState::Applied { APPLIED } else { BEGUN }, id)?;
        }
        Ok(new)
    }

    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }

    /// Records that `id` is about to be written.
    pub(crate) fn begun(&mut self, id: &WriteId) -> Result<(), Errno> {
        self.append(BEGUN, id)
    }

    /// Records that the kernel has all bytes of `id`.
    pub(crate) fn applied(&mut self, id: &WriteId) {
        let _ = self.append(APPLIED, id);
    }

    /// Records that the kernel took no byte of `id`.
    pub(crate) fn refused(&mut self, id: &WriteId) {
        let _ = self.append(REFUSED, id);
    }

    fn append(&mut self, tag: u8, id: &WriteId) -> Result<(), Errno> {
        let Some(file) = &self.file else { return Err(Errno::BADF) };
        let id = id.as_str().as_bytes();
        let mut record = Vec::with_capacity(3 + id.len());
        record.push(tag);
        record.extend_from_slice(&(id.len() as u16).to_le_bytes());
        record.extend_from_slice(id);
        let written = rustix::io::pwrite(file, &record, self.end)?;
        self.end += written as u64;
        if written == record.len() { Ok(()) } else { Err(Errno::NOSPC) }
    }
}
