//! Going through a tree of any depth and width, in bounded memory and with few open handles.
//!
//! A directory is entered by its name in the handle of its parent and never through a link, so nobody can lead the
//! descent out of the tree by swapping a directory meanwhile. Handles of directories far above are closed, and opened again
//! as `..` of a directory that is left; if that is not the directory it was, somebody has moved one of the two, and the
//! descent ends. Under a policy a directory is entered only if it may be read, and what does not exist for the caller is
//! not listed.
//!
//! ```text
//! next ─► a name ─► enter it, if it is a directory ─► next … None ─► leave ─► next …
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use super::policy::PolicyPath;
use super::resolve::{list, open_listing};

/// Handles that a descent keeps open. Deeper trees are rare, and a process has few descriptors.
const OPEN_HANDLES: usize = 32;

/// Names that a descent holds, of all directories that it is in.
const HELD_NAMES: usize = 1 << 16;

/// The directories from the top of a tree to the one that is worked on.
pub(super) struct DirectoryStack {
    levels: Vec<StackLevel>,
    /// So many of the first levels have no handle.
    closed: usize,
    /// Of the directory that is worked on.
    policy_path: PolicyPath,
}

struct StackLevel {
    device_and_inode: (u64, u64),
    handle: Option<OwnedFd>,
    /// Of the directory above, where that is not simply the parent.
    policy_path_above: Option<PolicyPath>,
}

impl DirectoryStack {
    pub(super) fn new(top: OwnedFd, policy_path: PolicyPath) -> Result<Self, Errno> {
        let mut stack = Self { levels: Vec::new(), closed: 0, policy_path };
        stack.add(top, None)?;
        Ok(stack)
    }

    /// The directory that is worked on.
    pub(super) fn current(&self) -> BorrowedFd<'_> {
        let handle = self.levels.last().and_then(|level| level.handle.as_ref());
        handle.expect("the last level always has a handle, and the top is never left").as_fd()
    }

    /// Where that is.
    pub(super) fn policy_path(&self) -> &PolicyPath {
        &self.policy_path
    }

    pub(super) fn into_current(mut self) -> (OwnedFd, PolicyPath) {
        let handle = self.levels.pop().and_then(|level| level.handle);
        (handle.expect("the last level always has a handle, and the top is never left"), self.policy_path)
    }

    /// The number of directories that were entered below the top.
    pub(super) fn depth(&self) -> usize {
        self.levels.len() - 1
    }

    /// Goes into a directory of the current one. A link is not followed, but fails with `ENOTDIR` or `ELOOP`.
    pub(super) fn enter(&mut self, name: &OsStr) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = openat(self.current(), name, flags, Mode::empty())?;
        self.policy_path.name(name).require_entering(&dir)?;
        self.push(dir, name)
    }

    /// Goes into a directory of the current one that was opened already.
    pub(super) fn push(&mut self, dir: OwnedFd, name: &OsStr) -> Result<(), Errno> {
        self.add(dir, None)?;
        self.policy_path.enter(name);
        Ok(())
    }

    /// Goes into a directory that was opened already and may be anywhere.
    pub(super) fn push_at(&mut self, dir: OwnedFd, policy_path: PolicyPath) -> Result<(), Errno> {
        let above = std::mem::replace(&mut self.policy_path, policy_path);
        self.add(dir, Some(above))
    }

    fn add(&mut self, dir: OwnedFd, policy_path_above: Option<PolicyPath>) -> Result<(), Errno> {
        let device_and_inode = identity(&dir)?;
        self.levels.push(StackLevel { device_and_inode, handle: Some(dir), policy_path_above });
        if self.levels.len() - self.closed > OPEN_HANDLES {
            self.levels[self.closed].handle = None;
            self.closed += 1;
        }
        Ok(())
    }

    /// Goes back to the directory above, and returns the one that was left. After a failure nothing was left.
    pub(super) fn leave(&mut self) -> Result<OwnedFd, Errno> {
        let above = self.levels.len().checked_sub(2).expect("the top is never left");
        if self.levels[above].handle.is_none() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = openat(self.current(), "..", flags, Mode::empty())?;
            if identity(&dir)? != self.levels[above].device_and_inode {
                return Err(Errno::STALE);
            }
            self.levels[above].handle = Some(dir);
            self.closed = above;
        }
        let level = self.levels.pop().expect("the top is never left");
        match level.policy_path_above {
            Some(policy_path) => self.policy_path = policy_path,
            None => self.policy_path.leave(),
        }
        Ok(level.handle.expect("the last level always has a handle"))
    }
}

fn identity(dir: &OwnedFd) -> Result<(u64, u64), Errno> {
    fstat(dir).map(|stat| (stat.st_dev, stat.st_ino))
}

/// A way through a whole tree: depth first, names sorted bytewise within each directory.
pub(super) struct Descent {
    pub(super) directories: DirectoryStack,
    /// The names that are left, of each directory of the stack.
    levels: Vec<NamesLeft>,
    /// How many names `levels` hold.
    held: usize,
    /// The first levels that hold names are not below this one.
    first_held: usize,
}

/// The names of a directory behind one of them.
#[derive(Default)]
struct NamesLeft {
    next: VecDeque<(OsString, FileType)>,
    after: Option<OsString>,
    /// There may be more behind the last of `next`.
    more: bool,
}

impl Descent {
    /// Begins with the names of `top`, those behind `after` only.
    pub(super) fn new(top: OwnedFd, policy_path: PolicyPath, after: Option<OsString>) -> Result<Self, Errno> {
        let directories = DirectoryStack::new(top, policy_path)?;
        let first = NamesLeft { after, more: true, ..NamesLeft::default() };
        Ok(Self { directories, levels: vec![first], held: 0, first_held: 0 })
    }

    /// The next name of the current directory; `None` at its end.
    pub(super) fn next(&mut self) -> Result<Option<(OsString, FileType)>, Errno> {
        let level = self.levels.last_mut().expect("the top is never left");
        if level.next.is_empty() && level.more {
            let (dir, policy_path) = (self.directories.current(), self.directories.policy_path());
            let (names, more) = names_after(dir, policy_path, level.after.as_deref(), HELD_NAMES)?;
            self.held += names.len();
            (level.next, level.more) = (names.into(), more);
            self.drop_names_above();
        }
        let level = self.levels.last_mut().expect("the top is never left");
        let next = level.next.pop_front();
        if let Some((name, _)) = &next {
            self.held -= 1;
            level.after = Some(name.clone());
        }
        Ok(next)
    }

    /// Goes into a directory of the current one, to its names behind `after`.
    pub(super) fn enter(&mut self, name: &OsStr, after: Option<OsString>) -> Result<(), Errno> {
        self.directories.enter(name)?;
        self.levels.push(NamesLeft { after, more: true, ..NamesLeft::default() });
        Ok(())
    }

    /// Goes back to the directory above. Returns false at the top.
    pub(super) fn leave(&mut self) -> Result<bool, Errno> {
        if self.directories.depth() == 0 {
            return Ok(false);
        }
        let left = self.levels.pop().expect("as many as directories");
        self.held -= left.next.len();
        self.first_held = self.first_held.min(self.levels.len() - 1);
        self.directories.leave()?;
        Ok(true)
    }

    /// Forgets names of the directories above, which are read again when they are next. So the whole descent holds no
    /// more than the names of two directories.
    fn drop_names_above(&mut self) {
        let current = self.levels.len() - 1;
        while self.held > HELD_NAMES && self.first_held < current {
            let level = &mut self.levels[self.first_held];
            if !level.next.is_empty() {
                self.held -= level.next.len();
                level.next = VecDeque::new();
                level.more = true;
            }
            self.first_held += 1;
        }
    }
}

/// At most `max` names of a directory in bytewise order, those behind `after` only, and whether there are more. The memory
/// is that of the result, whatever the size of the directory.
pub(super) fn names_after(
    dir: BorrowedFd<'_>,
    policy_path: &PolicyPath,
    after: Option<&OsStr>,
    max: usize,
) -> Result<(Vec<(OsString, FileType)>, bool), Errno> {
    let dir = open_listing(dir)?;
    let mut names = BTreeMap::new();
    let mut more = false;
    for entry in list(&dir)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if after.is_some_and(|after| name <= after) || !policy_path.shows(name) {
            continue;
        }
        if names.len() == max {
            more = true;
            if names.last_key_value().is_none_or(|(last, _): (&OsString, _)| name >= last.as_os_str()) {
                continue;
            }
            names.pop_last();
        }
        names.insert(name.to_owned(), entry.file_type());
    }
    Ok((names.into_iter().collect(), more))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn names_come_in_order_and_in_pieces_of_any_size() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        for name in ["b", "a", "c", "B", "a\u{e9}"] {
            File::create(dir.path().join(name)).expect("it is ours");
        }
        let open = File::open(dir.path()).expect("it exists");
        for max in 1..7 {
            let (mut found, mut after) = (Vec::<OsString>::new(), None);
            loop {
                let (names, more) = names_after(open.as_fd(), &PolicyPath::default(), after.as_deref(), max)
                    .expect("it is a directory");
                assert!(names.len() <= max);
                found.extend(names.into_iter().map(|(name, _)| name));
                after = found.last().cloned();
                if !more {
                    break;
                }
            }
            assert_eq!(found, ["B", "a", "a\u{e9}", "b", "c"], "{max}");
        }
    }

    #[test]
    fn a_directory_that_is_moved_away_meanwhile_ends_the_descent() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let deep: std::path::PathBuf = std::iter::repeat_n("d", OPEN_HANDLES + 2).collect();
        std::fs::create_dir_all(dir.path().join(deep)).expect("it is ours");
        std::fs::create_dir(dir.path().join("elsewhere")).expect("it is ours");
        let top = OwnedFd::from(File::open(dir.path()).expect("it exists"));
        let mut stack = DirectoryStack::new(top, PolicyPath::default()).expect("it is a directory");
        for _ in 0..OPEN_HANDLES + 2 {
            stack.enter(OsStr::new("d")).expect("it is there");
        }
        std::fs::rename(dir.path().join("d/d"), dir.path().join("elsewhere/d")).expect("both are ours");
        let left: Result<Vec<()>, Errno> = (0..OPEN_HANDLES + 2).map(|_| stack.leave().map(drop)).collect();
        assert_eq!(left, Err(Errno::STALE));
    }
}
