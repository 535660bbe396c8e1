//! From a path of the caller to a handle, and from a handle to where it is.
//!
//! The kernel goes to the directory, links and all, but through none of `/proc` that leads past every path. Then it is asked
//! where the handle is. The links at the end of a path are read here, because a path that ends in one may be meant to make
//! a file, and because some name descriptors of the caller.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Stat, fstat, fstatfs, openat, openat2,
    readlinkat, statat,
};
use rustix::io::Errno;

use super::call::{PathArgument, Target};
use super::caller::Caller;

/// As many links as the kernel itself follows.
const MAX_LINKS: usize = 40;

/// How often it is tried again what renames elsewhere have disturbed.
const RESOLVE_TRIES: usize = 100;

/// The end of a path: a name in a directory.
pub(super) struct Name {
    pub(super) directory: OwnedFd,
    pub(super) last: LastName,
    /// The path ended with a slash, so it must be a directory.
    pub(super) slash: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LastName {
    Name(OsString),
    /// `.`, or the root: the directory itself.
    Itself,
    /// `..`, to which the handle of the directory leads.
    Parent,
}

/// What a path leads to.
pub(super) enum PathTarget {
    File(OwnedFd, Stat),
    Nothing(Name),
}

/// The directory and the last name of a path.
pub(super) fn name(caller: &Caller<'_>, at: &PathArgument) -> Result<Name, Errno> {
    let base = if at.path.is_absolute() { None } else { Some(caller.descriptor(at.directory)?) };
    name_from(base.as_ref(), &at.path)
}

/// What a path leads to, if need be by the links at its end.
pub(super) fn find(caller: &Caller<'_>, at: &PathArgument, follow: bool) -> Result<PathTarget, Errno> {
    let mut base = if at.path.is_absolute() { None } else { Some(caller.descriptor(at.directory)?) };
    let mut path = at.path.clone();
    for followed in 0..=MAX_LINKS {
        let descriptor = if follow || followed > 0 { caller.descriptor_named_by(&path) } else { None };
        if let Some(number) = descriptor {
            let handle =
                caller.descriptor(number).map_err(|errno| if errno == Errno::BADF { Errno::NOENT } else { errno })?;
            let stat = fstat(&handle)?;
            return Ok(PathTarget::File(handle, stat));
        }
        let name = name_from(base.as_ref(), &path)?;
        let LastName::Name(last) = &name.last else {
            let stat = fstat(&name.directory)?;
            return Ok(PathTarget::File(name.directory, stat));
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match openat(&name.directory, last, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(PathTarget::Nothing(name)),
            opened => opened?,
        };
        let stat = fstat(&handle)?;
        let is_link = kind(&stat) == FileType::Symlink;
        if !is_link || !(follow || name.slash) {
            return match name.slash && kind(&stat) != FileType::Directory {
                true => Err(Errno::NOTDIR),
                false => Ok(PathTarget::File(handle, stat)),
            };
        }
        if !may_follow(&fstat(&name.directory)?, &stat) || is_procfs(&handle)? {
            return Err(Errno::ACCESS);
        }
        let mut text = readlinkat(&handle, "", Vec::new())?.into_bytes();
        if text.is_empty() {
            return Err(Errno::NOENT);
        }
        if name.slash {
            text.push(b'/');
        }
        path = PathBuf::from(OsString::from_vec(text));
        base = if path.is_absolute() { None } else { Some(name.directory) };
    }
    Err(Errno::LOOP)
}

/// A file that must be there.
pub(super) fn find_target(caller: &Caller<'_>, target: &Target) -> Result<(OwnedFd, Stat), Errno> {
    match target {
        Target::Descriptor(number) => {
            let handle = caller.descriptor(*number)?;
            let stat = fstat(&handle)?;
            Ok((handle, stat))
        }
        Target::Path { at, follow } => match find(caller, at, *follow)? {
            PathTarget::File(handle, stat) => Ok((handle, stat)),
            PathTarget::Nothing(_) => Err(Errno::NOENT),
        },
    }
}

impl Name {
    /// Where the name is, and what it is called there. `None` for a directory itself.
    pub(super) fn path(&self) -> Result<Option<(PathBuf, &OsStr)>, Errno> {
        let LastName::Name(last) = &self.last else { return Ok(None) };
        Ok(Some((path_of(&self.directory)?.join(last), last)))
    }

    /// What has the name now.
    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        match &self.last {
            LastName::Name(last) => statat(&self.directory, last, AtFlags::SYMLINK_NOFOLLOW),
            LastName::Itself | LastName::Parent => fstat(&self.directory),
        }
    }
}

/// Where a handle is, by a path without links. Nothing of procfs is anywhere: it has the memory and the descriptors of
/// processes, ours included.
pub(super) fn path_of(handle: &OwnedFd) -> Result<PathBuf, Errno> {
    if is_procfs(handle)? {
        return Err(Errno::ROFS);
    }
    let path = PathBuf::from(OsString::from_vec(readlinkat(CWD, proc_path(handle), Vec::new())?.into_bytes()));
    if path.is_absolute() { Ok(path) } else { Err(Errno::ACCESS) }
}

/// The path at which a file was that has no name any more, if the kernel says so of `path`. A file may really be called that.
pub(super) fn without_deleted_mark(path: &Path) -> Option<PathBuf> {
    let bytes = path.as_os_str().as_bytes().strip_suffix(b" (deleted)")?;
    Some(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// A path that leads to the file of a handle, whatever it is called by now.
pub(super) fn proc_path(handle: impl AsFd) -> String {
    format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd())
}

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn name_from(base: Option<&OwnedFd>, path: &Path) -> Result<Name, Errno> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(Errno::NOENT);
    }
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let start = bytes[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let slash = end < bytes.len();
    let last = match &bytes[start..end] {
        b"" | b"." => LastName::Itself,
        b".." => LastName::Parent,
        name => LastName::Name(OsStr::from_bytes(name).to_owned()),
    };
    let parent = match (&last, start) {
        (LastName::Name(_), 0) => b".".as_slice(),
        (LastName::Name(_), _) => &bytes[..start],
        _ => bytes,
    };
    if matches!(&last, LastName::Name(name) if name.len() > 255) {
        return Err(Errno::NAMETOOLONG);
    }
    let parent = Path::new(OsStr::from_bytes(parent));
    Ok(Name { directory: open_directory(base, parent)?, last, slash })
}

fn open_directory(base: Option<&OwnedFd>, path: &Path) -> Result<OwnedFd, Errno> {
    let base = base.map_or(CWD, AsFd::as_fd);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for _ in 0..RESOLVE_TRIES {
        match openat2(base, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
            Err(Errno::AGAIN) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

fn is_procfs(handle: &OwnedFd) -> Result<bool, Errno> {
    Ok(fstatfs(handle)?.f_type == PROC_SUPER_MAGIC)
}

/// The kernel's rule for links in shared directories like /tmp (`fs.protected_symlinks`), for the links that we read
/// ourselves.
fn may_follow(directory: &Stat, link: &Stat) -> bool {
    let sticky_and_shared = directory.st_mode & 0o1002 == 0o1002;
    let ours = link.st_uid == rustix::process::geteuid().as_raw();
    !sticky_and_shared || ours || directory.st_uid == link.st_uid
}
