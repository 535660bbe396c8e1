//! Several changes of files, all or none: also after `kill -9` of this process, and after a power cut.
//!
//! ```text
//! plan ──► lock ──► check ──► side files ──► commit ──► steps ──► clean up
//!  what a path leads to       [`record`]    [`journal`] [`steps`]
//! ```
//!
//! Until the commit nothing has happened but side files, which nobody takes for others. From the commit on the steps are
//! only renames; if one of them fails, those before it are undone. Readers see some steps without the others for as long as
//! the renames take.
//!
//! Change sets, and writes that expect something, exclude each other by locks: within this environment by [`FileLocks`],
//! between servers by `flock` on the files that are replaced. Against others there is the look at what the exchange brought
//! to the side: if that is not what was expected, it goes back.

mod journal;
mod record;
mod steps;

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use exec_env::files::limits::{CHANGE_SET_BYTES, CHANGE_SET_FILES};
use exec_env::files::{
    ChangeAction, ChangeSet, ExpectedFile, FileChange, FileError, FileKind, FileReason, FileVerb, LinkPolicy,
};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fchmod, fstat, fsync, openat, statat};
use rustix::io::Errno;

use super::atomic_replace::inherit;
use super::blocking::CancelFlag;
use super::policy::{CallPolicy, PolicyPath, Wanted};
use super::resolve::{LastLink, ResolvedPath, io, kind_of, open_directory, os, proc_path};
use super::write::{FileLocks, lock_between_servers, write_all};
use super::write_target::WriteTarget;
use record::{DirectoryRecord, Identity, Name, Record, Step};
use steps::{Maker, OpenDirectories, StepFailure};

use journal::Journal;
pub(super) use journal::Journals;

/// How the names of side files begin, so that people recognise one.
const SIDE_PREFIX: &str = ".exec-server-edit-";

/// Times that a change set is planned anew, because somebody replaced one of its files before it was locked.
const PLANS: usize = 100;

pub(super) fn change_set(
    policy: &CallPolicy,
    set: &ChangeSet,
    journal: std::io::Result<Journal>,
    file_locks: &FileLocks,
    cancel: &CancelFlag,
) -> Result<(), FileError> {
    check_bounds(set)?;
    let journal = journal.map_err(|error| failed(&set.changes[0].path, io(&error)))?;
    for _ in 0..PLANS {
        let plan = Plan::of(policy, set)?;
        let _within = file_locks.lock_all(&plan.keys());
        let Some(_between) = plan.lock_between_servers()? else { continue };
        plan.check_expectations()?;
        if cancel.is_set() {
            return Err(failed(plan.targets[0].path, os(Errno::CANCELED)));
        }
        return plan.carry_out(journal);
    }
    Err(failed(&set.changes[0].path, os(Errno::AGAIN)))
}

fn failed(path: &Path, reason: FileReason) -> FileError {
    FileError::new(FileVerb::ChangeSet, path, reason)
}

fn check_bounds(set: &ChangeSet) -> Result<(), FileError> {
    let first = set.changes.first().map_or(Path::new(""), |change| &change.path);
    let bytes: usize = set.changes.iter().map(|change| new_bytes(change).map_or(0, Bytes::len)).sum();
    if bytes > CHANGE_SET_BYTES {
        return Err(failed(first, FileReason::TooLarge { limit_bytes: CHANGE_SET_BYTES as u64 }));
    }
    if set.changes.is_empty() || set.changes.len() > CHANGE_SET_FILES {
        return Err(failed(first, os(Errno::INVAL)));
    }
    Ok(())
}

fn new_bytes(change: &FileChange) -> Option<&Bytes> {
    match &change.action {
        ChangeAction::Write { bytes, .. } => Some(bytes),
        ChangeAction::Remove | ChangeAction::Rename { .. } => None,
    }
}

/// What is to be done, by handles. Nothing is resolved by path again.
struct Plan<'a> {
    directories: Vec<PlannedDirectory>,
    targets: Vec<Target<'a>>,
}

struct PlannedDirectory {
    record: DirectoryRecord,
    /// Of one that was found.
    handle: Option<OwnedFd>,
    policy_path: PolicyPath,
}

/// One change, and the name that it is about.
struct Target<'a> {
    path: &'a Path,
    change: &'a FileChange,
    name: Name,
    /// The name and the file that has it, if its directory exists.
    found: Option<WriteTarget>,
    /// Where a renamed file goes.
    to: Option<Name>,
}

impl<'a> Plan<'a> {
    fn of(policy: &CallPolicy, set: &'a ChangeSet) -> Result<Self, FileError> {
        let mut plan = Self { directories: Vec::new(), targets: Vec::new() };
        for change in &set.changes {
            let path = change.path.as_path();
            let target = plan.target(policy, change, set.make_directories);
            let target = target.map_err(|reason| failed(path, reason))?;
            let taken =
                |name: &Name| plan.targets.iter().any(|other| other.name == *name || other.to.as_ref() == Some(name));
            if taken(&target.name) || target.to.as_ref().is_some_and(|to| taken(to) || *to == target.name) {
                return Err(failed(path, os(Errno::INVAL)));
            }
            plan.targets.push(target);
        }
        Ok(plan)
    }

    fn target(
        &mut self,
        policy: &CallPolicy,
        change: &'a FileChange,
        make_directories: bool,
    ) -> Result<Target<'a>, FileReason> {
        let path = change.path.as_path();
        let target = |name, found, to| Target { path, change, name, found, to };
        match &change.action {
            ChangeAction::Write { .. } => match ResolvedPath::resolve_to_end(policy, path, LinkPolicy::Follow) {
                Err(Errno::NOENT) if make_directories => {
                    Ok(target(self.name_in_new_directories(policy, path)?, None, None))
                }
                resolved => {
                    let found = WriteTarget::of(resolved.map_err(os)?).map_err(os)?;
                    found.resolved.require(Wanted::Write).map_err(os)?;
                    match found.existing.as_ref().map(kind_of) {
                        None | Some(FileKind::File) => {}
                        Some(FileKind::Directory) => return Err(os(Errno::ISDIR)),
                        Some(_) => return Err(FileReason::NotAFile),
                    }
                    Ok(target(self.name_of(&found.resolved)?, Some(found), None))
                }
            },
            ChangeAction::Remove | ChangeAction::Rename { .. } => {
                let resolved = ResolvedPath::resolve(policy, path, LinkPolicy::Follow).map_err(os)?;
                let stat = resolved.stat().map_err(os)?;
                resolved.policy_path().require_removing().map_err(os)?;
                if kind_of(&stat) == FileKind::Directory {
                    return Err(os(Errno::ISDIR));
                }
                let name = self.name_of(&resolved)?;
                let to = match &change.action {
                    ChangeAction::Rename { to } => Some(self.new_name(policy, to, make_directories)?),
                    _ => None,
                };
                Ok(target(name, Some(WriteTarget { resolved, existing: Some(stat) }), to))
            }
        }
    }

    /// A name that nothing may have.
    fn new_name(&mut self, policy: &CallPolicy, path: &Path, make_directories: bool) -> Result<Name, FileReason> {
        let resolved = match ResolvedPath::resolve(policy, path, LinkPolicy::Follow) {
            Err(Errno::NOENT) if make_directories => return self.name_in_new_directories(policy, path),
            resolved => resolved.map_err(os)?,
        };
        resolved.policy_path().require_replacing().map_err(os)?;
        match statat(&resolved.dir, &resolved.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => self.name_of(&resolved),
            Err(errno) => Err(os(errno)),
            Ok(_) => Err(os(Errno::EXIST)),
        }
    }

    fn name_of(&mut self, resolved: &ResolvedPath) -> Result<Name, FileReason> {
        if resolved.name == "." {
            return Err(os(Errno::ISDIR));
        }
        let directory = self.found_directory(resolved.dir.as_fd(), &resolved.dir_policy_path)?;
        Ok(Name { directory, name: resolved.name.clone() })
    }

    /// A name below the nearest directory that exists, and the directories on the way.
    fn name_in_new_directories(&mut self, policy: &CallPolicy, path: &Path) -> Result<Name, FileReason> {
        let (Some(mut above), Some(name)) = (path.parent(), path.file_name()) else { return Err(os(Errno::INVAL)) };
        let mut missing: Vec<&OsStr> = Vec::new();
        let (handle, policy_path) = loop {
            match open_directory(policy, above, LastLink::Follow) {
                Err(Errno::NOENT) => {}
                found => break found.map_err(os)?,
            }
            missing.push(above.file_name().ok_or(os(Errno::NOENT))?);
            above = above.parent().ok_or(os(Errno::NOENT))?;
        };
        let mut directory = self.found_directory(handle.as_fd(), &policy_path)?;
        for made in missing.into_iter().rev() {
            directory = self.made_directory(directory, made)?;
        }
        let policy_path = self.directories[directory as usize].policy_path.name(name);
        policy_path.require(Wanted::Write).map_err(os)?;
        Ok(Name { directory, name: name.to_owned() })
    }

    fn found_directory(
        &mut self,
        handle: std::os::fd::BorrowedFd<'_>,
        policy_path: &PolicyPath,
    ) -> Result<u32, FileReason> {
        let path = std::fs::read_link(proc_path(handle)).map_err(|error| io(&error))?;
        let record = DirectoryRecord::Found { path, inode: fstat(handle).map_err(os)?.st_ino };
        if let Some(known) = self.directories.iter().position(|directory| directory.record == record) {
            return Ok(index(known));
        }
        let handle = Some(handle.try_clone_to_owned().map_err(|error| io(&error))?);
        self.directories.push(PlannedDirectory { record, handle, policy_path: policy_path.clone() });
        Ok(index(self.directories.len() - 1))
    }

    fn made_directory(&mut self, parent: u32, name: &OsStr) -> Result<u32, FileReason> {
        let record = DirectoryRecord::Made { parent, name: name.to_owned() };
        if let Some(known) = self.directories.iter().position(|directory| directory.record == record) {
            return Ok(index(known));
        }
        let policy_path = self.directories[parent as usize].policy_path.name(name);
        policy_path.require(Wanted::Write).map_err(os)?;
        self.directories.push(PlannedDirectory { record, handle: None, policy_path });
        Ok(index(self.directories.len() - 1))
    }

    /// What tells the files apart for locks: names in directories that exist.
    fn keys(&self) -> Vec<(&OwnedFd, &OsStr)> {
        let found = self.targets.iter().filter_map(|target| target.found.as_ref());
        found.map(|found| (&found.resolved.dir, found.resolved.name.as_os_str())).collect()
    }

    /// Locks of the files that exist, in an order that is the same for everybody; `None` if one is not that file any more.
    fn lock_between_servers(&self) -> Result<Option<Vec<OwnedFd>>, FileError> {
        let mut files: Vec<(&Path, &WriteTarget)> =
            self.targets.iter().filter_map(|target| Some((target.path, target.found.as_ref()?))).collect();
        files.sort_by_key(|(_, found)| found.existing.as_ref().map(|stat| (stat.st_dev, stat.st_ino)));
        let mut locks = Vec::new();
        let mut locked = None;
        for (path, found) in files {
            let file = found.existing.as_ref().map(|stat| (stat.st_dev, stat.st_ino));
            // Two names of one file have one lock, and nobody gets that twice.
            if file != locked {
                locks.extend(lock_between_servers(found).map_err(|reason| failed(path, reason))?);
                locked = file;
            }
            let unchanged = found.is_unchanged().map_err(|errno| failed(path, os(errno)))?;
            if !unchanged {
                return Ok(None);
            }
        }
        Ok(Some(locks))
    }

    fn check_expectations(&self) -> Result<(), FileError> {
        for target in &self.targets {
            let checked = match (&target.found, target.change.expect) {
                (Some(found), expect) => found.check(expect),
                (None, ExpectedFile::Content(_)) => Err(FileReason::Changed { present: None }),
                (None, ExpectedFile::Anything | ExpectedFile::Absent) => Ok(()),
            };
            checked.map_err(|reason| failed(target.path, reason))?;
        }
        Ok(())
    }

    fn carry_out(&self, mut journal: Journal) -> Result<(), FileError> {
        let first = self.targets[0].path;
        let disk = |error: std::io::Error| failed(first, io(&error));
        let mut record = Record {
            directories: self.directories.iter().map(|directory| directory.record.clone()).collect(),
            sides: self.sides(journal.id()),
            steps: Vec::new(),
        };
        let mut directories = self.open_directories().map_err(|errno| failed(first, os(errno)))?;
        let decided = journal.note_sides(&record).map_err(disk).and_then(|()| {
            let (steps, paths) = self.steps(&record.sides)?;
            record.steps = steps;
            directories.sync().map_err(|errno| failed(first, os(errno)))?;
            journal.commit(&record).map_err(disk)?;
            Ok(paths)
        });
        let outcome = match decided {
            Err(error) => Err(error),
            Ok(paths) => {
                // If this fails, the journal stays, and whoever comes next finishes it.
                let outcome = make_or_undo(&mut directories, &record, &paths)?;
                directories.sync().map_err(|errno| failed(first, os(errno)))?;
                journal.uncommit().map_err(disk)?;
                outcome
            }
        };
        // A side file that cannot be removed now is left to whoever comes next, with the journal that names it.
        if journal.is_committed().is_ok_and(|committed| !committed) && directories.remove_sides(&record).is_ok() {
            journal.finish();
        }
        outcome
    }

    /// A side file for each file that is written or removed, in the nearest directory that exists.
    fn sides(&self, id: &str) -> Vec<Name> {
        let side = |(number, target): (usize, &Target<'_>)| {
            let mut directory = target.name.directory;
            while let DirectoryRecord::Made { parent, .. } = &self.directories[directory as usize].record {
                directory = *parent;
            }
            Name { directory, name: OsString::from(format!("{SIDE_PREFIX}{id}-{number}.tmp")) }
        };
        self.targets.iter().enumerate().map(side).collect()
    }

    fn open_directories(&self) -> Result<OpenDirectories, Errno> {
        let handles = self.directories.iter().map(|directory| {
            let handle = directory.handle.as_ref().map(OwnedFd::try_clone).transpose();
            handle.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))
        });
        Ok(OpenDirectories::new(handles.collect::<Result<_, _>>()?))
    }

    /// Writes the side files, and says what is to be done with them, and for which path: what goes first makes room.
    fn steps(&self, sides: &[Name]) -> Result<(Vec<Step>, Vec<PathBuf>), FileError> {
        let (mut going, mut coming) = (Vec::new(), Vec::new());
        for (target, side) in self.targets.iter().zip(sides) {
            let old = target.found.as_ref().and_then(|found| found.existing.as_ref());
            let (side, name) = (side.clone(), target.name.clone());
            let policy_path = &self.directories[side.directory as usize].policy_path;
            policy_path.name(&side.name).require(Wanted::Write).map_err(|errno| failed(target.path, os(errno)))?;
            match (&target.change.action, old) {
                (ChangeAction::Write { bytes, mode }, old) => {
                    let written = self.write_side(&side, target, bytes, *mode);
                    let new = Identity::of(&written.map_err(|reason| failed(target.path, reason))?);
                    coming.push(match old.map(Identity::of) {
                        None => (Step::Put { side, target: name, new }, target.path.to_owned()),
                        Some(old) => (Step::Swap { side, target: name, old, new }, target.path.to_owned()),
                    });
                }
                (ChangeAction::Remove, Some(old)) => {
                    let old = Identity::of(old);
                    going.push((Step::Take { side, target: name, old }, target.path.to_owned()));
                }
                (ChangeAction::Rename { .. }, Some(file)) => {
                    let to = target.to.clone().expect("the plan has found where it goes");
                    going.push((Step::Move { from: name, to, file: Identity::of(file) }, target.path.to_owned()));
                }
                (_, None) => return Err(failed(target.path, os(Errno::NOENT))),
            }
        }
        let made = (0..self.directories.len()).filter(|at| self.directories[*at].handle.is_none());
        let path = self.targets[0].path;
        let made = made.map(|at| (Step::MakeDirectory { directory: index(at) }, path.to_owned()));
        Ok(made.chain(going).chain(coming).unzip())
    }

    fn write_side(
        &self,
        side: &Name,
        target: &Target<'_>,
        bytes: &[u8],
        mode: Option<u32>,
    ) -> Result<Stat, FileReason> {
        let directory = self.directories[side.directory as usize].handle.as_ref().ok_or(os(Errno::NOENT))?;
        let old = match &target.found {
            Some(found) if found.existing.is_some() => Some(open_old(found)?),
            _ => None,
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let permissions = Mode::from_raw_mode(if old.is_some() { 0o600 } else { 0o666 });
        let file = openat(directory, &side.name, flags, permissions).map_err(os)?;
        write_all(file.as_fd(), bytes).map_err(|(errno, _)| os(errno))?;
        match &old {
            Some(old) => inherit(old, &fstat(old).map_err(os)?, &file, mode).map_err(os)?,
            None => {
                if let Some(mode) = mode {
                    fchmod(&file, Mode::from_raw_mode(mode)).map_err(os)?;
                }
            }
        }
        fsync(&file).map_err(os)?;
        fstat(&file).map_err(os)
    }
}

/// A rename needs no permission to write the old file, but a write does, so this asks for it.
fn open_old(found: &WriteTarget) -> Result<OwnedFd, FileReason> {
    let old = match found.open(OFlags::WRONLY) {
        // A running program cannot be written but can be replaced.
        Err(Errno::TXTBSY) => found.open(OFlags::RDONLY),
        other => other,
    }
    .map_err(os)?;
    match kind_of(&fstat(&old).map_err(os)?) {
        FileKind::File => Ok(old),
        _ => Err(FileReason::NotAFile),
    }
}

/// Why the changes were not made: a step failed, and those before it were undone.
type Outcome = Result<(), FileError>;

/// If a step fails, those before it are undone, and the failure is the outcome. An error: neither could be done whole.
fn make_or_undo(directories: &mut OpenDirectories, record: &Record, paths: &[PathBuf]) -> Result<Outcome, FileError> {
    for (number, step) in record.steps.iter().enumerate() {
        let Err(failure) = directories.make(record, step, Maker::Caller) else { continue };
        let reason = match failure {
            StepFailure::Os(errno) => os(errno),
            StepFailure::Changed => FileReason::Changed { present: None },
        };
        for step in record.steps[..number].iter().rev() {
            if let Err(StepFailure::Os(errno)) = directories.undo(record, step) {
                return Err(failed(&paths[number], os(errno)));
            }
        }
        return Ok(Err(failed(&paths[number], reason)));
    }
    Ok(Ok(()))
}

fn index(position: usize) -> u32 {
    u32::try_from(position).expect("a change set has at most some thousand directories")
}
