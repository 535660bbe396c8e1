//! What can be set on a file beside its contents: permissions, times, attributes; and links, which are nothing but
//! their text. All ours.

use crate::base64::Base64;
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
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
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
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }

    /// Asks for extended attributes.
    pub struct GetAttributesParams {
        pub path: PathUri,
        /// Whether links may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }

    pub struct GetAttributesResult {
        /// Those of the namespace `user`, by name.
        pub attributes: Vec<Attribute>,
    }

    /// An extended attribute.
    pub struct Attribute {
        /// Without `user.`.
        pub name: OsText,
        pub data_base64: Base64,
    }

    /// Sets or removes extended attributes.
    pub struct SetAttributesParams {
        pub path: PathUri,
        /// Of the namespace `user`.
        pub attributes: Vec<AttributeChange>,
        /// Whether links may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }

    /// A new value of an extended attribute.
    pub struct AttributeChange {
        /// Without `user.`.
        pub name: OsText,
        /// Absent to remove it.
        pub data_base64: Option<Base64>,
    }

    /// Asks what a link says.
    pub struct ReadLinkParams {
        pub path: PathUri,
        /// Whether links before the last component may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
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
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }
}

empty_results! {
    /// It has its new permissions.
    SetPermissionsResult,
    /// It has its new times.
    SetTimesResult,
    /// It has its new attributes.
    SetAttributesResult,
    /// The link is there.
    CreateSymlinkResult,
}
