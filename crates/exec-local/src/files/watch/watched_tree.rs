//! A watched tree: which watch number belongs to which directory, and what has changed since the last batch.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use exec_env::files::{Change, ChangeBatch, FileKind, LinkPolicy, WatchOptions};
use rustix::fs::fstat;
use rustix::fs::inotify::{ReadFlags, Reader, WatchFlags, add_watch};
use rustix::io::Errno;

use super::super::blocking::CancelFlag;
use super::super::policy::{CallPolicy, Wanted};
use super::super::resolve::{
    LastLink, ResolvedPath, entry_kind, kind_of, list, open_directory, open_listing, proc_path,
};
use super::change_batch::BatchBuilder;
use super::ignore_rules::IgnoreRules;

/// How reading the queue ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drained {
    /// The queue is empty.
    Empty,
    /// The batch is full; the queue may hold more.
    Full,
    /// The root is gone.
    Gone,
}

pub(super) struct WatchedTree {
    root: PathBuf,
    root_watch: i32,
    /// Device and inode of the root, if it is a directory.
    root_identity: Option<(u64, u64)>,
    /// As it was when the watch began.
    policy: CallPolicy,
    options: WatchOptions,
    rules: Option<IgnoreRules>,
    directories: HashMap<i32, PathBuf>,
    batch: BatchBuilder,
    /// The first event of a rename, until the second comes.
    pending_rename: Option<PendingRename>,
    gone: bool,
}

struct PendingRename {
    since: Instant,
    cookie: u32,
    from: PathBuf,
    is_directory: bool,
}

/// How long the second event of a rename may take.
const RENAME_TIMEOUT: Duration = Duration::from_millis(200);

const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

impl WatchedTree {
    /// Watches `root` and, if `options` say so, everything below.
    pub(super) fn watch(
        policy: CallPolicy,
        queue: &OwnedFd,
        root: PathBuf,
        options: WatchOptions,
        cancel: &CancelFlag,
    ) -> Result<Self, Errno> {
        let root_watch = watch_path(&policy, queue, &root, EVENTS, LastLink::Follow)?;
        let opened = open_directory(&policy, &root, LastLink::Follow).and_then(|(root, _)| fstat(root));
        let mut tree = Self {
            root_identity: opened.map(|stat| (stat.st_dev, stat.st_ino)).ok(),
            rules: options.ignore_files.then(|| IgnoreRules::below(&root, policy.clone())),
            policy,
            directories: HashMap::from([(root_watch, root.clone())]),
            root,
            root_watch,
            options,
            batch: BatchBuilder::default(),
            pending_rename: None,
            gone: false,
        };
        tree.watch_all_below(queue, tree.root.clone(), Report::Nothing, cancel)?;
        Ok(tree)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The first event of a rename counts, too.
    pub(super) fn has_changes(&self) -> bool {
        !self.batch.is_empty() || self.pending_rename.is_some()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Reports a rename as a removal if its second event does not come in time. An empty queue alone does not mean that
    /// it will not come: the kernel queues the two events one after the other, and may run something else in between.
    pub(super) fn expire_rename(&mut self, queue: &OwnedFd) {
        if self.pending_rename.as_ref().is_some_and(|pending_rename| pending_rename.since.elapsed() >= RENAME_TIMEOUT) {
            self.finish_rename(queue);
        }
    }

    pub(super) fn take_batch(&mut self) -> Option<ChangeBatch> {
        let batch = std::mem::take(&mut self.batch);
        (!batch.is_empty()).then(|| batch.into_batch())
    }

    /// Reads the queue into the batch.
    pub(super) fn drain(&mut self, queue: &OwnedFd) -> Result<Drained, Errno> {
        let mut buffer = [MaybeUninit::uninit(); 64 << 10];
        let mut reader = Reader::new(queue, &mut buffer);
        loop {
            if self.gone {
                return Ok(Drained::Gone);
            }
            // Events that were read but not handled would be lost, so this stops only between reads.
            if reader.is_buffer_empty() && self.batch.is_full() {
                return Ok(Drained::Full);
            }
            let (watch, events, cookie, name) = match reader.next() {
                Ok(event) => {
                    (event.wd(), event.events(), event.cookie(), event.file_name().map(|name| name.to_bytes().to_vec()))
                }
                Err(Errno::AGAIN) => return Ok(Drained::Empty),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            let name = name.as_deref().map(OsStr::from_bytes);
            self.handle(queue, watch, events, cookie, name)?;
        }
    }

    fn handle(
        &mut self,
        queue: &OwnedFd,
        watch: i32,
        events: ReadFlags,
        cookie: u32,
        name: Option<&OsStr>,
    ) -> Result<(), Errno> {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.rewatch_everything(queue);
        }
        if events.contains(ReadFlags::IGNORED) {
            self.end_watch(watch);
            return Ok(());
        }
        let Some(directory) = self.directories.get(&watch) else {
            return Ok(());
        };
        let ended = ReadFlags::DELETE_SELF.union(ReadFlags::MOVE_SELF).union(ReadFlags::UNMOUNT);
        if events.intersects(ended) {
            // Directories below the root are reported by the events of their parents, unless their file system is gone.
            if watch == self.root_watch {
                self.end(queue);
            } else if events.contains(ReadFlags::UNMOUNT) {
                let directory = directory.clone();
                self.end_watch(watch);
                self.watch_what_was_covered(queue, directory)?;
            }
            return Ok(());
        }
        let path = match name {
            Some(name) => directory.join(name),
            None => directory.clone(),
        };
        let is_directory = events.contains(ReadFlags::ISDIR);
        if self.is_ignored(&path, is_directory) {
            return Ok(());
        }
        if !events.contains(ReadFlags::MOVED_TO) {
            self.finish_rename(queue);
        }
        if let Some(rules) = &mut self.rules
            && IgnoreRules::is_ignore_file(&path)
            && let Some(parent) = path.parent()
        {
            rules.load(parent);
        }
        if events.contains(ReadFlags::MOVED_FROM) {
            self.pending_rename = Some(PendingRename { since: Instant::now(), cookie, from: path, is_directory });
        } else if events.contains(ReadFlags::MOVED_TO) {
            self.on_moved_to(queue, cookie, path, is_directory)?;
        } else if events.contains(ReadFlags::CREATE) {
            self.batch.add(Change::Created(path.clone()));
            if is_directory && self.options.recursive {
                self.watch_new_directory(queue, path)?;
            }
        } else if events.contains(ReadFlags::DELETE) {
            self.batch.add(Change::Removed(path));
        } else if events.intersects(ReadFlags::MODIFY.union(ReadFlags::ATTRIB)) {
            // A change of a directory's attributes makes two events, one of itself and one of its parent.
            self.batch.add(Change::Modified(path));
        }
        Ok(())
    }

    /// The second event of a rename, or something that was moved in from outside the tree.
    fn on_moved_to(&mut self, queue: &OwnedFd, cookie: u32, to: PathBuf, is_directory: bool) -> Result<(), Errno> {
        match self.pending_rename.take() {
            Some(pending_rename) if pending_rename.cookie == cookie => {
                if pending_rename.is_directory {
                    self.rename_below(&pending_rename.from, &to);
                }
                self.batch.add(Change::Renamed { from: pending_rename.from, to: to.clone() });
            }
            other => {
                self.pending_rename = other;
                self.finish_rename(queue);
                self.batch.add(Change::Created(to.clone()));
            }
        }
        if is_directory && self.options.recursive {
            self.watch_new_directory(queue, to)?;
        }
        Ok(())
    }

    /// There was no second event: what was renamed is outside the tree now.
    fn finish_rename(&mut self, queue: &OwnedFd) {
        let Some(pending_rename) = self.pending_rename.take() else {
            return;
        };
        if pending_rename.is_directory {
            let lost: Vec<i32> = self
                .directories
                .iter()
                .filter(|(_, path)| path.starts_with(&pending_rename.from))
                .map(|(watch, _)| *watch)
                .collect();
            for watch in lost {
                self.directories.remove(&watch);
                // The watch may have ended already, with its directory.
                let _ended = rustix::fs::inotify::remove_watch(queue, watch);
            }
            if let Some(rules) = &mut self.rules {
                rules.forget_tree(&pending_rename.from);
            }
        }
        self.batch.add(Change::Removed(pending_rename.from));
    }

    fn end_watch(&mut self, watch: i32) {
        if let Some(directory) = self.directories.remove(&watch)
            && let Some(rules) = &mut self.rules
        {
            rules.reload(&directory);
        }
    }

    /// Watches stay with their directories, so below a renamed directory only the paths change. Rules are read where they are
    /// now.
    fn rename_below(&mut self, from: &Path, to: &Path) {
        if let Some(rules) = &mut self.rules {
            rules.forget_tree(from);
        }
        for path in self.directories.values_mut() {
            if let Ok(below) = path.strip_prefix(from) {
                *path = to.join(below);
            }
        }
    }

    /// The root is gone, or another directory has its path.
    fn end(&mut self, queue: &OwnedFd) {
        self.finish_rename(queue);
        self.batch.add(Change::Removed(self.root.clone()));
        self.gone = true;
    }

    /// A file system that was mounted here is gone, with all that was watched on it; what it has covered was never watched.
    fn watch_what_was_covered(&mut self, queue: &OwnedFd, directory: PathBuf) -> Result<(), Errno> {
        self.batch.overflow(&self.root);
        match self.watch_directory(queue, &directory) {
            Ok(Watched::New) => self.watch_all_below(queue, directory, Report::Nothing, &CancelFlag::default()),
            Ok(Watched::Before | Watched::Not) => Ok(()),
            Err(errno) => self.mark_incomplete(errno),
        }
    }

    /// Watches a new directory. What it contains already was created before the watch and is reported now; what is
    /// created while we list it may be reported twice. A directory that has only got a new name is watched already, and what
    /// it contains is not new.
    fn watch_new_directory(&mut self, queue: &OwnedFd, path: PathBuf) -> Result<(), Errno> {
        match self.watch_directory(queue, &path) {
            Ok(Watched::New) => self.watch_all_below(queue, path, Report::Contents, &CancelFlag::default()),
            Ok(Watched::Before) => self.watch_all_below(queue, path, Report::Unwatched, &CancelFlag::default()),
            Ok(Watched::Not) => {
                // Nobody tells when a directory above the root is renamed; then no path leads to what is new any more.
                if self.root_has_moved() {
                    self.end(queue);
                }
                Ok(())
            }
            Err(errno) => self.mark_incomplete(errno),
        }
    }

    /// Whether the root's path leads to something else than the root.
    fn root_has_moved(&self) -> bool {
        match open_directory(&self.policy, &self.root, LastLink::Follow).and_then(|(root, _)| fstat(root)) {
            Ok(now) => self.root_identity != Some((now.st_dev, now.st_ino)),
            Err(errno) => matches!(errno, Errno::NOENT | Errno::NOTDIR),
        }
    }

    /// Watches every directory below one that is watched already. Only the first time may it be cancelled: later it
    /// replaces events that were lost or never existed, which nothing else would report.
    fn watch_all_below(
        &mut self,
        queue: &OwnedFd,
        top: PathBuf,
        report: Report,
        cancel: &CancelFlag,
    ) -> Result<(), Errno> {
        if let Some(rules) = &mut self.rules {
            rules.load(&top);
        }
        if !self.options.recursive {
            return Ok(());
        }
        let policy = self.policy.clone();
        let mut unread = VecDeque::from([(top, report)]);
        while let Some((directory, report)) = unread.pop_front() {
            if cancel.is_set() {
                return Err(Errno::CANCELED);
            }
            let mut outcome = Ok(());
            for_each_child(&policy, &directory, |path, kind| {
                outcome = self.watch_child(queue, path, kind, report, &mut unread);
                outcome.is_ok()
            });
            match outcome {
                Err(errno) if report != Report::Nothing => return self.mark_incomplete(errno),
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn watch_child(
        &mut self,
        queue: &OwnedFd,
        path: PathBuf,
        kind: FileKind,
        report: Report,
        unread: &mut VecDeque<(PathBuf, Report)>,
    ) -> Result<(), Errno> {
        let is_directory = kind == FileKind::Directory;
        if self.is_ignored(&path, is_directory) {
            return Ok(());
        }
        if report == Report::Contents {
            self.report_found(&path);
        }
        if !is_directory {
            return Ok(());
        }
        let watched = self.watch_directory(queue, &path)?;
        if watched == Watched::New && report == Report::Unwatched {
            self.report_found(&path);
        }
        let below = match (watched, report) {
            (Watched::Not, _) => return Ok(()),
            (_, Report::Nothing) => Report::Nothing,
            (Watched::New, _) => Report::Contents,
            (Watched::Before, _) => Report::Unwatched,
        };
        if let Some(rules) = &mut self.rules {
            rules.load(&path);
        }
        unread.push_back((path, below));
        Ok(())
    }

    fn report_found(&mut self, path: &Path) {
        match self.batch.is_overfull() {
            true => self.batch.overflow(&self.root),
            false => self.batch.add(Change::Created(path.to_owned())),
        }
    }

    fn watch_directory(&mut self, queue: &OwnedFd, path: &Path) -> Result<Watched, Errno> {
        match watch_path(&self.policy, queue, path, EVENTS | WatchFlags::ONLYDIR, LastLink::Keep) {
            Ok(watch) => Ok(match self.directories.insert(watch, path.to_owned()) {
                None => Watched::New,
                Some(_) => Watched::Before,
            }),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => Ok(Watched::Not),
            Err(errno) => Err(errno),
        }
    }

    /// The tree has more directories than the kernel lets us watch. What is watched stays watched, but it is no longer
    /// everything, so the caller gets an error.
    fn mark_incomplete(&mut self, errno: Errno) -> Result<(), Errno> {
        self.batch.overflow(&self.root);
        Err(errno)
    }

    /// After an overflow it is unknown which directories were created or removed, so all are watched anew.
    fn rewatch_everything(&mut self, queue: &OwnedFd) -> Result<(), Errno> {
        self.pending_rename = None;
        self.batch.overflow(&self.root);
        self.directories.retain(|watch, _| *watch == self.root_watch);
        if let Some(rules) = &mut self.rules {
            *rules = IgnoreRules::below(&self.root, self.policy.clone());
        }
        // Watches of directories that were moved out of the tree stay in the kernel; their events are ignored, because
        // their numbers are unknown.
        self.watch_all_below(queue, self.root.clone(), Report::Nothing, &CancelFlag::default())
    }

    fn is_ignored(&self, path: &Path, is_directory: bool) -> bool {
        let rules = self.rules.as_ref();
        rules.is_some_and(|rules| rules.is_ignored(path, is_directory))
    }
}

/// What of a directory is reported as created while everything below it is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    Nothing,
    /// Directories that were not watched before, with everything in them.
    Unwatched,
    Contents,
}

/// Whether a directory is watched now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    New,
    /// It was already, by this name or another.
    Before,
    /// It is gone again, or we may not read it.
    Not,
}

/// Watches what is at a path. Under a policy through a handle, because the kernel would follow links.
pub(super) fn watch_path(
    policy: &CallPolicy,
    queue: &OwnedFd,
    path: &Path,
    flags: WatchFlags,
    last: LastLink,
) -> Result<i32, Errno> {
    if !policy.is_restricted() {
        let flags = if last == LastLink::Keep { flags | WatchFlags::DONT_FOLLOW } else { flags };
        return add_watch(queue, path, flags);
    }
    let resolved = match last {
        LastLink::Keep => ResolvedPath::resolve(policy, path, LinkPolicy::Follow)?,
        LastLink::Follow => ResolvedPath::resolve_to_end(policy, path, LinkPolicy::Follow)?,
    };
    let handle = resolved.handle(Wanted::Read)?;
    if kind_of(&fstat(&handle)?) == FileKind::Symlink {
        return Err(Errno::LOOP);
    }
    add_watch(queue, proc_path(&handle), flags)
}

/// None if it is no directory, or gone. Ends when `visit` returns false.
fn for_each_child(policy: &CallPolicy, directory: &Path, mut visit: impl FnMut(PathBuf, FileKind) -> bool) {
    let opened = open_directory(policy, directory, LastLink::Follow);
    let Ok((dir, policy_path)) = opened.and_then(|(dir, policy_path)| Ok((open_listing(dir)?, policy_path))) else {
        return;
    };
    let Ok(entries) = list(&dir) else { return };
    for entry in entries.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !policy_path.shows(name) {
            continue;
        }
        let Ok(kind) = entry_kind(&dir, entry.file_name(), entry.file_type()) else { continue };
        if !visit(directory.join(name), kind) {
            return;
        }
    }
}
