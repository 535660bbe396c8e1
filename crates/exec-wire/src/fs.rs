//! Files: every `fs/*` method.
//!
//! Reading order: contents ([`content`]), names and trees ([`tree`]), what goes on for longer ([`watch`], [`search`]).
//! Every method takes a `sandbox` as the original has it. Members marked as ours are named in
//! [`EXTENSIONS`](crate::environment::EXTENSIONS).

pub mod content;
pub mod search;
pub mod tree;
pub mod watch;

pub use content::{
    CloseParams, CloseResult, OpenMode, OpenParams, OpenResult, ReadBlockParams, ReadBlockResult, ReadFileParams,
    ReadFileResult, WriteBlockParams, WriteBlockResult, WriteFileParams, WriteFileResult,
};
pub use search::{
    CancelSearchParams, CancelSearchResult, FoundLine, FoundLines, FoundParams, GlobParams, GlobResult, SearchCase,
    SearchParams, SearchPattern, SearchResult, SearchSummary,
};
pub use tree::{
    CanonicalizeParams, CanonicalizeResult, Copied, CopyParams, CopyProgressParams, CopyResult, CreateDirectoryParams,
    CreateDirectoryResult, CreateSymlinkParams, CreateSymlinkResult, DirectoryEntry, FileKind, GetMetadataParams,
    GetMetadataResult, PathProblem, ReadDirectoryParams, ReadDirectoryResult, ReadLinkParams, ReadLinkResult,
    RemoveParams, RemoveResult, RenameParams, RenameResult, SetPermissionsParams, SetPermissionsResult, WalkEntry,
    WalkEntryKind, WalkOptions, WalkParams, WalkResult,
};
pub use watch::{
    Change, ChangedParams, MissingChangedParams, UnwatchParams, UnwatchResult, WatchMissingParams, WatchMissingResult,
    WatchParams, WatchResult,
};
