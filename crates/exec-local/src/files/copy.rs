//! Copying files and trees: with shared blocks where the file system can, else with the kernel's own copy; holes are
//! kept.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use exec_env::files::{
    Copied, CopyOptions, CreateDirectoryOptions, FileError, FileKind, FileReason, FileVerb, LinkPolicy,
};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, chmodat, copy_file_range, fstat, ftruncate,
    futimens, ioctl_ficlone, openat, readlinkat, seek, statat, symlinkat, utimensat,
};
use rustix::io::{Errno, retry_on_intr};

use super::atomic_replace::{ReplaceOptions, replace_file};
use super::blocking::CancelFlag;
use super::path_ops::create_directory;
use super::resolve::{self, ResolvedPath, kind_of, list, os, proc_path, reopen};
use super::temp_registry::TempRegistry;
use super::write::write_all;
use super::write_target::WriteTarget;

/// How much is copied between two progress reports, and between two checks for cancellation.
const REPORT_BYTES: usize = 8 << 20;

/// For file systems where the kernel cannot copy by itself.
const BUFFER_BYTES: usize = 256 << 10;

pub(super) fn copy(
    source: &Path,
    destination: &Path,
    options: &CopyOptions,
    temp_registry: &TempRegistry,
    cancel: &CancelFlag,
) -> Result<Copied, FileError> {
    let mut copier = Copier { options, temp_registry, cancel, copied: Copied::default() };
    copier.copy(source, destination)?;
    Ok(copier.copied)
}

struct Copier<'a> {
    options: &'a CopyOptions,
    temp_registry: &'a TempRegistry,
    cancel: &'a CancelFlag,
    copied: Copied,
}

impl Copier<'_> {
    fn copy(&mut self, source: &Path, destination: &Path) -> Result<(), FileError> {
        let at_source = |reason| FileError::new(FileVerb::Copy, source, reason);
        let from = ResolvedPath::resolve(source, LinkPolicy::Follow).map_err(|errno| at_source(os(errno)))?;
        let stat = from.stat().map_err(|errno| at_source(os(errno)))?;
        match kind_of(&stat) {
            FileKind::File => self.copy_file(&from, source, destination),
            FileKind::Symlink => self.copy_link(&from, source, destination),
            FileKind::Directory if !self.options.recursive => Err(at_source(FileReason::RecursiveRequired)),
            FileKind::Directory => {
                if is_at_or_below(destination, source).map_err(|errno| at_source(os(errno)))? {
                    return Err(FileError::new(FileVerb::Copy, destination, FileReason::CopyIntoItself));
                }
                self.copy_directory(source, &stat, destination)
            }
            FileKind::Special => Err(at_source(FileReason::CopySpecial)),
        }
    }

    /// Uses paths and not handles, because a tree may be deeper than the number of files a process may open.
    fn copy_directory(&mut self, source: &Path, stat: &Stat, destination: &Path) -> Result<(), FileError> {
        let at = |path: &Path, errno| FileError::new(FileVerb::Copy, path, os(errno));
        let to = resolve_or_create_parent(destination)
            .map_err(|reason| FileError::new(FileVerb::Copy, destination, reason))?;
        // Writable for us while it is filled. Its own mode, which may forbid that, is set last.
        let made = match rustix::fs::mkdirat(&to.dir, &to.name, Mode::from_raw_mode(0o700)) {
            Ok(()) => true,
            Err(Errno::EXIST) => {
                let there = statat(&to.dir, &to.name, AtFlags::empty()).map(|stat| kind_of(&stat));
                if there != Ok(FileKind::Directory) {
                    return Err(at(destination, Errno::EXIST));
                }
                false
            }
            Err(errno) => return Err(at(destination, errno)),
        };
        self.copied.directories += 1;
        for (name, kind) in children(source).map_err(|errno| at(source, errno))? {
            if self.cancel.is_set() {
                return Err(at(source, Errno::CANCELED));
            }
            let (source, destination) = (source.join(&name), destination.join(&name));
            let from = ResolvedPath::resolve(&source, LinkPolicy::Follow).map_err(|errno| at(&source, errno))?;
            match kind {
                FileKind::File => self.copy_file(&from, &source, &destination)?,
                FileKind::Symlink => self.copy_link(&from, &source, &destination)?,
                FileKind::Directory => {
                    let stat = from.stat().map_err(|errno| at(&source, errno))?;
                    self.copy_directory(&source, &stat, &destination)?;
                }
                FileKind::Special => self.copied.skipped += 1,
            }
        }
        if made {
            let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&to.dir, &to.name, flags, Mode::empty())
                .and_then(|handle| {
                    self.copy_times(stat, |times| utimensat(CWD, proc_path(&handle), times, AtFlags::empty()))?;
                    chmodat(CWD, proc_path(&handle), mode, AtFlags::empty())
                })
                .map_err(|errno| at(destination, errno))?;
        }
        self.report();
        Ok(())
    }

    fn copy_link(&mut self, from: &ResolvedPath, source: &Path, destination: &Path) -> Result<(), FileError> {
        let text = readlinkat(&from.dir, &from.name, Vec::new())
            .map_err(|errno| FileError::new(FileVerb::Copy, source, os(errno)))?;
        ResolvedPath::resolve(destination, LinkPolicy::Follow)
            .and_then(|to| symlinkat(&text, &to.dir, &to.name))
            .map_err(|errno| FileError::new(FileVerb::Copy, destination, os(errno)))?;
        self.copied.symlinks += 1;
        self.report();
        Ok(())
    }

    fn copy_file(&mut self, from: &ResolvedPath, source: &Path, destination: &Path) -> Result<(), FileError> {
        let at_source = |reason| FileError::new(FileVerb::Copy, source, reason);
        let (file, stat) = open_source(from).map_err(at_source)?;
        let target = WriteTarget::find(destination, LinkPolicy::Follow)
            .map_err(|errno| FileError::new(FileVerb::Copy, destination, os(errno)))?;
        if let Some(existing) = &target.existing
            && (existing.st_dev, existing.st_ino) == (stat.st_dev, stat.st_ino)
        {
            return Err(FileError::new(FileVerb::Copy, destination, FileReason::CopyOntoItself));
        }
        let replace = ReplaceOptions { mode: Some(stat.st_mode & 0o7777), ..ReplaceOptions::default() };
        let temp_registry = self.temp_registry;
        let before = self.copied;
        replace_file(&target, replace, temp_registry, &mut |to| {
            self.copied = before;
            self.copy_contents(&file, &stat, to).map_err(os)?;
            self.copy_times(&stat, |times| futimens(to, times)).map_err(os)
        })
        .map_err(|reason| FileError::new(FileVerb::Copy, destination, reason))?;
        self.copied.files += 1;
        self.report();
        Ok(())
    }

    fn copy_contents(&mut self, from: &OwnedFd, stat: &Stat, to: BorrowedFd<'_>) -> Result<(), Errno> {
        let size_bytes = resolve::size_bytes(stat);
        let regular = kind_of(&fstat(to)?) == FileKind::File;
        // A file with a size of 0 may be one of /proc, whose contents are known only by reading them.
        if !regular || size_bytes == 0 {
            return self.copy_through_buffer(from, to, u64::MAX);
        }
        if ioctl_ficlone(to, from).is_ok() {
            self.copied.bytes += size_bytes;
            return Ok(());
        }
        let mut offset = 0;
        while offset < size_bytes {
            let (data, end) = next_data(from, offset, size_bytes)?;
            self.copied.bytes += data - offset;
            self.copy_range(from, to, data, end)?;
            offset = end;
        }
        // A hole at the end has no data to copy, only a length. What was appended meanwhile is not copied.
        if resolve::size_bytes(&fstat(to)?) < size_bytes {
            ftruncate(to, size_bytes)?;
        }
        Ok(())
    }

    fn copy_range(&mut self, from: &OwnedFd, to: BorrowedFd<'_>, begin: u64, end: u64) -> Result<(), Errno> {
        let (mut read, mut written) = (begin, begin);
        while read < end {
            self.check_cancelled()?;
            let len = usize::try_from(end - read).map_or(REPORT_BYTES, |left| left.min(REPORT_BYTES));
            let step = retry_on_intr(|| {
                let (mut read, mut written) = (read, written);
                copy_file_range(from, Some(&mut read), to, Some(&mut written), len)
            });
            match step {
                // The file became shorter while we copied.
                Ok(0) => return Ok(()),
                Ok(copied) => {
                    read += copied as u64;
                    written += copied as u64;
                    self.copied.bytes += copied as u64;
                    self.report();
                }
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    seek(from, SeekFrom::Start(read))?;
                    seek(to, SeekFrom::Start(written))?;
                    return self.copy_through_buffer(from, to, end - read);
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// From the current positions of the two files, at most `left` bytes.
    fn copy_through_buffer(&mut self, from: &OwnedFd, to: BorrowedFd<'_>, mut left: u64) -> Result<(), Errno> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut unreported = 0;
        while left > 0 {
            self.check_cancelled()?;
            let len = usize::try_from(left).map_or(BUFFER_BYTES, |left| left.min(BUFFER_BYTES));
            let got = retry_on_intr(|| rustix::io::read(from, &mut buffer[..len]))?;
            if got == 0 {
                break;
            }
            write_all(to, &buffer[..got]).map_err(|(errno, _)| errno)?;
            left -= got as u64;
            self.copied.bytes += got as u64;
            unreported += got;
            if unreported >= REPORT_BYTES {
                unreported = 0;
                self.report();
            }
        }
        Ok(())
    }

    fn copy_times(&self, from: &Stat, set: impl FnOnce(&Timestamps) -> Result<(), Errno>) -> Result<(), Errno> {
        if !self.options.keep_times {
            return Ok(());
        }
        let stamp = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
        set(&Timestamps {
            last_access: stamp(from.st_atime as _, from.st_atime_nsec as i64),
            last_modification: stamp(from.st_mtime as _, from.st_mtime_nsec as i64),
        })
    }

    fn check_cancelled(&self) -> Result<(), Errno> {
        match self.cancel.is_set() {
            true => Err(Errno::CANCELED),
            false => Ok(()),
        }
    }

    fn report(&self) {
        if let Some(progress) = &self.options.progress {
            progress(&self.copied);
        }
    }
}

/// Where a directory is to be created. Missing parents are created now.
fn resolve_or_create_parent(path: &Path) -> Result<ResolvedPath, FileReason> {
    match (ResolvedPath::resolve(path, LinkPolicy::Follow), path.parent()) {
        (Err(Errno::NOENT), Some(parent)) => {
            create_directory(parent, CreateDirectoryOptions::default())?;
            ResolvedPath::resolve(path, LinkPolicy::Follow).map_err(os)
        }
        (resolved, _) => resolved.map_err(os),
    }
}

/// Opens the file if it is still regular; it may have become something else since it was listed.
fn open_source(from: &ResolvedPath) -> Result<(OwnedFd, Stat), FileReason> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = openat(&from.dir, &from.name, flags, Mode::empty()).map_err(os)?;
    let stat = fstat(&handle).map_err(os)?;
    match kind_of(&stat) {
        FileKind::File => {
            let file = match reopen(&handle, OFlags::RDONLY) {
                // There is no /proc. Opening by name does not follow a link, and regular files do not block.
                Err(Errno::NOENT | Errno::NOTDIR) => from.open(OFlags::RDONLY, Mode::empty()),
                other => other,
            };
            Ok((file.map_err(os)?, stat))
        }
        FileKind::Symlink => Err(os(Errno::LOOP)),
        _ => Err(FileReason::CopySpecial),
    }
}

/// Begin and end of the next data at or after `offset`, both at most `size_bytes`.
fn next_data(file: &OwnedFd, offset: u64, size_bytes: u64) -> Result<(u64, u64), Errno> {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(begin) => {
            let end = seek(file, SeekFrom::Hole(begin)).unwrap_or(size_bytes);
            Ok((begin.min(size_bytes), end.clamp(begin, size_bytes.max(begin)).min(size_bytes)))
        }
        // Only a hole is left.
        Err(Errno::NXIO) => Ok((size_bytes, size_bytes)),
        // This file system does not know its holes.
        Err(_) => Ok((offset, size_bytes)),
    }
}

/// Sorted by name.
fn children(path: &Path) -> Result<Vec<(std::ffi::OsString, FileKind)>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let dir = openat(CWD, path, flags, Mode::empty())?;
    let mut children = Vec::new();
    for entry in list(&dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = kind_of(&statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?);
        let name = std::ffi::OsString::from_vec(name.to_bytes().to_vec());
        children.push((name, kind));
    }
    children.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(children)
}

/// Whether `path`, which need not exist, is `root` or below it.
fn is_at_or_below(path: &Path, root: &Path) -> Result<bool, Errno> {
    let real =
        |path: &Path| std::fs::canonicalize(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
    let root = real(root)?;
    let mut missing = Vec::new();
    let mut existing: &Path = path;
    let resolved: PathBuf = loop {
        match real(existing) {
            Ok(resolved) => break resolved,
            Err(Errno::NOENT) => {
                missing.extend(existing.components().next_back());
                existing = match existing.parent() {
                    Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
                    Some(parent) => parent,
                    None => return Err(Errno::NOENT),
                };
            }
            Err(errno) => return Err(errno),
        }
    };
    let names = missing.iter().rev().map(|name| name.as_os_str());
    let whole = names.fold(resolved, |path, name| path.join(name));
    Ok(whole.starts_with(&root))
}
