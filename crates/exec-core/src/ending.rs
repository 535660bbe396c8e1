//! Termination as a timer machine: ask, grace, kill.
//!
//! ```text
//!   at large ── ask(grace) ──► asked (TERM sent) ── grace over ──► killed
//!      │  └─── time limit ──────►┘                                   ▲
//!      └──────── ask(0) ─────────────────────────────────────────────┘
//! ```
//!
//! It is told when; it never looks at a clock. What is sent goes to the whole tree.

use std::time::{Duration, Instant};

use crate::command::TimeLimit;
use crate::exit::Cause;

/// What to send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Send {
    /// SIGTERM (and SIGCONT, so that a stopped process can hear it).
    Term,
    /// SIGKILL, or `cgroup.kill`.
    Kill,
}

/// Where a process stands between life and death.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    stage: Stage,
    limit: Option<(Instant, Duration)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    AtLarge,
    /// `kill_at` is `None` for a grace beyond all time.
    Asked {
        kill_at: Option<Instant>,
        cause: Cause,
    },
    Killed {
        cause: Cause,
    },
}

impl Ending {
    /// A process that started at `now`.
    pub fn new(now: Instant, limit: Option<TimeLimit>) -> Self {
        let limit = limit.and_then(|limit| Some((now.checked_add(limit.after)?, limit.grace)));
        Self { stage: Stage::AtLarge, limit }
    }

    /// The owner wants it to end. Asking again can only hasten it.
    pub fn ask(&mut self, now: Instant, grace: Duration) -> Option<Send> {
        self.begin(now, grace, Cause::Terminated)
    }

    /// The moment [`Self::on_time`] has something to say.
    pub fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::AtLarge => self.limit.map(|(at, _)| at),
            Stage::Asked { kill_at, .. } => kill_at,
            Stage::Killed { .. } => None,
        }
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: Instant) -> Option<Send> {
        if self.deadline().is_none_or(|at| now < at) {
            return None;
        }
        match (self.stage, self.limit) {
            (Stage::AtLarge, Some((_, grace))) => self.begin(now, grace, Cause::TimedOut),
            (Stage::Asked { cause, .. }, _) => {
                self.stage = Stage::Killed { cause };
                Some(Send::Kill)
            }
            _ => None,
        }
    }

    /// The leader has ended; its time limit is met. A termination under way goes on, for the rest of its tree.
    pub fn on_leader_exit(&mut self) {
        self.limit = None;
    }

    /// Whose doing the end was, if it came by now.
    pub fn cause(&self) -> Cause {
        match self.stage {
            Stage::AtLarge => Cause::Own,
            Stage::Asked { cause, .. } | Stage::Killed { cause } => cause,
        }
    }

    /// Whether KILL was sent.
    pub fn killed(&self) -> bool {
        matches!(self.stage, Stage::Killed { .. })
    }

    fn begin(&mut self, now: Instant, grace: Duration, cause: Cause) -> Option<Send> {
        // A time limit is not put off by somebody who gives a longer grace.
        let limit = self.limit.and_then(|(at, grace)| at.max(now).checked_add(grace));
        let kill_at = [now.checked_add(grace), limit].into_iter().flatten().min();
        match self.stage {
            // Asked once more: something may be left of the tree, or have come since.
            Stage::Killed { .. } => Some(Send::Kill),
            Stage::Asked { cause: first, .. } if grace.is_zero() => {
                self.stage = Stage::Killed { cause: first };
                Some(Send::Kill)
            }
            Stage::Asked { kill_at: earlier, cause: first } => {
                let kill_at = [earlier, kill_at].into_iter().flatten().min();
                self.stage = Stage::Asked { kill_at, cause: first };
                None
            }
            Stage::AtLarge if grace.is_zero() => {
                self.stage = Stage::Killed { cause };
                Some(Send::Kill)
            }
            Stage::AtLarge => {
                self.stage = Stage::Asked { kill_at, cause };
                Some(Send::Term)
            }
        }
    }
}
