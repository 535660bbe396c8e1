//! What the client remembers of a process beside its log: whether its session still exists, and who to wake.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use exec_core::{Command, Head, Io, ProcessId};
use exec_env::process::{ProcessInfo, Unreachable};
use tokio::sync::watch;

/// One process of this client.
#[derive(Debug)]
pub(crate) struct CachedProcess {
    pub(crate) status: ProcessStatus,
    /// Its log may have changed.
    changes: watch::Sender<u64>,
    /// What was asked for, for servers that cannot list.
    request: Option<StartRequest>,
}

/// Where a process stands, as far as the link is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProcessStatus {
    /// Its start is under way.
    Starting,
    /// It exists, or existed when we last heard.
    Known,
    /// Its session is gone.
    Lost(Unreachable),
}

#[derive(Debug)]
struct StartRequest {
    argv: Vec<OsString>,
    cwd: PathBuf,
    tty: bool,
    stdin: bool,
    label: Vec<u8>,
    started: SystemTime,
}

impl CachedProcess {
    /// Of a process that is being started.
    pub(crate) fn starting(command: &Command) -> Self {
        let (tty, stdin) = match command.io {
            Io::Pipes { stdin } => (false, stdin),
            Io::Pty(_) => (true, true),
        };
        let request = StartRequest {
            argv: command.argv.clone(),
            cwd: command.cwd.clone(),
            tty,
            stdin,
            label: command.label.clone(),
            started: SystemTime::now(),
        };
        Self { status: ProcessStatus::Starting, changes: watch::Sender::new(0), request: Some(request) }
    }

    /// Of a process that somebody else has started.
    pub(crate) fn discovered() -> Self {
        Self { status: ProcessStatus::Known, changes: watch::Sender::new(0), request: None }
    }

    /// Told of every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Wakes those who wait for changes.
    pub(crate) fn notify(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Its session is gone.
    pub(crate) fn mark_lost(&mut self, why: &str) {
        if !matches!(self.status, ProcessStatus::Lost(_)) {
            self.status = ProcessStatus::Lost(Unreachable { why: why.to_owned() });
        }
        self.notify();
    }

    /// Whether it was asked for with a terminal; `None` if we did not ask.
    pub(crate) fn has_terminal(&self) -> Option<bool> {
        self.request.as_ref().map(|request| request.tty)
    }

    /// Whether `listed` is what was asked for.
    pub(crate) fn matches(&self, listed: &ProcessInfo) -> bool {
        let same = |request: &StartRequest| (&request.argv, &request.cwd) == (&listed.argv, &listed.cwd);
        self.request.as_ref().is_some_and(same)
    }

    /// What a list would say of it, from memory.
    pub(crate) fn info(&self, id: &ProcessId, head: Head) -> Option<ProcessInfo> {
        let request = self.request.as_ref().filter(|_| self.status == ProcessStatus::Known)?;
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
