//! One process: its record, its log, its stdin, and the two tasks that serve it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use exec_core::write_history::WriteHistory;
use exec_core::{Head, Io, Overflow, ProcessId, Stream};
use exec_env::process::ProcessInfo;
use exec_keeper::protocol::{ProcessRecord, ProcessNumber, FdRole};
use exec_keeper::spool::{RecoveredFiles, OutputSource, Spool};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::ProcessTable;
use crate::keeper_client::HandedProcess;
use crate::output_mover::{AsyncDescriptor, MoverNotification, NOTIFICATIONS, OutputMover, watch_source};
use crate::process_log::ProcessLog;
use crate::readers::Readers;
use crate::stdin::{Stdin, StdinTarget};
use crate::write_journal::WriteJournal;

pub(crate) struct Process {
    number: ProcessNumber,
    pid: u32,
    record: ProcessRecord,
    log: ProcessLog,
    stdin: Stdin,
    terminal: Option<AsyncDescriptor>,
    notifications: mpsc::Sender<MoverNotification>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// A process that could not be taken: its name and why.
type ResumeFailure = (ProcessId, Errno);

impl Process {
    /// Takes a process that was just started.
    pub(super) fn begin(table: &Arc<ProcessTable>, record: ProcessRecord, handed: HandedProcess) -> Arc<Self> {
        let mut parts = Descriptors(handed.parts);
        let sources = parts.sources();
        let spool = Spool::begin(table.folder.clone(), record.quota, sources);
        let write_journal = table.durable.then(|| WriteJournal::new(table.folder.clone()));
        Self::assemble(
            table,
            record,
            handed.number,
            handed.pid,
            spool,
            parts,
            (WriteHistory::default(), write_journal),
            None,
        )
    }

    /// Takes a process of an owner that is gone.
    pub(super) fn resume(
        table: &Arc<ProcessTable>,
        record: ProcessRecord,
        handed: HandedProcess,
    ) -> Result<Arc<Self>, ResumeFailure> {
        let id = record.id.clone();
        let at = |errno| (id.clone(), errno);
        let mut parts = Descriptors(handed.parts);
        let files = RecoveredFiles { index: parts.take(FdRole::Index), data: [parts.take(FdRole::Data0), parts.take(FdRole::Data1)] };
        let sources = parts.sources();
        let spool = Spool::resume(table.folder.clone(), files, record.quota, sources).map_err(at)?;
        let (write_journal, history) = match parts.take(FdRole::WriteJournal) {
            Some(file) => WriteJournal::recover(table.folder.clone(), file).map_err(at)?,
            None => (WriteJournal::new(table.folder.clone()), WriteHistory::default()),
        };
        let exit = handed.exit.filter(|_| spool.head().exit.is_none());
        Ok(Self::assemble(table, record, handed.number, handed.pid, spool, parts, (history, Some(write_journal)), exit))
    }

    #[expect(clippy::too_many_arguments, reason = "the one place where the parts of a process come together")]
    fn assemble(
        table: &Arc<ProcessTable>,
        record: ProcessRecord,
        number: ProcessNumber,
        pid: u32,
        spool: Spool,
        mut parts: Descriptors,
        (history, write_journal): (WriteHistory, Option<WriteJournal>),
        exit: Option<exec_core::Exit>,
    ) -> Arc<Self> {
        let sources = match record.io {
            Io::Pipes { .. } => [watch_source(&spool, Stream::Stdout), watch_source(&spool, Stream::Stderr)],
            Io::Pty(_) => [watch_source(&spool, Stream::Pty), None],
        };
        let terminal = match record.io {
            // A terminal whose output has ended can still be asked for its size.
            Io::Pty(_) => sources[0].clone().or_else(|| {
                let master = Arc::new(parts.take(FdRole::PtyMaster)?);
                AsyncFd::new(master).ok().map(Arc::new)
            }),
            Io::Pipes { .. } => None,
        };
        let end = match (record.io, parts.take(FdRole::Stdin)) {
            (Io::Pty(_), _) if sources[0].is_some() => {
                terminal.clone().map_or(StdinTarget::None, StdinTarget::Terminal)
            }
            (Io::Pipes { .. }, Some(pipe)) => StdinTarget::Pipe(pipe),
            _ => StdinTarget::None,
        };
        let (stdin, stdin_task) = Stdin::new(number, table.keeper.clone(), end, history, write_journal);
        let (head, head_receiver) = watch::channel(spool.head());
        let (notifications, notification_receiver) = mpsc::channel(NOTIFICATIONS);
        let readers = Arc::new(Readers::default());
        let log = ProcessLog::new(record.id.clone(), spool.log_files().clone(), head_receiver, readers.clone());
        let mover = OutputMover {
            number,
            spool,
            sources,
            pidfd: parts.take(FdRole::Pidfd),
            head,
            readers,
            child_waits_since: None,
            notifications: notification_receiver,
            keeper: table.keeper.clone(),
            durable: table.durable,
            flooding_movers: table.flooding_movers.clone(),
            over_cap: table.over_cap.clone(),
        };
        if let Some(exit) = exit {
            let _ = notifications.try_send(MoverNotification::Exited(exit));
        }
        let tasks = Mutex::new(vec![tokio::spawn(mover.run()), tokio::spawn(stdin_task)]);
        Arc::new(Self { number, pid, record, log, stdin, terminal, notifications, tasks })
    }

    pub(crate) fn id(&self) -> &ProcessId {
        &self.record.id
    }

    pub(crate) fn number(&self) -> ProcessNumber {
        self.number
    }

    pub(crate) fn log(&self) -> &ProcessLog {
        &self.log
    }

    pub(crate) fn head(&self) -> Head {
        self.log.head()
    }

    pub(crate) fn stdin(&self) -> &Stdin {
        // The last writer of a terminal is gone: what is typed now, nobody reads.
        if self.terminal.is_some() && self.head().closed {
            self.stdin.mark_closed();
        }
        &self.stdin
    }

    pub(crate) fn terminal(&self) -> Option<&OwnedFd> {
        self.terminal.as_ref().map(|terminal| &**terminal.get_ref())
    }

    /// Never waits: the mover's few notices always have room (see `mover::MoverNotification`), and a shed may be missed.
    pub(crate) fn notify(&self, notification: MoverNotification) {
        let _ = self.notifications.try_send(notification);
    }

    pub(crate) fn droppable_bytes(&self) -> u64 {
        match self.record.quota.overflow {
            Overflow::DropOldest => self.head().held_bytes,
            Overflow::Block => 0,
        }
    }

    pub(crate) fn info(&self) -> ProcessInfo {
        ProcessInfo {
            id: self.record.id.clone(),
            pid: self.pid,
            argv: self.record.argv.clone(),
            cwd: self.record.cwd.clone(),
            tty: matches!(self.record.io, Io::Pty(_)),
            stdin_open: self.stdin().is_open(),
            started: self.record.started,
            head: self.head(),
            label: self.record.label.clone(),
        }
    }

    /// Ends both tasks and waits for them: from here on we touch nothing of it.
    pub(crate) async fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
    }

    /// Ends both tasks without waiting.
    pub(crate) fn abort(&self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            task.abort();
        }
    }
}

/// Descriptors by their role.
struct Descriptors(Vec<(FdRole, OwnedFd)>);

impl Descriptors {
    fn take(&mut self, part: FdRole) -> Option<OwnedFd> {
        let at = self.0.iter().position(|(child_waits_since, _)| *child_waits_since == part)?;
        Some(self.0.swap_remove(at).1)
    }

    fn sources(&mut self) -> Vec<(Stream, OutputSource)> {
        let mut sources = Vec::new();
        for (stream, part) in [(Stream::Stdout, FdRole::Stdout), (Stream::Stderr, FdRole::Stderr)] {
            if let Some(pipe) = self.take(part) {
                sources.push((stream, OutputSource::Pipe(Arc::new(pipe))));
            }
        }
        if let (Some(out), Some(into)) = (self.take(FdRole::RelayRead), self.take(FdRole::RelayWrite))
            && let Some(master) = self.take(FdRole::PtyMaster)
        {
            sources.push((Stream::Pty, OutputSource::Pty { master: Arc::new(master), relay: (out, into) }));
        }
        sources
    }
}
