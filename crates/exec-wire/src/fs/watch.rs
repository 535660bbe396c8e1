//! Changes: Codex's one-shot `fs/watchMissing`, and ours, `fs/watch`. Watches belong to the connection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::empty::empty_results;
use crate::initialize::is_false;
use crate::path_uri::PathUri;
use crate::sandbox::SandboxContext;
use crate::shape::{Nullable, shapes};

shapes! {
    /// Asks for one notification when something appears or changes.
    #[serde(expecting = "struct FsWatchMissingParams")]
    pub struct WatchMissingParams {
        /// Greater than every earlier one; the new watch replaces the old.
        pub watch_id: u64,
        /// What is not there yet.
        pub missing: Vec<PathUri>,
        /// What is there, and may change.
        pub present: Nullable<PathUri>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "crate::sandbox::of_file_call"
        )]
        pub sandbox: Nullable<SandboxContext>,
    }

    #[derive(Copy)]
    pub struct WatchMissingResult {
        pub watching: bool,
    }

    /// What was watched appeared or changed, or may have. The watch is over.
    #[derive(Copy)]
    #[serde(expecting = "struct FsMissingChangedNotification")]
    pub struct MissingChangedParams {
        pub watch_id: u64,
    }

    /// Asks for a notification of every change at and below a path, from now on.
    pub struct WatchParams {
        /// The id that the client gives the watch; at most 64 bytes.
        pub watch_id: String,
        pub path: PathUri,
        /// Directories below, too, and those that come into being later; true if absent.
        pub recursive: Option<bool>,
        /// Leave out what ignore files say, and `.git`.
        #[serde(default, skip_serializing_if = "is_false")]
        pub ignore_files: bool,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }

    pub struct WatchResult {
        /// The id that the client gave.
        pub watch_id: String,
    }

    /// Ends a watch. No notification follows the answer.
    pub struct UnwatchParams {
        pub watch_id: String,
    }

    /// What changed, in the order in which it happened.
    pub struct ChangedParams {
        pub watch_id: String,
        pub changes: Vec<Change>,
        /// More changed than could be recorded: read this directory again.
        pub overflow: Option<PathUri>,
        /// The root is gone or the watch failed; no more notifications come.
        #[serde(default, skip_serializing_if = "is_false")]
        pub ended: bool,
    }
}

empty_results! {
    /// The watch is over, or never was.
    UnwatchResult,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Change {
    Created {
        path: PathUri,
    },
    /// Its contents, permissions or times changed.
    Modified {
        path: PathUri,
    },
    Removed {
        path: PathUri,
    },
    /// A move out of the tree is `removed`, one into it `created`.
    Renamed {
        from: PathUri,
        to: PathUri,
    },
}
