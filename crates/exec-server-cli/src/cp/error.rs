//! Why something could not be copied.

use std::ffi::OsString;
use std::path::Path;

use exec_env::files::{FileError, FileReason};

use crate::failures::{self, EDQUOT, ENOSPC};
use crate::location::Location;

/// Why something could not be copied. Paths are in the words for people: with their environment.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    /// One of the two ends failed.
    #[error("{}", failures::describe(path, error))]
    Files { path: OsString, error: FileError },
    /// A directory without -r.
    #[error("cannot copy {path:?}: it is a directory: say -r to copy it with everything in it")]
    NeedsRecursive { path: OsString },
    /// Something to copy into, that is none.
    #[error("cannot copy into {path:?}: it is no directory: make it first with `exec-server fs mkdir`")]
    NoDirectory { path: OsString },
    /// A device, FIFO or socket, on either side.
    #[error("cannot copy to or from {path:?}: it is a FIFO, a socket or a device")]
    Special { path: OsString },
    /// What would be written to is a link to nothing.
    #[error("refused to write through {path:?}: it is a symbolic link that leads nowhere: remove it first")]
    Dangling { path: OsString },
    /// Both names are of one file.
    #[error("refused to copy {path:?} onto itself")]
    OntoItself { path: OsString },
    /// A directory and a place in it.
    #[error("refused to copy {path:?} into itself")]
    IntoItself { path: OsString },
    /// Something that is no directory where a directory must be.
    #[error("cannot make the directory {path:?}: there is something else of that name, or a link that leads away")]
    InTheWay { path: OsString },
    /// A directory where a file or a link must be.
    #[error("cannot replace {path:?}: it is a directory")]
    DirectoryInTheWay { path: OsString },
    /// A name that no file can have, from a server that cannot be trusted.
    #[error("refused an entry called {name:?} in {path:?}: such a name would lead out of the target")]
    Outside { path: OsString, name: OsString },
    /// It was written while we read it.
    #[error("{path:?} changed while it was copied, so the copy was thrown away: copy it again")]
    Changed { path: OsString },
    /// The two ends do not agree.
    #[error("{path:?} has not arrived as it was sent: its BLAKE3 differs: copy it again")]
    Corrupt { path: OsString },
}

impl CopyError {
    pub(super) fn at(location: &Location, error: FileError) -> Self {
        Self::Files { path: location.display_path(&error.path), error }
    }

    pub(super) fn with_path(location: &Location, path: &Path, of: impl FnOnce(OsString) -> Self) -> Self {
        of(location.display_path(path))
    }

    /// One word, for programs.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Files { error, .. } => error.reason.name(),
            Self::NeedsRecursive { .. } => "recursiveRequired",
            Self::NoDirectory { .. } => "ENOTDIR",
            Self::Special { .. } => "copySpecial",
            Self::Dangling { .. } => "danglingLink",
            Self::OntoItself { .. } => "copyOntoItself",
            Self::IntoItself { .. } => "copyIntoItself",
            Self::InTheWay { .. } => "EEXIST",
            Self::DirectoryInTheWay { .. } => "EISDIR",
            Self::Outside { .. } => "outside",
            Self::Changed { .. } => "changed",
            Self::Corrupt { .. } => "corrupt",
        }
    }

    /// Whether whatever comes next would fail the same way.
    pub(super) fn ends_all(&self) -> bool {
        match self {
            Self::Files { error, .. } => {
                matches!(error.reason, FileReason::Unreachable { .. } | FileReason::Os(ENOSPC | EDQUOT))
            }
            _ => false,
        }
    }
}
