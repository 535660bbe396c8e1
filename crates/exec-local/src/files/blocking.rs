//! The gate to blocking calls: how many may run at once, and how one learns that nobody waits for it any more.
//!
//! Every system call on files may block for as long as a disk or a network file system likes, so none runs on the
//! runtime's own threads. Waiters queue in order. Deliberately absent: time limits; a call the kernel holds cannot be
//! taken back, only left alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

/// So many blocking calls at once, and no more.
#[derive(Clone)]
pub(super) struct BlockingPool {
    permits: Arc<Semaphore>,
}

impl BlockingPool {
    pub(super) fn new(calls: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(calls)) }
    }

    /// Runs `work` on a thread where it may block. If the caller stops waiting, `work` goes on to a place where it can
    /// end well: long work asks its [`CancelFlag`], short work just finishes.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl FnOnce(&CancelFlag) -> T + Send + 'static) -> T {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        let cancel = CancelFlag::default();
        let _when_dropped = CancelOnDrop(cancel.clone());
        // The permit travels with the work, not with the waiter: abandoned work still counts.
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&cancel)
        });
        match task.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(result) => result,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The runtime is shutting down; nobody will poll us again.
            Err(Err(_)) => std::future::pending().await,
        }
    }
}

/// Whether anybody still waits for the result.
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

/// Sets its [`CancelFlag`] when it goes out of scope.
pub(super) struct CancelOnDrop(pub(super) CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}
