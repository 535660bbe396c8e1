//! Where a write lands: the name at the end of the chain of links, and what is there now.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use exec_env::files::{ContentHash, ExpectedFile, FileKind, FileReason, LinkPolicy};
use rustix::fs::{Mode, OFlags, Stat, fstat, readlinkat};
use rustix::io::Errno;

use super::resolve::{ResolvedPath, kind_of, os};

/// As many links as the kernel itself follows.
const MAX_LINKS: usize = 40;

/// A name that is not a link (as far as one can know), and the file that has it.
pub(super) struct WriteTarget {
    pub(super) resolved: ResolvedPath,
    pub(super) existing: Option<Stat>,
}

impl WriteTarget {
    /// Follows links at the end of `path`, also dangling ones, or refuses them.
    pub(super) fn find(path: &Path, links: LinkPolicy) -> Result<Self, Errno> {
        let mut resolved = ResolvedPath::resolve(path, links)?;
        for _ in 0..MAX_LINKS {
            let stat = match resolved.stat() {
                Ok(stat) if kind_of(&stat) == FileKind::Symlink => stat,
                Ok(stat) => {
                    return Ok(Self { resolved, existing: Some(stat) });
                }
                Err(Errno::NOENT) => {
                    return Ok(Self { resolved, existing: None });
                }
                Err(errno) => return Err(errno),
            };
            if links == LinkPolicy::Refuse {
                return Err(Errno::LOOP);
            }
            if !may_follow(&fstat(&resolved.dir)?, &stat) {
                return Err(Errno::ACCESS);
            }
            let text = readlinkat(&resolved.dir, &resolved.name, Vec::new())?;
            let text = PathBuf::from(std::ffi::OsString::from_vec(text.into_bytes()));
            resolved = ResolvedPath::resolve_below(std::os::fd::AsFd::as_fd(&resolved.dir), &text, links)?;
        }
        Err(Errno::LOOP)
    }

    /// The file that is there, for reading.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.resolved.open(flags, Mode::empty())
    }

    /// Whether the file is what the caller expects.
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

    /// What the contents are now; `None` if there is no file.
    pub(super) fn content_hash(&self) -> Result<Option<ContentHash>, FileReason> {
        match self.existing.as_ref().map(kind_of) {
            None => return Ok(None),
            Some(FileKind::Directory) => return Err(os(Errno::ISDIR)),
            Some(FileKind::File) => {}
            Some(_) => return Err(FileReason::NotAFile),
        }
        self.content_hash_now()
    }

    /// The same, without a look at what was found before.
    pub(super) fn content_hash_now(&self) -> Result<Option<ContentHash>, FileReason> {
        let file = match self.open(OFlags::RDONLY) {
            Err(Errno::NOENT) => return Ok(None),
            other => std::fs::File::from(other.map_err(os)?),
        };
        let mut hasher = blake3::Hasher::new();
        hasher
            .update_reader(file)
            .map_err(|error| FileReason::Os(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())))?;
        Ok(Some(ContentHash(*hasher.finalize().as_bytes())))
    }

    /// Whether the name still leads to the very file that was found, unchanged.
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

/// The kernel's rule for links in shared folders like /tmp (`fs.protected_symlinks`). We follow by hand, so the kernel
/// does not apply it for us: without it anybody could plant a link in /tmp and have us write where it leads.
fn may_follow(dir: &Stat, link: &Stat) -> bool {
    let sticky_and_shared = dir.st_mode & 0o1002 == 0o1002;
    let ours = link.st_uid == rustix::process::geteuid().as_raw();
    !sticky_and_shared || ours || dir.st_uid == link.st_uid
}
