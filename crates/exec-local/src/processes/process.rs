//! One process: its record, its log, its stdin, and the two tasks that move its output and write its stdin.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use exec_core::write_history::WriteHistory;
use exec_core::{Head, Io, Overflow, ProcessId, Stream};
use exec_env::process::ProcessInfo;
use exec_keeper::protocol::{FdRole, ProcessNumber, ProcessRecord};
use exec_keeper::spool::{RecoveredFiles, Spool};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::{PROCESS_DESCRIPTORS, ProcessTable};
use crate::descriptors::{DescriptorPermit, DescriptorUse};
use crate::keeper_client::HandedProcess;
use crate::output_mover::{AsyncDescriptor, MoverNotification, NOTIFICATIONS, OutputMover, watch_source};
use crate::process_log::ProcessLog;
use crate::readers::Readers;
use crate::stdin::{Stdin, StdinHandle};
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

impl Process {
    /// A process that was just started.
    pub(super) fn new(
        table: &ProcessTable,
        record: ProcessRecord,
        mut handed: HandedProcess,
        permit: DescriptorPermit,
    ) -> Arc<Self> {
        let spool = Spool::begin(table.spool_directory.clone(), record.quota, handed.descriptors.take_sources());
        let journal = table.durable.then(|| WriteJournal::new(table.spool_directory.clone()));
        Self::assemble(table, record, handed, spool, permit, (WriteHistory::default(), journal))
    }

    /// A process of an earlier owner. Fails with its id and the reason.
    pub(super) fn resume(
        table: &ProcessTable,
        record: ProcessRecord,
        mut handed: HandedProcess,
    ) -> Result<Arc<Self>, (ProcessId, Errno)> {
        let id = record.id.clone();
        let failed = |errno| (id.clone(), errno);
        let descriptors = &mut handed.descriptors;
        let index = descriptors.take(FdRole::Index);
        let files = RecoveredFiles { index, data: [descriptors.take(FdRole::Data0), descriptors.take(FdRole::Data1)] };
        let sources = descriptors.take_sources();
        let spool = Spool::resume(table.spool_directory.clone(), files, record.quota, sources).map_err(failed)?;
        let (journal, history) = match descriptors.take(FdRole::WriteJournal) {
            Some(file) => WriteJournal::recover(table.spool_directory.clone(), file).map_err(failed)?,
            None => (WriteJournal::new(table.spool_directory.clone()), WriteHistory::default()),
        };
        let permit = table.descriptors.take_anyway(DescriptorUse::Processes, PROCESS_DESCRIPTORS);
        Ok(Self::assemble(table, record, handed, spool, permit, (history, Some(journal))))
    }

    fn assemble(
        table: &ProcessTable,
        record: ProcessRecord,
        handed: HandedProcess,
        spool: Spool,
        permit: DescriptorPermit,
        (history, journal): (WriteHistory, Option<WriteJournal>),
    ) -> Arc<Self> {
        let HandedProcess { number, pid, exit, mut descriptors } = handed;
        let sources = match record.io {
            Io::Pipes { .. } => [watch_source(&spool, Stream::Stdout), watch_source(&spool, Stream::Stderr)],
            Io::Pty(_) => [watch_source(&spool, Stream::Pty), None],
        };
        let terminal = match record.io {
            // A terminal whose output has ended still has a size that can be set.
            Io::Pty(_) => sources[0].clone().or_else(|| {
                let master = Arc::new(descriptors.take(FdRole::PtyMaster)?);
                AsyncFd::new(master).ok().map(Arc::new)
            }),
            Io::Pipes { .. } => None,
        };
        let handle = match (record.io, descriptors.take(FdRole::Stdin)) {
            (Io::Pty(_), _) if sources[0].is_some() => terminal.clone().map_or(StdinHandle::Closed, StdinHandle::Async),
            (Io::Pipes { .. }, Some(pipe)) => StdinHandle::Idle(Arc::new(pipe)),
            _ => StdinHandle::Closed,
        };
        let (stdin, stdin_task) = Stdin::new(number, table.keeper.clone(), handle, history, journal);
        let (head, head_receiver) = watch::channel(spool.head());
        let (notifications, notification_receiver) = mpsc::channel(NOTIFICATIONS);
        if let Some(exit) = exit.filter(|_| spool.head().exit.is_none()) {
            let _ = notifications.try_send(MoverNotification::Exited(exit));
        }
        let readers = Arc::new(Readers::default());
        let log = ProcessLog::new(record.id.clone(), spool.log_files().clone(), head_receiver, readers.clone());
        let mover = OutputMover {
            number,
            spool,
            sources,
            pidfd: descriptors.take(FdRole::Pidfd),
            permit,
            head,
            readers,
            child_waits_since: None,
            notifications: notification_receiver,
            keeper: table.keeper.clone(),
            durable: table.durable,
            flooding_movers: table.flooding_movers.clone(),
            over_cap: table.over_cap.clone(),
        };
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
        // The last process on the terminal has closed it, so nobody will read what is written now.
        if self.terminal.is_some() && self.head().closed {
            self.stdin.mark_closed();
        }
        &self.stdin
    }

    pub(crate) fn terminal(&self) -> Option<&OwnedFd> {
        self.terminal.as_ref().map(|terminal| &**terminal.get_ref())
    }

    /// Never waits: the channel has space for the few notifications of a mover, and a `Shed` that is lost is sent
    /// again.
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
            argv_cut: false,
            cwd: self.record.cwd.clone(),
            tty: matches!(self.record.io, Io::Pty(_)),
            stdin_open: self.stdin().is_open(),
            started: self.record.started,
            head: self.head(),
            label: self.record.label.clone(),
        }
    }

    /// Ends both tasks and waits for them. Afterwards nothing of the process is touched by us.
    pub(crate) async fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
    }

    /// The same without waiting.
    pub(crate) fn abort(&self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            task.abort();
        }
    }
}
