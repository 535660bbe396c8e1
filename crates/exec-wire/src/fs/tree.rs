//! Names and trees: make, look, list, walk, remove, copy, rename; several changes at once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base64::Base64;
use crate::empty::empty_results;
use crate::error::ErrorData;
use crate::initialize::is_false;
use crate::path_uri::PathUri;
use crate::sandbox::SandboxContext;
use crate::shape::{Nullable, shapes};

shapes! {
    /// Makes a directory.
    #[serde(expecting = "struct WireFsCreateDirectoryParams")]
    pub struct CreateDirectoryParams {
        pub path: PathUri,
        /// Make parents, and accept a directory that exists; true if absent.
        pub recursive: Option<bool>,
        /// Whether links may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
        /// Ours: permission bits of the last directory.
        pub mode: Option<u32>,
    }

    #[serde(expecting = "struct WireFsGetMetadataParams")]
    pub struct GetMetadataParams {
        pub path: PathUri,
        /// Whether links may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }

    /// Times are since 1970; those in nanoseconds are ours, as is everything below `modifiedAtMs`.
    pub struct GetMetadataResult {
        /// A directory, or a link to one that was followed.
        pub is_directory: bool,
        /// A regular file, likewise.
        pub is_file: bool,
        /// Whether the path itself is a link.
        pub is_symlink: bool,
        /// In bytes.
        pub size: u64,
        /// When it was made; 0 if the file system does not say.
        pub created_at_ms: i64,
        /// When its contents changed.
        pub modified_at_ms: i64,
        pub kind: Option<FileKind>,
        /// Permission bits, with set-user-id, set-group-id and sticky.
        pub mode: Option<u32>,
        pub uid: Option<u32>,
        pub gid: Option<u32>,
        pub inode: Option<u64>,
        pub device: Option<u64>,
        /// The number of hard links.
        pub nlink: Option<u32>,
        /// When it was made.
        pub created_ns: Option<i64>,
        /// When its contents changed.
        pub modified_ns: Option<i64>,
        /// When it was read.
        pub accessed_ns: Option<i64>,
        /// When anything about it changed.
        pub changed_ns: Option<i64>,
    }

    /// What a file is.
    pub enum FileKind {
        /// A regular file.
        File,
        /// A directory.
        Directory,
        /// A link; where links are followed, one that leads nowhere.
        Symlink,
        /// A FIFO, socket or device.
        Special,
    }

    /// Resolves all links in a path.
    #[serde(expecting = "struct WireFsCanonicalizeParams")]
    pub struct CanonicalizeParams {
        pub path: PathUri,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }

    pub struct CanonicalizeResult {
        pub path: PathUri,
    }

    #[serde(expecting = "struct WireFsReadDirectoryParams")]
    pub struct ReadDirectoryParams {
        pub path: PathUri,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
        /// Ours: asks for a page of at most so many entries, sorted bytewise by name.
        pub max_entries: Option<usize>,
        /// Ours: asks for the page behind the one that has this as its `nextCursor`.
        pub cursor: Option<Base64>,
    }

    /// The entries, in no order; those of a page sorted.
    pub struct ReadDirectoryResult {
        /// At most [`crate::limits::DIRECTORY_ENTRIES`].
        pub entries: Vec<DirectoryEntry>,
        /// Ours: of a page behind which there are more; a word that means nothing to anybody else.
        pub next_cursor: Option<Base64>,
    }

    /// A name in a directory.
    pub struct DirectoryEntry {
        /// The name; not exact where it is not UTF-8.
        pub file_name: String,
        /// A directory, or a link to one.
        pub is_directory: bool,
        /// A regular file, or a link to one.
        pub is_file: bool,
        /// Ours: whether the name itself is a link; one that is neither file nor directory may lead nowhere.
        pub is_symlink: Option<bool>,
        /// Ours: the path, byte-exact.
        pub path: Option<PathUri>,
    }

    /// Lists a tree.
    #[serde(expecting = "struct WireFsWalkParams")]
    pub struct WalkParams {
        /// The directory to begin at.
        pub path: PathUri,
        pub options: WalkOptions,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
        /// Ours: asks for a page of the walk, which is then depth first: the first if this is empty, else the one behind the
        /// page that has this as its `nextCursor`.
        pub cursor: Option<Base64>,
    }

    #[derive(Copy)]
    pub struct WalkOptions {
        /// 0 lists only the root's children.
        pub max_depth: usize,
        /// How many directories are entered.
        pub max_directories: usize,
        /// How many entries are examined.
        pub max_entries: usize,
        /// List and enter links to directories.
        pub follow_directory_symlinks: bool,
        /// Do not enter directories whose names begin with a dot.
        #[serde(default)]
        pub prune_hidden_directories: bool,
    }

    /// A tree, breadth first, names sorted bytewise within each directory.
    pub struct WalkResult {
        /// Files and directories.
        pub entries: Vec<WalkEntry>,
        /// Directories that could not be read.
        pub errors: Vec<PathProblem>,
        /// Whether there is more than the limits let through.
        pub truncated: bool,
        /// Ours: of a page behind which there are more; a word that means nothing to anybody else.
        pub next_cursor: Option<Base64>,
    }

    pub struct WalkEntry {
        /// The root's path and what is below.
        pub path: PathUri,
        pub kind: WalkEntryKind,
        /// Ours: whether it is a link to a directory; absent if not.
        #[serde(default, skip_serializing_if = "is_false")]
        pub is_symlink: bool,
    }

    pub enum WalkEntryKind {
        /// A regular file.
        File,
        /// A directory, or a link to one.
        Directory,
    }

    /// One path of many that failed.
    pub struct PathProblem {
        pub path: PathUri,
        /// For people.
        pub message: String,
        /// Ours: for programs.
        pub data: Option<ErrorData>,
    }

    /// Removes a file, a link (never its target) or a directory.
    #[serde(expecting = "struct WireFsRemoveParams")]
    pub struct RemoveParams {
        pub path: PathUri,
        /// Whether a directory is removed with everything in it; true if absent.
        pub recursive: Option<bool>,
        /// Whether a path that does not exist is no error; true if absent.
        pub force: Option<bool>,
        /// Whether links before the last component may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }

    /// Copies a file, a link or a directory.
    #[serde(expecting = "struct WireFsCopyParams")]
    pub struct CopyParams {
        pub source_path: PathUri,
        /// To where.
        pub destination_path: PathUri,
        /// Whether the source may be a directory.
        pub recursive: bool,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
        /// Ours: whether the answer counts what was copied.
        #[serde(default, skip_serializing_if = "is_false")]
        pub report: bool,
        /// Ours: the id under which `fs/copyProgress` reports, before the answer comes.
        pub progress_id: Option<String>,
        /// Ours: whether copies keep the times of their sources.
        #[serde(default, skip_serializing_if = "is_false")]
        pub keep_times: bool,
    }

    /// The progress of a copy. Some are left out where they would come too fast.
    pub struct CopyProgressParams {
        pub progress_id: String,
        pub copied: Copied,
    }

    #[derive(Copy, Default)]
    pub struct CopyResult {
        /// Ours: only if `report` asked for it.
        pub copied: Option<Copied>,
    }

    #[derive(Copy, Default)]
    pub struct Copied {
        pub files: u64,
        pub directories: u64,
        pub symlinks: u64,
        /// Sizes of the regular files, holes included.
        pub bytes: u64,
        /// FIFOs, sockets and devices that were left out.
        pub skipped: u64,
    }

    /// Renames a file within one file system.
    pub struct RenameParams {
        pub source_path: PathUri,
        pub destination_path: PathUri,
        /// Fail if there is something at the new name.
        #[serde(default, skip_serializing_if = "is_false")]
        pub no_replace: bool,
        /// Whether links before the last component may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }
}

shapes! {
    /// Several changes of files, all or none.
    pub struct ApplyChangesParams {
        /// At most [`crate::limits::CHANGES`]; no file may be in two of them.
        pub changes: Vec<FileChange>,
        /// Make the directories that new names need.
        #[serde(default, skip_serializing_if = "is_false")]
        pub make_directories: bool,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }
}

/// A change of one file. `ifMatch` is as in `fs/writeFile`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FileChange {
    /// The whole of a file.
    Write {
        path: PathUri,
        data_base64: Base64,
        /// Permission bits of the result; as they were if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_match: Option<String>,
    },
    /// A file or a link goes.
    Remove {
        path: PathUri,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_match: Option<String>,
    },
    /// A file gets a name that nothing has.
    Rename {
        path: PathUri,
        destination_path: PathUri,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_match: Option<String>,
    },
}

impl FileChange {
    /// What it changes; of two, the second is where to.
    pub fn paths(&self) -> Vec<&PathUri> {
        match self {
            Self::Write { path, .. } | Self::Remove { path, .. } => vec![path],
            Self::Rename { path, destination_path, .. } => vec![path, destination_path],
        }
    }
}

empty_results! {
    /// All changes are made.
    ApplyChangesResult,
    /// The directory is there.
    CreateDirectoryResult,
    RemoveResult,
    /// It has its new name.
    RenameResult,
}
