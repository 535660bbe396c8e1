//! Our exit codes: the child's own, or the one that shells and `timeout(1)` use for the same case.

use exec_core::{Exit, ExitCause, ExitStatus};
use exec_env::process::{ProcessError, ProcessReason, SpawnStep};
use libc::ENOENT;

/// The command line is wrong. (For `run` and `attach`, whose codes are the child's, it is [`OWN_FAILURE`].)
pub(crate) const USAGE_ERROR: u8 = 2;
/// A command that has no child failed, or found a failure.
pub(crate) const FAILED: u8 = 1;
pub(crate) const TIMED_OUT: u8 = 124;
/// We failed; it says nothing about the child.
pub(crate) const OWN_FAILURE: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Our output is closed: the code of a process that SIGPIPE ended.
pub(crate) const BROKEN_PIPE: u8 = 128 + 13;

pub(crate) fn of_exit(exit: &Exit) -> u8 {
    match (exit.cause, exit.status) {
        (ExitCause::TimedOut, _) => TIMED_OUT,
        (_, ExitStatus::Lost) => OWN_FAILURE,
        // The kernel hands a parent the low eight bits only; both of these fit.
        (_, ExitStatus::Code(_) | ExitStatus::Signal { .. }) => (exit.shell_code() & 0xff) as u8,
    }
}

/// The code for a child that could not be started.
pub(crate) fn of_start(error: &ProcessError) -> u8 {
    match &error.reason {
        ProcessReason::SpawnFailed(failure) if failure.step != SpawnStep::Exec => OWN_FAILURE,
        ProcessReason::SpawnFailed(failure) if failure.errno == ENOENT => NOT_FOUND,
        ProcessReason::SpawnFailed(_) => NOT_EXECUTABLE,
        _ => OWN_FAILURE,
    }
}

/// The code for a signal that was sent to us.
pub(crate) fn of_signal(number: i32) -> u8 {
    ((128 + number) & 0xff) as u8
}

#[cfg(test)]
mod tests {
    use exec_core::ProcessId;
    use exec_env::process::{ProcessVerb, SpawnFailure};

    use super::*;

    fn exit(status: ExitStatus, cause: ExitCause) -> u8 {
        of_exit(&Exit { status, cause, ..Exit::LOST })
    }

    fn refused(step: SpawnStep, errno: i32) -> u8 {
        let id = ProcessId::new("p").expect("a short name");
        let reason = ProcessReason::SpawnFailed(SpawnFailure { step, errno, subject: "x".into() });
        of_start(&ProcessError::new(ProcessVerb::Start, &id, reason))
    }

    #[test]
    fn a_childs_code_passes_and_a_signal_adds_128() {
        assert_eq!(exit(ExitStatus::Code(3), ExitCause::Own), 3);
        assert_eq!(exit(ExitStatus::Signal { number: 15, core_dumped: false }, ExitCause::Own), 143);
        assert_eq!(exit(ExitStatus::Signal { number: 9, core_dumped: false }, ExitCause::OutOfMemory), 137);
    }

    #[test]
    fn a_time_limit_is_124_however_the_child_took_it() {
        assert_eq!(exit(ExitStatus::Code(0), ExitCause::TimedOut), TIMED_OUT);
        assert_eq!(exit(ExitStatus::Signal { number: 9, core_dumped: false }, ExitCause::TimedOut), TIMED_OUT);
    }

    #[test]
    fn an_end_nobody_saw_is_never_a_code_of_the_child() {
        assert_eq!(of_exit(&Exit::LOST), OWN_FAILURE);
    }

    #[test]
    fn a_program_that_cannot_run_is_told_as_shells_do() {
        assert_eq!(refused(SpawnStep::Exec, ENOENT), 127);
        assert_eq!(refused(SpawnStep::Exec, 13), 126);
        assert_eq!(refused(SpawnStep::Cwd, ENOENT), 125);
    }
}
