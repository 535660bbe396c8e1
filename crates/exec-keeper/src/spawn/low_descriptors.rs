//! Low descriptors: how a child gets copies of few of the keeper's descriptors.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::{DupFlags, Errno};

use crate::sys::clone::ChildStdio;

/// Three descriptors with low numbers, in which a child finds its stdio. A keeper has thousands of descriptors, and a
/// child that gets copies only of the first few is there sooner than one that gets all and closes them; and so no child
/// has the pipes of another for a while, which would keep those open. Between two spawns they are /dev/null.
#[derive(Debug)]
pub(super) struct LowDescriptors {
    slots: [OwnedFd; 3],
}

impl LowDescriptors {
    pub(super) fn reserve(null: &OwnedFd) -> Result<Self, Errno> {
        let slot = || rustix::io::fcntl_dupfd_cloexec(null, 3);
        Ok(Self { slots: [slot()?, slot()?, slot()?] })
    }

    pub(super) fn place<'a>(
        &'a mut self,
        stdio: ChildStdio<'_>,
        null: &'a OwnedFd,
    ) -> Result<PlacedDescriptors<'a>, Errno> {
        let mut placed = PlacedDescriptors { low: self, null, is_terminal: false };
        let slots = &mut placed.low.slots;
        match stdio {
            ChildStdio::Pipes { stdin, stdout, stderr } => {
                for (slot, source) in slots.iter_mut().zip([stdin, stdout, stderr]) {
                    rustix::io::dup3(source, slot, DupFlags::CLOEXEC)?;
                }
            }
            ChildStdio::Pty { master } => {
                rustix::io::dup3(master, &mut slots[0], DupFlags::CLOEXEC)?;
                placed.is_terminal = true;
            }
        }
        Ok(placed)
    }
}

/// The stdio of one child in its low descriptors, until this is dropped.
pub(super) struct PlacedDescriptors<'a> {
    low: &'a mut LowDescriptors,
    null: &'a OwnedFd,
    is_terminal: bool,
}

impl PlacedDescriptors<'_> {
    pub(super) fn stdio(&self) -> ChildStdio<'_> {
        let [first, second, third] = &self.low.slots;
        if self.is_terminal {
            ChildStdio::Pty { master: first.as_fd() }
        } else {
            ChildStdio::Pipes { stdin: first.as_fd(), stdout: second.as_fd(), stderr: third.as_fd() }
        }
    }

    /// The number behind them.
    pub(super) fn end(&self) -> u32 {
        self.low.slots.iter().map(|slot| slot.as_raw_fd().unsigned_abs() + 1).max().unwrap_or_default()
    }
}

impl Drop for PlacedDescriptors<'_> {
    /// A pipe of which we held an end would never be at its end.
    fn drop(&mut self) {
        for slot in &mut self.low.slots {
            // Replacing an open descriptor takes no new one, so there is nothing that it could lack.
            let _ = rustix::io::dup3(self.null, slot, DupFlags::CLOEXEC);
        }
    }
}
