//! Sessions on disk, for a daemon that is restarted: one small file for each, replaced as a whole.
//!
//! The processes of a session are not stored here: each process carries its session in its label, beside its log.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Session, SessionOwner};
use crate::limits::SESSION_FILE_BYTES;

/// `None` if the server has no state directory; then nothing is stored.
#[derive(Debug)]
pub(crate) struct SessionStore(Option<PathBuf>);

impl SessionStore {
    pub(crate) fn open(state: Option<&Path>) -> io::Result<Self> {
        let directory = state.map(|state| state.join("sessions"));
        if let Some(directory) = &directory {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
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
                // Asked before it is opened, because to open a FIFO would wait for its writer. Nobody else can
                // put one here in between.
                let found = entry.metadata().ok()?;
                let plausible = found.is_file() && found.len() <= SESSION_FILE_BYTES;
                let text = if plausible { std::fs::read_to_string(entry.path()).ok() } else { None };
                let decoded = text.and_then(|text| decode(id, &text));
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
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(encode(session, ttl).as_bytes())?;
        std::fs::rename(&fresh, directory.join(&session.id))
    }

    pub(crate) fn remove(&self, id: &str) {
        if let Some(directory) = &self.0 {
            let _ = std::fs::remove_file(directory.join(id));
        }
    }
}

fn encode(session: &Session, ttl: Duration) -> String {
    let owner = encode_owner(&session.owner);
    let holder = session.holder().map(|scope| serde_json::Value::from(&*scope).to_string()).unwrap_or_default();
    let subject = serde_json::to_string(&session.subject).unwrap_or_default();
    // The name comes last, because it may contain anything, even line ends; in JSON they are escaped.
    let (ttl, opened, name) = (ttl.as_millis(), session.opened_at_ms, &session.client_name);
    format!("2\n{ttl}\n{opened}\n{owner}\n{holder}\n{subject}\n{name}")
}

/// Files of version 1, which an older server has written, have neither owner nor holder nor subject.
fn decode(id: String, text: &str) -> Option<(Session, Duration)> {
    let (version, text) = text.split_once('\n')?;
    let mut lines = text.splitn(if version == "1" { 3 } else { 6 }, '\n');
    let ttl = Duration::from_millis(lines.next()?.parse().ok()?);
    let opened_at_ms = lines.next()?.parse().ok()?;
    let (owner, holder, subject) = match version {
        "1" => ("", "", "null"),
        "2" => (lines.next()?, lines.next()?, lines.next()?),
        _ => return None,
    };
    let session = Session::new(id, lines.next()?.to_owned(), opened_at_ms, decode_owner(owner)?);
    if !holder.is_empty() {
        session.set_holder(Some(&serde_json::from_str::<String>(holder).ok()?));
    }
    Some((session.opened_by(serde_json::from_str(subject).ok()?), ttl))
}

/// One line. An address is written as it is, and has no space.
fn encode_owner(owner: &SessionOwner) -> String {
    match owner {
        SessionOwner::Host => String::new(),
        SessionOwner::User(uid) => format!("user {uid}"),
        SessionOwner::Subject(subject) => format!("subject {}", serde_json::Value::from(subject.as_str())),
        SessionOwner::Address(address) => address.clone(),
    }
}

fn decode_owner(line: &str) -> Option<SessionOwner> {
    Some(match line.split_once(' ') {
        None if line.is_empty() => SessionOwner::Host,
        None => SessionOwner::Address(line.to_owned()),
        Some(("user", uid)) => SessionOwner::User(uid.parse().ok()?),
        Some(("subject", subject)) => SessionOwner::Subject(serde_json::from_str(subject).ok()?),
        Some(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_or_a_giant_among_the_sessions_holds_nobody_up() {
        let state = tempfile::tempdir().expect("a temporary folder");
        let store = SessionStore::open(Some(state.path())).expect("the folder is ours");
        let session = Session::new("good".into(), "name".into(), 7, SessionOwner::Host);
        store.save(&session, Duration::from_secs(1)).expect("the folder is ours");
        let giant = std::fs::File::create(state.path().join("sessions/giant")).expect("the folder is ours");
        giant.set_len(1 << 40).expect("a hole costs nothing");
        let made = std::process::Command::new("mkfifo").arg(state.path().join("sessions/fifo")).status();
        assert!(made.expect("mkfifo is everywhere").success());
        let found: Vec<String> = store.load_all().into_iter().map(|(session, _)| session.id).collect();
        assert_eq!(found, ["good"]);
    }

    #[test]
    fn what_is_remembered_is_what_was_said() {
        let session = Session::new("x".into(), "two\nlines".into(), 7, SessionOwner::Address("::1".into()));
        let session = session.opened_by(Some("a\nb".into()));
        session.set_holder(Some("a\nscope"));
        let text = encode(&session, Duration::from_millis(1500));
        let (decoded, ttl) = decode("x".into(), &text).expect("it was encoded here");
        assert_eq!((decoded.holder().as_deref(), &decoded.owner), (Some("a\nscope"), &session.owner));
        assert_eq!((decoded.id, decoded.client_name, decoded.opened_at_ms), ("x".into(), "two\nlines".into(), 7));
        assert_eq!((ttl, decoded.subject.as_deref()), (Duration::from_millis(1500), Some("a\nb")));
        let (older, _) = decode("x".into(), "1\n1\n1\nn\nn").expect("an older server wrote it");
        assert_eq!((older.client_name.as_str(), older.holder()), ("n\nn", None));
        assert!(decode("x".into(), "3\n1\n1\n\n\nnull\nn").is_none());
        for owner in [SessionOwner::Host, SessionOwner::User(1000), SessionOwner::Subject("a \n\"b".into())] {
            let session = Session::new("x".into(), String::new(), 7, owner);
            let (decoded, _) = decode("x".into(), &encode(&session, Duration::ZERO)).expect("it was encoded here");
            assert_eq!(decoded.owner, session.owner);
        }
    }
}
