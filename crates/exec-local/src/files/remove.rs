//! Removing files, links and trees.
//!
//! A tree is removed through handles: a directory that somebody replaces by a link meanwhile is seen as a link and
//! unlinked, never entered.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use exec_env::files::{FileError, FileKind, FileReason, FileVerb, LinkPolicy, RemoveOptions};
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use super::blocking::CancelFlag;
use super::resolve::{ResolvedPath, entry_kind, kind_of, list, os};

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
        // `/` or a path that ends in `..`: the kernel would not remove the directory, so its contents stay, too.
        FileKind::Directory if resolved.name == "." => return Err(failed(os(Errno::BUSY))),
        FileKind::Directory if options.recursive => {
            let name = CString::new(resolved.name.as_bytes()).map_err(|_| failed(os(Errno::INVAL)))?;
            remove_tree(&resolved.dir, &name, path.to_owned(), cancel)?;
        }
        kind => {
            let flags = if kind == FileKind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            match unlinkat(&resolved.dir, &resolved.name, flags) {
                Err(Errno::NOENT) if options.force => {}
                removed => removed.map_err(|errno| failed(os(errno)))?,
            }
        }
    }
    Ok(())
}

/// Removes a directory with everything in it. What somebody else removes meanwhile is no error.
fn remove_tree(parent: &OwnedFd, name: &CStr, path: PathBuf, cancel: &CancelFlag) -> Result<(), FileError> {
    let failed = |errno: Errno| FileError::new(FileVerb::Remove, path.clone(), os(errno));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let dir = match openat(parent, name, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(()),
        // It became a link or a file meanwhile.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return ignore_missing(unlinkat(parent, name, AtFlags::empty())).map_err(failed);
        }
        Err(errno) => return Err(failed(errno)),
    };
    // Removing while reading may skip entries on some file systems, so all names are read first.
    let children: Vec<_> = list(&dir).and_then(Iterator::collect).map_err(failed)?;
    for child in children {
        if cancel.is_set() {
            return Err(failed(Errno::CANCELED));
        }
        let kind = match entry_kind(&dir, child.file_name(), child.file_type()) {
            Err(Errno::NOENT) => continue,
            kind => kind.map_err(failed)?,
        };
        let child = child.file_name();
        let below = || path.join(OsStr::from_bytes(child.to_bytes()));
        match kind {
            FileKind::Directory => remove_tree(&dir, child, below(), cancel)?,
            _ => match ignore_missing(unlinkat(&dir, child, AtFlags::empty())) {
                // It became a directory meanwhile.
                Err(Errno::ISDIR) => remove_tree(&dir, child, below(), cancel)?,
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
