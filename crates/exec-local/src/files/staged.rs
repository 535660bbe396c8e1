//! Replacing a file whole or not at all: a temporary file beside it, then a rename.
//!
//! ```text
//! find target ── new ─────────► stage ──► fill ──► rename
//!      │
//!      ├── regular ──► stage, take over owner, attributes, mode ──► fill ──► rename
//!      │                  └── cannot (folder not writable, foreign owner, mounted file) ──► in place
//!      └── device, FIFO ─► through it
//! ```
//!
//! In place is what every plain write does: it keeps everything but is not atomic. It is the way out where the other
//! way is closed, because a file that can be written must be written. Hard links to the old file keep the old
//! contents: atomic and shared do not go together.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use exec_env::files::{FileKind, Reason};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, Stat, XattrFlags, fchmod, fchown, fgetxattr, flistxattr, fremovexattr,
    fsetxattr, fstat, fsync, ftruncate, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::leftovers::Leftovers;
use super::place::{Place, kind_of, os};
use super::target::Target;

/// How a file is to be replaced.
#[derive(Clone, Copy, Default)]
pub(super) struct Put {
    /// Permission bits of the result; `None`: as they were, or 0666 less the umask.
    pub(super) mode: Option<u32>,
    /// Only done when it would survive a power cut.
    pub(super) sync: bool,
    /// The last look before the rename: the target must still be what was found.
    pub(super) unchanged: bool,
}

/// Replaces `target` by what `fill` writes. `fill` may be called twice: the second time in place.
pub(super) fn put(
    target: &Target,
    how: Put,
    leftovers: &Leftovers,
    fill: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Reason>,
) -> Result<(), Reason> {
    let Some(existing) = &target.existing else {
        let staged = Staged::beside(&target.place, leftovers, 0o666).map_err(os)?;
        fill(staged.file.as_fd())?;
        if let Some(mode) = how.mode {
            fchmod(&staged.file, Mode::from_raw_mode(mode)).map_err(os)?;
        }
        return staged.take_name(target, how).map_err(os_or_changed(target));
    };
    match kind_of(existing) {
        FileKind::Directory => return Err(os(Errno::ISDIR)),
        FileKind::Symlink => return Err(os(Errno::LOOP)),
        FileKind::Special => {
            let file = target.open(OFlags::WRONLY).map_err(os)?;
            return fill(file.as_fd());
        }
        FileKind::File => {}
    }
    // Asks for the right to write to the old file, which renaming over it would not need.
    let old = match target.open(OFlags::WRONLY) {
        // A program that runs cannot be written but can be replaced.
        Err(Errno::TXTBSY) => target.open(OFlags::RDONLY),
        other => other,
    }
    .map_err(os)?;
    let old_stat = fstat(&old).map_err(os)?;
    if kind_of(&old_stat) != FileKind::File {
        return Err(Reason::NotAFile);
    }
    let staged = match Staged::in_place_of(&old, &old_stat, target, leftovers, how.mode) {
        Ok(staged) => staged,
        Err(errno) if is_no_room_beside(errno) => return put_in_place(&old, how, fill),
        Err(errno) => return Err(os(errno)),
    };
    fill(staged.file.as_fd())?;
    match staged.take_name(target, how) {
        // Somebody mounted something on the file itself, as containers do with /etc/hosts.
        Err(Refusal::Os(Errno::BUSY | Errno::XDEV)) => put_in_place(&old, how, fill),
        other => other.map_err(os_or_changed(target)),
    }
}

fn put_in_place(
    old: &OwnedFd,
    how: Put,
    fill: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Reason>,
) -> Result<(), Reason> {
    ftruncate(old, 0).map_err(os)?;
    fill(old.as_fd())?;
    if let Some(mode) = how.mode {
        fchmod(old, Mode::from_raw_mode(mode)).map_err(os)?;
    }
    if how.sync {
        fsync(old).map_err(os)?;
    }
    Ok(())
}

/// Errors that mean: here no temporary file can stand in for the old one.
fn is_no_room_beside(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT | Errno::OPNOTSUPP)
}

/// Why a staged file did not get its name.
enum Refusal {
    Os(Errno),
    Changed,
}

fn os_or_changed(target: &Target) -> impl FnOnce(Refusal) -> Reason {
    |refusal| match refusal {
        Refusal::Os(errno) => os(errno),
        Refusal::Changed => match target.place.stat() {
            Err(_) => Reason::Changed { present: None },
            // What it is now, for the caller to compare; if even that cannot be read, why.
            Ok(_) => match target.content_hash_now() {
                Ok(present) => Reason::Changed { present },
                Err(reason) => reason,
            },
        },
    }
}

/// A temporary file that becomes the real one, or vanishes.
struct Staged<'a> {
    place: &'a Place,
    name: std::ffi::OsString,
    file: OwnedFd,
    has_its_name: bool,
}

impl<'a> Staged<'a> {
    fn beside(place: &'a Place, leftovers: &Leftovers, mode: u32) -> Result<Self, Errno> {
        let name = leftovers.name_in(&place.dir);
        let file = openat(
            &place.dir,
            &name,
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::from_raw_mode(mode),
        )?;
        Ok(Self { place, name, file, has_its_name: false })
    }

    /// One that nobody can tell from `old`. It is closed to others until it has the old owner.
    fn in_place_of(
        old: &OwnedFd,
        stat: &Stat,
        target: &'a Target,
        leftovers: &Leftovers,
        mode: Option<u32>,
    ) -> Result<Self, Errno> {
        let staged = Self::beside(&target.place, leftovers, 0o600)?;
        let made = fstat(&staged.file)?;
        if (made.st_uid, made.st_gid) != (stat.st_uid, stat.st_gid) {
            let owner = rustix::fs::Uid::from_raw(stat.st_uid);
            let group = rustix::fs::Gid::from_raw(stat.st_gid);
            fchown(&staged.file, Some(owner), Some(group))?;
        }
        take_over_attributes(old, &staged.file)?;
        // Last: a change of owner clears set-user-id, and an access list changes the group's bits.
        let mode = mode.unwrap_or(stat.st_mode & 0o7777);
        fchmod(&staged.file, Mode::from_raw_mode(mode))?;
        Ok(staged)
    }

    fn take_name(mut self, target: &Target, how: Put) -> Result<(), Refusal> {
        if how.sync {
            fsync(&self.file).map_err(Refusal::Os)?;
        }
        let (dir, name) = (&self.place.dir, &self.place.name);
        if how.unchanged && !target.is_as_found().map_err(Refusal::Os)? {
            return Err(Refusal::Changed);
        }
        let renamed = if how.unchanged && target.existing.is_none() {
            match renameat_with(dir, &self.name, dir, name, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => return Err(Refusal::Changed),
                // This file system cannot promise it; the look above has to do.
                Err(Errno::INVAL) => renameat(dir, &self.name, dir, name),
                other => other,
            }
        } else {
            renameat(dir, &self.name, dir, name)
        };
        renamed.map_err(Refusal::Os)?;
        self.has_its_name = true;
        if how.sync {
            sync_directory(dir).map_err(Refusal::Os)?;
        }
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.has_its_name {
            // Nothing to tell: either it is gone, or the register remembers it.
            let _gone = unlinkat(&self.place.dir, &self.name, AtFlags::empty());
        }
    }
}

fn sync_directory(dir: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fsync(openat(dir, ".", flags, Mode::empty())?)
}

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// Copies extended attributes, access lists included.
fn take_over_attributes(old: &OwnedFd, new: &OwnedFd) -> Result<(), Errno> {
    let mut names = vec![0; 64 << 10];
    let len = match flistxattr(old, &mut names[..]) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
        other => other?,
    };
    names.truncate(len);
    let names = || names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    if !names().any(|name| name == ACCESS_LIST) {
        // The folder may have given the new file a list that the old one does not have.
        match fremovexattr(new, ACCESS_LIST) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mut value = Vec::new();
    for name in names() {
        // Any write takes these away from a file, because they vouch for its old contents.
        if matches!(name, b"security.capability" | b"security.ima" | b"security.evm") {
            continue;
        }
        value.resize(64 << 10, 0);
        let taken = fgetxattr(old, name, &mut value[..])
            .and_then(|len| fsetxattr(new, name, &value[..len], XattrFlags::empty()));
        match taken {
            Ok(()) | Err(Errno::NODATA) => {}
            // Labels of the system, which only it may set.
            Err(_) if name.starts_with(b"security.") || name.starts_with(b"trusted.") => {}
            Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
