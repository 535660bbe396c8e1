//! Blocking calls: how many may run at once, for whom, and how one learns that its caller no longer waits.
//!
//! Every system call on files may block for as long as a disk or a network file system takes, so none runs on the
//! runtime's own threads. A caller with many calls waits for its own: each has a queue and a share of the threads. A call that
//! hangs takes its caller's share with it, and soon nobody else's:
//!
//! ```text
//! call ─► its caller's share ─► one of those that run at once ─► a thread
//!              │ until it ends        │ until it ends, hangs           │ until it ends
//!              │                      │ or is abandoned                │
//! ```
//!
//! Deliberately absent: timeouts, because a call that blocks in the kernel cannot be cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::call_rights::CallRights;

/// A call that runs for so long hangs, or is at least no short one: others need not wait for its end.
const HANGS_AFTER: Duration = Duration::from_secs(1);

/// How much of a pool there is.
#[derive(Clone, Copy)]
pub(crate) struct PoolSize {
    /// Calls of one caller; its other calls wait.
    pub(crate) per_caller: usize,
    /// Calls that run at once and do not hang.
    pub(crate) at_once: usize,
    /// Calls with a thread, those that hang included.
    pub(crate) threads: usize,
}

/// Runs a limited number of blocking calls at once, for one of its callers.
#[derive(Clone)]
pub(crate) struct BlockingPool {
    size: PoolSize,
    at_once: Arc<Semaphore>,
    threads: Arc<Semaphore>,
    caller: Arc<Semaphore>,
}

/// A pool whose calls have the rights of somebody.
#[derive(Clone)]
pub(crate) struct PoolWithRights {
    pool: BlockingPool,
    rights: CallRights,
}

impl BlockingPool {
    pub(crate) fn new(size: PoolSize) -> Self {
        Self {
            size,
            at_once: Arc::new(Semaphore::new(size.at_once)),
            threads: Arc::new(Semaphore::new(size.threads)),
            caller: Arc::new(Semaphore::new(size.per_caller)),
        }
    }

    /// The same pool for another caller.
    pub(crate) fn for_caller(&self) -> Self {
        Self { caller: Arc::new(Semaphore::new(self.size.per_caller)), ..self.clone() }
    }

    /// The same pool for calls with these rights.
    pub(crate) fn with_rights(&self, rights: CallRights) -> PoolWithRights {
        PoolWithRights { pool: self.clone(), rights }
    }

    /// Runs `work` on a thread where it may block. If the caller stops waiting, `work` is not interrupted: long work
    /// checks its [`CancelFlag`] where it can stop safely, short work just finishes. What has not begun never begins.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce(&CancelFlag) -> T + Send + 'static) -> T {
        // Each of these queues is in the order of arrival, and a caller has no more than its share in the later two.
        let share = acquire(&self.caller).await;
        let turn = acquire(&self.at_once).await;
        let thread = acquire(&self.threads).await;
        let cancel = CancelFlag::default();
        let _when_dropped = CancelOnDrop(cancel.clone());
        // Share and thread belong to the work and not to the caller, so abandoned work still counts.
        let mut task = tokio::task::spawn_blocking(move || {
            let _until_it_ends = (share, thread);
            work(&cancel)
        });
        let ended = match timeout(HANGS_AFTER, &mut task).await {
            Ok(ended) => ended,
            Err(_) => {
                drop(turn);
                task.await
            }
        };
        match ended.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(result) => result,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The runtime is shutting down and will not poll us again.
            Err(Err(_)) => std::future::pending().await,
        }
    }
}

impl PoolWithRights {
    /// Runs `work` as [`BlockingPool::run`] does, with these rights. Fails, with nothing done, if there is no thread for them
    /// or the kernel does not give them: a limit of the machine ends one call and not the server.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CancelFlag) -> T + Send + 'static,
    ) -> Result<T, Errno> {
        self.run_prepared(|| (), move |(), cancel| work(cancel)).await
    }

    /// The same with a first part that has the rights of this process, whoever's rights `work` has.
    pub(crate) async fn run_prepared<P: Send, T: Send + 'static>(
        &self,
        prepare: impl FnOnce() -> P + Send + 'static,
        work: impl FnOnce(P, &CancelFlag) -> T + Send + 'static,
    ) -> Result<T, Errno> {
        let rights = self.rights.clone();
        let both = move |cancel: &CancelFlag| {
            let prepared = prepare();
            rights.perform(|| work(prepared, cancel))
        };
        let performed = self.pool.run(both).await;
        performed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

async fn acquire(permits: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(permits).acquire_owned().await.expect("the semaphore is never closed")
}

/// Set when nobody waits for the result any more.
#[derive(Clone, Default)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct CancelOnDrop(pub(super) CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::{self, Receiver, SyncSender};

    use super::*;

    const SIZE: PoolSize = PoolSize { per_caller: 4, at_once: 8, threads: 64 };

    /// Calls that hang, and what ends them when it is dropped.
    struct Hung {
        calls: Vec<tokio::task::JoinHandle<()>>,
        _ends: Vec<SyncSender<()>>,
    }

    fn hang(pool: &BlockingPool, count: usize) -> Hung {
        let (ends, begins): (Vec<SyncSender<()>>, Vec<Receiver<()>>) =
            (0..count).map(|_| mpsc::sync_channel(1)).unzip();
        let calls = begins.into_iter().map(|end| {
            let pool = pool.clone();
            // It blocks its thread, as a read from a dead server does, until the sender is dropped.
            tokio::spawn(async move {
                pool.run(move |_| {
                    let _ended = end.recv();
                })
                .await;
            })
        });
        Hung { calls: calls.collect(), _ends: ends }
    }

    #[tokio::test]
    async fn thirty_two_calls_that_hang_stop_only_their_caller() {
        let pool = BlockingPool::new(SIZE);
        let hung = hang(&pool, 32);
        let other = pool.for_caller();
        assert_eq!(other.run(|_| 7).await, 7);
        // The caller itself is served again as soon as its own calls end.
        drop(hung._ends);
        for call in hung.calls {
            call.await.expect("it ends");
        }
        assert_eq!(pool.run(|_| 8).await, 8);
    }

    #[tokio::test]
    async fn callers_whose_calls_hang_use_up_no_turns() {
        let pool = BlockingPool::new(SIZE);
        // As many as may run at once.
        let hung: Vec<Hung> = (0..2).map(|_| hang(&pool.for_caller(), 4)).collect();
        while pool.at_once.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        // It waits until the others are seen to hang, and then runs beside them.
        assert_eq!(pool.for_caller().run(|_| 7).await, 7);
        drop(hung);
    }

    #[tokio::test]
    async fn a_caller_that_leaves_frees_its_turn_at_once_and_what_has_not_begun_never_begins() {
        let pool = BlockingPool::new(PoolSize { per_caller: 1, at_once: 1, threads: 64 });
        let (first, second) = (hang(&pool, 1), hang(&pool, 1));
        while pool.caller.available_permits() > 0 || pool.at_once.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        for call in second.calls {
            call.abort();
            call.await.expect_err("it was aborted before it began");
        }
        for call in first.calls {
            call.abort();
            call.await.expect_err("it was aborted while it hung");
        }
        assert_eq!(pool.at_once.available_permits(), 1);
        assert_eq!(pool.for_caller().run(|_| 7).await, 7);
    }

    #[tokio::test]
    async fn a_caller_has_its_whole_share_and_no_more_than_it() {
        let pool = BlockingPool::new(SIZE);
        // All four must run at the same time for this to end.
        let barrier = Arc::new(Barrier::new(SIZE.per_caller));
        let calls = (0..SIZE.per_caller).map(|_| {
            let barrier = Arc::clone(&barrier);
            pool.run(move |_| barrier.wait().is_leader())
        });
        let leaders = futures_util::future::join_all(calls).await.into_iter().filter(|is_leader| *is_leader);
        assert_eq!(leaders.count(), 1);
        let hung = hang(&pool, SIZE.per_caller + 1);
        while pool.caller.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.threads.available_permits(), SIZE.threads - SIZE.per_caller);
        drop(hung);
    }
}
