//! Making the steps of a record, and undoing them. Each looks first how far it has come, so both can be repeated.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;

use exec_env::files::LinkPolicy;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, fstat, fsync, linkat, mkdirat, openat, renameat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;

use super::super::resolve::open_directory_handle;
use super::record::{DirectoryRecord, Identity, Name, Record, Step};

/// Who makes the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// Whoever asked for them: what somebody else has changed in between ends it.
    Caller,
    /// Somebody after a crash: what somebody else has written since stands, as if it had been written after all steps.
    Recovery,
}

/// A step was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepFailure {
    Os(Errno),
    /// The file is another one than the step is for.
    Changed,
}

impl From<Errno> for StepFailure {
    fn from(errno: Errno) -> Self {
        Self::Os(errno)
    }
}

/// The directories of a record, opened. There is no handle of one that does not exist (any more).
pub(super) struct OpenDirectories(Vec<Option<OwnedFd>>);

impl OpenDirectories {
    /// Handles of those that were found; those that are made come with their step.
    pub(super) fn new(handles: Vec<Option<OwnedFd>>) -> Self {
        Self(handles)
    }

    /// The same from the paths of a record. One that is gone, or is another one now, is left out with its steps. Fails if one
    /// may well be there and only cannot be opened now: to leave that out would be to forget its steps.
    pub(super) fn find(record: &Record) -> io::Result<Self> {
        let mut found = Self(Vec::new());
        for directory in &record.directories {
            let opened = found.open(directory).map_err(|errno| {
                let path = match directory {
                    DirectoryRecord::Found { path, .. } => path.as_os_str(),
                    DirectoryRecord::Made { name, .. } => name,
                };
                io::Error::new(errno.kind(), format!("cannot open {path:?}: {errno}"))
            });
            found.0.push(opened?);
        }
        Ok(found)
    }

    /// `None` if it does not exist. Nobody leads us elsewhere by a link, because none is followed, nor by another directory of
    /// the same path.
    fn open(&self, directory: &DirectoryRecord) -> Result<Option<OwnedFd>, Errno> {
        let opened = match directory {
            DirectoryRecord::Found { path, .. } => open_directory_handle(CWD, path, LinkPolicy::Refuse),
            // It may have been made before the crash. Whoever makes one comes after it in the list.
            DirectoryRecord::Made { parent, name } => match self.get(*parent) {
                Some(parent) => open_made(parent, name),
                None => return Ok(None),
            },
        };
        let opened = match opened {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            opened => opened?,
        };
        let is_it = match directory {
            DirectoryRecord::Found { inode, .. } => fstat(&opened)?.st_ino == *inode,
            DirectoryRecord::Made { .. } => true,
        };
        Ok(is_it.then_some(opened))
    }

    fn get(&self, directory: u32) -> Option<&OwnedFd> {
        self.0.get(directory as usize)?.as_ref()
    }

    fn identity(&self, name: &Name) -> Result<Option<Identity>, Errno> {
        let Some(directory) = self.get(name.directory) else { return Ok(None) };
        match statat(directory, &name.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Identity::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn rename(&self, from: &Name, to: &Name) -> Result<(), StepFailure> {
        let (Some(from_directory), Some(to_directory)) = (self.get(from.directory), self.get(to.directory)) else {
            return Err(StepFailure::Os(Errno::NOENT));
        };
        let renamed = renameat_with(from_directory, &from.name, to_directory, &to.name, RenameFlags::NOREPLACE);
        match renamed {
            Err(Errno::EXIST) => Err(StepFailure::Changed),
            // The file system lacks the flag. A hard link never replaces anything either.
            Err(Errno::INVAL | Errno::NOSYS) => {
                match linkat(from_directory, &from.name, to_directory, &to.name, AtFlags::empty()) {
                    Err(Errno::EXIST) => return Err(StepFailure::Changed),
                    linked => linked?,
                }
                Ok(unlinkat(from_directory, &from.name, AtFlags::empty())?)
            }
            other => Ok(other?),
        }
    }

    /// Side and target change places; in a file system that cannot do that in one step, the old file gets a second side
    /// first, and the side becomes the target then.
    fn exchange(&self, side: &Name, target: &Name) -> Result<(), Errno> {
        let (Some(side_directory), Some(target_directory)) = (self.get(side.directory), self.get(target.directory))
        else {
            return Err(Errno::NOENT);
        };
        let flags = RenameFlags::EXCHANGE;
        match renameat_with(side_directory, &side.name, target_directory, &target.name, flags) {
            Err(Errno::INVAL | Errno::NOSYS) => {
                let second = second_side(&side.name);
                match linkat(target_directory, &target.name, side_directory, &second, AtFlags::empty()) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                renameat(side_directory, &side.name, target_directory, &target.name)
            }
            other => other,
        }
    }

    /// Makes a step, unless it was made.
    pub(super) fn make(&mut self, record: &Record, step: &Step, maker: Maker) -> Result<(), StepFailure> {
        match self.try_make(record, step) {
            Err(StepFailure::Changed) if maker == Maker::Recovery => Ok(()),
            other => other,
        }
    }

    fn try_make(&mut self, record: &Record, step: &Step) -> Result<(), StepFailure> {
        match step {
            Step::MakeDirectory { directory } => return Ok(self.make_directory(record, *directory)?),
            Step::Put { side, target, new } => match (self.identity(target)?, self.identity(side)?) {
                (Some(there), _) if there == *new => {}
                (None, Some(ready)) if ready == *new => self.rename(side, target)?,
                _ => return Err(StepFailure::Changed),
            },
            Step::Swap { side, target, old, new } => match (self.identity(target)?, self.identity(side)?) {
                (Some(there), _) if there == *new => {}
                (Some(there), Some(ready)) if there == *old && ready == *new => {
                    self.exchange(side, target)?;
                    self.check_taken(side, target, old)?;
                }
                _ => return Err(StepFailure::Changed),
            },
            Step::Take { side, target, old } => match (self.identity(target)?, self.identity(side)?) {
                (None, Some(taken)) if taken == *old => {}
                (Some(there), None) if there == *old => {
                    self.rename(target, side)?;
                    if self.identity(side)? != Some(*old) {
                        self.rename(side, target)?;
                        return Err(StepFailure::Changed);
                    }
                }
                _ => return Err(StepFailure::Changed),
            },
            Step::Move { from, to, file } => match (self.identity(from)?, self.identity(to)?) {
                (_, Some(there)) if there == *file => {}
                (Some(there), None) if there == *file => self.rename(from, to)?,
                _ => return Err(StepFailure::Changed),
            },
        }
        Ok(())
    }

    /// Somebody may have replaced or written the target between the look and the exchange. Then that goes back to where it
    /// was: no update is lost.
    fn check_taken(&self, side: &Name, target: &Name, old: &Identity) -> Result<(), StepFailure> {
        let second = Name { directory: side.directory, name: second_side(&side.name) };
        let taken = match self.identity(&second)? {
            Some(taken) => Some(taken),
            None => self.identity(side)?,
        };
        if taken == Some(*old) {
            return Ok(());
        }
        self.exchange_back(side, target)?;
        Err(StepFailure::Changed)
    }

    fn exchange_back(&self, side: &Name, target: &Name) -> Result<(), Errno> {
        let (Some(side_directory), Some(target_directory)) = (self.get(side.directory), self.get(target.directory))
        else {
            return Ok(());
        };
        let second = second_side(&side.name);
        match renameat(side_directory, &second, target_directory, &target.name) {
            Err(Errno::NOENT) => self.exchange(side, target),
            other => other,
        }
    }

    /// Undoes a step if it was made, and what it made is still there.
    pub(super) fn undo(&mut self, record: &Record, step: &Step) -> Result<(), StepFailure> {
        match step {
            Step::MakeDirectory { directory } => {
                if let Some(DirectoryRecord::Made { parent, name }) = record.directories.get(*directory as usize)
                    && let Some(parent) = self.get(*parent)
                {
                    // One in which somebody else has made something stays.
                    let _stays = unlinkat(parent, name, AtFlags::REMOVEDIR);
                }
            }
            Step::Put { side, target, new } => {
                if self.identity(target)? == Some(*new) {
                    self.rename(target, side)?;
                }
            }
            Step::Swap { side, target, new, .. } => {
                if self.identity(target)? == Some(*new) {
                    self.exchange_back(side, target)?;
                }
            }
            Step::Take { side, target, old } => {
                if self.identity(side)? == Some(*old) {
                    self.rename(side, target)?;
                }
            }
            Step::Move { from, to, file } => {
                if self.identity(to)? == Some(*file) && self.identity(from)?.is_none() {
                    self.rename(to, from)?;
                }
            }
        }
        Ok(())
    }

    fn make_directory(&mut self, record: &Record, directory: u32) -> Result<(), Errno> {
        let Some(DirectoryRecord::Made { parent, name }) = record.directories.get(directory as usize) else {
            return Err(Errno::INVAL);
        };
        let Some(parent) = self.get(*parent) else { return Ok(()) };
        match mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let made = open_made(parent, name)?;
        self.0[directory as usize] = Some(made);
        Ok(())
    }

    /// Makes the names of all directories survive a power cut.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        for directory in self.0.iter().flatten() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            fsync(openat(directory, ".", flags, Mode::empty())?)?;
        }
        Ok(())
    }

    /// Removes side files. One that is not there is as good, and so is a directory of the same name, which is not ours. Fails
    /// after it has tried all.
    pub(super) fn remove_sides(&self, record: &Record) -> Result<(), Errno> {
        let mut removed = Ok(());
        for side in &record.sides {
            let Some(directory) = self.get(side.directory) else { continue };
            for name in [side.name.clone(), second_side(&side.name)] {
                let unlinked = unlinkat(directory, &name, AtFlags::empty());
                // A file system that cannot be written says so before it looks for the name.
                let is_gone = || statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::NOENT);
                match unlinked {
                    Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                    Err(errno) if !is_gone() => removed = Err(errno),
                    Err(_) => {}
                }
            }
        }
        removed
    }
}

fn open_made(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(parent, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Where an old file waits in a file system that cannot exchange two names.
fn second_side(side: &OsStr) -> OsString {
    let mut name = side.to_owned();
    name.push("o");
    name
}
