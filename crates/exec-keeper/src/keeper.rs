//! The loop: wait for one event, let the process it concerns answer, carry that out.
//!
//! ```text
//!   owner here ── socket closes ──► alone (movers run) ── an owner connects ──► owner here
//!        └── End, or Fate::WithOwner ──► trees killed ──► over ◄── orphan_ttl passes ──┘
//! ```
//!
//! It never blocks but in `epoll_wait`, and in the moment a child takes from clone to exec.

mod alone;
mod line;
mod pause;
mod ward;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec_core::limits::TREE_EXIT_TIMEOUT;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::channel::{Channel, Received};
use crate::protocol::{Ask, Launch, Number, Tell};
use crate::spawn::Spawner;
use crate::spool::folder::Folder;
use crate::tree::Forest;
use pause::LINGER;
use ward::Ward;

/// Answers an owner has not read yet. Beyond, its requests wait in the socket.
const UNREAD_ANSWERS: usize = 256;
/// Events taken in one go.
const EVENTS: usize = 64;

/// What becomes of the processes when the owner goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// They end with it, and so does the keeper.
    WithOwner,
    /// They are kept for the next owner, this long.
    Outlive {
        /// Then they end, and so does the keeper.
        orphan_ttl: Duration,
    },
}

/// What a keeper is hired for.
#[derive(Debug)]
pub struct Duty {
    /// The first owner, if it is connected already.
    pub owner: Option<Channel>,
    /// Where later owners connect.
    pub listener: Option<OwnedFd>,
    /// Where logs lie.
    pub folder: Arc<Folder>,
    /// What becomes of the processes without an owner.
    pub fate: Fate,
    /// Whether a process of its own carries it. Then the orphans of its trees come to it, and it reaps them.
    pub own_process: bool,
    /// Whether to use cgroups where they can be made.
    pub cgroups: bool,
}

/// What a descriptor in the epoll set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Owner,
    Listener,
    Signals,
    Leader(Number),
    Stream(Number, usize),
}

impl Token {
    fn encode(self) -> u64 {
        match self {
            Token::Owner => 0,
            Token::Listener => 1,
            Token::Signals => 2,
            Token::Leader(number) => number << 3 | 3,
            Token::Stream(number, slot) => number << 3 | (4 + slot as u64),
        }
    }

    fn decode(bits: u64) -> Self {
        match bits & 7 {
            0 => Token::Owner,
            1 => Token::Listener,
            2 => Token::Signals,
            3 => Token::Leader(bits >> 3),
            slot => Token::Stream(bits >> 3, (slot - 4) as usize),
        }
    }
}

/// Does the duty until it is over. Returns only when every tree is gone or given up.
pub fn run(duty: Duty) -> Result<(), Errno> {
    crate::sys::schedule::run_in_short_slices();
    let mut keeper = Keeper::new(duty)?;
    while !keeper.over {
        keeper.turn()?;
    }
    keeper.end();
    Ok(())
}

struct Keeper {
    epoll: OwnedFd,
    owner: Option<Owner>,
    listener: Option<OwnedFd>,
    signals: Option<OwnedFd>,
    folder: Arc<Folder>,
    fate: Fate,
    forest: Forest,
    spawner: Spawner,
    wards: BTreeMap<Number, Ward>,
    next_number: Number,
    /// Since when nobody owns us.
    alone_since: Option<Instant>,
    /// Their last descriptors close when nobody waits for us: giving a file back to the disk takes time.
    forgotten: Vec<Ward>,
    /// Turns since things were put in order.
    hurried: u32,
    /// Until when it is worth staying awake.
    linger: Option<Instant>,
    over: bool,
}

struct Owner {
    channel: Channel,
    pid: u32,
    /// It has said hello. Before, it is told nothing: what ends meanwhile, it finds ended.
    greeted: bool,
    /// Answers the socket had no room for; bounded by [`UNREAD_ANSWERS`], since requests wait beyond.
    unsent: std::collections::VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

impl Keeper {
    fn new(duty: Duty) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let signals = if duty.own_process { Some(crate::sys::signals::adopt_orphans()?) } else { None };
        let mut keeper = Self {
            epoll,
            owner: None,
            listener: duty.listener,
            signals,
            folder: duty.folder,
            fate: duty.fate,
            forest: Forest::new(duty.cgroups, !duty.own_process),
            // A thread's children would outlive a host that is killed; nobody would be left to end them.
            spawner: Spawner::new(!duty.own_process)?,
            wards: BTreeMap::new(),
            next_number: 1,
            alone_since: Some(Instant::now()),
            forgotten: Vec::new(),
            hurried: 0,
            linger: None,
            over: false,
        };
        if let Some(listener) = &keeper.listener {
            rustix::io::ioctl_fionbio(listener, true)?;
            keeper.watch(listener.as_fd(), Token::Listener, EventFlags::IN)?;
        }
        if let Some(signals) = &keeper.signals {
            keeper.watch(signals.as_fd(), Token::Signals, EventFlags::IN)?;
        }
        if let Some(channel) = duty.owner {
            keeper.receive_owner(channel, std::process::id())?;
        }
        Ok(keeper)
    }

    fn turn(&mut self) -> Result<(), Errno> {
        let mut events = Vec::with_capacity(EVENTS);
        self.wait(&mut events)?;
        for event in &events {
            match Token::decode(event.data.u64()) {
                Token::Owner => self.on_owner(),
                Token::Listener => self.on_listener(),
                Token::Signals => self.on_signals(),
                Token::Leader(number) => self.on_leader(number),
                Token::Stream(number, slot) => self.on_stream(number, slot, events.len() > 1),
            }
        }
        self.on_time(Instant::now());
        Ok(())
    }

    fn watch(&self, descriptor: BorrowedFd<'_>, token: Token, flags: EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, descriptor, EventData::new_u64(token.encode()), flags)
    }

    fn deadline(&self) -> Option<Instant> {
        let orphaned = match (self.alone_since, self.fate) {
            (Some(since), Fate::Outlive { orphan_ttl }) => since.checked_add(orphan_ttl),
            _ => None,
        };
        self.wards.values().filter_map(Ward::deadline).chain(orphaned).min()
    }

    fn on_time(&mut self, now: Instant) {
        let due: Vec<Number> = self
            .wards
            .iter()
            .filter(|(_, ward)| ward.deadline().is_some_and(|at| at <= now))
            .map(|(n, _)| *n)
            .collect();
        for number in due {
            let tells = self.wards.get_mut(&number).map(|ward| ward.on_time(now)).unwrap_or_default();
            self.tell_all(tells);
            self.pump_stalled(number);
        }
        if let (Some(since), Fate::Outlive { orphan_ttl }) = (self.alone_since, self.fate)
            && now.saturating_duration_since(since) >= orphan_ttl
        {
            self.over = true;
        }
    }

    fn on_leader(&mut self, number: Number) {
        let Some(ward) = self.wards.get_mut(&number) else { return };
        let Some(exit) = ward.reap() else { return };
        self.tell(&Tell::Exited { number, exit }, &[]);
        let Some(ward) = self.wards.get_mut(&number) else { return };
        let _ = epoll::delete(&self.epoll, ward.pidfd());
        if self.owner.is_none() {
            ward.tell_log_of_exit(exit);
        }
        let tells = ward.on_time(Instant::now());
        if ward.tree_is_empty()
            && let Some(tree) = ward.leave_tree()
        {
            self.forest.clear(tree);
        }
        self.tell_all(tells);
        self.reap_orphans();
        self.linger = Some(Instant::now() + LINGER);
    }

    fn on_owner(&mut self) {
        self.flush();
        while let Some(owner) = &self.owner {
            if owner.unsent.len() >= UNREAD_ANSWERS {
                return self.await_owner(EventFlags::OUT);
            }
            match owner.channel.receive() {
                Ok(Received::Message(message, descriptors)) => match Ask::decode(&message) {
                    Ok(ask) => self.on_ask(ask, descriptors),
                    Err(_) => return self.lose_owner(),
                },
                Ok(Received::Gone) => return self.lose_owner(),
                Err(Errno::AGAIN) => return,
                Err(_) => return self.lose_owner(),
            }
        }
    }

    fn on_ask(&mut self, ask: Ask, descriptors: Vec<OwnedFd>) {
        match ask {
            Ask::Hello { version } => self.greet(version),
            Ask::Start { ticket, launch } => self.start(ticket, &launch),
            Ask::Signal { ticket, number, signal } => {
                let errno = self.wards.get(&number).map_or(libc::ESRCH, |ward| ward.signal(signal));
                self.tell(&Tell::Signalled { ticket, errno }, &[]);
            }
            Ask::Terminate { ticket, number, grace } => {
                let now = Instant::now();
                let nobody = Tell::Terminated { ticket, was_running: false, ended: 0, left: 0 };
                let tells = self.wards.get_mut(&number).map(|ward| ward.terminate(ticket, grace, now));
                self.tell_all(tells.unwrap_or_else(|| vec![nobody]));
            }
            Ask::Members { ticket, number } => {
                let pids = self.wards.get(&number).map(Ward::members).unwrap_or_default();
                self.tell(&Tell::Members { ticket, pids }, &[]);
            }
            Ask::Keep { number, part } => {
                if let (Some(ward), Some(descriptor)) = (self.wards.get_mut(&number), descriptors.into_iter().next()) {
                    ward.hold(part, descriptor);
                }
            }
            Ask::Drop { number, part } => {
                if let Some(ward) = self.wards.get_mut(&number) {
                    ward.let_go(part);
                }
            }
            Ask::Forget { number } => {
                if let Some(mut ward) = self.wards.remove(&number) {
                    if let Some(tree) = ward.leave_tree() {
                        self.forest.fell(tree);
                    }
                    self.forgotten.push(ward);
                }
            }
            Ask::End => self.over = true,
        }
    }

    fn start(&mut self, ticket: u64, launch: &Launch) {
        let mut tree = self.forest.plant();
        let mut outcome = self.spawner.spawn(launch, &tree, &self.folder);
        if outcome.as_ref().is_err_and(|error| error.cgroup_refused) {
            self.forest.give_up_cgroups();
            tree = self.forest.plant();
            outcome = self.spawner.spawn(launch, &tree, &self.folder);
        }
        let spawned = match outcome {
            Ok(spawned) => spawned,
            Err(error) => {
                self.forest.fell(tree);
                let errno = error.errno.raw_os_error();
                return self.tell(&Tell::Refused { ticket, step: error.step, errno, subject: error.subject }, &[]);
            }
        };
        let number = self.next_number;
        self.next_number += 1;
        let pid = spawned.pid;
        let ward = Ward::new(number, launch, spawned, tree, Instant::now());
        let _ = self.watch(ward.pidfd(), Token::Leader(number), EventFlags::IN);
        let (parts, descriptors) = ward.parts();
        self.tell(&Tell::Started { ticket, number, pid, parts }, &descriptors);
        self.wards.insert(number, ward);
    }

    fn on_signals(&mut self) {
        if let Some(signals) = &self.signals {
            self.over |= crate::sys::signals::asked_to_end(signals.as_fd());
        }
        self.reap_orphans();
    }

    fn reap_orphans(&self) {
        if self.signals.is_some() {
            let leaders = |pid| self.wards.values().any(|ward| ward.is_unreaped_leader(pid));
            crate::sys::pidfd::reap_orphans(leaders);
        }
    }

    /// Kills every tree and waits, within reason, until they are gone.
    fn end(&mut self) {
        // Whoever connects from here on finds nobody, and hires the next keeper.
        self.listener = None;
        let mut trees = Vec::new();
        for (_, mut ward) in std::mem::take(&mut self.wards) {
            let leader = ward.take_leader();
            if let Some(tree) = ward.leave_tree() {
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
            self.forest.fell(tree);
        }
        self.reap_orphans();
    }
}
