//! Watching files: changes as they happen, and paths that come into existence.

use std::path::PathBuf;

use super::FileFuture;
use crate::BoxFuture;

/// Options of [`super::Files::watch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchOptions {
    /// Also watch the directories below, and those that are created later.
    pub recursive: bool,
    /// Leave out what `.gitignore` and `.ignore` files below the root say, and `.git`.
    pub ignore_files: bool,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { recursive: true, ignore_files: false }
    }
}

/// A watch that lives as long as its handle.
pub trait ChangeStream: Send {
    /// Waits for a change and returns what changed since the last call. `None` once the root is gone. Cancelling it
    /// loses nothing.
    fn next(&mut self) -> FileFuture<'_, Option<ChangeBatch>>;
}

/// A watch for paths to come into existence; it reports once.
pub trait MissingPathWatch: Send {
    /// Returns when one of them exists, or may exist.
    fn changed(&mut self) -> BoxFuture<'_, ()>;
}

/// Some changes, in the order in which they happened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeBatch {
    /// Complete unless `overflow` is set.
    pub changes: Vec<Change>,
    /// More happened than the kernel could queue: the caller has to read this root again.
    pub overflow: Option<PathBuf>,
}

/// One change. Repeated changes of one kind to one path within a batch are reported once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// It exists now.
    Created(PathBuf),
    /// Its contents, permissions or times changed.
    Modified(PathBuf),
    /// It no longer exists.
    Removed(PathBuf),
    /// Both names are within the watched tree. A move out of it is `Removed`, one into it `Created`.
    #[allow(missing_docs, reason = "the old path and the new one")]
    Renamed { from: PathBuf, to: PathBuf },
}
