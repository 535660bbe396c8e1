//! The processes of this machine: the verbs of the waist over a table of processes.
//!
//! An id is reserved before the keeper is asked, so that two starts of one id cannot both succeed, and freed at once if
//! the start fails. Each process has one task that moves its output and one that writes its stdin; the table owns both.

mod process;
mod start;
mod table;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use exec_core::limits::{KEEPER_EXIT_TIMEOUT, TREE_EXIT_TIMEOUT, WRITE_BYTES};
use exec_core::{Command, Page, ProcessId, Seq, Signal, TerminalSize, WriteId};
use exec_env::process::{
    LogFollower, ProcessError, ProcessInfo, ProcessReason, ProcessVerb, Processes, ReadQuery, Signalled, Started,
    Terminated, Unreachable, WaitCondition, Waited, Written,
};
use exec_env::screen::{Screen, ScreenQuery};
use exec_env::view::{View, ViewQuery};
use exec_env::{BoxFuture, NetworkDecider};
use exec_keeper::protocol::{KeeperEvent, KeeperRequest, ProcessRecord, SignalKey, start_under_way};
use exec_keeper::spool::directory::SpoolDirectory;
use futures_util::future::join_all;
use rustix::io::Errno;
use rustix::termios::Winsize;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::descriptors::DescriptorBudget;
use crate::files::blocking::{BlockingPool, PoolSize};
use crate::keeper_client::{HandedProcess, KeeperClient, unanswered};
use crate::output_mover::MoverNotification;
use crate::proxy::ProxyHost;
use crate::proxy::dial::DialledPorts;
use crate::sandbox::SandboxPlanner;
use crate::socket_cgroup::cgroup_of_socket;
use crate::wait::{self, PortLooks, SearchResources};
pub(crate) use process::Process;
use table::ProcessTable;

/// Descriptors that we hold of a process: its pidfd, stdin and two streams (or a terminal with its relay), three files of
/// the log, and the journal of its stdin.
const PROCESS_DESCRIPTORS: usize = 8;

/// Views of logs. Two of one process run at once, so that whoever looks at one does not keep the others waiting; a view that
/// takes long (an expression over a full spool) makes room for others after a second.
const VIEWS: PoolSize = PoolSize { per_caller: 2, at_once: 4, threads: 64 };

/// How long the keeper may take to tell whether a connection comes from a sandbox.
const SANDBOX_PATIENCE: Duration = Duration::from_secs(5);

/// The processes of this machine.
pub(crate) struct LocalProcesses {
    table: Arc<ProcessTable>,
    reply_router: JoinHandle<()>,
    cap_enforcer: JoinHandle<()>,
}

/// What holds for all processes.
pub(crate) struct ProcessSettings {
    /// How much output one may hold, unless its command says otherwise.
    pub(crate) spool_bytes: u64,
    /// The account's login shell, for the environment of children on a terminal.
    pub(crate) shell: OsString,
    /// The keeper outlives us, so it must hold every file that the next owner will need.
    pub(crate) durable: bool,
}

impl LocalProcesses {
    pub(crate) fn new(
        keeper: Arc<KeeperClient>,
        spool_directory: Arc<SpoolDirectory>,
        settings: ProcessSettings,
        planner: SandboxPlanner,
        descriptors: DescriptorBudget,
    ) -> Self {
        let table = Arc::new(ProcessTable {
            keeper,
            spool_directory,
            settings,
            planner: Arc::new(planner),
            proxies: Arc::new(ProxyHost::new(descriptors.clone())),
            descriptors,
            views: BlockingPool::new(VIEWS),
            searches: SearchResources::new(),
            port_turns: PortLooks::turns(),
            flooding_movers: Arc::default(),
            over_cap: Arc::default(),
            has_had_sandboxes: AtomicBool::default(),
            state: Mutex::default(),
        });
        let weak = Arc::downgrade(&table);
        let on_exit = move |number, exit| {
            if let Some(table) = weak.upgrade() {
                table.on_exit(number, exit);
            }
        };
        let reply_router = tokio::spawn(table.keeper.clone().route_replies(on_exit));
        let cap_enforcer = tokio::spawn(drop_from_fullest(Arc::downgrade(&table), table.over_cap.clone()));
        Self { table, reply_router, cap_enforcer }
    }

    /// Takes over the processes of an earlier owner; their tasks run on `runtimes` in turn, or here if there are none.
    pub(crate) fn resume(&self, found: Vec<(ProcessRecord, HandedProcess)>, runtimes: &[Handle]) {
        let is_sandboxed = |(record, _): &(ProcessRecord, HandedProcess)| record.sandbox.is_some();
        self.table.has_had_sandboxes.fetch_or(found.iter().any(is_sandboxed), Ordering::Relaxed);
        for (at, (record, handed)) in found.into_iter().enumerate() {
            let _entered = runtimes.get(at % runtimes.len().max(1)).map(Handle::enter);
            match Process::resume(&self.table, record, handed) {
                Ok(process) => self.table.insert(&process),
                Err((id, errno)) => tracing::error!(%id, %errno, "a process of an earlier owner cannot be read"),
            }
        }
    }

    pub(crate) fn dialled_ports(&self) -> Arc<DialledPorts> {
        self.table.proxies.dialled()
    }

    pub(crate) async fn is_from_a_sandbox(&self, peer: SocketAddr, own: SocketAddr) -> bool {
        if self.table.proxies.has_dialled(peer, own) {
            return true;
        }
        if !self.table.has_had_sandboxes.load(Ordering::Relaxed) {
            return false;
        }
        match self.find_sandbox(peer, own).await {
            Ok(found) => found,
            Err(why) => {
                tracing::warn!("cannot tell whether a connection comes from a sandbox: {why}");
                true
            }
        }
    }

    /// Asks the kernel for the cgroup of a connection, and the keeper for what it has put there: that knows of a process before
    /// it runs, which may be sooner than we do.
    async fn find_sandbox(&self, peer: SocketAddr, own: SocketAddr) -> Result<bool, String> {
        let cgroup_of = |one, other| cgroup_of_socket(one, other).map_err(|errno| errno.to_string());
        let Some(cgroup) = cgroup_of(peer, own)? else {
            // A kernel that tells of no TCP socket says the same as one on which there is no such socket. Ours is there.
            return match cgroup_of(own, peer)? {
                Some(_) => Ok(false),
                None => Err("the kernel does not tell of TCP connections".to_owned()),
            };
        };
        let asked = self.table.keeper.request(KeeperRequest::FindSandbox { cgroup });
        let no_answer = || "the keeper does not answer".to_owned();
        match tokio::time::timeout(SANDBOX_PATIENCE, asked).await.map_err(|_| no_answer())? {
            Ok((KeeperEvent::SandboxFound { found }, _)) => Ok(found),
            Ok(_) | Err(_) => Err(no_answer()),
        }
    }

    pub(crate) async fn end(&self) {
        let keeper = &self.table.keeper;
        // Before the keeper, so that each is known to have been ended, and not only that nobody knows how it did.
        let mut running: Vec<Arc<Process>> = self.table.lock().by_number.values().cloned().collect();
        running.retain(|process| process.head().exit.is_none());
        let ends = running.iter().map(|process| async {
            let _ = self.terminate(process.id(), Duration::ZERO).await;
            let _ = process.log().watch().wait_for(|head| head.exit.is_some()).await;
        });
        let _ = tokio::time::timeout(TREE_EXIT_TIMEOUT, join_all(ends)).await;
        let ending = async {
            let _ = keeper.send(&KeeperRequest::Shutdown).await;
            // The keeper closes the connection when every process tree is gone.
            let _ = keeper.gone().wait_for(|gone| *gone).await;
            keeper.join().await;
        };
        if tokio::time::timeout(KEEPER_EXIT_TIMEOUT, ending).await.is_err() {
            // It ends when it runs again: it was told to, or finds that we are gone.
            tracing::error!("the keeper does not answer, so nobody knows whether every process has ended");
        }
    }

    /// The keeper remembers the keys, because it outlives us.
    async fn send_signal(
        &self,
        id: &ProcessId,
        signal: Signal,
        key: Option<SignalKey>,
    ) -> Result<Signalled, ProcessReason> {
        let number = self.table.find(id)?.number();
        match self.table.keeper.request(KeeperRequest::Signal { number, signal: signal.number(), key }).await? {
            (KeeperEvent::Signalled { errno: 0, .. }, _) => Ok(Signalled::Sent),
            (KeeperEvent::Signalled { errno, .. }, _) if errno == Errno::SRCH.raw_os_error() => {
                Ok(Signalled::AlreadyExited)
            }
            (KeeperEvent::Signalled { errno, .. }, _) => Err(ProcessReason::SignalRefused { errno }),
            (other, _) => Err(unanswered(&other).into()),
        }
    }

    pub(crate) async fn hand_over(&self) {
        let processes: Vec<Arc<Process>> = self.table.lock().by_number.drain().map(|(_, process)| process).collect();
        for process in &processes {
            process.stop().await;
            process.leave_placeholders();
        }
        // Somebody may still hold this environment. The connection is closed now, because the keeper takes no other
        // owner while it is open.
        self.table.keeper.disconnect();
    }
}

impl Drop for LocalProcesses {
    fn drop(&mut self) {
        self.reply_router.abort();
        self.cap_enforcer.abort();
        for process in self.table.lock().by_number.values() {
            process.abort();
            if self.table.settings.durable {
                process.leave_placeholders();
            }
        }
    }
}

impl Processes for LocalProcesses {
    fn start<'a>(&'a self, id: &'a ProcessId, command: Command) -> BoxFuture<'a, Result<Started, ProcessError>> {
        ProcessVerb::Start.perform(id, self.table.start(id, command))
    }

    fn read<'a>(&'a self, id: &'a ProcessId, query: ReadQuery) -> BoxFuture<'a, Result<Page, ProcessError>> {
        ProcessVerb::Read.perform(id, async move { self.table.find(id)?.log().read(query).await })
    }

    fn follow<'a>(
        &'a self,
        id: &'a ProcessId,
        after: Seq,
    ) -> BoxFuture<'a, Result<Box<dyn LogFollower>, ProcessError>> {
        ProcessVerb::Follow.perform(id, async move {
            let follower: Box<dyn LogFollower> = Box::new(self.table.find(id)?.log().follow(after));
            Ok(follower)
        })
    }

    fn view<'a>(&'a self, id: &'a ProcessId, query: ViewQuery) -> BoxFuture<'a, Result<View, ProcessError>> {
        ProcessVerb::View.perform(id, async move { self.table.find(id)?.view(query).await })
    }

    fn screen<'a>(&'a self, id: &'a ProcessId, query: ScreenQuery) -> BoxFuture<'a, Result<Screen, ProcessError>> {
        ProcessVerb::Screen.perform(id, async move { self.table.find(id)?.screen(query).await })
    }

    fn write<'a>(
        &'a self,
        id: &'a ProcessId,
        write_id: WriteId,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<Written, ProcessError>> {
        ProcessVerb::Write.perform(id, async move {
            if bytes.len() > WRITE_BYTES {
                return Err(ProcessReason::WriteTooLarge { found_bytes: bytes.len(), limit_bytes: WRITE_BYTES });
            }
            Ok(self.table.find(id)?.stdin().write(write_id, bytes).await)
        })
    }

    fn close_stdin<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<Written, ProcessError>> {
        ProcessVerb::CloseStdin.perform(id, async move { Ok(self.table.find(id)?.stdin().close().await) })
    }

    fn resize<'a>(&'a self, id: &'a ProcessId, size: TerminalSize) -> BoxFuture<'a, Result<(), ProcessError>> {
        ProcessVerb::Resize.perform(id, async move {
            if size.rows == 0 || size.cols == 0 {
                return Err(ProcessReason::NoCells { size });
            }
            let process = self.table.find(id)?;
            let terminal = process.terminal().ok_or(ProcessReason::NoTerminal)?;
            let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
            // Fails only when the terminal is gone, and then nobody needs its size.
            let _ = rustix::termios::tcsetwinsize(terminal, size);
            Ok(())
        })
    }

    fn signal<'a>(&'a self, id: &'a ProcessId, signal: Signal) -> BoxFuture<'a, Result<Signalled, ProcessError>> {
        ProcessVerb::Signal.perform(id, self.send_signal(id, signal, None))
    }

    fn signal_once<'a>(
        &'a self,
        id: &'a ProcessId,
        signal: Signal,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Signalled, ProcessError>> {
        let hash = blake3::hash(key.as_bytes());
        let (hash, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
        ProcessVerb::Signal.perform(id, self.send_signal(id, signal, Some(*hash)))
    }

    fn terminate<'a>(&'a self, id: &'a ProcessId, grace: Duration) -> BoxFuture<'a, Result<Terminated, ProcessError>> {
        ProcessVerb::Terminate.perform(id, async move {
            let number = match self.table.cancel_start(id) {
                // The program may be on a mount that does not answer, and then the start ends only if the keeper ends it.
                Some(Some(request_id)) => {
                    let number = start_under_way(request_id);
                    return match self.table.keeper.request(KeeperRequest::Terminate { number, grace }).await? {
                        (KeeperEvent::Terminated { ended, left, .. }, _) => {
                            Ok(Terminated { was_running: true, ended, left })
                        }
                        (other, _) => Err(unanswered(&other).into()),
                    };
                }
                Some(None) => return Ok(Terminated { was_running: true, ended: 0, left: 0 }),
                None => self.table.find(id)?.number(),
            };
            match self.table.keeper.request(KeeperRequest::Terminate { number, grace }).await? {
                (KeeperEvent::Terminated { was_running, ended, left, .. }, _) => {
                    Ok(Terminated { was_running, ended, left })
                }
                (other, _) => Err(unanswered(&other).into()),
            }
        })
    }

    fn wait<'a>(
        &'a self,
        id: &'a ProcessId,
        until: WaitCondition,
        deadline: Option<Duration>,
    ) -> BoxFuture<'a, Result<Waited, ProcessError>> {
        ProcessVerb::Wait.perform(id, async move {
            let process = self.table.find(id)?;
            let waiting = wait::until(&self.table.keeper, &process, until);
            match deadline {
                None => waiting.await,
                Some(deadline) => tokio::time::timeout(deadline, waiting).await.unwrap_or(Ok(Waited::DeadlinePassed)),
            }
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, Unreachable>> {
        Box::pin(async move {
            let mut processes: Vec<_> = self.table.lock().by_number.values().cloned().collect();
            processes.sort_by_key(|process| process.number());
            Ok(processes.iter().map(|process| process.info()).collect())
        })
    }

    fn forget<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<(), ProcessError>> {
        ProcessVerb::Forget.perform(id, async move {
            let process = self.table.find(id)?;
            // What has closed its output and lives on still needs its placeholders and its proxy.
            if !process.head().closed || process.holds_placeholders() || process.has_proxy() {
                let request = KeeperRequest::Terminate { number: process.number(), grace: Duration::ZERO };
                let _ = self.table.keeper.request(request).await;
            }
            {
                let mut state = self.table.lock();
                state.by_id.remove(id);
                state.by_number.remove(&process.number());
            }
            process.drop_placeholders();
            process.end_proxy().await;
            self.table.keeper.send(&KeeperRequest::Forget { number: process.number() }).await?;
            Ok(())
        })
    }

    fn set_network_decider(&self, decider: Arc<dyn NetworkDecider>) {
        self.table.proxies.set_decider(decider);
    }
}

/// Whenever all logs together hold too much, the fullest log that may drop output drops the excess.
async fn drop_from_fullest(table: Weak<ProcessTable>, over_cap: Arc<Notify>) {
    loop {
        over_cap.notified().await;
        let Some(table) = table.upgrade() else { return };
        let excess = table.spool_directory.excess_bytes();
        let fullest = {
            let state = table.lock();
            state.by_number.values().max_by_key(|process| process.droppable_bytes()).cloned()
        };
        if let (1.., Some(fullest)) = (excess, fullest) {
            fullest.notify(MoverNotification::Shed(excess));
        }
    }
}
