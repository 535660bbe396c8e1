//! Which session a server has for us: one small file for each server, so that a router that is started again resumes it.
//!
//! The id of a session lets its holder resume it, so only our own user may read the files. Nothing else is stored: not where
//! the server is, and no token.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::limits::SESSION_FILE_BYTES;

/// The directory of these files; `None` to store nothing.
#[derive(Debug, Clone)]
pub(crate) struct SessionFiles(Option<PathBuf>);

impl SessionFiles {
    pub(crate) fn open(state_dir: Option<&Path>) -> io::Result<Self> {
        let Some(directory) = state_dir.map(|state| state.join("environments")) else { return Ok(Self(None)) };
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self(Some(directory)))
    }

    /// Files that store nothing.
    pub(crate) fn nowhere() -> Self {
        Self(None)
    }

    /// The session that the environment had for the last router. What cannot be read is as good as none.
    pub(crate) fn load(&self, id: &str) -> Option<String> {
        let path = self.0.as_ref()?.join(id);
        // Neither a fifo nor a giant holds us up.
        if !std::fs::symlink_metadata(&path).ok()?.is_file() {
            return None;
        }
        let mut text = String::new();
        let file = std::fs::File::open(path).ok()?;
        file.take(SESSION_FILE_BYTES).read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned()).filter(|session| !session.is_empty())
    }

    /// Whether anything is stored.
    pub(crate) fn are_stored(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn remove(&self, id: &str) {
        if let Some(directory) = &self.0 {
            let _ = std::fs::remove_file(directory.join(id));
        }
    }

    /// Stores it, whole or not at all.
    pub(crate) fn save(&self, id: &str, session: &str) -> io::Result<()> {
        let Some(directory) = &self.0 else { return Ok(()) };
        // No id has a dot.
        let fresh = directory.join(format!("{id}.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        writeln!(file, "{session}")?;
        std::fs::rename(&fresh, directory.join(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_again_and_only_by_its_own_environment() {
        let state = tempfile::tempdir().expect("a temporary folder");
        let files = SessionFiles::open(Some(state.path())).expect("the folder is ours");
        files.save("a", "one").expect("the folder is ours");
        files.save("a", "two").expect("the folder is ours");
        assert_eq!((files.load("a").as_deref(), files.load("b")), (Some("two"), None));
        let nowhere = SessionFiles::open(None).expect("there is nothing to open");
        nowhere.save("a", "one").expect("nothing is stored");
        assert_eq!(nowhere.load("a"), None);
    }
}
