//! Why a call failed, in the few kinds that languages have exceptions for.

use exec_server::client::{ConnectByUrlError, ConnectFailure};
use exec_server::files::{FileError, FileReason};
use exec_server::http::HttpError;
use exec_server::process::{ProcessError, ProcessReason, Unreachable};

use crate::Value;

/// A call failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Which exception it is.
    pub kind: FailureKind,
    /// What failed and what to do, for a person.
    pub message: String,
    /// The kernel's number, where the kernel has refused or would have.
    pub errno: Option<i32>,
    /// The file or the program it is about.
    pub path: Option<std::path::PathBuf>,
    /// One word for programs to compare.
    pub reason: Option<&'static str>,
    /// What there is in spite of it: the output of a process that took too long.
    pub partial: Value,
}

/// Which exception a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The kernel refused; `errno` says what.
    Os,
    /// The caller asked for something that makes no sense.
    BadArgument,
    /// Whoever serves the environment does not allow it.
    Forbidden,
    /// Nobody answers, or the server says no.
    Connect,
    /// The connection is gone and was given up.
    ConnectionLost,
    /// It took longer than it was given.
    TimedOut,
    /// The environment was closed before.
    Closed,
    /// The caller has stopped waiting.
    Cancelled,
    /// The object was made before a fork, and its threads are in the other process.
    Forked,
    /// The machine, or the server there, lacks something.
    Unsupported,
    /// Anything else.
    Other,
}

impl FailureKind {
    /// One word for the tables of languages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Os => "os",
            Self::BadArgument => "badArgument",
            Self::Forbidden => "forbidden",
            Self::Connect => "connect",
            Self::ConnectionLost => "connectionLost",
            Self::TimedOut => "timedOut",
            Self::Closed => "closed",
            Self::Cancelled => "cancelled",
            Self::Forked => "forked",
            Self::Unsupported => "unsupported",
            Self::Other => "other",
        }
    }
}

const ESRCH: i32 = 3;
const EEXIST: i32 = 17;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
const EPIPE: i32 = 32;
const ELOOP: i32 = 40;

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), errno: None, path: None, reason: None, partial: Value::Null }
    }

    pub(crate) fn bad_argument(name: &str, why: &str) -> Self {
        Self::new(FailureKind::BadArgument, format!("argument `{name}`: {why}"))
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(FailureKind::Cancelled, "the call was cancelled")
    }

    pub(crate) fn closed() -> Self {
        Self::new(FailureKind::Closed, "the environment is closed: open it again")
    }

    pub(crate) fn closed_meanwhile() -> Self {
        Self::new(FailureKind::Closed, "the environment was closed while this was under way")
    }

    pub(crate) fn forked() -> Self {
        let why =
            "this was opened before a fork, and its threads are in the other process: open an environment after it";
        Self::new(FailureKind::Forked, why)
    }

    pub(crate) fn broken_pipe(id: &str) -> Self {
        Self::os(EPIPE, format!("nobody reads the stdin of process {id}"))
    }

    fn os(errno: i32, message: impl Into<String>) -> Self {
        Self { errno: Some(errno), ..Self::new(FailureKind::Os, message) }
    }
}

impl From<ProcessError> for Failure {
    fn from(error: ProcessError) -> Self {
        let message = error.to_string();
        let reason = error.reason.name();
        let mut failure = match &error.reason {
            ProcessReason::BadCommand(_)
            | ProcessReason::WriteTooLarge { .. }
            | ProcessReason::NoCells { .. }
            | ProcessReason::BadRegex { .. } => Self::new(FailureKind::BadArgument, message),
            ProcessReason::SpawnFailed(failed) => {
                Self { path: Some(failed.subject.clone()), ..Self::os(failed.errno, message) }
            }
            ProcessReason::SpoolUnreadable { errno } | ProcessReason::SignalRefused { errno } => {
                Self::os(*errno, message)
            }
            ProcessReason::IdInUse => Self::os(EEXIST, message),
            ProcessReason::UnknownProcess => Self::os(ESRCH, message),
            ProcessReason::Forbidden { .. } => Self::new(FailureKind::Forbidden, message),
            ProcessReason::SandboxUnavailable { .. }
            | ProcessReason::LimitUnavailable { .. }
            | ProcessReason::UserUnavailable { .. }
            | ProcessReason::NoTimes => Self::new(FailureKind::Unsupported, message),
            ProcessReason::NoTerminal | ProcessReason::StartCancelled | ProcessReason::Ended { .. } => {
                Self::new(FailureKind::Other, message)
            }
            ProcessReason::Unreachable(_) => Self::new(FailureKind::ConnectionLost, message),
        };
        failure.reason = reason;
        failure
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let message = error.to_string();
        let failure = match &error.reason {
            FileReason::Unreachable { .. } => Self::new(FailureKind::ConnectionLost, message),
            FileReason::Forbidden { .. } => Self::new(FailureKind::Forbidden, message),
            FileReason::UserUnavailable { .. } | FileReason::Unsupported { .. } => {
                Self::new(FailureKind::Unsupported, message)
            }
            FileReason::BadPattern { .. } | FileReason::WalkLimitsZero | FileReason::WalkLimitsTooLarge => {
                Self::new(FailureKind::BadArgument, message)
            }
            FileReason::NotAFile | FileReason::NotRegular | FileReason::RecursiveRequired => Self::os(EISDIR, message),
            FileReason::TooLarge { .. } => Self::os(EFBIG, message),
            FileReason::SymlinkInPath | FileReason::RecursiveNoFollow => Self::os(ELOOP, message),
            FileReason::CopyIntoItself | FileReason::CopyOntoItself | FileReason::CopySpecial => {
                Self::os(EINVAL, message)
            }
            _ => match error.errno() {
                Some(errno) => Self::os(errno, message),
                None => Self::new(FailureKind::Other, message),
            },
        };
        Self { reason: Some(error.reason.name()), path: Some(error.path), ..failure }
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        let kind = match &error {
            HttpError::Unreachable(_) => FailureKind::ConnectionLost,
            HttpError::TimedOut { .. } | HttpError::NoTimeLeft => FailureKind::TimedOut,
            HttpError::BadMethod { .. }
            | HttpError::BadUrl { .. }
            | HttpError::BadScheme { .. }
            | HttpError::BadHeaderName { .. }
            | HttpError::BadHeaderValue { .. }
            | HttpError::VariableMissing { .. }
            | HttpError::VariableEmpty { .. } => FailureKind::BadArgument,
            HttpError::VariableRefused { .. } => FailureKind::Forbidden,
            _ => FailureKind::Connect,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<Unreachable> for Failure {
    fn from(error: Unreachable) -> Self {
        Self::new(FailureKind::ConnectionLost, error.to_string())
    }
}

impl From<ConnectFailure> for Failure {
    fn from(error: ConnectFailure) -> Self {
        let reason = match &error {
            ConnectFailure::Unreachable { .. } => "unreachable",
            ConnectFailure::Refused { .. } => "refused",
            ConnectFailure::UnknownSession { .. } => "unknownSession",
        };
        Self { reason: Some(reason), ..Self::new(FailureKind::Connect, error.to_string()) }
    }
}

impl From<ConnectByUrlError> for Failure {
    fn from(error: ConnectByUrlError) -> Self {
        match error {
            ConnectByUrlError::Failed(failure) => failure.into(),
            error => Self::bad_argument("url", &error.to_string()),
        }
    }
}
