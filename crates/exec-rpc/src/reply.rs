//! The one file that knows which error of the domain has which code and text on the wire.
//!
//! Texts equal those of Codex's server where it has one; `data` is ours, so that a client can rebuild the very error.

mod files;

use exec_core::command::{BadCommand, CommandField};
use exec_env::errno::ErrnoText;
use exec_env::process::{
    ForgetError, ListError, ReadError, ResizeError, SignalError, StartError, SpawnStep, TerminateError, UnknownProcess,
    Unreachable, WaitError, WriteError,
};
use exec_wire::error::{ErrorData, RpcError, code, kind};
use exec_wire::path_uri::ForeignPath;

pub(crate) use files::{
    bad_base64, body_refused, body_too_large, file_data, file_error, file_sandbox_not_enforceable, file_too_large,
    foreign_path, foreign_sandbox_path, handle_refused, http_error, nul_in_path, sandbox_without_cwd, source_refused,
    too_many_roots, unknown_handle,
};

/// An error of some verb, for a process that is called `wire_id` on the wire.
pub(crate) trait IntoRpcError {
    fn into_rpc_error(self, wire_id: &str) -> RpcError;
}

impl IntoRpcError for StartError {
    fn into_rpc_error(self, wire_id: &str) -> RpcError {
        match self {
            Self::BadCommand(bad) => bad.into_rpc_error(wire_id),
            Self::IdInUse { .. } => already_exists(wire_id),
            Self::Cancelled { .. } => {
                RpcError::new(code::INVALID_REQUEST, format!("process {wire_id} start was cancelled"))
                    .with_data(ErrorData::new(kind::START_CANCELLED))
            }
            Self::Spawn { failure, .. } => {
                let data = ErrorData {
                    errno: Some(failure.errno),
                    path: crate::convert::uri(&failure.subject),
                    step: Some(step_name(failure.step).to_owned()),
                    detail: Some(failure.subject.to_string_lossy().into_owned()),
                    ..ErrorData::new(kind::SPAWN_FAILED)
                };
                RpcError::new(code::INTERNAL, os_text(failure.errno)).with_data(data)
            }
            Self::Unreachable(unreachable) => unreachable.into_rpc_error(wire_id),
        }
    }
}

impl IntoRpcError for BadCommand {
    fn into_rpc_error(self, _wire_id: &str) -> RpcError {
        let text = self.to_string();
        let (code, message) = match &self {
            Self::EmptyArgv => (code::INVALID_PARAMS, "argv must not be empty".to_owned()),
            Self::EmptyProgram => (code::INTERNAL, "missing program for pipe spawn".to_owned()),
            Self::Nul { field: CommandField::Environment } => (code::INTERNAL, "data provided contains a nul byte".to_owned()),
            Self::Nul { .. } => (code::INTERNAL, "nul byte found in provided data".to_owned()),
            _ => (code::INVALID_PARAMS, text.clone()),
        };
        let data = ErrorData { detail: Some(text), ..ErrorData::new(kind::BAD_COMMAND) };
        RpcError::new(code, message).with_data(data)
    }
}

impl IntoRpcError for Unreachable {
    fn into_rpc_error(self, _wire_id: &str) -> RpcError {
        RpcError::new(code::INTERNAL, self.to_string())
    }
}

impl IntoRpcError for UnknownProcess {
    fn into_rpc_error(self, wire_id: &str) -> RpcError {
        unknown_process(wire_id)
    }
}

impl IntoRpcError for ReadError {
    fn into_rpc_error(self, wire_id: &str) -> RpcError {
        match self {
            Self::Unknown(unknown) => unknown.into_rpc_error(wire_id),
            Self::Spool { errno, .. } => {
                let data = ErrorData { errno: Some(errno), ..ErrorData::new(kind::SPOOL_READ) };
                RpcError::new(code::INTERNAL, os_text(errno)).with_data(data)
            }
            Self::Unreachable(unreachable) => unreachable.into_rpc_error(wire_id),
        }
    }
}

impl IntoRpcError for WriteError {
    fn into_rpc_error(self, wire_id: &str) -> RpcError {
        let text = self.to_string();
        match self {
            Self::Unknown(unknown) => unknown.into_rpc_error(wire_id),
            Self::TooLarge { .. } => {
                RpcError::new(code::INVALID_REQUEST, text).with_data(ErrorData::new(kind::TOO_LARGE))
            }
            Self::Unreachable(unreachable) => unreachable.into_rpc_error(wire_id),
        }
    }
}

impl IntoRpcError for ResizeError {
    fn into_rpc_error(self, wire_id: &str) -> RpcError {
        match self {
            Self::Unknown(unknown) => unknown.into_rpc_error(wire_id),
            Self::NoTerminal { .. } => {
                let text = format!("process {wire_id} has no terminal: start it with a tty to resize it");
                RpcError::new(code::INVALID_REQUEST, text).with_data(ErrorData::new(kind::NO_TERMINAL))
            }
            Self::NoCells { .. } => {
                RpcError::new(code::INVALID_PARAMS, self.to_string()).with_data(ErrorData::new(kind::NO_CELLS))
            }
            Self::Unreachable(unreachable) => unreachable.into_rpc_error(wire_id),
        }
    }
}

impl IntoRpcError for SignalError {
    fn into_rpc_error(self, wire_id: &str) -> RpcError {
        match self {
            Self::Unknown(unknown) => unknown.into_rpc_error(wire_id),
            Self::Refused { errno, .. } => {
                let data = ErrorData { errno: Some(errno), ..ErrorData::new(kind::SIGNAL_REFUSED) };
                RpcError::new(code::INTERNAL, os_text(errno)).with_data(data)
            }
            Self::Unreachable(unreachable) => unreachable.into_rpc_error(wire_id),
        }
    }
}

impl IntoRpcError for TerminateError {
    fn into_rpc_error(self, wire_id: &str) -> RpcError {
        match self {
            Self::Unknown(unknown) => unknown.into_rpc_error(wire_id),
            Self::Unreachable(unreachable) => unreachable.into_rpc_error(wire_id),
        }
    }
}

impl IntoRpcError for WaitError {
    fn into_rpc_error(self, wire_id: &str) -> RpcError {
        let text = self.to_string();
        match self {
            Self::Unknown(unknown) => unknown.into_rpc_error(wire_id),
            Self::BadRegex { why } => RpcError::new(code::INVALID_PARAMS, text)
                .with_data(ErrorData { detail: Some(why), ..ErrorData::new(kind::BAD_REGEX) }),
            Self::Ended { .. } => RpcError::new(code::INVALID_REQUEST, text),
            Self::Read(read) => read.into_rpc_error(wire_id),
            Self::Unreachable(unreachable) => unreachable.into_rpc_error(wire_id),
        }
    }
}

impl IntoRpcError for ListError {
    fn into_rpc_error(self, wire_id: &str) -> RpcError {
        let Self::Unreachable(unreachable) = self;
        unreachable.into_rpc_error(wire_id)
    }
}

impl IntoRpcError for ForgetError {
    fn into_rpc_error(self, wire_id: &str) -> RpcError {
        match self {
            Self::Unknown(unknown) => unknown.into_rpc_error(wire_id),
            Self::Unreachable(unreachable) => unreachable.into_rpc_error(wire_id),
        }
    }
}

pub(crate) fn unknown_process(wire_id: &str) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("unknown process id {wire_id}"))
        .with_data(ErrorData::new(kind::UNKNOWN_PROCESS))
}

pub(crate) fn starting(wire_id: &str) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("process id {wire_id} is starting"))
}

pub(crate) fn already_exists(wire_id: &str) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("process {wire_id} already exists"))
        .with_data(ErrorData::new(kind::PROCESS_EXISTS))
}

pub(crate) fn bad_id(error: &exec_core::id::BadId) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, error.to_string()).with_data(ErrorData::new(kind::TOO_LARGE))
}

pub(crate) fn empty_write_id() -> RpcError {
    RpcError::new(code::INVALID_PARAMS, "writeId must not be empty")
}

pub(crate) fn foreign_cwd(foreign: &ForeignPath) -> RpcError {
    let uri = foreign.uri.as_str();
    RpcError::new(code::INVALID_PARAMS, format!("cwd URI `{uri}` is not valid on this exec-server host: {foreign}"))
}

pub(crate) fn sandbox_not_enforceable() -> RpcError {
    RpcError::new(code::INVALID_PARAMS, "sandbox intent cannot be enforced on this executor")
        .with_data(ErrorData::new(kind::SANDBOX))
}

pub(crate) fn bad_params(message: impl Into<String>) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, message)
}

pub(crate) fn busy(message: impl Into<String>) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, message).with_data(ErrorData::new(kind::BUSY))
}

pub(crate) fn forbidden(message: impl Into<String>) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, message).with_data(ErrorData::new(kind::FORBIDDEN))
}

pub(crate) fn answer_too_large(bytes: usize) -> RpcError {
    let text =
        format!("the answer would take {bytes} bytes, more than a message may: read in parts (fs/open, maxBytes)");
    RpcError::new(code::INVALID_REQUEST, text).with_data(ErrorData::new(kind::TOO_LARGE))
}

pub(crate) fn handler_panicked(method: &str) -> RpcError {
    RpcError::new(code::INTERNAL, format!("{method} broke down: this is a fault of the server, see its log"))
}

fn os_text(errno: i32) -> String {
    ErrnoText(errno).to_string()
}

fn step_name(step: SpawnStep) -> &'static str {
    match step {
        SpawnStep::Spool => "spool",
        SpawnStep::Pipe => "pipe",
        SpawnStep::Pty => "pty",
        SpawnStep::Clone => "clone",
        SpawnStep::Session => "session",
        SpawnStep::Cwd => "cwd",
        SpawnStep::Exec => "exec",
    }
}
