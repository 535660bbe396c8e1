//! The conformance suite for files: what every [`Files`] must do. A file is an area, a `pub async fn` a behaviour.
//!
//! The functions use [`exec_env`] and nothing below it; what should be on the disk they read directly, because the
//! scratch directory is on the same machine. [`files_conformance!`](crate::files_conformance) turns them into tests:
//!
//! ```ignore
//! exec_testkit::files_conformance!(local, local_files());
//! ```
//!
//! makes a module `local` with one `#[test]` for each behaviour, in a test environment of its own, which
//! `local_files().await` gives. `build.rs` finds the functions, so a new behaviour is written once.
//!
//! Deliberately absent: what is not visible through [`exec_env`] (memory, kill -9 of a writer, speed).

pub mod blocks;
pub mod change_sets;
pub mod content;
pub mod copies;
pub mod full;
pub mod links;
pub mod names;
pub mod policies;
pub mod policy_races;
pub mod races;
pub mod search;
pub mod special;
pub mod trees;
pub mod users;
pub mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use exec_env::files::{FileError, FileReason, Files};
use rustix::fs::{CWD, FileType};

use crate::TestEnvironment;

/// Longest time one behaviour may take, on a loaded machine with two cores. A test that needs it has failed.
const DEADLINE: Duration = Duration::from_secs(120);

/// What every round of a soak may add to the deadline.
const DEADLINE_PER_ROUND: Duration = Duration::from_secs(20);

/// Rounds of a soak, if `EXEC_SOAK_ROUNDS` asks for one.
pub(crate) fn soak_rounds() -> Option<u32> {
    std::env::var("EXEC_SOAK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok())
}

#[doc(hidden)]
pub fn deadline() -> Duration {
    DEADLINE + DEADLINE_PER_ROUND * soak_rounds().unwrap_or(0)
}

/// The environment is dropped here, inside the runtime, because it may have tasks to stop.
#[doc(hidden)]
pub async fn finish(env: FilesTestEnvironment) {
    drop(env);
}

/// The [`Files`] under test, and a scratch directory.
pub struct FilesTestEnvironment {
    env: TestEnvironment,
    /// How many times fewer races are enough: over a wire each takes longer, and the kernel below is the same.
    fewer_races: u64,
    /// Whether the connection breaks. Then a watch may report, instead of a change, that some may have been missed.
    breaks: bool,
}

impl FilesTestEnvironment {
    pub fn new(env: TestEnvironment) -> Self {
        Self { env, fewer_races: 1, breaks: false }
    }

    /// Says that the files are at the far end of a connection.
    #[must_use]
    pub fn remote(mut self) -> Self {
        self.fewer_races = 20;
        self
    }

    /// Says that the connection breaks.
    #[must_use]
    pub fn breaking(mut self) -> Self {
        self.breaks = true;
        self
    }

    pub fn files(&self) -> &dyn Files {
        self.env.environment.files()
    }

    pub fn scratch(&self) -> PathBuf {
        self.env.scratch()
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.scratch().join(name)
    }

    /// Creates a file in the scratch directory, with the directories it needs.
    pub fn file(&self, name: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        let parent = path.parent().expect("it is below the scratch directory");
        std::fs::create_dir_all(parent).expect("the scratch directory is ours");
        std::fs::write(&path, contents).expect("the scratch directory is ours");
        path
    }

    pub fn directory(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).expect("the scratch directory is ours");
        path
    }

    pub fn fifo(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).expect("the scratch directory is ours");
        path
    }

    pub fn link(&self, name: impl AsRef<Path>, text: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        std::os::unix::fs::symlink(text, &path).expect("the scratch directory is ours");
        path
    }
}

pub(crate) fn contents(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("the test knows that the file is there")
}

/// The names in a directory, sorted.
pub(crate) fn names_in(path: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(path).expect("the test knows that the directory is there");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("it can be read").file_name()).collect();
    names.sort();
    names
}

pub(crate) fn reason<T>(outcome: Result<T, FileError>) -> Option<FileReason> {
    outcome.err().map(|error| error.reason)
}

/// Makes one test of each behaviour of files for one more environment.
///
/// `files_conformance!(name, setup)`: `setup` is an expression that gives a future of a
/// [`FilesTestEnvironment`](crate::suite_files::FilesTestEnvironment); it is evaluated once per test, inside the test's
/// runtime.
#[macro_export]
macro_rules! files_conformance {
    ($module:ident, $setup:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            async fn test_environment_for_one_behaviour() -> $crate::suite_files::FilesTestEnvironment {
                $setup.await
            }

            $crate::file_behaviours!();
        }
    };
}
