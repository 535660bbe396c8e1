//! Where a write lands: the name at the end of the chain of links, and what is there now.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use exec_env::files::{ContentHash, Expect, FileKind, Links, Reason};
use rustix::fs::{Mode, OFlags, Stat, fstat, readlinkat};
use rustix::io::Errno;

use super::place::{Place, kind_of, os};

/// As many links as the kernel itself follows.
const LINKS: usize = 40;

/// A name that is not a link (as far as one can know), and the file that has it.
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) existing: Option<Stat>,
}

impl Target {
    /// Follows links at the end of `path`, also dangling ones, or refuses them.
    pub(super) fn find(path: &Path, links: Links) -> Result<Self, Errno> {
        let mut place = Place::of(path, links)?;
        for _ in 0..LINKS {
            let stat = match place.stat() {
                Ok(stat) if kind_of(&stat) == FileKind::Symlink => stat,
                Ok(stat) => {
                    return Ok(Self { place, existing: Some(stat) });
                }
                Err(Errno::NOENT) => {
                    return Ok(Self { place, existing: None });
                }
                Err(errno) => return Err(errno),
            };
            if links == Links::Refuse {
                return Err(Errno::LOOP);
            }
            if !may_follow(&fstat(&place.dir)?, &stat) {
                return Err(Errno::ACCESS);
            }
            let text = readlinkat(&place.dir, &place.name, Vec::new())?;
            let text = PathBuf::from(std::ffi::OsString::from_vec(text.into_bytes()));
            place = Place::below(std::os::fd::AsFd::as_fd(&place.dir), &text, links)?;
        }
        Err(Errno::LOOP)
    }

    /// The file that is there, for reading.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.place.open(flags, Mode::empty())
    }

    /// Whether the file is what the caller expects.
    pub(super) fn check(&self, expect: Expect) -> Result<(), Reason> {
        let present = match expect {
            Expect::Anything => return Ok(()),
            Expect::Absent if self.existing.is_none() => return Ok(()),
            Expect::Absent | Expect::Content(_) => self.content_hash()?,
        };
        match expect {
            Expect::Content(expected) if present == Some(expected) => Ok(()),
            _ => Err(Reason::Changed { present }),
        }
    }

    /// What the contents are now; `None` if there is no file.
    pub(super) fn content_hash(&self) -> Result<Option<ContentHash>, Reason> {
        match self.existing.as_ref().map(kind_of) {
            None => return Ok(None),
            Some(FileKind::Directory) => return Err(os(Errno::ISDIR)),
            Some(FileKind::File) => {}
            Some(_) => return Err(Reason::NotAFile),
        }
        self.content_hash_now()
    }

    /// The same, without a look at what was found before.
    pub(super) fn content_hash_now(&self) -> Result<Option<ContentHash>, Reason> {
        let file = match self.open(OFlags::RDONLY) {
            Err(Errno::NOENT) => return Ok(None),
            other => std::fs::File::from(other.map_err(os)?),
        };
        let mut hasher = blake3::Hasher::new();
        hasher
            .update_reader(file)
            .map_err(|error| Reason::Os(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())))?;
        Ok(Some(ContentHash(*hasher.finalize().as_bytes())))
    }

    /// Whether the name still leads to the very file that was found, unchanged.
    pub(super) fn is_as_found(&self) -> Result<bool, Errno> {
        match (&self.existing, self.place.stat()) {
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
