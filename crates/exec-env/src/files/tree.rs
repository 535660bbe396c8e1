//! Parameters and results of the verbs over names and trees: create, remove, copy, rename, walk, glob.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{FileError, FileReason};
use super::{LinkPolicy, limits};

/// Options of [`super::Files::create_directory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateDirectoryOptions {
    /// Create missing parents, and accept a directory that exists.
    pub recursive: bool,
    /// What to do with links in the path.
    pub links: LinkPolicy,
    /// Permission bits of the last directory. `None`: 0777 less the umask.
    pub mode: Option<u32>,
}

impl Default for CreateDirectoryOptions {
    fn default() -> Self {
        Self { recursive: true, links: LinkPolicy::Follow, mode: None }
    }
}

/// Options of [`super::Files::remove`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoveOptions {
    /// Remove a directory with everything in it.
    pub recursive: bool,
    /// Accept a path that does not exist.
    pub force: bool,
    /// What to do with links in the path.
    pub links: LinkPolicy,
}

impl Default for RemoveOptions {
    fn default() -> Self {
        Self { recursive: true, force: true, links: LinkPolicy::Follow }
    }
}

/// Options of [`super::Files::rename`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RenameOptions {
    /// Fail with `EEXIST` if the new name exists.
    pub no_replace: bool,
    /// What to do with links before the last component.
    pub links: LinkPolicy,
}

/// Options of [`super::Files::copy`].
#[derive(Clone, Default)]
pub struct CopyOptions {
    /// Copy a directory with everything in it.
    pub recursive: bool,
    /// Give files and directories the times of their originals. Links get new times.
    pub keep_times: bool,
    /// Called after every file, and after every few MiB of a large one.
    pub progress: Option<CopyProgress>,
}

/// Receives the progress of a copy. It is called on the copying thread, so it must not wait.
pub type CopyProgress = Arc<dyn Fn(&Copied) + Send + Sync>;

/// Receives what cannot be copied, while the rest of a tree is; returns the error to end the copy with it. It is called on
/// the copying thread, and a copy waits for it.
pub type CopyFailures = Arc<dyn Fn(FileError) -> Result<(), FileError> + Send + Sync>;

impl fmt::Debug for CopyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOptions")
            .field("recursive", &self.recursive)
            .field("keep_times", &self.keep_times)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copied {
    /// Number of regular files.
    pub files: u64,
    /// Number of directories.
    pub directories: u64,
    /// Number of symbolic links.
    pub symlinks: u64,
    /// Sizes of the regular files, holes included.
    pub bytes: u64,
    /// Number of FIFOs, sockets and devices that were left out.
    pub skipped: u64,
}

/// Options of [`super::Files::walk`]. The three numbers have no defaults, so that every caller decides them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkOptions {
    /// Levels of directories below the root that are read: 0 lists only the root's children.
    pub max_depth: usize,
    /// Directories that are read, the root included.
    pub max_directories: usize,
    /// Entries that are examined, those left out of the result included.
    pub max_entries: usize,
    /// List and enter links to directories; each real directory is entered once.
    pub follow_directory_symlinks: bool,
    /// List directories whose name begins with a dot, but do not enter them.
    pub prune_hidden_directories: bool,
}

impl WalkOptions {
    /// Refuses zero, and more than [`limits`] allow.
    pub fn check(&self) -> Result<(), FileReason> {
        if self.max_directories == 0 || self.max_entries == 0 {
            return Err(FileReason::WalkLimitsZero);
        }
        if self.max_depth > limits::WALK_DEPTH
            || self.max_directories > limits::WALK_DIRECTORIES
            || self.max_entries > limits::WALK_ENTRIES
        {
            return Err(FileReason::WalkLimitsTooLarge);
        }
        Ok(())
    }
}

/// The result of a walk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WalkListing {
    /// In the order of the walk.
    pub items: Vec<WalkItem>,
    /// A limit ended the walk before everything was listed.
    pub truncated: bool,
}

impl WalkListing {
    /// The files and directories, and the directories that could not be read.
    pub fn into_parts(self) -> (Vec<WalkEntry>, Vec<FileError>) {
        let (mut entries, mut errors) = (Vec::new(), Vec::new());
        for item in self.items {
            match item {
                WalkItem::Entry(entry) => entries.push(entry),
                WalkItem::Unreadable(error) => errors.push(error),
            }
        }
        (entries, errors)
    }
}

/// A part of a walk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WalkPage {
    /// Depth first: a directory, then what is below it. May be empty though there is more.
    pub items: Vec<WalkItem>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<WalkPosition>,
}

/// A place in a walk, to continue behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkPosition {
    /// What was found last.
    pub path: PathBuf,
    /// Whether what is below it comes before the next page, too.
    pub whole: bool,
}

/// What a walk found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WalkItem {
    /// A file or a directory.
    Entry(WalkEntry),
    /// A directory that could not be read, or not to its end.
    Unreadable(FileError),
}

impl WalkItem {
    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Self::Entry(entry) => &entry.path,
            Self::Unreadable(error) => &error.path,
        }
    }

    /// Behind it. Below a directory that could not be read there is nothing to continue with.
    pub fn position(&self) -> WalkPosition {
        WalkPosition { path: self.path().to_owned(), whole: matches!(self, Self::Unreadable(_)) }
    }
}

/// One file or directory of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkEntry {
    /// The root's path and what is below.
    pub path: PathBuf,
    /// After links to directories are followed.
    pub kind: WalkKind,
    /// Whether it is a link to a directory.
    pub is_symlink: bool,
}

/// The kinds a walk lists; it leaves out all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkKind {
    /// A regular file.
    File,
    /// A directory, or a link to one.
    Directory,
}

/// Which paths [`super::Files::glob`] is to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobQuery {
    /// The directory that is walked.
    pub root: PathBuf,
    /// A path below the root must match one of them: `*` within a name, `**` across names, `{a,b}`, `[a-z]`.
    pub patterns: Vec<String>,
    /// Leave out what `.gitignore`, `.ignore` and Git's own excludes say.
    pub ignore_files: bool,
    /// Also names that begin with a dot.
    pub hidden: bool,
    /// Stop after this many paths.
    pub max_paths: usize,
}

impl GlobQuery {
    /// Paths below `root` that match `pattern`, with hidden ones and without those that ignore files exclude.
    pub fn new(root: impl Into<PathBuf>, pattern: impl Into<String>) -> Self {
        Self {
            root: root.into(),
            patterns: vec![pattern.into()],
            ignore_files: true,
            hidden: true,
            max_paths: limits::GLOB_PATHS,
        }
    }
}

/// The result of a glob.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GlobMatches {
    /// The names of each directory are in bytewise order.
    pub paths: Vec<PathBuf>,
    /// There are more than `max_paths`.
    pub truncated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: WalkOptions = WalkOptions {
        max_depth: 64,
        max_directories: 10_000,
        max_entries: 50_000,
        follow_directory_symlinks: false,
        prune_hidden_directories: false,
    };

    #[test]
    fn a_walk_may_ask_for_the_limits_but_not_more_nor_nothing() {
        assert_eq!(GOOD.check(), Ok(()));
        let deep = WalkOptions { max_depth: 65, ..GOOD };
        assert_eq!(deep.check(), Err(FileReason::WalkLimitsTooLarge));
        let empty = WalkOptions { max_entries: 0, ..GOOD };
        assert_eq!(empty.check(), Err(FileReason::WalkLimitsZero));
    }
}
