//! Work under way on our own threads, for a language to wait for in its own way.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{Failure, FailureKind, Value, runtime};

/// What a call ends with.
pub type Outcome = Result<Value, Failure>;

/// A call that was begun. It goes on if this is dropped; [`Self::cancel`] ends it.
#[derive(Debug, Clone)]
pub struct Call(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    done: Condvar,
    cancel: CancellationToken,
}

type Notify = Box<dyn FnOnce() + Send>;

/// What a call is to do, not begun yet.
pub(crate) struct Work(Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Outcome> + Send>);

impl Work {
    /// Work that may be dropped at any moment: a cancel drops it.
    pub(crate) fn new(work: impl Future<Output = Outcome> + Send + 'static) -> Self {
        Self::with_cancel(|cancel| async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(Failure::cancelled()),
                outcome = work => outcome,
            }
        })
    }

    /// Work that has to clean up when it is cancelled, and is told.
    pub(crate) fn with_cancel<F>(work: impl FnOnce(CancellationToken) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self(Box::new(|cancel| Box::pin(work(cancel))))
    }
}

enum State {
    UnderWay(Vec<Notify>),
    Done(Outcome),
    Taken,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

impl Call {
    /// Begins the work. When `scope` is cancelled, because the environment is closed, so is the work.
    pub(crate) fn begin(work: Work, scope: &CancellationToken) -> Self {
        let scope = scope.clone();
        let cancel = scope.child_token();
        let shared = Shared { state: Mutex::new(State::UnderWay(Vec::new())), done: Condvar::new(), cancel };
        let call = Self(Arc::new(shared));
        let work = (work.0)(call.0.cancel.clone());
        let finished = call.clone();
        match runtime::handle() {
            // Its owner is the call, which hears of its end in any case.
            Ok(handle) => drop(handle.spawn(async move {
                let outcome = std::panic::AssertUnwindSafe(work).catch_unwind().await;
                let panicked =
                    |_| Err(Failure::new(FailureKind::Other, "exec-server has failed inside: please report it"));
                let outcome = outcome.unwrap_or_else(panicked);
                // What else went wrong then is a consequence.
                finished.finish(outcome.map_err(|failure| match scope.is_cancelled() {
                    true => Failure::closed_meanwhile(),
                    false => failure,
                }));
            })),
            Err(error) => call.finish(Err(Failure::new(FailureKind::Other, format!("cannot make threads: {error}")))),
        }
        call
    }

    /// A call that has failed before it began.
    pub(crate) fn failed(failure: Failure) -> Self {
        let state = Mutex::new(State::Done(Err(failure)));
        Self(Arc::new(Shared { state, done: Condvar::new(), cancel: CancellationToken::new() }))
    }

    /// Asks it to end early. It is done when it has cleaned up.
    pub fn cancel(&self) {
        self.0.cancel.cancel();
    }

    /// Waits until it is done, but not longer than this; answers whether it is.
    pub fn wait_up_to(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.lock();
        while let State::UnderWay(_) = *state {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.0.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Calls `notify` once it is done, on one of our threads, or here and now if it is done already: it must not wait.
    pub fn on_done(&self, notify: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        match &mut *state {
            State::UnderWay(waiting) => waiting.push(Box::new(notify)),
            State::Done(_) | State::Taken => {
                drop(state);
                notify();
            }
        }
    }

    /// What it ended with; `None` while it is under way, and when it was taken before.
    pub fn take(&self) -> Option<Outcome> {
        let mut state = self.lock();
        if let State::UnderWay(_) = *state {
            return None;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(outcome) => Some(outcome),
            State::UnderWay(_) | State::Taken => None,
        }
    }

    /// The same, once it is done, for work on our own threads.
    pub(crate) async fn outcome(&self) -> Option<Outcome> {
        let (tell, told) = oneshot::channel();
        self.on_done(move || {
            // Whoever waited may have been dropped.
            let _ = tell.send(());
        });
        // Every call is done some day, and says so.
        let _ = told.await;
        self.take()
    }

    fn finish(&self, outcome: Outcome) {
        let before = std::mem::replace(&mut *self.lock(), State::Done(outcome));
        self.0.done.notify_all();
        if let State::UnderWay(waiting) = before {
            waiting.into_iter().for_each(|notify| notify());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
