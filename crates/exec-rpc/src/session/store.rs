//! Sessions on disk, for a daemon that is restarted: one small file for each, replaced as a whole.
//!
//! The processes of a session are not stored here: each process carries its session in its label, beside its log.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Session, SessionOwner};

/// `None` if the server has no state directory; then nothing is stored.
#[derive(Debug)]
pub(crate) struct SessionStore(Option<PathBuf>);

impl SessionStore {
    pub(crate) fn open(state: Option<&Path>) -> io::Result<Self> {
        let directory = state.map(|state| state.join("sessions"));
        if let Some(directory) = &directory {
            std::fs::create_dir_all(directory)?;
        }
        Ok(Self(directory))
    }

    /// Every session with its TTL. A file that cannot be decoded is left out and logged.
    pub(crate) fn load_all(&self) -> Vec<(Session, Duration)> {
        let Some(directory) = &self.0 else { return Vec::new() };
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let id = entry.file_name().into_string().ok().filter(|name| !name.ends_with(".new"))?;
                let text = std::fs::read_to_string(entry.path()).ok()?;
                let decoded = decode(id, &text);
                if decoded.is_none() {
                    tracing::warn!(file = %entry.path().display(), "a remembered session does not read and is left out");
                }
                decoded
            })
            .collect()
    }

    pub(crate) fn save(&self, session: &Session, ttl: Duration) -> io::Result<()> {
        let Some(directory) = &self.0 else { return Ok(()) };
        let fresh = directory.join(format!("{}.new", session.id));
        std::fs::write(&fresh, encode(session, ttl))?;
        std::fs::rename(&fresh, directory.join(&session.id))
    }

    pub(crate) fn remove(&self, id: &str) {
        if let Some(directory) = &self.0 {
            let _ = std::fs::remove_file(directory.join(id));
        }
    }
}

fn encode(session: &Session, ttl: Duration) -> String {
    let owner = match &session.owner {
        SessionOwner::Operator => "",
        SessionOwner::Address(address) => address,
    };
    let holder = session.holder().map(|scope| serde_json::Value::from(&*scope).to_string()).unwrap_or_default();
    // The name comes last, because it may contain anything, even line ends.
    let (ttl, opened, name) = (ttl.as_millis(), session.opened_at_ms, &session.client_name);
    format!("2\n{ttl}\n{opened}\n{owner}\n{holder}\n{name}")
}

/// Files of version 1, which an older server has written, have neither owner nor holder.
fn decode(id: String, text: &str) -> Option<(Session, Duration)> {
    let (version, text) = text.split_once('\n')?;
    let mut lines = text.splitn(if version == "1" { 3 } else { 5 }, '\n');
    let ttl = Duration::from_millis(lines.next()?.parse().ok()?);
    let opened_at_ms = lines.next()?.parse().ok()?;
    let (owner, holder) = match version {
        "1" => ("", ""),
        "2" => (lines.next()?, lines.next()?),
        _ => return None,
    };
    let owner = match owner {
        "" => SessionOwner::Operator,
        address => SessionOwner::Address(address.to_owned()),
    };
    let session = Session::new(id, lines.next()?.to_owned(), opened_at_ms, owner);
    if !holder.is_empty() {
        session.set_holder(Some(&serde_json::from_str::<String>(holder).ok()?));
    }
    Some((session, ttl))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_what_was_said() {
        let session = Session::new("x".into(), "two\nlines".into(), 7, SessionOwner::Address("::1".into()));
        session.set_holder(Some("a\nscope"));
        let text = encode(&session, Duration::from_millis(1500));
        let (decoded, ttl) = decode("x".into(), &text).expect("it was encoded here");
        assert_eq!((decoded.holder().as_deref(), &decoded.owner), (Some("a\nscope"), &session.owner));
        assert_eq!((decoded.id, decoded.client_name, decoded.opened_at_ms), ("x".into(), "two\nlines".into(), 7));
        assert_eq!(ttl, Duration::from_millis(1500));
        let (older, _) = decode("x".into(), "1\n1\n1\nn\nn").expect("an older server wrote it");
        assert_eq!((older.client_name.as_str(), older.holder()), ("n\nn", None));
        assert!(decode("x".into(), "3\n1\n1\n\n\nn").is_none());
    }
}
