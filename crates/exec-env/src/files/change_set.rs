//! Several changes of several files, all or none.
//!
//! Every change is checked before any is made. Then they are made one shortly after the other: who reads meanwhile may see
//! some without the others, for as long as the renames take. Afterwards there are all of them or none, also after the
//! machine, the server or the caller was killed in between.

use std::path::PathBuf;

use bytes::Bytes;

use super::ExpectedFile;

/// Changes that [`super::Files::change_set`] makes together. No file may be in two of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeSet {
    /// At most [`CHANGE_SET_FILES`](super::limits::CHANGE_SET_FILES), with
    /// [`CHANGE_SET_BYTES`](super::limits::CHANGE_SET_BYTES) of new contents together.
    pub changes: Vec<FileChange>,
    /// Make the directories that new names need.
    pub make_directories: bool,
}

/// A change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Which file.
    pub path: PathBuf,
    /// What it must be before.
    pub expect: ExpectedFile,
    /// What happens to it.
    pub action: ChangeAction,
}

/// What happens to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeAction {
    /// It has these contents afterwards. A link at the end of the path is followed; mode, owner and attributes are kept.
    Write {
        /// The whole of it.
        bytes: Bytes,
        /// Permission bits. `None`: as they were, or 0666 less the umask for a new file.
        mode: Option<u32>,
    },
    /// It is gone. A link goes itself, never its target; a directory is refused.
    Remove,
    /// It has another name, in the same file system.
    Rename {
        /// The new name, which no file may have.
        to: PathBuf,
    },
}
