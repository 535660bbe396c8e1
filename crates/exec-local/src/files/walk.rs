//! Walks: breadth first, bytewise sorted, within exact limits.

use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use exec_env::files::limits::WALK_BYTES;
use exec_env::files::tree::walk_reply_bytes;
use exec_env::files::{FileError, FileKind, FileReason, FileVerb, WalkEntry, WalkKind, WalkListing, WalkOptions};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::blocking::CancelFlag;
use super::resolve::{kind_of, kind_of_type, os};

/// Walks below `root`.
pub(super) fn walk(root: &Path, options: WalkOptions, cancel: &CancelFlag) -> Result<WalkListing, FileReason> {
    options.check()?;
    let own = statat(CWD, root, AtFlags::SYMLINK_NOFOLLOW).map_err(os)?;
    let kind = match kind_of(&own) {
        FileKind::Symlink => {
            // A link that leads nowhere fails either way; one that leads somewhere is entered only where that is wanted.
            let target = statat(CWD, root, AtFlags::empty()).map_err(os)?;
            if options.follow_directory_symlinks { kind_of(&target) } else { FileKind::Symlink }
        }
        other => other,
    };
    if kind != FileKind::Directory {
        return Ok(WalkListing::default());
    }
    let mut walker = Walker {
        options,
        listing: WalkListing::default(),
        reply_bytes: 0,
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

struct Walker {
    options: WalkOptions,
    listing: WalkListing,
    reply_bytes: usize,
    examined: usize,
    entered: usize,
    /// Directories to enter. At most as many as entries were examined.
    queue: VecDeque<QueuedDirectory>,
    /// Real directories that were entered; only needed where links can lead back.
    seen: HashSet<(u64, u64)>,
}

struct QueuedDirectory {
    path: PathBuf,
    depth: usize,
}

type Flow = std::ops::ControlFlow<()>;

impl Walker {
    fn enter(&mut self, here: QueuedDirectory) -> Flow {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let flags = match self.options.follow_directory_symlinks {
            true => flags,
            false => flags | OFlags::NOFOLLOW,
        };
        let dir = match openat(CWD, &here.path, flags, Mode::empty()) {
            Ok(dir) => dir,
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
        let (names, failed) = self.smallest_names(&dir);
        for (name, file_type) in names {
            if self.examined >= self.options.max_entries {
                return Flow::Break(());
            }
            self.examined += 1;
            self.examine(&dir, &here, &name, file_type)?;
        }
        match failed {
            Some(errno) => self.record_error(&here.path, errno),
            None => Flow::Continue(()),
        }
    }

    /// The names of a directory, sorted; no more of them than can still be examined and one, which tells that there are
    /// more. So a directory of millions costs no more memory than the answer.
    fn smallest_names(&self, dir: &OwnedFd) -> (Vec<(OsString, FileType)>, Option<Errno>) {
        let wanted = self.options.max_entries - self.examined + 1;
        let mut names = BinaryHeap::new();
        let mut failed = None;
        match Dir::read_from(dir) {
            Err(errno) => failed = Some(errno),
            Ok(entries) => {
                for entry in entries {
                    let entry = match entry {
                        Ok(entry) => entry,
                        Err(errno) => {
                            failed = Some(errno);
                            break;
                        }
                    };
                    let name = entry.file_name().to_bytes();
                    if matches!(name, b"." | b"..") {
                        continue;
                    }
                    // A link that leads nowhere is nothing to examine.
                    let may_lead = matches!(entry.file_type(), FileType::Symlink | FileType::Unknown);
                    if may_lead && statat(dir, entry.file_name(), AtFlags::empty()).is_err() {
                        continue;
                    }
                    names.push(SortedByName(OsStr::from_bytes(name).to_owned(), entry.file_type()));
                    if names.len() > wanted {
                        names.pop();
                    }
                }
            }
        }
        let sorted = names.into_sorted_vec();
        let sorted = sorted.into_iter().map(|SortedByName(name, kind)| (name, kind));
        (sorted.collect(), failed)
    }

    fn examine(&mut self, dir: &OwnedFd, here: &QueuedDirectory, name: &OsStr, file_type: FileType) -> Flow {
        let own = match file_type {
            FileType::Unknown => {
                statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_or(FileKind::Special, |stat| kind_of(&stat))
            }
            known => kind_of_type(known),
        };
        let kind = match own {
            FileKind::File => WalkKind::File,
            FileKind::Directory => WalkKind::Directory,
            FileKind::Symlink if self.options.follow_directory_symlinks => {
                match statat(dir, name, AtFlags::empty()).map(|stat| kind_of(&stat)) {
                    Ok(FileKind::Directory) => WalkKind::Directory,
                    _ => return Flow::Continue(()),
                }
            }
            FileKind::Symlink | FileKind::Special => return Flow::Continue(()),
        };
        let path = here.path.join(name);
        self.add_bytes(&path)?;
        let hidden = name.as_bytes().first() == Some(&b'.');
        let pruned = hidden && self.options.prune_hidden_directories;
        if kind == WalkKind::Directory && here.depth < self.options.max_depth && !pruned {
            self.queue.push_back(QueuedDirectory { path: path.clone(), depth: here.depth + 1 });
        }
        self.listing.entries.push(WalkEntry { path, kind, is_symlink: own == FileKind::Symlink });
        Flow::Continue(())
    }

    fn record_error(&mut self, path: &Path, errno: Errno) -> Flow {
        self.add_bytes(path)?;
        let error = FileError::new(FileVerb::Walk, path, os(errno));
        self.listing.errors.push(error);
        Flow::Continue(())
    }

    fn add_bytes(&mut self, path: &Path) -> Flow {
        let reply_bytes = self.reply_bytes + walk_reply_bytes(path);
        if reply_bytes > WALK_BYTES {
            return Flow::Break(());
        }
        self.reply_bytes = reply_bytes;
        Flow::Continue(())
    }
}

/// A name that sorts by its bytes alone.
struct SortedByName(OsString, FileType);

impl Ord for SortedByName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.as_bytes().cmp(other.0.as_bytes())
    }
}

impl PartialOrd for SortedByName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SortedByName {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SortedByName {}
