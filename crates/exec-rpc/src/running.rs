//! Processes that have not exited: how many there are, for a ceiling that counts them, and a task for each that waits for
//! its exit.
//!
//! Without such a ceiling and without an audit there is nothing to wait for, and no task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;

use crate::ceiling::{ProcessLimits, Violation, too_many_processes};

/// How many processes have not exited.
#[derive(Debug, Default)]
pub(crate) struct RunningCounts {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    in_all: usize,
    /// By the session's id; none is zero.
    by_session: HashMap<String, usize>,
}

/// One process that is counted, from before its start until its exit.
#[derive(Debug)]
pub(crate) struct CountedProcess {
    counts: Arc<RunningCounts>,
    session: String,
}

impl RunningCounts {
    /// Counts one more, unless it would be one too many. Two starts at once cannot both take the last place.
    pub(crate) fn count(self: &Arc<Self>, session: &str, limits: ProcessLimits) -> Result<CountedProcess, Violation> {
        let mut counts = self.lock();
        let of_session = counts.by_session.get(session).copied().unwrap_or(0);
        if let Some(most) = limits.per_session.filter(|most| of_session >= *most) {
            return Err(too_many_processes("processesPerSession", most));
        }
        if let Some(most) = limits.in_all.filter(|most| counts.in_all >= *most) {
            return Err(too_many_processes("processes", most));
        }
        counts.in_all += 1;
        counts.by_session.insert(session.to_owned(), of_session + 1);
        Ok(CountedProcess { counts: Arc::clone(self), session: session.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedProcess {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.in_all -= 1;
        if let Some(of_session) = counts.by_session.get_mut(&self.session) {
            *of_session -= 1;
            if *of_session == 0 {
                counts.by_session.remove(&self.session);
            }
        }
    }
}

/// The tasks that wait for exits, each on the worker on which it was spawned.
#[derive(Debug, Default)]
pub(crate) struct ExitWaits {
    tasks: Mutex<JoinSet<()>>,
}

impl ExitWaits {
    pub(crate) fn spawn(&self, wait: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.lock();
        // Those that have ended leave their results behind, which nobody wants.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(wait);
    }

    /// Waits until all have ended.
    pub(crate) async fn finish(&self) {
        let mut tasks = std::mem::take(&mut *self.lock());
        while tasks.join_next().await.is_some() {}
    }
    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_counted_until_it_is_dropped_by_session_and_in_all() {
        let counts = Arc::new(RunningCounts::default());
        let limits = ProcessLimits { per_session: Some(2), in_all: Some(3) };
        let taken: Vec<_> = ["a", "a", "b"].iter().map(|session| counts.count(session, limits)).collect();
        assert!(taken.iter().all(Result::is_ok));
        let refused = |session| counts.count(session, limits).err().map(|violation| violation.rule);
        assert_eq!(refused("a").as_deref(), Some("server/processesPerSession"));
        assert_eq!(refused("b").as_deref(), Some("server/processes"));
        drop(taken);
        assert!(counts.lock().by_session.is_empty() && counts.lock().in_all == 0);
        assert_eq!(refused("a"), None);
    }
}
