//! The index as it is written and read: in memory while there is nothing to name, in a file from the first output on.
//!
//! Many a process prints nothing. Its log is an exit and an end, told together, which its keeper knows as well; a file
//! for them would cost more than the start of a thread. So a log without a file is a log in which nothing stands or
//! ever stood but that, and whoever takes it up begins it anew and tells the same.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use exec_core::{Exit, Seq};
use rustix::io::Errno;

use super::folder::Folder;
use super::index::{self, Dropped, Record};
use super::shelf::{self, Patience};
use super::{Keep, Kept};

#[derive(Debug)]
pub(crate) struct Register {
    file: OnceLock<OwnedFd>,
    /// What the file will begin with; held for a copy.
    early: Mutex<Vec<u8>>,
}

impl Register {
    /// Of a process that has not printed yet.
    pub(crate) fn early() -> Self {
        Self { file: OnceLock::new(), early: Mutex::new(index::begin().to_vec()) }
    }

    /// A file that was found again.
    pub(crate) fn over(file: OwnedFd) -> Self {
        Self { file: OnceLock::from(file), early: Mutex::default() }
    }

    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        self.file.get()
    }

    /// Gives it a file, if it has none, and that to whoever else must hold it. From here on output may be named.
    pub(super) fn settle(&self, folder: &Folder, keep: Keep<'_>) -> Result<(), Errno> {
        if self.file.get().is_some() {
            return Ok(());
        }
        let file = folder.file()?;
        index::write_all(&file, &self.early_bytes(), 0)?;
        keep(Kept::Index, &file)?;
        let _ = self.file.set(file);
        Ok(())
    }

    pub(crate) fn size(&self) -> Result<u64, Errno> {
        match self.file.get() {
            Some(file) => Ok(rustix::fs::fstat(file)?.st_size as u64),
            None => Ok(self.early_bytes().len() as u64),
        }
    }

    pub(crate) fn read(&self, at: u64, len: usize, patience: Patience) -> Result<Bytes, Errno> {
        if let Some(file) = self.file.get() {
            return shelf::read(file, at, len, patience);
        }
        let early = self.early_bytes();
        let found = usize::try_from(at).ok().and_then(|at| early.get(at..at.checked_add(len)?));
        found.map(Bytes::copy_from_slice).ok_or(Errno::IO)
    }

    /// Appends records from `seq` on. All of them or, on an error, a prefix that a later call completes.
    pub(crate) fn append(&self, seq: Seq, records: &[Record]) -> Result<(), Errno> {
        self.write(&index::encode_records(records), index::position(seq))
    }

    /// Notes what is forgotten, before it is.
    pub(crate) fn note_dropped(&self, dropped: &Dropped) -> Result<(), Errno> {
        self.write(&index::encode_dropped(dropped), index::DROPPED_AT)
    }

    /// Notes the exit's details, before its record.
    pub(crate) fn note_exit(&self, seq: Seq, exit: &Exit) -> Result<(), Errno> {
        self.write(&index::encode_exit(seq, exit), index::EXIT_AT)
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), Errno> {
        if let Some(file) = self.file.get() {
            return index::write_all(file, bytes, at);
        }
        let mut early = self.early_bytes();
        let at = usize::try_from(at).map_err(|_| Errno::IO)?;
        let end = at + bytes.len();
        if early.len() < end {
            early.resize(end, 0);
        }
        early[at..end].copy_from_slice(bytes);
        Ok(())
    }

    fn early_bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
