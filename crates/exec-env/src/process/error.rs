//! How each verb over processes can fail: one enum per verb.
//!
//! An error is what the caller must act on; what happens in normal use is an outcome, defined beside the verbs.

#![allow(missing_docs, reason = "fields of variants: their names and the message beside them say it")]

use exec_core::command::BadCommand;
use exec_core::{Exit, ProcessId, SpawnStep, TerminalSize};

use crate::errno::ErrnoText;

/// Why a process was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// No kernel could run it, so it was not tried.
    #[error(transparent)]
    BadCommand(#[from] BadCommand),
    /// Another process has this id.
    #[error("process {id} already exists: choose another id, or forget the old one first")]
    IdInUse { id: ProcessId },
    /// The kernel refused one of the steps.
    #[error("cannot start process {id}: {failure}")]
    Spawn { id: ProcessId, failure: SpawnFailure },
    /// It was terminated while it was being started.
    #[error("process {id} start was cancelled")]
    Cancelled { id: ProcessId },
    /// See [`Unreachable`].
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Which step of a start failed, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnFailure {
    /// The step that failed.
    pub step: SpawnStep,
    /// The kernel's reason.
    pub errno: i32,
    /// What the step worked on: the program or a directory.
    pub subject: std::path::PathBuf,
}

impl std::fmt::Display for SpawnFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let subject = &self.subject;
        let error = ErrnoText(self.errno);
        match (self.step, self.errno) {
            (SpawnStep::Cwd, 2) => write!(f, "working directory {subject:?} does not exist"),
            (SpawnStep::Cwd, 20) => write!(f, "working directory {subject:?} is not a directory"),
            (SpawnStep::Cwd, _) => write!(f, "cannot enter working directory {subject:?}: {error}"),
            (SpawnStep::Exec, 2) => {
                write!(f, "program {subject:?} was not found: give its full path, or a PATH that has it")
            }
            (SpawnStep::Exec, 13) => {
                write!(f, "program {subject:?} is not executable: check its mode, and that it is a file")
            }
            (SpawnStep::Exec, 8) => {
                write!(f, "program {subject:?} is not in an executable format: does it lack a #! line?")
            }
            (SpawnStep::Exec, 7) => write!(f, "arguments and environment of {subject:?} are too long for the kernel"),
            (SpawnStep::Exec, _) => write!(f, "cannot execute {subject:?}: {error}"),
            (SpawnStep::Spool, 2) => {
                write!(f, "spool folder {subject:?} does not exist: make it again, or set another")
            }
            (SpawnStep::Spool, 28) => write!(f, "no space left in spool folder {subject:?}: free some, or set another"),
            (SpawnStep::Spool, 30) => write!(f, "spool folder {subject:?} is read-only: set another"),
            (SpawnStep::Spool, _) => write!(f, "cannot make its log in {subject:?}: {error}"),
            (SpawnStep::Pipe, _) => write!(f, "cannot make pipes: {error}: raise the limit of open files"),
            (SpawnStep::Pty, _) => write!(f, "cannot make a terminal: {error}"),
            (SpawnStep::Clone, _) => {
                write!(f, "cannot make a process: {error}: too many processes, or too little memory")
            }
            (SpawnStep::Session, _) => write!(f, "cannot make a session: {error}"),
        }
    }
}

/// Nobody answers for the environment any more: its connection was given up, or its keeper is gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the environment cannot be reached: {why}")]
pub struct Unreachable {
    /// What happened, for a person.
    pub why: String,
}

/// No process has this id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown process id {id}")]
pub struct UnknownProcess {
    /// The id that was asked for.
    pub id: ProcessId,
}

/// Why a log was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// See [`UnknownProcess`].
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The spool could not be read.
    #[error("cannot read the output of process {id}: {error}", error = ErrnoText(*errno))]
    Spool { id: ProcessId, errno: i32 },
    /// See [`Unreachable`].
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// See [`UnknownProcess`].
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// More than one write may carry.
    #[error("a write of {found_bytes} bytes is too large: write at most {limit_bytes} at a time")]
    TooLarge { found_bytes: usize, limit_bytes: usize },
    /// See [`Unreachable`].
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why a terminal was not resized.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// See [`UnknownProcess`].
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The process has pipes.
    #[error("process {id} has no terminal: start it with a tty to resize it")]
    NoTerminal { id: ProcessId },
    /// No rows or no columns.
    #[error("terminal size {rows}x{cols} has no cells: rows and cols must be at least 1", rows = size.rows, cols = size.cols)]
    NoCells { size: TerminalSize },
    /// See [`Unreachable`].
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why a signal was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignalError {
    /// See [`UnknownProcess`].
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The kernel refused it, as it does for a program that changed its user.
    #[error("cannot signal process {id}: {error}", error = ErrnoText(*errno))]
    Refused { id: ProcessId, errno: i32 },
    /// See [`Unreachable`].
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why a process was not terminated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TerminateError {
    /// See [`UnknownProcess`].
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// See [`Unreachable`].
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why waiting was not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// See [`UnknownProcess`].
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The expression does not parse.
    #[error("bad regular expression: {why}")]
    BadRegex { why: String },
    /// The process ended, so what was waited for cannot come any more.
    #[error("process {id} has ended (exit code {code}) before what was waited for came", code = exit.shell_code())]
    Ended { id: ProcessId, exit: Exit },
    /// The log could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// See [`Unreachable`].
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why there is no list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// See [`Unreachable`].
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why a process was not forgotten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// See [`UnknownProcess`].
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// See [`Unreachable`].
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

impl From<ReadError> for WaitError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unknown(unknown) => Self::Unknown(unknown),
            ReadError::Unreachable(unreachable) => Self::Unreachable(unreachable),
            spool @ ReadError::Spool { .. } => Self::Read(spool),
        }
    }
}
