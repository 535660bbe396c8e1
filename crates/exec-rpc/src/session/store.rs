//! Sessions on disk, for a daemon that is restarted: one small file for each, replaced as a whole.
//!
//! The processes of a session are not stored here: each process carries its session in its label, beside its log. A session
//! whose file cannot be written now (the disk is full) is tried again until it can.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Opener, Session, SessionOwner};
use crate::limits::SESSION_FILE_BYTES;

/// What the name of a file ends with until it is whole.
const UNFINISHED: &str = ".new";

#[derive(Debug)]
pub(crate) struct SessionStore {
    /// `None` if the server has no state directory; then nothing is stored.
    directory: Option<PathBuf>,
    /// The sessions whose files could not be written, with their TTLs; no more than there are sessions. Locked while any file
    /// is written or removed, so that a session that has ended is not written again.
    unsaved: Mutex<BTreeMap<String, Duration>>,
}

impl SessionStore {
    pub(crate) fn open(state: Option<&Path>) -> io::Result<Self> {
        let directory = state.map(|state| state.join("sessions"));
        if let Some(directory) = &directory {
            create(directory)?;
        }
        Ok(Self { directory, unsaved: Mutex::default() })
    }

    /// Every session with its TTL. A file that cannot be decoded is left out and logged.
    pub(crate) fn load_all(&self) -> Vec<(Session, Duration)> {
        let Some(directory) = &self.directory else { return Vec::new() };
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let id = entry.file_name().into_string().ok()?;
                if id.ends_with(UNFINISHED) {
                    // Whoever wrote it was killed.
                    let _ = std::fs::remove_file(entry.path());
                    return None;
                }
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

    /// If it fails, the session is among those that [`Self::save_again`] is for.
    pub(crate) fn save(&self, session: &Session, ttl: Duration) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let mut unsaved = self.lock();
        let saved = write(directory, session, ttl);
        match saved {
            Ok(()) => unsaved.remove(&session.id),
            Err(_) => unsaved.insert(session.id.clone(), ttl),
        };
        saved
    }

    /// The ids of the sessions that could not be saved.
    pub(crate) fn unsaved(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Tries it again if it failed. Whether the session was saved by this.
    pub(crate) fn save_again(&self, session: &Session) -> bool {
        let Some(directory) = &self.directory else { return false };
        let mut unsaved = self.lock();
        let Some(ttl) = unsaved.get(&session.id) else { return false };
        let saved = write(directory, session, *ttl).is_ok();
        if saved {
            unsaved.remove(&session.id);
        }
        saved
    }

    pub(crate) fn remove(&self, id: &str) {
        if let Some(directory) = &self.directory {
            self.lock().remove(id);
            let _ = std::fs::remove_file(directory.join(id));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Duration>> {
        self.unsaved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn create(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// The whole file, or what was there before.
fn write(directory: &Path, session: &Session, ttl: Duration) -> io::Result<()> {
    let fresh = directory.join(format!("{}{UNFINISHED}", session.id));
    let open = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh);
    let file = match open() {
        // Somebody has cleaned up.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(directory)?;
            open()
        }
        file => file,
    };
    let written = file?
        .write_all(encode(session, ttl).as_bytes())
        .and_then(|()| std::fs::rename(&fresh, directory.join(&session.id)));
    if written.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    written
}

fn encode(session: &Session, ttl: Duration) -> String {
    let owner = encode_owner(&session.owner);
    let holder = session.holder().map(|scope| serde_json::Value::from(&*scope).to_string()).unwrap_or_default();
    let subject = match &session.opener {
        Opener::NoToken => serde_json::Value::Null,
        Opener::Subject(subject) => subject.as_str().into(),
        Opener::Unknown => false.into(),
    };
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
    let opener = match serde_json::from_str(subject).ok()? {
        serde_json::Value::Null => Opener::NoToken,
        serde_json::Value::String(subject) => Opener::Subject(subject),
        serde_json::Value::Bool(false) => Opener::Unknown,
        _ => return None,
    };
    Some((session.opened_by(opener), ttl))
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
        let session = session.opened_by(Opener::Subject("a\nb".into()));
        session.set_holder(Some("a\nscope"));
        let text = encode(&session, Duration::from_millis(1500));
        let (decoded, ttl) = decode("x".into(), &text).expect("it was encoded here");
        assert_eq!((decoded.holder().as_deref(), &decoded.owner), (Some("a\nscope"), &session.owner));
        assert_eq!((decoded.id, decoded.client_name, decoded.opened_at_ms), ("x".into(), "two\nlines".into(), 7));
        assert_eq!((ttl, decoded.opener), (Duration::from_millis(1500), Opener::Subject("a\nb".into())));
        let (older, _) = decode("x".into(), "1\n1\n1\nn\nn").expect("an older server wrote it");
        assert_eq!((older.client_name.as_str(), older.holder()), ("n\nn", None));
        assert!(decode("x".into(), "3\n1\n1\n\n\nnull\nn").is_none());
        for owner in [SessionOwner::Host, SessionOwner::User(1000), SessionOwner::Subject("a \n\"b".into())] {
            let session = Session::new("x".into(), String::new(), 7, owner);
            let (decoded, _) = decode("x".into(), &encode(&session, Duration::ZERO)).expect("it was encoded here");
            assert_eq!(decoded.owner, session.owner);
        }
        for opener in [Opener::NoToken, Opener::Unknown] {
            let session = Session::new("x".into(), String::new(), 7, SessionOwner::Host).opened_by(opener.clone());
            let (decoded, _) = decode("x".into(), &encode(&session, Duration::ZERO)).expect("it was encoded here");
            assert_eq!(decoded.opener, opener);
        }
    }

    #[test]
    fn what_could_not_be_saved_is_saved_later_unless_it_has_ended() {
        let state = tempfile::tempdir().expect("a temporary folder");
        let store = SessionStore::open(Some(state.path())).expect("the folder is ours");
        let sessions = state.path().join("sessions");
        let session = |id: &str| Session::new(id.into(), "name".into(), 7, SessionOwner::Host);
        let found = || -> Vec<(String, Duration)> {
            store.load_all().into_iter().map(|(session, ttl)| (session.id, ttl)).collect()
        };
        // What is no directory takes no files, as a full disk does not.
        std::fs::remove_dir(&sessions).expect("it is empty");
        std::fs::write(&sessions, "").expect("the folder is ours");
        for id in ["stays", "ends"] {
            assert!(store.save(&session(id), Duration::from_secs(9)).is_err());
        }
        assert!(!store.save_again(&session("stays")), "there is still no room");
        store.remove("ends");
        std::fs::remove_file(&sessions).expect("the folder is ours");
        assert_eq!(store.unsaved(), ["stays"]);
        assert!(store.save_again(&session("stays")));
        assert!(!store.save_again(&session("stays")) && !store.save_again(&session("ends")));
        assert_eq!((found(), store.unsaved()), (vec![("stays".into(), Duration::from_secs(9))], vec![]));
    }

    #[test]
    fn an_unfinished_file_of_a_killed_server_is_removed() {
        let state = tempfile::tempdir().expect("a temporary folder");
        let store = SessionStore::open(Some(state.path())).expect("the folder is ours");
        let unfinished = state.path().join("sessions/x.new");
        std::fs::write(&unfinished, "2\n1").expect("the folder is ours");
        assert!(store.load_all().is_empty() && !unfinished.exists());
    }
}
