//! The one file that knows which error of the domain has which code on the wire. Messages equal those of Codex's server
//! where it has one ([`sentences`]).
//!
//! `data` is ours: it carries what a client needs to rebuild the
//! very error (the kind, the errno, the path).

mod sentences;

use std::sync::Arc;

use exec_core::command::{BadCommand, CommandField};
use exec_core::network::{BadPattern, BadProxy};
use exec_env::files::{FileError, FileReason};
use exec_env::http::HttpError;
use exec_env::process::{ProcessReason, SpawnFailure};
use exec_env::streams::{StreamError, StreamReason};
use exec_wire::error::{ErrorData, RpcError, code, errno_text, kind};
use exec_wire::path_uri::ForeignPath;
use exec_wire::sandbox::BadSandbox;

use crate::ceiling::Violation;
use crate::convert;
use crate::limits::NAMED_ENVIRONMENTS;
use crate::reservations::ReserveError;
use crate::resources::HandleError;
use crate::session::DriveRefusal;

const ENOENT: i32 = 2;
const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;

/// Why a verb over a process failed. `wire_id` is the client's id of the process.
pub(crate) fn process_error(reason: ProcessReason, wire_id: &str) -> RpcError {
    let text = reason.sentence(wire_id);
    let (code, message) = match &reason {
        ProcessReason::BadCommand(BadCommand::EmptyArgv) => (code::INVALID_PARAMS, "argv must not be empty".to_owned()),
        ProcessReason::BadCommand(BadCommand::EmptyProgram) => {
            (code::INTERNAL, "missing program for pipe spawn".to_owned())
        }
        ProcessReason::BadCommand(BadCommand::Nul { field: CommandField::Environment }) => {
            (code::INTERNAL, "data provided contains a nul byte".to_owned())
        }
        ProcessReason::BadCommand(BadCommand::Nul { .. }) => {
            (code::INTERNAL, "nul byte found in provided data".to_owned())
        }
        ProcessReason::SandboxUnavailable { .. } => (code::INVALID_PARAMS, sentences::SANDBOX_UNAVAILABLE.to_owned()),
        ProcessReason::BadCommand(_)
        | ProcessReason::LimitUnavailable { .. }
        | ProcessReason::UserUnavailable { .. }
        | ProcessReason::NoCells { .. }
        | ProcessReason::BadRegex { .. } => (code::INVALID_PARAMS, text),
        ProcessReason::IdInUse => (code::INVALID_REQUEST, format!("process {wire_id} already exists")),
        ProcessReason::Forbidden { .. }
        | ProcessReason::StartCancelled
        | ProcessReason::UnknownProcess
        | ProcessReason::WriteTooLarge { .. }
        | ProcessReason::NoTerminal
        | ProcessReason::NoTimes
        | ProcessReason::Ended { .. } => (code::INVALID_REQUEST, text),
        ProcessReason::SpawnFailed(SpawnFailure { errno, .. })
        | ProcessReason::SpoolUnreadable { errno }
        | ProcessReason::SignalRefused { errno } => (code::INTERNAL, errno_text(*errno)),
        ProcessReason::Unreachable(_) => (code::INTERNAL, text),
    };
    let data = match reason {
        ProcessReason::Unreachable(_) => Some(ErrorData::new(kind::UNREACHABLE)),
        reason => process_data(reason),
    };
    RpcError { code, message, data: data.map(Box::new) }
}

fn process_data(reason: ProcessReason) -> Option<ErrorData> {
    let data = ErrorData::new(reason.name()?);
    Some(match reason {
        ProcessReason::BadCommand(bad) => ErrorData { detail: Some(bad.to_string()), ..data },
        ProcessReason::BadRegex { why }
        | ProcessReason::SandboxUnavailable { why }
        | ProcessReason::LimitUnavailable { why }
        | ProcessReason::UserUnavailable { why } => ErrorData { detail: Some(why), ..data },
        ProcessReason::Forbidden { rule, why } => ErrorData { rule: Some(rule), detail: Some(why), ..data },
        ProcessReason::SpoolUnreadable { errno } | ProcessReason::SignalRefused { errno } => {
            ErrorData { errno: Some(errno), ..data }
        }
        ProcessReason::SpawnFailed(SpawnFailure { step, errno, subject }) => ErrorData {
            errno: Some(errno),
            path: convert::uri(&subject),
            step: Some(step.name().to_owned()),
            detail: Some(subject.to_string_lossy().into_owned()),
            ..data
        },
        _ => data,
    })
}

/// A proxy that cannot be as it is asked for, in the words of Codex's server.
pub(crate) fn bad_proxy(bad: &BadProxy) -> RpcError {
    let why = match bad {
        BadProxy::Pattern(BadPattern::Empty) => "domain pattern is empty".to_owned(),
        BadProxy::Pattern(BadPattern::Syntax(text)) => format!("unsupported domain pattern syntax: {text}"),
        BadProxy::Pattern(BadPattern::RepeatedWildcard(text)) => format!("unsupported repeated wildcard: {text}"),
        BadProxy::Pattern(BadPattern::Brackets(text)) => {
            format!("brackets are only supported for IPv6 literals or [*]: {text}")
        }
        BadProxy::DeniesAll(text) => format!(
            "invalid value for network.denied_domains: {text} (allowed exact hosts or scoped wildcards like \
             *.example.com or **.example.com)"
        ),
        BadProxy::TooLarge { .. } | BadProxy::NoTime => bad.to_string(),
    };
    bad_params(format!("invalid network proxy config: {why}"))
}

pub(crate) fn unknown_environment(id: &str, known: &[String]) -> RpcError {
    let text = format!("there is no environment `{id}`: {}", there_are(known));
    error_of_kind(kind::UNKNOWN_ENVIRONMENT, code::INVALID_PARAMS, text)
}

pub(crate) fn no_default_environment(known: &[String]) -> RpcError {
    let text = format!("no environment is the default: name one with environmentId; {}", there_are(known));
    error_of_kind(kind::UNKNOWN_ENVIRONMENT, code::INVALID_PARAMS, text)
}

/// The ids of environments, the first of very many.
fn there_are(known: &[String]) -> String {
    let mut names: Vec<String> = known.iter().take(NAMED_ENVIRONMENTS).map(|id| format!("`{id}`")).collect();
    if known.len() > names.len() {
        names.push(format!("and {} more", known.len() - names.len()));
    }
    if names.is_empty() { "there is none at all".to_owned() } else { format!("there is {}", names.join(", ")) }
}

/// `what` is a process or a file handle.
pub(crate) fn other_environment(what: &str, id: &str, is_in: &str, named: &str) -> RpcError {
    let text = format!("{what} {id} is in environment `{is_in}`, not in `{named}`: leave environmentId out");
    let mut data = ErrorData::new(kind::OTHER_ENVIRONMENT);
    data.environment_id = Some(is_in.to_owned());
    RpcError::new(code::INVALID_REQUEST, text).with_data(data)
}

/// A process that nobody knows, while places that may have it could not be asked.
pub(crate) fn not_asked_yet(wire_id: &str, unasked: &[(Arc<str>, String)]) -> RpcError {
    let places: Vec<String> = unasked.iter().map(|(id, why)| format!("`{id}` ({why})")).collect();
    let places = places.join(", ");
    let text = format!("process {wire_id} is not known, and may be in an environment that cannot be reached: {places}");
    let mut error = error_of_kind(kind::UNREACHABLE, code::INTERNAL, text);
    if let (Some(data), [(only, _)]) = (&mut error.data, unasked) {
        data.environment_id = Some(only.to_string());
    }
    error
}

pub(crate) fn starting(wire_id: &str) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("process id {wire_id} is starting"))
}

pub(crate) fn bad_id(error: exec_core::id::BadId) -> RpcError {
    error_of_kind(kind::TOO_LARGE, code::INVALID_PARAMS, error.to_string())
}

pub(crate) fn empty_write_id() -> RpcError {
    RpcError::new(code::INVALID_PARAMS, "writeId must not be empty")
}

pub(crate) fn foreign_cwd(foreign: ForeignPath) -> RpcError {
    let uri = foreign.uri.as_str();
    RpcError::new(code::INVALID_PARAMS, format!("cwd URI `{uri}` is not valid on this exec-server host: {foreign}"))
}

pub(crate) fn sandbox_not_enforceable() -> RpcError {
    error_of_kind(kind::SANDBOX, code::INVALID_PARAMS, sentences::SANDBOX_UNAVAILABLE)
}

pub(crate) fn bad_sandbox(bad: BadSandbox) -> RpcError {
    match bad {
        BadSandbox::WithoutCwd => sandbox_without_cwd(),
        BadSandbox::ForeignPath(foreign) => foreign_sandbox_path(foreign),
    }
}

pub(crate) fn bad_params(message: impl Into<String>) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, message)
}

pub(crate) fn busy(message: impl Into<String>) -> RpcError {
    error_of_kind(kind::BUSY, code::INVALID_REQUEST, message)
}

/// A string of the client that would be kept, and is longer than may be.
pub(crate) fn too_long(what: &str, found_bytes: usize, limit_bytes: usize) -> RpcError {
    let text = format!("{what} takes {found_bytes} bytes: at most {limit_bytes} are allowed");
    error_of_kind(kind::TOO_LARGE, code::INVALID_PARAMS, text)
}

pub(crate) fn taken_over(session_id: &str) -> RpcError {
    let text = format!("session {session_id} was taken over by another client");
    error_of_kind(kind::TAKEN_OVER, code::INVALID_REQUEST, text)
}

/// What an observer hears that would change something.
pub(crate) fn only_observes(session_id: &str) -> RpcError {
    let text = format!("this connection only observes session {session_id}: ask for the drive with session/drive");
    error_of_kind(kind::OBSERVER, code::INVALID_REQUEST, text)
}

pub(crate) fn observes_no_session() -> RpcError {
    RpcError::invalid_params("an observer names the session that it observes: resumeSessionId is missing")
}

/// Why nobody got the drive.
pub(crate) fn no_drive(refusal: DriveRefusal) -> RpcError {
    let text = match refusal {
        DriveRefusal::DriverIsNotTold => "the driver is a client that cannot be asked: take the drive with `force`",
        DriveRefusal::NotTheDriver => "this connection does not drive the session, and has nothing to hand over",
        DriveRefusal::NoSuchObserver => "nobody of that number observes the session: see session/attached",
        DriveRefusal::NotAttached => "this connection is no longer attached to the session",
    };
    error_of_kind(kind::DRIVE, code::INVALID_REQUEST, text)
}

pub(crate) fn forbidden(message: impl Into<String>) -> RpcError {
    error_of_kind(kind::FORBIDDEN, code::INVALID_REQUEST, message)
}

pub(crate) fn violation(violation: Violation) -> RpcError {
    let Violation { rule, why, instead } = violation;
    let data = ErrorData { rule: Some(rule), detail: Some(instead.clone()), ..ErrorData::new(kind::FORBIDDEN) };
    RpcError::new(code::INVALID_REQUEST, format!("{why}: {instead}")).with_data(data)
}

pub(crate) fn audit_unavailable() -> RpcError {
    let text = "the audit log cannot be written, and this server does nothing without it: see the server's own log";
    error_of_kind(kind::AUDIT_UNAVAILABLE, code::INTERNAL, text)
}

pub(crate) fn response_too_large(bytes: usize, values: usize) -> RpcError {
    let text = format!(
        "the answer would have {bytes} bytes and {values} values, more than a message may: read in parts (fs/open, \
         maxBytes), list in pages (cursor), or ask for less"
    );
    error_of_kind(kind::TOO_LARGE, code::INVALID_REQUEST, text)
}

pub(crate) fn listing_too_large(entries: usize) -> RpcError {
    let text = format!("the names of {entries} entries do not fit one answer: {}", sentences::READ_IN_PAGES);
    error_of_kind(kind::TOO_LARGE, code::INVALID_REQUEST, text)
}

pub(crate) fn config_too_large(limit_bytes: u64) -> RpcError {
    let text = format!("the files of the configuration take more than {limit_bytes} bytes together: remove some");
    error_of_kind(kind::TOO_LARGE, code::INVALID_REQUEST, text)
}

pub(crate) fn bad_view(why: &str) -> RpcError {
    bad_params(why)
}

pub(crate) fn bad_cursor() -> RpcError {
    bad_params("cursor: it is not one that an earlier page has returned as nextCursor")
}

pub(crate) fn handler_panicked(method: &str) -> RpcError {
    RpcError::new(code::INTERNAL, format!("{method} broke down: this is a fault of the server, see its log"))
}

pub(crate) fn file_error(error: FileError) -> RpcError {
    RpcError::new(file_code(&error.reason), file_message(&error)).with_data(file_data(&error))
}

/// A call cannot have the rights of the user that it names, whatever it is about.
pub(crate) fn file_user(reason: &FileReason) -> RpcError {
    let data = ErrorData { detail: reason.detail(), ..ErrorData::new(reason.name()) };
    RpcError::new(file_code(reason), reason.to_string()).with_data(data)
}

/// The message of an error that is part of a result.
pub(crate) fn file_message(error: &FileError) -> String {
    sentences::file_error(error)
}

/// The data of an error that is part of a result.
pub(crate) fn file_data(error: &FileError) -> ErrorData {
    let detail = error.reason.detail();
    let rule = match &error.reason {
        FileReason::Forbidden { rule, .. } => Some(rule.clone()),
        _ => None,
    };
    let path = convert::uri(&error.path);
    ErrorData { errno: error.errno(), path, detail, rule, ..ErrorData::new(error.reason.name()) }
}

/// Not found is -32004. What the caller could have known and what the server is not permitted is -32600. The rest is -32603.
fn file_code(reason: &FileReason) -> i64 {
    match reason {
        FileReason::Os(ENOENT) => code::NOT_FOUND,
        FileReason::Os(EPERM | EACCES | EINVAL) => code::INVALID_REQUEST,
        FileReason::Os(_)
        | FileReason::RecursiveNoFollow
        | FileReason::TooManyEntries { .. }
        | FileReason::WatchLimit(_)
        | FileReason::TooManyOpenFiles { .. }
        | FileReason::Unsupported { .. }
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
        | FileReason::LineTooLong { .. }
        | FileReason::BinaryBehind { .. }
        | FileReason::Forbidden { .. }
        | FileReason::Changed { .. } => code::INVALID_REQUEST,
        FileReason::BadPattern { .. } | FileReason::UserUnavailable { .. } => code::INVALID_PARAMS,
    }
}

pub(crate) fn foreign_path(foreign: ForeignPath) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, foreign.to_string())
}

pub(crate) fn nul_in_path() -> RpcError {
    RpcError::new(code::INVALID_REQUEST, "file name contained an unexpected NUL byte")
}

pub(crate) fn foreign_sandbox_path(foreign: ForeignPath) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("invalid sandbox permission path URI: {foreign}"))
}

pub(crate) fn sandbox_without_cwd() -> RpcError {
    RpcError::new(code::INVALID_PARAMS, "file system sandbox context with dynamic permissions requires cwd")
}

pub(crate) fn bad_base64(why: impl std::fmt::Display) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("fs/writeFile requires valid base64 dataBase64: {why}"))
}

pub(crate) fn file_too_large(bytes: u64) -> RpcError {
    let text =
        format!("file of {bytes} bytes does not fit one answer: read it in blocks (fs/open, fs/readBlock, fs/close)");
    error_of_kind(kind::TOO_LARGE, code::INVALID_REQUEST, text)
}

pub(crate) fn handle_refused(id: &str, error: HandleError) -> RpcError {
    let text = match error {
        HandleError::IdTooLong => "file handle ID must not exceed 32 bytes".to_owned(),
        HandleError::NotReserved(ReserveError::Taken) => format!("file handle `{id}` already exists"),
        HandleError::NotReserved(ReserveError::Full { limit }) => {
            format!("at most {limit} file handles may be open per connection")
        }
    };
    RpcError::new(code::INVALID_REQUEST, text)
}

pub(crate) fn unknown_handle(id: &str) -> RpcError {
    error_of_kind(kind::UNKNOWN_HANDLE, code::NOT_FOUND, format!("unknown file handle `{id}`"))
}

/// `what` is the member with the id, `things` what there are too many of.
pub(crate) fn source_refused(what: &str, id: &str, things: &str, error: ReserveError) -> RpcError {
    match error {
        ReserveError::Taken => RpcError::new(code::INVALID_REQUEST, format!("{what} already exists: {id}")),
        ReserveError::Full { limit } => busy(format!("at most {limit} {things} may run per connection")),
    }
}

pub(crate) fn body_refused(id: &str, error: ReserveError) -> RpcError {
    match error {
        ReserveError::Taken => RpcError::new(
            code::INVALID_PARAMS,
            format!("http/request streamResponse requestId `{id}` is already active"),
        ),
        ReserveError::Full { limit } => busy(format!("at most {limit} response bodies may stream per connection")),
    }
}

pub(crate) fn window_too_large(found_bytes: u64, limit_bytes: u64) -> RpcError {
    let text = format!("bodyWindowBytes is {found_bytes}: at most {limit_bytes} are allowed");
    error_of_kind(kind::TOO_LARGE, code::INVALID_PARAMS, text)
}

pub(crate) fn request_cancelled() -> RpcError {
    RpcError::new(code::INTERNAL, "http/request failed: it was cancelled")
}

pub(crate) fn body_too_large(limit_bytes: usize) -> RpcError {
    let text = format!(
        "failed to read http/request response body: it is larger than {limit_bytes} bytes; ask for it with streamResponse"
    );
    error_of_kind(kind::TOO_LARGE, code::INTERNAL, text)
}

pub(crate) fn http_error(error: HttpError) -> RpcError {
    let message = sentences::http_error(&error);
    // The step names the header that is at fault, or the causes of a failure: the message is that of Codex's server, which
    // has neither.
    let (code, kind, detail, step) = match error {
        HttpError::BadMethod { why } => (code::INVALID_PARAMS, "badMethod", Some(why), None),
        HttpError::BadUrl { why } => (code::INVALID_PARAMS, "badUrl", Some(why), None),
        HttpError::BadScheme { scheme } => (code::INVALID_PARAMS, "badScheme", Some(scheme), None),
        HttpError::BadHeaderName { why } => (code::INVALID_PARAMS, "badHeaderName", Some(why), None),
        HttpError::BadHeaderValue { name, why } => (code::INVALID_PARAMS, "badHeaderValue", Some(why), Some(name)),
        HttpError::VariableMissing { name, variable } => {
            (code::INVALID_PARAMS, "variableMissing", Some(variable), Some(name))
        }
        HttpError::VariableEmpty { name, variable } => {
            (code::INVALID_PARAMS, "variableEmpty", Some(variable), Some(name))
        }
        HttpError::VariableRefused { name, variable } => {
            (code::INVALID_PARAMS, "variableRefused", Some(variable), Some(name))
        }
        HttpError::TimedOut { why } => (code::INTERNAL, "httpTimedOut", Some(why), None),
        HttpError::NoTimeLeft => (code::INTERNAL, "httpTimedOut", Some(sentences::http_failure(&error)), None),
        HttpError::TooManyRedirects | HttpError::RedirectedTo { .. } => {
            (code::INTERNAL, "httpFailed", Some(sentences::http_failure(&error)), None)
        }
        HttpError::Failed { why, causes } => {
            (code::INTERNAL, "httpFailed", Some(why), Some(causes).filter(|causes| !causes.is_empty()))
        }
        HttpError::Body { why } => (code::INTERNAL, "httpBody", Some(why), None),
        HttpError::Unreachable(_) => (code::INTERNAL, "unreachable", None, None),
    };
    RpcError::new(code, message).with_data(ErrorData { detail, step, ..ErrorData::new(kind) })
}

/// The error of a body that is streamed: the bare cause, as Codex's server reports it there.
pub(crate) fn body_message(error: &HttpError) -> String {
    match error {
        HttpError::Body { why } => why.clone(),
        other => sentences::http_error(other),
    }
}

pub(crate) fn stream_error(error: StreamError) -> RpcError {
    let code = match error.reason {
        StreamReason::Lost { .. } => code::NOT_FOUND,
        StreamReason::BadPath { .. } => code::INVALID_PARAMS,
        StreamReason::Forbidden { .. } | StreamReason::TooMany { .. } => code::INVALID_REQUEST,
        StreamReason::Os(_)
        | StreamReason::UnknownHost { .. }
        | StreamReason::Unsupported
        | StreamReason::Unreachable(_) => code::INTERNAL,
    };
    let data = ErrorData { detail: error.reason.detail().map(str::to_owned), ..ErrorData::new(error.reason.name()) };
    let data = match &error.reason {
        StreamReason::Os(errno) => ErrorData { errno: Some(*errno), ..data },
        StreamReason::Forbidden { rule, .. } => ErrorData { rule: Some(rule.clone()), ..data },
        _ => data,
    };
    RpcError::new(code, error.to_string()).with_data(data)
}

/// `what` is a stream or a listener.
pub(crate) fn unknown_stream(what: &str, id: &str) -> RpcError {
    let why = format!("the server knows no {what} `{id}`: it was closed, or the server was restarted");
    let reason = StreamReason::Lost { why: why.clone() };
    let data = ErrorData { detail: Some(why.clone()), ..ErrorData::new(reason.name()) };
    RpcError::new(code::NOT_FOUND, why).with_data(data)
}

/// `things` is what there are too many of.
pub(crate) fn too_many_streams(things: &str, limit: usize) -> RpcError {
    let why = format!("a session may have {limit} {things} at once: close some first");
    let reason = StreamReason::TooMany { why: why.clone() };
    let data = ErrorData { detail: Some(why.clone()), ..ErrorData::new(reason.name()) };
    RpcError::new(code::INVALID_REQUEST, why).with_data(data)
}

pub(crate) fn too_many_roots(most: usize) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("capability root discovery accepts at most {most} roots"))
}

fn error_of_kind(kind: &str, code: i64, message: impl Into<String>) -> RpcError {
    RpcError::new(code, message).with_data(ErrorData::new(kind))
}

#[cfg(test)]
mod tests {
    use exec_env::files::FileVerb;

    use super::*;

    fn reported(reason: FileReason) -> (i64, String, Option<i32>) {
        let error = file_error(FileError::new(FileVerb::Read, "/w/x", reason));
        let data = error.data.expect("every error of files has some");
        assert_eq!(data.path.map(|path| path.to_string()).as_deref(), Some("file:///w/x"));
        (error.code, error.message, data.errno)
    }

    #[test]
    fn codes_are_those_of_the_original_and_the_errno_is_kept() {
        let os = |errno| reported(FileReason::Os(errno));
        assert_eq!(os(2), (-32004, "No such file or directory (os error 2)".to_owned(), Some(2)));
        assert_eq!(os(13), (-32600, "Permission denied (os error 13)".to_owned(), Some(13)));
        assert_eq!(os(28), (-32603, "No space left on device (os error 28)".to_owned(), Some(28)));
        assert_eq!(reported(FileReason::NotAFile), (-32600, "path `/w/x` is not a file".to_owned(), None));
        assert_eq!(reported(FileReason::RecursiveNoFollow).0, -32603);
    }
}
