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
use exec_keeper::protocol::{Ask, Number, Part};
use exec_keeper::spool::{Kept, Pumped, Spool, Turn};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};

use crate::clerk::Clerk;
use crate::readers::Readers;

/// A descriptor the runtime waits for.
pub(crate) type Watched = Arc<AsyncFd<Arc<OwnedFd>>>;

/// What a mover is told. At most one exit and one loss come; sheds are asked for one at a time.
#[derive(Debug)]
pub(crate) enum Notice {
    /// The keeper reaped the leader.
    Exited(Exit),
    /// All logs together hold too much; this one gives back.
    Shed(u64),
}

/// Room for notices; see [`Notice`].
pub(crate) const NOTICES: usize = 8;

pub(crate) struct Mover {
    pub(crate) number: Number,
    pub(crate) spool: Spool,
    pub(crate) sources: [Option<Watched>; 2],
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) head: watch::Sender<Head>,
    pub(crate) readers: Arc<Readers>,
    /// Since when the child waits for a reader.
    pub(crate) held: Option<Instant>,
    pub(crate) notices: mpsc::Receiver<Notice>,
    pub(crate) clerk: Arc<Clerk>,
    /// Somebody outlives us who must hold every file of the log before it is filled.
    pub(crate) durable: bool,
    /// Movers that are in the middle of a flood.
    pub(crate) busy: Arc<AtomicUsize>,
    pub(crate) over_cap: Arc<tokio::sync::Notify>,
}

enum Event {
    Ready(usize),
    Notice(Notice),
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

impl Mover {
    pub(crate) async fn run(mut self) {
        let mut gone = self.clerk.gone();
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
                    self.mark_flood(&mut flooding, more);
                }
                Event::Notice(Notice::Exited(exit)) => self.exited(exit),
                Event::Notice(Notice::Shed(bytes)) => drop(self.spool.shed(bytes, self.readers.wanted())),
                Event::Time => self.on_time(),
                Event::Read => self.pump_all(),
                Event::Unread => {
                    self.readers.give_up();
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
                Event::Abandoned => return self.retire().await,
            }
            if !moved {
                self.mark_flood(&mut flooding, false);
            }
            self.publish();
            if flooding {
                // A pipe that is filled as fast as it is emptied would keep us here; others want their turn.
                tokio::task::yield_now().await;
            }
        }
        self.mark_flood(&mut flooding, false);
        self.release();
        self.keep_in_bounds().await;
        self.retire().await;
    }

    /// The log is complete, but its last words may be too much until somebody has read them, and it may be asked to give
    /// room to others, until its process is forgotten.
    async fn keep_in_bounds(&mut self) {
        loop {
            let too_much = self.spool.trim(self.readers.wanted());
            self.publish();
            tokio::select! {
                notice = self.notices.recv() => match notice {
                    Some(Notice::Shed(bytes)) => drop(self.spool.shed(bytes, self.readers.wanted())),
                    Some(Notice::Exited(_)) => {}
                    None => return,
                },
                () = self.readers.moved(), if too_much => {}
            }
        }
    }

    /// Freeing a large file takes milliseconds, which nobody on this thread should wait for. A log without bytes has none.
    async fn retire(self) {
        if self.spool.shelf().is_without_bytes() {
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
        let waits = self.spool.head().stalled || self.held.is_some();
        let patience = self.held.and_then(|since| self.readers.patience(since));
        let [first, second] = &self.sources;
        tokio::select! {
            // An exit is told first: what the leader printed is drained by it, whoever else floods the pipe.
            biased;
            notice = self.notices.recv() => notice.map_or(Event::Abandoned, Event::Notice),
            () = until(deadline) => Event::Time,
            () = self.readers.moved(), if self.held.is_some() => Event::Read,
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
        let turn = self.turn(self.busy.load(Ordering::Relaxed) > 1);
        let pumped = self.with_keep(|spool, keep| spool.pump(stream, turn, keep));
        self.held = match pumped {
            Pumped::Held => self.held.or(Some(turn.now)),
            _ => None,
        };
        match pumped {
            Pumped::Moved { .. } => {
                if self.spool.excess_of_others() {
                    self.over_cap.notify_one();
                }
                return true;
            }
            Pumped::Dry => {
                if let Some(guard) = &mut known {
                    guard.clear_ready();
                }
            }
            Pumped::Eof => self.let_go(at),
            Pumped::Stalled | Pumped::Held => {}
        }
        false
    }

    fn turn(&self, others_ready: bool) -> Turn {
        Turn { now: Instant::now(), others_ready, wanted: self.readers.wanted() }
    }

    fn exited(&mut self, exit: Exit) {
        let turn = self.turn(true);
        self.with_keep(|spool, keep| spool.exited(exit, turn, keep));
        for at in 0..2 {
            if self.sources[at].is_some() && !self.spool.open().contains(self.stream(at)) {
                self.let_go(at);
            }
        }
        if self.held.is_some() {
            // No reader needs to move for the end of a stream to be seen.
            self.pump_all();
        }
    }

    fn on_time(&mut self) {
        let was_stalled = self.spool.head().stalled;
        self.with_keep(|spool, keep| spool.on_time(Instant::now(), keep));
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
    fn let_go(&mut self, at: usize) {
        self.sources[at] = None;
    }

    /// All streams have ended: the keeper closes its side of them.
    fn release(&self) {
        let parts: &[Part] = match self.stream(0) {
            // The terminal itself stays: it is also the way in.
            Stream::Pty => &[Part::RelayOut, Part::RelayIn],
            Stream::Stdout | Stream::Stderr => &[Part::Stdout, Part::Stderr],
        };
        for part in parts {
            // Costs the keeper a descriptor until the process is forgotten, if its line is full now.
            let _ = self.clerk.say_now(&Ask::Drop { number: self.number, part: *part }, None);
        }
    }

    fn stream(&self, at: usize) -> Stream {
        match at {
            1 => Stream::Stderr,
            _ if self.spool.is_pty() => Stream::Pty,
            _ => Stream::Stdout,
        }
    }

    fn with_keep<T>(&mut self, pump: impl FnOnce(&mut Spool, exec_keeper::spool::Keep<'_>) -> T) -> T {
        let (clerk, number, durable) = (&self.clerk, self.number, self.durable);
        let mut keep = |kept: Kept, file: &OwnedFd| {
            if !durable {
                return Ok(());
            }
            match clerk.say_now(&Ask::Keep { number, part: Part::of(kept) }, Some(file)) {
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

    fn mark_flood(&self, flooding: &mut bool, now: bool) {
        if *flooding != now {
            *flooding = now;
            if now {
                self.busy.fetch_add(1, Ordering::Relaxed);
            } else {
                self.busy.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// The source of a lane, ready to be waited for.
pub(crate) fn watch_source(spool: &Spool, stream: Stream) -> Option<Watched> {
    let source = spool.source(stream)?.clone();
    let watched = match stream {
        // It is also the way in.
        Stream::Pty => AsyncFd::new(source),
        Stream::Stdout | Stream::Stderr => AsyncFd::with_interest(source, Interest::READABLE),
    };
    watched.ok().map(Arc::new)
}

async fn ready(source: &Option<Watched>) {
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
