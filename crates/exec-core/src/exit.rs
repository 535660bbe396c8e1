//! How a process ended, why, and what it used.

use std::time::Duration;

use crate::resource_limits::LimitSet;

/// How the leader of a process tree ended, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    Code(i32),
    Signal {
        number: i32,
        core_dumped: bool,
    },
    /// The keeper died before it could reap the leader, so nobody knows. Never replaced by a guess.
    Lost,
}

/// Who ended a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCause {
    /// The process itself, or somebody else on that machine.
    Own,
    TimedOut,
    /// Its owner.
    Terminated,
    /// The kernel, because memory ran out: that of its limit, or of the machine.
    OutOfMemory,
    /// Its limit of processor time.
    CpuLimit,
    /// Its limit of the size of a file: SIGXFSZ.
    FileSizeLimit,
}

impl ExitCause {
    /// In files and messages of the keeper each stands as its position here, so new ones come last.
    pub const ALL: [ExitCause; 6] =
        [Self::Own, Self::TimedOut, Self::Terminated, Self::OutOfMemory, Self::CpuLimit, Self::FileSizeLimit];
}

/// What the leader used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceUsage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    pub max_rss_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    pub status: ExitStatus,
    pub cause: ExitCause,
    pub usage: ResourceUsage,
    /// Limits that the tree has reached until then, whether or not that ended it. A limit of open files never tells, nor
    /// does one of memory that is a resource limit.
    pub limits_reached: LimitSet,
}

impl Exit {
    /// The exit of a process that nobody could reap.
    pub const LOST: Exit = Exit {
        status: ExitStatus::Lost,
        cause: ExitCause::Own,
        usage: ResourceUsage { user: Duration::ZERO, system: Duration::ZERO, max_rss_bytes: 0 },
        limits_reached: LimitSet::NONE,
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
