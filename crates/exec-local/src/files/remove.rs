//! Removing files, links and trees.
//!
//! A tree is removed through handles: a directory that somebody replaces by a link meanwhile is seen as a link and
//! unlinked, never entered. Under a policy each name is asked for, so a tree that contains something protected stays with
//! that in it.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;

use exec_env::files::{FileError, FileKind, FileReason, FileVerb, LinkPolicy, RemoveOptions};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use super::blocking::CancelFlag;
use super::descent::Descent;
use super::policy::{CallPolicy, Wanted};
use super::resolve::{ResolvedPath, entry_kind, kind_of, os};

pub(super) fn remove(
    policy: &CallPolicy,
    path: &Path,
    options: RemoveOptions,
    cancel: &CancelFlag,
) -> Result<(), FileError> {
    let failed = |reason| FileError::new(FileVerb::Remove, path, reason);
    if options.links == LinkPolicy::Refuse && options.recursive {
        return Err(failed(FileReason::RecursiveNoFollow));
    }
    let removed = ResolvedPath::resolve(policy, path, options.links).and_then(|resolved| {
        let kind = match (resolved.require(Wanted::Read), resolved.kind_of_mask()) {
            // What is denied cannot be listed, so it cannot be emptied.
            (Err(Errno::ACCESS), Some(FileKind::Directory)) if options.recursive => return Err(Errno::ACCESS),
            (Err(Errno::ACCESS), Some(kind)) => kind,
            _ if resolved.is_missing_protected() => return Err(Errno::BUSY),
            _ => kind_of(&resolved.stat()?),
        };
        Ok((resolved, kind))
    });
    let (resolved, kind) = match removed {
        // What a ceiling hides is not what does not exist.
        Err(Errno::NOENT) if options.force && !policy.has_refused() => return Ok(()),
        other => other.map_err(|errno| failed(os(errno)))?,
    };
    match kind {
        FileKind::Symlink if options.links == LinkPolicy::Refuse => {
            return Err(failed(FileReason::SymlinkInPath));
        }
        _ => {}
    }
    let is_emptied_first = kind == FileKind::Directory && options.recursive;
    resolved.policy_path().require_removing().map_err(|errno| match errno {
        // The first that would be removed of a read-only directory is what is in it.
        Errno::BUSY if is_emptied_first && !resolved.may_be_written() && !resolved.is_empty() => {
            failed(os(Errno::ROFS))
        }
        // A mount in a read-only directory: the directory is asked first.
        Errno::BUSY if !is_emptied_first && resolved.may_be_written() => failed(os(Errno::ROFS)),
        errno => failed(os(errno)),
    })?;
    match kind {
        // `/` or a path that ends in `..`: the kernel would not remove the directory, so its contents stay, too.
        FileKind::Directory if resolved.name == "." => return Err(failed(os(Errno::BUSY))),
        FileKind::Directory if options.recursive => {
            remove_tree(&resolved, path, cancel)?;
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
fn remove_tree(top: &ResolvedPath, path: &Path, cancel: &CancelFlag) -> Result<(), FileError> {
    let mut path = path.to_owned();
    let failed = |path: &Path, errno| FileError::new(FileVerb::Remove, path, os(errno));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(&top.dir, &top.name, flags, Mode::empty());
    let mut tree = match opened.and_then(|dir| Descent::new(dir, top.policy_path(), None)) {
        Ok(tree) => tree,
        Err(Errno::NOENT) => return Ok(()),
        // It became a link or a file meanwhile.
        Err(Errno::NOTDIR | Errno::LOOP) => return unlink(&top.dir, &top.name).map_err(|errno| failed(&path, errno)),
        Err(errno) => return Err(failed(&path, errno)),
    };
    loop {
        if cancel.is_set() {
            return Err(failed(&path, Errno::CANCELED));
        }
        match tree.next().map_err(|errno| failed(&path, errno))? {
            Some((name, file_type)) => {
                path.push(&name);
                if !remove_or_enter(&mut tree, &name, file_type).map_err(|errno| failed(&path, errno))? {
                    path.pop();
                }
            }
            None => {
                let left = tree.leave().map_err(|errno| failed(&path, errno))?;
                let (dir, name) = match &left {
                    true => (tree.directories.current(), path.file_name().unwrap_or_default()),
                    false => (top.dir.as_fd(), top.name.as_os_str()),
                };
                let removed = ignore_missing(unlinkat(dir, name, AtFlags::REMOVEDIR));
                removed.map_err(|errno| failed(&path, errno))?;
                if !left {
                    return Ok(());
                }
                path.pop();
            }
        }
    }
}

/// Returns whether it is a directory, which was entered.
fn remove_or_enter(tree: &mut Descent, name: &OsStr, file_type: FileType) -> Result<bool, Errno> {
    let dir = tree.directories.current();
    let named = tree.directories.policy_path().name(name);
    if let Err(errno) = named.require(Wanted::Write) {
        let is_directory = entry_kind(dir, name, file_type) == Ok(FileKind::Directory);
        // What may not be written of a file stays in its directory as a mount does, and is busy; a directory is emptied first.
        return Err(if is_directory { errno } else { named.require_removing().err().unwrap_or(errno) });
    }
    let removed = match entry_kind(dir, name, file_type) {
        Err(Errno::NOENT) => return Ok(false),
        Ok(FileKind::Directory) => Err(Errno::ISDIR),
        kind => kind.and_then(|_| unlink(dir, name)),
    };
    match removed {
        // It is a directory, or became one meanwhile.
        Err(Errno::ISDIR) => {}
        other => return other.map(|()| false),
    }
    match tree.enter(name, None) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        // It became a link or a file meanwhile.
        Err(Errno::NOTDIR | Errno::LOOP) => unlink(tree.directories.current(), name).map(|()| false),
        Err(errno) => Err(errno),
    }
}

fn unlink(dir: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    ignore_missing(unlinkat(dir, name, AtFlags::empty()))
}

fn ignore_missing(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
