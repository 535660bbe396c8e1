//! Notes of stdin writes that outlive their writer.
//!
//! Before bytes go to a child, their write id is noted as begun, and afterwards as applied, in a file the keeper holds
//! too. A new owner reads it: a write begun and not applied is in doubt, and is answered so, never written again.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use exec_core::WriteId;
use exec_core::write_history::{WriteHistory, WriteState};
use exec_keeper::spool::directory::SpoolDirectory;
use rustix::io::Errno;

/// When the notes have grown to this, they are begun anew with what is still remembered.
const ROLL_BYTES: u64 = 1 << 20;

const BEGUN: u8 = 1;
const APPLIED: u8 = 2;
const REFUSED: u8 = 3;

#[derive(Debug)]
pub(crate) struct WriteJournal {
    folder: Arc<SpoolDirectory>,
    file: Option<OwnedFd>,
    end: u64,
}

impl WriteJournal {
    /// None yet.
    pub(crate) fn new(folder: Arc<SpoolDirectory>) -> Self {
        Self { folder, file: None, end: 0 }
    }

    /// Reads the notes of an owner that is gone.
    pub(crate) fn recover(folder: Arc<SpoolDirectory>, file: OwnedFd) -> Result<(Self, WriteHistory), Errno> {
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
        // A note that was cut short by a kill was not finished, so what it announces did not happen.
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
        history.doubt_all_in_flight();
        Ok((Self { folder, file: Some(file), end }, history))
    }

    /// Notes that `id` is about to be written. `hand_to_keeper` is told of a new file before anything is noted in it.
    pub(crate) fn begun(
        &mut self,
        id: &WriteId,
        history: &WriteHistory,
        hand_to_keeper: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if self.file.is_none() || self.end > ROLL_BYTES {
            let file = self.folder.create_file()?;
            self.end = 0;
            self.file = Some(file);
            for (id, state) in history.iter() {
                self.append(if state == WriteState::Applied { APPLIED } else { BEGUN }, id)?;
            }
            hand_to_keeper(self.file.as_ref().ok_or(Errno::BADF)?)?;
        }
        self.append(BEGUN, id)
    }

    /// Notes that all bytes of `id` were taken.
    pub(crate) fn applied(&mut self, id: &WriteId) {
        let _ = self.append(APPLIED, id);
    }

    /// Notes that no byte of `id` was taken.
    pub(crate) fn refused(&mut self, id: &WriteId) {
        let _ = self.append(REFUSED, id);
    }

    fn append(&mut self, tag: u8, id: &WriteId) -> Result<(), Errno> {
        let Some(file) = &self.file else { return Ok(()) };
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
