//! The way in: stdin writes, in order, each once, acknowledged when the kernel has the bytes.
//!
//! A write that fits goes from the caller straight into the pipe. What does not fit waits in a task of its own, so
//! that a caller that gives up (its connection broke) does not cut a write in half: it is finished, and asked again it
//! is told so.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use exec_core::WriteId;
use exec_core::ledger::{Known, Ledger};
use exec_core::limits::QUEUED_WRITES;
use exec_env::process::Written;
use exec_keeper::protocol::{Ask, Number, Part};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};

use crate::clerk::Clerk;
use crate::mover::Watched;
use crate::stdin_notes::Notes;

/// One process's stdin.
pub(crate) struct Stdin {
    desk: Arc<Desk>,
    queue: mpsc::Sender<Job>,
}

/// What the callers and the task share.
struct Desk {
    number: Number,
    clerk: Arc<Clerk>,
    terminal: bool,
    state: Mutex<State>,
}

struct State {
    end: End,
    ledger: Ledger,
    /// Only where somebody may come after us.
    notes: Option<Notes>,
    /// Jobs in the queue or at work. While there is one, nobody writes past it.
    queued: usize,
    /// Outcomes of writes in flight, for those who ask again meanwhile.
    in_flight: HashMap<WriteId, watch::Sender<Option<Written>>>,
}

/// Our end of stdin.
enum End {
    /// Not waited for yet.
    Idle(Arc<OwnedFd>),
    Watched(Watched),
    Closed,
}

enum Job {
    Write { id: WriteId, bytes: Bytes },
    Close { done: tokio::sync::oneshot::Sender<()> },
}

/// How far a write got.
enum Step {
    Done(Written),
    Blocked(usize),
}

impl Stdin {
    /// Stdin over `end`, or none. The caller carries the returned task.
    pub(crate) fn new(
        number: Number,
        clerk: Arc<Clerk>,
        end: StdinEnd,
        ledger: Ledger,
        notes: Option<Notes>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let terminal = matches!(end, StdinEnd::Terminal(_));
        let end = match end {
            StdinEnd::Pipe(pipe) => End::Idle(Arc::new(pipe)),
            StdinEnd::Terminal(master) => End::Watched(master),
            StdinEnd::None => End::Closed,
        };
        let state = State { end, ledger, notes, queued: 0, in_flight: HashMap::new() };
        let desk = Arc::new(Desk { number, clerk, terminal, state: Mutex::new(state) });
        let (queue, jobs) = mpsc::channel(QUEUED_WRITES);
        (Self { desk: desk.clone(), queue }, work(desk, jobs))
    }

    /// Whether bytes can be written.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.desk.lock().end, End::Closed)
    }

    /// Writes `bytes` once.
    pub(crate) async fn write(&self, id: WriteId, bytes: Bytes) -> Written {
        let Ok(place) = self.queue.reserve().await else { return Written::StdinClosed };
        let mut outcome = {
            let mut state = self.desk.lock();
            match state.ledger.known(&id) {
                Some(Known::Applied) => return Written::Accepted,
                Some(Known::InDoubt) => return Written::InDoubt,
                Some(Known::InFlight) => match state.in_flight.get(&id) {
                    Some(outcome) => outcome.subscribe(),
                    None => return Written::InDoubt,
                },
                None => {
                    if let Some(known) = self.desk.begin(&mut state, &id) {
                        return known;
                    }
                    let rest =
                        if state.queued == 0 { self.desk.write_some(&mut state, &bytes, 0) } else { Step::Blocked(0) };
                    match rest {
                        Step::Done(written) => return self.desk.settle(&mut state, &id, written),
                        Step::Blocked(taken) => {
                            state.queued += 1;
                            let sender = watch::Sender::new(None);
                            let outcome = sender.subscribe();
                            state.in_flight.insert(id.clone(), sender);
                            place.send(Job::Write { id, bytes: bytes.slice(taken..) });
                            outcome
                        }
                    }
                }
            }
        };
        let settled = outcome.wait_for(Option::is_some).await;
        settled.ok().and_then(|written| *written).unwrap_or(Written::StdinClosed)
    }

    /// Ends stdin after what was written before.
    pub(crate) async fn close(&self) -> Written {
        if !self.is_open() {
            return Written::StdinClosed;
        }
        let (done, closed) = tokio::sync::oneshot::channel();
        self.desk.lock().queued += 1;
        if self.queue.send(Job::Close { done }).await.is_err() {
            return Written::StdinClosed;
        }
        let _ = closed.await;
        Written::Accepted
    }

    /// Nobody can read any more: the terminal is gone.
    pub(crate) fn hang_up(&self) {
        self.desk.lock().end = End::Closed;
    }
}

/// What stdin is made of.
pub(crate) enum StdinEnd {
    Pipe(OwnedFd),
    Terminal(Watched),
    None,
}

async fn work(desk: Arc<Desk>, mut jobs: mpsc::Receiver<Job>) {
    while let Some(job) = jobs.recv().await {
        match job {
            Job::Write { id, bytes } => {
                let written = desk.write_all(&bytes).await;
                let mut state = desk.lock();
                state.queued -= 1;
                let written = desk.settle(&mut state, &id, written);
                if let Some(outcome) = state.in_flight.remove(&id) {
                    outcome.send_replace(Some(written));
                }
            }
            Job::Close { done } => {
                desk.close().await;
                desk.lock().queued -= 1;
                let _ = done.send(());
            }
        }
    }
}

impl Desk {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, state: &mut State, id: &WriteId) -> Option<Written> {
        if matches!(state.end, End::Closed) {
            return Some(Written::StdinClosed);
        }
        if let Some(notes) = &mut state.notes {
            let keep =
                |file: &OwnedFd| self.clerk.say_now(&Ask::Keep { number: self.number, part: Part::Ledger }, Some(file));
            if let Err(errno) = notes.begun(id, &state.ledger, keep) {
                // Worth a line, not a refusal: only a kill in this very moment would leave the caller in doubt.
                tracing::warn!(%errno, "a stdin write could not be noted");
            }
        }
        state.ledger.begin(id);
        None
    }

    fn settle(&self, state: &mut State, id: &WriteId, written: Written) -> Written {
        match written {
            Written::Accepted => state.ledger.applied(id),
            Written::StdinClosed => state.ledger.refused(id),
            Written::InDoubt => state.ledger.in_doubt(id),
        }
        if let Some(notes) = &mut state.notes {
            match written {
                Written::Accepted => notes.applied(id),
                Written::StdinClosed => notes.refused(id),
                Written::InDoubt => {}
            }
        }
        written
    }

    /// Gives the kernel what it takes now.
    fn write_some(&self, state: &mut State, bytes: &[u8], mut taken: usize) -> Step {
        let end = match &state.end {
            End::Idle(end) => end.clone(),
            End::Watched(end) => end.get_ref().clone(),
            End::Closed => return Step::Done(Written::StdinClosed),
        };
        while taken < bytes.len() {
            match rustix::io::write(&*end, &bytes[taken..]) {
                Ok(count) => taken += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Step::Blocked(taken),
                // The reader is gone. What it had taken before, it had; the rest nobody can have.
                Err(_) => {
                    state.end = End::Closed;
                    let _ = self.clerk.say_now(&Ask::Drop { number: self.number, part: Part::Stdin }, None);
                    return Step::Done(Written::StdinClosed);
                }
            }
        }
        Step::Done(Written::Accepted)
    }

    async fn write_all(&self, bytes: &[u8]) -> Written {
        let mut taken = 0;
        loop {
            let end = match self.watched() {
                Some(end) => end,
                None => return Written::StdinClosed,
            };
            // Taken before the write, so that room made since is a newer readiness than the one that is cleared.
            let Ok(mut ready) = end.writable().await else { return Written::StdinClosed };
            let step = self.write_some(&mut self.lock(), bytes, taken);
            match step {
                Step::Done(written) => return written,
                Step::Blocked(so_far) => {
                    taken = so_far;
                    ready.clear_ready();
                }
            }
        }
    }

    fn watched(&self) -> Option<Watched> {
        let mut state = self.lock();
        if let End::Idle(end) = &state.end {
            match AsyncFd::new(end.clone()) {
                Ok(watched) => state.end = End::Watched(Arc::new(watched)),
                Err(error) => {
                    tracing::error!(%error, "stdin cannot be waited for");
                    state.end = End::Closed;
                }
            }
        }
        match &state.end {
            End::Watched(end) => Some(end.clone()),
            _ => None,
        }
    }

    async fn close(&self) {
        if self.terminal {
            self.write_all(&[self.end_of_file()]).await;
            return;
        }
        self.lock().end = End::Closed;
        // The keeper holds a duplicate; the child sees the end when both are closed.
        let _ = self.clerk.say(&Ask::Drop { number: self.number, part: Part::Stdin }, &[]).await;
    }

    /// The character the terminal takes for the end of input; usually Ctrl-D.
    fn end_of_file(&self) -> u8 {
        const CTRL_D: u8 = 4;
        let attributes = match &self.lock().end {
            End::Watched(end) => rustix::termios::tcgetattr(&**end.get_ref()).ok(),
            _ => None,
        };
        attributes.map_or(CTRL_D, |attributes| attributes.special_codes[rustix::termios::SpecialCodeIndex::VEOF])
    }
}
