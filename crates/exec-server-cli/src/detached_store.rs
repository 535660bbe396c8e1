//! The records that `run --detach` writes, so that later commands find the process again: one small file per process.
//!
//! A file is written once, whole, and only ever removed. So nobody needs a lock to read it, and a damaged one affects no
//! other. A lock on the file is held by the command that uses the session: a session has one client at a time, and a
//! second one would disconnect the first. The kernel releases the lock of a process that dies.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::target::{self, Address};
use crate::{messages, runtime};

/// How often a lock is tried again: the kernel reports a released lock only to those who block on it.
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// A detached process. The field names are those of the file, and of `ps --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DetachedProcess {
    /// Its name here, and its process id at the server.
    pub(crate) id: String,
    pub(crate) at: Address,
    /// Its session, which has no other process.
    pub(crate) session: String,
    /// The command line, for display only: not exact where it is not UTF-8.
    pub(crate) argv: Vec<String>,
    pub(crate) tty: bool,
    /// By our clock, since 1970.
    pub(crate) started_ms: u64,
}

/// The directory with the files.
#[derive(Debug)]
pub(crate) struct DetachedStore(PathBuf);

/// The right to use the session of a detached process; released on drop.
#[derive(Debug)]
pub(crate) struct SessionLock(#[allow(dead_code)] File);

impl DetachedStore {
    /// The store of this account. The directory is not created before something is written.
    pub(crate) fn open() -> anyhow::Result<Self> {
        Ok(Self(target::state_directory()?.join("detached")))
    }

    /// An unused id that begins with the name of the program.
    pub(crate) fn new_id(&self, program: &OsString) -> String {
        loop {
            let id = id_for_program(program, runtime::random());
            if !self.has(&id) {
                return id;
            }
        }
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.path(id).exists()
    }

    /// Every process, oldest first. A file that cannot be read is reported and left where it is.
    pub(crate) fn all(&self) -> anyhow::Result<Vec<DetachedProcess>> {
        let entries = match std::fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", self.0.display())),
        };
        let mut processes: Vec<DetachedProcess> =
            entries.flatten().filter_map(|entry| self.read(&entry.path())).collect();
        processes.sort_by(|a, b| (a.started_ms, &a.id).cmp(&(b.started_ms, &b.id)));
        Ok(processes)
    }

    fn read(&self, path: &Path) -> Option<DetachedProcess> {
        let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
        let text = match std::fs::read(path) {
            Ok(text) => text,
            // Removed since it was listed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => {
                messages::print_note(format_args!("cannot read the note {}: {error}", path.display()));
                return None;
            }
        };
        match serde_json::from_slice::<DetachedProcess>(&text) {
            // Files are found and removed by the id, so the two must agree.
            Ok(process) if process.id == name => Some(process),
            _ => {
                messages::print_note(format_args!("the note {} is damaged and left out: remove it", path.display()));
                None
            }
        }
    }

    /// The process with that id, or the only one whose id begins so.
    pub(crate) fn find(&self, id: &str) -> anyhow::Result<DetachedProcess> {
        let processes = self.all()?;
        if let Some(process) = processes.iter().find(|process| process.id == id) {
            return Ok(process.clone());
        }
        let matching: Vec<&DetachedProcess> =
            processes.iter().filter(|process| !id.is_empty() && process.id.starts_with(id)).collect();
        match matching[..] {
            [process] => Ok(process.clone()),
            [] => bail!("no detached process is called {id:?}: see `exec-server ps`"),
            _ => {
                let ids: Vec<&str> = matching.iter().map(|process| process.id.as_str()).collect();
                bail!("{id:?} may be {}: say which", ids.join(" or "))
            }
        }
    }

    /// Writes the file, whole or not at all.
    pub(crate) fn add(&self, process: &DetachedProcess) -> anyhow::Result<()> {
        let path = self.path(&process.id);
        let write = || -> std::io::Result<()> {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
            // tempfile creates it with mode 0600. Nobody else may read it: the session id is all that is needed to take
            // the session over.
            let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.0)?;
            file.write_all(&serde_json::to_vec(process)?)?;
            file.persist_noclobber(&path)?;
            Ok(())
        };
        write().with_context(|| format!("cannot write the note {}", path.display()))
    }

    pub(crate) fn remove(&self, process: &DetachedProcess) {
        let path = self.path(&process.id);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                messages::print_note(format_args!("cannot remove the note {}: {error}", path.display()));
            }
            _ => {}
        }
    }

    /// Locks the session; `None` if another command holds the lock for longer than `wait`.
    pub(crate) async fn lock_session(
        &self,
        process: &DetachedProcess,
        wait: Duration,
    ) -> anyhow::Result<Option<SessionLock>> {
        let path = self.path(&process.id);
        let file = File::open(&path).with_context(|| format!("cannot open the note {}", path.display()))?;
        let until = Instant::now() + wait;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(SessionLock(file))),
                Err(TryLockError::WouldBlock) if Instant::now() < until => tokio::time::sleep(LOCK_RETRY).await,
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock the note {}", path.display()));
                }
            }
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }
}

/// `make-x7q2`: the name of the program, which users recognise, and four random characters.
fn id_for_program(program: &OsString, random: u64) -> String {
    const LETTERS: &[u8] = b"23456789abcdefghjkmnpqrstuvwxyz";
    const PROGRAM_CHARS: usize = 24;
    let program = Path::new(program).file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(c);
    let program: String = program.chars().filter(plain).skip_while(|c| *c == '.').take(PROGRAM_CHARS).collect();
    let program = if program.is_empty() { "process" } else { &program };
    let (mut rest, mut tail) = (random, String::new());
    for _ in 0..4 {
        let radix = LETTERS.len() as u64;
        tail.push(char::from(LETTERS[(rest % radix) as usize]));
        rest /= radix;
    }
    format!("{program}-{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, DetachedStore) {
        let directory = tempfile::tempdir().expect("a folder can be made");
        let store = DetachedStore(directory.path().join("detached"));
        (directory, store)
    }

    fn process(id: &str) -> DetachedProcess {
        DetachedProcess {
            id: id.to_owned(),
            session: "s".to_owned(),
            at: Address::Url("ws://127.0.0.1:1".to_owned()),
            argv: vec!["make".to_owned()],
            tty: false,
            started_ms: 7,
        }
    }

    #[test]
    fn ids_are_short_plain_and_tell_the_program() {
        assert_eq!(id_for_program(&"/usr/bin/make".into(), 0), "make-2222");
        assert_eq!(id_for_program(&"a b/c d$".into(), 1), "cd-3222");
        assert_eq!(id_for_program(&"..".into(), 31), "process-2322");
        assert!(id_for_program(&"x".repeat(99).into(), u64::MAX).len() < 32);
    }

    #[test]
    fn detached_processes_are_found_by_their_id_or_what_it_begins_with() {
        let (_directory, store) = store();
        assert_eq!(store.all().expect("no directory, no processes"), []);
        for id in ["make-aaaa", "make-bbbb", "make"] {
            store.add(&process(id)).expect("the folder is ours");
        }
        assert_eq!(store.find("make-b").expect("only one fits"), process("make-bbbb"));
        assert_eq!(store.find("make").expect("an exact id needs no second look"), process("make"));
        let text = |id: &str| store.find(id).expect_err("not one").to_string();
        assert_eq!(text("make-"), "\"make-\" may be make-aaaa or make-bbbb: say which");
        assert_eq!(text("x"), "no detached process is called \"x\": see `exec-server ps`");
        assert_eq!(text("../make"), "no detached process is called \"../make\": see `exec-server ps`");
    }

    #[test]
    fn the_file_of_a_process_is_private_and_never_written_over() {
        use std::os::unix::fs::PermissionsExt;
        let (_directory, store) = store();
        store.add(&process("p")).expect("the folder is ours");
        let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&store.0), mode(&store.path("p"))), (0o700, 0o600));
        store.add(&process("p")).expect_err("it is taken");
    }

    #[test]
    fn a_damaged_file_costs_nobody_but_itself() {
        let (_directory, store) = store();
        store.add(&process("p")).expect("the folder is ours");
        std::fs::write(store.path("broken"), "{").expect("the folder is ours");
        std::fs::write(store.path("renamed"), serde_json::to_vec(&process("q")).expect("plain")).expect("ours");
        assert_eq!(store.all().expect("the folder reads"), [process("p")]);
    }

    #[tokio::test]
    async fn a_session_is_held_by_one_at_a_time() {
        let (_directory, store) = store();
        let process = process("p");
        store.add(&process).expect("the folder is ours");
        let lock_session = || store.lock_session(&process, Duration::ZERO);
        let first = lock_session().await.expect("the file is there");
        assert!(first.is_some());
        assert!(lock_session().await.expect("the file is there").is_none());
        drop(first);
        assert!(lock_session().await.expect("the file is there").is_some());
    }
}
