//! How calls fail, in the words of Connect and of the two REST interfaces. The only file that knows codes and statuses.

use exec_env::files::{FileError, FileReason};
use exec_env::process::{ProcessError, ProcessReason, SpawnStep, Unreachable};
use hyper::StatusCode;

/// A call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ServiceError {
    pub(crate) code: Code,
    pub(crate) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidArgument,
    Unauthenticated,
    PermissionDenied,
    NotFound,
    AlreadyExists,
    FailedPrecondition,
    ResourceExhausted,
    /// The disk is full.
    NoSpace,
    DeadlineExceeded,
    DataLoss,
    Unimplemented,
    Internal,
    Unavailable,
    /// There is no such sandbox, or no more. The SDKs take a 502 for that, and nothing else for it.
    SandboxGone,
}

impl Code {
    /// As Connect calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::FailedPrecondition => "failed_precondition",
            Self::ResourceExhausted | Self::NoSpace => "resource_exhausted",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::DataLoss => "data_loss",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable | Self::SandboxGone => "unavailable",
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::DataLoss | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::SandboxGone => StatusCode::BAD_GATEWAY,
        }
    }
}

impl ServiceError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(crate) fn unimplemented(message: impl Into<String>) -> Self {
        Self::new(Code::Unimplemented, message)
    }

    /// The SDKs look for `was not found`.
    pub(crate) fn sandbox_gone(id: &str) -> Self {
        Self::new(Code::SandboxGone, format!("the sandbox {id:?} was not found"))
    }

    /// As the answer to a unary call of Connect. A proxy of E2B answers for a sandbox that is gone, and not in Connect's shape.
    pub(crate) fn connect_json(&self) -> serde_json::Value {
        match self.code {
            Code::SandboxGone => self.rest_json(),
            code => serde_json::json!({ "code": code.name(), "message": self.message }),
        }
    }

    /// As the last message of a stream of Connect.
    pub(crate) fn end_of_stream_json(&self) -> serde_json::Value {
        serde_json::json!({ "error": { "code": self.code.name(), "message": self.message } })
    }

    pub(crate) fn rest_json(&self) -> serde_json::Value {
        serde_json::json!({ "code": self.code.status().as_u16(), "message": self.message })
    }
}

impl From<FileError> for ServiceError {
    fn from(error: FileError) -> Self {
        let code = match &error.reason {
            FileReason::Os(2) => Code::NotFound,
            // EPERM, EACCES, EROFS
            FileReason::Os(1 | 13 | 30) | FileReason::Forbidden { .. } => Code::PermissionDenied,
            FileReason::Os(17) => Code::AlreadyExists,
            // EXDEV, ENOTDIR, EISDIR, EINVAL, ENAMETOOLONG, ENOTEMPTY, ELOOP
            FileReason::Os(18 | 20 | 21 | 22 | 36 | 39 | 40) => Code::InvalidArgument,
            // ENOSPC, EDQUOT
            FileReason::Os(28 | 122) => Code::NoSpace,
            FileReason::NotAFile
            | FileReason::NotRegular
            | FileReason::TooLarge { .. }
            | FileReason::UserUnavailable { .. } => Code::InvalidArgument,
            FileReason::TooManyEntries { .. } => Code::ResourceExhausted,
            FileReason::WatchLimit(_) | FileReason::TooManyOpenFiles { .. } => Code::ResourceExhausted,
            // EOPNOTSUPP
            FileReason::Os(95) | FileReason::Unsupported { .. } => Code::Unimplemented,
            FileReason::Unreachable { .. } => Code::Unavailable,
            _ => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ProcessError> for ServiceError {
    fn from(error: ProcessError) -> Self {
        let code = match &error.reason {
            ProcessReason::SpawnFailed(failure) if failure.step == SpawnStep::Cwd && failure.errno == 2 => {
                let message = format!("cwd '{}' does not exist", failure.subject.display());
                return Self::invalid(message);
            }
            ProcessReason::SpawnFailed(failure)
                if failure.step == SpawnStep::Cwd || failure.step == SpawnStep::Exec =>
            {
                Code::InvalidArgument
            }
            ProcessReason::BadCommand(_)
            | ProcessReason::NoCells { .. }
            | ProcessReason::NoTerminal
            | ProcessReason::UserUnavailable { .. } => Code::InvalidArgument,
            ProcessReason::WriteTooLarge { .. } => Code::ResourceExhausted,
            ProcessReason::UnknownProcess => Code::NotFound,
            ProcessReason::Forbidden { .. } | ProcessReason::SignalRefused { .. } => Code::PermissionDenied,
            ProcessReason::SandboxUnavailable { .. } | ProcessReason::LimitUnavailable { .. } => {
                Code::FailedPrecondition
            }
            ProcessReason::Unreachable(_) => Code::Unavailable,
            _ => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<Unreachable> for ServiceError {
    fn from(error: Unreachable) -> Self {
        Self::new(Code::Unavailable, error.to_string())
    }
}
