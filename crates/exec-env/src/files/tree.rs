//! Verbs over names and trees: make, remove, copy, rename, walk, glob.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{FileError, FileReason};
use super::{LinkPolicy, limits};

/// How to make a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateDirectoryOptions {
    /// Make what is missing on the way, and be content with one that exists.
    pub recursive: bool,
    /// What links in the path are worth.
    pub links: LinkPolicy,
    /// Permission bits of the last directory. `None`: 0777 less the umask.
    pub mode: Option<u32>,
}

impl Default for CreateDirectoryOptions {
    fn default() -> Self {
        Self { recursive: true, links: LinkPolicy::Follow, mode: None }
    }
}

/// How to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoveOptions {
    /// A directory with everything in it.
    pub recursive: bool,
    /// Be content with one that does not exist.
    pub force: bool,
    /// What links in the path are worth.
    pub links: LinkPolicy,
}

impl Default for RemoveOptions {
    fn default() -> Self {
        Self { recursive: true, force: true, links: LinkPolicy::Follow }
    }
}

/// How to rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RenameOptions {
    /// Fail with `EEXIST` if there is something at the new name.
    pub no_replace: bool,
    /// What links before the last component are worth.
    pub links: LinkPolicy,
}

/// How to copy.
#[derive(Clone, Default)]
pub struct CopyOptions {
    /// Copy a directory with everything in it.
    pub recursive: bool,
    /// What is copied is as old as what it was copied from. Links are as old as their copy.
    pub keep_times: bool,
    /// Is told how far it is, after every file and every few MiB of a large one.
    pub progress: Option<CopyProgress>,
}

/// Whom to tell how far a copy is. Called from the copying thread: it must not wait.
pub type CopyProgress = Arc<dyn Fn(&Copied) + Send + Sync>;

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
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Sizes of the regular files, holes included.
    pub bytes: u64,
    /// FIFOs, sockets and devices that were left out.
    pub skipped: u64,
}

/// How far to walk. The three numbers have no defaults on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkOptions {
    /// Directories below the root that are entered: 0 lists only the root's children.
    pub max_depth: usize,
    /// Directories that are entered at all, the root included.
    pub max_directories: usize,
    /// Entries that are examined, those left out of the answer included.
    pub max_entries: usize,
    /// List and enter links to directories; each real directory is entered once.
    pub follow_directory_symlinks: bool,
    /// List directories whose name begins with a dot, but do not enter them.
    pub prune_hidden_directories: bool,
}

impl WalkOptions {
    /// Whether the numbers are within what a walk may do.
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

/// What a walk saw.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WalkListing {
    /// Files and directories, in walking order.
    pub entries: Vec<WalkEntry>,
    /// Directories that could not be read.
    pub errors: Vec<FileError>,
    /// There is more than the limits let through.
    pub truncated: bool,
}

/// One file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkEntry {
    /// The root's path and what is below.
    pub path: PathBuf,
    /// What it is.
    pub kind: WalkKind,
    /// Whether it is a link to a directory.
    pub is_symlink: bool,
}

/// What a walk lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkKind {
    /// A regular file.
    File,
    /// A directory, or a link to one.
    Directory,
}

/// What an entry weighs in a walk's answer: the length of its `file:` URI and a fixed part.
pub fn walk_reply_bytes(path: &Path) -> usize {
    let encoded: usize = path
        .as_os_str()
        .as_bytes()
        .iter()
        .map(|byte| match byte {
            // What a URI path may carry unescaped.
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => 1,
            b'-' | b'.' | b'_' | b'~' | b'/' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';'
            | b'=' | b':' | b'@' | b'[' | b']' | b'|' => 1,
            _ => 3,
        })
        .sum();
    "file://".len() + encoded + limits::WALK_ENTRY_BYTES
}

/// Which paths to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobQuery {
    /// Where to look.
    pub root: PathBuf,
    /// What a path below the root must match: `*` within a name, `**` across, `{a,b}`, `[a-z]`. One is enough.
    pub patterns: Vec<String>,
    /// Leave out what `.gitignore`, `.ignore` and Git's own excludes say.
    pub ignore_files: bool,
    /// Also names that begin with a dot.
    pub hidden: bool,
    /// Stop after this many paths.
    pub max_paths: usize,
}

impl GlobQuery {
    /// Paths below `root` that match `pattern`, hidden ones included, ignore files obeyed.
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

/// What matched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GlobMatches {
    /// Paths, each directory's names in bytewise order.
    pub paths: Vec<PathBuf>,
    /// There are more.
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

    #[test]
    fn an_entry_weighs_its_uri_and_64_bytes() {
        assert_eq!(walk_reply_bytes(Path::new("/a b")), "file:///a%20b".len() + 64);
    }
}
