//! What the client remembers of a process beside its log: whether its session still exists, what was asked for, and whom
//! to notify of changes.

use std::time::SystemTime;

use exec_core::{Command, Head, Io, ProcessId};
use exec_env::process::{ProcessInfo, Unreachable};
use tokio::sync::watch;

use crate::inbox::EMPTY_HEAD;

/// One process that this client has started or followed.
#[derive(Debug)]
pub(crate) struct CachedProcess {
    pub(crate) status: ProcessStatus,
    /// Counts changes of its log, as far as we hear of them.
    changes: watch::Sender<u64>,
    /// What we know of it if we have started it, without pid and log; for servers that cannot list.
    started: Option<ProcessInfo>,
    /// Whether what we wrote last ends within a line; for servers that do not know what ends the stdin of a terminal.
    pub(crate) within_line: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProcessStatus {
    /// The server has not answered its start yet.
    Starting,
    /// It exists, or existed when we last heard.
    Known,
    /// Its session is gone.
    Lost(Unreachable),
}

impl CachedProcess {
    pub(crate) fn starting(id: &ProcessId, command: &Command) -> Self {
        let (tty, stdin_open) = match command.io {
            Io::Pipes { stdin } => (false, stdin),
            Io::Pty(_) => (true, true),
        };
        let started = ProcessInfo {
            id: id.clone(),
            pid: 0,
            argv: command.argv.clone(),
            argv_cut: false,
            cwd: command.cwd.clone(),
            tty,
            stdin_open,
            started: SystemTime::now(),
            head: EMPTY_HEAD,
            sandbox: None,
            limits: None,
            label: command.label.clone(),
        };
        Self {
            status: ProcessStatus::Starting,
            changes: watch::Sender::new(0),
            started: Some(started),
            within_line: false,
        }
    }

    /// A process that another client has started.
    pub(crate) fn discovered() -> Self {
        Self { status: ProcessStatus::Known, changes: watch::Sender::new(0), started: None, within_line: false }
    }

    /// Receives every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn notify(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn mark_lost(&mut self, why: &str) {
        if !matches!(self.status, ProcessStatus::Lost(_)) {
            self.status = ProcessStatus::Lost(Unreachable { why: why.to_owned() });
        }
        self.notify();
    }

    /// `None` if another client has started it.
    pub(crate) fn has_terminal(&self) -> Option<bool> {
        self.started.as_ref().map(|started| started.tty)
    }

    /// Whether `listed` is the process that we started, and not one of another client with the same id.
    pub(crate) fn matches(&self, listed: &ProcessInfo) -> bool {
        self.started.as_ref().is_some_and(|started| {
            let same_words = match listed.argv_cut {
                true => started.argv.starts_with(&listed.argv),
                false => started.argv == listed.argv,
            };
            same_words && started.cwd == listed.cwd
        })
    }

    /// What `process/list` would say of it, from memory.
    pub(crate) fn info(&self, head: Head) -> Option<ProcessInfo> {
        let started = self.started.as_ref().filter(|_| self.status == ProcessStatus::Known)?;
        Some(ProcessInfo { stdin_open: started.stdin_open && head.exit.is_none(), head, ..started.clone() })
    }
}
