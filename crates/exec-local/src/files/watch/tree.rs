//! A watched tree: which watch number is which directory, and what has changed since the last batch.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use exec_env::files::{Change, ChangeBatch, FileKind, WatchOptions};
use rustix::fs::inotify::{ReadFlags, Reader, WatchFlags};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use super::super::gate::Stop;
use super::super::place::{kind_of, kind_of_type};
use super::add_watch;
use super::batch::Batch;
use super::rules::Rules;

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

/// The tree.
pub(super) struct Tree {
    root: PathBuf,
    root_watch: i32,
    options: WatchOptions,
    rules: Option<Rules>,
    directories: HashMap<i32, PathBuf>,
    batch: Batch,
    /// The first half of a rename, waiting for the second.
    moving: Option<Moving>,
    gone: bool,
}

struct Moving {
    since: Instant,
    cookie: u32,
    from: PathBuf,
    is_directory: bool,
}

/// How long the second half of a rename may take.
const MOVE_PATIENCE: Duration = Duration::from_millis(200);

const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

impl Tree {
    /// Watches `root` and, if so asked, everything below.
    pub(super) fn plant(queue: &OwnedFd, root: PathBuf, options: WatchOptions, stop: &Stop) -> Result<Self, Errno> {
        let root_watch = add_watch(queue, &root, EVENTS)?;
        let mut tree = Self {
            rules: options.ignore_files.then(|| Rules::below(&root)),
            directories: HashMap::from([(root_watch, root.clone())]),
            root,
            root_watch,
            options,
            batch: Batch::default(),
            moving: None,
            gone: false,
        };
        tree.enter_all(queue, tree.root.clone(), Tell::Nothing, stop)?;
        Ok(tree)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether there is something to tell, if only the first half of a rename.
    pub(super) fn has_changes(&self) -> bool {
        !self.batch.is_empty() || self.moving.is_some()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Gives up on the second half of a rename that does not come. The kernel queues the halves one after the other, and
    /// whoever renames may lose the processor in between: an empty queue alone does not say that there is no second.
    pub(super) fn rest(&mut self, queue: &OwnedFd) {
        if self.moving.as_ref().is_some_and(|moving| moving.since.elapsed() >= MOVE_PATIENCE) {
            self.settle_move(queue);
        }
    }

    /// What was gathered, if anything.
    pub(super) fn take_batch(&mut self) -> Option<ChangeBatch> {
        let batch = std::mem::take(&mut self.batch);
        (!batch.is_empty()).then(|| batch.into_told())
    }

    /// Reads the queue into the batch.
    pub(super) fn drain(&mut self, queue: &OwnedFd) -> Result<Drained, Errno> {
        let mut buffer = [MaybeUninit::uninit(); 64 << 10];
        let mut reader = Reader::new(queue, &mut buffer);
        loop {
            if self.gone {
                return Ok(Drained::Gone);
            }
            // Events that were read but not handled would be lost, so only stop between reads.
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
            return self.recover(queue);
        }
        if events.contains(ReadFlags::IGNORED) {
            self.directories.remove(&watch);
            return Ok(());
        }
        let Some(directory) = self.directories.get(&watch) else {
            return Ok(());
        };
        if events.intersects(ReadFlags::DELETE_SELF.union(ReadFlags::MOVE_SELF)) {
            // Of directories below, their parents tell.
            if watch == self.root_watch {
                self.settle_move(queue);
                self.batch.add(Change::Removed(self.root.clone()));
                self.gone = true;
            }
            return Ok(());
        }
        let path = match name {
            Some(name) => directory.join(name),
            None => directory.clone(),
        };
        let is_directory = events.contains(ReadFlags::ISDIR);
        if self.leave_out(&path, is_directory) {
            return Ok(());
        }
        if !events.contains(ReadFlags::MOVED_TO) {
            self.settle_move(queue);
        }
        if let Some(rules) = &mut self.rules
            && Rules::is_rule_file(&path)
            && let Some(parent) = path.parent()
        {
            rules.load(parent);
        }
        if events.contains(ReadFlags::MOVED_FROM) {
            self.moving = Some(Moving { since: Instant::now(), cookie, from: path, is_directory });
        } else if events.contains(ReadFlags::MOVED_TO) {
            self.arrive(queue, cookie, path, is_directory)?;
        } else if events.contains(ReadFlags::CREATE) {
            self.batch.add(Change::Created(path.clone()));
            if is_directory && self.options.recursive {
                self.enter_new(queue, path)?;
            }
        } else if events.contains(ReadFlags::DELETE) {
            self.batch.add(Change::Removed(path));
        } else if events.intersects(ReadFlags::MODIFY.union(ReadFlags::ATTRIB)) {
            // A directory's attributes are told by itself and by its parent.
            self.batch.add(Change::Modified(path));
        }
        Ok(())
    }

    /// The second half of a rename, or something that comes from outside.
    fn arrive(&mut self, queue: &OwnedFd, cookie: u32, to: PathBuf, is_directory: bool) -> Result<(), Errno> {
        match self.moving.take() {
            Some(moving) if moving.cookie == cookie => {
                if moving.is_directory {
                    self.carry_names(&moving.from, &to);
                }
                self.batch.add(Change::Renamed { from: moving.from, to: to.clone() });
            }
            other => {
                self.moving = other;
                self.settle_move(queue);
                self.batch.add(Change::Created(to.clone()));
            }
        }
        if is_directory && self.options.recursive {
            self.enter_new(queue, to)?;
        }
        Ok(())
    }

    /// A first half without a second: it is gone from this tree.
    fn settle_move(&mut self, queue: &OwnedFd) {
        let Some(moving) = self.moving.take() else {
            return;
        };
        if moving.is_directory {
            let lost: Vec<i32> = self
                .directories
                .iter()
                .filter(|(_, path)| path.starts_with(&moving.from))
                .map(|(watch, _)| *watch)
                .collect();
            for watch in lost {
                self.directories.remove(&watch);
                // It may have ended by itself; then there is nothing to end.
                let _ended = rustix::fs::inotify::remove_watch(queue, watch);
            }
        }
        self.batch.add(Change::Removed(moving.from));
    }

    /// Watches stay with directories, so below a renamed one only the names change.
    fn carry_names(&mut self, from: &Path, to: &Path) {
        for path in self.directories.values_mut() {
            if let Ok(below) = path.strip_prefix(from) {
                *path = to.join(below);
            }
        }
    }

    /// Enters a directory that came into being. What is in it already was made before we watched, and is told now; what
    /// comes while we look may be told twice.
    fn enter_new(&mut self, queue: &OwnedFd, path: PathBuf) -> Result<(), Errno> {
        match self.watch_directory(queue, &path) {
            Ok(true) => self.enter_all(queue, path, Tell::Contents, &Stop::default()),
            Ok(false) => Ok(()),
            Err(errno) => self.give_up_below(errno),
        }
    }

    /// Watches every directory below one that is watched already. Only the first time may it be stopped: later, what it
    /// finds is in no other place.
    fn enter_all(&mut self, queue: &OwnedFd, top: PathBuf, tell: Tell, stop: &Stop) -> Result<(), Errno> {
        if let Some(rules) = &mut self.rules {
            rules.load(&top);
        }
        if !self.options.recursive {
            return Ok(());
        }
        let mut ahead = VecDeque::from([top]);
        while let Some(directory) = ahead.pop_front() {
            if stop.is_set() {
                return Err(Errno::CANCELED);
            }
            for (path, kind) in children(&directory) {
                let is_directory = kind == FileKind::Directory;
                if self.leave_out(&path, is_directory) {
                    continue;
                }
                if matches!(tell, Tell::Contents) {
                    self.batch.add(Change::Created(path.clone()));
                }
                if !is_directory {
                    continue;
                }
                match self.watch_directory(queue, &path) {
                    Ok(true) => {
                        if let Some(rules) = &mut self.rules {
                            rules.load(&path);
                        }
                        ahead.push_back(path);
                    }
                    Ok(false) => {}
                    Err(errno) if matches!(tell, Tell::Contents) => {
                        return self.give_up_below(errno);
                    }
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(())
    }

    /// `false`: it is gone again, or not ours to look into.
    fn watch_directory(&mut self, queue: &OwnedFd, path: &Path) -> Result<bool, Errno> {
        let flags = EVENTS | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        match add_watch(queue, path, flags) {
            Ok(watch) => {
                self.directories.insert(watch, path.to_owned());
                Ok(true)
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// The tree has outgrown the kernel's limit. What is watched stays watched, but it is no longer everything: that is
    /// an error to tell, not a change to leave out.
    fn give_up_below(&mut self, errno: Errno) -> Result<(), Errno> {
        self.batch.overflow(&self.root);
        Err(errno)
    }

    /// After an overflow nobody knows which directories came and went: all are entered again.
    fn recover(&mut self, queue: &OwnedFd) -> Result<(), Errno> {
        self.moving = None;
        self.batch.overflow(&self.root);
        self.directories.retain(|watch, _| *watch == self.root_watch);
        if let Some(rules) = &mut self.rules {
            *rules = Rules::below(&self.root);
        }
        // Watches of directories that were moved out remain in the kernel; their events name nobody and are dropped.
        self.enter_all(queue, self.root.clone(), Tell::Nothing, &Stop::default())
    }

    fn leave_out(&self, path: &Path, is_directory: bool) -> bool {
        let rules = self.rules.as_ref();
        rules.is_some_and(|rules| rules.leave_out(path, is_directory))
    }
}

/// Whether what is found on entering is news.
#[derive(Clone, Copy)]
enum Tell {
    Nothing,
    Contents,
}

/// What is in a directory; nothing, if it is none or gone.
fn children(directory: &Path) -> Vec<(PathBuf, FileKind)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(dir) = openat(CWD, directory, flags, Mode::empty()) else {
        return Vec::new();
    };
    let Ok(entries) = Dir::read_from(&dir) else {
        return Vec::new();
    };
    let entries = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            return None;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => kind_of(&statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?),
            known => kind_of_type(known),
        };
        Some((directory.join(OsStr::from_bytes(name.to_bytes())), kind))
    });
    entries.collect()
}
