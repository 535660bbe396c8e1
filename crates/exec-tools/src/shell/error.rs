//! How the shell tools fail: what happened and what to do next, in words that a model can act on.

use exec_env::process::{ProcessError, ProcessReason, SpawnFailure, Unreachable};

use super::{SessionNumber, SessionSummary};
use crate::environments::EnvironmentUnavailable;

/// Arguments and variables that are too long.
const E2BIG: i32 = 7;

/// A shell tool failed. The message is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ShellError {
    /// No process has this number, or no longer.
    #[error("unknown session id {session}: {}{}", known_sessions(known), not_asked(elsewhere))]
    UnknownSession {
        session: SessionNumber,
        known: Vec<SessionNumber>,
        /// Of the environments that could not be asked.
        elsewhere: Vec<ShellError>,
    },
    /// Two environments have a session of this number.
    #[error(
        "session {session} is in several environments ({}): list_sessions with environment_id shows each, and a command that \
         is started anew gets a number of its own",
        environments.join(", ")
    )]
    Ambiguous { session: SessionNumber, environments: Vec<String> },
    /// The environment cannot be used.
    #[error(transparent)]
    EnvironmentUnavailable(#[from] EnvironmentUnavailable),
    /// As many sessions run as are allowed.
    #[error(
        "{} sessions are running or have left something running, which is the most: end one with kill_session first: {}",
        running.len(),
        one_line_each(running)
    )]
    TooManySessions { running: Vec<SessionSummary> },
    /// Its stdin was never open, or is closed.
    #[error(
        "stdin is closed for session {session}: rerun exec_command with stdin=true (a pipe) or tty=true (a terminal) to keep it \
         open; chars=\"\\u0003\" interrupts it, empty chars only look"
    )]
    StdinClosed { session: SessionNumber },
    /// The server died while it wrote; nobody knows how much arrived.
    #[error("nobody knows whether session {session} received the input: look at its output before you write it again")]
    InputInDoubt { session: SessionNumber },
    /// What was typed before failed after its call had returned.
    #[error("nothing of this was typed, because {}", input_failed(why))]
    InputBeforeFailed { session: SessionNumber, why: Box<ShellError> },
    /// It has not read what was typed before.
    #[error(
        "session {session} has not read what was typed before, so nothing of this was typed: look at it with empty chars, \
         interrupt it with chars=\"\\u0003\", or end it with kill_session"
    )]
    InputWaits { session: SessionNumber },
    /// It has ended, so it cannot be written to or signalled.
    #[error("session {session} has ended (exit code {exit_code}): start another with exec_command")]
    Ended { session: SessionNumber, exit_code: i32 },
    /// It does not run in the sandbox of its environment, so whoever may type into it may do more than the environment permits.
    #[error(
        "session {session} does not run in the sandbox that you work in: you can look at it and end it, but not type into it"
    )]
    OutsideSandbox { session: SessionNumber },
    /// The environment refused.
    #[error("{what}")]
    Refused { what: String },
    /// Nobody answers for the environment.
    #[error("{0}; the command may still run: try again, or see list_sessions")]
    Unreachable(#[from] Unreachable),
}

impl ShellError {
    /// What a failed verb means for the caller of a session.
    pub(super) fn of_session(session: SessionNumber, error: ProcessError) -> Self {
        match error.reason {
            ProcessReason::UnknownProcess => Self::UnknownSession { session, known: Vec::new(), elsewhere: Vec::new() },
            ProcessReason::Unreachable(unreachable) => Self::Unreachable(unreachable),
            reason => Self::Refused { what: reason.sentence(&session.to_string()) },
        }
    }

    /// An environment did not answer, as far as that concerns nothing that runs there.
    pub(super) fn away(id: &str, unreachable: Unreachable) -> Self {
        Self::EnvironmentUnavailable(EnvironmentUnavailable::Unreachable { id: id.to_owned(), why: unreachable.why })
    }

    /// What a failed start means.
    pub(super) fn of_start(error: ProcessError) -> Self {
        match error.reason {
            ProcessReason::Unreachable(unreachable) => Self::Unreachable(unreachable),
            ProcessReason::SpawnFailed(SpawnFailure { errno: E2BIG, .. }) => {
                let what = "the command is too long for the kernel: write it into a file with write_file, and run that";
                Self::Refused { what: what.to_owned() }
            }
            ProcessReason::SpawnFailed(failure) => {
                Self::Refused { what: format!("cannot start the command: {failure}") }
            }
            reason => Self::Refused { what: reason.sentence(error.id.as_str()) },
        }
    }
}

/// What to tell about input that failed after its call had returned.
pub fn input_failed(why: &ShellError) -> String {
    format!("what was typed before failed, and some of it or all may not have arrived: {why}")
}

fn known_sessions(known: &[SessionNumber]) -> String {
    if known.is_empty() {
        return "it has ended long ago or never was; list_sessions shows those there are".to_owned();
    }
    let known: Vec<String> = known.iter().map(ToString::to_string).collect();
    format!("there are {}", known.join(", "))
}

fn not_asked(failures: &[ShellError]) -> String {
    failures.iter().map(|failure| format!("; it may be elsewhere: {failure}")).collect()
}

fn one_line_each(sessions: &[SessionSummary]) -> String {
    let lines = sessions.iter().map(|session| format!("\n{} {}", session.session, session.command));
    lines.collect()
}
