//! One process: its card, its log, its stdin, and the two tasks that serve it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use exec_core::write_history::WriteHistory;
use exec_core::{Head, Io, Overflow, ProcessId, Stream};
use exec_env::process::ProcessInfo;
use exec_keeper::protocol::{Card, Number, Part};
use exec_keeper::spool::{Files, Source, Spool};
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
    number: Number,
    pid: u32,
    card: Card,
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
    pub(super) fn begin(table: &Arc<ProcessTable>, card: Card, handed: HandedProcess) -> Arc<Self> {
        let mut parts = Descriptors(handed.parts);
        let sources = parts.sources();
        let spool = Spool::begin(table.folder.clone(), card.quota, sources);
        let write_journal = table.durable.then(|| WriteJournal::new(table.folder.clone()));
        Self::assemble(
            table,
            card,
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
        card: Card,
        handed: HandedProcess,
    ) -> Result<Arc<Self>, ResumeFailure> {
        let id = card.id.clone();
        let at = |errno| (id.clone(), errno);
        let mut parts = Descriptors(handed.parts);
        let files = Files { index: parts.take(Part::Index), data: [parts.take(Part::Data0), parts.take(Part::Data1)] };
        let sources = parts.sources();
        let spool = Spool::resume(table.folder.clone(), files, card.quota, sources).map_err(at)?;
        let (write_journal, history) = match parts.take(Part::Ledger) {
            Some(file) => WriteJournal::recover(table.folder.clone(), file).map_err(at)?,
            None => (WriteJournal::new(table.folder.clone()), WriteHistory::default()),
        };
        let exit = handed.exit.filter(|_| spool.head().exit.is_none());
        Ok(Self::assemble(table, card, handed.number, handed.pid, spool, parts, (history, Some(write_journal)), exit))
    }

    #[expect(clippy::too_many_arguments, reason = "the one place where the parts of a process come together")]
    fn assemble(
        table: &Arc<ProcessTable>,
        card: Card,
        number: Number,
        pid: u32,
        spool: Spool,
        mut parts: Descriptors,
        (history, write_journal): (WriteHistory, Option<WriteJournal>),
        exit: Option<exec_core::Exit>,
    ) -> Arc<Self> {
        let sources = match card.io {
            Io::Pipes { .. } => [watch_source(&spool, Stream::Stdout), watch_source(&spool, Stream::Stderr)],
            Io::Pty(_) => [watch_source(&spool, Stream::Pty), None],
        };
        let terminal = match card.io {
            // A terminal whose output has ended can still be asked for its size.
            Io::Pty(_) => sources[0].clone().or_else(|| {
                let master = Arc::new(parts.take(Part::Master)?);
                AsyncFd::new(master).ok().map(Arc::new)
            }),
            Io::Pipes { .. } => None,
        };
        let end = match (card.io, parts.take(Part::Stdin)) {
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
        let log = ProcessLog::new(card.id.clone(), spool.shelf().clone(), head_receiver, readers.clone());
        let mover = OutputMover {
            number,
            spool,
            sources,
            pidfd: parts.take(Part::Pidfd),
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
        Arc::new(Self { number, pid, card, log, stdin, terminal, notifications, tasks })
    }

    pub(crate) fn id(&self) -> &ProcessId {
        &self.card.id
    }

    pub(crate) fn number(&self) -> Number {
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
        match self.card.quota.overflow {
            Overflow::DropOldest => self.head().held_bytes,
            Overflow::Block => 0,
        }
    }

    pub(crate) fn info(&self) -> ProcessInfo {
        ProcessInfo {
            id: self.card.id.clone(),
            pid: self.pid,
            argv: self.card.argv.clone(),
            cwd: self.card.cwd.clone(),
            tty: matches!(self.card.io, Io::Pty(_)),
            stdin_open: self.stdin().is_open(),
            started: self.card.started,
            head: self.head(),
            label: self.card.label.clone(),
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
struct Descriptors(Vec<(Part, OwnedFd)>);

impl Descriptors {
    fn take(&mut self, part: Part) -> Option<OwnedFd> {
        let at = self.0.iter().position(|(child_waits_since, _)| *child_waits_since == part)?;
        Some(self.0.swap_remove(at).1)
    }

    fn sources(&mut self) -> Vec<(Stream, Source)> {
        let mut sources = Vec::new();
        for (stream, part) in [(Stream::Stdout, Part::Stdout), (Stream::Stderr, Part::Stderr)] {
            if let Some(pipe) = self.take(part) {
                sources.push((stream, Source::Pipe(Arc::new(pipe))));
            }
        }
        if let (Some(out), Some(into)) = (self.take(Part::RelayOut), self.take(Part::RelayIn))
            && let Some(master) = self.take(Part::Master)
        {
            sources.push((Stream::Pty, Source::Pty { master: Arc::new(master), relay: (out, into) }));
        }
        sources
    }
}
