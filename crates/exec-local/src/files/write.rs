//! Writing whole files: replace or append.
//!
//! Writes to one file wait for each other, so that of two writers that expect the same contents, one fails because they
//! changed. That holds among the callers of this environment; for others there is the last check before the rename.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use exec_env::files::{ExpectedFile, FileKind, FileReason, WriteOptions};
use rustix::fs::{Mode, OFlags, fchmod, fstat, fsync, ftruncate};
use rustix::io::{Errno, retry_on_intr};

use super::atomic_replace::{ReplaceOptions, replace_file};
use super::policy::CallPolicy;
use super::resolve::{kind_of, os, size_bytes};
use super::temp_registry::TempRegistry;
use super::write_target::WriteTarget;

pub(super) fn write(
    policy: &CallPolicy,
    path: &Path,
    bytes: &[u8],
    options: WriteOptions,
    file_locks: &FileLocks,
    temp_registry: &TempRegistry,
) -> Result<(), FileReason> {
    let target = WriteTarget::find(policy, path, options.links).map_err(os)?;
    let _lock = file_locks.lock(&target);
    // Looked up again, because whoever had the lock before may have replaced the file.
    let target = WriteTarget {
        existing: match target.resolved.stat() {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(os(errno)),
        },
        ..target
    };
    target.check(options.expect)?;
    if options.append {
        return append(&target, bytes, options);
    }
    let replace =
        ReplaceOptions { mode: options.mode, sync: options.sync, unchanged: options.expect != ExpectedFile::Anything };
    replace_file(&target, replace, temp_registry, &mut |file| write_all(file, bytes).map_err(|(errno, _)| os(errno)))
}

/// What was written of a failed append is truncated again, unless somebody has written after it.
fn append(target: &WriteTarget, bytes: &[u8], options: WriteOptions) -> Result<(), FileReason> {
    if target.existing.as_ref().map(kind_of) == Some(FileKind::Directory) {
        return Err(os(Errno::ISDIR));
    }
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    let file = target.resolved.open(flags, Mode::from_raw_mode(0o666)).map_err(os)?;
    let before = fstat(&file).map_err(os)?;
    if let Err((errno, written)) = write_all(file.as_fd(), bytes) {
        let end = before.st_size + i64::try_from(written).unwrap_or(i64::MAX);
        if kind_of(&before) == FileKind::File && fstat(&file).map_err(os)?.st_size == end {
            ftruncate(&file, size_bytes(&before)).map_err(os)?;
        }
        return Err(os(errno));
    }
    if let Some(mode) = options.mode {
        fchmod(&file, Mode::from_raw_mode(mode)).map_err(os)?;
    }
    if options.sync {
        fsync(&file).map_err(os)?;
    }
    Ok(())
}

/// Fails with the error and the number of bytes that were written before it.
pub(super) fn write_all(file: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), (Errno, usize)> {
    let mut written = 0;
    while written < bytes.len() {
        match retry_on_intr(|| rustix::io::write(file, &bytes[written..])) {
            Ok(0) => return Err((Errno::IO, written)),
            Ok(put) => written += put,
            Err(errno) => return Err((errno, written)),
        }
    }
    Ok(())
}

/// Locks by file. Their number is fixed: writers of two files that share a lock wait for each other needlessly, which
/// costs little, and no lock ever has to be removed.
pub(super) struct FileLocks {
    locks: [Mutex<()>; 64],
    hasher: RandomState,
}

impl FileLocks {
    pub(super) fn new() -> Self {
        Self { locks: std::array::from_fn(|_| Mutex::new(())), hasher: RandomState::new() }
    }

    pub(super) fn lock(&self, target: &WriteTarget) -> MutexGuard<'_, ()> {
        let dir = fstat(&target.resolved.dir).map(|stat| (stat.st_dev, stat.st_ino));
        let key = (dir.unwrap_or_default(), &target.resolved.name);
        let index = self.hasher.hash_one(key) as usize % self.locks.len();
        // The lock guards no data, so nothing is inconsistent after a panic.
        self.locks[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
