//! The loop: wait for one event, let the process it concerns answer, carry that out.
//!
//! ```text
//!   owner here ── socket closes ──► alone (movers run) ── an owner connects ──► owner here
//!        └── End, or OwnerExitPolicy::KillProcesses ──► trees killed ──► over ◄── orphan_ttl passes ──┘
//! ```
//!
//! It never blocks but in `epoll_wait`, and in the moment a child takes from clone to exec.

mod child;
mod orphaned;
mod owner_socket;
mod poll;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec_core::limits::TREE_EXIT_TIMEOUT;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::channel::{Channel, Received};
use crate::protocol::{KeeperEvent, KeeperRequest, LaunchRequest, ProcessNumber};
use crate::spawn::Spawner;
use crate::spool::directory::SpoolDirectory;
use crate::tree::ProcessTrees;
use child::Child;
use poll::BUSY_POLL;

/// Answers an owner has not read yet. Beyond, its requests wait in the socket.
const UNSENT_EVENTS: usize = 256;
/// Events taken in one go.
const EVENTS: usize = 64;

/// What becomes of the processes when the owner goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerExitPolicy {
    /// They end with it, and so does the keeper.
    KillProcesses,
    /// They are kept for the next owner, this long.
    KeepProcesses {
        /// Then they end, and so does the keeper.
        orphan_ttl: Duration,
    },
}

/// What a keeper is hired for.
#[derive(Debug)]
pub struct KeeperConfig {
    /// The first owner, if it is connected already.
    pub owner: Option<Channel>,
    /// Where later owners connect.
    pub listener: Option<OwnedFd>,
    /// Where logs lie.
    pub spool_directory: Arc<SpoolDirectory>,
    /// What becomes of the processes without an owner.
    pub on_owner_exit: OwnerExitPolicy,
    /// Whether a process of its own carries it. Then the orphans of its trees come to it, and it reaps them.
    pub own_process: bool,
    /// Whether to use cgroups where they can be made.
    pub cgroups: bool,
}

/// What a descriptor in the epoll set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EpollToken {
    Owner,
    Listener,
    Signals,
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
            EpollToken::Stream(number, slot) => number << 3 | (4 + slot as u64),
        }
    }

    fn decode(bits: u64) -> Self {
        match bits & 7 {
            0 => EpollToken::Owner,
            1 => EpollToken::Listener,
            2 => EpollToken::Signals,
            3 => EpollToken::LeaderExit(bits >> 3),
            slot => EpollToken::Stream(bits >> 3, (slot - 4) as usize),
        }
    }
}

/// Does the config until it is over. Returns only when every tree is gone or given up.
pub fn run(config: KeeperConfig) -> Result<(), Errno> {
    crate::sys::schedule::run_in_short_slices();
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
    listener: Option<OwnedFd>,
    signals: Option<OwnedFd>,
    spool_directory: Arc<SpoolDirectory>,
    on_owner_exit: OwnerExitPolicy,
    trees: ProcessTrees,
    spawner: Spawner,
    children: BTreeMap<ProcessNumber, Child>,
    next_number: ProcessNumber,
    /// Since when nobody owns us.
    orphaned_since: Option<Instant>,
    /// Their last descriptors close when nobody waits for us: giving a file back to the disk takes time.
    released: Vec<Child>,
    /// Turns since things were put in order.
    busy_rounds: u32,
    /// Until when it is worth staying awake.
    busy_poll_until: Option<Instant>,
    done: bool,
}

struct OwnerConnection {
    channel: Channel,
    pid: u32,
    /// It has said hello. Before, it is told nothing: what ends meanwhile, it finds ended.
    said_hello: bool,
    /// Answers the socket had no room for; bounded by [`UNSENT_EVENTS`], since requests wait beyond.
    unsent: std::collections::VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

impl Keeper {
    fn new(config: KeeperConfig) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let signals = if config.own_process { Some(crate::sys::signals::adopt_orphans()?) } else { None };
        let mut keeper = Self {
            epoll,
            owner: None,
            listener: config.listener,
            signals,
            spool_directory: config.spool_directory,
            on_owner_exit: config.on_owner_exit,
            trees: ProcessTrees::new(config.cgroups, !config.own_process),
            // A thread's children would outlive a host that is killed; nobody would be left to end them.
            spawner: Spawner::new(!config.own_process)?,
            children: BTreeMap::new(),
            next_number: 1,
            orphaned_since: Some(Instant::now()),
            released: Vec::new(),
            busy_rounds: 0,
            busy_poll_until: None,
            done: false,
        };
        if let Some(listener) = &keeper.listener {
            rustix::io::ioctl_fionbio(listener, true)?;
            keeper.watch(listener.as_fd(), EpollToken::Listener, EventFlags::IN)?;
        }
        if let Some(signals) = &keeper.signals {
            keeper.watch(signals.as_fd(), EpollToken::Signals, EventFlags::IN)?;
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
                EpollToken::LeaderExit(number) => self.on_leader(number),
                EpollToken::Stream(number, slot) => self.on_stream(number, slot, events.len() > 1),
            }
        }
        self.on_time(Instant::now());
        Ok(())
    }

    fn watch(&self, descriptor: BorrowedFd<'_>, token: EpollToken, flags: EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, descriptor, EventData::new_u64(token.encode()), flags)
    }

    fn deadline(&self) -> Option<Instant> {
        let orphaned = match (self.orphaned_since, self.on_owner_exit) {
            (Some(since), OwnerExitPolicy::KeepProcesses { orphan_ttl }) => since.checked_add(orphan_ttl),
            _ => None,
        };
        self.children.values().filter_map(Child::deadline).chain(orphaned).min()
    }

    fn on_time(&mut self, now: Instant) {
        let due: Vec<ProcessNumber> = self
            .children
            .iter()
            .filter(|(_, child)| child.deadline().is_some_and(|at| at <= now))
            .map(|(n, _)| *n)
            .collect();
        for number in due {
            let events = self.children.get_mut(&number).map(|child| child.on_time(now)).unwrap_or_default();
            self.send_all(events);
            self.watch_streams(number);
        }
        if let (Some(since), OwnerExitPolicy::KeepProcesses { orphan_ttl }) = (self.orphaned_since, self.on_owner_exit)
            && now.saturating_duration_since(since) >= orphan_ttl
        {
            self.done = true;
        }
    }

    fn on_leader(&mut self, number: ProcessNumber) {
        let Some(child) = self.children.get_mut(&number) else { return };
        let Some(exit) = child.reap() else { return };
        self.send(&KeeperEvent::Exited { number, exit }, &[]);
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
        self.reap_orphans();
        self.busy_poll_until = Some(Instant::now() + BUSY_POLL);
    }

    fn on_owner(&mut self) {
        self.flush();
        while let Some(owner) = &self.owner {
            if owner.unsent.len() >= UNSENT_EVENTS {
                return self.watch_owner_for(EventFlags::OUT);
            }
            match owner.channel.receive() {
                Ok(Received::Message(message, descriptors)) => match KeeperRequest::decode(&message) {
                    Ok(request) => self.on_request(request, descriptors),
                    Err(_) => return self.detach_owner(),
                },
                Ok(Received::Closed) => return self.detach_owner(),
                Err(Errno::AGAIN) => return,
                Err(_) => return self.detach_owner(),
            }
        }
    }

    fn on_request(&mut self, request: KeeperRequest, descriptors: Vec<OwnedFd>) {
        match request {
            KeeperRequest::Hello { version } => self.on_hello(version),
            KeeperRequest::Start { request_id, launch } => self.start(request_id, &launch),
            KeeperRequest::Signal { request_id, number, signal } => {
                let errno = self.children.get(&number).map_or(libc::ESRCH, |child| child.signal(signal));
                self.send(&KeeperEvent::Signalled { request_id, errno }, &[]);
            }
            KeeperRequest::Terminate { request_id, number, grace } => {
                let now = Instant::now();
                let nobody = KeeperEvent::Terminated { request_id, was_running: false, ended: 0, left: 0 };
                let events = self.children.get_mut(&number).map(|child| child.terminate(request_id, grace, now));
                self.send_all(events.unwrap_or_else(|| vec![nobody]));
            }
            KeeperRequest::Members { request_id, number } => {
                let pids = self.children.get(&number).map(Child::members).unwrap_or_default();
                self.send(&KeeperEvent::Members { request_id, pids }, &[]);
            }
            KeeperRequest::AddFd { number, role } => {
                if let (Some(child), Some(descriptor)) =
                    (self.children.get_mut(&number), descriptors.into_iter().next())
                {
                    child.add_fd(role, descriptor);
                }
            }
            KeeperRequest::CloseFd { number, role } => {
                if let Some(child) = self.children.get_mut(&number) {
                    child.close_fd(role);
                }
            }
            KeeperRequest::Forget { number } => {
                if let Some(mut child) = self.children.remove(&number) {
                    if let Some(tree) = child.take_tree() {
                        self.trees.kill(tree);
                    }
                    self.released.push(child);
                }
            }
            KeeperRequest::Shutdown => self.done = true,
        }
    }

    fn start(&mut self, request_id: u64, launch: &LaunchRequest) {
        let mut tree = self.trees.create();
        let mut outcome = self.spawner.spawn(launch, &tree, &self.spool_directory);
        if outcome.as_ref().is_err_and(|error| error.cgroup_refused) {
            self.trees.give_up_cgroups();
            tree = self.trees.create();
            outcome = self.spawner.spawn(launch, &tree, &self.spool_directory);
        }
        let spawned = match outcome {
            Ok(spawned) => spawned,
            Err(error) => {
                self.trees.kill(tree);
                let errno = error.errno.raw_os_error();
                return self.send(
                    &KeeperEvent::StartFailed { request_id, step: error.step, errno, subject: error.subject },
                    &[],
                );
            }
        };
        let number = self.next_number;
        self.next_number += 1;
        let pid = spawned.pid;
        let child = Child::new(number, launch, spawned, tree, Instant::now());
        let _ = self.watch(child.pidfd(), EpollToken::LeaderExit(number), EventFlags::IN);
        let (roles, descriptors) = child.fds();
        self.send(&KeeperEvent::Started { request_id, number, pid, roles }, &descriptors);
        self.children.insert(number, child);
    }

    fn on_signals(&mut self) {
        if let Some(signals) = &self.signals {
            self.done |= crate::sys::signals::asked_to_end(signals.as_fd());
        }
        self.reap_orphans();
    }

    fn reap_orphans(&self) {
        if self.signals.is_some() {
            let leaders = |pid| self.children.values().any(|child| child.is_unreaped_leader(pid));
            crate::sys::pidfd::reap_orphans(leaders);
        }
    }

    /// Kills every tree and waits, within reason, until they are gone.
    fn shut_down(&mut self) {
        // Whoever connects from here on finds nobody, and hires the next keeper.
        self.listener = None;
        let mut trees = Vec::new();
        for (_, mut child) in std::mem::take(&mut self.children) {
            let leader = child.take_unreaped_pidfd();
            if let Some(tree) = child.take_tree() {
                tree.kill();
                trees.push((tree, leader));
            }
        }
        let give_up = Instant::now() + TREE_EXIT_TIMEOUT;
        for (tree, leader) in trees {
            let mut pause = Duration::from_micros(200);
            while !tree.is_empty() && Instant::now() < give_up {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            if let Some(pidfd) = leader {
                let _ = crate::sys::pidfd::reap(pidfd.as_fd());
            }
            self.trees.kill(tree);
        }
        self.reap_orphans();
    }
}
