//! The audit log on disk: one thread appends the lines that the server hands in.
//!
//! Lines are written in one call as they come, so a killed server loses what is in its queue and nothing that was written.
//! They are synced to the disk at most a second later, and before a file is rotated: a power cut may cost that second.
//! A line that was torn is cut off when the log is opened again, and what there was of it becomes an event. A line that
//! cannot be written (a full disk) is cut off as well; how many were lost is written when there is room again.
//!
//! The log has a folder of its own, which only our user can enter and sandboxes do not show: so nothing that runs in one
//! reaches it, and neither does what it becomes when it is rotated.

use std::collections::HashSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use exec_rpc::audit::{AuditEvent, AuditReceiver, AuditRecord};
use rustix::fs::{FlockOperation, OFlags};

use super::chain::{ChainEnd, Verifier};

/// How long a written line may wait to be synced, and how often a log that cannot be written is tried again.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// How much of a torn line is kept.
const TORN_TEXT_BYTES: usize = 4096;

pub(crate) struct AuditOptions {
    pub(crate) path: PathBuf,
    /// A file beyond this is rotated.
    pub(crate) max_bytes: u64,
    /// How many rotated files are kept.
    pub(crate) keep: u32,
}

/// An audit log that is open.
pub(crate) struct AuditLog {
    options: AuditOptions,
    file: File,
    /// Up to where the file has whole lines.
    bytes: u64,
    chain_end: ChainEnd,
    is_synced: bool,
    /// Events that could not be written.
    lost: u64,
    /// The last line of this server is written.
    is_over: bool,
    /// Held as long as the log is open, so that no two servers write it.
    _lock: File,
}

impl AuditLog {
    /// Opens the log and goes on with its chain. Also returns the processes, as `session/process`, whose exit it has.
    pub(crate) fn open(options: AuditOptions) -> anyhow::Result<(Self, HashSet<String>)> {
        let path = std::path::absolute(&options.path).context("cannot make the path of the audit log absolute")?;
        let options = AuditOptions { path, ..options };
        let folder = folder_of(&options.path)?;
        prepare_folder(&folder, &options.path)?;
        let lock = open_file(&beside(&options.path, "lock"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("another server writes the audit log {}", options.path.display()))?;
        let mut file = open_file(&options.path)?;
        let (mut chain_end, whole, torn, exited) = read_tail(&mut file, &options.path)?;
        if chain_end.seq == 0 {
            // Its predecessor was rotated, and then came the end.
            let rotated = beside(&options.path, "1");
            if rotated.exists() {
                chain_end = read_tail(&mut open_file(&rotated)?, &rotated)?.0;
            }
        }
        if !torn.is_empty() {
            file.set_len(whole).context("cannot cut a torn line off the audit log")?;
        }
        let mut log =
            Self { options, file, bytes: whole, chain_end, is_synced: false, lost: 0, is_over: false, _lock: lock };
        if !torn.is_empty() {
            let shown = &torn[..torn.len().min(TORN_TEXT_BYTES)];
            let text = String::from_utf8_lossy(shown).into_owned();
            tracing::warn!(bytes = torn.len(), "the audit log ended in the middle of a line: its server was killed");
            log.append(SystemTime::now(), &AuditEvent::TornLine { bytes: torn.len() as u64, text });
        }
        let (version, pid) = (env!("CARGO_PKG_VERSION").to_owned(), std::process::id());
        log.append(SystemTime::now(), &AuditEvent::ServerStarted { version, pid });
        ensure!(log.lost == 0, "cannot write the audit log {}: see the message above", log.options.path.display());
        Ok((log, exited))
    }

    /// Writes what the server hands in until nobody can any more, on a thread of its own.
    pub(crate) fn run(self, receiver: AuditReceiver) -> std::io::Result<JoinHandle<()>> {
        // It only waits, for events and the time; what it writes may block this thread, and nobody else's.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || runtime.block_on(self.write_all(receiver)))
    }

    async fn write_all(mut self, mut receiver: AuditReceiver) {
        loop {
            match tokio::time::timeout(SYNC_INTERVAL, receiver.next()).await {
                Ok(None) => break,
                Ok(Some(record)) => {
                    self.write_record(record, &receiver);
                    while let Some(record) = receiver.next_at_once() {
                        self.write_record(record, &receiver);
                    }
                }
                Err(_) => {
                    self.sync();
                    self.tell_lost();
                }
            }
            self.lost += receiver.take_lost();
            receiver.set_failing(self.lost > 0);
            if self.is_over {
                break;
            }
        }
        self.sync();
    }

    fn write_record(&mut self, record: AuditRecord, receiver: &AuditReceiver) {
        self.tell_lost();
        if matches!(record.event, AuditEvent::ServerStopped { .. }) {
            self.is_over = true;
        }
        self.append(record.at, &record.event);
        // Before whoever waits goes on: what comes next must know.
        receiver.set_failing(self.lost > 0);
        // Dropped without a word if the line could not be written.
        if let Some(written) = record.written.filter(|_| self.lost == 0) {
            let _ = written.send(());
        }
    }

    /// Tells that events were lost, before anything else is written again.
    fn tell_lost(&mut self) {
        if self.lost > 0 {
            let count = std::mem::take(&mut self.lost);
            self.append(SystemTime::now(), &AuditEvent::EventsLost { count });
            match self.lost {
                0 => tracing::warn!(count, "the audit log can be written again; events were lost"),
                // The line about them was lost, not another event.
                _ => self.lost = count,
            }
        }
    }

    /// Appends a line. One that cannot be written is counted as lost, and nothing of it stays.
    fn append(&mut self, at: SystemTime, event: &AuditEvent) {
        let was_failing = self.lost > 0;
        if let Err(error) = self.try_append(at, event) {
            self.lost += 1;
            let _ = self.file.set_len(self.bytes);
            if !was_failing {
                let path = self.options.path.display();
                tracing::error!("cannot write the audit log {path}: {error:#}; free space there, or make it writable");
            }
        }
    }

    fn try_append(&mut self, at: SystemTime, event: &AuditEvent) -> anyhow::Result<()> {
        let at_ms = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let (line, next) = self.chain_end.next_line(at_ms, event).context("an event cannot be encoded")?;
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.options.max_bytes {
            self.rotate().context("cannot rotate it")?;
        }
        self.file.write_all(&line)?;
        self.bytes += line.len() as u64;
        self.chain_end = next;
        self.is_synced = false;
        Ok(())
    }

    /// The file gets `.1` at its end, and so on; the oldest beyond those that are kept is removed. The chain goes on.
    fn rotate(&mut self) -> anyhow::Result<()> {
        self.file.sync_data()?;
        let at = |number: u32| beside(&self.options.path, &number.to_string());
        // If only the last step failed the last time, the others are done.
        let is_there = self.options.path.exists();
        for number in (1..=self.options.keep).rev().filter(|_| is_there) {
            let from = at(number);
            if from.exists() {
                match number == self.options.keep {
                    true => std::fs::remove_file(&from)?,
                    false => std::fs::rename(&from, at(number + 1))?,
                }
            }
        }
        match self.options.keep {
            _ if !is_there => {}
            0 => std::fs::remove_file(&self.options.path)?,
            _ => std::fs::rename(&self.options.path, at(1))?,
        }
        self.file = open_file(&self.options.path)?;
        self.bytes = 0;
        // The names too must survive a power cut.
        File::open(folder_of(&self.options.path)?)?.sync_all()?;
        Ok(())
    }

    fn sync(&mut self) {
        if !self.is_synced {
            self.is_synced = self.file.sync_data().is_ok();
        }
    }
}

/// The folder of an audit log, which sandboxes must not show.
pub(crate) fn folder_of(path: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(path).context("cannot make the path of the audit log absolute")?;
    let folder = path.parent().with_context(|| format!("{} is no file", path.display()))?;
    Ok(folder.to_owned())
}

/// Makes the folder, or checks that it is the log's own: what is hidden from sandboxes must have nothing else in it.
fn prepare_folder(folder: &Path, log: &Path) -> anyhow::Result<()> {
    let own = log.file_name().with_context(|| format!("{} is no file", log.display()))?;
    if !folder.exists() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| format!("cannot make the folder {} of the audit log", folder.display()))?;
    }
    let found = std::fs::symlink_metadata(folder).with_context(|| format!("cannot look at {}", folder.display()))?;
    let is_ours = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_dir() || !is_ours || found.mode() & 0o077 != 0 {
        bail!(
            "the audit log needs a folder that is yours and that nobody else can enter: mkdir -m 700 {}",
            folder.display()
        );
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let name = entry?.file_name();
        let is_of_the_log = name.as_encoded_bytes().starts_with(own.as_encoded_bytes());
        ensure!(
            is_of_the_log,
            "the audit log needs a folder of its own, because sandboxes do not show it; {} has {:?}",
            folder.display(),
            name
        );
    }
    Ok(())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

fn open_file(path: &Path) -> anyhow::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(flags.cast_signed());
    let file = options.open(path).with_context(|| format!("cannot open {}", path.display()))?;
    ensure!(file.metadata()?.is_file(), "{} is not a plain file", path.display());
    Ok(file)
}

/// Where the chain of a file stands, how long its whole lines are, what follows them, and which exits it has. A file that
/// was changed is refused: to go on with it would cover that up.
fn read_tail(file: &mut File, path: &Path) -> anyhow::Result<(ChainEnd, u64, Vec<u8>, HashSet<String>)> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut text).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let torn = text.split_off(whole);
    let (mut verifier, mut exited) = (Verifier::default(), HashSet::new());
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let number = at + 1;
        let read = verifier.take(line).map_err(|why| {
            anyhow::anyhow!("{}:{number}: {why}: keep it as evidence, and begin another log", path.display())
        })?;
        note_exit(&read.event, line, &mut exited);
    }
    let chain_end = verifier.last().cloned().unwrap_or_default();
    Ok((chain_end, whole as u64, torn, exited))
}

/// Ids may be used again, so a start takes back what an exit has said.
fn note_exit(event: &str, line: &[u8], exited: &mut HashSet<String>) {
    if event != "processStarted" && event != "processExited" {
        return;
    }
    let Ok(line) = serde_json::from_slice::<serde_json::Value>(line) else { return };
    let key = format!("{}/{}", line["session"].as_str().unwrap_or("?"), line["process"].as_str().unwrap_or("?"));
    match event {
        "processExited" => exited.insert(key),
        _ => exited.remove(&key),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(folder: &Path, max_bytes: u64) -> AuditOptions {
        AuditOptions { path: folder.join("audit.jsonl"), max_bytes, keep: 3 }
    }

    fn own_folder() -> (tempfile::TempDir, PathBuf) {
        let outer = tempfile::tempdir().expect("a folder can be made");
        let folder = outer.path().join("audit");
        (outer, folder)
    }

    fn event(number: usize) -> AuditEvent {
        AuditEvent::SessionClosed { session: format!("s{number}"), reason: "closed" }
    }

    fn lines(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).expect("it is there");
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_torn_line_is_told_and_the_chain_goes_on() {
        let (_outer, folder) = own_folder();
        let path = folder.join("audit.jsonl");
        for torn in ["", "{\"seq\":3,\"prev\":\"ab", "\0\0\0"] {
            let _ = std::fs::remove_dir_all(&folder);
            let (mut log, _) = AuditLog::open(options(&folder, 1 << 20)).expect("the folder is ours");
            log.append(SystemTime::now(), &event(1));
            drop(log);
            let mut file = OpenOptions::new().append(true).open(&path).expect("it is there");
            file.write_all(torn.as_bytes()).expect("it is ours");
            drop(AuditLog::open(options(&folder, 1 << 20)).expect("a torn line is not the end"));
            let mut verifier = Verifier::default();
            let events: Vec<String> =
                lines(&path).iter().map(|line| verifier.take(line.as_bytes()).expect("it is whole").event).collect();
            let expected: &[&str] = match torn {
                "" => &["serverStarted", "sessionClosed", "serverStarted"],
                _ => &["serverStarted", "sessionClosed", "tornLine", "serverStarted"],
            };
            assert_eq!(events, expected, "{torn:?}");
        }
    }

    #[test]
    fn a_log_rotates_keeps_so_many_files_and_one_chain() {
        let (_outer, folder) = own_folder();
        for _ in 0..2 {
            let (mut log, _) = AuditLog::open(options(&folder, 1000)).expect("the folder is ours");
            (0..20).for_each(|number| log.append(SystemTime::now(), &event(number)));
        }
        let path = folder.join("audit.jsonl");
        let mut verifier = Verifier::default();
        for file in [beside(&path, "3"), beside(&path, "2"), beside(&path, "1"), path.clone()] {
            assert!(std::fs::metadata(&file).expect("it is kept").len() <= 1000, "{file:?}");
            for line in lines(&file) {
                verifier.take(line.as_bytes()).expect("the chain goes on");
            }
        }
        assert!(!beside(&path, "4").exists());
        assert_eq!(verifier.last().map(|last| last.seq), Some(42));
    }

    #[test]
    fn a_log_that_was_changed_is_not_gone_on_with() {
        let (_outer, folder) = own_folder();
        drop(AuditLog::open(options(&folder, 1 << 20)).expect("the folder is ours"));
        let path = folder.join("audit.jsonl");
        let text = std::fs::read_to_string(&path).expect("it is there").replace("serverStarted", "serverStopped");
        std::fs::write(&path, text).expect("it is ours");
        let refused = AuditLog::open(options(&folder, 1 << 20)).err().expect("it was changed").to_string();
        assert!(refused.contains("audit.jsonl:1: its hash is not that of what it says"), "{refused}");
    }

    #[test]
    fn a_log_is_not_written_by_two_and_has_its_folder_to_itself() {
        let (outer, folder) = own_folder();
        let first = AuditLog::open(options(&folder, 1 << 20)).expect("the folder is ours");
        assert!(AuditLog::open(options(&folder, 1 << 20)).is_err());
        drop(first);
        std::fs::write(folder.join("else"), "").expect("it is ours");
        let refused = AuditLog::open(options(&folder, 1 << 20)).err().expect("it is not alone").to_string();
        assert!(refused.contains("a folder of its own"), "{refused}");
        let open = options(Path::new("/tmp"), 1);
        assert!(AuditLog::open(open).is_err(), "everybody can enter that");
        drop(outer);
    }
}
