//! What is written down about a sandbox, so that the next server finds it: one JSON file each, replaced whole.
//!
//! The folder is locked while a server has it. The files have the tokens of sandboxes and the ids of their sessions, so only
//! the account may read them.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A sandbox, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) template: String,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) variables: BTreeMap<String, String>,
    /// What calls to it must carry; the sandbox of debug mode has none.
    pub(crate) access_token: Option<String>,
    /// The key of the request that made it, if it had one.
    pub(crate) idempotency_key: Option<String>,
    /// Without network, whatever the server's own policy says.
    #[serde(default)]
    pub(crate) offline: bool,
    pub(crate) session: Option<String>,
    pub(crate) home: PathBuf,
    pub(crate) started_ms: u64,
    /// `None` for one that is only ended by hand.
    pub(crate) end_ms: Option<u64>,
}

/// Since 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The folder of the records, ours as long as this lives.
#[derive(Debug)]
pub(crate) struct RecordFolder {
    path: PathBuf,
    _lock: File,
}

impl RecordFolder {
    /// `None` if another server has it.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let mut options = File::options();
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(path.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { path: path.to_owned(), _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// All that can be read; a file that cannot is left for a person to look at.
    pub(crate) fn read_all(&self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let read = std::fs::read(&path).map_err(|error| error.to_string());
            match read.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string())) {
                Ok(record) => records.push(record),
                Err(why) => tracing::warn!(path = %path.display(), why, "cannot read what is known of a sandbox"),
            }
        }
        records.sort_by(|a: &Record, b| (a.started_ms, &a.id).cmp(&(b.started_ms, &b.id)));
        Ok(records)
    }

    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
        // tempfile creates it with mode 0600.
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.path)?;
        file.write_all(serde_json::to_string_pretty(record)?.as_bytes())?;
        file.persist(self.file_of(&record.id))?;
        Ok(())
    }

    pub(crate) fn remove(&self, id: &str) {
        match std::fs::remove_file(self.file_of(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, id, "cannot remove what is known of a sandbox");
            }
            _ => {}
        }
    }

    /// Ids are made by us, of letters, digits and `_`.
    fn file_of(&self, id: &str) -> PathBuf {
        self.path.join(format!("{id}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, started_ms: u64) -> Record {
        Record {
            id: id.to_owned(),
            template: "base".to_owned(),
            metadata: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            variables: BTreeMap::new(),
            access_token: Some("t".to_owned()),
            idempotency_key: None,
            offline: true,
            session: Some("s".to_owned()),
            home: "/h".into(),
            started_ms,
            end_ms: None,
        }
    }

    #[test]
    fn records_are_read_back_in_the_order_of_their_start_and_are_gone_when_removed() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let records = RecordFolder::open(folder.path()).expect("it is ours").expect("nobody has it");
        let (first, second) = (record("z", 1), record("a", 2));
        records.write(&second).expect("it can be written");
        records.write(&first).expect("it can be written");
        std::fs::write(folder.path().join("broken.json"), "{").expect("it can be written");
        assert_eq!(records.read_all().expect("it can be read"), [first, second.clone()]);
        records.remove("z");
        assert_eq!(records.read_all().expect("it can be read"), [second]);
    }

    #[test]
    fn one_server_at_a_time_has_the_folder() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let held = RecordFolder::open(folder.path()).expect("it is ours").expect("nobody has it");
        assert!(RecordFolder::open(folder.path()).expect("it can be asked").is_none());
        drop(held);
        assert!(RecordFolder::open(folder.path()).expect("it can be asked").is_some());
    }
}
