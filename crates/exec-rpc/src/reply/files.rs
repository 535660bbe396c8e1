//! The part of [`reply`](super) that speaks of files, handles and HTTP.
//!
//! Not found is -32004; what the caller could have known, and what is forbidden to the server, is -32600; the rest is
//! -32603. `data` carries what a client needs to rebuild the very error: the kind, the errno, the path.

use exec_env::files::{FileError, FileReason};
use exec_env::http::HttpError;
use exec_wire::error::{ErrorData, RpcError, code, kind};
use exec_wire::limits::OPEN_HANDLES;
use exec_wire::path_uri::ForeignPath;

use crate::convert;
use crate::resources::{OpenHandleError, ReserveError};

const ENOENT: i32 = 2;
const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;

/// A verb of files failed.
pub(crate) fn file_error(error: &FileError) -> RpcError {
    RpcError::new(code_of(&error.reason), error.to_string()).with_data(file_data(error))
}

/// The same, where it is part of an answer.
pub(crate) fn file_data(error: &FileError) -> ErrorData {
    let detail = match &error.reason {
        FileReason::TooLarge { limit_bytes } => Some(limit_bytes.to_string()),
        FileReason::TooManyEntries { found } => Some(found.to_string()),
        FileReason::Changed { present } => present.map(|hash| hash.to_string()),
        FileReason::BadPattern { why } | FileReason::Unreachable { why } => Some(why.clone()),
        _ => None,
    };
    ErrorData { errno: error.errno(), path: convert::uri(&error.path), detail, ..ErrorData::new(error.reason.name()) }
}

fn code_of(reason: &FileReason) -> i64 {
    match reason {
        FileReason::Os(ENOENT) => code::NOT_FOUND,
        FileReason::Os(EPERM | EACCES | EINVAL) => code::INVALID_REQUEST,
        FileReason::Os(_)
        | FileReason::RecursiveNoFollow
        | FileReason::TooManyEntries { .. }
        | FileReason::WatchLimit(_)
        | FileReason::Unreachable { .. } => code::INTERNAL,
        FileReason::NotAFile
        | FileReason::NotRegular
        | FileReason::TooLarge { .. }
        | FileReason::SymlinkInPath
        | FileReason::RecursiveRequired
        | FileReason::CopyIntoItself
        | FileReason::CopyOntoItself
        | FileReason::CopySpecial
        | FileReason::WalkLimitsTooLarge
        | FileReason::WalkLimitsZero
        | FileReason::ReadBlockLength
        | FileReason::WriteBlockLength
        | FileReason::WriteRange
        | FileReason::Changed { .. } => code::INVALID_REQUEST,
        FileReason::BadPattern { .. } => code::INVALID_PARAMS,
    }
}

pub(crate) fn foreign_path(foreign: &ForeignPath) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, foreign.to_string())
}

/// A path that has a name on the wire and none in any file system.
pub(crate) fn nul_in_path() -> RpcError {
    RpcError::new(code::INVALID_REQUEST, "file name contained an unexpected NUL byte")
}

pub(crate) fn foreign_sandbox_path(foreign: &ForeignPath) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("invalid sandbox permission path URI: {foreign}"))
}

pub(crate) fn sandbox_without_cwd() -> RpcError {
    RpcError::new(code::INVALID_PARAMS, "file system sandbox context with dynamic permissions requires cwd")
}

pub(crate) fn file_sandbox_not_enforceable() -> RpcError {
    RpcError::new(code::INVALID_REQUEST, "filesystem sandbox cannot be enforced on this executor")
        .with_data(ErrorData::new(kind::SANDBOX))
}

pub(crate) fn bad_base64(why: impl std::fmt::Display) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("fs/writeFile requires valid base64 dataBase64: {why}"))
}

pub(crate) fn file_too_large(bytes: u64) -> RpcError {
    let text =
        format!("file of {bytes} bytes does not fit one answer: read it in blocks (fs/open, fs/readBlock, fs/close)");
    RpcError::new(code::INVALID_REQUEST, text).with_data(ErrorData::new(kind::TOO_LARGE))
}

pub(crate) fn handle_refused(id: &str, refusal: OpenHandleError) -> RpcError {
    let text = match refusal {
        OpenHandleError::IdTooLong => "file handle ID must not exceed 32 bytes".to_owned(),
        OpenHandleError::Exists => format!("file handle `{id}` already exists"),
        OpenHandleError::TooMany => format!("at most {OPEN_HANDLES} file handles may be open per connection"),
    };
    RpcError::new(code::INVALID_REQUEST, text)
}

pub(crate) fn unknown_handle(id: &str) -> RpcError {
    RpcError::new(code::NOT_FOUND, format!("unknown file handle `{id}`"))
        .with_data(ErrorData::new(kind::UNKNOWN_HANDLE))
}

/// `what` is the member that names the thing, `things` what there are too many of.
pub(crate) fn source_refused(what: &str, id: &str, things: &str, refusal: ReserveError) -> RpcError {
    match refusal {
        ReserveError::Taken => RpcError::new(code::INVALID_REQUEST, format!("{what} already exists: {id}")),
        ReserveError::Full { most } => super::busy(format!("at most {most} {things} may run per connection")),
    }
}

pub(crate) fn body_refused(id: &str, refusal: ReserveError) -> RpcError {
    match refusal {
        ReserveError::Taken => RpcError::new(
            code::INVALID_PARAMS,
            format!("http/request streamResponse requestId `{id}` is already active"),
        ),
        ReserveError::Full { most } => super::busy(format!("at most {most} response bodies may stream per connection")),
    }
}

pub(crate) fn body_too_large(limit_bytes: usize) -> RpcError {
    let text = format!(
        "failed to read http/request response body: it is larger than {limit_bytes} bytes; ask for it with streamResponse"
    );
    RpcError::new(code::INTERNAL, text).with_data(ErrorData::new(kind::TOO_LARGE))
}

/// A request did not work out. What was asked is the caller's to put right; the rest happened here.
pub(crate) fn http_error(error: &HttpError) -> RpcError {
    let (code, kind) = match error {
        HttpError::BadMethod { .. } => (code::INVALID_PARAMS, "badMethod"),
        HttpError::BadUrl { .. } => (code::INVALID_PARAMS, "badUrl"),
        HttpError::BadScheme { .. } => (code::INVALID_PARAMS, "badScheme"),
        HttpError::BadHeaderName { .. } => (code::INVALID_PARAMS, "badHeaderName"),
        HttpError::BadHeaderValue { .. } => (code::INVALID_PARAMS, "badHeaderValue"),
        HttpError::VariableMissing { .. } => (code::INVALID_PARAMS, "variableMissing"),
        HttpError::VariableEmpty { .. } => (code::INVALID_PARAMS, "variableEmpty"),
        HttpError::VariableRefused { .. } => (code::INVALID_PARAMS, "variableRefused"),
        HttpError::TimedOut { .. } => (code::INTERNAL, "httpTimedOut"),
        HttpError::Failed { .. } => (code::INTERNAL, "httpFailed"),
        HttpError::Body { .. } => (code::INTERNAL, "httpBody"),
        HttpError::Unreachable(_) => (code::INTERNAL, "unreachable"),
    };
    let detail = match error {
        HttpError::BadMethod { why }
        | HttpError::BadUrl { why }
        | HttpError::BadHeaderName { why }
        | HttpError::BadHeaderValue { why, .. }
        | HttpError::TimedOut { why }
        | HttpError::Failed { why, .. }
        | HttpError::Body { why } => Some(why.clone()),
        HttpError::BadScheme { scheme } => Some(scheme.clone()),
        HttpError::VariableMissing { variable, .. }
        | HttpError::VariableEmpty { variable, .. }
        | HttpError::VariableRefused { variable, .. } => Some(variable.clone()),
        HttpError::Unreachable(_) => None,
    };
    // The step names the header, where one is at fault, or what was behind a failure: the message has the bare words of
    // the original.
    let step = match error {
        HttpError::BadHeaderValue { name, .. }
        | HttpError::VariableMissing { name, .. }
        | HttpError::VariableEmpty { name, .. }
        | HttpError::VariableRefused { name, .. } => Some(name.clone()),
        HttpError::Failed { causes, .. } if !causes.is_empty() => Some(causes.clone()),
        _ => None,
    };
    let message = match error {
        HttpError::TimedOut { why } | HttpError::Failed { why, .. } => format!("http/request failed: {why}"),
        other => other.to_string(),
    };
    RpcError::new(code, message).with_data(ErrorData { detail, step, ..ErrorData::new(kind) })
}

pub(crate) fn too_many_roots(most: usize) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("capability root discovery accepts at most {most} roots"))
}

#[cfg(test)]
mod tests {
    use exec_env::files::FileVerb;

    use super::*;

    fn told(reason: FileReason) -> (i64, String, Option<i32>) {
        let error = file_error(&FileError::new(FileVerb::Read, "/w/x", reason));
        let data = error.data.expect("every error of files has some");
        assert_eq!(data.path.map(|path| path.to_string()).as_deref(), Some("file:///w/x"));
        (error.code, error.message, data.errno)
    }

    #[test]
    fn codes_are_those_of_the_original_and_the_errno_is_kept() {
        let os = |errno| told(FileReason::Os(errno));
        assert_eq!(os(2), (-32004, "No such file or directory (os error 2)".to_owned(), Some(2)));
        assert_eq!(os(13), (-32600, "Permission denied (os error 13)".to_owned(), Some(13)));
        assert_eq!(os(28), (-32603, "No space left on device (os error 28)".to_owned(), Some(28)));
        assert_eq!(told(FileReason::NotAFile), (-32600, "path `/w/x` is not a file".to_owned(), None));
        assert_eq!(told(FileReason::RecursiveNoFollow).0, -32603);
    }
}
