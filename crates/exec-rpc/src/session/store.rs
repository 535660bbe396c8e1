//! Sessions on disk, for a daemon that comes back: one small file each, replaced whole.
//!
//! What a session's processes are is not here; each process carries that on its own label, beside its log.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A directory of sessions, or nothing to remember.
#[derive(Debug)]
pub(crate) struct SessionStore(Option<PathBuf>);

/// What is remembered of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredSession {
    pub(crate) id: String,
    pub(crate) client_name: String,
    pub(crate) ttl: Duration,
    pub(crate) opened_at_ms: u64,
}

impl SessionStore {
    /// Below `state`, if there is such a directory.
    pub(crate) fn open(state: Option<&Path>) -> io::Result<Self> {
        let directory = state.map(|state| state.join("sessions"));
        if let Some(directory) = &directory {
            std::fs::create_dir_all(directory)?;
        }
        Ok(Self(directory))
    }

    /// Everything that is there; what does not read is left out, with a line in the log.
    pub(crate) fn load_all(&self) -> Vec<StoredSession> {
        let Some(directory) = &self.0 else { return Vec::new() };
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let id = entry.file_name().into_string().ok().filter(|name| !name.ends_with(".new"))?;
                let text = std::fs::read_to_string(entry.path()).ok()?;
                let read = decode(&id, &text);
                if read.is_none() {
                    tracing::warn!(file = %entry.path().display(), "a remembered session does not read and is left out");
                }
                read
            })
            .collect()
    }

    /// Remembers a session; without a directory there is nothing to do.
    pub(crate) fn save(&self, session: &StoredSession) -> io::Result<()> {
        let Some(directory) = &self.0 else { return Ok(()) };
        let fresh = directory.join(format!("{}.new", session.id));
        std::fs::write(&fresh, encode(session))?;
        std::fs::rename(&fresh, directory.join(&session.id))
    }

    /// Forgets it.
    pub(crate) fn remove(&self, id: &str) {
        if let Some(directory) = &self.0 {
            let _ = std::fs::remove_file(directory.join(id));
        }
    }
}

fn encode(session: &StoredSession) -> String {
    // The name comes last: it may contain anything, line ends too.
    format!("1\n{}\n{}\n{}", session.ttl.as_millis(), session.opened_at_ms, session.client_name)
}

fn decode(id: &str, text: &str) -> Option<StoredSession> {
    let mut lines = text.splitn(4, '\n');
    if lines.next()? != "1" {
        return None;
    }
    let ttl = Duration::from_millis(lines.next()?.parse().ok()?);
    let opened_at_ms = lines.next()?.parse().ok()?;
    Some(StoredSession { id: id.to_owned(), client_name: lines.next()?.to_owned(), ttl, opened_at_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_what_was_said() {
        let session = StoredSession {
            id: "x".into(),
            client_name: "two\nlines".into(),
            ttl: Duration::from_millis(1500),
            opened_at_ms: 7,
        };
        assert_eq!(decode("x", &encode(&session)), Some(session));
        assert_eq!(decode("x", "2\n1\n1\nn"), None);
    }
}
