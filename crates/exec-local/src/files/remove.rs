//! Removing files, links and trees.
//!
//! A tree is taken down through handles: a directory that somebody swaps for a link meanwhile is met as a link and
//! unlinked, never entered.

use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use exec_env::files::{FileError, FileKind, Links, Reason, RemoveOptions, Verb};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;

use super::gate::Stop;
use super::place::{Place, kind_of, kind_of_type, os};

/// Removes what is at `path`.
pub(super) fn remove(path: &Path, options: RemoveOptions, stop: &Stop) -> Result<(), FileError> {
    let failed = |reason| FileError::new(Verb::Remove, path, reason);
    if options.links == Links::Refuse && options.recursive {
        return Err(failed(Reason::RecursiveNoFollow));
    }
    let removed = Place::of(path, options.links).and_then(|place| {
        let stat = place.stat()?;
        Ok((place, kind_of(&stat)))
    });
    let (place, kind) = match removed {
        Err(Errno::NOENT) if options.force => return Ok(()),
        other => other.map_err(|errno| failed(os(errno)))?,
    };
    match kind {
        FileKind::Symlink if options.links == Links::Refuse => {
            return Err(failed(Reason::SymlinkInPath));
        }
        // The root itself: without its name there is nothing the kernel would remove, so leave its contents, too.
        FileKind::Directory if place.name == "." => return Err(failed(os(Errno::BUSY))),
        FileKind::Directory if options.recursive => {
            let name = CString::new(place.name.as_bytes()).map_err(|_| failed(os(Errno::INVAL)))?;
            take_down(&place.dir, &name, path.to_owned(), stop)?;
        }
        FileKind::Directory => {
            settle(unlinkat(&place.dir, &place.name, AtFlags::REMOVEDIR), options)
                .map_err(|errno| failed(os(errno)))?;
        }
        _ => {
            settle(unlinkat(&place.dir, &place.name, AtFlags::empty()), options).map_err(|errno| failed(os(errno)))?;
        }
    }
    Ok(())
}

fn settle(removed: Result<(), Errno>, options: RemoveOptions) -> Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) if options.force => Ok(()),
        other => other,
    }
}

/// A directory with everything in it. Something that vanishes meanwhile is what was wanted.
fn take_down(parent: &OwnedFd, name: &CString, path: PathBuf, stop: &Stop) -> Result<(), FileError> {
    let failed = |errno: Errno| FileError::new(Verb::Remove, path.clone(), os(errno));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let dir = match openat(parent, name, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(()),
        // It became a link or a file since we looked.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return absent_is_fine(unlinkat(parent, name, AtFlags::empty())).map_err(failed);
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
        if stop.is_set() {
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
            FileKind::Directory => take_down(&dir, &child, below(), stop)?,
            _ => match absent_is_fine(unlinkat(&dir, &child, AtFlags::empty())) {
                // It became a directory since we looked.
                Err(Errno::ISDIR) => take_down(&dir, &child, below(), stop)?,
                other => other.map_err(|errno| FileError::new(Verb::Remove, below(), os(errno)))?,
            },
        }
    }
    drop(dir);
    absent_is_fine(unlinkat(parent, name, AtFlags::REMOVEDIR)).map_err(failed)
}

fn absent_is_fine(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
