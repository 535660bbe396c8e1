//! The handshake: `initialize`, and the notification `initialized` that confirms its answer.
//!
//! What the client may ask for beyond Codex's server (`detachedTtlMs`, `resumeFrom`, `binaryFrames`, `requestScope`,
//! `outputWindowBytes`) is echoed as it was granted, and only if it was asked for. There is no version here; features
//! are told by `environmentInfo`.

use std::collections::BTreeMap;

use crate::empty::empty_params;
use crate::environment::EnvironmentInfo;
use crate::session::Role;
use crate::shape::{Nullable, shapes};

shapes! {
    /// Opens a session, or takes one over.
    #[derive(Default)]
    #[serde(expecting = "struct InitializeParams")]
    pub struct InitializeParams {
        /// For logs.
        pub client_name: String,
        /// The session to resume; a new one if absent.
        #[serde(default)]
        pub resume_session_id: Nullable<String>,
        /// How long the session may live without a connection; the server's own limit still holds.
        pub detached_ttl_ms: Option<u64>,
        /// Per process, the last seq the client has seen: the push goes on right behind it.
        pub resume_from: Option<BTreeMap<String, u64>>,
        /// Whether output and file blocks may come as binary frames.
        #[serde(default, skip_serializing_if = "is_false")]
        pub binary_frames: bool,
        /// A string that the client chooses. With it, a request that changes files is known by its id: sent again in
        /// the same session, it is answered and not carried out twice. At most 64 bytes.
        pub request_scope: Option<String>,
        /// Resume only if the session is still this client's, by its `requestScope`. If another has taken it over meanwhile,
        /// the server refuses (`takenOver`): a client that missed the notification learns of it here.
        #[serde(default, skip_serializing_if = "is_false")]
        pub only_if_held: bool,
        /// The client acknowledges output with `process/acknowledge`, and holds this many bytes of a process that it has not
        /// acknowledged. Each entry counts 96 bytes more than it carries. If absent, what was sent counts as read.
        pub output_window_bytes: Option<u64>,
        /// What the client is to be to the session; as if `driver` if absent. An observer names the session that it resumes,
        /// and takes it from nobody. Who names a role is told who is attached (`session/attached`).
        pub role: Option<Role>,
    }

    pub struct InitializeResult {
        /// Its id; a UUID.
        pub session_id: String,
        /// Older servers leave it out.
        pub environment_info: Option<EnvironmentInfo>,
        /// As in `environmentInfo`; here only if that is absent, because the default environment cannot be reached.
        pub extensions: Option<Vec<String>>,
        /// The time without a connection that was granted.
        pub detached_ttl_ms: Option<u64>,
        /// Per process that is still known, the seq behind which the push begins.
        pub resume_from: Option<BTreeMap<String, u64>>,
        /// Whether binary frames were granted.
        #[serde(default, skip_serializing_if = "is_false")]
        pub binary_frames: bool,
        /// The id of the server's record of requests. If it differs from an earlier one, requests made before are not known.
        pub request_memory: Option<String>,
        /// How far the push of a process may be ahead of what the client has acknowledged.
        pub output_window_bytes: Option<u64>,
        /// What the client is to the session. A server that leaves it out knows no observers: the client drives.
        pub role: Option<Role>,
    }
}

empty_params! {
    /// The client has read the answer. A server ignores what the params are.
    InitializedParams,
}

pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}
