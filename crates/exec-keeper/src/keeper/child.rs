//! One child of the keeper: its descriptors, its tree and how that is terminated, and its log while the keeper moves it.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec_core::lifecycle::StreamSet;
use exec_core::limits::{READER_TIMEOUT, REMEMBERED_SIGNALS, TREE_EXIT_TIMEOUT};
use exec_core::termination::{Termination, TerminationSignal};
use exec_core::{Exit, ExitCause, ExitStatus, Io, Limit, LimitReport, LimitSet, Seq, Stream};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::protocol::{FdRole, KeeperEvent, LaunchRequest, ProcessNumber, ProcessRecord, SignalKey};
use crate::spawn::Spawned;
use crate::spool::directory::SpoolDirectory;
use crate::spool::{LogFileKind, OutputSource, PumpContext, PumpOutcome, RecoveredFiles, Spool};
use crate::sys::pidfd;
use crate::tree::{CpuCheck, Leader, Tree};

/// How long to wait between two looks at a tree that was signalled. The time doubles from the first to the longest.
const FIRST_CHECK: Duration = Duration::from_micros(300);
const LONGEST_CHECK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Child {
    number: ProcessNumber,
    pid: u32,
    record: ProcessRecord,
    fds: Vec<(FdRole, OwnedFd)>,
    /// Its end of the terminal, until the leader has exited.
    terminal: Option<OwnedFd>,
    exit: Option<Exit>,
    /// `None` once it was found empty and given back.
    tree: Option<Tree>,
    termination: Termination,
    /// Requests to be answered when the tree is gone.
    pending_terminations: Vec<PendingTermination>,
    /// When to look at the tree again, and how long we waited for that.
    next_check: Option<(Instant, Duration)>,
    /// When to look at the processor time that the tree has used, if that is limited.
    next_cpu_look: Option<Instant>,
    /// When to answer even though the tree is not gone.
    give_up_at: Option<Instant>,
    /// Members seen since the tree was first signalled, to count how many ended.
    seen_pids: BTreeSet<u32>,
    /// Whether TERM was sent, after which an exit of its own may still be our doing.
    term_sent: bool,
    /// Set while there is no owner to move the output.
    spool: Option<Spool>,
    /// Until when we drop nothing: somebody has read along, lost the connection with the owner, and may come back.
    reader_awaited_until: Option<Instant>,
    /// Whether the output waits for that.
    waits_for_reader: bool,
    /// The keys of the last signals that were sent. They are here because the keeper outlives its owners, and so knows
    /// what an owner that died had asked for.
    signal_keys: VecDeque<SignalKey>,
}

/// An event and the id of the request that it answers.
pub(super) type Answer = (u64, KeeperEvent);

#[derive(Debug)]
struct PendingTermination {
    request_id: u64,
    was_running: bool,
}

impl Child {
    pub(super) fn new(
        number: ProcessNumber,
        launch: &LaunchRequest,
        spawned: Spawned,
        tree: Tree,
        now: Instant,
    ) -> Self {
        let next_cpu_look = match tree.look_at_cpu(now) {
            Some(CpuCheck::NextAt(at)) => Some(at),
            Some(CpuCheck::UsedUp) => Some(now),
            None => None,
        };
        let record = ProcessRecord { limits: tree.limit_report(), ..launch.record.clone() };
        Self {
            number,
            pid: spawned.pid,
            record,
            fds: spawned.fds,
            terminal: spawned.terminal,
            exit: None,
            tree: Some(tree),
            termination: Termination::new(now, launch.time_limit),
            pending_terminations: Vec::new(),
            next_check: None,
            next_cpu_look,
            give_up_at: None,
            seen_pids: BTreeSet::new(),
            term_sent: false,
            spool: None,
            reader_awaited_until: None,
            waits_for_reader: false,
            signal_keys: VecDeque::new(),
        }
    }

    /// How a new owner is told of this child. `roles` are those of the descriptors that go with it.
    pub(super) fn existing(&self, roles: Vec<FdRole>) -> KeeperEvent {
        let record = Box::new(self.record.clone());
        let (number, pid, exit) = (self.number, self.pid, self.exit);
        KeeperEvent::ExistingProcess { number, pid, exit, roles, record }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let check = self.next_check.map(|(at, _)| at);
        let spool = self.spool.as_ref().and_then(Spool::deadline);
        let reader = self.reader_awaited_until.filter(|_| self.waits_for_reader);
        [self.termination.deadline(), check, self.next_cpu_look, spool, reader].into_iter().flatten().min()
    }

    pub(super) fn on_time(&mut self, now: Instant) -> Vec<Answer> {
        let signal = self.termination.on_time(now);
        self.signal_tree(signal, now);
        if self.next_cpu_look.is_some_and(|at| at <= now) {
            self.look_at_cpu(now);
        }
        let wanted = self.wanted(now);
        self.waits_for_reader &= wanted.is_some();
        if let Some(spool) = &mut self.spool
            && spool.deadline().is_some_and(|at| at <= now)
        {
            spool.on_time(now, wanted, &mut register_in(&mut self.fds));
        }
        let check_is_due = self.next_check.is_some_and(|(at, _)| at <= now);
        if check_is_due || self.exit.is_some() { self.check_tree(now) } else { Vec::new() }
    }
}

/// Descriptors.
impl Child {
    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.fd(FdRole::Pidfd).expect("every child is made with a pidfd, and `close_fd` never closes it")
    }

    pub(super) fn fds(&self) -> (Vec<FdRole>, Vec<BorrowedFd<'_>>) {
        self.fds.iter().map(|(role, descriptor)| (*role, descriptor.as_fd())).unzip()
    }

    pub(super) fn add_fd(&mut self, role: FdRole, descriptor: OwnedFd) {
        self.close_fd(role);
        self.fds.push((role, descriptor));
    }

    pub(super) fn close_fd(&mut self, role: FdRole) {
        if role != FdRole::Pidfd {
            self.fds.retain(|(held, _)| *held != role);
        }
    }

    fn fd(&self, role: FdRole) -> Option<BorrowedFd<'_>> {
        self.fds.iter().find(|(held, _)| *held == role).map(|(_, descriptor)| descriptor.as_fd())
    }

    fn duplicate(&self, role: FdRole) -> Option<OwnedFd> {
        self.fd(role).and_then(|descriptor| duplicate(descriptor).ok())
    }
}

/// The leader and its tree.
impl Child {
    /// Reaps the leader if it has exited and was not reaped before.
    pub(super) fn reap(&mut self) -> Option<Exit> {
        if self.exit.is_some() {
            return None;
        }
        let exit = match pidfd::reap(self.pidfd()) {
            Ok(None) => return None,
            Ok(Some((status, usage))) => {
                let cause = self.cause(status);
                let tree = self.tree.as_ref();
                let limits_reached = tree.map_or(LimitSet::NONE, |tree| tree.limits_reached((status, cause, usage)));
                Exit { status, cause: by_limit(status, cause, limits_reached), usage, limits_reached }
            }
            // The host program of an embedded keeper has waited for our child itself, so nobody can tell how it ended.
            Err(_) => Exit::LOST,
        };
        self.exit = Some(exit);
        self.terminal = None;
        self.termination.on_leader_exit();
        Some(exit)
    }

    fn cause(&self, status: ExitStatus) -> ExitCause {
        let killed = matches!(status, ExitStatus::Signal { number: libc::SIGKILL, .. });
        match self.termination.cause() {
            // KILL leaves no other trace: this one ended by itself, just before.
            ExitCause::Terminated | ExitCause::TimedOut | ExitCause::CpuLimit if !killed && !self.term_sent => {
                ExitCause::Own
            }
            ExitCause::Own if killed && self.tree.as_ref().is_some_and(Tree::was_out_of_memory) => {
                ExitCause::OutOfMemory
            }
            cause => cause,
        }
    }

    pub(super) fn has_number(&self, number: ProcessNumber) -> bool {
        self.number == number
    }

    /// Closes what a child that was forgotten does not need, and reaps its leader. The result is whether it was reaped.
    pub(super) fn let_go(&mut self) -> bool {
        self.fds.retain(|(role, _)| *role == FdRole::Pidfd);
        self.exit.is_some() || self.reap().is_some()
    }

    pub(super) fn is_unreaped_leader(&self, pid: u32) -> bool {
        self.exit.is_none() && self.pid == pid
    }

    pub(super) fn take_unreaped_pidfd(&mut self) -> Option<OwnedFd> {
        let at = self.fds.iter().position(|(role, _)| *role == FdRole::Pidfd)?;
        self.exit.is_none().then(|| self.fds.swap_remove(at).1)
    }

    /// The same as [`Self::signal`], unless a signal with this key was sent before. One that failed was not sent.
    pub(super) fn signal_once(&mut self, signal: i32, key: Option<SignalKey>) -> i32 {
        let Some(key) = key else { return self.signal(signal) };
        if self.signal_keys.contains(&key) {
            return 0;
        }
        let errno = self.signal(signal);
        if errno == 0 {
            self.signal_keys.push_back(key);
            if self.signal_keys.len() > REMEMBERED_SIGNALS {
                self.signal_keys.pop_front();
            }
        }
        errno
    }

    /// Signals the leader's process group. The result is an errno, or 0.
    fn signal(&self, signal: i32) -> i32 {
        let sent = match pidfd::signal_group(self.pidfd(), signal) {
            // A kernel before 6.9. As long as the leader is not reaped, no other group can have its number.
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

    /// The tree, without zombies; the leader is among them until it was reaped.
    pub(super) fn members(&self) -> Vec<u32> {
        let leader = self.leader();
        let mut members = self.tree.as_ref().map(|tree| tree.members(leader)).unwrap_or_default();
        if let Some(leader) = leader.filter(|leader| !members.contains(&leader.pid)) {
            members.push(leader.pid);
        }
        members
    }

    fn leader(&self) -> Option<Leader<'_>> {
        self.exit.is_none().then(|| Leader { pid: self.pid, pidfd: self.pidfd() })
    }

    pub(super) fn tree_is_empty(&self) -> bool {
        self.tree.as_ref().is_none_or(Tree::is_empty)
    }

    pub(super) fn take_tree(&mut self) -> Option<Tree> {
        self.tree.take()
    }

    pub(super) fn terminate(&mut self, request_id: u64, grace: Duration, now: Instant) -> Vec<Answer> {
        let was_running = self.exit.is_none();
        self.pending_terminations.push(PendingTermination { request_id, was_running });
        self.seen_pids.extend(self.members());
        if was_running || !self.seen_pids.is_empty() {
            let signal = self.termination.request(now, grace);
            self.signal_tree(signal, now);
        }
        self.check_tree(now)
    }

    /// The tree is terminated all the same, but nobody is told.
    pub(super) fn forget_termination_requests(&mut self) {
        self.pending_terminations.clear();
    }

    pub(super) fn limit_report(&self) -> Option<LimitReport> {
        self.record.limits
    }

    /// Also after the leader's end: what it left behind has the limit too.
    fn look_at_cpu(&mut self, now: Instant) {
        let look = self.tree.as_ref().filter(|tree| self.exit.is_none() || !tree.is_empty());
        self.next_cpu_look = match look.and_then(|tree| tree.look_at_cpu(now)) {
            Some(CpuCheck::NextAt(at)) => Some(at),
            Some(CpuCheck::UsedUp) => {
                let signal = self.termination.on_cpu_limit(now);
                self.signal_tree(signal, now);
                None
            }
            None => None,
        };
    }

    fn signal_tree(&mut self, signal: Option<TerminationSignal>, now: Instant) {
        let Some(signal) = signal else { return };
        match signal {
            TerminationSignal::Term => {
                self.term_sent = true;
                if let Some(tree) = &self.tree {
                    tree.signal(self.leader(), Signal::TERM);
                    // A stopped process takes no signal but KILL until it is continued.
                    tree.signal(self.leader(), Signal::CONT);
                }
            }
            TerminationSignal::Kill => {
                self.kill_tree();
                self.give_up_at = Some(now + TREE_EXIT_TIMEOUT);
            }
        }
        self.next_check = Some((now + FIRST_CHECK, FIRST_CHECK));
    }

    pub(super) fn kill_tree(&self) {
        if let Some(tree) = &self.tree {
            tree.kill(self.leader());
        }
        if self.exit.is_none() {
            // Its group too, which is all that we know of where there is neither a cgroup nor /proc.
            self.signal(libc::SIGKILL);
        }
    }

    /// Answers the pending terminations if the tree is gone or was given up; otherwise sets the time of the next check.
    fn check_tree(&mut self, now: Instant) -> Vec<Answer> {
        if self.pending_terminations.is_empty() && self.next_check.is_none() {
            return Vec::new();
        }
        let members = self.members();
        self.seen_pids.extend(&members);
        let gone = members.is_empty() && self.exit.is_some();
        let given_up = self.give_up_at.is_some_and(|at| now >= at);
        if !gone && !given_up {
            if self.termination.killed() {
                // Some may have been forked, or come into sight, since.
                self.kill_tree();
            }
            let pause = self.next_check.map_or(FIRST_CHECK, |(_, pause)| (pause * 2).min(LONGEST_CHECK));
            self.next_check = Some((now + pause, pause));
            return Vec::new();
        }
        if gone {
            self.give_up_at = None;
        }
        self.next_check = None;
        let left = members.len() as u32;
        let ended = self.seen_pids.len() as u32 - left;
        self.seen_pids.clear();
        let answer = |PendingTermination { request_id, was_running }| {
            (request_id, KeeperEvent::Terminated { was_running, ended, left })
        };
        std::mem::take(&mut self.pending_terminations).into_iter().map(answer).collect()
    }
}

/// The log, which the keeper moves while there is no owner.
impl Child {
    /// Goes on with the log of an owner that is gone.
    pub(super) fn start_moving(&mut self, directory: &Arc<SpoolDirectory>) -> Result<(), Errno> {
        let files = RecoveredFiles {
            index: self.duplicate(FdRole::Index),
            data: [self.duplicate(FdRole::Data0), self.duplicate(FdRole::Data1)],
        };
        let streams = match self.record.io {
            Io::Pipes { .. } => StreamSet::PIPES,
            Io::Pty(_) => StreamSet::PTY,
        };
        let sources = streams.iter().filter_map(|stream| Some((stream, self.duplicate_source(stream)?)));
        let spool = Spool::resume(directory.clone(), files, self.record.quota, sources.collect())?;
        if spool.head().closed {
            return Ok(());
        }
        self.reader_awaited_until = (!spool.nobody_reads()).then(|| Instant::now() + READER_TIMEOUT);
        self.spool = Some(spool);
        if let Some(exit) = self.exit {
            self.append_exit_to_log(exit);
        }
        Ok(())
    }

    fn duplicate_source(&self, stream: Stream) -> Option<OutputSource> {
        let source = Arc::new(self.duplicate(source_role(stream))?);
        Some(match stream {
            Stream::Stdout | Stream::Stderr => OutputSource::Pipe(source),
            Stream::Pty => OutputSource::Pty {
                master: source,
                relay: (self.duplicate(FdRole::RelayRead)?, self.duplicate(FdRole::RelayWrite)?),
            },
        })
    }

    /// Lets the log go. The result is the streams that may be in the epoll set.
    pub(super) fn stop_moving(&mut self) -> Vec<Stream> {
        let watched = self.moving_streams().iter().collect();
        self.spool = None;
        self.waits_for_reader = false;
        watched
    }

    pub(super) fn moving_streams(&self) -> StreamSet {
        self.spool.as_ref().map_or(StreamSet::NONE, Spool::open_streams)
    }

    /// The stream whose data file is in this slot.
    pub(super) fn stream(&self, slot: usize) -> Stream {
        match (slot, self.record.io) {
            (0, Io::Pty(_)) => Stream::Pty,
            (0, Io::Pipes { .. }) => Stream::Stdout,
            _ => Stream::Stderr,
        }
    }

    /// The descriptor that is in the epoll set: the child's own one, which outlives the spool's duplicate.
    pub(super) fn source(&self, stream: Stream) -> Option<BorrowedFd<'_>> {
        self.fd(source_role(stream))
    }

    /// The first entry that a reader may come back for: all that are held, for a while.
    fn wanted(&self, now: Instant) -> Option<Seq> {
        let is_awaited = self.reader_awaited_until.is_some_and(|until| now < until);
        self.spool.as_ref().filter(|_| is_awaited).map(|spool| spool.head().first_seq)
    }

    pub(super) fn pump(&mut self, stream: Stream, others_ready: bool) -> Option<PumpOutcome> {
        let now = Instant::now();
        let context = PumpContext { now, others_ready, wanted: self.wanted(now) };
        let pumped = self.spool.as_mut()?.pump(stream, context, &mut register_in(&mut self.fds));
        self.waits_for_reader |= pumped == PumpOutcome::WaitingForReader;
        Some(pumped)
    }

    pub(super) fn append_exit_to_log(&mut self, exit: Exit) {
        let now = Instant::now();
        let context = PumpContext { now, others_ready: true, wanted: self.wanted(now) };
        if let Some(spool) = &mut self.spool {
            spool.on_exit(exit, context, &mut register_in(&mut self.fds));
        }
    }

    pub(super) fn close_stream(&mut self, stream: Stream) {
        if stream == Stream::Pty {
            self.close_fd(FdRole::RelayRead);
            self.close_fd(FdRole::RelayWrite);
        }
        self.close_fd(source_role(stream));
    }

    /// How much of the log may be dropped for others: nothing while a reader may come back for it.
    pub(super) fn droppable_bytes(&self, now: Instant) -> u64 {
        match (&self.spool, self.record.quota.overflow, self.wanted(now)) {
            (Some(spool), exec_core::Overflow::DropOldest, None) => spool.cost_bytes(),
            _ => 0,
        }
    }

    pub(super) fn shed(&mut self, bytes: u64) {
        if let Some(spool) = &mut self.spool {
            spool.shed(bytes, None);
        }
    }
}

/// The cause of an end by a signal that the kernel sends for a limit.
fn by_limit(status: ExitStatus, cause: ExitCause, reached: LimitSet) -> ExitCause {
    match (cause, status) {
        (ExitCause::Own, ExitStatus::Signal { number: libc::SIGXFSZ, .. }) if reached.contains(Limit::FileBytes) => {
            ExitCause::FileSizeLimit
        }
        (ExitCause::Own, ExitStatus::Signal { .. }) if reached.contains(Limit::CpuSeconds) => ExitCause::CpuLimit,
        _ => cause,
    }
}

fn source_role(stream: Stream) -> FdRole {
    match stream {
        Stream::Stdout => FdRole::Stdout,
        Stream::Stderr => FdRole::Stderr,
        Stream::Pty => FdRole::PtyMaster,
    }
}

/// We must hold a new log file before output goes into it, or a later owner could not find that output.
fn register_in(fds: &mut Vec<(FdRole, OwnedFd)>) -> impl FnMut(LogFileKind, &OwnedFd) -> Result<(), Errno> {
    |kind, file| {
        fds.push((FdRole::of_log_file(kind), duplicate(file.as_fd())?));
        Ok(())
    }
}

/// Numbered above 2: those numbers belong to stdio (see `spawn::above_stdio`).
fn duplicate(descriptor: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, 3)
}
