//! The handshake: `initialize`, and the notification `initialized` that confirms its answer.
//!
//! What the client may ask for beyond Codex's server (`detachedTtlMs`, `resumeFrom`, `binaryFrames`, `requestScope`,
//! `outputWindowBytes`) is echoed as it was granted, and only if it was asked for. There is no version here; features are told by `environmentInfo`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::empty::empty_params;
use crate::environment::EnvironmentInfo;

/// Opens a session, or takes one over.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct InitializeParams")]
pub struct InitializeParams {
    /// For logs.
    pub client_name: String,
    /// The session to resume; a new one if absent.
    #[serde(default)]
    pub resume_session_id: Option<String>,
    /// How long the session may live without a connection; the server's own limit still holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached_ttl_ms: Option<u64>,
    /// Per process, the last seq the client has seen: the push goes on right behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<BTreeMap<String, u64>>,
    /// Whether output and file blocks may come as binary frames.
    #[serde(default, skip_serializing_if = "is_false")]
    pub binary_frames: bool,
    /// A string that the client chooses. With it, a request that changes files is known by its id: sent again in the same session,
    /// it is answered and not carried out twice. At most 64 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_scope: Option<String>,
    /// The client acknowledges output with `process/acknowledge`, and holds this many bytes of a process that it has not
    /// acknowledged. Each entry counts 96 bytes more than it carries. If absent, what was sent counts as read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_window_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// Its id; a UUID.
    pub session_id: String,
    /// Older servers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_info: Option<EnvironmentInfo>,
    /// The time without a connection that was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached_ttl_ms: Option<u64>,
    /// Per process that is still known, the seq behind which the push begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<BTreeMap<String, u64>>,
    /// Whether binary frames were granted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub binary_frames: bool,
    /// The id of the server's record of requests. If it differs from an earlier one, requests made before are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_memory: Option<String>,
    /// How far the push of a process may be ahead of what the client has acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_window_bytes: Option<u64>,
}

empty_params! {
    /// The client has read the answer. A server ignores what the params are.
    InitializedParams,
}

pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}
