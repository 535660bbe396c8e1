//! Why something could not be copied.

use std::ffi::OsString;

use exec_env::files::{FileError, FileReason};
use libc::{EDQUOT, ENOSPC};

use crate::failures::{self, Failures};
use crate::location::Location;

/// Paths are in the form for the user: with their environment.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    #[error("{}", failures::describe(path, error))]
    Files { path: OsString, error: FileError },
    #[error("cannot copy {path:?}: it is a directory: say -r to copy it with everything in it")]
    NeedsRecursive { path: OsString },
    /// The destination must be a directory and is not.
    #[error("cannot copy into {path:?}: it is no directory: make it first with `exec-server fs mkdir`")]
    NoDirectory { path: OsString },
    #[error("cannot copy to or from {path:?}: it is a FIFO, a socket or a device")]
    Special { path: OsString },
    #[error("refused to write through {path:?}: it is a symbolic link that leads nowhere: remove it first")]
    Dangling { path: OsString },
    #[error("refused to copy {path:?} onto itself")]
    OntoItself { path: OsString },
    #[error("refused to copy {path:?} into itself")]
    IntoItself { path: OsString },
    #[error("cannot make the directory {path:?}: there is something else of that name, or a link that leads away")]
    InTheWay { path: OsString },
    #[error("cannot replace {path:?}: it is a directory")]
    DirectoryInTheWay { path: OsString },
    /// A server sent a name that no directory entry can have.
    #[error("refused an entry called {name:?} in {path:?}: such a name would lead out of the target")]
    Outside { path: OsString, name: OsString },
    /// We would need more and more memory to remember what is left to do.
    #[error("stopped at {path:?}: the tree is wider and deeper than we can copy at once: copy its parts")]
    TreeTooLarge { path: OsString },
    #[error("{path:?} changed while it was copied, so the copy was thrown away: copy it again")]
    Changed { path: OsString },
    #[error("{path:?} has not arrived as it was sent: its BLAKE3 differs: copy it again")]
    Corrupt { path: OsString },
    /// A report could not be printed, which ends the command.
    #[error(transparent)]
    Stdout(#[from] anyhow::Error),
}

/// Adds the location to the error of a call on its files.
pub(super) trait AtLocation<T> {
    fn at(self, location: &Location) -> Result<T, CopyError>;
}

impl<T> AtLocation<T> for Result<T, FileError> {
    fn at(self, location: &Location) -> Result<T, CopyError> {
        self.map_err(|error| CopyError::at(location, error))
    }
}

impl CopyError {
    pub(super) fn at(location: &Location, error: FileError) -> Self {
        Self::Files { path: location.display_path(&error.path), error }
    }

    pub(super) fn report(&self, failures: &mut Failures) -> anyhow::Result<()> {
        failures.report(self.reason(), &self.to_string())
    }

    /// One word, for programs.
    fn reason(&self) -> &'static str {
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
            Self::TreeTooLarge { .. } => "treeTooLarge",
            Self::Changed { .. } => "changed",
            Self::Corrupt { .. } => "corrupt",
            Self::Stdout(_) => "stdout",
        }
    }

    /// Whether everything that follows would fail for the same reason.
    pub(super) fn ends_all(&self) -> bool {
        match self {
            Self::Files { error, .. } => {
                matches!(error.reason, FileReason::Unreachable { .. } | FileReason::Os(ENOSPC | EDQUOT))
            }
            Self::Stdout(_) => true,
            _ => false,
        }
    }
}
