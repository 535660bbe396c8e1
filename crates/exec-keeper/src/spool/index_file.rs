//! The index of a log: in memory at first, and in a file from the first output on.
//!
//! Many processes print nothing. Their log is only an exit and `closed`, appended together, and the keeper knows the exit
//! anyway. A file for that would cost more than the start of a thread. So a log without a file never held anything else,
//! and whoever resumes it begins an empty one and appends the same two entries.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use exec_core::{Exit, Seq};
use rustix::io::Errno;

use super::directory::SpoolDirectory;
use super::index::{self, Dropped, IndexRecord};
use super::log_files::{self, DiskWait};
use super::{LogFileKind, RegisterFile};

#[derive(Debug)]
pub(crate) struct IndexFile {
    file: OnceLock<OwnedFd>,
    /// The index until there is a file.
    buffer: Mutex<Vec<u8>>,
}

impl IndexFile {
    pub(crate) fn in_memory() -> Self {
        Self { file: OnceLock::new(), buffer: Mutex::new(index::empty_header().to_vec()) }
    }

    pub(crate) fn from_file(file: OwnedFd) -> Self {
        Self { file: OnceLock::from(file), buffer: Mutex::default() }
    }

    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        self.file.get()
    }

    /// Moves the index into a new file, if it has none, and registers that file.
    pub(super) fn ensure_file(&self, directory: &SpoolDirectory, register_file: RegisterFile<'_>) -> Result<(), Errno> {
        if self.file.get().is_some() {
            return Ok(());
        }
        let file = directory.create_file()?;
        index::write_all(&file, &self.buffered(), 0)?;
        register_file(LogFileKind::Index, &file)?;
        let _ = self.file.set(file);
        Ok(())
    }

    pub(crate) fn size(&self) -> Result<u64, Errno> {
        match self.file.get() {
            Some(file) => Ok(rustix::fs::fstat(file)?.st_size as u64),
            None => Ok(self.buffered().len() as u64),
        }
    }

    pub(crate) fn read(&self, at: u64, len: usize, disk_wait: DiskWait) -> Result<Bytes, Errno> {
        if let Some(file) = self.file.get() {
            return log_files::read(file, at, len, disk_wait);
        }
        let buffer = self.buffered();
        let found = usize::try_from(at).ok().and_then(|at| buffer.get(at..at.checked_add(len)?));
        found.map(Bytes::copy_from_slice).ok_or(Errno::IO)
    }

    /// Writes records from `seq` on. After an error a prefix of them may be there; the same call again completes it.
    pub(crate) fn append(&self, seq: Seq, records: &[IndexRecord]) -> Result<(), Errno> {
        self.write(&index::encode_records(records), index::position(seq))
    }

    /// To be called before the entries are dropped.
    pub(crate) fn write_dropped(&self, dropped: &Dropped) -> Result<(), Errno> {
        self.write(&index::encode_dropped(dropped), index::DROPPED_AT)
    }

    pub(crate) fn write_nobody_reads(&self, nobody_reads: bool) -> Result<(), Errno> {
        self.write(&index::encode_nobody_reads(nobody_reads), index::READERS_AT)
    }

    /// To be called before the record of the exit is appended.
    pub(crate) fn write_exit(&self, seq: Seq, exit: &Exit) -> Result<(), Errno> {
        self.write(&index::encode_exit(seq, exit), index::EXIT_AT)
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), Errno> {
        if let Some(file) = self.file.get() {
            return index::write_all(file, bytes, at);
        }
        let mut buffer = self.buffered();
        let at = usize::try_from(at).map_err(|_| Errno::IO)?;
        let end = at + bytes.len();
        if buffer.len() < end {
            buffer.resize(end, 0);
        }
        buffer[at..end].copy_from_slice(bytes);
        Ok(())
    }

    fn buffered(&self) -> MutexGuard<'_, Vec<u8>> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
