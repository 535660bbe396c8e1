//! Writing whole files: replace or append.
//!
//! Writes to one file wait for each other, so that of two writers that expect the same contents, one fails because they
//! changed. That holds among the callers of this environment by a lock in memory, and between the environments of a machine
//! by `flock` on the file; for programs that take no lock there is the last check before the rename.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use exec_env::files::{ExpectedFile, FileKind, FileReason, WriteOptions};
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, fstat, fsync, ftruncate};
use rustix::io::{Errno, retry_on_intr};

use super::atomic_replace::{NewMode, ReplaceOptions, replace_file};
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
    let mut target = target.again().map_err(os)?;
    let _lock_between_servers = match options.expect {
        ExpectedFile::Content(_) => {
            let (locked, lock) = lock_current(target)?;
            target = locked;
            lock
        }
        ExpectedFile::Anything | ExpectedFile::Absent => None,
    };
    target.check(options.expect)?;
    if options.append {
        return append(&target, bytes, options);
    }
    let mode = options.mode.map_or(NewMode::Unchanged, NewMode::Exactly);
    let replace = ReplaceOptions { mode, sync: options.sync, unchanged: options.expect != ExpectedFile::Anything };
    replace_file(&target, replace, temp_registry, &mut |file| write_all(file, bytes).map_err(|(errno, _)| os(errno)))
}

/// Locks the file that has the name, and not one that was replaced while we waited for it.
fn lock_current(mut target: WriteTarget) -> Result<(WriteTarget, Option<OwnedFd>), FileReason> {
    for _ in 0..LOCK_ATTEMPTS {
        let lock = lock_between_servers(&target)?;
        let now = target.again().map_err(os)?;
        let inode = |target: &WriteTarget| target.existing.as_ref().map(|stat| (stat.st_dev, stat.st_ino));
        if lock.is_none()
            || inode(&now) == lock.as_ref().and_then(|lock| fstat(lock).ok()).map(|stat| (stat.st_dev, stat.st_ino))
        {
            return Ok((now, lock));
        }
        target = now;
    }
    Err(os(Errno::AGAIN))
}

/// Times that a file which was replaced meanwhile is locked anew.
const LOCK_ATTEMPTS: usize = 1000;

/// How long a file that another program has locked is waited for; then the call fails with `EAGAIN`. Those of our kind hold
/// the lock for milliseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Excludes other servers from the file, as long as the handle is held. `None` if there is no regular file that can be read,
/// or its file system has no such locks.
pub(super) fn lock_between_servers(target: &WriteTarget) -> Result<Option<OwnedFd>, FileReason> {
    if target.existing.as_ref().map(kind_of) != Some(FileKind::File) {
        return Ok(None);
    }
    let Ok(file) = target.open(OFlags::RDONLY) else { return Ok(None) };
    let began = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(Errno::WOULDBLOCK) if began.elapsed() < LOCK_PATIENCE => {
                // The kernel wakes only those who wait without a limit.
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(Errno::WOULDBLOCK) => return Err(os(Errno::AGAIN)),
            Err(_) => return Ok(None),
        }
    }
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
        self.lock_index(self.index(&target.resolved.dir, &target.resolved.name))
    }

    /// The locks of several names, in the order that is the same for everybody.
    pub(super) fn lock_all(&self, names: &[(&OwnedFd, &OsStr)]) -> Vec<MutexGuard<'_, ()>> {
        let indexes: BTreeSet<usize> = names.iter().map(|(dir, name)| self.index(dir, name)).collect();
        indexes.into_iter().map(|index| self.lock_index(index)).collect()
    }

    fn index(&self, dir: &OwnedFd, name: &OsStr) -> usize {
        let dir = fstat(dir).map(|stat| (stat.st_dev, stat.st_ino));
        self.hasher.hash_one((dir.unwrap_or_default(), name)) as usize % self.locks.len()
    }

    fn lock_index(&self, index: usize) -> MutexGuard<'_, ()> {
        // The lock guards no data, so nothing is inconsistent after a panic.
        self.locks[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
