//! The keeper's loop: wait for one event, pass it to the child or to the owner it concerns, send what follows from it.
//!
//! ```text
//!   owned ── the owner's socket closes ──► orphaned (we move the output) ── an owner connects ──► owned
//!     └── Shutdown, SIGTERM, or OwnerExitPolicy::KillProcesses ──► done ◄─ orphan_ttl passes, ──┘
//!                                                                       or nobody can find us
//! ```
//!
//! The loop blocks only in `epoll_wait`. What may take long, from clone to exec, is done by threads of their own, so that a
//! program on a mount that does not answer holds up nobody else. When the loop is done, it kills every tree and waits until
//! they are gone.

mod child;
mod owner;
mod pending_start;
mod spawners;
mod starts;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec_core::limits::TREE_EXIT_TIMEOUT;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::channel::{Channel, NO_REQUEST, Received};
use crate::protocol::{KeeperEvent, KeeperRequest, Message, ProcessNumber, VERSION, request_id_of_start};
use crate::spool::PumpOutcome;
use crate::spool::directory::SpoolDirectory;
use crate::stderr_log::log;
use crate::tree::ProcessTrees;
use child::{Answer, Child};
use owner::{OwnerConnection, PastOwner};
use pending_start::PendingStart;
use spawners::{SLOW_SPAWN, Spawners};

/// Events taken from the kernel at once.
const EVENTS: usize = 64;
/// How long we poll without sleeping after a process has exited. Its owner often starts the next one at once, and to be
/// woken on another processor takes some 50 microseconds in a virtual machine, and the answer as much again.
const BUSY_POLL: Duration = Duration::from_micros(150);
/// Rounds in a row in which events may put off the deferred work. Beyond, requests wait for it, because children that
/// were forgotten hold descriptors until it is done.
const BUSY_ROUNDS: u32 = 64;

/// How long to wait between two looks whether an owner that closed its connection is in the middle of a move. A move takes
/// less, so there is hardly ever a second look.
const PAST_OWNER_CHECK: Duration = Duration::from_millis(1);

/// How often a keeper without an owner looks whether another could find it. A look is one system call.
const SOCKET_CHECK: Duration = Duration::from_secs(2);

/// What becomes of the processes when the owner goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerExitPolicy {
    /// They are killed, and the keeper ends.
    KillProcesses,
    /// They go on and wait for another owner. If none comes within `orphan_ttl`, or if none can come any more because the
    /// socket's file was removed, they are killed and the keeper ends.
    KeepProcesses { orphan_ttl: Duration },
}

#[derive(Debug)]
pub struct KeeperConfig {
    /// The first owner, if it is connected already.
    pub owner: Option<Channel>,
    /// Where later owners connect.
    pub listener: Option<OwnedFd>,
    pub spool_directory: Arc<SpoolDirectory>,
    pub on_owner_exit: OwnerExitPolicy,
    /// Whether the keeper is a process of its own. Then orphans of its trees become its children, and it reaps them.
    pub own_process: bool,
    /// Whether to use cgroups where we may create them.
    pub cgroups: bool,
}

/// Which descriptor of the epoll set is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EpollToken {
    Owner,
    Listener,
    Signals,
    Spawners,
    LeaderExit(ProcessNumber),
    Stream(ProcessNumber, usize),
}

impl EpollToken {
    fn encode(self) -> u64 {
        match self {
            EpollToken::Owner => 0,
            EpollToken::Listener => 1,
            EpollToken::Signals => 2,
            EpollToken::LeaderExit(number) => number << 3 | 3,
            EpollToken::Spawners => 7,
            EpollToken::Stream(number, slot) => number << 3 | (4 + slot as u64),
        }
    }

    fn decode(bits: u64) -> Self {
        match bits & 7 {
            0 => EpollToken::Owner,
            1 => EpollToken::Listener,
            2 => EpollToken::Signals,
            3 => EpollToken::LeaderExit(bits >> 3),
            7 => EpollToken::Spawners,
            slot => EpollToken::Stream(bits >> 3, (slot - 4) as usize),
        }
    }
}

/// Runs a keeper. Returns when every tree is gone, or some were given up.
pub fn run(config: KeeperConfig) -> Result<(), Errno> {
    crate::sys::own_process::run_in_short_slices();
    let mut keeper = Keeper::new(config)?;
    while !keeper.done {
        keeper.run_once()?;
    }
    keeper.shut_down();
    Ok(())
}

struct Keeper {
    epoll: OwnedFd,
    owner: Option<OwnerConnection>,
    /// Connections of owners so far.
    epoch: u64,
    /// Set as long as we do not know that the last owner moves nothing any more. Until then nobody else does.
    past_owner: Option<PastOwner>,
    /// Set while there is no owner.
    orphaned_since: Option<Instant>,
    listener: Option<OwnedFd>,
    /// The file by which later owners find the listener, if there is one. It may be renamed, but not removed.
    socket_file: Option<OwnedFd>,
    /// When we look next whether it is there.
    socket_check_at: Instant,
    signals: Option<OwnedFd>,
    spool_directory: Arc<SpoolDirectory>,
    on_owner_exit: OwnerExitPolicy,
    trees: ProcessTrees,
    spawners: Spawners,
    /// Starts that a thread works on, or that wait for one.
    starting: BTreeMap<ProcessNumber, PendingStart>,
    children: BTreeMap<ProcessNumber, Child>,
    next_number: ProcessNumber,
    /// Children that were forgotten. They are dropped when nobody waits for us, because to close the last descriptor of
    /// a large file takes time, and not before their leader was reaped.
    forgotten: Vec<Child>,
    /// Rounds since the deferred work was done.
    busy_rounds: u32,
    busy_poll_until: Option<Instant>,
    done: bool,
}

/// The loop.
impl Keeper {
    fn new(config: KeeperConfig) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let signals = if config.own_process { Some(crate::sys::own_process::adopt_orphans()?) } else { None };
        // The children of a thread would outlive a host program that is killed, and nobody would be left to end them. So
        // they die with the threads. These are made after the signals were blocked, which they inherit.
        let spawners = Spawners::new(!config.own_process, config.spool_directory.clone())?;
        let socket_file = config.listener.as_ref().and_then(socket_file);
        let mut keeper = Self {
            epoll,
            owner: None,
            epoch: 0,
            past_owner: None,
            orphaned_since: Some(Instant::now()),
            listener: config.listener,
            socket_file,
            socket_check_at: Instant::now() + SOCKET_CHECK,
            signals,
            spool_directory: config.spool_directory,
            on_owner_exit: config.on_owner_exit,
            trees: ProcessTrees::new(config.cgroups, !config.own_process),
            spawners,
            starting: BTreeMap::new(),
            children: BTreeMap::new(),
            next_number: 1,
            forgotten: Vec::new(),
            busy_rounds: 0,
            busy_poll_until: None,
            done: false,
        };
        keeper.watch(keeper.spawners.event(), EpollToken::Spawners)?;
        if let Some(listener) = &keeper.listener {
            rustix::io::ioctl_fionbio(listener, true)?;
            keeper.watch(listener.as_fd(), EpollToken::Listener)?;
        }
        if let Some(signals) = &keeper.signals {
            keeper.watch(signals.as_fd(), EpollToken::Signals)?;
        }
        if let Some(channel) = config.owner {
            keeper.attach_owner(channel, std::process::id())?;
        }
        Ok(keeper)
    }

    fn run_once(&mut self) -> Result<(), Errno> {
        let mut events = Vec::with_capacity(EVENTS);
        self.wait(&mut events)?;
        for event in &events {
            match EpollToken::decode(event.data.u64()) {
                EpollToken::Owner => self.on_owner(),
                EpollToken::Listener => self.on_listener(),
                EpollToken::Signals => self.on_signals(),
                EpollToken::Spawners => self.on_spawned(),
                EpollToken::LeaderExit(number) => self.on_leader_exit(number),
                EpollToken::Stream(number, slot) => self.on_stream(number, slot, events.len() > 1),
            }
        }
        self.on_time(Instant::now());
        Ok(())
    }

    /// Waits for events. Those that are ready come first; only if there are none, the deferred work is done, and then
    /// we sleep.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        self.poll(events, Some(Duration::ZERO))?;
        self.busy_rounds += 1;
        let now = Instant::now();
        // The result of a start comes any moment, unless it hangs.
        let start_ends_soon = self.starting.values().any(|start| now < start.began() + SLOW_SPAWN);
        if (events.is_empty() && !start_ends_soon) || self.busy_rounds > BUSY_ROUNDS {
            self.busy_rounds = 0;
            self.forgotten.retain_mut(|child| !child.let_go());
            self.trees.prepare();
        }
        let until = self.busy_poll_until.take();
        while events.is_empty() && until.is_some_and(|until| Instant::now() < until) {
            std::thread::yield_now();
            self.poll(events, Some(Duration::ZERO))?;
        }
        if !events.is_empty() {
            return Ok(());
        }
        let left = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        self.poll(events, left)
    }

    fn poll(&self, events: &mut Vec<epoll::Event>, within: Option<Duration>) -> Result<(), Errno> {
        let timeout = within.map(timespec);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn watch(&self, descriptor: BorrowedFd<'_>, token: EpollToken) -> Result<(), Errno> {
        epoll::add(&self.epoll, descriptor, EventData::new_u64(token.encode()), EventFlags::IN)
    }

    fn deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        let children = self.children.values().filter_map(Child::deadline);
        let past_owner = self.past_owner.as_ref().map(|_| now + PAST_OWNER_CHECK);
        let starts = self.starting.values().map(PendingStart::deadline).chain(self.spawners.deadline(now));
        let hello = self.hello_may_be_read_at().filter(|at| now < *at);
        let socket_check = (self.owner.is_none() && self.socket_file.is_some()).then_some(self.socket_check_at);
        let socket_check = socket_check.into_iter();
        children.chain(self.orphan_deadline()).chain(past_owner).chain(starts).chain(hello).chain(socket_check).min()
    }

    /// Whether no owner can come any more. Whoever has removed our state directory takes a new keeper for the only one, and
    /// would not see our processes again.
    fn cannot_be_found(&mut self, now: Instant) -> bool {
        let Some(file) = self.socket_file.as_ref().filter(|_| self.owner.is_none() && self.socket_check_at <= now)
        else {
            return false;
        };
        self.socket_check_at = now + SOCKET_CHECK;
        rustix::fs::fstat(file).is_ok_and(|found| found.st_nlink == 0)
    }

    /// When the processes end because no owner came; `None` also if that lies beyond all time.
    fn orphan_deadline(&self) -> Option<Instant> {
        match (self.orphaned_since, self.on_owner_exit) {
            (Some(since), OwnerExitPolicy::KeepProcesses { orphan_ttl }) => since.checked_add(orphan_ttl),
            _ => None,
        }
    }

    fn on_time(&mut self, now: Instant) {
        let is_due = |child: &Child| child.deadline().is_some_and(|at| at <= now);
        let due: Vec<ProcessNumber> =
            self.children.iter().filter(|(_, child)| is_due(child)).map(|(number, _)| *number).collect();
        for number in due {
            // What has ended by itself was not ended by its time limit.
            self.on_leader_exit(number);
            let events = self.children.get_mut(&number).map(|child| child.on_time(now)).unwrap_or_default();
            self.send_all(events);
            self.watch_streams(number);
        }
        self.starts_on_time(now);
        self.take_over();
        self.done |= self.orphan_deadline().is_some_and(|at| at <= now) || self.cannot_be_found(now);
    }

    fn on_leader_exit(&mut self, number: ProcessNumber) {
        let Some(child) = self.children.get_mut(&number) else {
            return self.forgotten.retain_mut(|child| !(child.has_number(number) && child.let_go()));
        };
        let Some(exit) = child.reap() else { return };
        self.send(NO_REQUEST, &KeeperEvent::Exited { number, exit }, &[]);
        let Some(child) = self.children.get_mut(&number) else { return };
        let _ = epoll::delete(&self.epoll, child.pidfd());
        if self.owner.is_none() {
            child.append_exit_to_log(exit);
        }
        let events = child.on_time(Instant::now());
        if child.tree_is_empty()
            && let Some(tree) = child.take_tree()
        {
            self.trees.recycle(tree);
        }
        self.send_all(events);
        // What the exit has made room for, or a wait that was over by then, puts streams back into the set.
        self.watch_streams(number);
        self.reap_orphans();
        self.busy_poll_until = Some(Instant::now() + BUSY_POLL);
    }

    fn on_signals(&mut self) {
        if let Some(signals) = &self.signals {
            self.done |= crate::sys::own_process::asked_to_end(signals.as_fd());
        }
        self.reap_orphans();
    }

    fn reap_orphans(&self) {
        if self.signals.is_some() {
            // A child that is being made has no record yet, and its exit is not lost: it is reaped when it has one.
            let leaders =
                |pid| self.children.values().any(|child| child.is_unreaped_leader(pid)) || self.spawners.is_making(pid);
            crate::sys::pidfd::reap_orphans(leaders);
        }
    }

    /// Kills every tree, and waits until they are gone or [`TREE_EXIT_TIMEOUT`] has passed.
    fn shut_down(&mut self) {
        // An owner that connects from here on is refused by the kernel, and starts a new keeper.
        self.listener = None;
        let give_up_at = Instant::now() + TREE_EXIT_TIMEOUT;
        // At once, because a start that hangs may take all the time that there is.
        self.children.values().for_each(Child::kill_tree);
        self.end_starts(give_up_at);
        let mut trees = Vec::new();
        for (_, mut child) in std::mem::take(&mut self.children) {
            child.kill_tree();
            let leader = child.take_unreaped_pidfd();
            if let Some(tree) = child.take_tree() {
                trees.push((tree, leader));
            }
        }
        for (tree, leader) in trees {
            // A leader that was killed before it had its mark is not seen in its tree.
            let is_gone = |pidfd: &OwnedFd| !matches!(crate::sys::pidfd::reap(pidfd.as_fd()), Ok(None));
            wait_until(give_up_at, || tree.is_empty() && leader.as_ref().is_none_or(is_gone));
            self.trees.kill(tree);
        }
        for mut child in std::mem::take(&mut self.forgotten) {
            wait_until(give_up_at, || child.let_go());
        }
        self.reap_orphans();
    }
}

/// The file at which a socket listens; `None` if it has none, or if nobody can say.
fn socket_file(listener: &OwnedFd) -> Option<OwnedFd> {
    let address = rustix::net::SocketAddrUnix::try_from(rustix::net::getsockname(listener).ok()?).ok()?;
    let path = address.path()?;
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Looks again and again, for want of an event.
fn wait_until(give_up_at: Instant, mut done: impl FnMut() -> bool) {
    let mut pause = Duration::from_micros(200);
    while !done() && Instant::now() < give_up_at {
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// The owner and its requests.
impl Keeper {
    fn on_listener(&mut self) {
        let Some(listener) = &self.listener else { return };
        let Ok(socket) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else {
            return;
        };
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&socket) else { return };
        // The mode of the state directory already keeps other users out. This holds even if somebody widens it.
        if peer.uid != rustix::process::getuid() {
            return;
        }
        let pid = peer.pid.as_raw_nonzero().get() as u32;
        let Ok(channel) = Channel::from_socket(socket) else { return };
        // If the present owner was just killed, its socket says so, but we may not have read that yet.
        self.on_owner();
        self.take_over();
        let busy = self.owner.as_ref().map(OwnerConnection::pid).or(self.past_owner.as_ref().map(|past| past.pid));
        if let Some(owner_pid) = busy {
            let _ = channel.send(NO_REQUEST, &KeeperEvent::Busy { owner_pid }.encode(), &[]);
            return;
        }
        let _ = self.attach_owner(channel, pid);
    }

    /// From here on the owner moves the output. So we stop first, before it learns of any process.
    fn attach_owner(&mut self, channel: Channel, pid: u32) -> Result<(), Errno> {
        for child in self.children.values_mut() {
            for stream in child.stop_moving() {
                if let Some(source) = child.source(stream) {
                    let _ = epoll::delete(&self.epoll, source);
                }
            }
        }
        self.watch(channel.socket(), EpollToken::Owner)?;
        self.epoch += 1;
        self.owner = Some(OwnerConnection::new(channel, pid, self.epoch)?);
        self.orphaned_since = None;
        Ok(())
    }

    /// The owner was killed, was upgraded, or has finished.
    fn detach_owner(&mut self) {
        let Some(owner) = self.owner.take() else { return };
        let _ = epoll::delete(&self.epoll, owner.socket());
        self.past_owner = Some(owner.into_past());
        self.orphaned_since = Some(Instant::now());
        // The next owner numbers its requests from the start again, and would take an answer to an old one for its own.
        self.children.values_mut().for_each(Child::forget_termination_requests);
        self.starting.values_mut().for_each(PendingStart::forget_requests);
        if self.on_owner_exit == OwnerExitPolicy::KillProcesses || self.listener.is_none() {
            self.done = true;
            return;
        }
        self.take_over();
    }

    /// Moves the output ourselves, as soon as the last owner does not.
    fn take_over(&mut self) {
        if self.past_owner.take_if(|past| past.is_out()).is_none() {
            return;
        }
        let numbers: Vec<ProcessNumber> = self.children.keys().copied().collect();
        for number in numbers {
            self.start_moving(number);
        }
    }

    fn on_owner(&mut self) {
        if let Some(owner) = &mut self.owner
            && owner.flush(&self.epoll).is_err()
        {
            return self.detach_owner();
        }
        loop {
            let starts_allow_it = self.starts_allow_requests();
            let Some(owner) = &mut self.owner else { return };
            if !owner.takes_requests() {
                return owner.watch(&self.epoll, EventFlags::OUT);
            }
            if !starts_allow_it {
                return owner.pause(&self.epoll);
            }
            match owner.receive() {
                Ok(Received::Message { request_id, message, descriptors }) => match KeeperRequest::decode(&message) {
                    Ok(request) => self.on_request(request_id, request, descriptors),
                    Err(_) => self.refuse(request_id, Errno::BADMSG),
                },
                Ok(Received::Damaged { request_id, errno }) => self.refuse(request_id, errno),
                Ok(Received::Closed) => return self.detach_owner(),
                // There is nothing to read, or no memory to read it.
                Err(_) => return,
            }
        }
    }

    /// A request that could not be read. It costs its owner this one request, unless there was no hello yet: what
    /// begins like this is no owner.
    fn refuse(&mut self, request_id: u64, errno: Errno) {
        match &self.owner {
            Some(owner) if !owner.said_hello() => self.detach_owner(),
            _ if request_id == NO_REQUEST => log(format_args!("exec-server keeper: a message did not read: {errno}")),
            _ => self.send(request_id, &KeeperEvent::Refused { errno: errno.raw_os_error() }, &[]),
        }
    }

    fn send(&mut self, request_id: u64, event: &KeeperEvent, descriptors: &[BorrowedFd<'_>]) {
        if let Some(owner) = &mut self.owner {
            owner.send(request_id, event, descriptors, &self.epoll);
        }
    }

    fn send_all(&mut self, answers: Vec<Answer>) {
        for (request_id, event) in answers {
            self.send(request_id, &event, &[]);
        }
    }

    fn on_request(&mut self, request_id: u64, request: KeeperRequest, descriptors: Vec<OwnedFd>) {
        match request {
            KeeperRequest::Hello { version } => self.on_hello(version),
            KeeperRequest::Start { launch } if launch.can_be_passed() => self.start(request_id, launch, descriptors),
            KeeperRequest::Start { .. } => self.refuse(request_id, Errno::INVAL),
            KeeperRequest::Signal { number, signal, key } => {
                self.on_leader_exit(number);
                let child = self.children.get_mut(&number);
                let errno = child.map_or(libc::ESRCH, |child| child.signal_once(signal, key));
                self.send(request_id, &KeeperEvent::Signalled { errno }, &[]);
            }
            KeeperRequest::Terminate { number, .. } if request_id_of_start(number).is_some() => {
                self.cancel_start(number, request_id);
            }
            KeeperRequest::Terminate { number, grace } => {
                // What has ended by itself was not terminated.
                self.on_leader_exit(number);
                let now = Instant::now();
                let nobody = KeeperEvent::Terminated { was_running: false, ended: 0, left: 0 };
                let events = self.children.get_mut(&number).map(|child| child.terminate(request_id, grace, now));
                self.send_all(events.unwrap_or_else(|| vec![(request_id, nobody)]));
            }
            KeeperRequest::Members { number } => {
                let pids = self.children.get(&number).map(Child::members).unwrap_or_default();
                self.send(request_id, &KeeperEvent::Members { pids }, &[]);
            }
            KeeperRequest::FindSandbox { cgroup } => {
                let found = self.trees.is_sandboxed(cgroup);
                self.send(request_id, &KeeperEvent::SandboxFound { found }, &[]);
            }
            KeeperRequest::AddFd { number, role } => {
                if let (Some(child), Some(fd)) = (self.children.get_mut(&number), descriptors.into_iter().next()) {
                    child.add_fd(role, fd);
                }
            }
            KeeperRequest::CloseFd { number, role } => {
                if let Some(child) = self.children.get_mut(&number) {
                    child.close_fd(role);
                }
            }
            KeeperRequest::Forget { number } if request_id_of_start(number).is_some() => {
                self.cancel_start(number, NO_REQUEST);
            }
            KeeperRequest::Forget { number } => {
                if let Some(child) = self.children.remove(&number) {
                    self.forget(child);
                }
            }
            KeeperRequest::Shutdown => self.done = true,
        }
    }

    fn forget(&mut self, mut child: Child) {
        child.kill_tree();
        if let Some(tree) = child.take_tree() {
            self.trees.kill(tree);
        }
        self.forgotten.push(child);
    }

    fn on_hello(&mut self, version: u32) {
        if version == VERSION {
            self.cancel_left_over_starts();
        }
        let Some(owner) = &mut self.owner else { return };
        owner.welcome(self.children.len() as u32, &self.epoll);
        if version != VERSION {
            return self.detach_owner();
        }
        for child in self.children.values() {
            let (roles, descriptors) = child.fds();
            owner.send(NO_REQUEST, &child.existing(roles), &descriptors, &self.epoll);
        }
    }
}

/// Without an owner: we move the output ourselves, with the code the owner uses.
impl Keeper {
    fn start_moving(&mut self, number: ProcessNumber) {
        let Some(child) = self.children.get_mut(&number) else { return };
        // Without a readable index we do not know where to go on. The output stays in the pipes, for the next owner.
        if child.start_moving(&self.spool_directory).is_ok() {
            self.watch_streams(number);
        }
    }

    /// Puts the streams of a child into the epoll set, except those that are in it: adding these again is refused by
    /// the kernel and does no harm.
    fn watch_streams(&self, number: ProcessNumber) {
        if self.owner.is_some() {
            return;
        }
        let Some(child) = self.children.get(&number) else { return };
        for (stream, source) in child.moving_streams().iter().filter_map(|stream| Some((stream, child.source(stream)?)))
        {
            let _ = self.watch(source, EpollToken::Stream(number, crate::spool::index::slot_of(stream)));
        }
    }

    fn on_stream(&mut self, number: ProcessNumber, slot: usize, others_ready: bool) {
        if self.owner.is_some() {
            return;
        }
        let Some(child) = self.children.get_mut(&number) else { return };
        let stream = child.stream(slot);
        let outcome = child.pump(stream, others_ready);
        // The set is level-triggered and would report a stalled stream again at once. It is put back by `on_time`.
        if let Some(PumpOutcome::Eof | PumpOutcome::Stalled | PumpOutcome::WaitingForReader) = outcome
            && let Some(source) = child.source(stream)
        {
            let _ = epoll::delete(&self.epoll, source);
        }
        if outcome == Some(PumpOutcome::Eof) {
            child.close_stream(stream);
        }
        self.enforce_total_cap();
    }

    /// If all logs together are over their cap, the fullest one drops what is too much: the one that has just grown may
    /// be small.
    fn enforce_total_cap(&mut self) {
        let excess = self.spool_directory.excess_bytes();
        if excess == 0 {
            return;
        }
        let now = Instant::now();
        let droppable = self.children.values_mut().filter(|child| child.droppable_bytes(now) > 0);
        if let Some(fullest) = droppable.max_by_key(|child| child.droppable_bytes(now)) {
            fullest.shed(excess);
        }
    }
}
