//! Which sessions MCP servers of this account have at an environment: one small file each, locked while its server lives.
//!
//! The kernel releases the lock of a process that dies, however it dies. So a file that is not locked names a session that
//! somebody has left, with all that runs in it; the next server adopts it.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::Context;

use crate::target;

/// Longest content: a session id is much shorter.
const FILE_BYTES: u64 = 4 << 10;

/// The folder of the files of one environment.
#[derive(Debug, Clone)]
pub(super) struct SessionFiles(PathBuf);

/// A session that is ours as long as this lives.
#[derive(Debug)]
pub(super) struct SessionFile {
    pub(super) session: String,
    path: PathBuf,
    _lock: File,
}

impl SessionFiles {
    /// Of the environment with that id or URL.
    pub(super) fn of_environment(id: &str) -> anyhow::Result<Self> {
        let name = &blake3::hash(id.as_bytes()).to_hex()[..16];
        let folder = target::state_directory()?.join("mcp").join(name);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make the folder {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// Writes down a session that was opened.
    pub(super) fn add(&self, session: &str) -> io::Result<SessionFile> {
        // tempfile creates it with mode 0600. Nobody else may read it: the id is all that is needed to take the session.
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.0)?;
        file.write_all(session.as_bytes())?;
        // Locked before it has its name, so that nobody adopts it in between.
        file.as_file().lock()?;
        let name = blake3::hash(session.as_bytes()).to_hex();
        let path = self.0.join(&name[..32]);
        let lock = file.persist(&path)?;
        Ok(SessionFile { session: session.to_owned(), path, _lock: lock })
    }

    /// Those that nobody has; they are ours now.
    pub(super) fn take_left(&self) -> Vec<SessionFile> {
        let Ok(entries) = std::fs::read_dir(&self.0) else { return Vec::new() };
        entries.flatten().filter_map(|entry| Self::take(entry.path())).collect()
    }

    fn take(path: PathBuf) -> Option<SessionFile> {
        if path.file_name()?.to_str()?.starts_with('.') {
            return None;
        }
        let mut file = File::open(&path).ok()?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, path = %path.display(), "cannot lock the file of a session");
                return None;
            }
        }
        let mut session = String::new();
        (&mut file).take(FILE_BYTES).read_to_string(&mut session).ok()?;
        Some(SessionFile { session, path, _lock: file })
    }
}

impl SessionFile {
    /// The session has ended.
    pub(super) fn remove(self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "cannot remove the file of a session");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_taken_by_one_and_only_when_it_was_left() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let files = SessionFiles(folder.path().to_owned());
        let own = files.add("s1").expect("the folder is ours");
        assert_eq!(files.take_left().len(), 0);
        drop(own);
        let [left] = &files.take_left()[..] else { panic!("there is one") };
        assert_eq!((left.session.as_str(), files.take_left().len()), ("s1", 0));
        let left = SessionFiles::take(left.path.clone());
        assert!(left.is_none(), "it is taken");
    }

    #[test]
    fn an_ended_session_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let files = SessionFiles(folder.path().to_owned());
        files.add("s1").expect("the folder is ours").remove();
        assert_eq!(files.take_left().len(), 0);
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
    }
}
