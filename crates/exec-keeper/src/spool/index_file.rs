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

use super::directory::SpoolDirectory;
use super::index::{self, Dropped, IndexRecord};
use super::log_files::{self, DiskWait};
use super::{LogFileKind, RegisterFile};

#[derive(Debug)]
pub(crate) struct IndexFile {
    file: OnceLock<OwnedFd>,
    /// What the file will begin with; held for a copy.
    buffer: Mutex<Vec<u8>>,
}

impl IndexFile {
    /// Of a process that has not printed yet.
    pub(crate) fn in_memory() -> Self {
        Self { file: OnceLock::new(), buffer: Mutex::new(index::empty_header().to_vec()) }
    }

    /// A file that was found again.
    pub(crate) fn from_file(file: OwnedFd) -> Self {
        Self { file: OnceLock::from(file), buffer: Mutex::default() }
    }

    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        self.file.get()
    }

    /// Gives it a file, if it has none, and that to whoever else must hold it. From here on output may be named.
    pub(super) fn create_file(&self, directory: &SpoolDirectory, register_file: RegisterFile<'_>) -> Result<(), Errno> {
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

    /// Appends records from `seq` on. All of them or, on an error, a prefix that a later call completes.
    pub(crate) fn append(&self, seq: Seq, records: &[IndexRecord]) -> Result<(), Errno> {
        self.write(&index::encode_records(records), index::position(seq))
    }

    /// Notes what is forgotten, before it is.
    pub(crate) fn write_dropped(&self, dropped: &Dropped) -> Result<(), Errno> {
        self.write(&index::encode_dropped(dropped), index::DROPPED_AT)
    }

    /// Notes the exit's details, before its record.
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
