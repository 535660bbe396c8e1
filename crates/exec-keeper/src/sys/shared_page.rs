//! Two numbers in memory that the keeper and its owner share.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;

#[derive(Debug)]
pub(crate) struct SharedPage {
    base: ptr::NonNull<[AtomicU64; 2]>,
}

// SAFETY: the page holds atomics only, which any thread and any process may use at any time.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    pub(crate) const BYTES: usize = 4096;

    /// Maps a file of at least [`Self::BYTES`].
    pub(crate) fn map(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping touches no memory of ours.
        let base = unsafe { libc::mmap(ptr::null_mut(), Self::BYTES, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(super::last_errno());
        }
        Ok(Self { base: ptr::NonNull::new(base.cast()).ok_or(Errno::NOMEM)? })
    }

    pub(crate) fn words(&self) -> &[AtomicU64; 2] {
        // SAFETY: the mapping is aligned to a page, larger than two words, and lives as long as we do. Any bytes are a
        // valid value.
        unsafe { self.base.as_ref() }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which nobody has a reference any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), Self::BYTES) };
    }
}
