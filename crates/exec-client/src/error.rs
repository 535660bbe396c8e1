//! How a call can fail, and what that means for each verb. The only file that knows error codes.
//!
//! Where our server says what kind of error it was (`error.data`), the same typed error comes out as on a local
//! machine. Where another server has a code and a text only, the text's errno is used if it has one.

mod files;

use std::path::PathBuf;
use std::time::Duration;

use exec_core::{Command, ProcessId, TerminalSize};
use exec_env::process::{
    ForgetError, ListError, ReadError, ResizeError, SignalError, SpawnFailure, StartError, SpawnStep, TerminateError,
    UnknownProcess, Unreachable, WaitError, WriteError,
};
use exec_wire::error::{code, kind};
use exec_wire::{ErrorData, Method, RpcError};

use crate::session::{AttemptError, LossKind, SessionLoss};

pub(crate) use files::{file_error, http_error, is_answer_too_large, is_unknown_handle, reason_of, refused_file};

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server said no.
    #[error("the server refused {name}: {error}", name = method.name())]
    Refused {
        /// What was asked.
        method: Method,
        /// What it said.
        error: Box<RpcError>,
    },
    /// The server said nothing.
    #[error("{name} was not answered within {after:?}", name = method.name())]
    Deadline {
        /// What was asked.
        method: Method,
        /// The limit.
        after: Duration,
    },
    /// The connection broke after it was sent, and it may not be sent twice.
    #[error("the connection broke while {name} was on its way: it may have been carried out, or not", name = method.name())]
    Interrupted {
        /// What was asked.
        method: Method,
    },
    /// The answer is not what it should be.
    #[error("the answer to {name} cannot be read: {reason}", name = method.name())]
    Undecodable {
        /// What was asked.
        method: Method,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no session any more, and what was asked belonged to it; or there is none to be had.
    #[error("{why}")]
    Lost {
        /// What happened.
        why: String,
    },
    /// This server has no such method.
    #[error("this server has no {name}", name = method.name())]
    Unsupported {
        /// What would have been asked.
        method: Method,
    },
}

impl CallError {
    /// The server's own words, if it was the server who said no.
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

/// The answer to a server that asks what we do not know.
pub(crate) fn not_implemented(method: &str) -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, format!("exec-server client does not implement `{method}` yet"))
}

/// What a refused `initialize` means.
pub(crate) fn initialize_error(error: &RpcError) -> AttemptError {
    let why = format!("the server refused initialize: {}", error.message);
    // A half-open connection of ours may still be attached; the server will notice. A server at its limit may find room.
    if error.code == code::ALREADY_ATTACHED || is(error, kind::BUSY) {
        return AttemptError::Transient(why);
    }
    let unknown = is(error, kind::UNKNOWN_SESSION) || error.message.starts_with("unknown session id");
    let kind = if unknown { LossKind::UnknownSession } else { LossKind::Refused };
    AttemptError::Permanent(SessionLoss { kind, why: error.message.clone() })
}

/// Whether a start failed because the name is taken.
pub(crate) fn is_id_in_use(error: &CallError, id: &ProcessId) -> bool {
    error.refusal().is_some_and(|refusal| {
        is(refusal, kind::PROCESS_EXISTS)
            || is(refusal, "idInUse")
            || refusal.message == format!("process {id} already exists")
    })
}

/// Whether a write failed because nobody can read it: what Codex's server says after a terminate.
pub(crate) fn is_stdin_gone(error: &CallError) -> bool {
    error.refusal().is_some_and(|refusal| refusal.message == "failed to write to process stdin")
}

/// Why a process was not started.
pub(crate) fn start_error(id: &ProcessId, command: &Command, error: CallError) -> StartError {
    if is_id_in_use(&error, id) {
        return StartError::IdInUse { id: id.clone() };
    }
    let Some(refusal) = error.refusal() else { return Unreachable::from(error).into() };
    if is(refusal, kind::START_CANCELLED) || is(refusal, "cancelled") {
        return StartError::Cancelled { id: id.clone() };
    }
    match spawn_failure(refusal, command) {
        Some(failure) => StartError::Spawn { id: id.clone(), failure },
        None => Unreachable::from(error).into(),
    }
}

fn spawn_failure(refusal: &RpcError, command: &Command) -> Option<SpawnFailure> {
    let program = || command.argv.first().map(PathBuf::from).unwrap_or_default();
    if let Some(data) = &refusal.data {
        let step = step_of(data)?;
        let subject = match &data.path {
            Some(path) => path.to_path().ok()?,
            // A program that is looked up by name has no path; other steps are about no file.
            None => match step {
                SpawnStep::Exec => program(),
                SpawnStep::Cwd => command.cwd.clone(),
                _ => data.detail.as_ref().map(PathBuf::from).unwrap_or_default(),
            },
        };
        return Some(SpawnFailure { step, errno: data.errno?, subject });
    }
    let errno: i32 = refusal.message.rsplit_once("(os error ")?.1.strip_suffix(')')?.parse().ok()?;
    // The text does not say whether the folder or the program is meant; only a folder can be "not a directory".
    const ENOTDIR: i32 = 20;
    Some(match errno {
        ENOTDIR => SpawnFailure { step: SpawnStep::Cwd, errno, subject: command.cwd.clone() },
        _ => SpawnFailure { step: SpawnStep::Exec, errno, subject: program() },
    })
}

fn step_of(data: &ErrorData) -> Option<SpawnStep> {
    let word = match data.kind.strip_prefix("spawn:") {
        Some(step) => step,
        None if data.kind == kind::SPAWN_FAILED => data.step.as_deref()?,
        None => return None,
    };
    Some(match word {
        "spool" => SpawnStep::Spool,
        "pipe" => SpawnStep::Pipe,
        "pty" => SpawnStep::Pty,
        "clone" => SpawnStep::Clone,
        "session" => SpawnStep::Session,
        "cwd" => SpawnStep::Cwd,
        "exec" => SpawnStep::Exec,
        _ => return None,
    })
}

/// Why a log was not read.
pub(crate) fn read_error(id: &ProcessId, error: CallError) -> ReadError {
    if let Some(unknown) = unknown(id, &error) {
        return unknown.into();
    }
    match error.refusal().and_then(|refusal| refusal.data.as_deref()) {
        Some(ErrorData { kind: word, errno: Some(errno), .. }) if word == kind::SPOOL_READ => {
            ReadError::Spool { id: id.clone(), errno: *errno }
        }
        _ => Unreachable::from(error).into(),
    }
}

/// Why nothing was written.
pub(crate) fn write_error(id: &ProcessId, error: CallError) -> WriteError {
    match unknown(id, &error) {
        Some(unknown) => unknown.into(),
        None => Unreachable::from(error).into(),
    }
}

/// Why a terminal was not resized.
pub(crate) fn resize_error(id: &ProcessId, size: TerminalSize, error: CallError) -> ResizeError {
    if let Some(unknown) = unknown(id, &error) {
        return unknown.into();
    }
    match error.refusal() {
        Some(refusal) if is(refusal, kind::NO_TERMINAL) => ResizeError::NoTerminal { id: id.clone() },
        Some(refusal) if is(refusal, kind::NO_CELLS) => ResizeError::NoCells { size },
        _ => Unreachable::from(error).into(),
    }
}

/// Why a signal was not sent.
pub(crate) fn signal_error(id: &ProcessId, error: CallError) -> SignalError {
    if let Some(unknown) = unknown(id, &error) {
        return unknown.into();
    }
    match error.refusal().and_then(|refusal| refusal.data.as_deref()) {
        Some(ErrorData { errno: Some(errno), .. }) => SignalError::Refused { id: id.clone(), errno: *errno },
        _ => Unreachable::from(error).into(),
    }
}

/// Why a process was not terminated.
pub(crate) fn terminate_error(id: &ProcessId, error: CallError) -> TerminateError {
    match unknown(id, &error) {
        Some(unknown) => unknown.into(),
        None => Unreachable::from(error).into(),
    }
}

/// Why waiting was not possible.
pub(crate) fn wait_error(id: &ProcessId, error: CallError) -> WaitError {
    if let Some(unknown) = unknown(id, &error) {
        return unknown.into();
    }
    match error.refusal() {
        Some(refusal) if is(refusal, kind::BAD_REGEX) => {
            let detail = refusal.data.as_deref().and_then(|data| data.detail.clone());
            WaitError::BadRegex { why: detail.unwrap_or_else(|| refusal.message.clone()) }
        }
        _ => read_error(id, error).into(),
    }
}

/// Why there is no list.
pub(crate) fn list_error(error: CallError) -> ListError {
    Unreachable::from(error).into()
}

/// Why a process was not forgotten.
pub(crate) fn forget_error(id: &ProcessId, error: CallError) -> ForgetError {
    match unknown(id, &error) {
        Some(unknown) => unknown.into(),
        None => Unreachable::from(error).into(),
    }
}

fn unknown(id: &ProcessId, error: &CallError) -> Option<UnknownProcess> {
    let refusal = error.refusal()?;
    let says_so = is(refusal, kind::UNKNOWN_PROCESS) || refusal.message == format!("unknown process id {id}");
    says_so.then(|| UnknownProcess { id: id.clone() })
}

fn is(error: &RpcError, kind: &str) -> bool {
    error.data.as_ref().is_some_and(|data| data.kind == kind)
}

#[cfg(test)]
mod tests {
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
            ..ErrorData::new(kind::SPAWN_FAILED)
        };
        let failure = SpawnFailure { step: SpawnStep::Cwd, errno: 2, subject: "/w/x".into() };
        let expected = StartError::Spawn { id: id(), failure };
        let error = RpcError::new(code::INTERNAL, "No such file or directory (os error 2)");
        assert_eq!(start_error(&id(), &command, refused(error.clone().with_data(data))), expected);
        let data = ErrorData { errno: Some(2), path: Some(path), ..ErrorData::new("spawn:cwd") };
        assert_eq!(start_error(&id(), &command, refused(error.with_data(data))), expected);
    }

    #[test]
    fn without_data_the_errno_of_the_text_is_used() {
        let command = Command::new(["tool"], "/w");
        let error = refused(RpcError::new(code::INTERNAL, "Exec format error (os error 8)"));
        let failure = SpawnFailure { step: SpawnStep::Exec, errno: 8, subject: "tool".into() };
        assert_eq!(start_error(&id(), &command, error), StartError::Spawn { id: id(), failure });
    }

    #[test]
    fn the_originals_texts_are_understood_where_it_has_no_data() {
        let exists = refused(RpcError::new(code::INVALID_REQUEST, "process p already exists"));
        assert_eq!(start_error(&id(), &Command::new(["x"], "/"), exists), StartError::IdInUse { id: id() });
        let error = refused(RpcError::new(code::INVALID_REQUEST, "unknown process id p"));
        assert_eq!(read_error(&id(), error), ReadError::Unknown(UnknownProcess { id: id() }));
    }

    #[test]
    fn a_session_that_is_attached_elsewhere_is_tried_again_and_an_unknown_one_is_not() {
        let attached = RpcError::new(code::ALREADY_ATTACHED, "session s is already attached to another connection");
        assert!(matches!(initialize_error(&attached), AttemptError::Transient(_)));
        let unknown = RpcError::new(code::INVALID_REQUEST, "unknown session id s");
        let loss = SessionLoss { kind: LossKind::UnknownSession, why: "unknown session id s".into() };
        assert_eq!(initialize_error(&unknown), AttemptError::Permanent(loss));
    }
}
