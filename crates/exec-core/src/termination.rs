//! When a process tree gets SIGTERM and SIGKILL, by its owner's request or by one of its limits.
//!
//! ```text
//!   running ── request(grace) ──► SIGTERM sent ── grace over ──► killed
//!      │  └─── time limit ──────►┘                                 ▲
//!      └──────── request(0), limit of processor time ──────────────┘
//! ```
//!
//! The caller passes the time; nothing here reads a clock.

use std::time::{Duration, Instant};

use crate::command::TimeLimit;
use crate::exit::ExitCause;

/// What to send to the whole tree now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminationSignal {
    /// SIGTERM, and SIGCONT so that a stopped process can handle it.
    Term,
    /// SIGKILL, or `cgroup.kill`.
    Kill,
}

#[derive(Debug, Clone, Copy)]
pub struct Termination {
    stage: Stage,
    limit: Option<(Instant, Duration)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// `kill_at` is `None` if the grace ends later than a clock can say.
    TermSent {
        kill_at: Option<Instant>,
        cause: ExitCause,
    },
    Killed {
        cause: ExitCause,
    },
}

impl Termination {
    /// A process that started at `now`.
    pub fn new(now: Instant, limit: Option<TimeLimit>) -> Self {
        let limit = limit.and_then(|limit| Some((now.checked_add(limit.after)?, limit.grace)));
        Self { stage: Stage::Running, limit }
    }

    /// The owner wants it to end. Another request can only make that earlier.
    pub fn request(&mut self, now: Instant, grace: Duration) -> Option<TerminationSignal> {
        self.begin(now, grace, ExitCause::Terminated)
    }

    /// The tree has used up its processor time. Nobody is asked first: whoever handles the question uses more of it.
    pub fn on_cpu_limit(&mut self, now: Instant) -> Option<TerminationSignal> {
        self.begin(now, Duration::ZERO, ExitCause::CpuLimit)
    }

    /// When [`Self::on_time`] must be called.
    pub fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Running => self.limit.map(|(at, _)| at),
            Stage::TermSent { kill_at, .. } => kill_at,
            Stage::Killed { .. } => None,
        }
    }

    pub fn on_time(&mut self, now: Instant) -> Option<TerminationSignal> {
        if self.deadline().is_none_or(|at| now < at) {
            return None;
        }
        match (self.stage, self.limit) {
            (Stage::Running, Some((_, grace))) => self.begin(now, grace, ExitCause::TimedOut),
            (Stage::TermSent { cause, .. }, _) => {
                self.stage = Stage::Killed { cause };
                Some(TerminationSignal::Kill)
            }
            _ => None,
        }
    }

    /// The leader has ended within its time limit. A termination that has begun goes on, for the rest of the tree.
    pub fn on_leader_exit(&mut self) {
        self.limit = None;
    }

    /// The cause of the leader's exit, if it exits now.
    pub fn cause(&self) -> ExitCause {
        match self.stage {
            Stage::Running => ExitCause::Own,
            Stage::TermSent { cause, .. } | Stage::Killed { cause } => cause,
        }
    }

    pub fn killed(&self) -> bool {
        matches!(self.stage, Stage::Killed { .. })
    }

    fn begin(&mut self, now: Instant, grace: Duration, cause: ExitCause) -> Option<TerminationSignal> {
        // A longer grace does not postpone the time limit.
        let limit = self.limit.and_then(|(at, grace)| at.max(now).checked_add(grace));
        let kill_at = [now.checked_add(grace), limit].into_iter().flatten().min();
        match self.stage {
            // Killed again: something may be left of the tree, or have been forked since.
            Stage::Killed { .. } => Some(TerminationSignal::Kill),
            Stage::TermSent { cause: first, .. } if grace.is_zero() => {
                self.stage = Stage::Killed { cause: first };
                Some(TerminationSignal::Kill)
            }
            Stage::TermSent { kill_at: earlier, cause: first } => {
                let kill_at = [earlier, kill_at].into_iter().flatten().min();
                self.stage = Stage::TermSent { kill_at, cause: first };
                None
            }
            Stage::Running if grace.is_zero() => {
                self.stage = Stage::Killed { cause };
                Some(TerminationSignal::Kill)
            }
            Stage::Running => {
                self.stage = Stage::TermSent { kill_at, cause };
                Some(TerminationSignal::Term)
            }
        }
    }
}
