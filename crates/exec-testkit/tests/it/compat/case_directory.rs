//! The directory of a case: filled before, compared afterwards. Each server has its own, called `$ROOT`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::case::{Case, CaseStep, Transport, initialized, with};

/// Contents up to so many bytes are shown, beyond only their length.
const SHOWN_BYTES: usize = 100;

/// Something to create in the directory. Names are bytes, relative to the directory; parents are created, too.
#[derive(Debug, Clone)]
pub(crate) enum Fixture {
    File(Vec<u8>, Vec<u8>),
    Directory(Vec<u8>),
    /// With the text of its target.
    Link(Vec<u8>, String),
    Fifo(Vec<u8>),
    Socket(Vec<u8>),
    /// The permissions of what is there.
    Mode(Vec<u8>, u32),
    /// What is there was changed so many seconds after 1970.
    ChangedAt(Vec<u8>, u64),
    /// So many empty files, `0000` and on.
    Files(Vec<u8>, usize),
}

/// A case with a directory, over a WebSocket only: what is done to files does not depend on the transport.
pub(crate) fn in_directory(name: &str) -> Case {
    initialized(name).only(Transport::WebSocket)
}

pub(crate) fn uri(name: &str) -> String {
    format!("file://$ROOT/{name}")
}

/// Params with a path in the directory.
pub(crate) fn at(name: &str, more: Value) -> Value {
    with(json!({"path": uri(name)}), more)
}

impl Case {
    /// A call about one path in the directory.
    pub(crate) fn fs(self, verb: &str, name: &str, more: Value) -> Self {
        self.call(&format!("fs/{verb}"), at(name, more))
    }

    fn create(self, fixture: Fixture) -> Self {
        self.step(CaseStep::Create(fixture))
    }

    pub(crate) fn file(self, name: impl AsRef<[u8]>, contents: impl AsRef<[u8]>) -> Self {
        self.create(Fixture::File(name.as_ref().to_vec(), contents.as_ref().to_vec()))
    }

    pub(crate) fn directory(self, name: impl AsRef<[u8]>) -> Self {
        self.create(Fixture::Directory(name.as_ref().to_vec()))
    }

    pub(crate) fn link(self, name: impl AsRef<[u8]>, target: &str) -> Self {
        self.create(Fixture::Link(name.as_ref().to_vec(), target.to_owned()))
    }

    pub(crate) fn fifo(self, name: &str) -> Self {
        self.create(Fixture::Fifo(name.into()))
    }

    pub(crate) fn socket(self, name: &str) -> Self {
        self.create(Fixture::Socket(name.into()))
    }

    pub(crate) fn mode(self, name: &str, mode: u32) -> Self {
        self.create(Fixture::Mode(name.into(), mode))
    }

    pub(crate) fn changed_at(self, name: &str, seconds: u64) -> Self {
        self.create(Fixture::ChangedAt(name.into(), seconds))
    }

    pub(crate) fn files(self, directory: &str, count: usize) -> Self {
        self.create(Fixture::Files(directory.into(), count))
    }

    /// What the directory holds now.
    pub(crate) fn snapshot(self) -> Self {
        self.step(CaseStep::Snapshot)
    }
}

pub(crate) struct CaseDirectory(TempDir);

impl CaseDirectory {
    pub(crate) fn new() -> Self {
        // Not hidden, because walks tell hidden folders apart.
        Self(tempfile::Builder::new().prefix("compat-").tempdir().expect("a temporary folder"))
    }

    /// The native path; nothing in it needs an escape in a URI or in JSON.
    pub(crate) fn name(&self) -> &str {
        self.0.path().to_str().expect("the name is ASCII")
    }

    fn at(&self, name: &[u8]) -> PathBuf {
        self.0.path().join(OsStr::from_bytes(name))
    }

    pub(crate) fn create(&self, fixture: &Fixture) {
        if let Fixture::File(name, _) | Fixture::Link(name, _) | Fixture::Fifo(name) = fixture {
            fs::create_dir_all(self.at(name).parent().expect("it is below the directory"))
                .expect("the directory is ours");
        }
        match fixture {
            Fixture::File(name, contents) => fs::write(self.at(name), contents),
            Fixture::Directory(name) => fs::create_dir_all(self.at(name)),
            Fixture::Link(name, target) => symlink(target.replace("$ROOT", self.name()), self.at(name)),
            Fixture::Fifo(name) => {
                mknodat(CWD, self.at(name), FileType::Fifo, Mode::from_raw_mode(0o644), 0).map_err(Into::into)
            }
            // The name stays when nobody listens any more.
            Fixture::Socket(name) => UnixListener::bind(self.at(name)).map(drop),
            Fixture::Mode(name, mode) => fs::set_permissions(self.at(name), PermissionsExt::from_mode(*mode)),
            Fixture::ChangedAt(name, seconds) => {
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(*seconds);
                fs::File::open(self.at(name)).and_then(|file| file.set_modified(time))
            }
            Fixture::Files(directory, count) => {
                let directory = self.at(directory);
                (0..*count).try_for_each(|at| fs::write(directory.join(format!("{at:04}")), ""))
            }
        }
        .expect("the folder is ours");
    }

    /// `[name, kind, mode, contents or target]` of all that is there, sorted by name.
    pub(crate) fn snapshot(&self) -> Value {
        let mut lines = Vec::new();
        self.snapshot_below(self.0.path(), &mut lines);
        lines.sort_by_key(|line| line[0].to_string());
        Value::Array(lines)
    }

    fn snapshot_below(&self, directory: &Path, lines: &mut Vec<Value>) {
        for entry in fs::read_dir(directory).expect("the folder is ours") {
            let path = entry.expect("the folder is ours").path();
            let found = fs::symlink_metadata(&path).expect("nobody else works here");
            let mode = format!("{:o}", found.permissions().mode() & 0o7777);
            let name = path.strip_prefix(self.0.path()).expect("it is below").as_os_str().as_bytes().escape_ascii();
            let kind = found.file_type();
            let (kind, content) = if kind.is_dir() {
                self.snapshot_below(&path, lines);
                ("folder", json!(null))
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).expect("it is a link");
                ("link", json!(target.to_string_lossy().replace(self.name(), "$ROOT")))
            } else if kind.is_file() {
                let contents = fs::read(&path).expect("we may read it");
                match contents.len() {
                    ..=SHOWN_BYTES => ("file", json!(contents.escape_ascii().to_string())),
                    bytes => ("file", json!(bytes)),
                }
            } else if kind.is_fifo() {
                ("fifo", json!(null))
            } else {
                ("other", json!(null))
            };
            lines.push(json!([name.to_string(), kind, mode, content]));
        }
    }
}
