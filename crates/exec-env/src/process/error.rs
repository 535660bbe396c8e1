//! How each verb can fail: one small enum a verb.
//!
//! An error is what the caller must act on; what is normal is an outcome and stands with the verbs.

use exec_core::command::BadCommand;
use exec_core::{Exit, ProcessId, SpawnStep, TerminalSize};

use crate::errno::ErrnoText;

/// Why a process was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// No kernel could run it.
    #[error(transparent)]
    BadCommand(#[from] BadCommand),
    /// The name is taken.
    #[error("process {id} already exists: choose another id, or forget the old one first")]
    IdInUse {
        /// The name.
        id: ProcessId,
    },
    /// The kernel said no.
    #[error("cannot start process {id}: {failure}")]
    Spawn {
        /// The name.
        id: ProcessId,
        /// What exactly.
        failure: SpawnFailure,
    },
    /// It was terminated while it was being started.
    #[error("process {id} start was cancelled")]
    Cancelled {
        /// The name.
        id: ProcessId,
    },
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Which step of a start failed, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnFailure {
    /// The step.
    pub step: SpawnStep,
    /// The kernel's number for the reason.
    pub errno: i32,
    /// What the step was about: the program or the folder.
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

/// No process of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown process id {id}")]
pub struct UnknownProcess {
    /// The name.
    pub id: ProcessId,
}

/// Why a log was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The spool could not be read.
    #[error("cannot read the output of process {id}: {error}", error = ErrnoText(*errno))]
    Spool {
        /// The process.
        id: ProcessId,
        /// The kernel's reason.
        errno: i32,
    },
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// More than one write may carry.
    #[error("a write of {found_bytes} bytes is too large: write at most {limit_bytes} at a time")]
    TooLarge {
        /// What came.
        found_bytes: usize,
        /// What is allowed.
        limit_bytes: usize,
    },
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why a terminal was not resized.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// It has pipes.
    #[error("process {id} has no terminal: start it with a tty to resize it")]
    NoTerminal {
        /// The process.
        id: ProcessId,
    },
    /// No cells.
    #[error("terminal size {rows}x{cols} has no cells: rows and cols must be at least 1", rows = size.rows, cols = size.cols)]
    NoCells {
        /// What was asked.
        size: TerminalSize,
    },
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why a signal was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignalError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The kernel refused, as for a program that changed its user.
    #[error("cannot signal process {id}: {error}", error = ErrnoText(*errno))]
    Refused {
        /// The process.
        id: ProcessId,
        /// The kernel's reason.
        errno: i32,
    },
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why a process was not terminated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TerminateError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why waiting was not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The expression does not parse.
    #[error("bad regular expression: {why}")]
    BadRegex {
        /// The parser's words.
        why: String,
    },
    /// The process ended, so what was waited for cannot come any more.
    #[error("process {id} has ended (exit code {code}) before what was waited for came", code = exit.shell_code())]
    Ended {
        /// The process.
        id: ProcessId,
        /// How it ended.
        exit: Exit,
    },
    /// The log could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why there is no list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why a process was not forgotten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The place cannot be reached.
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
