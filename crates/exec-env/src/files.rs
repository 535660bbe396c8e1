//! What can be done with files, and how it can fail.
//!
//! Paths are bytes, as the kernel has them: nothing here assumes UTF-8. Every failure is one [`FileError`] that keeps
//! the verb, the path and the errno, so that a remote machine fails in the same words as this one.
//!
//! - [`content`], [`metadata`], [`tree`]: parameters and results of the verbs that answer once;
//! - [`change_set`]: several changes, all or none;
//! - [`watch`], [`search`]: those of the verbs whose results keep coming;
//! - [`error`]: how they fail;
//! - [`limits`]: what bounds them.
//!
//! Deliberately absent: file handles by name, block encodings, URIs. Those belong to a connection.

pub mod change_set;
pub mod content;
pub mod error;
pub mod limits;
pub mod metadata;
pub mod search;
pub mod tree;
pub mod watch;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use exec_core::sandbox::{FileCeiling, SandboxPolicy};

pub use change_set::{ChangeAction, ChangeSet, FileChange};
pub use content::{ContentHash, ExpectedFile, FileBlock, OpenMode, WriteOptions};
pub use error::{FileError, FileReason, FileVerb, WatchLimit};
pub use metadata::{AttributeChanges, Attributes, DirectoryEntry, DirectoryPage, FileKind, FileTimes, Metadata};
pub use search::{FileLines, Pattern, SearchItem, SearchLine, SearchQuery, SearchResults, SearchSummary};
pub use tree::{
    Copied, CopyFailures, CopyOptions, CreateDirectoryOptions, GlobMatches, GlobQuery, RemoveOptions, RenameOptions,
    WalkEntry, WalkItem, WalkKind, WalkListing, WalkOptions, WalkPage, WalkPosition,
};
pub use watch::{Change, ChangeBatch, ChangeStream, MissingPathWatch, WatchOptions};

use crate::BoxFuture;

/// What every verb over files returns.
pub type FileFuture<'a, T> = BoxFuture<'a, Result<T, FileError>>;

/// The verbs over files.
pub trait Files: Send + Sync {
    /// The whole of a regular file, if it is not larger than [`limits::READ_BYTES`].
    fn read<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Bytes>;

    /// The hash of a regular file of any size, computed where the file is and in little memory; a caller that stops
    /// waiting stops it. Bytes that are appended meanwhile are hashed, too, up to [`limits::READ_BYTES`] of them; a file that
    /// grows faster than that is [`FileReason::TooLarge`].
    fn hash<'a>(&'a self, path: &'a Path, algorithm: HashAlgorithm, links: LinkPolicy) -> FileFuture<'a, FileHash>;

    /// Opens a regular file, to read or write it in blocks.
    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode, links: LinkPolicy) -> FileFuture<'a, Box<dyn OpenFile>>;

    /// Replaces the file by `bytes`, whole or not at all; or appends them. Mode, owner, extended attributes and the
    /// target of a symbolic link are kept.
    fn write<'a>(&'a self, path: &'a Path, bytes: Bytes, options: WriteOptions) -> FileFuture<'a, ()>;

    /// Makes several changes, all or none; also if whoever makes them is killed meanwhile. Writes of this kind, and those with
    /// an expectation, wait for each other.
    fn change_set(&self, changes: ChangeSet) -> FileFuture<'_, ()>;

    /// Makes a directory.
    fn create_directory<'a>(&'a self, path: &'a Path, options: CreateDirectoryOptions) -> FileFuture<'a, ()>;

    /// Removes a file, a link (never its target) or a directory.
    fn remove<'a>(&'a self, path: &'a Path, options: RemoveOptions) -> FileFuture<'a, ()>;

    /// Copies a file, a link or a directory. A file appears at its destination whole or not at all.
    fn copy<'a>(&'a self, source: &'a Path, destination: &'a Path, options: CopyOptions) -> FileFuture<'a, Copied>;

    /// Copies as [`Self::copy`] does, but goes on when something within a directory cannot be copied: `failed` is told
    /// what is left out, and why. An environment that does not know how ends with the first failure.
    fn copy_what_can_be<'a>(
        &'a self,
        source: &'a Path,
        destination: &'a Path,
        options: CopyOptions,
        failed: CopyFailures,
    ) -> FileFuture<'a, Copied> {
        drop(failed);
        self.copy(source, destination, options)
    }

    /// Renames a file within its file system; never follows a link that is the last component.
    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path, options: RenameOptions) -> FileFuture<'a, ()>;

    /// What the kernel knows about a file.
    fn metadata<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Metadata>;

    /// The absolute path without links, dots and doubled slashes; the file must exist.
    fn canonicalize<'a>(&'a self, path: &'a Path) -> FileFuture<'a, PathBuf>;

    /// The entries of a directory in the kernel's order, at most [`limits::DIRECTORY_ENTRIES`].
    fn read_directory<'a>(&'a self, path: &'a Path) -> FileFuture<'a, Vec<DirectoryEntry>>;

    /// The entries of a directory of any size in pages: at most `max_entries` of those whose names come behind `after` in
    /// bytewise order. Nothing is held between pages, and what is there all the time is in exactly one of them.
    fn read_directory_page<'a>(
        &'a self,
        path: &'a Path,
        after: Option<&'a OsStr>,
        max_entries: usize,
    ) -> FileFuture<'a, DirectoryPage>;

    /// The files and directories below `root`, breadth first, names sorted bytewise within each directory.
    fn walk<'a>(&'a self, root: &'a Path, options: WalkOptions) -> FileFuture<'a, WalkListing>;

    /// The files and directories below `root` in pages: depth first, names sorted bytewise within each directory, those
    /// behind `after`. The numbers of the options bound each page. Links to directories are not followed; options that ask
    /// for it fail with `EINVAL`. Nothing is held between pages, and what is there all the time is in exactly one of them.
    fn walk_page<'a>(
        &'a self,
        root: &'a Path,
        options: WalkOptions,
        after: Option<WalkPosition>,
    ) -> FileFuture<'a, WalkPage>;

    /// Sets the permission bits, with set-user-id, set-group-id and sticky.
    fn set_permissions<'a>(&'a self, path: &'a Path, mode: u32, links: LinkPolicy) -> FileFuture<'a, ()>;

    /// Sets the times of the last access and of the last modification.
    fn set_times<'a>(&'a self, path: &'a Path, times: FileTimes, links: LinkPolicy) -> FileFuture<'a, ()>;

    /// The extended attributes of the namespace `user`, without that word and its dot: at most
    /// [`limits::ATTRIBUTE_BYTES`], names included. A file system that has none is `EOPNOTSUPP`.
    fn attributes<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Attributes>;

    /// Sets extended attributes of the namespace `user`, one after the other; those without a value are removed, if they are
    /// there.
    fn set_attributes<'a>(
        &'a self,
        path: &'a Path,
        attributes: AttributeChanges,
        links: LinkPolicy,
    ) -> FileFuture<'a, ()>;

    /// The text of a symbolic link. `links` applies to the components before the last.
    fn read_link<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, PathBuf>;

    /// Makes a symbolic link at `path` with the text `target`. `links` applies to the components before the last.
    fn create_symlink<'a>(&'a self, target: &'a Path, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, ()>;

    /// Watches until one of `missing` comes into existence or `present` changes. `None`: that cannot be watched,
    /// because one of `missing` exists already, `present` does not, or it would take too many watches.
    fn watch_missing<'a>(
        &'a self,
        missing: &'a [PathBuf],
        present: Option<&'a Path>,
    ) -> FileFuture<'a, Option<Box<dyn MissingPathWatch>>>;

    /// Watches for changes at and below `root`, from now on.
    fn watch<'a>(&'a self, root: &'a Path, options: WatchOptions) -> FileFuture<'a, Box<dyn ChangeStream>>;

    /// Searches contents. Returns as soon as the query is known to be valid; the results come from the handle.
    fn search<'a>(&'a self, query: SearchQuery) -> FileFuture<'a, Box<dyn SearchResults>>;

    /// Paths that match patterns, sorted.
    fn glob<'a>(&'a self, query: GlobQuery) -> FileFuture<'a, GlobMatches>;

    /// The same files with the rights of a user of their machine, named as in [`exec_core::RunAs`], and what is opened
    /// or watched through it as well: what is made belongs to the user and its primary group, and what it may not do is
    /// `EACCES` or `EPERM`. Nothing of procfs exists, and there are no change sets. If there is no such user, or
    /// whoever serves the files may not act as another, this or the first verb fails with
    /// [`FileReason::UserUnavailable`]. On files of a user, the new one takes the place of the old one.
    fn as_user<'a>(&'a self, user: &'a str) -> BoxFuture<'a, Result<Arc<dyn Files>, FileReason>>;

    /// The same files with every verb bound by a policy, and what is opened or watched through it as well. A write to what
    /// may only be read is `EROFS`, what is denied is `EACCES`, and what no rule names does not exist (`ENOENT`). On files
    /// that are bound already, the new policy takes the place of the old one.
    fn under_policy(&self, policy: Arc<SandboxPolicy>) -> Arc<dyn Files>;

    /// The same files with every verb bound by a ceiling as well, whatever policy they are bound by, now or later; of
    /// several ceilings each counts. What a ceiling does not allow is [`FileReason::Forbidden`], and names its rule.
    fn under_ceiling(&self, ceiling: Arc<FileCeiling>) -> Arc<dyn Files>;
}

/// A file that stays open between calls. Calls may overlap, which is how a reader reads ahead.
pub trait OpenFile: Send + Sync {
    /// The size when it was opened.
    fn size_bytes(&self) -> u64;

    /// At most `len` bytes at `offset`; fewer only at the end of the file.
    fn read_block(&self, offset: u64, len: usize) -> FileFuture<'_, FileBlock>;

    /// Writes `bytes` at `offset`; what lies between the end of the file and `offset` becomes a hole.
    fn write_block(&self, offset: u64, bytes: Bytes) -> FileFuture<'_, ()>;

    /// Closes it. Dropping does the same, but reports no error.
    fn close(self: Box<Self>) -> FileFuture<'static, ()>;
}

/// How [`Files::hash`] hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashAlgorithm {
    /// As [`ContentHash`] is.
    Blake3,
    /// SHA-256, which lock files and package indexes have.
    Sha256,
}

/// The hash of a file's contents at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHash {
    /// 32 bytes, whichever the algorithm was.
    pub digest: [u8; 32],
    /// How many bytes were hashed.
    pub size_bytes: u64,
}

impl FileHash {
    /// The digest as 64 hexadecimal digits, in lower case.
    pub fn hex(&self) -> String {
        // This type of `blake3` is any 32 bytes with their text.
        blake3::Hash::from(self.digest).to_string()
    }

    /// The opposite of [`Self::hex`]; `None` if that is not 64 hexadecimal digits.
    pub fn from_hex(hex: &str, size_bytes: u64) -> Option<Self> {
        blake3::Hash::from_hex(hex).ok().map(|digest| Self { digest: digest.into(), size_bytes })
    }
}

/// What to do with symbolic links in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkPolicy {
    /// They are followed.
    #[default]
    Follow,
    /// No component may be one. The kernel checks that while it resolves the path, so nobody can swap one in meanwhile.
    Refuse,
}
