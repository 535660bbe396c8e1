//! Connections that the machine makes and accepts (ours): streams of bytes over the same connection as everything else.
//!
//! Both directions are numbered, so that every request may be sent again after a break. What the client reads are chunks 0,
//! 1, 2 …: the server keeps each until it is acknowledged, and the client may ask for several at once before they are there.
//! What it writes are bytes at an offset: the server says up to where it has accepted them, and never waits; where there is
//! no room, `net/awaitRoom` does. So a stream that nobody reads costs its window, and delays nobody.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base64::Base64;
use crate::empty::empty_results;
use crate::initialize::is_false;
use crate::path_uri::PathUri;
use crate::shape::shapes;

/// Where to connect to, or to listen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Endpoint {
    Tcp {
        /// A name or an address.
        host: String,
        /// 0 listens on any free port.
        port: u16,
    },
    Unix {
        path: PathUri,
    },
}

shapes! {
    /// Connects from the machine. The stream belongs to the session.
    #[schemars(rename = "StreamOpenParams")]
    pub struct OpenParams {
        /// The client's key, unique in the session; at most 32 bytes.
        pub stream_id: String,
        pub to: Endpoint,
    }

    /// Reads a chunk, and waits for it.
    #[schemars(rename = "StreamReadParams")]
    pub struct ReadParams {
        pub stream_id: String,
        /// Which: 0, 1, 2 … Less than 8 beyond `acknowledged`.
        pub seq: u64,
        /// All before this one have arrived, and may be forgotten.
        pub acknowledged: u64,
    }

    /// A chunk.
    #[schemars(rename = "StreamReadResult")]
    pub struct ReadResult {
        /// At most 256 KiB; empty only at the end.
        pub chunk: Base64,
        /// Whether the other end has finished. No chunk follows.
        pub eof: bool,
    }

    /// Writes bytes.
    #[schemars(rename = "StreamWriteParams")]
    pub struct WriteParams {
        pub stream_id: String,
        /// How many bytes were written before these.
        pub offset: u64,
        /// At most 256 KiB.
        pub chunk: Base64,
        /// Whether these are the last.
        #[serde(default, skip_serializing_if = "is_false")]
        pub eof: bool,
    }

    /// What the server has by now.
    #[schemars(rename = "StreamWriteResult")]
    pub struct WriteResult {
        /// So many bytes of the stream were accepted. Less than the end of the chunk if there was no room for all of it, or
        /// if what comes before it is missing.
        pub accepted: u64,
    }

    /// Waits until there is room for more.
    #[schemars(rename = "StreamAwaitRoomParams")]
    pub struct AwaitRoomParams {
        pub stream_id: String,
    }

    /// Closes a stream, both directions at once. What was accepted is still written.
    #[schemars(rename = "StreamCloseParams")]
    pub struct CloseParams {
        pub stream_id: String,
        /// The other end is to see an error, and nothing more is written.
        #[serde(default, skip_serializing_if = "is_false")]
        pub reset: bool,
    }

    /// Listens on the machine. The listener belongs to the session.
    #[schemars(rename = "StreamListenParams")]
    pub struct ListenParams {
        /// The client's key, unique in the session; at most 32 bytes.
        pub listener_id: String,
        pub at: Endpoint,
    }

    /// It listens.
    #[schemars(rename = "StreamListenResult")]
    pub struct ListenResult {
        /// Where, with the port that it got.
        pub at: Endpoint,
    }

    /// Waits for the next connection, which gets this id.
    #[schemars(rename = "StreamAcceptParams")]
    pub struct AcceptParams {
        pub listener_id: String,
        /// As in `net/open`. A request that is repeated after a break gets the same connection.
        pub stream_id: String,
    }

    /// A connection was accepted.
    #[schemars(rename = "StreamAcceptResult")]
    pub struct AcceptResult {
        /// Who connected; absent for a unix socket.
        pub peer: Option<String>,
    }

    /// Stops listening. Streams that were accepted go on.
    #[schemars(rename = "StreamUnlistenParams")]
    pub struct UnlistenParams {
        pub listener_id: String,
    }
}

empty_results! {
    /// It is connected.
    #[schemars(rename = "StreamOpenResult")]
    OpenResult,
    /// The stream is gone, if there was one.
    #[schemars(rename = "StreamCloseResult")]
    CloseResult,
    /// Nobody listens there any more.
    #[schemars(rename = "StreamUnlistenResult")]
    UnlistenResult,
}
