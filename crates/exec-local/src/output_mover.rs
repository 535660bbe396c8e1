//! The task that moves one process's output into its spool: it waits for one event, acts on it, publishes the log's
//! head.
//!
//! All it knows of readers is how far the slowest has read. When the keeper dies, it goes on with the descriptors it
//! has, waits for the leader by its pidfd, and logs that the exit status is lost.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use exec_core::{Exit, Head, Stall, Stream};
use exec_keeper::protocol::{FdRole, KeeperRequest, ProcessNumber};
use exec_keeper::spool::{LogFileKind, PumpContext, PumpOutcome, Spool};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};

use crate::descriptors::DescriptorPermit;
use crate::held_placeholders::HeldPlaceholders;
use crate::keeper_client::KeeperClient;
use crate::readers::Readers;

/// A descriptor that is registered with the runtime.
pub(crate) type AsyncDescriptor = Arc<AsyncFd<Arc<OwnedFd>>>;

/// What the process table sends to a mover. There is at most one exit; a `Shed` may be lost, because it is sent again.
#[derive(Debug)]
pub(crate) enum MoverNotification {
    /// The keeper reaped the leader.
    Exited(Exit),
    /// All logs together hold too much, and this one must drop so many bytes.
    Shed(u64),
}

/// Capacity of the channel of [`MoverNotification`]s.
pub(crate) const NOTIFICATIONS: usize = 8;

/// Descriptors of a process whose log is closed.
const FINISHED_DESCRIPTORS: usize = 5;

pub(crate) struct OutputMover {
    pub(crate) number: ProcessNumber,
    pub(crate) spool: Spool,
    pub(crate) sources: [Option<AsyncDescriptor>; 2],
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) permit: DescriptorPermit,
    pub(crate) head: watch::Sender<Head>,
    pub(crate) readers: Arc<Readers>,
    /// Since when the child waits for a reader.
    pub(crate) child_waits_since: Option<Instant>,
    pub(crate) notifications: mpsc::Receiver<MoverNotification>,
    pub(crate) keeper: Arc<KeeperClient>,
    /// The keeper outlives us, so it must hold every file of the log before we fill it.
    pub(crate) durable: bool,
    /// How many movers have found more output than one splice takes.
    pub(crate) flooding_movers: Arc<AtomicUsize>,
    pub(crate) over_cap: Arc<tokio::sync::Notify>,
    pub(crate) placeholders: HeldPlaceholders,
}

enum Event {
    Ready(usize),
    Notification(MoverNotification),
    Deadline,
    ReaderMoved,
    /// The slowest reader has read nothing for too long.
    ReaderTimedOut,
    KeeperGone,
    LeaderGone,
    /// The process was dropped by everybody who could send notifications.
    Abandoned,
}

impl OutputMover {
    pub(crate) async fn run(mut self) {
        let mut gone = self.keeper.gone();
        let mut leader: Option<AsyncFd<OwnedFd>> = None;
        let mut flooding = false;
        self.publish();
        while !self.spool.head().closed {
            let keeper_known_gone = leader.is_some() || self.pidfd.is_none();
            let event = self.next_event(&mut gone, keeper_known_gone, leader.as_ref()).await;
            let moved = matches!(event, Event::Ready(_));
            let leader_ended = matches!(event, Event::Notification(MoverNotification::Exited(_)));
            match event {
                Event::Ready(at) => {
                    let more = self.pump(at);
                    self.count_flood(&mut flooding, more);
                }
                Event::Notification(MoverNotification::Exited(exit)) => self.exited(exit),
                Event::Notification(MoverNotification::Shed(bytes)) => {
                    self.spool.shed(bytes, self.readers.first_needed());
                }
                Event::Deadline => self.on_time(),
                Event::ReaderMoved => self.pump_all(),
                Event::ReaderTimedOut => {
                    self.readers.ignore_slowest();
                    self.pump_all();
                }
                Event::KeeperGone => match self.pidfd.take().map(AsyncFd::new) {
                    Some(Ok(pidfd)) => leader = Some(pidfd),
                    _ => self.exited(Exit::LOST),
                },
                Event::LeaderGone => {
                    self.exited(Exit::LOST);
                    leader = None;
                }
                Event::Abandoned => return self.free_log().await,
            }
            if !moved {
                self.count_flood(&mut flooding, false);
            }
            if leader_ended || self.spool.head().closed {
                // Whoever is told of the end finds the workspace as it was.
                self.placeholders.remove_after(self.number, &self.keeper).await;
            }
            self.publish();
            if flooding {
                // A pipe that is filled as fast as it is emptied would keep us here, and other tasks must run too.
                tokio::task::yield_now().await;
            }
        }
        self.count_flood(&mut flooding, false);
        self.release_keeper_copies();
        // What is left is the log, and a stdin or a terminal that somebody may still have open.
        self.pidfd = None;
        self.permit.shrink_to(FINISHED_DESCRIPTORS);
        self.serve_closed_log().await;
        self.free_log().await;
    }

    /// The log is complete. Until its process is forgotten, it may have to drop output: its own, which could exceed the
    /// cap as long as a reader had not read it, or for other logs.
    async fn serve_closed_log(&mut self) {
        loop {
            let too_much = self.spool.trim(self.readers.first_needed());
            self.publish();
            tokio::select! {
                notification = self.notifications.recv() => match notification {
                    Some(MoverNotification::Shed(bytes)) => drop(self.spool.shed(bytes, self.readers.first_needed())),
                    Some(MoverNotification::Exited(_)) => {}
                    None => return,
                },
                () = self.readers.moved(), if too_much => {}
            }
        }
    }

    /// Frees the log's files. For a large one that takes milliseconds, so it happens on a blocking thread.
    async fn free_log(self) {
        if self.spool.log_files().is_without_bytes() {
            return;
        }
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    async fn next_event(
        &mut self,
        gone: &mut watch::Receiver<bool>,
        keeper_known_gone: bool,
        leader: Option<&AsyncFd<OwnedFd>>,
    ) -> Event {
        let deadline = self.spool.deadline();
        let waits = self.spool.head().stalled.is_some() || self.child_waits_since.is_some();
        // Whoever comes first is noted, for the next owner.
        let first_reader_counts = self.spool.nobody_reads();
        let patience = self.child_waits_since.and_then(|since| self.readers.deadline_of_slowest(since));
        let [first, second] = &self.sources;
        tokio::select! {
            // An exit comes first: handling it drains what the leader printed, even if another process floods the pipe.
            biased;
            notification = self.notifications.recv() => notification.map_or(Event::Abandoned, Event::Notification),
            () = until(deadline) => Event::Deadline,
            // On a full disk, what was read can be dropped.
            () = self.readers.moved(), if waits || first_reader_counts => Event::ReaderMoved,
            () = until(patience) => Event::ReaderTimedOut,
            () = ready(first), if !waits => Event::Ready(0),
            () = ready(second), if !waits => Event::Ready(1),
            _ = gone.wait_for(|gone| *gone), if !keeper_known_gone => Event::KeeperGone,
            () = ended(leader) => Event::LeaderGone,
        }
    }

    /// Moves one splice; returns whether there may be more.
    fn pump(&mut self, at: usize) -> bool {
        let Some(source) = self.sources[at].clone() else { return false };
        // The readiness is taken before the splice: bytes that come after the pipe was found empty are a newer
        // readiness than this one, which alone is cleared.
        let mut readiness = match source.poll_read_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(guard)) => Some(guard),
            _ => None,
        };
        let stream = self.stream(at);
        let context = self.pump_context(self.flooding_movers.load(Ordering::Relaxed) > 1);
        let Some(pumped) = self.with_keeper_copy(|spool, register| spool.pump(stream, context, register)) else {
            // Another moves this process's output now.
            self.sources = [None, None];
            return false;
        };
        self.child_waits_since = match pumped {
            PumpOutcome::WaitingForReader => self.child_waits_since.or(Some(context.now)),
            _ => None,
        };
        match pumped {
            PumpOutcome::Moved { .. } => {
                if self.spool.excess_of_others() {
                    self.over_cap.notify_one();
                }
                return true;
            }
            PumpOutcome::Empty => {
                if let Some(guard) = &mut readiness {
                    guard.clear_ready();
                }
            }
            PumpOutcome::Eof => self.sources[at] = None,
            PumpOutcome::Stalled | PumpOutcome::WaitingForReader => {}
        }
        false
    }

    fn pump_context(&self, others_ready: bool) -> PumpContext {
        PumpContext { now: Instant::now(), others_ready, wanted: self.readers.first_needed() }
    }

    fn exited(&mut self, exit: Exit) {
        let context = self.pump_context(true);
        self.with_keeper_copy(|spool, register| spool.on_exit(exit, context, register));
        for at in 0..2 {
            if self.sources[at].is_some() && !self.spool.open_streams().contains(self.stream(at)) {
                self.sources[at] = None;
            }
        }
        if self.child_waits_since.is_some() {
            // The end of a stream can be seen although the output before it waits for a reader.
            self.pump_all();
        }
    }

    fn on_time(&mut self) {
        let was_stalled = self.spool.head().stalled.is_some();
        let wanted = self.readers.first_needed();
        self.with_keeper_copy(|spool, register| spool.on_time(Instant::now(), wanted, register));
        if was_stalled {
            self.pump_all();
        }
    }

    /// Moves one splice of each stream, whether or not it is known to be readable.
    fn pump_all(&mut self) {
        for at in 0..2 {
            if self.sources[at].is_some() {
                self.pump(at);
            }
        }
    }

    /// All streams have ended, so the keeper may close its copies. It learns that here and not at the end of each
    /// stream, to be woken once.
    fn release_keeper_copies(&self) {
        let roles: &[FdRole] = match self.stream(0) {
            // The terminal itself stays open, because stdin is written to it.
            Stream::Pty => &[FdRole::RelayRead, FdRole::RelayWrite],
            Stream::Stdout | Stream::Stderr => &[FdRole::Stdout, FdRole::Stderr],
        };
        for role in roles {
            // If the keeper's socket is full now, it keeps the descriptor until the process is forgotten.
            let _ = self.keeper.try_send(&KeeperRequest::CloseFd { number: self.number, role: *role }, None);
        }
    }

    fn stream(&self, at: usize) -> Stream {
        match at {
            1 => Stream::Stderr,
            _ if self.spool.is_pty() => Stream::Pty,
            _ => Stream::Stdout,
        }
    }

    /// `None` if we are not connected to the keeper any more: it has taken over, or the next owner has.
    fn with_keeper_copy<T>(
        &mut self,
        pump: impl FnOnce(&mut Spool, exec_keeper::spool::RegisterFile<'_>) -> T,
    ) -> Option<T> {
        let _moving = self.keeper.begin_move()?;
        let (keeper, number, durable) = (&self.keeper, self.number, self.durable);
        let mut register = |kind: LogFileKind, file: &OwnedFd| {
            if !durable {
                return Ok(());
            }
            match keeper.try_send(&KeeperRequest::AddFd { number, role: FdRole::of_log_file(kind) }, Some(file)) {
                // The keeper is gone, so there will be no next owner to keep the file for.
                Err(Errno::PIPE | Errno::CONNRESET | Errno::CONNREFUSED | Errno::NOTCONN) => Ok(()),
                other => other,
            }
        };
        Some(pump(&mut self.spool, &mut register))
    }

    fn publish(&self) {
        let mut now = self.spool.head();
        if self.child_waits_since.is_some() && !now.closed {
            now.stalled = now.stalled.or(Some(Stall::Reader));
        }
        self.head.send_if_modified(|head| std::mem::replace(head, now) != now);
    }

    fn count_flood(&self, flooding: &mut bool, now: bool) {
        if *flooding != now {
            *flooding = now;
            if now {
                self.flooding_movers.fetch_add(1, Ordering::Relaxed);
            } else {
                self.flooding_movers.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// Registers the source of a stream with the runtime.
pub(crate) fn watch_source(spool: &Spool, stream: Stream) -> Option<AsyncDescriptor> {
    let source = spool.source(stream)?.clone();
    let watched = match stream {
        // Also for writing, because stdin is written to it.
        Stream::Pty => AsyncFd::new(source),
        Stream::Stdout | Stream::Stderr => AsyncFd::with_interest(source, Interest::READABLE),
    };
    watched.ok().map(Arc::new)
}

async fn ready(source: &Option<AsyncDescriptor>) {
    match source {
        Some(source) => match source.readable().await {
            Ok(mut guard) => guard.retain_ready(),
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

async fn ended(leader: Option<&AsyncFd<OwnedFd>>) {
    match leader {
        Some(leader) => drop(leader.readable().await),
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
