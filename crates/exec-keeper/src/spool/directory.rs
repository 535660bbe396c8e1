//! The directory of the log files, on an ordinary disk, and the count of the bytes that all logs hold together.
//!
//! Log files never have a name (`O_TMPFILE`), so that nothing is left behind whoever is killed: the keeper and the owner
//! hold them open, and when both are gone the kernel frees them.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use crate::private_directory;

#[derive(Debug)]
pub struct SpoolDirectory {
    path: PathBuf,
    /// What all logs together may hold.
    cap_bytes: u64,
    held_bytes: AtomicU64,
    spools: AtomicU64,
    made: AtomicU64,
}

impl SpoolDirectory {
    /// The directory must exist.
    pub fn new(path: impl Into<PathBuf>, cap_bytes: u64) -> Self {
        Self {
            path: path.into(),
            cap_bytes,
            held_bytes: AtomicU64::new(0),
            spools: AtomicU64::new(0),
            made: AtomicU64::new(0),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether output could be written here now. Asked before a start, because a child whose output cannot be written
    /// would only wait, and the caller would not know why.
    pub fn check_writable(&self) -> Result<(), Errno> {
        let disk = self.or_make_again(|| rustix::fs::statvfs(&self.path))?;
        let free = if rustix::process::geteuid().is_root() { disk.f_bfree } else { disk.f_bavail };
        if disk.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(Errno::ROFS);
        }
        // Some file systems count no blocks (0 of 0), and some no files.
        if (disk.f_blocks > 0 && free == 0) || (disk.f_files > 0 && disk.f_ffree == 0) {
            return Err(Errno::NOSPC);
        }
        Ok(())
    }

    pub fn create_file(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        self.or_make_again(|| match rustix::fs::open(&self.path, flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => self.create_unlinked_file(flags),
            other => other,
        })
    }

    /// The directory is always empty, so whoever cleans up (systemd-tmpfiles, for one) takes it for garbage. Then it is
    /// made again, unless somebody else was quicker.
    fn or_make_again<T>(&self, attempt: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match attempt() {
            Err(Errno::NOENT) => {
                // Whatever is wrong with it, the errno says that it cannot be used.
                private_directory::create(&self.path).map_err(|_| Errno::NOENT)?;
                attempt()
            }
            other => other,
        }
    }

    /// For file systems without `O_TMPFILE`: the name is removed at once.
    fn create_unlinked_file(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = self.path.join(format!(".spool-{}-{number}", std::process::id()));
        let file = rustix::fs::open(&name, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::unlink(&name)?;
        Ok(file)
    }

    /// What all logs together hold beyond their cap.
    pub fn excess_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed).saturating_sub(self.cap_bytes)
    }

    /// What each spool may hold, whatever the others do.
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
