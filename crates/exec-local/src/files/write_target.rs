//! Where a write goes: the name at the end of a chain of links, and the file that has this name now.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use exec_env::files::{ContentHash, ExpectedFile, FileKind, FileReason, LinkPolicy};
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use super::policy::{CallPolicy, PolicyPath};
use super::resolve::{ResolvedPath, io, kind_of, os, refused_as_mount, why_not_created};

/// A name that was no link when it was looked up, and the file that had it.
pub(super) struct WriteTarget {
    pub(super) resolved: ResolvedPath,
    pub(super) existing: Option<Stat>,
}

impl WriteTarget {
    /// Follows links at the end of `path`, also to a file that does not exist, or refuses them.
    pub(super) fn find(policy: &CallPolicy, path: &Path, links: LinkPolicy) -> Result<Self, Errno> {
        let resolved = ResolvedPath::resolve_to_end(policy, path, links);
        Self::of(resolved.map_err(|errno| why_not_created(policy, path, links, errno))?)
    }

    /// The same for a name in an open directory.
    pub(super) fn find_in(
        dir: BorrowedFd<'_>,
        policy_path: &PolicyPath,
        name: &OsStr,
        links: LinkPolicy,
    ) -> Result<Self, Errno> {
        Self::of(ResolvedPath::in_directory(dir, policy_path, name)?.follow(links)?)
    }

    /// What has the name now. Somebody may have made it a link again, which is then refused.
    pub(super) fn of(resolved: ResolvedPath) -> Result<Self, Errno> {
        match resolved.stat() {
            Ok(stat) if kind_of(&stat) == FileKind::Symlink => Err(Errno::LOOP),
            Ok(stat) => Ok(Self { resolved, existing: Some(stat) }),
            Err(Errno::NOENT) if resolved.is_missing_protected() => Err(Errno::ISDIR),
            Err(Errno::NOENT) => Ok(Self { resolved, existing: None }),
            Err(errno) => Err(refused_as_mount(&resolved, errno)),
        }
    }

    /// The same name, with the file that has it now.
    pub(super) fn again(self) -> Result<Self, Errno> {
        let existing = match self.resolved.stat() {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
        Ok(Self { existing, ..self })
    }

    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.resolved.open(flags, Mode::empty())
    }

    /// Fails if the file is not what the caller expects.
    pub(super) fn check(&self, expect: ExpectedFile) -> Result<(), FileReason> {
        let present = match expect {
            ExpectedFile::Anything => return Ok(()),
            ExpectedFile::Absent if self.existing.is_none() => return Ok(()),
            ExpectedFile::Absent | ExpectedFile::Content(_) => self.content_hash()?,
        };
        match expect {
            ExpectedFile::Content(expected) if present == Some(expected) => Ok(()),
            _ => Err(FileReason::Changed { present }),
        }
    }

    /// `None` if there was no file.
    pub(super) fn content_hash(&self) -> Result<Option<ContentHash>, FileReason> {
        match self.existing.as_ref().map(kind_of) {
            None => return Ok(None),
            Some(FileKind::Directory) => return Err(os(Errno::ISDIR)),
            Some(FileKind::File) => {}
            Some(_) => return Err(FileReason::NotAFile),
        }
        self.content_hash_now()
    }

    /// Of the file that has the name now; `None` if there is none.
    pub(super) fn content_hash_now(&self) -> Result<Option<ContentHash>, FileReason> {
        let file = match self.open(OFlags::RDONLY) {
            Err(Errno::NOENT) => return Ok(None),
            other => std::fs::File::from(other.map_err(os)?),
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file).map_err(|error| io(&error))?;
        Ok(Some(ContentHash(hasher.finalize())))
    }

    /// Whether the name still has the same file, with the same size and times.
    pub(super) fn is_unchanged(&self) -> Result<bool, Errno> {
        match (&self.existing, self.resolved.stat()) {
            (None, Err(Errno::NOENT)) => Ok(true),
            (None, Ok(_)) => Ok(false),
            (Some(_), Err(Errno::NOENT)) => Ok(false),
            (Some(then), Ok(now)) => Ok((then.st_dev, then.st_ino, then.st_size)
                == (now.st_dev, now.st_ino, now.st_size)
                && (then.st_mtime, then.st_mtime_nsec) == (now.st_mtime, now.st_mtime_nsec)
                && (then.st_ctime, then.st_ctime_nsec) == (now.st_ctime, now.st_ctime_nsec)),
            (_, Err(errno)) => Err(errno),
        }
    }
}
