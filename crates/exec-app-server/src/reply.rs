//! The one file that knows which error has which code, and which words: those of Codex's app-server where it has some.

use exec_core::command::{BadCommand, CommandField};
use exec_env::files::{FileError, FileReason};
use exec_env::process::{ProcessReason, SpawnFailure};
use exec_wire::RpcError;
use exec_wire::base64::Base64Error;
use exec_wire::error::{code, errno_text};

use crate::limits::{CONTROL_QUEUE, PROCESSES, STDIN_QUEUE_BYTES_MAX, WATCHES};
use crate::process_table::Family;

/// The server is at a bound; nothing was done, and later it may work. Codex's number.
const OVERLOADED: i64 = -32001;

const EINVAL: i32 = 22;
const ENAMETOOLONG: i32 = 36;

pub(crate) fn not_initialized() -> RpcError {
    refused("Not initialized")
}

pub(crate) fn already_initialized() -> RpcError {
    refused("Already initialized")
}

/// Codex sends the name to others in a header.
pub(crate) fn bad_client_name(name: &str) -> RpcError {
    refused(format!("Invalid clientInfo.name: '{name}'. Must be a valid HTTP header value."))
}

/// A request that does not decode.
pub(crate) fn invalid_request(why: &str) -> RpcError {
    refused(format!("Invalid request: {why}"))
}

pub(crate) fn unknown_method(method: &str, known: &[&str]) -> RpcError {
    let known = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    invalid_request(&format!("unknown variant `{method}`, expected one of {known}"))
}

pub(crate) fn experimental(what: &str) -> RpcError {
    refused(format!("{what} requires experimentalApi capability"))
}

/// What the params of a command say does not go together.
pub(crate) fn invalid_params(why: impl Into<String>) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, why)
}

/// What cannot be asked for, or not now.
pub(crate) fn refused(why: impl Into<String>) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, why)
}

pub(crate) fn internal(why: impl Into<String>) -> RpcError {
    RpcError::new(code::INTERNAL, why)
}

pub(crate) fn bad_delta(error: Base64Error) -> RpcError {
    invalid_params(format!("invalid deltaBase64: {error}"))
}

pub(crate) fn bad_contents(error: Base64Error) -> RpcError {
    refused(format!("fs/writeFile requires valid base64 dataBase64: {error}"))
}

pub(crate) fn no_active_process(family: Family, name: &str) -> RpcError {
    refused(match family {
        Family::Exec => format!("no active command/exec for process id {}", as_json(name)),
        Family::Spawn => format!("no active process for process handle {name:?}"),
    })
}

/// It has exited, and others still hold its output.
pub(crate) fn no_longer_running(family: Family, name: &str) -> RpcError {
    refused(match family {
        Family::Exec => format!("command/exec {} is no longer running", as_json(name)),
        Family::Spawn => format!("process {name:?} is no longer running"),
    })
}

/// Codex quotes ids of `command/exec` as JSON does, and handles of `process/spawn` as Rust does.
fn as_json(name: &str) -> serde_json::Value {
    serde_json::Value::from(name)
}

pub(crate) fn duplicate_process(family: Family, name: &str) -> RpcError {
    refused(match family {
        Family::Exec => format!("duplicate active command/exec process id: {}", as_json(name)),
        Family::Spawn => format!("duplicate active process handle: {name:?}"),
    })
}

pub(crate) fn stdin_not_streamed(family: Family) -> RpcError {
    refused(match family {
        Family::Exec => "stdin streaming is not enabled for this command/exec",
        Family::Spawn => "stdin streaming is not enabled for this process",
    })
}

pub(crate) fn stdin_closed() -> RpcError {
    refused("stdin is already closed")
}

pub(crate) fn stdin_full() -> RpcError {
    overloaded(format!(
        "stdin of this process is full: {STDIN_QUEUE_BYTES_MAX} bytes wait for it; nothing of this write was taken: send it \
         again once earlier writes were answered"
    ))
}

pub(crate) fn controls_full() -> RpcError {
    overloaded(format!("{CONTROL_QUEUE} requests wait for this process already; this one was not taken: send it again"))
}

pub(crate) fn no_terminal() -> RpcError {
    refused("failed to resize PTY: process is not attached to a PTY")
}

pub(crate) fn too_many_processes() -> RpcError {
    overloaded(format!("{PROCESSES} processes run on this connection already; nothing was started: end some first"))
}

pub(crate) fn too_many_watches() -> RpcError {
    overloaded(format!("there are {WATCHES} watches on this connection already: end some first"))
}

pub(crate) fn overloaded(why: impl Into<String>) -> RpcError {
    RpcError::new(OVERLOADED, why)
}

/// Why a process was not started.
pub(crate) fn not_started(family: Family, tty: bool, reason: &ProcessReason) -> RpcError {
    let what = match family {
        Family::Exec => "command",
        Family::Spawn => "process",
    };
    let why = match reason {
        ProcessReason::BadCommand(BadCommand::EmptyProgram) => {
            format!("missing program for {} spawn", if tty { "PTY" } else { "pipe" })
        }
        ProcessReason::BadCommand(BadCommand::Nul { field: CommandField::Environment }) => {
            "data provided contains a nul byte".to_owned()
        }
        ProcessReason::BadCommand(BadCommand::Nul { .. }) => "nul byte found in provided data".to_owned(),
        ProcessReason::SpawnFailed(SpawnFailure { errno, .. }) => errno_text(*errno),
        ProcessReason::SandboxUnavailable { why } | ProcessReason::Forbidden { why, .. } => why.clone(),
        other => other.sentence("of this request"),
    };
    internal(format!("failed to spawn {what}: {why}"))
}

/// Why a verb over a running process failed.
pub(crate) fn process_failed(family: Family, name: &str, reason: &ProcessReason) -> RpcError {
    match reason {
        ProcessReason::UnknownProcess | ProcessReason::Ended { .. } => no_active_process(family, name),
        ProcessReason::NoTerminal => no_terminal(),
        other => internal(other.sentence(name)),
    }
}

/// A path that no file can have.
pub(crate) fn nul_in_path() -> RpcError {
    refused("file name contained an unexpected NUL byte")
}

pub(crate) fn path_too_long() -> RpcError {
    internal(errno_text(ENAMETOOLONG))
}

/// Only invalid input is the caller's fault; what is missing or forbidden is not told apart by the code.
pub(crate) fn file_failed(error: &FileError) -> RpcError {
    match &error.reason {
        FileReason::Os(EINVAL) => refused(errno_text(EINVAL)),
        FileReason::Os(errno) => internal(errno_text(*errno)),
        FileReason::NotAFile => refused(format!("path `{}` is not a file", error.path.display())),
        FileReason::TooLarge { limit_bytes } => {
            refused(format!("file is too large to read: limit is {limit_bytes} bytes"))
        }
        FileReason::RecursiveRequired => refused("fs/copy requires recursive: true when sourcePath is a directory"),
        FileReason::CopyIntoItself => refused("fs/copy cannot copy a directory to itself or one of its descendants"),
        FileReason::CopyOntoItself => refused("fs/copy cannot copy a file onto itself"),
        FileReason::CopySpecial => refused("fs/copy only supports regular files, directories, and symlinks"),
        other => internal(other.to_string()),
    }
}

pub(crate) fn watch_exists(id: &str) -> RpcError {
    refused(format!("watchId already exists: {id}"))
}

pub(crate) fn unknown_environment(id: &str) -> String {
    format!("unknown environment id `{id}`")
}

/// An environment that cannot be added.
pub(crate) fn bad_environment(why: impl std::fmt::Display) -> RpcError {
    refused(format!("exec-server protocol error: {why}"))
}
