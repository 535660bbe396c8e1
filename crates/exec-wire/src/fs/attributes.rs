//! What can be set on a file beside its contents: permissions, times; and links, which are nothing but their text. All ours.

use crate::empty::empty_results;
use crate::path_uri::PathUri;
use crate::sandbox::SandboxContext;
use crate::shape::{Nullable, shapes};
use crate::text::OsText;

shapes! {
    /// Sets permission bits.
    pub struct SetPermissionsParams {
        pub path: PathUri,
        /// The bits, as a number: 420 is 0644.
        pub mode: u32,
        /// Whether links may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default)]
        pub sandbox: Nullable<SandboxContext>,
    }

    /// Sets times.
    pub struct SetTimesParams {
        pub path: PathUri,
        /// When it was read, in nanoseconds since 1970.
        pub accessed_ns: i64,
        /// When its contents changed, in nanoseconds since 1970.
        pub modified_ns: i64,
        /// Whether links may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default)]
        pub sandbox: Nullable<SandboxContext>,
    }

    /// Asks what a link says.
    pub struct ReadLinkParams {
        pub path: PathUri,
        /// Whether links before the last component may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default)]
        pub sandbox: Nullable<SandboxContext>,
    }

    pub struct ReadLinkResult {
        /// The link's own text, relative or not; no URI.
        pub target: OsText,
    }

    /// Makes a link.
    pub struct CreateSymlinkParams {
        pub path: PathUri,
        /// The link's own text, relative or not; no URI.
        pub target: OsText,
        /// Whether links before the last component may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default)]
        pub sandbox: Nullable<SandboxContext>,
    }
}

empty_results! {
    /// It has its new permissions.
    SetPermissionsResult,
    /// It has its new times.
    SetTimesResult,
    /// The link is there.
    CreateSymlinkResult,
}
