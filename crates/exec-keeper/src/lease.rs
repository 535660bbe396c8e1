//! The right to move output: it belongs to one connection of an owner, and the keeper takes it back when that ends.
//!
//! ```text
//!   shared page │ epoch of the connection, 0 once revoked │ how many movers are in the middle of a move
//! ```
//!
//! A connection may end while its owner lives, and a mover of that owner may be in the middle of a move. So a mover says
//! that it begins before it looks whether it still may, and whoever moves next revokes before it looks whether somebody
//! has begun. Then two never move one stream.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use crate::sys::shared_page::SharedPage;

#[derive(Debug)]
pub struct Lease {
    page: SharedPage,
    epoch: u64,
}

/// A move in progress.
#[derive(Debug)]
pub struct Moving<'a>(&'a AtomicU64);

impl Lease {
    /// For a connection with this number, which must not be 0. The descriptor goes to its owner.
    pub(crate) fn grant(epoch: u64) -> Result<(Self, OwnedFd), Errno> {
        let file = rustix::fs::memfd_create("lease", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, SharedPage::BYTES as u64)?;
        let page = SharedPage::map(file.as_fd())?;
        page.words()[0].store(epoch, Ordering::SeqCst);
        Ok((Self { page, epoch }, file))
    }

    /// What the keeper granted.
    pub fn open(file: &OwnedFd) -> Result<Self, Errno> {
        if (rustix::fs::fstat(file)?.st_size as usize) < SharedPage::BYTES {
            return Err(Errno::BADMSG);
        }
        let page = SharedPage::map(file.as_fd())?;
        let epoch = page.words()[0].load(Ordering::SeqCst);
        Ok(Self { page, epoch })
    }

    /// `None` once it was revoked: another moves the output now.
    pub fn begin_move(&self) -> Option<Moving<'_>> {
        let [current, movers] = self.page.words();
        movers.fetch_add(1, Ordering::SeqCst);
        let moving = Moving(movers);
        (self.epoch != 0 && current.load(Ordering::SeqCst) == self.epoch).then_some(moving)
    }

    pub(crate) fn revoke(&self) {
        self.page.words()[0].store(0, Ordering::SeqCst);
    }

    /// Whether nobody is in the middle of a move. Of an owner that was killed there, the count says nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.page.words()[1].load(Ordering::SeqCst) == 0
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revoked_lease_lets_nobody_begin_and_shows_who_has_begun() {
        let (granted, file) = Lease::grant(7).expect("a memory file");
        let owner = Lease::open(&file).expect("it is one");
        let moving = owner.begin_move().expect("it is granted");
        granted.revoke();
        assert!(!granted.is_idle(), "one has begun");
        assert!(owner.begin_move().is_none(), "no other begins");
        drop(moving);
        assert!(granted.is_idle());
        assert!(Lease::open(&file).expect("it is one").begin_move().is_none(), "what was revoked grants nothing");
    }
}
