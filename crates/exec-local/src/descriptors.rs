//! The budget of descriptors: how many this process may open, shared out among those who open many.
//!
//! Whoever opens descriptors for a client, and keeps them, takes a permit first. What does not fit is refused there, with
//! words, instead of failing anywhere with EMFILE. Each use has its share, so that file handles cannot stop starts, and some
//! are left over for what needs a few for a moment: starting, adopting, logs, replies of the keeper, connections that are
//! told that there is no room for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Left over for everybody, what was open from the beginning included.
const RESERVE: usize = 64;
/// Of these, at least so many are for later, even if very much was open from the beginning: each worker has some.
const FREE_RESERVE: usize = 40;
/// Counted if there is no limit.
const UNLIMITED: usize = 1 << 20;

/// What descriptors are opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorUse {
    /// Pipes, terminals and logs of processes.
    Processes,
    /// Files that a client holds open, and those that are being hashed.
    FileHandles,
    /// Sockets of clients, and of HTTP requests.
    Connections,
    /// Watched directories.
    Watches,
    /// What goes through the proxies of processes. Taken beside [`Self::Processes`], of whose share it is a part.
    Proxies,
}

impl DescriptorUse {
    /// In percent of all but the reserve.
    fn share(self) -> usize {
        match self {
            Self::Processes => 60,
            Self::FileHandles => 20,
            Self::Connections => 15,
            Self::Watches | Self::Proxies => 5,
        }
    }
}

/// A use has taken its share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many open files: {limit} descriptors are set aside for this: close some, or raise the limit of open files"
)]
pub struct NoDescriptors {
    /// The share.
    pub limit: usize,
}

/// The descriptors of this process. Clones share them.
#[derive(Debug, Clone)]
pub struct DescriptorBudget {
    /// All but the reserve.
    shared_out: usize,
    taken: Arc<[AtomicUsize; 5]>,
}

impl DescriptorBudget {
    /// All that this process may open now.
    pub fn of_this_process() -> Self {
        let limit = getrlimit(Resource::Nofile).current.map_or(UNLIMITED, |limit| limit as usize);
        // Without /proc nobody knows; the reserve is enough for an ordinary machine.
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Self::new(limit, open)
    }

    fn new(limit: usize, open: usize) -> Self {
        let reserve = RESERVE.max(open + FREE_RESERVE);
        Self { shared_out: limit.saturating_sub(reserve), taken: Arc::default() }
    }

    /// Takes `count` for this use, or refuses if that exceeds its share.
    pub fn take(&self, purpose: DescriptorUse, count: usize) -> Result<DescriptorPermit, NoDescriptors> {
        let limit = self.shared_out * purpose.share() / 100;
        let add = |taken: usize| Some(taken + count).filter(|taken| *taken <= limit);
        self.taken(purpose)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .map_err(|_| NoDescriptors { limit })?;
        Ok(DescriptorPermit { budget: self.clone(), purpose, count })
    }

    /// Takes them whatever the share is, for what is there already.
    pub fn take_anyway(&self, purpose: DescriptorUse, count: usize) -> DescriptorPermit {
        self.taken(purpose).fetch_add(count, Ordering::Relaxed);
        DescriptorPermit { budget: self.clone(), purpose, count }
    }

    fn taken(&self, purpose: DescriptorUse) -> &AtomicUsize {
        &self.taken[purpose as usize]
    }
}

/// Descriptors that somebody may have open. They go back when it is dropped.
#[derive(Debug)]
pub struct DescriptorPermit {
    budget: DescriptorBudget,
    purpose: DescriptorUse,
    count: usize,
}

impl DescriptorPermit {
    /// Gives back all but `count`.
    pub fn shrink_to(&mut self, count: usize) {
        let back = self.count.saturating_sub(count);
        self.budget.taken(self.purpose).fetch_sub(back, Ordering::Relaxed);
        self.count -= back;
    }
}

impl Drop for DescriptorPermit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// Raises the limit of this process as far as it goes.
pub(crate) fn raise_limit() {
    let found = getrlimit(Resource::Nofile);
    if let Err(errno) = setrlimit(Resource::Nofile, Rlimit { current: found.maximum, ..found }) {
        tracing::warn!(%errno, "the limit of open files stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_gets_its_share_and_not_more_whatever_the_others_take() {
        let budget = DescriptorBudget::new(RESERVE + 100, 3);
        let mut processes = budget.take(DescriptorUse::Processes, 60).expect("its share");
        assert_eq!(budget.take(DescriptorUse::Processes, 1).err(), Some(NoDescriptors { limit: 60 }));
        let handles = budget.take(DescriptorUse::FileHandles, 20).expect("another share");
        assert!(budget.take(DescriptorUse::FileHandles, 1).is_err());
        processes.shrink_to(10);
        let more = budget.take(DescriptorUse::Processes, 50).expect("what was given back");
        let adopted = budget.take_anyway(DescriptorUse::Processes, 30);
        drop(more);
        assert!(budget.take(DescriptorUse::Processes, 21).is_err(), "what is there already counts");
        drop((processes, handles, adopted));
        assert!(
            budget.take(DescriptorUse::Processes, 60).is_ok() && budget.take(DescriptorUse::FileHandles, 20).is_ok()
        );
    }

    #[test]
    fn what_was_open_from_the_beginning_is_not_shared_out() {
        let budget = DescriptorBudget::new(1000, 500);
        assert_eq!(budget.take(DescriptorUse::Processes, 300).err(), Some(NoDescriptors { limit: 276 }));
    }
}
