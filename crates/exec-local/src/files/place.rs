//! From a path to a handle: the one place where symbolic links are followed or refused.
//!
//! Facts are asked of handles, never of paths that somebody may swap meanwhile. Nothing here opens a FIFO or device
//! for real: it is first held with `O_PATH`, which has no effect on it, then asked what it is.
//!
//! With [`Links::Refuse`] a link before the last component is `ENOTDIR` and a link as the last is `ELOOP`.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};
use std::sync::OnceLock;

use exec_env::files::{FileKind, Links, Reason};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, statat};
use rustix::io::Errno;

/// A name in a directory that is held.
pub(super) struct Place {
    /// The directory, held with `O_PATH`.
    pub(super) dir: OwnedFd,
    /// One component; `.` for the root itself.
    pub(super) name: OsString,
}

impl Place {
    /// Where the last component of `path` lives.
    pub(super) fn of(path: &Path, links: Links) -> Result<Self, Errno> {
        Self::below(CWD, path, links)
    }

    /// The same, for a path relative to `base`.
    pub(super) fn below(base: BorrowedFd<'_>, path: &Path, links: Links) -> Result<Self, Errno> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT);
        }
        let (parent, name) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if parent.as_os_str().is_empty() => (Path::new("."), name),
            (Some(parent), Some(name)) => (parent, name),
            // `/`, or a path that ends in `..`: it names a directory, not a name in one.
            _ => (path, OsStr::new(".")),
        };
        Ok(Self { dir: hold_directory(base, parent, links)?, name: name.to_owned() })
    }

    /// What is there, without following it.
    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens what is there, without following it.
    pub(super) fn open(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        openat(
            &self.dir,
            &self.name,
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
            mode,
        )
    }
}

/// Holds whatever is at `path`, without opening it.
pub(super) fn hold(path: &Path, links: Links) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match links {
        Links::Follow => openat(CWD, path, flags, Mode::empty()),
        Links::Refuse => {
            let place = Place::of(path, links)?;
            let held = openat(&place.dir, &place.name, flags | OFlags::NOFOLLOW, Mode::empty())?;
            match kind_of(&fstat(&held)?) {
                FileKind::Symlink => Err(Errno::LOOP),
                _ => Ok(held),
            }
        }
    }
}

/// Opens the regular file at `path`; anything else is refused before it is touched.
pub(super) fn open_regular(path: &Path, links: Links, flags: OFlags) -> Result<(OwnedFd, Stat), Reason> {
    let held = hold(path, links).map_err(os)?;
    let stat = fstat(&held).map_err(os)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        // What the kernel would say to an open that does not wait.
        FileType::Socket => return Err(os(Errno::NXIO)),
        FileType::Fifo if flags.contains(OFlags::WRONLY) => return Err(os(Errno::NXIO)),
        _ => return Err(not_a_file(links)),
    }
    let file = match reopen(&held, flags) {
        // No /proc here: open by name again, and see that it is still the same.
        Err(Errno::NOENT | Errno::NOTDIR) => {
            let file = Place::of(path, links)
                .and_then(|place| match links {
                    Links::Refuse => place.open(flags, Mode::empty()),
                    Links::Follow => openat(CWD, path, plain(flags), Mode::empty()),
                })
                .map_err(os)?;
            let again = fstat(&file).map_err(os)?;
            if (again.st_dev, again.st_ino) != (stat.st_dev, stat.st_ino) {
                return Err(os(Errno::AGAIN));
            }
            file
        }
        other => other.map_err(os)?,
    };
    Ok((file, stat))
}

/// Opens for real what is held with `O_PATH`: the very same file, whatever its name leads to by now.
pub(super) fn reopen(held: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(CWD, proc_path(held), plain(flags), Mode::empty())
}

/// A path that leads to what is held.
pub(super) fn proc_path(held: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", held.as_raw_fd())
}

/// The flags every real open has: it never blocks, never takes a terminal, never leaks into a child.
fn plain(flags: OFlags) -> OFlags {
    flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY
}

/// Holds a directory.
pub(super) fn hold_directory(base: BorrowedFd<'_>, path: &Path, links: Links) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match links {
        Links::Follow => openat(base, path, flags, Mode::empty()),
        Links::Refuse if kernel_has_openat2() => loop {
            match openat2(base, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
                // A rename somewhere disturbed the resolution of `..`; the kernel asks us to try again.
                Err(Errno::AGAIN) => {}
                Err(Errno::LOOP) => return Err(Errno::NOTDIR),
                other => return other,
            }
        },
        Links::Refuse => step_by_step(base, path),
    }
}

/// What openat2 does, for kernels and seccomp filters without it: every component is opened by itself, and none may be
/// a link.
fn step_by_step(base: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here = openat(base, ".", flags, Mode::empty())?;
    for component in path.components() {
        let name = match component {
            Component::RootDir => OsStr::new("/"),
            Component::CurDir => continue,
            other => other.as_os_str(),
        };
        here = openat(here.as_fd(), name, flags, Mode::empty())?;
    }
    Ok(here)
}

fn kernel_has_openat2() -> bool {
    static PROBED: OnceLock<bool> = OnceLock::new();
    *PROBED.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(CWD, "/", flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).is_ok()
    })
}

/// What a regular file is wanted for but something else was found; the words differ by policy.
pub(super) fn not_a_file(links: Links) -> Reason {
    match links {
        Links::Follow => Reason::NotAFile,
        Links::Refuse => Reason::NotRegular,
    }
}

/// The kernel's reason.
pub(super) fn os(errno: Errno) -> Reason {
    Reason::Os(errno.raw_os_error())
}

pub(super) fn kind_of(stat: &Stat) -> FileKind {
    kind_of_type(FileType::from_raw_mode(stat.st_mode))
}

pub(super) fn kind_of_type(file_type: FileType) -> FileKind {
    match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Special,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_openat2_a_link_on_the_way_is_refused_all_the_same() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        std::fs::create_dir_all(dir.path().join("real/deep")).expect("it is new");
        std::os::unix::fs::symlink("real", dir.path().join("link")).expect("it is new");
        let root = dir.path().canonicalize().expect("it exists");
        for resolve in [step_by_step, |base: BorrowedFd<'_>, path: &Path| hold_directory(base, path, Links::Refuse)] {
            assert!(resolve(CWD, &root.join("real/deep")).is_ok());
            assert!(resolve(CWD, &root.join("real/../real/deep")).is_ok());
            let refused = resolve(CWD, &root.join("link/deep"));
            assert_eq!(refused.err(), Some(Errno::NOTDIR));
            let refused = resolve(CWD, &root.join("link"));
            assert_eq!(refused.err(), Some(Errno::NOTDIR));
        }
    }
}
