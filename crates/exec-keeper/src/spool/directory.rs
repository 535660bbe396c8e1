//! Where logs lie: a folder on an ordinary disk, files without names, and what all of them hold together.
//!
//! Spool files have no name from the start (`O_TMPFILE`), so that nothing is left behind whoever dies: the keeper and
//! the owner hold them open, and when both are gone the kernel frees them.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

/// The folder and its common account.
#[derive(Debug)]
pub struct SpoolDirectory {
    path: PathBuf,
    cap_bytes: u64,
    held_bytes: AtomicU64,
    spools: AtomicU64,
    made: AtomicU64,
}

impl SpoolDirectory {
    /// A folder that exists, and how much all logs in it may hold.
    pub fn new(path: impl Into<PathBuf>, cap_bytes: u64) -> Self {
        Self {
            path: path.into(),
            cap_bytes,
            held_bytes: AtomicU64::new(0),
            spools: AtomicU64::new(0),
            made: AtomicU64::new(0),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether output could be written here now. A child that prints where it cannot would wait, and whoever started it
    /// would not know why.
    pub fn check_writable(&self) -> Result<(), Errno> {
        let disk = rustix::fs::statvfs(&self.path)?;
        let free = if rustix::process::geteuid().is_root() { disk.f_bfree } else { disk.f_bavail };
        if disk.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(Errno::ROFS);
        }
        // Some count no blocks (0 of 0), and some no files.
        if (disk.f_blocks > 0 && free == 0) || (disk.f_files > 0 && disk.f_ffree == 0) {
            return Err(Errno::NOSPC);
        }
        Ok(())
    }

    /// A new file without a name.
    pub fn create_file(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(&self.path, flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => self.create_unlinked_file(flags),
            other => other,
        }
    }

    /// For file systems without `O_TMPFILE`: make it, and take the name away at once.
    fn create_unlinked_file(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = self.path.join(format!(".spool-{}-{number}", std::process::id()));
        let file = rustix::fs::open(&name, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::unlink(&name)?;
        Ok(file)
    }

    /// Bytes over the common cap.
    pub fn excess_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed).saturating_sub(self.cap_bytes)
    }

    /// What each spool may hold at least, whatever the others do.
    pub fn fair_share_bytes(&self) -> u64 {
        self.cap_bytes / self.spools.load(Ordering::Relaxed).max(1)
    }

    pub(crate) fn add_spool(&self) {
        self.spools.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_spool(&self, held_bytes: u64) {
        self.spools.fetch_sub(1, Ordering::Relaxed);
        self.remove_bytes(held_bytes);
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn remove_bytes(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
