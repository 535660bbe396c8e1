//! One process: its card, its log, its stdin, and the two tasks that serve it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use exec_core::ledger::Ledger;
use exec_core::{Head, Io, Overflow, ProcessId, Stream};
use exec_env::process::ProcessInfo;
use exec_keeper::protocol::{Card, Number, Part};
use exec_keeper::spool::{Files, Source, Spool};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::Room;
use crate::clerk::Handed;
use crate::journal::Journal;
use crate::mover::{Mover, NOTICES, Notice, Watched, watch_source};
use crate::readers::Readers;
use crate::stdin::{Stdin, StdinEnd};
use crate::stdin_notes::Notes;

pub(crate) struct Process {
    number: Number,
    pid: u32,
    card: Card,
    journal: Journal,
    stdin: Stdin,
    terminal: Option<Watched>,
    notices: mpsc::Sender<Notice>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// A process that could not be taken: its name and why.
type Untaken = (ProcessId, Errno);

impl Process {
    /// Takes a process that was just started.
    pub(super) fn begin(room: &Arc<Room>, card: Card, handed: Handed) -> Arc<Self> {
        let mut parts = Parts(handed.parts);
        let sources = parts.sources();
        let spool = Spool::begin(room.folder.clone(), card.quota, sources);
        let notes = room.durable.then(|| Notes::new(room.folder.clone()));
        Self::carry(room, card, handed.number, handed.pid, spool, parts, (Ledger::default(), notes), None)
    }

    /// Takes a process of an owner that is gone.
    pub(super) fn resume(room: &Arc<Room>, card: Card, handed: Handed) -> Result<Arc<Self>, Untaken> {
        let id = card.id.clone();
        let at = |errno| (id.clone(), errno);
        let mut parts = Parts(handed.parts);
        let files = Files { index: parts.take(Part::Index), data: [parts.take(Part::Data0), parts.take(Part::Data1)] };
        let sources = parts.sources();
        let spool = Spool::resume(room.folder.clone(), files, card.quota, sources).map_err(at)?;
        let (notes, ledger) = match parts.take(Part::Ledger) {
            Some(file) => Notes::recover(room.folder.clone(), file).map_err(at)?,
            None => (Notes::new(room.folder.clone()), Ledger::default()),
        };
        let exit = handed.exit.filter(|_| spool.head().exit.is_none());
        Ok(Self::carry(room, card, handed.number, handed.pid, spool, parts, (ledger, Some(notes)), exit))
    }

    #[expect(clippy::too_many_arguments, reason = "the one place where the parts of a process come together")]
    fn carry(
        room: &Arc<Room>,
        card: Card,
        number: Number,
        pid: u32,
        spool: Spool,
        mut parts: Parts,
        (ledger, notes): (Ledger, Option<Notes>),
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
            (Io::Pty(_), _) if sources[0].is_some() => terminal.clone().map_or(StdinEnd::None, StdinEnd::Terminal),
            (Io::Pipes { .. }, Some(pipe)) => StdinEnd::Pipe(pipe),
            _ => StdinEnd::None,
        };
        let (stdin, stdin_task) = Stdin::new(number, room.clerk.clone(), end, ledger, notes);
        let (head, head_receiver) = watch::channel(spool.head());
        let (notices, notices_receiver) = mpsc::channel(NOTICES);
        let readers = Arc::new(Readers::default());
        let journal = Journal::new(card.id.clone(), spool.shelf().clone(), head_receiver, readers.clone());
        let mover = Mover {
            number,
            spool,
            sources,
            pidfd: parts.take(Part::Pidfd),
            head,
            readers,
            held: None,
            notices: notices_receiver,
            clerk: room.clerk.clone(),
            durable: room.durable,
            busy: room.busy.clone(),
            over_cap: room.over_cap.clone(),
        };
        if let Some(exit) = exit {
            let _ = notices.try_send(Notice::Exited(exit));
        }
        let tasks = Mutex::new(vec![tokio::spawn(mover.run()), tokio::spawn(stdin_task)]);
        Arc::new(Self { number, pid, card, journal, stdin, terminal, notices, tasks })
    }

    pub(crate) fn id(&self) -> &ProcessId {
        &self.card.id
    }

    pub(crate) fn number(&self) -> Number {
        self.number
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    pub(crate) fn head(&self) -> Head {
        self.journal.head()
    }

    pub(crate) fn stdin(&self) -> &Stdin {
        // The last writer of a terminal is gone: what is typed now, nobody reads.
        if self.terminal.is_some() && self.head().closed {
            self.stdin.hang_up();
        }
        &self.stdin
    }

    pub(crate) fn terminal(&self) -> Option<&OwnedFd> {
        self.terminal.as_ref().map(|terminal| &**terminal.get_ref())
    }

    /// Never waits: the mover's few notices always have room (see `mover::Notice`), and a shed may be missed.
    pub(crate) fn notify(&self, notice: Notice) {
        let _ = self.notices.try_send(notice);
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
struct Parts(Vec<(Part, OwnedFd)>);

impl Parts {
    fn take(&mut self, part: Part) -> Option<OwnedFd> {
        let at = self.0.iter().position(|(held, _)| *held == part)?;
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
