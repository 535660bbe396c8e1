//! Replacing a file whole or not at all: a temporary file in the same directory, then a rename.
//!
//! ```text
//! target ── new ───────────► temporary file ──► fill ──► rename
//!    │
//!    ├── regular ──────────► temporary file with the old owner, attributes and mode ──► fill ──► rename
//!    │                           └── impossible (directory not writable, also by the policy of the call, foreign
//!    │                               owner, mounted file) ──► in place
//!    └── device or FIFO ───► written directly
//! ```
//!
//! In place means to truncate and write the old file, which keeps everything but is not atomic. It is used only where a
//! rename is impossible, because a file that can be written must be written. Hard links to the old file keep the old
//! contents; a replacement cannot be atomic and keep hard links.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use exec_env::files::{FileKind, FileReason};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, Stat, XattrFlags, fchmod, fchown, fgetxattr, flistxattr, fremovexattr,
    fsetxattr, fstat, fsync, ftruncate, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::policy::Wanted;
use super::resolve::{ResolvedPath, kind_of, os};
use super::temp_registry::TempRegistry;
use super::write_target::WriteTarget;

#[derive(Clone, Copy, Default)]
pub(super) struct ReplaceOptions {
    /// Permission bits of the result.
    pub(super) mode: NewMode,
    /// Return only when the result would survive a power cut.
    pub(super) sync: bool,
    /// Check just before the rename that the target is still what was found.
    pub(super) unchanged: bool,
}

#[derive(Clone, Copy, Default)]
pub(super) enum NewMode {
    /// As they were, or 0666 less the umask.
    #[default]
    Unchanged,
    Exactly(u32),
    /// Those of this file, of which the result is a copy.
    OfCopy(Stat),
}

impl NewMode {
    /// For a file with the owner that `file` has.
    fn bits(&self, file: &Stat) -> Option<u32> {
        match self {
            Self::Unchanged => None,
            Self::Exactly(mode) => Some(*mode),
            Self::OfCopy(original) => Some(mode_of_copy(original, file)),
        }
    }

    fn apply(&self, file: &OwnedFd) -> Result<(), Errno> {
        match self.bits(&fstat(file)?) {
            Some(mode) => fchmod(file, Mode::from_raw_mode(mode)),
            None => Ok(()),
        }
    }
}

/// The mode of the original, with set-user-id and set-group-id only for the user and the group that had them: under
/// another owner they would lend the rights of that one, who was never asked.
pub(super) fn mode_of_copy(original: &Stat, copy: &Stat) -> u32 {
    let mut mode = original.st_mode & 0o7777;
    if original.st_uid != copy.st_uid {
        mode &= !Mode::SUID.bits();
    }
    if original.st_gid != copy.st_gid {
        mode &= !Mode::SGID.bits();
    }
    mode
}

/// Replaces `target` by what `fill` writes. `fill` may be called twice, the second time for the file in place.
pub(super) fn replace_file(
    target: &WriteTarget,
    options: ReplaceOptions,
    temp_registry: &TempRegistry,
    fill: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), FileReason>,
) -> Result<(), FileReason> {
    let Some(existing) = &target.existing else {
        target.resolved.require(Wanted::Write).map_err(os)?;
        let temporary = match TemporaryFile::create_beside(&target.resolved, temp_registry, 0o666) {
            Err(errno) if cannot_replace(errno) && target.resolved.dir_policy_path.path().is_some() => {
                return create_in_place(target, options, fill);
            }
            temporary => temporary.map_err(os)?,
        };
        fill(temporary.file.as_fd())?;
        options.mode.apply(&temporary.file).map_err(os)?;
        return temporary.rename_to(target, options).map_err(rename_failure(target));
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
    // A rename needs no permission to write the old file, but a write does, so this asks for it.
    let old = match target.open(OFlags::WRONLY) {
        // A running program cannot be written but can be replaced.
        Err(Errno::TXTBSY) => target.open(OFlags::RDONLY),
        other => other,
    }
    .map_err(os)?;
    let old_stat = fstat(&old).map_err(os)?;
    if kind_of(&old_stat) != FileKind::File {
        return Err(FileReason::NotAFile);
    }
    let temporary = match TemporaryFile::create_like(&old, &old_stat, target, temp_registry, &options.mode) {
        Ok(temporary) => temporary,
        Err(errno) if cannot_replace(errno) => return rewrite_in_place(&old, options, fill),
        Err(errno) => return Err(os(errno)),
    };
    fill(temporary.file.as_fd())?;
    match temporary.rename_to(target, options) {
        // The file itself is a mount point, as containers do with /etc/hosts.
        Err(RenameFailure::Os(Errno::BUSY | Errno::XDEV)) => rewrite_in_place(&old, options, fill),
        other => other.map_err(rename_failure(target)),
    }
}

/// For a file that a policy lets be written in a directory where nothing else may be.
fn create_in_place(
    target: &WriteTarget,
    options: ReplaceOptions,
    fill: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), FileReason>,
) -> Result<(), FileReason> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = match target.resolved.open(flags, Mode::from_raw_mode(0o666)) {
        Err(Errno::EXIST) if options.unchanged => return Err(rename_failure(target)(RenameFailure::Changed)),
        file => file.map_err(os)?,
    };
    let filled = rewrite_in_place(&file, options, fill);
    if filled.is_err() {
        // A failure needs no report: that of the write is the one that matters.
        let _gone = unlinkat(&target.resolved.dir, &target.resolved.name, AtFlags::empty());
    }
    filled
}

fn rewrite_in_place(
    old: &OwnedFd,
    options: ReplaceOptions,
    fill: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), FileReason>,
) -> Result<(), FileReason> {
    ftruncate(old, 0).map_err(os)?;
    fill(old.as_fd())?;
    options.mode.apply(old).map_err(os)?;
    if options.sync {
        fsync(old).map_err(os)?;
    }
    Ok(())
}

/// Errors that mean that no temporary file can replace the old one here.
fn cannot_replace(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT | Errno::OPNOTSUPP)
}

/// Why a temporary file could not be renamed to the target.
enum RenameFailure {
    Os(Errno),
    Changed,
}

fn rename_failure(target: &WriteTarget) -> impl FnOnce(RenameFailure) -> FileReason {
    |refusal| match refusal {
        RenameFailure::Os(errno) => os(errno),
        RenameFailure::Changed => match target.resolved.stat() {
            Err(_) => FileReason::Changed { present: None },
            // The caller gets the hash of what is there now; if that cannot be read, the reason.
            Ok(_) => match target.content_hash_now() {
                Ok(present) => FileReason::Changed { present },
                Err(reason) => reason,
            },
        },
    }
}

/// A temporary file that is renamed to the target, or removed when dropped.
struct TemporaryFile<'a> {
    resolved: &'a ResolvedPath,
    name: std::ffi::OsString,
    file: OwnedFd,
    renamed_to_target: bool,
}

impl<'a> TemporaryFile<'a> {
    fn create_beside(resolved: &'a ResolvedPath, temp_registry: &TempRegistry, mode: u32) -> Result<Self, Errno> {
        let name = temp_registry.new_name(&resolved.dir);
        resolved.dir_policy_path.name(&name).require(Wanted::Write)?;
        let file = openat(
            &resolved.dir,
            &name,
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::from_raw_mode(mode),
        )?;
        Ok(Self { resolved, name, file, renamed_to_target: false })
    }

    /// With the owner, the attributes and the mode of `old`. Others have no access until it has the old owner.
    fn create_like(
        old: &OwnedFd,
        stat: &Stat,
        target: &'a WriteTarget,
        temp_registry: &TempRegistry,
        mode: &NewMode,
    ) -> Result<Self, Errno> {
        let temporary = Self::create_beside(&target.resolved, temp_registry, 0o600)?;
        inherit(old, stat, &temporary.file, mode.bits(stat))?;
        Ok(temporary)
    }

    fn rename_to(mut self, target: &WriteTarget, options: ReplaceOptions) -> Result<(), RenameFailure> {
        if options.sync {
            fsync(&self.file).map_err(RenameFailure::Os)?;
        }
        let (dir, name) = (&self.resolved.dir, &self.resolved.name);
        if options.unchanged && !target.is_unchanged().map_err(RenameFailure::Os)? {
            return Err(RenameFailure::Changed);
        }
        let renamed = if options.unchanged && target.existing.is_none() {
            match renameat_with(dir, &self.name, dir, name, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => return Err(RenameFailure::Changed),
                // This file system lacks the flag; the check above has to suffice.
                Err(Errno::INVAL) => renameat(dir, &self.name, dir, name),
                other => other,
            }
        } else {
            renameat(dir, &self.name, dir, name)
        };
        renamed.map_err(RenameFailure::Os)?;
        self.renamed_to_target = true;
        if options.sync {
            sync_directory(dir).map_err(RenameFailure::Os)?;
        }
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if !self.renamed_to_target {
            // A failure needs no report: either it is gone, or the registry finds it at the next start.
            let _gone = unlinkat(&self.resolved.dir, &self.name, AtFlags::empty());
        }
    }
}

/// Gives a new file the owner, the attributes and the mode of the one that it replaces.
pub(super) fn inherit(old: &OwnedFd, stat: &Stat, new: &OwnedFd, mode: Option<u32>) -> Result<(), Errno> {
    let made = fstat(new)?;
    if (made.st_uid, made.st_gid) != (stat.st_uid, stat.st_gid) {
        let owner = rustix::fs::Uid::from_raw(stat.st_uid);
        let group = rustix::fs::Gid::from_raw(stat.st_gid);
        fchown(new, Some(owner), Some(group))?;
    }
    copy_attributes(old, new)?;
    // The mode comes last: a change of owner clears set-user-id, and an access list changes the group's bits.
    fchmod(new, Mode::from_raw_mode(mode.unwrap_or(stat.st_mode & 0o7777)))
}

fn sync_directory(dir: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fsync(openat(dir, ".", flags, Mode::empty())?)
}

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// Copies extended attributes, access lists included.
fn copy_attributes(old: &OwnedFd, new: &OwnedFd) -> Result<(), Errno> {
    let mut names = vec![0; 64 << 10];
    let len = match flistxattr(old, &mut names[..]) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
        other => other?,
    };
    names.truncate(len);
    let names = || names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    if !names().any(|name| name == ACCESS_LIST) {
        // The directory may have given the new file a default access list that the old file does not have.
        match fremovexattr(new, ACCESS_LIST) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mut value = Vec::new();
    for name in names() {
        // Any write removes these from a file, because they vouch for its old contents.
        if matches!(name, b"security.capability" | b"security.ima" | b"security.evm") {
            continue;
        }
        value.resize(64 << 10, 0);
        let taken = fgetxattr(old, name, &mut value[..])
            .and_then(|len| fsetxattr(new, name, &value[..len], XattrFlags::empty()));
        match taken {
            Ok(()) | Err(Errno::NODATA) => {}
            // Labels that only the system may set.
            Err(_) if name.starts_with(b"security.") || name.starts_with(b"trusted.") => {}
            Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
