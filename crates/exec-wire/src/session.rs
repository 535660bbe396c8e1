//! Sessions: listing and closing them, who is attached to one and who drives it, and the notification that another
//! connection has taken one over. All of it is ours.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::empty::empty_params;
use crate::initialize::is_false;
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
        /// Who drives it; absent if nobody is there.
        pub driver: Option<AttachedClient>,
        /// How many observe it.
        pub observers: Option<u64>,
        /// When its driver last asked for something, in milliseconds since 1970.
        pub last_activity_ms: Option<u64>,
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

    /// What a connection is to its session.
    pub enum Role {
        /// It starts, writes and ends things. A session has one at most.
        Driver,
        /// It sees what the driver sees, and changes nothing.
        Observer,
    }

    /// A client that is attached to a session.
    pub struct AttachedClient {
        /// Its number among all connections of the server; never used again.
        pub id: u64,
        /// What it calls itself.
        pub client_name: String,
        /// Since when, in milliseconds since 1970.
        pub attached_at_ms: u64,
        /// Whether it is told who is attached, and so can be asked for the drive: it has named a `role`.
        #[serde(default, skip_serializing_if = "is_false")]
        pub is_told: bool,
        /// Whether it has asked for the drive and has no answer yet.
        #[serde(default, skip_serializing_if = "is_false")]
        pub asks_for_drive: bool,
    }

    /// Who is attached to the session as of now. Each client that named a `role` gets it behind the answer to `initialize`, and
    /// whenever something of it changes; one that reads slowly gets the last state only.
    #[serde(rename = "SessionAttachedParams")]
    pub struct AttachedParams {
        pub session_id: String,
        /// The receiver itself, among those that are attached.
        pub own_id: u64,
        /// What the receiver is now.
        pub role: Role,
        /// Absent if nobody drives.
        pub driver: Option<AttachedClient>,
        /// In the order in which they came.
        pub observers: Vec<AttachedClient>,
        /// Without a driver: when the session ends, unless somebody drives it by then.
        pub expires_in_ms: Option<u64>,
    }

    /// Asks for the drive, takes it, hands it over or refuses it. Without members: asks the driver, and waits for the answer.
    #[derive(Default)]
    #[serde(rename = "SessionDriveParams")]
    pub struct DriveParams {
        /// Take it without asking.
        #[serde(default, skip_serializing_if = "is_false")]
        pub force: bool,
        /// Of the driver: hand the drive over to this observer, by its `id`.
        pub to: Option<u64>,
        /// Of the driver: refuse it to this observer.
        pub refuse: Option<u64>,
    }

    #[serde(rename = "SessionDriveResult")]
    pub struct DriveResult {
        pub status: DriveStatus,
    }

    pub enum DriveStatus {
        /// The caller drives now.
        Granted,
        /// The driver keeps the drive.
        Refused,
        /// The observer that was named drives now, and the caller observes.
        HandedOver,
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
