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

use super::orphaned::{duplicate, streams};
use crate::protocol::{FdRole, KeeperEvent, LaunchRequest, ProcessNumber, ProcessRecord};
use crate::spawn::Spawned;
use crate::spool::directory::SpoolDirectory;
use crate::spool::{LogFileKind, OutputSource, PumpContext, PumpOutcome, RecoveredFiles, Spool};
use crate::sys::pidfd;
use crate::tree::Tree;

/// While a tree is termination, it is looked at this often: quickly at first, then calmly.
const FIRST_CHECK: Duration = Duration::from_micros(300);
const MAX_CHECK_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Child {
    number: ProcessNumber,
    pid: u32,
    record: ProcessRecord,
    fds: Vec<(FdRole, OwnedFd)>,
    exit: Option<Exit>,
    tree: Option<Tree>,
    termination: Termination,
    /// Who wants to know when the tree is gone.
    pending_terminations: Vec<PendingTermination>,
    next_check: Option<(Instant, Duration)>,
    give_up_at: Option<Instant>,
    seen_pids: BTreeSet<u32>,
    /// The log, while we move it.
    spool: Option<Spool>,
}

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
        Self {
            number,
            pid: spawned.pid,
            record: launch.record.clone(),
            fds: spawned.fds,
            exit: None,
            tree: Some(tree),
            termination: Termination::new(now, launch.time_limit),
            pending_terminations: Vec::new(),
            next_check: None,
            give_up_at: None,
            seen_pids: BTreeSet::new(),
            spool: None,
        }
    }

    pub(super) fn io(&self) -> Io {
        self.record.io
    }

    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.fd(FdRole::Pidfd).expect("every child is made with one, and it is never dropped")
    }

    pub(super) fn fds(&self) -> (Vec<FdRole>, Vec<BorrowedFd<'_>>) {
        self.fds.iter().map(|(role, descriptor)| (*role, descriptor.as_fd())).unzip()
    }

    pub(super) fn as_existing(&self, roles: Vec<FdRole>) -> KeeperEvent {
        KeeperEvent::ExistingProcess {
            number: self.number,
            pid: self.pid,
            exit: self.exit,
            roles,
            record: Box::new(self.record.clone()),
        }
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
        self.termination.on_leader_exit();
        Some(exit)
    }

    fn cause(&self, status: ExitStatus) -> ExitCause {
        let killed = matches!(status, ExitStatus::Signal { number: libc::SIGKILL, .. });
        match self.termination.cause() {
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

    pub(super) fn take_tree(&mut self) -> Option<Tree> {
        self.tree.take()
    }

    /// The leader, if it is not reaped yet.
    pub(super) fn take_unreaped_pidfd(&mut self) -> Option<OwnedFd> {
        let at = self.fds.iter().position(|(role, _)| *role == FdRole::Pidfd)?;
        self.exit.is_none().then(|| self.fds.swap_remove(at).1)
    }

    /// The owner wants the tree to end.
    pub(super) fn terminate(&mut self, request_id: u64, grace: Duration, now: Instant) -> Vec<KeeperEvent> {
        let was_running = self.exit.is_none();
        self.pending_terminations.push(PendingTermination { request_id, was_running });
        self.seen_pids.extend(self.members());
        if was_running || !self.seen_pids.is_empty() {
            let send = self.termination.request(now, grace);
            self.signal_tree(send, now);
        }
        self.check_tree(now)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let check = self.next_check.map(|(at, _)| at);
        let spool = self.spool.as_ref().and_then(Spool::deadline);
        [self.termination.deadline(), check, spool].into_iter().flatten().min()
    }

    pub(super) fn on_time(&mut self, now: Instant) -> Vec<KeeperEvent> {
        let send = self.termination.on_time(now);
        self.signal_tree(send, now);
        if let Some(spool) = &mut self.spool
            && spool.deadline().is_some_and(|at| at <= now)
        {
            spool.on_time(now, &mut register_in(&mut self.fds));
        }
        if self.next_check.is_some_and(|(at, _)| at <= now) || self.exit.is_some() {
            self.check_tree(now)
        } else {
            Vec::new()
        }
    }

    fn signal_tree(&mut self, send: Option<TerminationSignal>, now: Instant) {
        let (Some(send), Some(tree)) = (send, &self.tree) else { return };
        match send {
            TerminationSignal::Term => {
                tree.signal(libc::SIGTERM);
                // A stopped process hears nothing but KILL until it is told to go on.
                tree.signal(libc::SIGCONT);
            }
            TerminationSignal::Kill => {
                tree.kill();
                self.give_up_at = Some(now + TREE_EXIT_TIMEOUT);
            }
        }
        self.next_check = Some((now + FIRST_CHECK, FIRST_CHECK));
    }

    /// Is the tree gone? Tells those who asked, or sets the time of the next look.
    fn check_tree(&mut self, now: Instant) -> Vec<KeeperEvent> {
        if self.pending_terminations.is_empty() && self.next_check.is_none() {
            return Vec::new();
        }
        let members = self.members();
        self.seen_pids.extend(&members);
        let gone = members.is_empty() && self.exit.is_some();
        let given_up = self.give_up_at.is_some_and(|at| now >= at);
        if !gone && !given_up {
            let pause = self.next_check.map_or(FIRST_CHECK, |(_, pause)| (pause * 2).min(MAX_CHECK_INTERVAL));
            self.next_check = Some((now + pause, pause));
            return Vec::new();
        }
        if gone {
            self.give_up_at = None;
        }
        self.next_check = None;
        let left = members.len() as u32;
        let ended = self.seen_pids.len() as u32 - left;
        let pending_terminations = std::mem::take(&mut self.pending_terminations);
        self.seen_pids.clear();
        let event = |PendingTermination { request_id, was_running }| KeeperEvent::Terminated {
            request_id,
            was_running,
            ended,
            left,
        };
        pending_terminations.into_iter().map(event).collect()
    }

    fn fd(&self, role: FdRole) -> Option<BorrowedFd<'_>> {
        self.fds.iter().find(|(held, _)| *held == role).map(|(_, descriptor)| descriptor.as_fd())
    }

    fn duplicate(&self, role: FdRole) -> Option<OwnedFd> {
        self.fds.iter().find(|(held, _)| *held == role).and_then(|(_, descriptor)| duplicate(descriptor).ok())
    }

    /// Takes the log over from an owner that is gone.
    pub(super) fn start_moving(&mut self, directory: &Arc<SpoolDirectory>) -> Result<(), Errno> {
        let files = RecoveredFiles {
            index: self.duplicate(FdRole::Index),
            data: [self.duplicate(FdRole::Data0), self.duplicate(FdRole::Data1)],
        };
        let sources =
            streams(self.record.io).iter().filter_map(|stream| Some((stream, self.duplicate_source(stream)?)));
        let mut spool = Spool::resume(directory.clone(), files, self.record.quota, sources.collect())?;
        if spool.head().closed {
            return Ok(());
        }
        if let Some(exit) = self.exit {
            spool.on_exit(
                exit,
                PumpContext { now: Instant::now(), others_ready: true, wanted: None },
                &mut register_in(&mut self.fds),
            );
        }
        self.spool = Some(spool);
        Ok(())
    }

    fn duplicate_source(&self, stream: Stream) -> Option<OutputSource> {
        match stream {
            Stream::Stdout => Some(OutputSource::Pipe(Arc::new(self.duplicate(FdRole::Stdout)?))),
            Stream::Stderr => Some(OutputSource::Pipe(Arc::new(self.duplicate(FdRole::Stderr)?))),
            Stream::Pty => Some(OutputSource::Pty {
                master: Arc::new(self.duplicate(FdRole::PtyMaster)?),
                relay: (self.duplicate(FdRole::RelayRead)?, self.duplicate(FdRole::RelayWrite)?),
            }),
        }
    }

    /// Nobody waits any more to hear that the tree is gone. It is ended all the same.
    pub(super) fn forget_termination_requests(&mut self) {
        self.pending_terminations.clear();
    }

    /// Lets the log go; answers which streams were being watched.
    pub(super) fn stop_moving(&mut self) -> Vec<Stream> {
        let watched = self.moving_streams().iter().collect();
        self.spool = None;
        watched
    }

    /// Streams we move.
    pub(super) fn moving_streams(&self) -> StreamSet {
        self.spool.as_ref().map_or(StreamSet::NONE, Spool::open_streams)
    }

    /// The descriptor of a stream in the epoll set: our own one, which outlives the spool's duplicate.
    pub(super) fn source(&self, stream: Stream) -> Option<BorrowedFd<'_>> {
        match stream {
            Stream::Stdout => self.fd(FdRole::Stdout),
            Stream::Stderr => self.fd(FdRole::Stderr),
            Stream::Pty => self.fd(FdRole::PtyMaster),
        }
    }

    pub(super) fn pump(&mut self, stream: Stream, context: PumpContext) -> Option<PumpOutcome> {
        let spool = self.spool.as_mut()?;
        Some(spool.pump(stream, context, &mut register_in(&mut self.fds)))
    }

    pub(super) fn append_exit_to_log(&mut self, exit: Exit) {
        if let Some(spool) = &mut self.spool {
            let context = PumpContext { now: Instant::now(), others_ready: true, wanted: None };
            spool.on_exit(exit, context, &mut register_in(&mut self.fds));
        }
    }

    pub(super) fn close_stream(&mut self, stream: Stream) {
        match stream {
            Stream::Stdout => self.close_fd(FdRole::Stdout),
            Stream::Stderr => self.close_fd(FdRole::Stderr),
            Stream::Pty => {
                self.close_fd(FdRole::RelayRead);
                self.close_fd(FdRole::RelayWrite);
                self.close_fd(FdRole::PtyMaster);
            }
        }
    }

    pub(super) fn droppable_bytes(&self) -> u64 {
        match (&self.spool, self.record.quota.overflow) {
            (Some(spool), exec_core::Overflow::DropOldest) => spool.cost_bytes(),
            _ => 0,
        }
    }

    pub(super) fn shed(&mut self, bytes: u64) {
        if let Some(spool) = &mut self.spool {
            spool.shed(bytes, None);
        }
    }
}

/// A new file is held by us before a byte of output goes into it.
fn register_in(fds: &mut Vec<(FdRole, OwnedFd)>) -> impl FnMut(LogFileKind, &OwnedFd) -> Result<(), Errno> {
    |kind, file| {
        fds.push((FdRole::of_log_file(kind), duplicate(file)?));
        Ok(())
    }
}
