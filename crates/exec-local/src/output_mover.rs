//! The task that moves one process's output: it waits for one event, tells the spool, publishes the head.
//!
//! Of readers it knows the place of the slowest, and nothing else. When the keeper dies it goes on with what it holds, waits for the leader itself, and
//! says honestly that the exit code is lost.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use exec_core::{Exit, Head, Stream};
use exec_keeper::protocol::{KeeperRequest, ProcessNumber, FdRole};
use exec_keeper::spool::{LogFileKind, PumpOutcome, Spool, PumpContext};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};

use crate::keeper_client::KeeperClient;
use crate::readers::Readers;

/// A descriptor the runtime waits for.
pub(crate) type AsyncDescriptor = Arc<AsyncFd<Arc<OwnedFd>>>;

/// What a mover is told. At most one exit and one loss come; sheds are asked for one at a time.
#[derive(Debug)]
pub(crate) enum MoverNotification {
    /// The keeper reaped the leader.
    Exited(Exit),
    /// All logs together hold too much; this one gives back.
    Shed(u64),
}

/// Room for notices; see [`MoverNotification`].
pub(crate) const NOTIFICATIONS: usize = 8;

pub(crate) struct OutputMover {
    pub(crate) number: ProcessNumber,
    pub(crate) spool: Spool,
    pub(crate) sources: [Option<AsyncDescriptor>; 2],
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) head: watch::Sender<Head>,
    pub(crate) readers: Arc<Readers>,
    /// Since when the child waits for a reader.
    pub(crate) child_waits_since: Option<Instant>,
    pub(crate) notifications: mpsc::Receiver<MoverNotification>,
    pub(crate) keeper: Arc<KeeperClient>,
    /// Somebody outlives us who must hold every file of the log before it is filled.
    pub(crate) durable: bool,
    /// Movers that are in the middle of a flood.
    pub(crate) flooding_movers: Arc<AtomicUsize>,
    pub(crate) over_cap: Arc<tokio::sync::Notify>,
}

enum Event {
    Ready(usize),
    Notification(MoverNotification),
    Time,
    /// A reader moved or left.
    Read,
    /// The slowest reader has stood still for too long.
    Unread,
    KeeperGone,
    LeaderGone,
    /// Everybody who could want something of it has let go.
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
            match event {
                Event::Ready(at) => {
                    let more = self.pump(at);
                    self.count_flood(&mut flooding, more);
                }
                Event::Notification(MoverNotification::Exited(exit)) => self.exited(exit),
                Event::Notification(MoverNotification::Shed(bytes)) => {
                    self.spool.shed(bytes, self.readers.first_needed());
                }
                Event::Time => self.on_time(),
                Event::Read => self.pump_all(),
                Event::Unread => {
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
            self.publish();
            if flooding {
                // A pipe that is filled as fast as it is emptied would keep us here; others want their turn.
                tokio::task::yield_now().await;
            }
        }
        self.count_flood(&mut flooding, false);
        self.release_keeper_copies();
        self.serve_closed_log().await;
        self.free_log().await;
    }

    /// The log is complete, but its last words may be too much until somebody has read them, and it may be asked to give
    /// room to others, until its process is forgotten.
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

    /// Freeing a large file takes milliseconds, which nobody on this thread should wait for. A log without bytes has none.
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
        let waits = self.spool.head().stalled || self.child_waits_since.is_some();
        let patience = self.child_waits_since.and_then(|since| self.readers.deadline_of_slowest(since));
        let [first, second] = &self.sources;
        tokio::select! {
            // An exit is told first: what the leader printed is drained by it, whoever else floods the pipe.
            biased;
            notification = self.notifications.recv() => notification.map_or(Event::Abandoned, Event::Notification),
            () = until(deadline) => Event::Time,
            () = self.readers.moved(), if self.child_waits_since.is_some() => Event::Read,
            () = until(patience) => Event::Unread,
            () = ready(first), if !waits => Event::Ready(0),
            () = ready(second), if !waits => Event::Ready(1),
            _ = gone.wait_for(|gone| *gone), if !keeper_known_gone => Event::KeeperGone,
            () = ended(leader) => Event::LeaderGone,
        }
    }

    /// One bite; whether there may be more.
    fn pump(&mut self, at: usize) -> bool {
        let Some(source) = self.sources[at].clone() else { return false };
        // Taken before the bite: bytes that come after the pipe was found empty are a newer readiness than this one,
        // which alone is cleared.
        let mut known = match source.poll_read_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(guard)) => Some(guard),
            _ => None,
        };
        let stream = self.stream(at);
        let turn = self.pump_context(self.flooding_movers.load(Ordering::Relaxed) > 1);
        let pumped = self.with_keeper_copy(|spool, keep| spool.pump(stream, turn, keep));
        self.child_waits_since = match pumped {
            PumpOutcome::WaitingForReader => self.child_waits_since.or(Some(turn.now)),
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
                if let Some(guard) = &mut known {
                    guard.clear_ready();
                }
            }
            PumpOutcome::Eof => self.close_source(at),
            PumpOutcome::Stalled | PumpOutcome::WaitingForReader => {}
        }
        false
    }

    fn pump_context(&self, others_ready: bool) -> PumpContext {
        PumpContext { now: Instant::now(), others_ready, wanted: self.readers.first_needed() }
    }

    fn exited(&mut self, exit: Exit) {
        let turn = self.pump_context(true);
        self.with_keeper_copy(|spool, keep| spool.on_exit(exit, turn, keep));
        for at in 0..2 {
            if self.sources[at].is_some() && !self.spool.open_streams().contains(self.stream(at)) {
                self.close_source(at);
            }
        }
        if self.child_waits_since.is_some() {
            // No reader needs to move for the end of a stream to be seen.
            self.pump_all();
        }
    }

    fn on_time(&mut self) {
        let was_stalled = self.spool.head().stalled;
        self.with_keeper_copy(|spool, keep| spool.on_time(Instant::now(), keep));
        if was_stalled {
            self.pump_all();
        }
    }

    /// A bite of each stream, whether or not it is known to have something.
    fn pump_all(&mut self) {
        for at in 0..2 {
            if self.sources[at].is_some() {
                self.pump(at);
            }
        }
    }

    /// The stream has ended: our side of it closes. The keeper's waits for the end of all, so as not to be woken for each.
    fn close_source(&mut self, at: usize) {
        self.sources[at] = None;
    }

    /// All streams have ended: the keeper closes its side of them.
    fn release_keeper_copies(&self) {
        let parts: &[FdRole] = match self.stream(0) {
            // The terminal itself stays: it is also the way in.
            Stream::Pty => &[FdRole::RelayRead, FdRole::RelayWrite],
            Stream::Stdout | Stream::Stderr => &[FdRole::Stdout, FdRole::Stderr],
        };
        for part in parts {
            // Costs the keeper a descriptor until the process is forgotten, if its line is full now.
            let _ = self.keeper.try_send(&KeeperRequest::CloseFd { number: self.number, role: *part }, None);
        }
    }

    fn stream(&self, at: usize) -> Stream {
        match at {
            1 => Stream::Stderr,
            _ if self.spool.is_pty() => Stream::Pty,
            _ => Stream::Stdout,
        }
    }

    fn with_keeper_copy<T>(&mut self, pump: impl FnOnce(&mut Spool, exec_keeper::spool::RegisterFile<'_>) -> T) -> T {
        let (keeper, number, durable) = (&self.keeper, self.number, self.durable);
        let mut keep = |kept: LogFileKind, file: &OwnedFd| {
            if !durable {
                return Ok(());
            }
            match keeper.try_send(&KeeperRequest::AddFd { number, role: FdRole::of_log_file(kept) }, Some(file)) {
                // The keeper is gone and will not outlive us: from here on we alone hold what there is.
                Err(Errno::PIPE | Errno::CONNRESET | Errno::CONNREFUSED | Errno::NOTCONN) => Ok(()),
                other => other,
            }
        };
        pump(&mut self.spool, &mut keep)
    }

    fn publish(&self) {
        let now = self.spool.head();
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

/// The source of a lane, ready to be waited for.
pub(crate) fn watch_source(spool: &Spool, stream: Stream) -> Option<AsyncDescriptor> {
    let source = spool.source(stream)?.clone();
    let watched = match stream {
        // It is also the way in.
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
