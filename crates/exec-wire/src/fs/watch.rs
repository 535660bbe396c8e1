//! Changes: the original's one-shot `fs/watchMissing`, and ours, `fs/watch`. Watches belong to the connection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::empty::empty_results;
use crate::initialize::is_false;
use crate::path_uri::PathUri;
use crate::sandbox::SandboxContext;

/// Asks to be told once when something appears or changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct FsWatchMissingParams")]
pub struct WatchMissingParams {
    /// Greater than every earlier one; the new watch replaces the old.
    pub watch_id: u64,
    /// What is not there yet.
    pub missing: Vec<PathUri>,
    /// What is there, and may change.
    pub present: Option<PathUri>,
}

/// Whether it will be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WatchMissingResult {
    /// That.
    pub watching: bool,
}

/// It appeared or changed, or may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct FsMissingChangedNotification")]
pub struct MissingChangedParams {
    /// Which watch; it is over.
    pub watch_id: u64,
}

/// Asks to be told what changes at and below a path, from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchParams {
    /// The client's name for the watch, at most 64 bytes.
    pub watch_id: String,
    /// Where.
    pub path: PathUri,
    /// Directories below, too, and those that come into being later; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recursive: Option<bool>,
    /// Leave out what ignore files say, and `.git`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ignore_files: bool,
    /// What the call may see.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// It will be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchResult {
    /// The client's name for the watch.
    pub watch_id: String,
}

/// Ends a watch. Nothing is told after the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnwatchParams {
    /// Which.
    pub watch_id: String,
}

empty_results! {
    /// The watch is over, or never was.
    UnwatchResult,
}

/// What changed, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedParams {
    /// Which watch.
    pub watch_id: String,
    /// What is known.
    pub changes: Vec<Change>,
    /// More happened than anybody could remember: look through this directory again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<PathUri>,
    /// The root is gone or the watch broke; it is over.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ended: bool,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Change {
    /// It is there now.
    Created {
        /// What.
        path: PathUri,
    },
    /// Its contents, permissions or times are new.
    Modified {
        /// What.
        path: PathUri,
    },
    /// It is gone.
    Removed {
        /// What.
        path: PathUri,
    },
    /// It has another name. A move out of the tree is `removed`, one into it `created`.
    Renamed {
        /// The old name.
        from: PathUri,
        /// The new name.
        to: PathUri,
    },
}
