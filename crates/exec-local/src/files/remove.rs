//! Removing files, links and trees.
//!
//! A tree is taken down through handles: a directory that somebody swaps for a link meanwhile is met as a link and
//! unlinked, never entered.

use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use exec_env::files::{FileError, FileKind, FileReason, FileVerb, LinkPolicy, RemoveOptions};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;

use super::blocking::CancelFlag;
use super::resolve::{ResolvedPath, kind_of, kind_of_type, os};

/// Removes what is at `path`.
pub(super) fn remove(path: &Path, options: RemoveOptions, cancel: &CancelFlag) -> Result<(), FileError> {
    let failed = |reason| FileError::new(FileVerb::Remove, path, reason);
    if options.links == LinkPolicy::Refuse && options.recursive {
        return Err(failed(FileReason::RecursiveNoFollow));
    }
    let removed = ResolvedPath::resolve(path, options.links).and_then(|resolved| {
        let stat = resolved.stat()?;
        Ok((resolved, kind_of(&stat)))
    });
    let (resolved, kind) = match removed {
        Err(Errno::NOENT) if options.force => return Ok(()),
        other => other.map_err(|errno| failed(os(errno)))?,
    };
    match kind {
        FileKind::Symlink if options.links == LinkPolicy::Refuse => {
            return Err(failed(FileReason::SymlinkInPath));
        }
        // The root itself: without its name there is nothing the kernel would remove, so leave its contents, too.
        FileKind::Directory if resolved.name == "." => return Err(failed(os(Errno::BUSY))),
        FileKind::Directory if options.recursive => {
            let name = CString::new(resolved.name.as_bytes()).map_err(|_| failed(os(Errno::INVAL)))?;
            remove_tree(&resolved.dir, &name, path.to_owned(), cancel)?;
        }
        FileKind::Directory => {
            ignore_missing_if_forced(unlinkat(&resolved.dir, &resolved.name, AtFlags::REMOVEDIR), options)
                .map_err(|errno| failed(os(errno)))?;
        }
        _ => {
            ignore_missing_if_forced(unlinkat(&resolved.dir, &resolved.name, AtFlags::empty()), options)
                .map_err(|errno| failed(os(errno)))?;
        }
    }
    Ok(())
}

fn ignore_missing_if_forced(removed: Result<(), Errno>, options: RemoveOptions) -> Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) if options.force => Ok(()),
        other => other,
    }
}

/// A directory with everything in it. Something that vanishes meanwhile is what was wanted.
fn remove_tree(parent: &OwnedFd, name: &CString, path: PathBuf, cancel: &CancelFlag) -> Result<(), FileError> {
    let failed = |errno: Errno| FileError::new(FileVerb::Remove, path.clone(), os(errno));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let dir = match openat(parent, name, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(()),
        // It became a link or a file since we looked.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return ignore_missing(unlinkat(parent, name, AtFlags::empty())).map_err(failed);
        }
        Err(errno) => return Err(failed(errno)),
    };
    // Removing while reading may skip entries on some file systems, so the names are read first.
    let mut children = Vec::new();
    for entry in Dir::read_from(&dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            children.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    for (child, file_type) in children {
        if cancel.is_set() {
            return Err(failed(Errno::CANCELED));
        }
        let kind = match file_type {
            FileType::Unknown => match statat(&dir, &child, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => kind_of(&stat),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(failed(errno)),
            },
            known => kind_of_type(known),
        };
        let below = || path.join(OsStr::from_bytes(child.to_bytes()));
        match kind {
            FileKind::Directory => remove_tree(&dir, &child, below(), cancel)?,
            _ => match ignore_missing(unlinkat(&dir, &child, AtFlags::empty())) {
                // It became a directory since we looked.
                Err(Errno::ISDIR) => remove_tree(&dir, &child, below(), cancel)?,
                other => other.map_err(|errno| FileError::new(FileVerb::Remove, below(), os(errno)))?,
            },
        }
    }
    drop(dir);
    ignore_missing(unlinkat(parent, name, AtFlags::REMOVEDIR)).map_err(failed)
}

fn ignore_missing(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
