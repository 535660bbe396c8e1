//! From a path to a handle under a policy: see `policy` for what is decided and why it holds.
//!
//! Mostly there is no link on the way. Then the kernel goes to the directory in one call, in which it may follow none,
//! and the path is what the rules are asked about. In any other case, failures included, this goes one name after the
//! other and reads the links itself, so that what lies in a closed directory is neither entered nor told from what does
//! not exist.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use exec_env::files::{FileKind, LinkPolicy};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};
use rustix::io::Errno;

use super::{MAX_LINKS, ResolvedPath, kind_of, may_follow};
use crate::files::descent::DirectoryStack;
use crate::files::policy::{CallPolicy, Wanted};

/// What to do with a link that is the last component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::files) enum LastLink {
    Keep,
    Follow,
}

/// The directory and the name that `path` leads to. With [`LastLink::Follow`] the name was no link when it was looked at.
pub(super) fn resolve(
    policy: &CallPolicy,
    path: &Path,
    links: LinkPolicy,
    last: LastLink,
) -> Result<ResolvedPath, Errno> {
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT);
    }
    let path = match path.is_absolute() {
        true => path.to_owned(),
        false => std::env::current_dir().map_err(|_| Errno::NOENT)?.join(path),
    };
    if let Some(resolved) = resolve_at_once(policy, &path) {
        let is_link = || resolved.kind_of_name() == Some(FileKind::Symlink);
        if last == LastLink::Keep || !is_link() {
            return Ok(resolved);
        }
    }
    resolve_by_component(policy, &path, links, last)
}

fn resolve_at_once(policy: &CallPolicy, path: &Path) -> Option<ResolvedPath> {
    if path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let (parent, name) = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => (parent, name),
        _ => (path, OsStr::new(".")),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()?;
    let policy_path = policy.policy_path(&parent.components().collect::<PathBuf>());
    // What is closed is found out again, and answered, by the slow way.
    policy_path.require_entering(&dir).ok()?;
    Some(ResolvedPath { dir, name: name.to_owned(), dir_policy_path: policy_path })
}

fn resolve_by_component(
    policy: &CallPolicy,
    path: &Path,
    links: LinkPolicy,
    last: LastLink,
) -> Result<ResolvedPath, Errno> {
    let mut stack = root(policy)?;
    let mut left = reversed(path);
    let mut followed = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            if stack.depth() > 0 {
                stack.leave()?;
            }
            continue;
        }
        let is_last = left.is_empty();
        if is_last && last == LastLink::Keep {
            return resolved(stack, name);
        }
        let policy_path = stack.policy_path().name(&name);
        // What is closed answers the same, whatever is there.
        let unless_closed = |errno| policy_path.require(Wanted::Read).err().unwrap_or(errno);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match openat(stack.current(), &name, flags, Mode::empty()) {
            Err(Errno::NOENT) if is_last => return resolved(stack, name),
            opened => opened.map_err(unless_closed)?,
        };
        let stat = fstat(&handle).map_err(unless_closed)?;
        match kind_of(&stat) {
            FileKind::Symlink => {
                policy_path.require_following()?;
                policy_path.require_outside_procfs(&handle)?;
                followed += 1;
                if links == LinkPolicy::Refuse {
                    return Err(if is_last { Errno::LOOP } else { Errno::NOTDIR });
                }
                if followed > MAX_LINKS {
                    return Err(Errno::LOOP);
                }
                if is_last && !may_follow(&fstat(stack.current())?, &stat) {
                    return Err(Errno::ACCESS);
                }
                let text = readlinkat(&handle, "", Vec::new())?.into_bytes();
                let text = PathBuf::from(OsString::from_vec(text));
                if text.is_absolute() {
                    stack = root(policy)?;
                }
                left.extend(reversed(&text));
            }
            _ if is_last => return resolved(stack, name),
            FileKind::Directory => {
                policy_path.require_entering(&handle)?;
                stack.push(handle, &name)?;
            }
            _ => return Err(unless_closed(Errno::NOTDIR)),
        }
    }
    resolved(stack, OsString::from("."))
}

fn root(policy: &CallPolicy) -> Result<DirectoryStack, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    DirectoryStack::new(openat(CWD, "/", flags, Mode::empty())?, policy.policy_path(Path::new("/")))
}

fn resolved(stack: DirectoryStack, name: OsString) -> Result<ResolvedPath, Errno> {
    let (dir, dir_policy_path) = stack.into_current();
    Ok(ResolvedPath { dir, name, dir_policy_path })
}

/// The names of a path, the last first.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    let mut names: Vec<OsString> = names.map(|part| part.as_os_str().to_owned()).collect();
    names.reverse();
    names
}
