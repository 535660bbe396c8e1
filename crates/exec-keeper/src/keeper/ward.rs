//! One process in the keeper's care: its descriptors, its tree, its end.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec_core::termination::{Termination, TerminationSignal};
use exec_core::lifecycle::StreamSet;
use exec_core::limits::TREE_EXIT_TIMEOUT;
use exec_core::{ExitCause, Exit, Io, ExitStatus, Stream};
use rustix::io::Errno;

use super::alone::{duplicate, streams};
use crate::protocol::{Card, Launch, Number, Part, Tell};
use crate::spawn::Spawned;
use crate::spool::folder::Folder;
use crate::spool::{Files, Kept, Pumped, Source, Spool, Turn};
use crate::sys::pidfd;
use crate::tree::Tree;

/// While a tree is ending, it is looked at this often: quickly at first, then calmly.
const FIRST_LOOK: Duration = Duration::from_micros(300);
const LATER_LOOK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Ward {
    number: Number,
    pid: u32,
    card: Card,
    parts: Vec<(Part, OwnedFd)>,
    exit: Option<Exit>,
    tree: Option<Tree>,
    ending: Termination,
    /// Who wants to know when the tree is gone.
    waiting: Vec<Waiting>,
    next_look: Option<(Instant, Duration)>,
    give_up: Option<Instant>,
    seen: BTreeSet<u32>,
    /// The log, while we move it.
    mover: Option<Spool>,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    was_running: bool,
}

impl Ward {
    pub(super) fn new(number: Number, launch: &Launch, spawned: Spawned, tree: Tree, now: Instant) -> Self {
        Self {
            number,
            pid: spawned.pid,
            card: launch.card.clone(),
            parts: spawned.parts,
            exit: None,
            tree: Some(tree),
            ending: Termination::new(now, launch.time_limit),
            waiting: Vec::new(),
            next_look: None,
            give_up: None,
            seen: BTreeSet::new(),
            mover: None,
        }
    }

    pub(super) fn io(&self) -> Io {
        self.card.io
    }

    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.part(Part::Pidfd).expect("every ward is made with one, and it is never dropped")
    }

    pub(super) fn parts(&self) -> (Vec<Part>, Vec<BorrowedFd<'_>>) {
        self.parts.iter().map(|(part, descriptor)| (*part, descriptor.as_fd())).unzip()
    }

    pub(super) fn found(&self, parts: Vec<Part>) -> Tell {
        Tell::Found { number: self.number, pid: self.pid, exit: self.exit, parts, card: Box::new(self.card.clone()) }
    }

    pub(super) fn hold(&mut self, part: Part, descriptor: OwnedFd) {
        self.let_go(part);
        self.parts.push((part, descriptor));
    }

    pub(super) fn let_go(&mut self, part: Part) {
        if part != Part::Pidfd {
            self.parts.retain(|(held, _)| *held != part);
        }
    }

    /// Collects the leader, if it has ended.
    pub(super) fn reap(&mut self) -> Option<Exit> {
        if self.exit.is_some() {
            return None;
        }
        let exit = match pidfd::reap(self.pidfd()) {
            Ok(None) => return None,
            Ok(Some((status, usage))) => Exit { status, cause: self.cause(status), usage },
            // The host program waited for our child itself. We do not know how it ended, and say so.
            Err(_) => Exit::LOST,
        };
        self.exit = Some(exit);
        self.ending.on_leader_exit();
        Some(exit)
    }

    fn cause(&self, status: ExitStatus) -> ExitCause {
        let killed = matches!(status, ExitStatus::Signal { number: libc::SIGKILL, .. });
        match self.ending.cause() {
            ExitCause::Own if killed && self.tree.as_ref().is_some_and(Tree::was_out_of_memory) => ExitCause::OutOfMemory,
            cause => cause,
        }
    }

    pub(super) fn is_unreaped_leader(&self, pid: u32) -> bool {
        self.exit.is_none() && self.pid == pid
    }

    /// Signals the leader's process group; 0, or the kernel's reason.
    pub(super) fn signal(&self, signal: i32) -> i32 {
        let sent = match pidfd::signal_group(self.pidfd(), signal) {
            // A kernel before 6.9. While the leader is not reaped its group cannot be anybody else's.
            Err(Errno::INVAL) if self.exit.is_none() => {
                let group = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
                let raw = rustix::process::Signal::from_named_raw(signal);
                match (group, raw) {
                    (Some(group), Some(raw)) => rustix::process::kill_process_group(group, raw),
                    _ => Err(Errno::INVAL),
                }
            }
            Err(Errno::INVAL) => Err(Errno::SRCH),
            other => other,
        };
        sent.err().map_or(0, Errno::raw_os_error)
    }

    pub(super) fn members(&self) -> Vec<u32> {
        self.tree.as_ref().map(Tree::members).unwrap_or_default()
    }

    pub(super) fn tree_is_empty(&self) -> bool {
        self.tree.as_ref().is_none_or(Tree::is_empty)
    }

    pub(super) fn leave_tree(&mut self) -> Option<Tree> {
        self.tree.take()
    }

    /// The leader, if it is not reaped yet.
    pub(super) fn take_leader(&mut self) -> Option<OwnedFd> {
        let at = self.parts.iter().position(|(part, _)| *part == Part::Pidfd)?;
        self.exit.is_none().then(|| self.parts.swap_remove(at).1)
    }

    /// The owner wants the tree to end.
    pub(super) fn terminate(&mut self, ticket: u64, grace: Duration, now: Instant) -> Vec<Tell> {
        let was_running = self.exit.is_none();
        self.waiting.push(Waiting { ticket, was_running });
        self.seen.extend(self.members());
        if was_running || !self.seen.is_empty() {
            let send = self.ending.request(now, grace);
            self.send(send, now);
        }
        self.look(now)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let look = self.next_look.map(|(at, _)| at);
        let mover = self.mover.as_ref().and_then(Spool::deadline);
        [self.ending.deadline(), look, mover].into_iter().flatten().min()
    }

    pub(super) fn on_time(&mut self, now: Instant) -> Vec<Tell> {
        let send = self.ending.on_time(now);
        self.send(send, now);
        if let Some(mover) = &mut self.mover
            && mover.deadline().is_some_and(|at| at <= now)
        {
            mover.on_time(now, &mut keep_in(&mut self.parts));
        }
        if self.next_look.is_some_and(|(at, _)| at <= now) || self.exit.is_some() { self.look(now) } else { Vec::new() }
    }

    fn send(&mut self, send: Option<TerminationSignal>, now: Instant) {
        let (Some(send), Some(tree)) = (send, &self.tree) else { return };
        match send {
            TerminationSignal::Term => {
                tree.signal(libc::SIGTERM);
                // A stopped process hears nothing but KILL until it is told to go on.
                tree.signal(libc::SIGCONT);
            }
            TerminationSignal::Kill => {
                tree.kill();
                self.give_up = Some(now + TREE_EXIT_TIMEOUT);
            }
        }
        self.next_look = Some((now + FIRST_LOOK, FIRST_LOOK));
    }

    /// Is the tree gone? Tells those who asked, or sets the time of the next look.
    fn look(&mut self, now: Instant) -> Vec<Tell> {
        if self.waiting.is_empty() && self.next_look.is_none() {
            return Vec::new();
        }
        let members = self.members();
        self.seen.extend(&members);
        let gone = members.is_empty() && self.exit.is_some();
        let given_up = self.give_up.is_some_and(|at| now >= at);
        if !gone && !given_up {
            let pause = self.next_look.map_or(FIRST_LOOK, |(_, pause)| (pause * 2).min(LATER_LOOK));
            self.next_look = Some((now + pause, pause));
            return Vec::new();
        }
        if gone {
            self.give_up = None;
        }
        self.next_look = None;
        let left = members.len() as u32;
        let ended = self.seen.len() as u32 - left;
        let waiting = std::mem::take(&mut self.waiting);
        self.seen.clear();
        let tell = |Waiting { ticket, was_running }| Tell::Terminated { ticket, was_running, ended, left };
        waiting.into_iter().map(tell).collect()
    }

    fn part(&self, part: Part) -> Option<BorrowedFd<'_>> {
        self.parts.iter().find(|(held, _)| *held == part).map(|(_, descriptor)| descriptor.as_fd())
    }

    fn duplicate(&self, part: Part) -> Option<OwnedFd> {
        self.parts.iter().find(|(held, _)| *held == part).and_then(|(_, descriptor)| duplicate(descriptor).ok())
    }

    /// Takes the log over from an owner that is gone.
    pub(super) fn begin_moving(&mut self, folder: &Arc<Folder>) -> Result<(), Errno> {
        let files = Files {
            index: self.duplicate(Part::Index),
            data: [self.duplicate(Part::Data0), self.duplicate(Part::Data1)],
        };
        let sources = streams(self.card.io).iter().filter_map(|stream| Some((stream, self.duplicate_source(stream)?)));
        let mut mover = Spool::resume(folder.clone(), files, self.card.quota, sources.collect())?;
        if mover.head().closed {
            return Ok(());
        }
        if let Some(exit) = self.exit {
            mover.exited(
                exit,
                Turn { now: Instant::now(), others_ready: true, wanted: None },
                &mut keep_in(&mut self.parts),
            );
        }
        self.mover = Some(mover);
        Ok(())
    }

    fn duplicate_source(&self, stream: Stream) -> Option<Source> {
        match stream {
            Stream::Stdout => Some(Source::Pipe(Arc::new(self.duplicate(Part::Stdout)?))),
            Stream::Stderr => Some(Source::Pipe(Arc::new(self.duplicate(Part::Stderr)?))),
            Stream::Pty => Some(Source::Pty {
                master: Arc::new(self.duplicate(Part::Master)?),
                relay: (self.duplicate(Part::RelayOut)?, self.duplicate(Part::RelayIn)?),
            }),
        }
    }

    /// Nobody waits any more to hear that the tree is gone. It is ended all the same.
    pub(super) fn forget_askers(&mut self) {
        self.waiting.clear();
    }

    /// Lets the log go; answers which streams were being watched.
    pub(super) fn stop_moving(&mut self) -> Vec<Stream> {
        let watched = self.moving().iter().collect();
        self.mover = None;
        watched
    }

    /// Streams we move.
    pub(super) fn moving(&self) -> StreamSet {
        self.mover.as_ref().map_or(StreamSet::NONE, Spool::open)
    }

    /// The descriptor of a stream in the epoll set: our own one, which outlives the mover's duplicate.
    pub(super) fn source(&self, stream: Stream) -> Option<BorrowedFd<'_>> {
        match stream {
            Stream::Stdout => self.part(Part::Stdout),
            Stream::Stderr => self.part(Part::Stderr),
            Stream::Pty => self.part(Part::Master),
        }
    }

    pub(super) fn pump(&mut self, stream: Stream, turn: Turn) -> Option<Pumped> {
        let mover = self.mover.as_mut()?;
        Some(mover.pump(stream, turn, &mut keep_in(&mut self.parts)))
    }

    pub(super) fn tell_log_of_exit(&mut self, exit: Exit) {
        if let Some(mover) = &mut self.mover {
            let turn = Turn { now: Instant::now(), others_ready: true, wanted: None };
            mover.exited(exit, turn, &mut keep_in(&mut self.parts));
        }
    }

    pub(super) fn end_stream(&mut self, stream: Stream) {
        match stream {
            Stream::Stdout => self.let_go(Part::Stdout),
            Stream::Stderr => self.let_go(Part::Stderr),
            Stream::Pty => {
                self.let_go(Part::RelayOut);
                self.let_go(Part::RelayIn);
                self.let_go(Part::Master);
            }
        }
    }

    pub(super) fn droppable_bytes(&self) -> u64 {
        match (&self.mover, self.card.quota.overflow) {
            (Some(mover), exec_core::Overflow::DropOldest) => mover.cost_bytes(),
            _ => 0,
        }
    }

    pub(super) fn shed(&mut self, bytes: u64) {
        if let Some(mover) = &mut self.mover {
            mover.shed(bytes, None);
        }
    }
}

/// A new file is held by us before a byte of output goes into it.
fn keep_in(parts: &mut Vec<(Part, OwnedFd)>) -> impl FnMut(Kept, &OwnedFd) -> Result<(), Errno> {
    |kept, file| {
        parts.push((Part::of(kept), duplicate(file)?));
        Ok(())
    }
}
