//! The part of [`error`](super) that speaks of files and HTTP: the same error comes out as went in over there.

use std::path::Path;

use exec_env::files::{ContentHash, FileError, FileReason, FileVerb, WatchLimit};
use exec_env::http::HttpError;
use exec_env::process::Unreachable;
use exec_wire::error::{code, kind};
use exec_wire::{ErrorData, RpcError};

use super::CallError;

const ENOENT: i32 = 2;
const EAGAIN: i32 = 11;
const ENOSYS: i32 = 38;

/// Why a verb of files failed.
pub(crate) fn file_error(verb: FileVerb, path: &Path, error: CallError) -> FileError {
    match error.refusal() {
        Some(refusal) => refused_file(verb, path, refusal),
        None => FileError::new(verb, path, FileReason::Unreachable { why: error.to_string() }),
    }
}

/// The same, where the server's words came by themselves.
pub(crate) fn refused_file(verb: FileVerb, path: &Path, refusal: &RpcError) -> FileError {
    let told = refusal.data.as_deref();
    let at = told.and_then(|data| data.path.as_ref()).and_then(|path| path.to_path().ok());
    let reason = told.and_then(reason_of).unwrap_or_else(|| reason_of_text(refusal));
    FileError::new(verb, at.unwrap_or_else(|| path.to_owned()), reason)
}

/// What `data` says, if it is ours.
pub(crate) fn reason_of(data: &ErrorData) -> Option<FileReason> {
    let detail = data.detail.as_deref();
    let words = || detail.unwrap_or_default().to_owned();
    Some(match data.kind.as_str() {
        "notAFile" => FileReason::NotAFile,
        "notRegular" => FileReason::NotRegular,
        "tooLarge" => FileReason::TooLarge { limit_bytes: detail?.parse().ok()? },
        "symlinkInPath" => FileReason::SymlinkInPath,
        "recursiveNoFollow" => FileReason::RecursiveNoFollow,
        "recursiveRequired" => FileReason::RecursiveRequired,
        "copyIntoItself" => FileReason::CopyIntoItself,
        "copyOntoItself" => FileReason::CopyOntoItself,
        "copySpecial" => FileReason::CopySpecial,
        "tooManyEntries" => FileReason::TooManyEntries { found: detail?.parse().ok()? },
        "walkLimitsTooLarge" => FileReason::WalkLimitsTooLarge,
        "walkLimitsZero" => FileReason::WalkLimitsZero,
        "readBlockLength" => FileReason::ReadBlockLength,
        "writeBlockLength" => FileReason::WriteBlockLength,
        "writeRange" => FileReason::WriteRange,
        "changed" => {
            let present: Option<ContentHash> = match detail {
                Some(hash) => Some(hash.parse().ok()?),
                None => None,
            };
            FileReason::Changed { present }
        }
        "watchLimit" => FileReason::WatchLimit(WatchLimit::Watches),
        "watcherLimit" => FileReason::WatchLimit(WatchLimit::Instances),
        "badPattern" => FileReason::BadPattern { why: words() },
        "unreachable" => FileReason::Unreachable { why: words() },
        kind::BUSY => FileReason::Os(EAGAIN),
        _ => FileReason::Os(data.errno?),
    })
}

/// What is left of an error of a server that has only codes and texts.
fn reason_of_text(refusal: &RpcError) -> FileReason {
    let text = refusal.message.as_str();
    let errno = text.rsplit_once("(os error ").and_then(|(_, rest)| rest.strip_suffix(')')?.parse().ok());
    if let Some(errno) = errno {
        return FileReason::Os(errno);
    }
    match text {
        "path is not a regular file" => FileReason::NotRegular,
        "path contains a symbolic link" => FileReason::SymlinkInPath,
        "recursive no-follow removal is unsupported" => FileReason::RecursiveNoFollow,
        "fs/copy requires recursive: true when sourcePath is a directory" => FileReason::RecursiveRequired,
        "fs/copy cannot copy a directory to itself or one of its descendants" => FileReason::CopyIntoItself,
        "fs/copy only supports regular files, directories, and symlinks" => FileReason::CopySpecial,
        text if text.starts_with("path `") && text.ends_with("` is not a file") => FileReason::NotAFile,
        _ if refusal.code == code::NOT_FOUND => FileReason::Os(ENOENT),
        _ if refusal.code == code::METHOD_NOT_FOUND => FileReason::Os(ENOSYS),
        _ => FileReason::Unreachable { why: refusal.message.clone() },
    }
}

/// Whether a file was not read because it does not fit one answer, though blocks of it do.
pub(crate) fn is_answer_too_large(error: &CallError) -> bool {
    let data = error.refusal().and_then(|refusal| refusal.data.as_ref());
    data.is_some_and(|data| data.kind == kind::TOO_LARGE && data.detail.is_none())
}

/// Whether the server does not know a handle, as those of an earlier connection.
pub(crate) fn is_unknown_handle(error: &CallError) -> bool {
    error.refusal().is_some_and(|refusal| {
        super::is(refusal, kind::UNKNOWN_HANDLE) || refusal.message.starts_with("unknown file handle")
    })
}

/// Why there is no answer to an HTTP request.
pub(crate) fn http_error(error: CallError) -> HttpError {
    let known = error.refusal().and_then(|refusal| refusal.data.as_deref()).and_then(http_reason);
    match (known, error.refusal()) {
        (Some(known), _) => known,
        (None, Some(refusal)) => http_reason_of_text(refusal),
        (None, None) => Unreachable::from(error).into(),
    }
}

fn http_reason(data: &ErrorData) -> Option<HttpError> {
    let detail = || data.detail.clone();
    let name = || data.step.clone();
    Some(match data.kind.as_str() {
        "badMethod" => HttpError::BadMethod { why: detail()? },
        "badUrl" => HttpError::BadUrl { why: detail()? },
        "badScheme" => HttpError::BadScheme { scheme: detail()? },
        "badHeaderName" => HttpError::BadHeaderName { why: detail()? },
        "badHeaderValue" => HttpError::BadHeaderValue { name: name()?, why: detail()? },
        "variableMissing" => HttpError::VariableMissing { name: name()?, variable: detail()? },
        "variableEmpty" => HttpError::VariableEmpty { name: name()?, variable: detail()? },
        "variableRefused" => HttpError::VariableRefused { name: name()?, variable: detail()? },
        "httpTimedOut" => HttpError::TimedOut { why: detail()? },
        "httpFailed" => HttpError::Failed { why: detail()?, causes: name().unwrap_or_default() },
        "httpBody" => HttpError::Body { why: detail()? },
        _ => return None,
    })
}

fn http_reason_of_text(refusal: &RpcError) -> HttpError {
    let after = |prefix: &str| refusal.message.strip_prefix(prefix).map(str::to_owned);
    if let Some(why) = after("failed to read http/request response body: ") {
        return HttpError::Body { why };
    }
    match after("http/request failed: ") {
        Some(why) if why == "route-aware request timed out" => HttpError::TimedOut { why },
        Some(why) => HttpError::Failed { why, causes: String::new() },
        None => HttpError::Failed { why: refusal.message.clone(), causes: String::new() },
    }
}

#[cfg(test)]
mod tests {
    use exec_wire::{Method, PathUri};

    use super::*;

    fn refused(error: RpcError) -> CallError {
        CallError::Refused { method: Method::FsReadFile, error: Box::new(error) }
    }

    #[test]
    fn data_gives_back_the_very_error() {
        let path = PathUri::from_path("/w/below".as_ref()).expect("absolute");
        let data = ErrorData { errno: Some(28), path: Some(path), ..ErrorData::new("ENOSPC") };
        let error = RpcError::new(code::INTERNAL, "No space left on device (os error 28)").with_data(data);
        let expected = FileError::new(FileVerb::Copy, "/w/below", FileReason::Os(28));
        assert_eq!(file_error(FileVerb::Copy, Path::new("/w"), refused(error)), expected);
        let hash = ContentHash([7; 32]);
        let data = ErrorData { detail: Some(hash.to_string()), ..ErrorData::new("changed") };
        assert_eq!(reason_of(&data), Some(FileReason::Changed { present: Some(hash) }));
        assert_eq!(reason_of(&ErrorData::new("changed")), Some(FileReason::Changed { present: None }));
    }

    #[test]
    fn the_originals_texts_are_understood() {
        let told = |code, text: &str| reason_of_text(&RpcError::new(code, text));
        assert_eq!(told(-32603, "Symbolic link loop (os error 40)"), FileReason::Os(40));
        assert_eq!(told(-32600, "path `/x` is not a file"), FileReason::NotAFile);
        assert_eq!(told(-32004, "gone"), FileReason::Os(2));
        assert_eq!(told(-32601, "exec-server stub does not implement `fs/rename` yet"), FileReason::Os(38));
    }
}
