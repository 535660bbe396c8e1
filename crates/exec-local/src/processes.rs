//! The processes of this machine: the verbs of the waist over a table of processes.
//!
//! An id is reserved before the keeper is asked, so that two starts of one id cannot both succeed, and freed at once if
//! the start fails. Each process has one task that moves its output and one that writes its stdin; the table owns both.

mod process;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use exec_core::flow::Quota;
use exec_core::limits::{KEEPER_EXIT_TIMEOUT, WRITE_BYTES};
use exec_core::sandbox::{Confinement, FileCeiling};
use exec_core::{Command, Exit, Io, Page, ProcessId, RunAs, SandboxPolicy, Seq, Signal, TerminalSize, WriteId};
use exec_env::process::{
    LogFollower, ProcessError, ProcessInfo, ProcessReason, ProcessVerb, Processes, ReadQuery, Signalled, SpawnFailure,
    SpawnStep, Started, Terminated, Unreachable, WaitCondition, Waited, Written,
};
use exec_env::screen::{Screen, ScreenQuery};
use exec_env::view::{View, ViewQuery};
use exec_env::{BoxFuture, NetworkDecider};
use exec_keeper::passed_sockets;
use exec_keeper::protocol::{
    KeeperEvent, KeeperRequest, LaunchRequest, ProcessNumber, ProcessRecord, SignalKey, start_under_way,
};
use exec_keeper::spool::directory::SpoolDirectory;
use exec_sandbox::PolicyBounds;
use rustix::io::Errno;
use rustix::termios::Winsize;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::accounts::{self, Account};
use crate::descriptors::{DescriptorBudget, DescriptorPermit, DescriptorUse};
use crate::files::blocking::{BlockingPool, PoolSize};
use crate::keeper_client::{Descriptors, HandedProcess, KeeperClient, keeper_gone, unanswered};
use crate::output_mover::MoverNotification;
use crate::proxy::dial::DialledPorts;
use crate::proxy::{ProxyHost, ProxySockets};
use crate::sandbox::{PlannedSandbox, SandboxPlanner};
use crate::socket_cgroup::cgroup_of_socket;
use crate::wait;
pub(crate) use process::Process;

/// Descriptors that we hold of a process: its pidfd, stdin and two streams (or a terminal with its relay), three files of
/// the log, and the journal of its stdin.
const PROCESS_DESCRIPTORS: usize = 8;

/// Views of logs. Two of one process run at once, so that whoever looks at one does not keep the others waiting; a view that
/// takes long (an expression over a full spool) makes room for others after a second.
const VIEWS: PoolSize = PoolSize { per_caller: 2, at_once: 4, threads: 64 };

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

/// What the verbs and the tasks of the processes share.
struct ProcessTable {
    keeper: Arc<KeeperClient>,
    spool_directory: Arc<SpoolDirectory>,
    settings: ProcessSettings,
    planner: Arc<SandboxPlanner>,
    descriptors: DescriptorBudget,
    proxies: Arc<ProxyHost>,
    views: BlockingPool,
    flooding_movers: Arc<AtomicUsize>,
    over_cap: Arc<Notify>,
    state: Mutex<TableState>,
}

#[derive(Default)]
struct TableState {
    by_id: HashMap<ProcessId, ProcessSlot>,
    by_number: HashMap<ProcessNumber, Arc<Process>>,
    /// Exits that came before the reply to the start of their process was handled.
    early_exits: HashMap<ProcessNumber, Exit>,
}

enum ProcessSlot {
    /// Being started; `cancelled` if somebody terminated it meanwhile. `request_id` is that of the start once the keeper
    /// is asked.
    Reserved {
        cancelled: bool,
        request_id: Option<u64>,
    },
    Live(Arc<Process>),
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
            flooding_movers: Arc::default(),
            over_cap: Arc::default(),
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

    pub(crate) fn is_from_a_sandbox(&self, peer: SocketAddr, own: SocketAddr) -> bool {
        if self.table.proxies.has_dialled(peer, own) {
            return true;
        }
        let sandboxed: Vec<u64> =
            self.table.lock().by_number.values().filter_map(|process| process.sandbox_cgroup()).collect();
        !sandboxed.is_empty()
            && match cgroup_of_socket(peer, own) {
                Ok(cgroup) => cgroup.is_some_and(|cgroup| sandboxed.contains(&cgroup)),
                Err(errno) => {
                    tracing::warn!(%errno, "cannot tell whether a connection comes from a sandbox");
                    true
                }
            }
    }

    pub(crate) async fn end(&self) {
        let keeper = &self.table.keeper;
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

impl ProcessTable {
    fn lock(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &ProcessId) -> Result<Arc<Process>, ProcessReason> {
        match self.lock().by_id.get(id) {
            Some(ProcessSlot::Live(process)) => Ok(process.clone()),
            _ => Err(ProcessReason::UnknownProcess),
        }
    }

    /// `None` if it is not being started; otherwise the id of the request to start it, if the keeper was asked.
    fn cancel_start(&self, id: &ProcessId) -> Option<Option<u64>> {
        match self.lock().by_id.get_mut(id) {
            Some(ProcessSlot::Reserved { cancelled, request_id }) => {
                *cancelled = true;
                Some(*request_id)
            }
            _ => None,
        }
    }

    fn insert(&self, process: &Arc<Process>) {
        let mut state = self.lock();
        state.by_id.insert(process.id().clone(), ProcessSlot::Live(process.clone()));
        state.by_number.insert(process.number(), process.clone());
        if let Some(exit) = state.early_exits.remove(&process.number()) {
            process.notify(MoverNotification::Exited(exit));
        }
    }

    fn on_exit(&self, number: ProcessNumber, exit: Exit) {
        let mut state = self.lock();
        match state.by_number.get(&number) {
            Some(process) => process.notify(MoverNotification::Exited(exit)),
            None => drop(state.early_exits.insert(number, exit)),
        }
    }

    async fn start(self: &Arc<Self>, id: &ProcessId, command: Command) -> Result<Started, ProcessReason> {
        command.check()?;
        let reservation = Reservation::new(self, id)?;
        // What goes through its proxy is counted for itself.
        let permit =
            self.descriptors.take(DescriptorUse::Processes, PROCESS_DESCRIPTORS + ProxySockets::needed(&command));
        let permit = permit.map_err(|_| too_many_open_files(&command.argv))?;
        let sandbox = match (&command.sandbox, command.ceilings.first()) {
            (Some(policy), _) => {
                Some(self.plan_sandbox(policy.clone(), command.ceilings.clone(), command.cwd.clone()).await?)
            }
            (None, Some(ceiling)) => {
                let why = "a process needs a sandbox here: ask for one that stays within the roots".to_owned();
                return Err(ProcessReason::Forbidden { rule: ceiling.rule.clone(), why });
            }
            (None, None) => None,
        };
        let account = match command.run_as.clone() {
            Some(run_as) => Some(find_account(run_as).await?),
            None => None,
        };
        if let Some(planned) = &sandbox
            && account.as_ref().is_some_and(|account| account.changes_user())
            && let Some(why) = why_not_as_another_user(&planned.confinement)
        {
            return Err(ProcessReason::UserUnavailable { why: why.to_owned() });
        }
        let sockets = ProxySockets::new(&command).map_err(|error| no_proxy_socket(&command.argv, &error))?;
        let mut launch = Box::new(launch_request(id, command, &self.settings, &sockets, account));
        let mut sandbox = sandbox;
        if let Some(planned) = &mut sandbox {
            sockets.put_in(&mut planned.confinement);
            launch.record.sandbox = Some(planned.report.clone());
            launch.record.placeholders = planned.placeholders.paths().iter().map(OsString::from).collect();
            launch.confinement = Some(planned.confinement.clone());
        }
        // The start goes on if the caller gives up, because the keeper may have started the child already, and somebody
        // must take it over.
        let table = self.clone();
        let started =
            tokio::spawn(async move { table.start_with_keeper(reservation, permit, launch, sandbox, sockets).await });
        started.await.unwrap_or_else(|_| Err(keeper_gone().into()))
    }

    /// On a thread that may wait, because a policy's files may be slow to answer.
    async fn plan_sandbox(
        &self,
        policy: SandboxPolicy,
        ceilings: Vec<FileCeiling>,
        cwd: PathBuf,
    ) -> Result<PlannedSandbox, ProcessReason> {
        let planner = self.planner.clone();
        let planned = tokio::task::spawn_blocking(move || {
            planner.plan(&policy, PolicyBounds { ceilings: &ceilings, cwd: Some(&cwd) })
        })
        .await;
        planned.unwrap_or_else(|_| Err(keeper_gone().into()))
    }

    async fn start_with_keeper(
        self: Arc<Self>,
        reservation: Reservation,
        permit: DescriptorPermit,
        launch: Box<LaunchRequest>,
        mut sandbox: Option<PlannedSandbox>,
        sockets: ProxySockets,
    ) -> Result<Started, ProcessReason> {
        let mut record = launch.record.clone();
        let mut with = sandbox.as_mut().map_or_else(Vec::new, |planned| std::mem::take(&mut planned.descriptors));
        let socket_count = sockets.count();
        with.extend(sockets.into_descriptors());
        let asked = self.keeper.request_with(KeeperRequest::Start { launch }, &with, |id| reservation.asked(id));
        let (event, descriptors) = asked.await?;
        drop(with);
        let handed = match event {
            KeeperEvent::Started { number, roles, .. }
                if roles.len() > descriptors.len()
                    || roles.iter().filter(|role| role.is_of_proxy()).count() < socket_count =>
            {
                // It runs, but we could not take its descriptors. It ends, and nothing else does.
                let _ = self.keeper.send(&KeeperRequest::Forget { number }).await;
                return Err(too_many_open_files(&record.argv));
            }
            KeeperEvent::Started { number, pid, roles, limits } => {
                record.limits = limits;
                HandedProcess { number, pid, exit: None, descriptors: Descriptors::new(roles, descriptors) }
            }
            KeeperEvent::StartFailed { .. } if reservation.cancelled() => return Err(ProcessReason::StartCancelled),
            KeeperEvent::StartFailed { step: SpawnStep::Sandbox, errno, subject } => {
                let why = format!("{}: {}", subject.display(), std::io::Error::from_raw_os_error(errno));
                return Err(ProcessReason::SandboxUnavailable { why });
            }
            KeeperEvent::StartFailed { step: SpawnStep::Limits, subject, .. } => {
                return Err(ProcessReason::LimitUnavailable { why: subject.to_string_lossy().into_owned() });
            }
            KeeperEvent::StartFailed { step: SpawnStep::User, errno, .. } => {
                let why = format!("the kernel refuses it: {}", std::io::Error::from_raw_os_error(errno));
                return Err(ProcessReason::UserUnavailable { why });
            }
            KeeperEvent::StartFailed { step, errno, subject, .. } => {
                return Err(ProcessReason::SpawnFailed(SpawnFailure { step, errno, subject: subject.into() }));
            }
            other => return Err(unanswered(&other).into()),
        };
        let (number, pid) = (handed.number, handed.pid);
        if reservation.cancelled() {
            let _ = self.keeper.send(&KeeperRequest::Forget { number }).await;
            return Err(ProcessReason::StartCancelled);
        }
        let (report, limits) = (record.sandbox.clone(), record.limits);
        self.insert(&Process::new(&self, record, handed, permit, sandbox.map(|planned| planned.placeholders)));
        reservation.keep();
        Ok(Started { pid, sandbox: report, limits })
    }
}

/// An id that is reserved for a start; freed when dropped unless it was kept.
struct Reservation {
    table: Arc<ProcessTable>,
    id: ProcessId,
    kept: bool,
}

impl Reservation {
    fn new(table: &Arc<ProcessTable>, id: &ProcessId) -> Result<Self, ProcessReason> {
        let mut state = table.lock();
        if state.by_id.contains_key(id) {
            return Err(ProcessReason::IdInUse);
        }
        state.by_id.insert(id.clone(), ProcessSlot::Reserved { cancelled: false, request_id: None });
        drop(state);
        Ok(Self { table: table.clone(), id: id.clone(), kept: false })
    }

    fn asked(&self, id: u64) {
        if let Some(ProcessSlot::Reserved { request_id, .. }) = self.table.lock().by_id.get_mut(&self.id) {
            *request_id = Some(id);
        }
    }

    fn cancelled(&self) -> bool {
        matches!(self.table.lock().by_id.get(&self.id), Some(ProcessSlot::Reserved { cancelled: true, .. }))
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.kept {
            self.table.lock().by_id.remove(&self.id);
        }
    }
}

fn no_proxy_socket(argv: &[OsString], error: &std::io::Error) -> ProcessReason {
    let subject = argv.first().cloned().unwrap_or_default().into();
    let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
    ProcessReason::SpawnFailed(SpawnFailure { step: SpawnStep::Pipe, errno, subject })
}

fn too_many_open_files(argv: &[OsString]) -> ProcessReason {
    let subject = argv.first().cloned().unwrap_or_default().into();
    let (step, errno) = (SpawnStep::Pipe, Errno::MFILE.raw_os_error());
    ProcessReason::SpawnFailed(SpawnFailure { step, errno, subject })
}

/// On a thread that may wait, because it reads files.
async fn find_account(run_as: RunAs) -> Result<Account, ProcessReason> {
    let found = tokio::task::spawn_blocking(move || accounts::find(&run_as.user)).await;
    found.unwrap_or_else(|_| Err(keeper_gone().to_string())).map_err(|why| ProcessReason::UserUnavailable { why })
}

/// What the keeper is asked to run: the command with its environment resolved and its quota known.
/// Why a process in this sandbox cannot have the rights of another user than ours.
fn why_not_as_another_user(confinement: &Confinement) -> Option<&'static str> {
    if confinement.user_namespace {
        return Some("its sandbox needs a user namespace here, in which there are no other users");
    }
    // The supervisor would change files with our rights and not with those of the user.
    let supervised = confinement.supervision.is_some();
    supervised.then_some("its sandbox needs a supervisor here, which changes files as the user of the server")
}

/// Our own, without those by which a service manager speaks to us alone.
fn inherited_variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| !passed_sockets::VARIABLES.iter().any(|ours| name == ours))
}

fn launch_request(
    id: &ProcessId,
    command: Command,
    settings: &ProcessSettings,
    sockets: &ProxySockets,
    account: Option<Account>,
) -> LaunchRequest {
    let mut variables = command.environ.resolve(inherited_variables());
    if let Some(account) = &account {
        // Those that were inherited tell of our own user.
        let set = command.environ.policy.as_ref().map(|policy| &policy.set);
        let is_set = |name: &OsString| {
            command.environ.vars.contains_key(name) || set.is_some_and(|variables| variables.contains_key(name))
        };
        variables.extend(account.variables().into_iter().filter(|(name, _)| !is_set(name)));
    }
    // Whatever the request says of these: the process must find its proxy.
    variables.extend(sockets.variables().into_iter().map(|(name, value)| (name.into(), value.into())));
    if matches!(command.io, Io::Pty(_)) {
        // The only addition to what was requested, as in Codex's server: programs on a terminal (editors, pagers,
        // `script`) start the shell that this variable names.
        variables.entry("SHELL".into()).or_insert_with(|| settings.shell.clone());
    }
    let path = variables.get(OsStr::new("PATH")).cloned();
    let environ = variables.into_iter().map(|(name, value)| variable(name, &value)).collect();
    LaunchRequest {
        record: ProcessRecord {
            id: id.clone(),
            argv: command.argv,
            cwd: command.cwd,
            io: command.io,
            quota: Quota { cap_bytes: command.spool_bytes.unwrap_or(settings.spool_bytes), overflow: command.overflow },
            started: SystemTime::now().max(SystemTime::UNIX_EPOCH),
            sandbox: None,
            limits: None,
            placeholders: Vec::new(),
            network_proxy: command.network_proxy,
            label: command.label,
        },
        arg0: command.arg0,
        environ,
        path,
        time_limit: command.time_limit,
        limits: command.limits,
        identity: account.and_then(Account::into_identity),
        confinement: None,
        proxy_sockets: sockets.given(),
    }
}

fn variable(mut name: OsString, value: &OsStr) -> OsString {
    name.push("=");
    name.push(value);
    name
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
