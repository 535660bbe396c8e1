//! Changes, as they happen.

use std::path::PathBuf;

use super::FileFuture;
use crate::BoxFuture;

/// What to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchOptions {
    /// Directories below, too, and those that come into being later.
    pub recursive: bool,
    /// Leave out what `.gitignore` and `.ignore` files below the root say, and `.git`.
    pub ignore_files: bool,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { recursive: true, ignore_files: false }
    }
}

/// A watch that goes on as long as its handle.
pub trait ChangeStream: Send {
    /// What changed since the last answer, waiting for the first change. `None` once the root is gone. Cancelling it
    /// loses nothing.
    fn next(&mut self) -> FileFuture<'_, Option<ChangeBatch>>;
}

/// A watch for something to appear; it tells once.
pub trait MissingPathWatch: Send {
    /// Returns when it appeared, or might have.
    fn changed(&mut self) -> BoxFuture<'_, ()>;
}

/// Some changes, in the order in which they happened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeBatch {
    /// What is known.
    pub changes: Vec<Change>,
    /// More happened than the kernel could remember: look through this root again.
    pub overflow: Option<PathBuf>,
}

/// One change. Repeated changes of one kind to one path within a batch are told once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// It is there now.
    Created(PathBuf),
    /// Its contents, permissions or times are new.
    Modified(PathBuf),
    /// It is gone.
    Removed(PathBuf),
    /// It has another name. A move out of the watched tree is `Removed`, one into it `Created`.
    Renamed {
        /// The old name.
        from: PathBuf,
        /// The new name.
        to: PathBuf,
    },
}
