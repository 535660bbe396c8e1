//! Error replies: codes, the texts of the envelope and the handshake, and the machine-readable part that is ours.
//!
//! Texts that belong to one operation are not here; they come from the errors of the domain, and the server maps them
//! in one file. Clients must branch on `code` and `data.kind`, never on a message.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::ERROR_TEXT_BYTES;
use crate::method::MethodFamily;
use crate::path_uri::PathUri;

pub mod code {
    /// A malformed message, a wrong state, or input that the operating system calls invalid or forbidden.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Params that do not decode, or make no sense together.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Everything else that went wrong on the machine.
    pub const INTERNAL: i64 = -32603;
    /// A file, directory or handle that does not exist.
    pub const NOT_FOUND: i64 = -32004;
    /// The session belongs to another connection; only Codex's server says so, ours takes it over.
    pub const ALREADY_ATTACHED: i64 = -32010;
}

/// Words for [`ErrorData::kind`] that come from the server itself. Reasons of files and processes have their names in
/// `exec-env` (`FileReason::name`, `ProcessReason::name`): the errno (`ENOENT`), or the condition in camelCase (`notAFile`,
/// `unknownProcess`). The list may grow; a client treats a word it does not know as if there were none.
pub mod kind {
    /// Larger than a bound of the wire.
    pub const TOO_LARGE: &str = "tooLarge";
    /// A sandbox that cannot be enforced here.
    pub const SANDBOX: &str = "sandbox";
    /// No file handle, watch or search of that id on the connection.
    pub const UNKNOWN_HANDLE: &str = "unknownHandle";
    /// No such session, or it has expired.
    pub const UNKNOWN_SESSION: &str = "unknownSession";
    /// Another client has taken the session over since.
    pub const TAKEN_OVER: &str = "takenOver";
    /// The server's ceiling or the token of the connection does not permit this; [`super::ErrorData::rule`] says which.
    pub const FORBIDDEN: &str = "forbidden";
    /// The connection only observes its session, and this would change something.
    pub const OBSERVER: &str = "observer";
    /// The drive of a session cannot be had or handed over like this.
    pub const DRIVE: &str = "drive";
    /// The audit cannot be written, and the server does nothing without it.
    pub const AUDIT_UNAVAILABLE: &str = "auditUnavailable";
    /// The server is at a bound of its own; later may work.
    pub const BUSY: &str = "busy";
    /// The server has no environment of that id.
    pub const UNKNOWN_ENVIRONMENT: &str = "unknownEnvironment";
    /// The process or file handle is in another environment than the request names.
    pub const OTHER_ENVIRONMENT: &str = "otherEnvironment";
    /// The environment cannot be reached just now. Others of the server may.
    pub const UNREACHABLE: &str = "unreachable";
}

/// `No such file or directory (os error 2)`. The words come from the C library and differ between libraries, but what a
/// client is told must not depend on how the server was linked: where they differ, these are musl's, which Codex's
/// server has. Numbers are those of Linux (x86-64 and arm64); those that nothing here can return are left out.
pub fn errno_text(errno: i32) -> String {
    let words = match errno {
        5 => "I/O error",
        12 => "Out of memory",
        16 => "Resource busy",
        18 => "Cross-device link",
        24 => "No file descriptors available",
        25 => "Not a tty",
        29 => "Invalid seek",
        36 => "Filename too long",
        40 => "Symbolic link loop",
        75 => "Value too large for data type",
        95 => "Not supported",
        122 => "Quota exceeded",
        same => return std::io::Error::from_raw_os_error(same).to_string(),
    };
    format!("{words} (os error {errno})")
}

/// The body of an error reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// One of [`code`].
    pub code: i64,
    pub message: String,
    /// Machine-readable details.
    // Apart from the rest, so that a `Result` that may carry one stays small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<ErrorData>>,
}

/// The machine-readable part of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorData {
    /// One of [`kind`], the name of an errno, or a condition of a file or process.
    pub kind: String,
    /// The kernel's number, where it was the kernel who refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// The path that the operation failed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathUri>,
    /// Which step of a start failed (`spool`, `pipe`, `pty`, `clone`, `session`, `cwd`, `exec`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What the kind alone does not say: a content hash, a count, a parser's words, what may be asked for instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Of what is `forbidden`: the rule that forbids it, `server/…` or `token/…`, then `methods`, `roots`, `sandbox`,
    /// `network`, `processes`, `processesPerSession` or `spoolBytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Of a server with several environments: the one in which it went wrong.
    #[serde(default, rename = "environmentId", skip_serializing_if = "Option::is_none")]
    pub environment_id: Option<String>,
}

impl ErrorData {
    pub fn new(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            errno: None,
            path: None,
            step: None,
            detail: None,
            rule: None,
            environment_id: None,
        }
    }
}

/// The members in Codex's order, because they may come as an array.
#[derive(Deserialize)]
#[serde(expecting = "struct JSONRPCErrorError")]
struct ErrorBody {
    code: i64,
    #[serde(default)]
    data: Option<serde_json::Value>,
    message: String,
}

impl<'de> Deserialize<'de> for RpcError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let body = ErrorBody::deserialize(deserializer)?;
        Ok(Self {
            code: body.code,
            message: body.message,
            // Another server may put there what it likes; only what is ours is of use.
            data: body.data.and_then(|data| serde_json::from_value(data).ok()),
        })
    }
}

impl RpcError {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > ERROR_TEXT_BYTES {
            let left_out = message.split_off(message.floor_char_boundary(ERROR_TEXT_BYTES)).len();
            message = format!("{message}… ({left_out} bytes more)");
        }
        Self { code, message, data: None }
    }

    pub fn with_data(mut self, data: ErrorData) -> Self {
        self.data = Some(Box::new(data));
        self
    }

    /// The answer to a WebSocket message that did not decode; its id is [`crate::envelope::RequestId::MALFORMED`].
    pub fn malformed_websocket(peer: &dyn std::fmt::Display, reason: &str) -> Self {
        Self::new(
            code::INVALID_REQUEST,
            format!("failed to parse websocket JSON-RPC message from exec-server websocket {peer}: {reason}"),
        )
    }

    /// The answer to a line that did not decode, on stdio or a unix socket.
    pub fn malformed_line(reason: &str) -> Self {
        Self::new(code::INVALID_REQUEST, format!("failed to parse JSON-RPC message from exec-server stdio: {reason}"))
    }

    /// The answer to a method nobody knows.
    pub fn unknown_method(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, format!("exec-server stub does not implement `{method}` yet"))
    }

    /// The answer to params that did not decode.
    pub fn invalid_params(reason: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, reason)
    }

    /// The answer to whoever asks before `initialize`.
    pub fn not_initialized(family: MethodFamily) -> Self {
        let family = family.name();
        Self::new(code::INVALID_REQUEST, format!("client must call initialize before using {family} methods"))
    }

    /// The answer to whoever asks between `initialize` and `initialized`.
    pub fn not_confirmed(family: MethodFamily) -> Self {
        let family = family.name();
        Self::new(code::INVALID_REQUEST, format!("client must send initialized before using {family} methods"))
    }

    /// The answer to a second `initialize`.
    pub fn initialized_twice() -> Self {
        Self::new(code::INVALID_REQUEST, "initialize may only be sent once per connection")
    }

    /// The answer to a session that is not there.
    pub fn unknown_session(session_id: &str) -> Self {
        Self::new(code::INVALID_REQUEST, format!("unknown session id {session_id}"))
            .with_data(ErrorData::new(kind::UNKNOWN_SESSION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_do_not_depend_on_the_c_library() {
        assert_eq!(errno_text(2), "No such file or directory (os error 2)");
        assert_eq!(errno_text(40), "Symbolic link loop (os error 40)");
        assert_eq!(errno_text(36), "Filename too long (os error 36)");
    }
}
