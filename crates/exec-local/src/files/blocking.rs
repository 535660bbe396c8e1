//! Blocking calls: how many may run at once, and how one learns that its caller no longer waits.
//!
//! Every system call on files may block for as long as a disk or a network file system takes, so none runs on the
//! runtime's own threads. Waiters queue in order. Deliberately absent: timeouts, because a call that blocks in the
//! kernel cannot be cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

/// Runs a limited number of blocking calls at once.
#[derive(Clone)]
pub(super) struct BlockingPool {
    permits: Arc<Semaphore>,
}

impl BlockingPool {
    pub(super) fn new(calls: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(calls)) }
    }

    /// Runs `work` on a thread where it may block. If the caller stops waiting, `work` is not interrupted: long work
    /// checks its [`CancelFlag`] where it can stop safely, short work just finishes.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl FnOnce(&CancelFlag) -> T + Send + 'static) -> T {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        let cancel = CancelFlag::default();
        let _when_dropped = CancelOnDrop(cancel.clone());
        // The permit belongs to the work and not to the caller, so abandoned work still counts.
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&cancel)
        });
        match task.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(result) => result,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The runtime is shutting down and will not poll us again.
            Err(Err(_)) => std::future::pending().await,
        }
    }
}

/// Set when nobody waits for the result any more.
#[derive(Clone, Default)]
pub(super) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) struct CancelOnDrop(pub(super) CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}
