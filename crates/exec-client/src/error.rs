//! How a call can fail, and what that means for each verb: processes first, then files and HTTP. The only file of the
//! client that knows error codes.
//!
//! Where our server says what kind of error it was (`error.data`), the same typed error comes out as on a local
//! machine. Where another server has a code and a text only, the text's errno is used if it has one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use exec_core::{Command, ProcessId};
use exec_env::files::{FileError, FileReason, FileVerb};
use exec_env::http::HttpError;
use exec_env::process::{ProcessReason, SpawnFailure, SpawnStep, Unreachable};
use exec_env::streams::StreamReason;
use exec_wire::error::{code, kind};
use exec_wire::{ErrorData, Method, RpcError};

use crate::session::{AttemptError, LossKind, SessionLoss};

const ENOENT: i32 = 2;
const EAGAIN: i32 = 11;
const ENOTDIR: i32 = 20;
const ENOSYS: i32 = 38;

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The fields are the blanks in the texts; `method` is the one that was called.
pub enum CallError {
    /// The server refused it.
    #[error("the server refused {name}: {error}", name = method.name())]
    Refused { method: Method, error: Box<RpcError> },
    /// The server did not answer in time.
    #[error("{name} was not answered within {after:?}", name = method.name())]
    Deadline { method: Method, after: Duration },
    /// The connection broke after the call was sent, and it may not be sent twice.
    #[error("the connection broke while {name} was on its way: it may have been carried out, or not", name = method.name())]
    Interrupted { method: Method },
    /// The answer cannot be decoded.
    #[error("the answer to {name} cannot be read: {reason}", name = method.name())]
    Undecodable { method: Method, reason: String },
    /// The session that the call belonged to is lost, or no session can be opened.
    #[error("{why}")]
    Lost { why: String },
    /// This server has no such method, so it was not called.
    #[error("this server has no {name}", name = method.name())]
    Unsupported { method: Method },
}

impl CallError {
    /// The server's answer, if it refused the call.
    pub fn refusal(&self) -> Option<&RpcError> {
        match self {
            Self::Refused { error, .. } => Some(error.as_ref()),
            _ => None,
        }
    }
}

impl From<SessionLoss> for CallError {
    fn from(loss: SessionLoss) -> Self {
        Self::Lost { why: loss.why }
    }
}

impl From<CallError> for Unreachable {
    fn from(error: CallError) -> Self {
        Self { why: error.to_string() }
    }
}

/// Our answer to a request that we do not know.
pub(crate) fn not_implemented(method: &str) -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, format!("exec-server client does not implement `{method}` yet"))
}

/// What a refused `initialize` means.
pub(crate) fn initialize_error(error: &RpcError) -> AttemptError {
    let why = format!("the server refused initialize: {}", error.message);
    // Our last connection may be half open and still attached; the server will notice. A busy server may have room later.
    if error.code == code::ALREADY_ATTACHED || is(error, kind::BUSY) {
        return AttemptError::Transient(why);
    }
    let unknown = is(error, kind::UNKNOWN_SESSION) || error.message.starts_with("unknown session id");
    let kind = match unknown {
        true => LossKind::UnknownSession,
        false if is(error, kind::TAKEN_OVER) => LossKind::TakenOver,
        false => LossKind::Refused,
    };
    AttemptError::Permanent(SessionLoss { kind, why: error.message.clone() })
}

/// Whether a write failed because stdin is closed; Codex's server says so after a terminate.
pub(crate) fn is_stdin_gone(error: &CallError) -> bool {
    error.refusal().is_some_and(|refusal| refusal.message == "failed to write to process stdin")
}

/// Why a start failed: what `command` asked for tells which program or directory is meant.
pub(crate) fn start_reason(id: &ProcessId, command: &Command, error: CallError) -> ProcessReason {
    match error.refusal().and_then(|refusal| spawn_failure(refusal, command)) {
        Some(failure) => ProcessReason::SpawnFailed(failure),
        None => process_reason(id, error),
    }
}

/// Why a verb over process `id` failed. What this client checks before it calls (a bad command, a write too large, a
/// terminal without cells) has no way back.
pub(crate) fn process_reason(id: &ProcessId, error: CallError) -> ProcessReason {
    error.refusal().and_then(|refusal| refused_process(id, refusal)).unwrap_or_else(|| Unreachable::from(error).into())
}

fn refused_process(id: &ProcessId, refusal: &RpcError) -> Option<ProcessReason> {
    let text = refusal.message.as_str();
    let named = refusal.data.as_deref().and_then(|data| match data.kind.as_str() {
        "idInUse" => Some(ProcessReason::IdInUse),
        "cancelled" => Some(ProcessReason::StartCancelled),
        kind::FORBIDDEN => {
            Some(ProcessReason::Forbidden { rule: data.rule.clone().unwrap_or_default(), why: text.to_owned() })
        }
        name => ProcessReason::from_name(name, data.errno, data.detail.as_deref().unwrap_or(text)),
    });
    named.or_else(|| match text.strip_prefix("unknown process id ") {
        Some(unknown) => (unknown == id.as_str()).then_some(ProcessReason::UnknownProcess),
        None => (text == format!("process {id} already exists")).then_some(ProcessReason::IdInUse),
    })
}

fn spawn_failure(refusal: &RpcError, command: &Command) -> Option<SpawnFailure> {
    let program = || command.argv.first().map(PathBuf::from).unwrap_or_default();
    if let Some(data) = &refusal.data {
        let step = SpawnStep::from_name(data.kind.strip_prefix("spawn:").or(data.step.as_deref())?)?;
        let subject = match &data.path {
            Some(path) => path.to_path().ok()?,
            // A program that was looked up by name has no path; the other steps concern no file.
            None => match step {
                SpawnStep::Exec => program(),
                SpawnStep::Cwd => command.cwd.clone(),
                _ => data.detail.as_ref().map(PathBuf::from).unwrap_or_default(),
            },
        };
        return Some(SpawnFailure { step, errno: data.errno?, subject });
    }
    let errno = errno_of_text(&refusal.message)?;
    // The text does not say whether the directory or the program is meant. "Not a directory" can only be the directory.
    Some(match errno {
        ENOTDIR => SpawnFailure { step: SpawnStep::Cwd, errno, subject: command.cwd.clone() },
        _ => SpawnFailure { step: SpawnStep::Exec, errno, subject: program() },
    })
}

fn errno_of_text(text: &str) -> Option<i32> {
    text.rsplit_once("(os error ")?.1.strip_suffix(')')?.parse().ok()
}

fn is(error: &RpcError, kind: &str) -> bool {
    error.data.as_ref().is_some_and(|data| data.kind == kind)
}

pub(crate) fn file_error(verb: FileVerb, path: &Path, error: CallError) -> FileError {
    match error.refusal() {
        Some(refusal) => refused_file(verb, path, refusal),
        None => FileError::new(verb, path, FileReason::Unreachable { why: error.to_string() }),
    }
}

/// The same for an error that came with a notification.
pub(crate) fn refused_file(verb: FileVerb, path: &Path, refusal: &RpcError) -> FileError {
    let data = refusal.data.as_deref();
    let reason = match data {
        Some(data) if data.kind == kind::FORBIDDEN => {
            FileReason::Forbidden { rule: data.rule.clone().unwrap_or_default(), why: refusal.message.clone() }
        }
        data => data.and_then(reason_of).unwrap_or_else(|| reason_of_text(refusal)),
    };
    let path_of_error = data.and_then(|data| data.path.as_ref()).and_then(|path| path.to_path().ok());
    FileError::new(verb, path_of_error.unwrap_or_else(|| path.to_owned()), reason)
}

/// The reason that `data` gives, if it is that of our server.
pub(crate) fn reason_of(data: &ErrorData) -> Option<FileReason> {
    match data.kind.as_str() {
        kind::BUSY => Some(FileReason::Os(EAGAIN)),
        kind::FORBIDDEN => {
            let why = data.detail.clone()?;
            Some(FileReason::Forbidden { rule: data.rule.clone().unwrap_or_default(), why })
        }
        name => FileReason::from_name(name, data.errno, data.detail.as_deref()),
    }
}

/// The reason as far as it can be told from the code and the text of a server that sends no data.
fn reason_of_text(refusal: &RpcError) -> FileReason {
    let text = refusal.message.as_str();
    if let Some(errno) = errno_of_text(text) {
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

/// Whether a file was not read because it does not fit one answer; blocks of it do.
pub(crate) fn is_answer_too_large(error: &CallError) -> bool {
    let data = error.refusal().and_then(|refusal| refusal.data.as_ref());
    data.is_some_and(|data| data.kind == kind::TOO_LARGE && data.detail.is_none())
}

/// Whether the connection of a handle has ended: the call was on its way then, or the server, which knows no handle of an
/// earlier connection, says so.
pub(crate) fn has_ended_with_its_connection(error: &CallError) -> bool {
    let is_unknown =
        |refusal: &RpcError| is(refusal, kind::UNKNOWN_HANDLE) || refusal.message.starts_with("unknown file handle");
    matches!(error, CallError::Interrupted { .. }) || error.refusal().is_some_and(is_unknown)
}

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
        "httpTimedOut" => timed_out(detail()?),
        "httpFailed" => HttpError::Failed { why: detail()?, causes: name().unwrap_or_default() },
        "httpBody" => HttpError::Body { why: detail()? },
        _ => return None,
    })
}

/// How the servers say that no time was left to send a request.
const NO_TIME_LEFT: &str = "route-aware request timed out";

fn timed_out(why: String) -> HttpError {
    if why == NO_TIME_LEFT { HttpError::NoTimeLeft } else { HttpError::TimedOut { why } }
}

fn http_reason_of_text(refusal: &RpcError) -> HttpError {
    let after = |prefix: &str| refusal.message.strip_prefix(prefix).map(str::to_owned);
    if let Some(why) = after("failed to read http/request response body: ") {
        return HttpError::Body { why };
    }
    match after("http/request failed: ") {
        Some(why) if why == NO_TIME_LEFT => HttpError::NoTimeLeft,
        Some(why) => HttpError::Failed { why, causes: String::new() },
        None => HttpError::Failed { why: refusal.message.clone(), causes: String::new() },
    }
}

pub(crate) fn stream_reason(error: CallError) -> StreamReason {
    let data = error.refusal().and_then(|refusal| refusal.data.as_deref().map(|data| (data, &refusal.message)));
    let known = data.and_then(|(data, message)| match data.kind.as_str() {
        kind::FORBIDDEN => {
            Some(StreamReason::Forbidden { rule: data.rule.clone().unwrap_or_default(), why: message.clone() })
        }
        kind::BUSY => Some(StreamReason::TooMany { why: message.clone() }),
        name => StreamReason::from_name(name, data.errno, data.detail.as_deref().unwrap_or(message)),
    });
    match (known, error) {
        (Some(known), _) => known,
        (None, CallError::Lost { why }) => StreamReason::Lost { why },
        (None, CallError::Refused { error, .. }) => StreamReason::Unreachable(Unreachable { why: error.message }),
        (None, error) => StreamReason::Unreachable(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use exec_env::files::ContentHash;
    use exec_wire::PathUri;

    use super::*;

    fn refused(error: RpcError) -> CallError {
        CallError::Refused { method: Method::ProcessStart, error: Box::new(error) }
    }

    fn id() -> ProcessId {
        ProcessId::new("p").expect("short")
    }

    #[test]
    fn a_failed_spawn_keeps_its_step_errno_and_subject() {
        let command = Command::new(["tool"], "/w");
        let path = PathUri::from_path("/w/x".as_ref()).expect("absolute");
        let data = ErrorData {
            errno: Some(2),
            path: Some(path.clone()),
            step: Some("cwd".into()),
            ..ErrorData::new("spawnFailed")
        };
        let failure = SpawnFailure { step: SpawnStep::Cwd, errno: 2, subject: "/w/x".into() };
        let expected = ProcessReason::SpawnFailed(failure);
        let error = RpcError::new(code::INTERNAL, "No such file or directory (os error 2)");
        assert_eq!(start_reason(&id(), &command, refused(error.clone().with_data(data))), expected);
        let data = ErrorData { errno: Some(2), path: Some(path), ..ErrorData::new("spawn:cwd") };
        assert_eq!(start_reason(&id(), &command, refused(error.with_data(data))), expected);
    }

    #[test]
    fn without_data_the_errno_of_the_text_is_used() {
        let command = Command::new(["tool"], "/w");
        let error = refused(RpcError::new(code::INTERNAL, "Exec format error (os error 8)"));
        let failure = SpawnFailure { step: SpawnStep::Exec, errno: 8, subject: "tool".into() };
        assert_eq!(start_reason(&id(), &command, error), ProcessReason::SpawnFailed(failure));
    }

    #[test]
    fn the_originals_texts_are_understood_where_it_has_no_data() {
        let exists = refused(RpcError::new(code::INVALID_REQUEST, "process p already exists"));
        assert_eq!(start_reason(&id(), &Command::new(["x"], "/"), exists), ProcessReason::IdInUse);
        let error = refused(RpcError::new(code::INVALID_REQUEST, "unknown process id p"));
        assert_eq!(process_reason(&id(), error), ProcessReason::UnknownProcess);
    }

    #[test]
    fn a_session_that_is_attached_elsewhere_is_tried_again_and_an_unknown_one_is_not() {
        let attached = RpcError::new(code::ALREADY_ATTACHED, "session s is already attached to another connection");
        assert!(matches!(initialize_error(&attached), AttemptError::Transient(_)));
        let unknown = RpcError::new(code::INVALID_REQUEST, "unknown session id s");
        let loss = SessionLoss { kind: LossKind::UnknownSession, why: "unknown session id s".into() };
        assert_eq!(initialize_error(&unknown), AttemptError::Permanent(loss));
    }

    #[test]
    fn data_gives_back_the_very_error() {
        let path = PathUri::from_path("/w/below".as_ref()).expect("absolute");
        let data = ErrorData { errno: Some(28), path: Some(path), ..ErrorData::new("ENOSPC") };
        let error = RpcError::new(code::INTERNAL, "No space left on device (os error 28)").with_data(data);
        let expected = FileError::new(FileVerb::Copy, "/w/below", FileReason::Os(28));
        assert_eq!(file_error(FileVerb::Copy, Path::new("/w"), refused(error)), expected);
        let hash = ContentHash([7; 32].into());
        let data = ErrorData { detail: Some(hash.to_string()), ..ErrorData::new("changed") };
        assert_eq!(reason_of(&data), Some(FileReason::Changed { present: Some(hash) }));
        assert_eq!(reason_of(&ErrorData::new("changed")), Some(FileReason::Changed { present: None }));
    }

    #[test]
    fn the_originals_texts_are_understood() {
        let reason = |code, text: &str| reason_of_text(&RpcError::new(code, text));
        assert_eq!(reason(-32603, "Symbolic link loop (os error 40)"), FileReason::Os(40));
        assert_eq!(reason(-32600, "path `/x` is not a file"), FileReason::NotAFile);
        assert_eq!(reason(-32004, "gone"), FileReason::Os(2));
        assert_eq!(reason(-32601, "exec-server stub does not implement `fs/rename` yet"), FileReason::Os(38));
    }
}
