//! A walk in pages: depth first, names sorted bytewise, each page continuing behind the last item of the one before.
//!
//! Nothing is kept between two pages. What is there all the time comes exactly once, whatever appears and goes meanwhile.
//! Deliberately absent: following links to directories, for which a page would have to know all those before it.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use exec_env::files::limits::{WALK_BYTES, WALK_ENTRY_BYTES};
use exec_env::files::{
    FileError, FileKind, FileReason, FileVerb, WalkEntry, WalkItem, WalkKind, WalkOptions, WalkPage, WalkPosition,
};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::blocking::CancelFlag;
use super::descent::Descent;
use super::policy::{CallPolicy, PolicyPath};
use super::resolve::{LastLink, entry_kind, open_directory, os};

pub(super) fn walk_page(
    policy: &CallPolicy,
    root: &Path,
    options: WalkOptions,
    after: Option<WalkPosition>,
    cancel: &CancelFlag,
) -> Result<WalkPage, FileReason> {
    options.check()?;
    let below = match &after {
        None => PathBuf::new(),
        Some(after) => after.path.strip_prefix(root).map_err(|_| os(Errno::INVAL))?.to_owned(),
    };
    // A page ends at a name that was listed, and `..` is none: it would lead out of the tree, and past a policy.
    if below.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(os(Errno::INVAL));
    }
    if options.follow_directory_symlinks {
        return Err(os(Errno::INVAL));
    }
    let top = match open_directory(policy, root, LastLink::Keep) {
        Ok(top) => top,
        // A file, or a link, has nothing below it.
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(WalkPage::default()),
        Err(errno) => return Err(os(errno)),
    };
    let mut walker = PageWalker::resume(root, top, options, &below, after.is_some_and(|after| after.whole))?;
    while walker.step()?.is_continue() {
        if cancel.is_set() {
            return Err(os(Errno::CANCELED));
        }
    }
    Ok(walker.page)
}

struct PageWalker {
    options: WalkOptions,
    tree: Descent,
    /// The directory whose names are next.
    here: PathBuf,
    page: WalkPage,
    page_bytes: usize,
    examined: usize,
    entered: usize,
    /// The last item of the page, or the last name that was left out.
    position: WalkPosition,
}

type Flow = std::ops::ControlFlow<()>;

impl PageWalker {
    /// Goes down to the last item as far as it still exists, and behind it.
    fn resume(
        root: &Path,
        (top, policy_path): (OwnedFd, PolicyPath),
        options: WalkOptions,
        below: &Path,
        whole: bool,
    ) -> Result<Self, FileReason> {
        let mut names = below.iter();
        let after = names.next().map(OsStr::to_owned);
        let tree = Descent::new(top, policy_path, after.clone()).map_err(os)?;
        let position = WalkPosition { path: root.join(below), whole };
        let (here, page) = (root.to_owned(), WalkPage::default());
        let mut walker = Self { options, tree, here, page, page_bytes: 0, examined: 0, entered: 1, position };
        let mut at: Option<OsString> = after;
        while let Some(name) = at {
            let next = names.next().map(OsStr::to_owned);
            // What is below the last item itself is next, unless that was listed or left out.
            let is_last = next.is_none();
            if is_last && (whole || !walker.may_enter(&name)) {
                break;
            }
            // It is gone, or no directory: its path is known all the same.
            if walker.tree.enter(&name, next.clone()).is_err() {
                break;
            }
            walker.here.push(&name);
            at = next;
        }
        Ok(walker)
    }

    /// Takes the next name, or goes up.
    fn step(&mut self) -> Result<Flow, FileReason> {
        let (name, file_type) = match self.tree.next() {
            Ok(Some(next)) => next,
            Ok(None) => return self.leave(),
            Err(errno) => {
                // The whole directory is left out: nobody could say which part of it had come.
                let error = FileError::new(FileVerb::Walk, &self.here, os(errno));
                if self.add(WalkItem::Unreadable(error)).is_break() {
                    return Ok(Flow::Break(()));
                }
                return self.leave();
            }
        };
        if self.examined == self.options.max_entries {
            return Ok(self.end_page());
        }
        self.examined += 1;
        let path = self.here.join(&name);
        let Some(kind) = self.kind(&name, file_type) else {
            self.position = WalkPosition { path, whole: true };
            return Ok(Flow::Continue(()));
        };
        if self.add(WalkItem::Entry(WalkEntry { path, kind, is_symlink: false })).is_break() {
            return Ok(Flow::Break(()));
        }
        if kind == WalkKind::Directory && self.may_enter(&name) {
            return Ok(self.enter(&name));
        }
        Ok(Flow::Continue(()))
    }

    fn kind(&self, name: &OsStr, file_type: FileType) -> Option<WalkKind> {
        match entry_kind(self.tree.directories.current(), name, file_type) {
            Ok(FileKind::File) => Some(WalkKind::File),
            Ok(FileKind::Directory) => Some(WalkKind::Directory),
            _ => None,
        }
    }

    fn may_enter(&self, name: &OsStr) -> bool {
        let pruned = self.options.prune_hidden_directories && name.as_bytes().first() == Some(&b'.');
        self.tree.directories.depth() < self.options.max_depth && !pruned
    }

    fn enter(&mut self, name: &OsStr) -> Flow {
        if self.entered == self.options.max_directories {
            return self.end_page();
        }
        self.entered += 1;
        match self.tree.enter(name, None) {
            Ok(()) => self.here.push(name),
            // It is gone again, or became something else.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => {
                let error = FileError::new(FileVerb::Walk, self.here.join(name), os(errno));
                return self.add(WalkItem::Unreadable(error));
            }
        }
        Flow::Continue(())
    }

    fn leave(&mut self) -> Result<Flow, FileReason> {
        let left = self.tree.leave().map_err(os)?;
        if !left {
            return Ok(Flow::Break(()));
        }
        self.position = WalkPosition { path: self.here.clone(), whole: true };
        self.here.pop();
        Ok(Flow::Continue(()))
    }

    fn add(&mut self, item: WalkItem) -> Flow {
        self.page_bytes += item.path().as_os_str().len() + WALK_ENTRY_BYTES;
        // A page has at least one item, or it would be asked for again and again.
        if self.page_bytes > WALK_BYTES && !self.page.items.is_empty() {
            return self.end_page();
        }
        self.position = item.position();
        self.page.items.push(item);
        Flow::Continue(())
    }

    fn end_page(&mut self) -> Flow {
        self.page.next = Some(self.position.clone());
        Flow::Break(())
    }
}
