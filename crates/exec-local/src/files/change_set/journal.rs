//! The journals of change sets: two files for each in a directory of our own.
//!
//! ```text
//!   ID.journal    which side files there are; locked by whoever makes the change set, as long as it lives
//!   ID.commit     the whole record; it appears by a rename, and with it the change set is decided
//! ```
//!
//! ```text
//!   begin ──► side files, each synced ──► commit (synced, renamed, synced) ──► steps ──► sync ──► commit removed ──► finished
//!     │                                      │
//!     └─ killed: side files are removed      └─ killed: the steps are made, by whoever comes next
//! ```
//!
//! Whoever opens the environment's files comes next, and so does every change set: both call [`Journals::recover`], which
//! takes only journals whose owner is dead. A lock cannot outlive its process.
//!
//! To recover and to begin takes the rights of this process: a call under a policy has fewer, and neither the directory of
//! the journals nor what a killed server was at work on need be within their reach. Once begun, a journal is used through
//! the handle of its directory, with whatever rights the call has.

use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::record::Record;
use super::steps::{Maker, OpenDirectories};

/// Largest journal that is read: 256 files with the longest paths there are.
const JOURNAL_BYTES: u64 = 8 << 20;

/// The directory of the journals.
pub(in super::super) struct Journals {
    directory: PathBuf,
    /// Ids of those that could not be finished, so that each is told once and not with every change set.
    told: Mutex<HashSet<String>>,
}

/// The journal of a change set that is being made. Its lock ends with it.
pub(in super::super) struct Journal {
    directory: File,
    id: String,
    locked: File,
    /// Whether something is left to do for whoever comes next. If not, its files go with it.
    is_needed: bool,
}

impl Journals {
    pub(in super::super) fn new(directory: PathBuf) -> Self {
        Self { directory, told: Mutex::default() }
    }

    /// A journal without side files.
    pub(in super::super) fn begin(&self) -> io::Result<Journal> {
        loop {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
            let id = format!("{:016x}", RandomState::new().build_hasher().finish());
            let nameless = format!("new-{id}");
            let opened = File::open(&self.directory)
                .and_then(|directory| Ok((create(&directory, &nameless, OFlags::APPEND)?, directory)));
            let (locked, directory) = match opened {
                // Another environment has ended, and removed the directory because it was empty.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            flock(&locked, FlockOperation::NonBlockingLockExclusive)?;
            // It gets its name when it is locked, so that nobody takes its owner for dead.
            match renameat(&directory, &nameless, &directory, format!("{id}.journal")) {
                Ok(()) => return Ok(Journal { directory, id, locked, is_needed: false }),
                // Somebody who recovered took it for the remains of a dead owner, before it was locked.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Finishes the change sets of dead owners: those that were decided are made, of the others the side files go. What cannot
    /// be finished now (a disk that fails, a directory that cannot be opened) is left for the next time.
    pub(in super::super) fn recover(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(id) = name.strip_suffix(".journal") {
                if let Err(error) = self.recover_one(id)
                    && self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned())
                {
                    let journal = entry.path();
                    tracing::warn!(?journal, %error, "what a killed server has left half changed cannot be finished now; it is tried again with every change set, and by the next server");
                }
            } else if name.starts_with("new-")
                && let Some(_dead) = lock_of_dead(&entry.path())
            {
                let _gone = fs::remove_file(entry.path());
            }
        }
    }

    fn recover_one(&self, id: &str) -> io::Result<()> {
        let Some(locked) = lock_of_dead(&self.directory.join(format!("{id}.journal"))) else { return Ok(()) };
        let directory = File::open(&self.directory)?;
        let journal = Journal { directory, id: id.to_owned(), locked, is_needed: true };
        if journal.is_committed()? {
            let record = journal.read("commit")?.ok_or(io::ErrorKind::InvalidData)?;
            let mut directories = OpenDirectories::find(&record)?;
            let forward = record.steps.iter().try_for_each(|step| directories.make(&record, step, Maker::Recovery));
            if forward.is_err() {
                let backward = record.steps.iter().rev().try_for_each(|step| directories.undo(&record, step));
                backward.map_err(|_| io::Error::other("a change set can be neither made nor undone now"))?;
            }
            directories.sync()?;
            journal.uncommit()?;
            directories.remove_sides(&record)?;
        } else if let Some(record) = journal.read("journal")? {
            OpenDirectories::find(&record)?.remove_sides(&record)?;
        }
        journal.finish();
        Ok(())
    }
}

impl Drop for Journals {
    fn drop(&mut self) {
        // It stays as long as there is a journal in it.
        let _stays = fs::remove_dir(&self.directory);
    }
}

impl Journal {
    /// Part of the names of side files.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Says which side files there will be, before there are any.
    pub(super) fn note_sides(&mut self, record: &Record) -> io::Result<()> {
        self.is_needed = true;
        self.locked.write_all(&record.encode())
    }

    /// From here on all steps are made, whatever happens.
    pub(super) fn commit(&self, record: &Record) -> io::Result<()> {
        let draft = self.name("draft");
        let mut file = create(&self.directory, &draft, OFlags::empty())?;
        file.write_all(&record.encode())?;
        file.sync_all()?;
        renameat(&self.directory, draft, &self.directory, self.name("commit"))?;
        self.directory.sync_all()
    }

    /// All steps are made, or all are undone.
    pub(super) fn uncommit(&self) -> io::Result<()> {
        unlinkat(&self.directory, self.name("commit"), AtFlags::empty())?;
        // Or a power cut would bring it back when its inodes belong to other files.
        self.directory.sync_all()
    }

    /// An error means that nobody knows.
    pub(super) fn is_committed(&self) -> Result<bool, Errno> {
        match statat(&self.directory, self.name("commit"), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// There is nothing left to do.
    pub(super) fn finish(mut self) {
        self.is_needed = false;
    }

    fn name(&self, kind: &str) -> String {
        format!("{}.{kind}", self.id)
    }

    /// `None` if there is none, or not a whole one.
    fn read(&self, kind: &str) -> io::Result<Option<Record>> {
        let file = match openat(&self.directory, self.name(kind), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => File::from(file?),
        };
        let mut bytes = Vec::new();
        file.take(JOURNAL_BYTES).read_to_end(&mut bytes)?;
        Ok(Record::decode(&bytes))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.is_needed {
            return;
        }
        // One that stays because of an error names nothing that is left, and whoever comes next removes it.
        for kind in ["draft", "journal"] {
            let _gone = unlinkat(&self.directory, self.name(kind), AtFlags::empty());
        }
    }
}

/// A new file for writing that only we may open.
fn create(directory: &File, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::from_raw_mode(0o600))?.into())
}

/// The locked file, if its owner is dead and it is still there.
fn lock_of_dead(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    (file.metadata().ok()?.nlink() > 0).then_some(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::sync::Arc;

    use bytes::Bytes;
    use exec_core::sandbox::{FileAccess, FilePolicy, FileRule, NetworkPolicy, RuleTarget, SandboxPolicy};
    use exec_env::files::{ChangeAction, ChangeSet, ExpectedFile, FileChange, Files};
    use rustix::fs::stat;

    use super::super::super::LocalFiles;
    use super::super::SIDE_PREFIX;
    use super::super::record::{DirectoryRecord, Identity, Name, Step};
    use super::*;
    use crate::call_rights::CallRights;

    /// What a server leaves that was killed before it made `file` in a directory: when that was decided, or earlier.
    fn leave(journals: &Journals, directory: &Path, decided: bool) {
        let mut journal = journals.begin().expect("the directory is ours");
        let side = Name { directory: 0, name: format!("{SIDE_PREFIX}{}-0.tmp", journal.id()).into() };
        let path = directory.join(&side.name);
        fs::write(&path, "new").expect("the directory is ours");
        let stat = |path: &Path| stat(path).expect("it is there");
        let found = DirectoryRecord::Found { path: directory.to_owned(), inode: stat(directory).st_ino };
        let mut record = Record { directories: vec![found], sides: vec![side.clone()], steps: Vec::new() };
        journal.note_sides(&record).expect("the disk has space");
        if decided {
            let target = Name { directory: 0, name: "file".into() };
            record.steps.push(Step::Put { side, target, new: Identity::of(&stat(&path)) });
            journal.commit(&record).expect("the disk has space");
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    }

    fn count(path: &Path) -> usize {
        fs::read_dir(path).expect("it is there").count()
    }

    /// Recovers with and without the right to use `work`, which lies in a directory: the mode is that of one of the two.
    fn recover_twice(decided: bool, closed: &str, mode: u32, contents: &[&str]) {
        let home = tempfile::tempdir().expect("a temporary directory");
        let top = home.path().canonicalize().expect("it exists");
        let journals = Journals::new(top.join("journals"));
        let work = top.join("outer/work");
        fs::create_dir_all(&work).expect("it is ours");
        leave(&journals, &work, decided);
        let closed = top.join(closed);
        set_mode(&closed, mode);
        // Of root, too: its way past modes is a capability.
        CallRights::WithoutCapabilities.perform(|| journals.recover()).expect("they are given");
        set_mode(&closed, 0o700);
        assert!(count(&journals.directory) > 0, "what is left to do is forgotten");
        assert_eq!(count(&work), 1);
        journals.recover();
        let names: Vec<_> =
            fs::read_dir(&work).expect("it is ours").map(|entry| entry.expect("it can be read")).collect();
        assert_eq!(names.iter().map(fs::DirEntry::file_name).collect::<Vec<_>>(), contents);
        assert_eq!(count(&journals.directory), 0);
    }

    #[test]
    fn what_was_decided_is_made_as_soon_as_its_directory_can_be_opened() {
        recover_twice(true, "outer", 0o000, &["file"]);
    }

    #[test]
    fn side_files_in_a_directory_that_cannot_be_opened_are_removed_as_soon_as_it_can() {
        recover_twice(false, "outer", 0o000, &[]);
    }

    #[test]
    fn side_files_that_cannot_be_removed_are_removed_as_soon_as_they_can() {
        recover_twice(false, "outer/work", 0o500, &[]);
    }

    #[test]
    fn a_directory_that_is_gone_is_waited_for_by_nobody() {
        for decided in [true, false] {
            let home = tempfile::tempdir().expect("a temporary directory");
            let top = home.path().canonicalize().expect("it exists");
            let journals = Journals::new(top.join("journals"));
            fs::create_dir(top.join("work")).expect("it is ours");
            leave(&journals, &top.join("work"), decided);
            fs::remove_dir_all(top.join("work")).expect("it is ours");
            journals.recover();
            assert_eq!(count(&journals.directory), 0);
        }
    }

    #[test]
    fn a_journal_of_nothing_goes_with_its_change_set() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let journals = Journals::new(home.path().join("journals"));
        drop(journals.begin().expect("the directory is ours"));
        assert_eq!(count(&journals.directory), 0);
    }

    /// Neither the journals nor the directory of the killed server's change set are within the reach of the call's rights.
    #[tokio::test]
    async fn a_change_set_under_a_policy_finishes_what_a_killed_server_has_decided() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: another account has no more rights without a policy");
        }
        let home = tempfile::tempdir().expect("a temporary directory");
        let top = home.path().canonicalize().expect("it exists");
        let (closed, open) = (top.join("closed"), top.join("open"));
        let (left, journals) = (closed.join("left"), Journals::new(closed.join("change-sets")));
        fs::create_dir_all(&left).expect("it is ours");
        fs::create_dir(&open).expect("it is ours");
        chown(&closed, Some(65_534), Some(65_534)).expect("root may");
        set_mode(&closed, 0o700);
        let files = LocalFiles::open(Some(&closed.join("writes")));
        leave(&journals, &left, true);
        let rule = |path: &Path, access| FileRule { target: RuleTarget::Path(path.to_owned()), access };
        let rules = vec![rule(Path::new("/"), FileAccess::Read), rule(&open, FileAccess::Write)];
        let bound = FilePolicy::Restricted { rules, glob_scan_depth: None };
        let policy = SandboxPolicy { files: bound, network: NetworkPolicy::Restricted };
        let action = ChangeAction::Write { bytes: Bytes::from_static(b"1"), mode: None };
        let change = FileChange { path: open.join("new"), expect: ExpectedFile::Absent, action };
        let set = ChangeSet { changes: vec![change], make_directories: false };
        assert_eq!(files.under_policy(Arc::new(policy)).change_set(set).await, Ok(()));
        assert_eq!(fs::read(left.join("file")).ok(), Some(b"new".to_vec()));
        assert_eq!((count(&left), count(&open), count(&journals.directory)), (1, 1, 0));
    }
}
