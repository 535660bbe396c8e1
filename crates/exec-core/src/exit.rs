//! How a process ended, and why.

use std::time::Duration;

/// What the kernel said of the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It returned this code.
    Code(i32),
    /// A signal ended it.
    Signal {
        /// Its number.
        number: i32,
        /// Whether a core was dumped.
        core_dumped: bool,
    },
    /// Nobody was there to ask: the keeper died before it could reap. Never replaced by a guess.
    Lost,
}

/// Whose doing it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCause {
    /// Its own, or somebody else's on that machine.
    Own,
    /// Its time limit ran out.
    TimedOut,
    /// Its owner terminated it.
    Terminated,
    /// The kernel killed it for want of memory.
    OutOfMemory,
}

/// What the leader used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceUsage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Largest resident set.
    pub max_rss_bytes: u64,
}

/// The end of a process: what, why, and what it cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// What the kernel said.
    pub status: ExitStatus,
    /// Whose doing it was.
    pub cause: ExitCause,
    /// What it used.
    pub usage: ResourceUsage,
}

impl Exit {
    /// An end nobody witnessed.
    pub const LOST: Exit = Exit {
        status: ExitStatus::Lost,
        cause: ExitCause::Own,
        usage: ResourceUsage { user: Duration::ZERO, system: Duration::ZERO, max_rss_bytes: 0 },
    };

    /// The code a shell would show: the child's own, 128+n for a signal, -1 when it is not known.
    pub fn shell_code(&self) -> i32 {
        match self.status {
            ExitStatus::Code(code) => code,
            ExitStatus::Signal { number, .. } => 128 + number,
            ExitStatus::Lost => -1,
        }
    }
}
