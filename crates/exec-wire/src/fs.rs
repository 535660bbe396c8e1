//! Files: every `fs/*` method.
//!
//! Reading order: contents ([`content`]), names and trees ([`tree`]), permissions,
//! times and links ([`attributes`]), what goes on for longer ([`watch`], [`search`]).
//! Every method takes a `sandbox` as Codex's server has it. Members marked as ours are named in
//! [`Extension`](crate::Extension).

pub mod attributes;
pub mod content;
pub mod search;
pub mod tree;
pub mod watch;

pub use attributes::{
    CreateSymlinkParams, CreateSymlinkResult, ReadLinkParams, ReadLinkResult, SetPermissionsParams,
    SetPermissionsResult, SetTimesParams, SetTimesResult,
};
pub use content::{
    CloseParams, CloseResult, OpenMode, OpenParams, OpenResult, ReadBlockParams, ReadBlockResult, ReadFileParams,
    ReadFileResult, WriteBlockParams, WriteBlockResult, WriteFileParams, WriteFileResult,
};
pub use search::{
    CancelSearchParams, CancelSearchResult, FoundLine, FoundLines, FoundParams, GlobParams, GlobResult, SearchCase,
    SearchParams, SearchPattern, SearchPlace, SearchResult, SearchSummary,
};
pub use tree::{
    CanonicalizeParams, CanonicalizeResult, Copied, CopyParams, CopyProgressParams, CopyResult, CreateDirectoryParams,
    CreateDirectoryResult, DirectoryEntry, FileKind, GetMetadataParams, GetMetadataResult, PathProblem,
    ReadDirectoryParams, ReadDirectoryResult, RemoveParams, RemoveResult, RenameParams, RenameResult, WalkEntry,
    WalkEntryKind, WalkOptions, WalkParams, WalkResult,
};
pub use watch::{
    Change, ChangedParams, MissingChangedParams, UnwatchParams, UnwatchResult, WatchMissingParams, WatchMissingResult,
    WatchParams, WatchResult,
};
