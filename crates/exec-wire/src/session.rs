//! Sessions as operators see them, and the news that a session has moved. All of it is ours.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::empty::empty_params;

empty_params! {
    /// Asks for every session of the server; only on a connection with that right.
    #[schemars(rename = "SessionListParams")]
    ListParams,
}

/// Every session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "SessionListResult")]
pub struct ListResult {
    /// In the order of their opening.
    pub sessions: Vec<SessionInfo>,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    /// Its id.
    pub session_id: String,
    /// What the client called itself.
    pub client_name: String,
    /// When it was opened, in milliseconds since 1970.
    pub opened_at_ms: u64,
    /// Where it stands.
    pub attachment: Attachment,
    /// How many processes it has.
    pub processes: u64,
}

/// Where a session stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Attachment {
    /// It has a connection.
    Attached {
        /// From where.
        peer: String,
    },
    /// It waits for one.
    Detached {
        /// It ends in this many milliseconds.
        expires_in_ms: u64,
    },
}

/// Ends a session and its processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename = "SessionCloseParams")]
pub struct CloseParams {
    /// Which one.
    pub session_id: String,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "SessionCloseResult")]
pub struct CloseResult {
    /// False if there was no such session.
    pub closed: bool,
}

/// The last word on a connection whose session now belongs to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TakenOverParams {
    /// Which session.
    pub session_id: String,
}
