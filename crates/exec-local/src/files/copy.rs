//! Copying files and trees: with shared blocks where the file system can, else with the kernel's own copy; holes are
//! kept. A tree is copied through handles, so it may be deeper than a path can be long.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use exec_env::files::{
    Copied, CopyFailures, CopyOptions, CreateDirectoryOptions, FileError, FileKind, FileReason, FileVerb, LinkPolicy,
};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, chmodat, copy_file_range, fstat, ftruncate,
    futimens, ioctl_ficlone, mkdirat, openat, readlinkat, seek, statat, utimensat,
};
use rustix::io::{Errno, pread, retry_on_intr};

use super::atomic_replace::{NewMode, ReplaceOptions, mode_of_copy, replace_file};
use super::blocking::CancelFlag;
use super::descent::{Descent, DirectoryStack};
use super::path_ops::{canonicalize, create_directory};
use super::policy::{CallPolicy, PolicyPath, Wanted};
use super::resolve::{self, LastLink, ResolvedPath, kind_of, open_directory, os, proc_path, reopen};
use super::temp_registry::TempRegistry;
use super::write::write_all;
use super::write_target::WriteTarget;

/// How much is copied between two progress reports, and between two checks for cancellation.
const REPORT_BYTES: usize = 8 << 20;

/// For file systems where the kernel cannot copy by itself.
const BUFFER_BYTES: usize = 256 << 10;

pub(super) fn copy(
    policy: &CallPolicy,
    source: &Path,
    destination: &Path,
    options: &CopyOptions,
    failed: Option<&CopyFailures>,
    temp_registry: &TempRegistry,
    cancel: &CancelFlag,
) -> Result<Copied, FileError> {
    let mut copier = Copier { policy, options, failed, temp_registry, cancel, copied: Copied::default() };
    copier.copy(source, destination)?;
    Ok(copier.copied)
}

struct Copier<'a> {
    policy: &'a CallPolicy,
    options: &'a CopyOptions,
    /// Is told what is left out of a tree; `None`: the first failure ends the copy.
    failed: Option<&'a CopyFailures>,
    temp_registry: &'a TempRegistry,
    cancel: &'a CancelFlag,
    copied: Copied,
}

/// A name to copy, and where to.
struct CopyStep<'a> {
    from: BorrowedFd<'a>,
    from_policy_path: &'a PolicyPath,
    name: &'a OsStr,
    to: CopyTarget<'a>,
    source: &'a Path,
    destination: &'a Path,
}

/// Where something is copied to.
#[derive(Clone, Copy)]
enum CopyTarget<'a> {
    Path(&'a CallPolicy, &'a Path),
    /// A name in a directory of the destination.
    Name(BorrowedFd<'a>, &'a PolicyPath, &'a OsStr),
}

impl CopyTarget<'_> {
    fn resolve(&self) -> Result<ResolvedPath, Errno> {
        match self {
            Self::Path(policy, path) => ResolvedPath::resolve(policy, path, LinkPolicy::Follow),
            Self::Name(dir, policy_path, name) => ResolvedPath::in_directory(*dir, policy_path, name),
        }
    }

    fn find(&self) -> Result<WriteTarget, Errno> {
        match self {
            Self::Path(policy, path) => WriteTarget::find(policy, path, LinkPolicy::Follow),
            Self::Name(dir, policy_path, name) => WriteTarget::find_in(*dir, policy_path, name, LinkPolicy::Follow),
        }
    }
}

impl CopyStep<'_> {
    fn at_source(&self, reason: FileReason) -> FileError {
        FileError::new(FileVerb::Copy, self.source, reason)
    }

    fn at_destination(&self, reason: FileReason) -> FileError {
        FileError::new(FileVerb::Copy, self.destination, reason)
    }
}

impl Copier<'_> {
    fn copy(&mut self, source: &Path, destination: &Path) -> Result<(), FileError> {
        let at_source = |reason| FileError::new(FileVerb::Copy, source, reason);
        let from = ResolvedPath::resolve(self.policy, source, LinkPolicy::Follow);
        let from = from.map_err(|errno| at_source(os(errno)))?;
        let stat = from.stat().map_err(|errno| at_source(os(errno)))?;
        let (name, to) = (from.name.as_os_str(), CopyTarget::Path(self.policy, destination));
        let (from, from_policy_path) = (from.dir.as_fd(), &from.dir_policy_path);
        let step = CopyStep { from, from_policy_path, name, to, source, destination };
        match kind_of(&stat) {
            FileKind::File => self.copy_file(&step),
            FileKind::Symlink => self.copy_link(&step),
            FileKind::Directory if !self.options.recursive => Err(at_source(FileReason::RecursiveRequired)),
            FileKind::Directory => {
                if is_at_or_below(self.policy, destination, source).map_err(|errno| at_source(os(errno)))? {
                    return Err(step.at_destination(FileReason::CopyIntoItself));
                }
                self.copy_tree(&step, stat)
            }
            FileKind::Special => Err(at_source(FileReason::CopySpecial)),
        }
    }

    fn copy_tree(&mut self, top: &CopyStep<'_>, stat: Stat) -> Result<(), FileError> {
        let mut ends = TreeEnds::open(self.policy, top, stat)?;
        self.copied.directories += 1;
        let copied = self.copy_below(&mut ends);
        if copied.is_err() {
            self.finish_begun(&mut ends);
        }
        copied
    }

    fn copy_below(&mut self, ends: &mut TreeEnds) -> Result<(), FileError> {
        loop {
            self.check_cancelled().map_err(|errno| ends.at_source(errno))?;
            let name = match ends.tree.next() {
                Ok(next) => next.map(|(name, _)| name),
                // The rest of this directory is left out.
                Err(errno) => {
                    self.leave_out(ends.at_source(errno))?;
                    None
                }
            };
            let entered = match name {
                Some(name) => {
                    ends.source.push(&name);
                    ends.destination.push(&name);
                    self.copy_entry(ends, &name)?
                }
                None if self.leave(ends)? => false,
                None => return Ok(()),
            };
            if !entered {
                ends.source.pop();
                ends.destination.pop();
            }
        }
    }

    /// Copies what has this name, or enters it if it is a directory and returns true. An error ends the copy.
    fn copy_entry(&mut self, ends: &mut TreeEnds, name: &OsStr) -> Result<bool, FileError> {
        let from = ends.tree.directories.current();
        let stat = match statat(from, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => return self.leave_out(ends.at_source(errno)).map(|()| false),
        };
        let from_policy_path = ends.tree.directories.policy_path();
        let to = CopyTarget::Name(ends.targets.current(), ends.targets.policy_path(), name);
        let (source, destination) = (&ends.source, &ends.destination);
        let step = CopyStep { from, from_policy_path, name, to, source, destination };
        let copied = match kind_of(&stat) {
            FileKind::File => self.copy_file(&step),
            FileKind::Symlink => self.copy_link(&step),
            FileKind::Special => {
                self.copied.skipped += 1;
                Ok(())
            }
            FileKind::Directory => return self.enter(ends, name, stat),
        };
        copied.or_else(|error| self.leave_out(error)).map(|()| false)
    }

    fn enter(&mut self, ends: &mut TreeEnds, name: &OsStr, stat: Stat) -> Result<bool, FileError> {
        // Entered first: what may not be read leaves no empty directory.
        if let Err(errno) = ends.tree.enter(name, None) {
            return self.leave_out(ends.at_source(errno)).map(|()| false);
        }
        match ends.make_target(name, stat) {
            Ok(()) => {
                self.copied.directories += 1;
                Ok(true)
            }
            Err(errno) => {
                let error = ends.at_destination(errno);
                ends.tree.leave().map_err(|errno| ends.at_source(errno))?;
                self.leave_out(error).map(|()| false)
            }
        }
    }

    /// Returns false at the top.
    fn leave(&mut self, ends: &mut TreeEnds) -> Result<bool, FileError> {
        // Left before its mode is set, which may forbid to look at what is above it.
        let left = ends.tree.leave().map_err(|errno| ends.at_source(errno))?;
        let finished = match left {
            true => {
                let dir = ends.targets.leave().map_err(|errno| ends.at_destination(errno))?;
                self.finish_directory(dir.as_fd(), ends.originals.pop().flatten())
            }
            false => self.finish_directory(ends.targets.current(), ends.originals.pop().flatten()),
        };
        finished.or_else(|errno| self.leave_out(ends.at_destination(errno)))?;
        self.report();
        Ok(left)
    }

    /// Ends the copy with this error, unless the caller wants the rest.
    fn leave_out(&self, error: FileError) -> Result<(), FileError> {
        match self.failed {
            Some(failed) if !self.cancel.is_set() => {
                failed(FileError { reason: self.policy.explain(error.reason), ..error })
            }
            _ => Err(error),
        }
    }

    /// After an error: whatever has been made already does not keep the mode that it had while it was filled.
    fn finish_begun(&self, ends: &mut TreeEnds) {
        while let Some(original) = ends.originals.pop() {
            let left = match ends.originals.is_empty() {
                true => None,
                false => ends.targets.leave().ok(),
            };
            // A failure needs no report: that of the copy is the one that matters.
            let _finished = match &left {
                Some(dir) => self.finish_directory(dir.as_fd(), original),
                None => self.finish_directory(ends.targets.current(), original),
            };
            if left.is_none() {
                return;
            }
        }
    }

    /// Gives a directory that was made for a copy the mode of the original, and its times if they are to be kept.
    fn finish_directory(&self, dir: BorrowedFd<'_>, original: Option<Stat>) -> Result<(), Errno> {
        let Some(original) = original else { return Ok(()) };
        self.copy_times(&original, |times| utimensat(CWD, proc_path(dir), times, AtFlags::empty()))?;
        let mode = Mode::from_raw_mode(mode_of_copy(&original, &fstat(dir)?));
        chmodat(CWD, proc_path(dir), mode, AtFlags::empty())
    }

    fn copy_link(&mut self, step: &CopyStep<'_>) -> Result<(), FileError> {
        let text = step.from_policy_path.name(step.name).require(Wanted::Read);
        let text = text.and_then(|()| readlinkat(step.from, step.name, Vec::new()));
        let text = text.map_err(|errno| step.at_source(os(errno)))?;
        let made = step.to.resolve().and_then(|to| to.make_link(&text));
        made.map_err(|errno| step.at_destination(os(errno)))?;
        self.copied.symlinks += 1;
        self.report();
        Ok(())
    }

    fn copy_file(&mut self, step: &CopyStep<'_>) -> Result<(), FileError> {
        let (file, stat) =
            open_source(step.from, step.from_policy_path, step.name).map_err(|reason| step.at_source(reason))?;
        let target = step.to.find().map_err(|errno| step.at_destination(os(errno)))?;
        if let Some(existing) = &target.existing
            && (existing.st_dev, existing.st_ino) == (stat.st_dev, stat.st_ino)
        {
            return Err(step.at_destination(FileReason::CopyOntoItself));
        }
        let replace = ReplaceOptions { mode: NewMode::OfCopy(stat), ..ReplaceOptions::default() };
        let temp_registry = self.temp_registry;
        let before = self.copied;
        replace_file(&target, replace, temp_registry, &mut |to| {
            self.copied = before;
            self.copy_contents(&file, &stat, to).map_err(os)?;
            self.copy_times(&stat, |times| futimens(to, times)).map_err(os)
        })
        .map_err(|reason| step.at_destination(reason))?;
        self.copied.files += 1;
        self.report();
        Ok(())
    }

    fn copy_contents(&mut self, from: &OwnedFd, stat: &Stat, to: BorrowedFd<'_>) -> Result<(), Errno> {
        let size_bytes = resolve::size_bytes(stat);
        let regular = kind_of(&fstat(to)?) == FileKind::File;
        // This may be the second time: the target had to be rewritten in place.
        ignore_unseekable(seek(from, SeekFrom::Start(0)))?;
        // A file with a size of 0 may be one of /proc, whose contents are known only by reading them.
        if !regular || size_bytes == 0 {
            return self.copy_through_buffer(from, to, u64::MAX).map(drop);
        }
        if ioctl_ficlone(to, from).is_ok() {
            self.copied.bytes += size_bytes;
            return Ok(());
        }
        let mut offset = 0;
        while offset < size_bytes {
            let (data, end) = next_data(from, offset, size_bytes)?;
            self.copied.bytes += data - offset;
            // Files of /sys are shorter than their size says.
            if self.copy_range(from, to, data, end)? < end {
                return Ok(());
            }
            offset = end;
        }
        // A hole at the end has no data to copy, only a length. What was appended meanwhile is not copied.
        if resolve::size_bytes(&fstat(to)?) < size_bytes {
            ftruncate(to, size_bytes)?;
        }
        Ok(())
    }

    /// Returns the offset up to which there was something to copy.
    fn copy_range(&mut self, from: &OwnedFd, to: BorrowedFd<'_>, begin: u64, end: u64) -> Result<u64, Errno> {
        let (mut read, mut written) = (begin, begin);
        while read < end {
            self.check_cancelled()?;
            let len = usize::try_from(end - read).map_or(REPORT_BYTES, |left| left.min(REPORT_BYTES));
            let step = retry_on_intr(|| {
                let (mut read, mut written) = (read, written);
                copy_file_range(from, Some(&mut read), to, Some(&mut written), len)
            });
            match step {
                Ok(copied) if copied > 0 => {
                    read += copied as u64;
                    written += copied as u64;
                    self.copied.bytes += copied as u64;
                    self.report();
                }
                // Nothing: the file became shorter while we copied, or the kernel copies no such file by itself.
                Ok(_) | Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    seek(from, SeekFrom::Start(read))?;
                    seek(to, SeekFrom::Start(written))?;
                    return Ok(read + self.copy_through_buffer(from, to, end - read)?);
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(read)
    }

    /// From the current positions of the two files, at most `most` bytes. Returns how many there were.
    fn copy_through_buffer(&mut self, from: &OwnedFd, to: BorrowedFd<'_>, most: u64) -> Result<u64, Errno> {
        let mut left = most;
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
        Ok(most - left)
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

/// Both ends of a tree: the directory that is copied, and the one that it is copied to, with all above them.
struct TreeEnds {
    tree: Descent,
    targets: DirectoryStack,
    /// Of each level that is not finished, what [`MadeDirectory`] says.
    originals: Vec<Option<Stat>>,
    source: PathBuf,
    destination: PathBuf,
}

impl TreeEnds {
    /// Opens the original, and makes the top of the copy.
    fn open(policy: &CallPolicy, top: &CopyStep<'_>, stat: Stat) -> Result<Self, FileError> {
        let at_source = |errno| top.at_source(os(errno));
        let at_destination = |errno| top.at_destination(os(errno));
        let to = resolve_or_create_parent(policy, top.destination).map_err(|reason| top.at_destination(reason))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(top.from, top.name, flags, Mode::empty());
        let policy_path = top.from_policy_path.name(top.name);
        let tree = opened.and_then(|dir| {
            policy_path.require_outside_procfs(&dir)?;
            Descent::new(dir, policy_path, None)
        });
        let tree = tree.map_err(at_source)?;
        let made = make_directory(to.dir.as_fd(), &to.dir_policy_path, &to.name, stat).map_err(at_destination)?;
        let targets = DirectoryStack::new(made.dir, made.policy_path).map_err(at_destination)?;
        let (source, destination) = (top.source.to_owned(), top.destination.to_owned());
        Ok(Self { tree, targets, originals: vec![made.original], source, destination })
    }

    /// Makes a directory in the current one of the copy, and goes into it.
    fn make_target(&mut self, name: &OsStr, stat: Stat) -> Result<(), Errno> {
        let made = make_directory(self.targets.current(), self.targets.policy_path(), name, stat)?;
        self.targets.push_at(made.dir, made.policy_path)?;
        self.originals.push(made.original);
        Ok(())
    }

    fn at_source(&self, errno: Errno) -> FileError {
        FileError::new(FileVerb::Copy, &self.source, os(errno))
    }

    fn at_destination(&self, errno: Errno) -> FileError {
        FileError::new(FileVerb::Copy, &self.destination, os(errno))
    }
}

/// Where a directory is to be created. Missing parents are created now.
fn resolve_or_create_parent(policy: &CallPolicy, path: &Path) -> Result<ResolvedPath, FileReason> {
    match (ResolvedPath::resolve(policy, path, LinkPolicy::Follow), path.parent()) {
        (Err(Errno::NOENT), Some(parent)) => {
            create_directory(policy, parent, CreateDirectoryOptions::default())?;
            ResolvedPath::resolve(policy, path, LinkPolicy::Follow).map_err(os)
        }
        (resolved, _) => resolved.map_err(os),
    }
}

/// A directory of the destination, and the original whose mode and times it gets when it is filled; `None` if it was there
/// before.
struct MadeDirectory {
    dir: OwnedFd,
    /// Elsewhere if a link to a directory was there before.
    policy_path: PolicyPath,
    original: Option<Stat>,
}

/// Makes a directory that we may write while it is filled: the mode of the original may forbid that, so it is set last.
fn make_directory(
    dir: BorrowedFd<'_>,
    dir_policy_path: &PolicyPath,
    name: &OsStr,
    original: Stat,
) -> Result<MadeDirectory, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let policy_path = dir_policy_path.name(name);
    let made = match policy_path.require(Wanted::Write) {
        // A directory that is there already may be one to merge into.
        Err(Errno::ROFS) if statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() => Err(Errno::EXIST),
        permitted => permitted.and_then(|()| mkdirat(dir, name, Mode::from_raw_mode(0o700))),
    };
    match (made, dir_policy_path.path()) {
        (Ok(()), _) => {
            let dir = openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
            Ok(MadeDirectory { dir, policy_path, original: Some(original) })
        }
        (Err(Errno::EXIST), above) => {
            let opened = match above {
                None => openat(dir, name, flags, Mode::empty()).map(|dir| (dir, policy_path)),
                Some(above) => open_directory(&dir_policy_path.policy(), &above.join(name), LastLink::Follow),
            };
            match opened {
                Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP) => Err(Errno::EXIST),
                opened => opened.map(|(dir, policy_path)| MadeDirectory { dir, policy_path, original: None }),
            }
        }
        (Err(errno), _) => Err(errno),
    }
}

/// Opens the file if it is still regular; it may have become something else since it was listed.
fn open_source(dir: BorrowedFd<'_>, policy_path: &PolicyPath, name: &OsStr) -> Result<(OwnedFd, Stat), FileReason> {
    policy_path.name(name).require(Wanted::Read).map_err(os)?;
    let handle = openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).map_err(os)?;
    policy_path.require_outside_procfs(&handle).map_err(os)?;
    let stat = fstat(&handle).map_err(os)?;
    match kind_of(&stat) {
        FileKind::File => {}
        FileKind::Symlink => return Err(os(Errno::LOOP)),
        _ => return Err(FileReason::CopySpecial),
    }
    let file = match reopen(&handle, OFlags::RDONLY) {
        // There is no /proc. Opening by name does not follow a link, and regular files do not block.
        Err(Errno::NOENT | Errno::NOTDIR) => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
            openat(dir, name, flags, Mode::empty())
        }
        other => other,
    }
    .map_err(os)?;
    // Some files of /proc can be opened but not read. The target must not be touched for one of those.
    ignore_unseekable(retry_on_intr(|| pread(&file, &mut [0_u8; 1], 0))).map_err(os)?;
    Ok((file, stat))
}

/// Some files of /proc can only be read from the beginning.
fn ignore_unseekable<T>(sought: Result<T, Errno>) -> Result<(), Errno> {
    match sought {
        Err(Errno::SPIPE) => Ok(()),
        other => other.map(drop),
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

/// Whether `path`, which need not exist, is `root` or below it.
fn is_at_or_below(policy: &CallPolicy, path: &Path, root: &Path) -> Result<bool, Errno> {
    let real = |path: &Path| match canonicalize(policy, path) {
        Err(FileReason::Os(errno)) => Err(Errno::from_raw_os_error(errno)),
        other => other.map_err(|_| Errno::INVAL),
    };
    let root = real(root)?;
    let mut missing = Vec::new();
    let mut existing: &Path = path;
    let resolved: PathBuf = loop {
        match real(existing) {
            Ok(resolved) => break resolved,
            // Whatever is wrong with it is found out where it is made; here only its place counts.
            Err(errno) => {
                missing.extend(existing.components().next_back());
                existing = match existing.parent() {
                    Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
                    Some(parent) => parent,
                    None => return Err(errno),
                };
            }
        }
    };
    let names = missing.iter().rev().map(|name| name.as_os_str());
    let whole = names.fold(resolved, |path, name| path.join(name));
    Ok(whole.starts_with(&root))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// As when the target turns out to be a file that is mounted, and has to be rewritten in place.
    #[test]
    fn a_file_of_proc_is_copied_as_well_the_second_time() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let (options, registry, cancel) = (CopyOptions::default(), TempRegistry::open(None), CancelFlag::default());
        let (policy, copied) = (&CallPolicy::default(), Copied::default());
        let (options, temp_registry, cancel) = (&options, &registry, &cancel);
        let mut copier = Copier { policy, options, failed: None, temp_registry, cancel, copied };
        let opened = open_source(CWD, &PolicyPath::default(), OsStr::new("/proc/self/limits"));
        let (from, stat) = opened.expect("Linux has it");
        for name in ["first", "second"] {
            let path = dir.path().join(name);
            let to = File::create(&path).expect("it is ours");
            copier.copy_contents(&from, &stat, to.as_fd()).expect("it can be read");
            let copied = std::fs::read_to_string(&path).expect("it was just written");
            assert!(copied.contains("Max open files"), "{name}: {copied}");
        }
    }

    #[test]
    fn a_file_of_proc_that_cannot_be_read_leaves_its_target_alone() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let target = dir.path().join("target");
        std::fs::write(&target, "precious").expect("it is ours");
        let (registry, cancel) = (TempRegistry::open(None), CancelFlag::default());
        let (policy, options) = (CallPolicy::default(), CopyOptions::default());
        let copied = copy(&policy, Path::new("/proc/self/mem"), &target, &options, None, &registry, &cancel);
        assert_eq!(copied.map_err(|error| error.reason), Err(os(Errno::IO)));
        assert_eq!(std::fs::read_to_string(&target).expect("it is ours"), "precious");
    }

    #[test]
    fn a_file_that_is_shorter_than_its_size_says_is_not_filled_up() {
        let Ok(contents) = std::fs::read("/sys/kernel/mm/transparent_hugepage/enabled") else { return };
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let target = dir.path().join("target");
        let (registry, cancel) = (TempRegistry::open(None), CancelFlag::default());
        let source = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
        let (policy, options) = (CallPolicy::default(), CopyOptions::default());
        copy(&policy, source, &target, &options, None, &registry, &cancel).expect("it can be read");
        assert_eq!(std::fs::read(&target).expect("it was just written"), contents);
    }
}
