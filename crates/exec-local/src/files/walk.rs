//! Walking a tree: breadth first, names sorted bytewise, within exact limits.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use exec_env::files::limits::{WALK_BYTES, WALK_ENTRY_BYTES};
use exec_env::files::{
    FileError, FileKind, FileReason, FileVerb, LinkPolicy, WalkEntry, WalkItem, WalkKind, WalkListing, WalkOptions,
};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use super::blocking::CancelFlag;
use super::policy::{CallPolicy, PolicyPath, Wanted};
use super::resolve::{
    LastLink, ResolvedPath, entry_kind, kind_of, list, open_directory, open_listing, os, target_kind,
};

pub(super) fn walk(
    policy: &CallPolicy,
    root: &Path,
    options: WalkOptions,
    cancel: &CancelFlag,
) -> Result<WalkListing, FileReason> {
    options.check()?;
    // A directory that may not be read is entered, which tells why not; what a mask hides is no directory.
    let own = ResolvedPath::resolve(policy, root, LinkPolicy::Follow)
        .and_then(|root| root.kind_of_mask().map_or_else(|| root.stat().map(|stat| kind_of(&stat)), Ok));
    let kind = match own {
        Ok(FileKind::Symlink) | Err(_) => {
            // A link whose target does not exist fails in either case; another is entered only if links are followed. One that
            // a rule of the policy leads through may be followed, though it may not be looked at.
            let target = ResolvedPath::resolve_to_end(policy, root, LinkPolicy::Follow).and_then(|target| {
                let kind = || fstat(target.handle(Wanted::Read)?).map(|stat| kind_of(&stat));
                target.kind_of_mask().map_or_else(kind, Ok)
            });
            let target = target.map_err(|errno| os(own.err().unwrap_or(errno)))?;
            if options.follow_directory_symlinks { target } else { FileKind::Symlink }
        }
        Ok(other) => other,
    };
    if kind != FileKind::Directory {
        return Ok(WalkListing::default());
    }
    let mut walker = Walker {
        policy,
        options,
        listing: WalkListing::default(),
        listing_bytes: 0,
        examined: 0,
        entered: 0,
        queue: VecDeque::from([QueuedDirectory { path: root.to_owned(), depth: 0 }]),
        seen: HashSet::new(),
    };
    while let Some(next) = walker.queue.pop_front() {
        if cancel.is_set() {
            return Err(os(Errno::CANCELED));
        }
        if walker.entered >= options.max_directories {
            walker.listing.truncated = true;
            break;
        }
        if walker.enter(next).is_break() {
            walker.listing.truncated = true;
            break;
        }
    }
    Ok(walker.listing)
}

struct Walker<'a> {
    policy: &'a CallPolicy,
    options: WalkOptions,
    listing: WalkListing,
    listing_bytes: usize,
    examined: usize,
    entered: usize,
    /// Directories to enter; no more than the entries that were examined.
    queue: VecDeque<QueuedDirectory>,
    /// Real directories that were entered; needed only if links are followed, which can lead back.
    seen: HashSet<(u64, u64)>,
}

struct QueuedDirectory {
    path: PathBuf,
    depth: usize,
}

type Flow = std::ops::ControlFlow<()>;

impl Walker<'_> {
    fn enter(&mut self, here: QueuedDirectory) -> Flow {
        let last = if self.options.follow_directory_symlinks { LastLink::Follow } else { LastLink::Keep };
        let opened = open_directory(self.policy, &here.path, last);
        let (dir, policy_path) = match opened.and_then(|(dir, policy_path)| Ok((open_listing(&dir)?, policy_path))) {
            Ok(opened) => opened,
            Err(errno) => return self.record_error(&here.path, errno),
        };
        if self.options.follow_directory_symlinks {
            match fstat(&dir) {
                Ok(stat) if !self.seen.insert((stat.st_dev, stat.st_ino)) => {
                    return Flow::Continue(());
                }
                Ok(_) => {}
                Err(errno) => return self.record_error(&here.path, errno),
            }
        }
        self.entered += 1;
        let (names, failed) = self.smallest_names(&dir, &policy_path);
        for (name, file_type) in names {
            if self.examined >= self.options.max_entries {
                return Flow::Break(());
            }
            self.examined += 1;
            self.examine(&dir, &policy_path, &here, &name, file_type)?;
        }
        match failed {
            Some(errno) => self.record_error(&here.path, errno),
            None => Flow::Continue(()),
        }
    }

    /// The first names of a directory in sorted order: as many as may still be examined, and one more, which shows that
    /// the walk is truncated. So a directory with millions of names takes no more memory than the result.
    fn smallest_names(&self, dir: &OwnedFd, policy_path: &PolicyPath) -> (BTreeMap<OsString, FileType>, Option<Errno>) {
        let wanted = self.options.max_entries - self.examined + 1;
        let mut names = BTreeMap::new();
        let entries = match list(dir) {
            Ok(entries) => entries,
            Err(errno) => return (names, Some(errno)),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => return (names, Some(errno)),
            };
            // A link whose target does not exist does not count as examined.
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let may_be_link = matches!(entry.file_type(), FileType::Symlink | FileType::Unknown);
            if !policy_path.shows(name) || may_be_link && target_kind(dir, policy_path, name).is_err() {
                continue;
            }
            names.insert(name.to_owned(), entry.file_type());
            if names.len() > wanted {
                names.pop_last();
            }
        }
        (names, None)
    }

    fn examine(
        &mut self,
        dir: &OwnedFd,
        policy_path: &PolicyPath,
        here: &QueuedDirectory,
        name: &OsStr,
        file_type: FileType,
    ) -> Flow {
        let own = entry_kind(dir, name, file_type).unwrap_or(FileKind::Special);
        let kind = match own {
            FileKind::File => WalkKind::File,
            FileKind::Directory => WalkKind::Directory,
            FileKind::Symlink if self.options.follow_directory_symlinks => match target_kind(dir, policy_path, name) {
                Ok(FileKind::Directory) => WalkKind::Directory,
                _ => return Flow::Continue(()),
            },
            FileKind::Symlink | FileKind::Special => return Flow::Continue(()),
        };
        let path = here.path.join(name);
        let hidden = name.as_bytes().first() == Some(&b'.');
        let pruned = hidden && self.options.prune_hidden_directories;
        if kind == WalkKind::Directory && here.depth < self.options.max_depth && !pruned {
            self.queue.push_back(QueuedDirectory { path: path.clone(), depth: here.depth + 1 });
        }
        self.add(WalkItem::Entry(WalkEntry { path, kind, is_symlink: own == FileKind::Symlink }))
    }

    fn record_error(&mut self, path: &Path, errno: Errno) -> Flow {
        self.add(WalkItem::Unreadable(FileError::new(FileVerb::Walk, path, os(errno))))
    }

    fn add(&mut self, item: WalkItem) -> Flow {
        self.listing_bytes += item.path().as_os_str().len() + WALK_ENTRY_BYTES;
        if self.listing_bytes > WALK_BYTES {
            return Flow::Break(());
        }
        self.listing.items.push(item);
        Flow::Continue(())
    }
}
