//! The registry of temporary files, with which the next daemon removes those that a killed one left behind.
//!
//! A file is replaced by writing a temporary file beside it and renaming that. If the daemon is killed in between, the
//! temporary file stays. So before the first temporary file in a directory is created, the directory's path is appended
//! to the daemon's registry file. Whoever starts next with the same directory of registry files removes the temporary
//! files of every owner that is dead. An owner is alive as long as it holds the lock on its registry file; a lock
//! cannot outlive its process.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat};

use super::resolve::proc_path;

/// How the name of every temporary file begins, so that people recognise one.
const PREFIX: &str = ".exec-server-write-";

const SUFFIX: &str = ".tmp";

/// Directories remembered as recorded. Beyond this the memory is cleared and some are recorded twice, which is
/// harmless.
const REMEMBERED_DIRECTORIES: usize = 1 << 16;

/// How much of a dead owner's registry file is read: the paths of tens of thousands of directories.
const REGISTRY_BYTES: u64 = 16 << 20;

/// Names for temporary files, and the record of where they are.
pub(super) struct TempRegistry {
    /// Distinguishes the temporary files of this daemon from those of others: 16 hexadecimal digits.
    instance: String,
    count: AtomicU64,
    registry: Option<RegistryFile>,
}

/// The file is created with the first record: a daemon that writes no files needs no writable directory for it.
struct RegistryFile {
    directory: PathBuf,
    recorded: Mutex<RecordedDirectories>,
}

#[derive(Default)]
struct RecordedDirectories {
    file: Option<File>,
    directories: HashSet<(u64, u64)>,
}

impl TempRegistry {
    /// Removes the temporary files of dead owners. Without a directory nothing is recorded, and temporary files of a
    /// killed daemon stay.
    pub(super) fn open(directory: Option<&Path>) -> Self {
        let instance = format!("{:016x}", RandomState::new().build_hasher().finish());
        let registry = directory.map(|directory| {
            clean_up(directory);
            RegistryFile { directory: directory.to_owned(), recorded: Mutex::default() }
        });
        Self { instance, count: AtomicU64::new(0), registry }
    }

    /// Opens the registry file, if it is not open yet. Whoever is about to make temporary files with fewer rights than this
    /// process has calls this first, because those rights need not reach the registry.
    pub(super) fn open_file(&self) {
        if let Some(registry) = &self.registry {
            // If nothing can be recorded (the disk is full), the write goes on: it may well free space.
            let _unrecorded = registry.open_file(&self.instance);
        }
    }

    /// A name for a temporary file that is about to be made in `dir`.
    pub(super) fn new_name(&self, dir: &OwnedFd) -> OsString {
        if let Some(registry) = &self.registry {
            // As above.
            let _unrecorded = registry.record(&self.instance, dir);
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        OsString::from(format!("{PREFIX}{}-{count}{SUFFIX}", self.instance))
    }
}

impl Drop for TempRegistry {
    fn drop(&mut self) {
        let Some(registry) = &self.registry else { return };
        // After an orderly end nothing is left to remove; if this fails, the next start finds nothing to do. The
        // directory stays as long as another owner has a registry file in it.
        let _gone = fs::remove_file(registry.directory.join(&self.instance));
        let _gone = fs::remove_dir(&registry.directory);
    }
}

impl RegistryFile {
    fn open_file(&self, instance: &str) -> io::Result<()> {
        self.file_of(instance, &mut self.lock()).map(drop)
    }

    fn record(&self, instance: &str, dir: &OwnedFd) -> io::Result<()> {
        let stat = fstat(dir)?;
        let mut recorded = self.lock();
        if recorded.directories.contains(&(stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        let path = fs::read_link(proc_path(dir))?;
        let mut line = path.into_os_string().into_encoded_bytes();
        line.push(0);
        self.file_of(instance, &mut recorded)?.write_all(&line)?;
        if recorded.directories.len() >= REMEMBERED_DIRECTORIES {
            recorded.directories.clear();
        }
        recorded.directories.insert((stat.st_dev, stat.st_ino));
        Ok(())
    }

    fn file_of<'a>(&self, instance: &str, recorded: &'a mut RecordedDirectories) -> io::Result<&'a mut File> {
        Ok(match &mut recorded.file {
            Some(file) => file,
            none => none.insert(self.create(instance)?),
        })
    }

    fn lock(&self) -> MutexGuard<'_, RecordedDirectories> {
        self.recorded.lock().expect("no holder of this lock panics")
    }

    /// It is renamed to its final name when it is already locked, so that nobody takes its owner for dead.
    fn create(&self, instance: &str) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let nameless = self.directory.join(format!("new-{instance}"));
        let file = fs::OpenOptions::new().append(true).create_new(true).mode(0o600).open(&nameless)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(nameless, self.directory.join(instance))?;
        Ok(file)
    }
}

/// Removes the temporary files of every dead owner. Errors are ignored, because a start must not fail because of what
/// another daemon left behind.
fn clean_up(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if is_instance(&name) {
            let _best_effort = clean_up_after(&entry.path(), &name);
        }
    }
}

fn clean_up_after(registry: &Path, instance: &OsStr) -> io::Result<()> {
    // Not blocking, because to open a FIFO would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(registry, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let mut directories = Vec::new();
    File::from(file).take(REGISTRY_BYTES).read_to_end(&mut directories)?;
    for directory in directories.split(|byte| *byte == 0) {
        if !directory.is_empty() {
            remove_temporary_files(Path::new(OsStr::from_bytes(directory)), instance);
        }
    }
    fs::remove_file(registry)
}

/// Errors are ignored: the directory may be gone, or no longer ours.
fn remove_temporary_files(directory: &Path, instance: &OsStr) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let mut beginning = OsString::from(PREFIX);
    beginning.push(instance);
    beginning.push("-");
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name.as_bytes().starts_with(beginning.as_bytes()) && name.as_bytes().ends_with(SUFFIX.as_bytes());
        if ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _best_effort = fs::remove_file(entry.path());
        }
    }
}

fn is_instance(name: &OsStr) -> bool {
    name.len() == 16 && name.as_bytes().iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_are_cleaned_up_after_and_the_living_are_left_alone() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let work = tempfile::tempdir().expect("a temporary directory can be made");
        let registers = directory.path().join("writes");
        let dir = OwnedFd::from(File::open(work.path()).expect("it exists"));

        let living = TempRegistry::open(Some(&registers));
        let kept = work.path().join(living.new_name(&dir));
        fs::write(&kept, "unfinished").expect("the directory is ours");

        // A registry file without a lock, as a kill leaves it.
        let dead = "0123456789abcdef";
        let mut line = work.path().as_os_str().as_bytes().to_vec();
        line.push(0);
        fs::write(registers.join(dead), line).expect("the folder is ours");
        let left = work.path().join(format!("{PREFIX}{dead}-7{SUFFIX}"));
        fs::write(&left, "unfinished").expect("the directory is ours");
        fs::write(work.path().join("innocent"), "").expect("the directory is ours");

        let next = TempRegistry::open(Some(&registers));
        assert!(!left.exists());
        assert!(!registers.join(dead).exists());
        assert!(kept.exists());
        assert!(work.path().join("innocent").exists());
        drop((living, next));
        assert!(!registers.exists(), "the last one out removes the folder");
    }
}
