//! How the verbs over processes fail: one error that keeps the verb, the process and the reason.
//!
//! An error is what the caller must act on; what happens in normal use is an outcome, defined beside the verbs.
//! Deliberately absent: the protocol's error codes, which one file of the server maps from [`ProcessReason`].

use std::fmt;
use std::io::Error as IoError;

use exec_core::command::BadCommand;
use exec_core::{Exit, ProcessId, SpawnStep, TerminalSize};
use futures_util::future::BoxFuture;

/// A verb over processes failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessError {
    /// The verb that failed.
    pub verb: ProcessVerb,
    /// The process it was for.
    pub id: ProcessId,
    /// Why it failed.
    pub reason: ProcessReason,
}

/// Why a verb over processes failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessReason {
    /// No kernel could run the command, so it was not tried.
    BadCommand(BadCommand),
    /// Another process has this id.
    IdInUse,
    /// The kernel refused one of the steps of a start.
    SpawnFailed(SpawnFailure),
    /// The machine cannot enforce the sandbox that the command asks for, so it was not started.
    SandboxUnavailable {
        /// What is missing and what would bring it, for a person.
        why: String,
    },
    /// The machine cannot enforce a limit that the command asks for, so it was not started.
    LimitUnavailable {
        /// What is missing and what would bring it, for a person.
        why: String,
    },
    /// The command cannot run as the user that it names.
    UserUnavailable {
        /// Whether there is no such user, or who may choose one, for a person.
        why: String,
    },
    /// Whoever serves the environment does not allow it, so it was not tried.
    Forbidden {
        /// The rule that forbids it.
        rule: String,
        /// What would be allowed, for a person.
        why: String,
    },
    /// The process was terminated while it was being started.
    StartCancelled,
    /// No process has this id.
    UnknownProcess,
    /// The log could not be read.
    SpoolUnreadable {
        /// The kernel's reason.
        errno: i32,
    },
    /// More than one write may carry.
    WriteTooLarge {
        /// How much it was.
        found_bytes: usize,
        /// How much it may be.
        limit_bytes: usize,
    },
    /// The process has pipes, so there is nothing to resize.
    NoTerminal,
    /// A terminal cannot have no rows or no columns.
    NoCells {
        /// What was asked for.
        size: TerminalSize,
    },
    /// The kernel did not send the signal, as for a program that changed its user.
    SignalRefused {
        /// The kernel's reason.
        errno: i32,
    },
    /// The regular expression does not parse, or is too large.
    BadRegex {
        /// The parser's message.
        why: String,
    },
    /// Whoever has the log does not tell when it was printed.
    NoTimes,
    /// The process ended, so what was waited for cannot come any more.
    Ended {
        /// How it ended.
        exit: Exit,
    },
    /// See [`Unreachable`].
    Unreachable(Unreachable),
}

/// A verb of [`super::Processes`] that is addressed to one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the verb of the same name in `Processes`")]
pub enum ProcessVerb {
    Start,
    Read,
    /// Also of what the follower reads later.
    Follow,
    View,
    Screen,
    Write,
    CloseStdin,
    Resize,
    Signal,
    Terminate,
    Wait,
    Forget,
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

/// Nobody answers for the environment any more: its connection was given up, or its keeper is gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the environment cannot be reached: {why}")]
pub struct Unreachable {
    /// What happened, for a person.
    pub why: String,
}

impl ProcessError {
    /// `verb` failed for process `id` because of `reason`.
    pub fn new(verb: ProcessVerb, id: &ProcessId, reason: ProcessReason) -> Self {
        Self { verb, id: id.clone(), reason }
    }
}

impl std::error::Error for ProcessError {}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason.sentence(self.id.as_str()))
    }
}

impl ProcessVerb {
    /// Does `work` for process `id`. The work knows neither verb nor id; if it fails, its reason becomes the verb's error.
    pub fn perform<'a, T: 'a>(
        self,
        id: &'a ProcessId,
        work: impl Future<Output = Result<T, ProcessReason>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, ProcessError>> {
        Box::pin(async move { work.await.map_err(|reason| ProcessError::new(self, id, reason)) })
    }
}

impl ProcessReason {
    /// One word for programs to compare. An end and an environment that is gone have none.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::BadCommand(_) => "badCommand",
            Self::IdInUse => "processExists",
            Self::SpawnFailed(_) => "spawnFailed",
            Self::SandboxUnavailable { .. } => "sandbox",
            Self::LimitUnavailable { .. } => "limits",
            Self::UserUnavailable { .. } => "user",
            Self::Forbidden { .. } => "forbidden",
            Self::StartCancelled => "startCancelled",
            Self::UnknownProcess => "unknownProcess",
            Self::SpoolUnreadable { .. } => "spoolRead",
            Self::WriteTooLarge { .. } => "tooLarge",
            Self::NoTerminal => "noTerminal",
            Self::NoCells { .. } => "noCells",
            Self::SignalRefused { .. } => "signalRefused",
            Self::BadRegex { .. } => "badRegex",
            Self::NoTimes => "noTimes",
            Self::Ended { .. } | Self::Unreachable(_) => return None,
        })
    }

    /// The reason of this name, if the errno and the words of whoever sent it are all it needs beside the name.
    pub fn from_name(name: &str, errno: Option<i32>, why: &str) -> Option<Self> {
        let units = [Self::IdInUse, Self::StartCancelled, Self::UnknownProcess, Self::NoTerminal, Self::NoTimes];
        let with_errno = errno.map(|errno| [Self::SpoolUnreadable { errno }, Self::SignalRefused { errno }]);
        let why = || why.to_owned();
        let with_words = [
            Self::BadRegex { why: why() },
            Self::SandboxUnavailable { why: why() },
            Self::LimitUnavailable { why: why() },
            Self::UserUnavailable { why: why() },
        ];
        let mut known = units.into_iter().chain(with_errno.into_iter().flatten()).chain(with_words);
        known.find(|reason| reason.name() == Some(name))
    }

    /// For a person: what is wrong with the process that its caller calls `id`.
    pub fn sentence(&self, id: &str) -> String {
        match self {
            Self::BadCommand(bad) => bad.to_string(),
            Self::IdInUse => {
                format!("process {id} already exists: choose another id, or forget the old one first")
            }
            Self::SpawnFailed(failure) => format!("cannot start process {id}: {failure}"),
            Self::SandboxUnavailable { why } => format!("cannot start process {id} in its sandbox: {why}"),
            Self::LimitUnavailable { why } => format!("cannot start process {id} within its limits: {why}"),
            Self::UserUnavailable { why } => format!("cannot start process {id} as that user: {why}"),
            Self::Forbidden { why, .. } => why.clone(),
            Self::StartCancelled => format!("process {id} start was cancelled"),
            Self::UnknownProcess => format!("unknown process id {id}"),
            Self::SpoolUnreadable { errno } => {
                format!("cannot read the output of process {id}: {}", IoError::from_raw_os_error(*errno))
            }
            Self::WriteTooLarge { found_bytes, limit_bytes } => {
                format!("a write of {found_bytes} bytes is too large: write at most {limit_bytes} at a time")
            }
            Self::NoTerminal => format!("process {id} has no terminal: start it with a tty"),
            Self::NoCells { size: TerminalSize { rows, cols } } => {
                format!("terminal size {rows}x{cols} has no cells: rows and cols must be at least 1")
            }
            Self::SignalRefused { errno } => {
                format!("cannot signal process {id}: {}", IoError::from_raw_os_error(*errno))
            }
            Self::BadRegex { why } => format!("bad regular expression: {why}"),
            Self::NoTimes => {
                format!("this server does not tell when process {id} printed what: give a number of its log instead")
            }
            Self::Ended { exit } => {
                let code = exit.shell_code();
                format!("process {id} has ended (exit code {code}) before what was waited for came")
            }
            Self::Unreachable(unreachable) => unreachable.to_string(),
        }
    }
}

impl From<BadCommand> for ProcessReason {
    fn from(bad: BadCommand) -> Self {
        Self::BadCommand(bad)
    }
}

impl From<Unreachable> for ProcessReason {
    fn from(unreachable: Unreachable) -> Self {
        Self::Unreachable(unreachable)
    }
}

impl fmt::Display for SpawnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = &self.subject;
        let error = IoError::from_raw_os_error(self.errno);
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
            (SpawnStep::Exec, 110) => write!(
                f,
                "program {subject:?} did not start in time: does the file system of it and of the working directory answer?"
            ),
            (SpawnStep::Exec, _) => write!(f, "cannot execute {subject:?}: {error}"),
            (SpawnStep::Spool, 2) => {
                write!(f, "spool folder {subject:?} does not exist: make it again, or set another")
            }
            (SpawnStep::Spool, 28) => write!(f, "no space left in spool folder {subject:?}: free some, or set another"),
            (SpawnStep::Spool, 30) => write!(f, "spool folder {subject:?} is read-only: set another"),
            (SpawnStep::Spool, _) => write!(f, "cannot make its log in {subject:?}: {error}"),
            (SpawnStep::Pipe, _) => write!(f, "cannot make pipes: {error}: raise the limit of open files"),
            (SpawnStep::Pty, _) => write!(f, "cannot make a terminal: {error}"),
            (SpawnStep::Clone, 16) => {
                write!(
                    f,
                    "cannot make a process: too many starts hang already: is there a file system that does not answer?"
                )
            }
            (SpawnStep::Clone, _) => {
                write!(f, "cannot make a process: {error}: too many processes, or too little memory")
            }
            (SpawnStep::Session, _) => write!(f, "cannot make a session: {error}"),
            (SpawnStep::Limits, _) => write!(f, "cannot limit what it uses: {}: {error}", subject.display()),
            (SpawnStep::Sandbox, _) => write!(f, "cannot confine it: {}: {error}", subject.display()),
            (SpawnStep::User, _) => write!(f, "cannot give it the rights of its user: {error}"),
        }
    }
}
