//! Why something could not be copied.

use std::ffi::OsString;
use std::path::Path;

use exec_env::files::{FileError, FileReason};

use crate::site::Site;
use crate::trouble::{self, EDQUOT, ENOSPC};

/// Why something could not be copied. Paths are in the words for people: with their environment.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    /// One of the two ends failed.
    #[error("{}", trouble::sentence(shown, error))]
    Files { shown: OsString, error: FileError },
    /// A directory without -r.
    #[error("cannot copy {shown:?}: it is a directory: say -r to copy it with everything in it")]
    NeedsRecursive { shown: OsString },
    /// Something to copy into, that is none.
    #[error("cannot copy into {shown:?}: it is no directory: make it first with `exec-server fs mkdir`")]
    NoDirectory { shown: OsString },
    /// A device, FIFO or socket, on either side.
    #[error("cannot copy to or from {shown:?}: it is a FIFO, a socket or a device")]
    Special { shown: OsString },
    /// What would be written to is a link to nothing.
    #[error("refused to write through {shown:?}: it is a symbolic link that leads nowhere: remove it first")]
    Dangling { shown: OsString },
    /// Both names are of one file.
    #[error("refused to copy {shown:?} onto itself")]
    OntoItself { shown: OsString },
    /// A directory and a place in it.
    #[error("refused to copy {shown:?} into itself")]
    IntoItself { shown: OsString },
    /// Something that is no directory where a directory must be.
    #[error("cannot make the directory {shown:?}: there is something else of that name, or a link that leads away")]
    InTheWay { shown: OsString },
    /// A directory where a file or a link must be.
    #[error("cannot replace {shown:?}: it is a directory")]
    DirectoryInTheWay { shown: OsString },
    /// A name that no file can have, from a server that cannot be trusted.
    #[error("refused an entry called {name:?} in {shown:?}: such a name would lead out of the target")]
    Outside { shown: OsString, name: OsString },
    /// It was written while we read it.
    #[error("{shown:?} changed while it was copied, so the copy was thrown away: copy it again")]
    Changed { shown: OsString },
    /// The two ends do not agree.
    #[error("{shown:?} has not arrived as it was sent: its BLAKE3 differs: copy it again")]
    Corrupt { shown: OsString },
}

impl CopyError {
    pub(super) fn at(site: &Site, error: FileError) -> Self {
        Self::Files { shown: site.shown(&error.path), error }
    }

    pub(super) fn shown(site: &Site, path: &Path, of: impl FnOnce(OsString) -> Self) -> Self {
        of(site.shown(path))
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
