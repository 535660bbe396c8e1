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

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::record::Record;
use super::steps::{Maker, OpenDirectories};

/// Largest journal that is read: 256 files with the longest paths there are.
const JOURNAL_BYTES: u64 = 8 << 20;

/// The directory of the journals.
pub(in super::super) struct Journals {
    directory: PathBuf,
}

/// The journal of a change set that is being made. Its lock ends with it.
pub(super) struct Journal<'a> {
    directory: &'a Path,
    id: String,
    locked: File,
}

impl Journals {
    pub(in super::super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// A journal without side files.
    pub(super) fn begin(&self) -> io::Result<Journal<'_>> {
        loop {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
            let id = format!("{:016x}", RandomState::new().build_hasher().finish());
            let nameless = self.directory.join(format!("new-{id}"));
            let opened = fs::OpenOptions::new().append(true).create_new(true).mode(0o600).open(&nameless);
            let file = match opened {
                // Another environment has ended, and removed the directory because it was empty.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            // It gets its name when it is locked, so that nobody takes its owner for dead.
            match fs::rename(&nameless, self.directory.join(format!("{id}.journal"))) {
                Ok(()) => return Ok(Journal { directory: &self.directory, id, locked: file }),
                // Somebody who recovered took it for the remains of a dead owner, before it was locked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Finishes the change sets of dead owners: those that were decided are made, of the others the side files go. What cannot
    /// be finished now (a disk that fails) is left for the next time.
    pub(in super::super) fn recover(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(id) = name.strip_suffix(".journal") {
                let _later = self.recover_one(id);
            } else if name.starts_with("new-")
                && let Some(_dead) = lock_of_dead(&entry.path())
            {
                let _gone = fs::remove_file(entry.path());
            }
        }
    }

    fn recover_one(&self, id: &str) -> io::Result<()> {
        let Some(file) = lock_of_dead(&self.directory.join(format!("{id}.journal"))) else { return Ok(()) };
        let journal = Journal { directory: &self.directory, id: id.to_owned(), locked: file };
        if journal.is_committed() {
            let record = journal.read("commit")?.ok_or(io::ErrorKind::InvalidData)?;
            let mut directories = OpenDirectories::find(&record);
            let forward = record.steps.iter().try_for_each(|step| directories.make(&record, step, Maker::Recovery));
            if forward.is_err() {
                let backward = record.steps.iter().rev().try_for_each(|step| directories.undo(&record, step));
                backward.map_err(|_| io::Error::other("a change set can be neither made nor undone now"))?;
            }
            directories.sync()?;
            journal.uncommit()?;
            directories.remove_sides(&record);
        } else if let Some(record) = journal.read("journal")? {
            OpenDirectories::find(&record).remove_sides(&record);
        }
        journal.finish()
    }
}

impl Drop for Journals {
    fn drop(&mut self) {
        // It stays as long as there is a journal in it.
        let _stays = fs::remove_dir(&self.directory);
    }
}

impl Journal<'_> {
    /// Part of the names of side files.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Says which side files there will be, before there are any.
    pub(super) fn note_sides(&mut self, record: &Record) -> io::Result<()> {
        self.locked.write_all(&record.encode())
    }

    /// From here on all steps are made, whatever happens.
    pub(super) fn commit(&self, record: &Record) -> io::Result<()> {
        let (draft, commit) = (self.path("draft"), self.path("commit"));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&record.encode())?;
        file.sync_all()?;
        fs::rename(&draft, &commit)?;
        self.sync()
    }

    /// All steps are made, or all are undone.
    pub(super) fn uncommit(&self) -> io::Result<()> {
        fs::remove_file(self.path("commit"))?;
        // Or a power cut would bring it back when its inodes belong to other files.
        self.sync()
    }

    pub(super) fn is_committed(&self) -> bool {
        self.path("commit").exists()
    }

    /// There is nothing left to do.
    pub(super) fn finish(self) -> io::Result<()> {
        let _no_draft = fs::remove_file(self.path("draft"));
        fs::remove_file(self.path("journal"))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(self.directory)?.sync_all()
    }

    fn path(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{}.{kind}", self.id))
    }

    /// `None` if there is none, or not a whole one.
    fn read(&self, kind: &str) -> io::Result<Option<Record>> {
        let file = match File::open(self.path(kind)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(JOURNAL_BYTES).read_to_end(&mut bytes)?;
        Ok(Record::decode(&bytes))
    }
}

/// The locked file, if its owner is dead and it is still there.
fn lock_of_dead(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    (file.metadata().ok()?.nlink() > 0).then_some(file)
}
