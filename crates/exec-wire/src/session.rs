//! Sessions: listing and closing them, and the notification that another connection has taken one over. All of it is ours.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::empty::empty_params;
use crate::shape::shapes;

empty_params! {
    /// Asks for every session of the server; only on a connection with that right.
    #[schemars(rename = "SessionListParams")]
    ListParams,
}

shapes! {
    #[serde(rename = "SessionListResult")]
    pub struct ListResult {
        /// In the order of their opening.
        pub sessions: Vec<SessionInfo>,
    }

    pub struct SessionInfo {
        pub session_id: String,
        /// What the client called itself.
        pub client_name: String,
        /// When it was opened, in milliseconds since 1970.
        pub opened_at_ms: u64,
        pub attachment: Attachment,
        /// How many processes it has.
        pub processes: u64,
    }

    /// Ends a session and its processes.
    #[serde(rename = "SessionCloseParams")]
    pub struct CloseParams {
        pub session_id: String,
    }

    #[derive(Copy)]
    #[serde(rename = "SessionCloseResult")]
    pub struct CloseResult {
        /// False if there was no such session.
        pub closed: bool,
    }

    /// The last message on a connection whose session another connection has taken over.
    pub struct TakenOverParams {
        pub session_id: String,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Attachment {
    Attached { peer: String },
    Detached { expires_in_ms: u64 },
}
