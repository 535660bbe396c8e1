//! What the client remembers of a process beside its log: whether its session still exists, and who to wake.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use exec_core::{Command, Head, Io, ProcessId};
use exec_env::process::{ProcessInfo, Unreachable};
use tokio::sync::watch;

/// One process of this client.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) fate: Fate,
    /// Its log may have changed.
    news: watch::Sender<u64>,
    /// What was asked for, for servers that cannot list.
    request: Option<Request>,
}

/// Where a process stands, as far as the link is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its start is under way.
    Starting,
    /// It exists, or existed when we last heard.
    Known,
    /// Its session is gone.
    Lost(Unreachable),
}

#[derive(Debug)]
struct Request {
    argv: Vec<OsString>,
    cwd: PathBuf,
    tty: bool,
    stdin: bool,
    label: Vec<u8>,
    started: SystemTime,
}

impl Record {
    /// Of a process that is being started.
    pub(crate) fn starting(command: &Command) -> Self {
        let (tty, stdin) = match command.io {
            Io::Pipes { stdin } => (false, stdin),
            Io::Pty(_) => (true, true),
        };
        let request = Request {
            argv: command.argv.clone(),
            cwd: command.cwd.clone(),
            tty,
            stdin,
            label: command.label.clone(),
            started: SystemTime::now(),
        };
        Self { fate: Fate::Starting, news: watch::Sender::new(0), request: Some(request) }
    }

    /// Of a process that somebody else has started.
    pub(crate) fn found() -> Self {
        Self { fate: Fate::Known, news: watch::Sender::new(0), request: None }
    }

    /// Told of every change from now on.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Wakes those who wait for news.
    pub(crate) fn wake(&self) {
        self.news.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Its session is gone.
    pub(crate) fn lose(&mut self, why: &str) {
        if !matches!(self.fate, Fate::Lost(_)) {
            self.fate = Fate::Lost(Unreachable { why: why.to_owned() });
        }
        self.wake();
    }

    /// Whether it was asked for with a terminal; `None` if we did not ask.
    pub(crate) fn has_terminal(&self) -> Option<bool> {
        self.request.as_ref().map(|request| request.tty)
    }

    /// Whether `listed` is what was asked for.
    pub(crate) fn matches(&self, listed: &ProcessInfo) -> bool {
        let same = |request: &Request| (&request.argv, &request.cwd) == (&listed.argv, &listed.cwd);
        self.request.as_ref().is_some_and(same)
    }

    /// What a list would say of it, from memory.
    pub(crate) fn info(&self, id: &ProcessId, head: Head) -> Option<ProcessInfo> {
        let request = self.request.as_ref().filter(|_| self.fate == Fate::Known)?;
        Some(ProcessInfo {
            id: id.clone(),
            pid: 0,
            argv: request.argv.clone(),
            cwd: request.cwd.clone(),
            tty: request.tty,
            stdin_open: request.stdin && head.exit.is_none(),
            started: request.started,
            head,
            label: request.label.clone(),
        })
    }
}
