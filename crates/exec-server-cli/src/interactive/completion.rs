//! The rules for when a run is over.
//!
//! ```text
//!   running ── exited ──► lingering ── closed, or waited enough ──► terminating the tree ── done ──► finished
//!                                                                     └─ and closed, or CLOSE_TIMEOUT later
//! ```
//!
//! The leader's exit ends a run. Its background processes may write what is left (as in `cmd > >(tee log)`), then they are
//! ended. With `--wait-all` they may keep the output open for as long as they like, up to the time limit. Pure: it is told
//! what happened and when.

use std::time::{Duration, Instant};

/// How long background processes may take to end by themselves: enough to pass on what the leader gave them, too short to
/// be noticed.
const LINGER: Duration = Duration::from_millis(100);

/// A process closes its output a moment before it is gone. Without this pause, one that has just ended by itself would be
/// counted as ended by us. It is waited only if there was a background process.
const SETTLE: Duration = Duration::from_millis(100);

/// How long we wait for the end of the output when the tree is gone, but a process outside it holds the output open.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Completion {
    wait_all: bool,
    /// Nothing is waited for beyond this.
    limit: Option<Instant>,
    exited: Option<Instant>,
    closed: Option<Instant>,
    cleanup: Cleanup,
    /// The output was still open when the cleanup began.
    cut_short: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleanup {
    NotStarted,
    Running,
    Done(Instant),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompletionStep {
    /// Go on, and ask again at this time at the latest.
    Wait(Option<Instant>),
    /// End what is left of the tree, then call `on_terminated`.
    Terminate,
    Finish,
}

impl Completion {
    pub(crate) fn new(wait_all: bool, limit: Option<Instant>) -> Self {
        Self { wait_all, limit, exited: None, closed: None, cleanup: Cleanup::NotStarted, cut_short: false }
    }

    pub(crate) fn on_exited(&mut self, now: Instant) {
        self.exited.get_or_insert(now);
    }

    pub(crate) fn on_closed(&mut self, now: Instant) {
        self.closed.get_or_insert(now);
    }

    pub(crate) fn on_terminated(&mut self, now: Instant) {
        self.cleanup = Cleanup::Done(now);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Whether background processes were ended while they held the output open.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Returns `Terminate` once.
    pub(crate) fn next_step(&mut self, now: Instant) -> CompletionStep {
        // The time limit of the leader is enforced by the keeper.
        let Some(exited) = self.exited else { return CompletionStep::Wait(None) };
        match self.cleanup {
            Cleanup::NotStarted => {
                let wait_until = match self.closed {
                    // Both came in one page: there was no background process.
                    Some(closed) if closed == exited => None,
                    Some(closed) => Some(closed + SETTLE),
                    None if self.wait_all => match self.limit {
                        None => return CompletionStep::Wait(None),
                        limit => limit,
                    },
                    None => Some(exited + LINGER),
                };
                if let Some(at) = wait_until.filter(|at| now < *at) {
                    return CompletionStep::Wait(Some(at));
                }
                self.cut_short = self.closed.is_none();
                self.cleanup = Cleanup::Running;
                CompletionStep::Terminate
            }
            Cleanup::Running => CompletionStep::Wait(None),
            Cleanup::Done(at) if self.closed.is_some() || now >= at + CLOSE_TIMEOUT => CompletionStep::Finish,
            Cleanup::Done(at) => CompletionStep::Wait(Some(at + CLOSE_TIMEOUT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn exited(wait_all: bool, limit: Option<Duration>) -> (Completion, Instant) {
        let start = Instant::now();
        let mut completion = Completion::new(wait_all, limit.map(|after| start + after));
        assert_eq!(completion.next_step(start + 9 * SECOND), CompletionStep::Wait(None), "a leader may take its time");
        completion.on_exited(start);
        (completion, start)
    }

    #[test]
    fn an_exit_that_closes_everything_is_cleaned_up_and_over_at_once() {
        let (mut completion, now) = exited(false, None);
        completion.on_closed(now);
        assert_eq!(completion.next_step(now), CompletionStep::Terminate);
        assert_eq!(completion.next_step(now), CompletionStep::Wait(None));
        completion.on_terminated(now);
        assert_eq!(completion.next_step(now), CompletionStep::Finish);
    }

    #[test]
    fn the_background_lingers_a_moment_and_is_ended() {
        let (mut completion, now) = exited(false, None);
        assert_eq!(completion.next_step(now), CompletionStep::Wait(Some(now + LINGER)));
        assert_eq!(completion.next_step(now + LINGER), CompletionStep::Terminate);
        assert!(completion.is_cut_short());
    }

    #[test]
    fn with_wait_all_the_background_is_waited_for() {
        let (mut completion, now) = exited(true, None);
        let late = now + 3_600 * SECOND;
        assert_eq!(completion.next_step(late), CompletionStep::Wait(None));
        completion.on_closed(late);
        assert_eq!(completion.next_step(late), CompletionStep::Wait(Some(late + SETTLE)));
        assert_eq!(completion.next_step(late + SETTLE), CompletionStep::Terminate);
        assert!(!completion.is_cut_short());
    }

    #[test]
    fn the_time_limit_bounds_waiting_for_all() {
        let (mut completion, now) = exited(true, Some(5 * SECOND));
        assert_eq!(completion.next_step(now), CompletionStep::Wait(Some(now + 5 * SECOND)));
        assert_eq!(completion.next_step(now + 5 * SECOND), CompletionStep::Terminate);
        assert!(completion.is_cut_short());
    }

    #[test]
    fn an_outsider_that_holds_the_output_does_not_keep_us() {
        let (mut completion, now) = exited(false, None);
        assert_eq!(completion.next_step(now + LINGER), CompletionStep::Terminate);
        completion.on_terminated(now + LINGER);
        assert_eq!(completion.next_step(now + LINGER), CompletionStep::Wait(Some(now + LINGER + CLOSE_TIMEOUT)));
        assert_eq!(completion.next_step(now + LINGER + CLOSE_TIMEOUT), CompletionStep::Finish);
    }
}
