//! One process: its record, its log, its stdin, and the two tasks that move its output and write its stdin.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use exec_core::write_history::WriteHistory;
use exec_core::{Head, Io, Overflow, ProcessId, Stream, TerminalSize};
use exec_env::process::{ProcessInfo, ProcessReason};
use exec_env::screen::{Screen, ScreenQuery};
use exec_env::view::{View, ViewQuery};
use exec_keeper::protocol::{FdRole, KeeperRequest, PROXY_ROLES, ProcessNumber, ProcessRecord};
use exec_keeper::spool::{RecoveredFiles, Spool};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::PROCESS_DESCRIPTORS;
use super::table::ProcessTable;
use crate::descriptors::{DescriptorPermit, DescriptorUse};
use crate::files::blocking::{BlockingPool, CancelFlag};
use crate::held_placeholders::HeldPlaceholders;
use crate::keeper_client::{Descriptors, HandedProcess, KeeperClient};
use crate::output_mover::{AsyncDescriptor, MoverNotification, NOTIFICATIONS, OutputMover, watch_source};
use crate::process_log::ProcessLog;
use crate::readers::Readers;
use crate::sandbox::PlaceholderGuard;
use crate::screen::DrawnScreen;
use crate::stdin::{Stdin, StdinHandle};
use crate::view;
use crate::wait::{PortLooks, SearchResources};
use crate::write_journal::WriteJournal;

/// How long to wait before looking again whether somebody of a closed process's tree is left.
const LONGEST_PLACEHOLDER_CHECK: Duration = Duration::from_secs(30);

pub(crate) struct Process {
    number: ProcessNumber,
    pid: u32,
    record: ProcessRecord,
    log: ProcessLog,
    stdin: Stdin,
    terminal: Option<AsyncDescriptor>,
    notifications: mpsc::Sender<MoverNotification>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// What its sandbox needs on the machine; gone when its whole tree is.
    placeholders: HeldPlaceholders,
    /// Drops those as soon as the tree is gone.
    placeholder_task: Option<JoinHandle<()>>,
    /// Serves its proxy until its whole tree is gone.
    proxy_task: Mutex<Option<JoinHandle<()>>>,
    views: BlockingPool,
    searches: SearchResources,
    port_looks: PortLooks,
    /// Of a terminal, if somebody has looked at it.
    drawn_screen: Arc<Mutex<Option<DrawnScreen>>>,
}

impl Process {
    /// A process that was just started.
    pub(super) fn new(
        table: &ProcessTable,
        record: ProcessRecord,
        mut handed: HandedProcess,
        permit: DescriptorPermit,
        placeholders: Option<PlaceholderGuard>,
    ) -> Arc<Self> {
        let spool = Spool::begin(table.spool_directory.clone(), record.quota, handed.descriptors.take_sources());
        let journal = table.settings.durable.then(|| WriteJournal::new(table.spool_directory.clone()));
        let log = (spool, Arc::default());
        Self::assemble(table, record, handed, log, permit, (WriteHistory::default(), journal), placeholders)
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
        let placeholders: Vec<PathBuf> = record.placeholders.iter().map(PathBuf::from).collect();
        let placeholders = if placeholders.is_empty() { None } else { table.planner.adopt(placeholders) };
        let readers = Arc::new(Readers::default());
        if !spool.nobody_reads() {
            readers.await_first(spool.head().first_seq - 1);
        }
        Ok(Self::assemble(table, record, handed, (spool, readers), permit, (history, Some(journal)), placeholders))
    }

    fn assemble(
        table: &ProcessTable,
        record: ProcessRecord,
        handed: HandedProcess,
        (spool, readers): (Spool, Arc<Readers>),
        permit: DescriptorPermit,
        (history, journal): (WriteHistory, Option<WriteJournal>),
        placeholders: Option<PlaceholderGuard>,
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
        let placeholders = HeldPlaceholders::new(placeholders);
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
            durable: table.settings.durable,
            flooding_movers: table.flooding_movers.clone(),
            over_cap: table.over_cap.clone(),
            placeholders: placeholders.clone(),
        };
        let tasks = Mutex::new(vec![tokio::spawn(mover.run()), tokio::spawn(stdin_task)]);
        let placeholder_task = placeholders.are_held().then(|| {
            let (keeper, held) = (table.keeper.clone(), placeholders.clone());
            tokio::spawn(remove_placeholders(number, log.watch(), keeper, held))
        });
        let proxy_task = proxy_task(table, number, &record, &mut descriptors, log.watch());
        Arc::new(Self {
            number,
            pid,
            record,
            log,
            stdin,
            terminal,
            notifications,
            tasks,
            placeholders,
            placeholder_task,
            proxy_task: Mutex::new(proxy_task),
            views: table.views.for_caller(),
            searches: table.searches.for_process(),
            port_looks: PortLooks::new(table.port_turns.clone()),
            drawn_screen: Arc::default(),
        })
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

    pub(crate) fn io(&self) -> Io {
        self.record.io
    }

    pub(crate) fn search_resources(&self) -> &SearchResources {
        &self.searches
    }

    pub(crate) fn port_looks(&self) -> &PortLooks {
        &self.port_looks
    }

    pub(crate) async fn view(&self, query: ViewQuery) -> Result<View, ProcessReason> {
        let (files, head) = (self.log.files().clone(), self.head());
        let streams: &[Stream] = match self.record.io {
            Io::Pipes { .. } => &[Stream::Stdout, Stream::Stderr],
            Io::Pty(_) => &[Stream::Pty],
        };
        let viewed = self.views.run(move |cancel| view::view(&files, head, streams, &query, cancel)).await?;
        // It is cancelled only when nobody waits for it here.
        viewed.ok_or(ProcessReason::UnknownProcess)
    }

    pub(crate) async fn screen(&self, query: ScreenQuery) -> Result<Screen, ProcessReason> {
        let Io::Pty(size) = self.record.io else { return Err(ProcessReason::NoTerminal) };
        let (files, head) = (self.log.files().clone(), self.head());
        let newest = head.next_seq - 1;
        let upto = query.seq.map_or(newest, |seq| seq.min(newest));
        // A terminal may have got another size since it last printed something.
        let now = query.seq.is_none().then(|| self.terminal_size()).flatten();
        let kept = self.drawn_screen.clone();
        let work = move |cancel: &CancelFlag| {
            let lock = || kept.lock().unwrap_or_else(PoisonError::into_inner);
            let usable = lock().take_if(|drawn| drawn.leads_to(upto));
            let mut drawn = usable.unwrap_or_else(|| DrawnScreen::new(size));
            let is_drawn = drawn.draw(&files, upto, cancel)?;
            let screen = is_drawn.then(|| drawn.screen(query, head, now));
            if drawn.is_small() {
                // If two have looked at once, either is as good.
                *lock() = Some(drawn);
            }
            Ok::<_, Errno>(screen)
        };
        let drawn = self.views.run(work).await;
        let drawn = drawn.map_err(|errno| ProcessReason::SpoolUnreadable { errno: errno.raw_os_error() })?;
        // It is cancelled only when nobody waits for it here.
        drawn.ok_or(ProcessReason::UnknownProcess)
    }

    fn terminal_size(&self) -> Option<TerminalSize> {
        let size = rustix::termios::tcgetwinsize(self.terminal()?).ok()?;
        (size.ws_row > 0 && size.ws_col > 0).then_some(TerminalSize { rows: size.ws_row, cols: size.ws_col })
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
            sandbox: self.record.sandbox.clone(),
            limits: self.record.limits,
            label: self.record.label.clone(),
        }
    }

    pub(crate) fn holds_placeholders(&self) -> bool {
        self.placeholders.are_held()
    }

    /// Its tree is gone.
    pub(crate) fn drop_placeholders(&self) {
        self.placeholders.remove();
    }

    /// The process lives on without us, and its placeholders with it.
    pub(crate) fn leave_placeholders(&self) {
        self.placeholders.leave();
    }

    pub(crate) fn has_proxy(&self) -> bool {
        let task = self.proxy_task.lock().unwrap_or_else(PoisonError::into_inner);
        task.as_ref().is_some_and(|task| !task.is_finished())
    }

    fn abort_proxy(&self) {
        if let Some(task) = &*self.proxy_task.lock().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }

    /// Its connections end with it.
    pub(crate) async fn end_proxy(&self) {
        let task = self.proxy_task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
    }

    /// Ends its tasks and waits for them. Afterwards nothing of the process is touched by us.
    pub(crate) async fn stop(&self) {
        self.end_proxy().await;
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
    }

    /// The same without waiting.
    pub(crate) fn abort(&self) {
        self.abort_proxy();
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            task.abort();
        }
    }
}

/// Removes the placeholders of a process once nobody of its tree is left. What has closed its output and lives on still
/// needs them, and nobody is told when it ends: it is looked for, less and less often. At the latest they go when the
/// process is forgotten.
async fn remove_placeholders(
    number: ProcessNumber,
    mut head: watch::Receiver<Head>,
    keeper: Arc<KeeperClient>,
    held: HeldPlaceholders,
) {
    if tree_is_gone(number, &mut head, &keeper).await {
        held.remove();
    }
}

/// Returns when nobody of a tree is left; `false` if nobody can tell any more.
async fn tree_is_gone(number: ProcessNumber, head: &mut watch::Receiver<Head>, keeper: &KeeperClient) -> bool {
    if head.wait_for(|head| head.closed).await.is_err() {
        return false;
    }
    keeper.tree_ended(number, LONGEST_PLACEHOLDER_CHECK).await.is_ok()
}

/// Serves the proxy of a process that has one. When its tree is gone, nobody needs the sockets any more, the keeper neither.
fn proxy_task(
    table: &ProcessTable,
    number: ProcessNumber,
    record: &ProcessRecord,
    descriptors: &mut Descriptors,
    mut head: watch::Receiver<Head>,
) -> Option<JoinHandle<()>> {
    let sockets: Vec<OwnedFd> = PROXY_ROLES.iter().map_while(|role| descriptors.take(*role)).collect();
    let serving = table.proxies.serve(&record.id, record.network_proxy.as_ref()?, sockets)?;
    let keeper = table.keeper.clone();
    Some(tokio::spawn(async move {
        let gone = tokio::select! {
            () = serving => true,
            gone = tree_is_gone(number, &mut head, &keeper) => gone,
        };
        if gone {
            for role in PROXY_ROLES {
                let _ = keeper.send(&KeeperRequest::CloseFd { number, role }).await;
            }
        }
    }))
}

impl Drop for Process {
    fn drop(&mut self) {
        self.abort_proxy();
        // It would wait for an answer of the keeper that nobody routes any more.
        if let Some(task) = &self.placeholder_task {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use exec_core::{Command, ProcessId};
    use exec_env::Environment;
    use exec_env::process::WaitCondition;
    use exec_env::view::Grep;

    use super::*;
    use crate::{LocalEnvironment, LocalOptions};

    /// What its caller no longer waits for sets the flag; see `files::blocking`.
    #[tokio::test]
    async fn a_view_or_a_screen_that_nobody_waits_for_is_given_up() {
        let environment = LocalEnvironment::open(LocalOptions::default()).await.expect("a keeper");
        let id = ProcessId::new("p").expect("short");
        let mut command = Command::new(["/usr/bin/seq", "1", "100000"], "/");
        command.io = Io::Pty(TerminalSize::default());
        environment.processes().start(&id, command).await.expect("it starts");
        environment.processes().wait(&id, WaitCondition::Closed, None).await.expect("it ends");
        let process = environment.processes.table.find(&id).unwrap_or_else(|_| panic!("it is there"));
        let (files, head, cancel) = (process.log().files(), process.head(), CancelFlag::default());
        let query = ViewQuery { grep: Some(Grep::new("77")), ..ViewQuery::default() };
        let view = || view::view(files, head, &[Stream::Pty], &query, &cancel);
        assert!(view().is_ok_and(|view| view.is_some_and(|view| view.matches > 1000)));
        let mut drawn = DrawnScreen::new(TerminalSize::default());
        assert_eq!(drawn.draw(files, 1, &cancel), Ok(true));
        cancel.set();
        assert_eq!(view(), Ok(None));
        assert_eq!(drawn.draw(files, head.next_seq - 1, &cancel), Ok(false));
        environment.end().await;
    }
}
