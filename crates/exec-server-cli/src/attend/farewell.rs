//! When a run is over.
//!
//! ```text
//!   running ── exited ──► lingering ── closed, or patience over ──► sweeping ── tree gone ──► over
//!                                                                                 └─ and closed, or LAST_WORDS later
//! ```
//!
//! The leader's exit ends a run. What it left in the background may finish a last line (`cmd > >(tee log)` is such a
//! case), then it is ended. With `--wait-all` it may hold the output open for as long as it likes, up to the time
//! limit. Pure: it is told what happened and when.

use std::time::{Duration, Instant};

/// What background processes get to end by themselves: enough to pass on what the leader gave them, too short to be
/// noticed.
const LINGER: Duration = Duration::from_millis(100);

/// A process lets go of its output a moment before it is gone; without this pause, one that has just ended by itself
/// would be counted as ended by us. Paid only where somebody was in the background.
const SETTLE: Duration = Duration::from_millis(100);

/// The tree is gone, but somebody outside of it holds the output open; it gets no more than this.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What is known of the end.
#[derive(Debug)]
pub(crate) struct Farewell {
    wait_all: bool,
    /// The end of all patience, leader or not.
    limit: Option<Instant>,
    exited: Option<Instant>,
    closed: Option<Instant>,
    sweep: Sweep,
    /// The output was still open when the sweep began.
    cut_short: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    NotYet,
    UnderWay,
    Done(Instant),
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Go on; if a moment is given, ask again then.
    GoOn(Option<Instant>),
    /// End what is left of the tree, and tell.
    Sweep,
    /// It is over.
    Leave,
}

impl Farewell {
    pub(crate) fn new(wait_all: bool, limit: Option<Instant>) -> Self {
        Self { wait_all, limit, exited: None, closed: None, sweep: Sweep::NotYet, cut_short: false }
    }

    pub(crate) fn on_exited(&mut self, now: Instant) {
        self.exited.get_or_insert(now);
    }

    pub(crate) fn on_closed(&mut self, now: Instant) {
        self.closed.get_or_insert(now);
    }

    pub(crate) fn on_swept(&mut self, now: Instant) {
        self.sweep = Sweep::Done(now);
    }

    /// Whether the output has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Whether the background was ended while it held the output open.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Says `Sweep` once.
    pub(crate) fn step(&mut self, now: Instant) -> Step {
        // The keeper itself watches the leader's time.
        let Some(exited) = self.exited else { return Step::GoOn(None) };
        match self.sweep {
            Sweep::NotYet => {
                let patience = match self.closed {
                    // Told in one breath: nobody was in the background.
                    Some(closed) if closed == exited => None,
                    Some(closed) => Some(closed + SETTLE),
                    None if self.wait_all => match self.limit {
                        None => return Step::GoOn(None),
                        limit => limit,
                    },
                    None => Some(exited + LINGER),
                };
                if let Some(at) = patience.filter(|at| now < *at) {
                    return Step::GoOn(Some(at));
                }
                self.cut_short = self.closed.is_none();
                self.sweep = Sweep::UnderWay;
                Step::Sweep
            }
            Sweep::UnderWay => Step::GoOn(None),
            Sweep::Done(at) if self.closed.is_some() || now >= at + LAST_WORDS => Step::Leave,
            Sweep::Done(at) => Step::GoOn(Some(at + LAST_WORDS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn exited(wait_all: bool, limit: Option<Duration>) -> (Farewell, Instant) {
        let start = Instant::now();
        let mut farewell = Farewell::new(wait_all, limit.map(|after| start + after));
        assert_eq!(farewell.step(start + 9 * SECOND), Step::GoOn(None), "a leader may take its time");
        farewell.on_exited(start);
        (farewell, start)
    }

    #[test]
    fn an_exit_that_closes_everything_is_swept_and_over_at_once() {
        let (mut farewell, now) = exited(false, None);
        farewell.on_closed(now);
        assert_eq!(farewell.step(now), Step::Sweep);
        assert_eq!(farewell.step(now), Step::GoOn(None));
        farewell.on_swept(now);
        assert_eq!(farewell.step(now), Step::Leave);
    }

    #[test]
    fn the_background_lingers_a_moment_and_is_swept() {
        let (mut farewell, now) = exited(false, None);
        assert_eq!(farewell.step(now), Step::GoOn(Some(now + LINGER)));
        assert_eq!(farewell.step(now + LINGER), Step::Sweep);
        assert!(farewell.is_cut_short());
    }

    #[test]
    fn with_wait_all_the_background_is_waited_for() {
        let (mut farewell, now) = exited(true, None);
        let late = now + 3_600 * SECOND;
        assert_eq!(farewell.step(late), Step::GoOn(None));
        farewell.on_closed(late);
        assert_eq!(farewell.step(late), Step::GoOn(Some(late + SETTLE)));
        assert_eq!(farewell.step(late + SETTLE), Step::Sweep);
        assert!(!farewell.is_cut_short());
    }

    #[test]
    fn the_time_limit_bounds_waiting_for_all() {
        let (mut farewell, now) = exited(true, Some(5 * SECOND));
        assert_eq!(farewell.step(now), Step::GoOn(Some(now + 5 * SECOND)));
        assert_eq!(farewell.step(now + 5 * SECOND), Step::Sweep);
        assert!(farewell.is_cut_short());
    }

    #[test]
    fn an_outsider_that_holds_the_output_does_not_keep_us() {
        let (mut farewell, now) = exited(false, None);
        assert_eq!(farewell.step(now + LINGER), Step::Sweep);
        farewell.on_swept(now + LINGER);
        assert_eq!(farewell.step(now + LINGER), Step::GoOn(Some(now + LINGER + LAST_WORDS)));
        assert_eq!(farewell.step(now + LINGER + LAST_WORDS), Step::Leave);
    }
}
