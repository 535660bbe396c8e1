//! Stdin of a process: writes happen in order, each once, and are acknowledged when the kernel has the bytes.
//!
//! A write that fits into the pipe is done by its caller at once. What does not fit waits in a task of its own, so that
//! a caller that gives up (its connection broke) does not cut a write in half: the write is finished, and when the
//! caller sends it again, it is told so.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use exec_core::WriteId;
use exec_core::limits::QUEUED_WRITES;
use exec_core::text::ends_within_line;
use exec_core::write_history::{WriteHistory, WriteState};
use exec_env::process::Written;
use exec_keeper::protocol::{FdRole, KeeperRequest, ProcessNumber};
use rustix::io::Errno;
use rustix::termios::{LocalModes, SpecialCodeIndex, tcgetattr};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};

use crate::keeper_client::KeeperClient;
use crate::output_mover::AsyncDescriptor;
use crate::write_journal::WriteJournal;

/// One process's stdin.
pub(crate) struct Stdin {
    shared: Arc<StdinShared>,
    queue: mpsc::Sender<StdinJob>,
}

/// What the callers and the task share.
struct StdinShared {
    number: ProcessNumber,
    keeper: Arc<KeeperClient>,
    terminal: bool,
    /// Held while a new file of the journal is handed to the keeper, for whose socket one may have to wait.
    journal_turn: tokio::sync::Mutex<()>,
    state: Mutex<StdinState>,
}

struct StdinState {
    handle: StdinHandle,
    history: WriteHistory,
    /// Only if the keeper outlives us, for the next owner.
    journal: Option<WriteJournal>,
    /// Jobs in the queue or in progress. While there is one, callers must queue too, to keep the order.
    queued: usize,
    /// Whether the last byte that we wrote to a terminal was inside a line. What an owner before us has written is not known.
    within_line: bool,
    /// Outcomes of writes in flight, for callers that send the same write again meanwhile.
    in_flight: HashMap<WriteId, watch::Sender<Option<Written>>>,
}

/// Our end of stdin.
pub(crate) enum StdinHandle {
    /// A pipe. It is registered with the runtime only when a write does not fit, because most never need that.
    Idle(Arc<OwnedFd>),
    /// A pipe that is registered with the runtime, or a terminal.
    Async(AsyncDescriptor),
    Closed,
}

enum StdinJob {
    Write { id: WriteId, bytes: Bytes },
    Close { done: tokio::sync::oneshot::Sender<()> },
}

enum WriteProgress {
    Done(Written),
    /// So many bytes were taken, and the kernel takes no more now.
    Blocked(usize),
}

impl Stdin {
    /// The caller owns the returned task.
    pub(crate) fn new(
        number: ProcessNumber,
        keeper: Arc<KeeperClient>,
        handle: StdinHandle,
        history: WriteHistory,
        journal: Option<WriteJournal>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let terminal = matches!(handle, StdinHandle::Async(_));
        let state = StdinState { handle, history, journal, queued: 0, within_line: false, in_flight: HashMap::new() };
        let shared = Arc::new(StdinShared {
            number,
            keeper,
            terminal,
            journal_turn: tokio::sync::Mutex::default(),
            state: Mutex::new(state),
        });
        let (queue, jobs) = mpsc::channel(QUEUED_WRITES);
        (Self { shared: shared.clone(), queue }, run_queue(shared, jobs))
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.shared.lock().handle, StdinHandle::Closed)
    }

    /// Writes `bytes` once.
    pub(crate) async fn write(&self, id: WriteId, bytes: Bytes) -> Written {
        let Ok(reserved) = self.queue.reserve().await else { return Written::StdinClosed };
        self.shared.provide_journal().await;
        let mut outcome = {
            let mut state = self.shared.lock();
            match state.history.state(&id) {
                Some(WriteState::Applied) => return Written::Accepted,
                Some(WriteState::InDoubt) => return Written::InDoubt,
                Some(WriteState::InFlight) => match state.in_flight.get(&id) {
                    Some(outcome) => outcome.subscribe(),
                    None => return Written::InDoubt,
                },
                None => {
                    if let Some(known) = self.shared.begin(&mut state, &id) {
                        return known;
                    }
                    let rest = if state.queued == 0 {
                        self.shared.write_some(&mut state, &bytes, 0)
                    } else {
                        WriteProgress::Blocked(0)
                    };
                    match rest {
                        WriteProgress::Done(written) => return self.shared.settle(&mut state, &id, written),
                        WriteProgress::Blocked(taken) => {
                            state.queued += 1;
                            let sender = watch::Sender::new(None);
                            let outcome = sender.subscribe();
                            state.in_flight.insert(id.clone(), sender);
                            reserved.send(StdinJob::Write { id, bytes: bytes.slice(taken..) });
                            outcome
                        }
                    }
                }
            }
        };
        let settled = outcome.wait_for(Option::is_some).await;
        settled.ok().and_then(|written| *written).unwrap_or(Written::StdinClosed)
    }

    /// Closes stdin after what was written before.
    pub(crate) async fn close(&self) -> Written {
        if !self.is_open() {
            return Written::StdinClosed;
        }
        let (done, closed) = tokio::sync::oneshot::channel();
        self.shared.lock().queued += 1;
        if self.queue.send(StdinJob::Close { done }).await.is_err() {
            return Written::StdinClosed;
        }
        let _ = closed.await;
        Written::Accepted
    }

    /// The terminal is gone, so nobody can read any more.
    pub(crate) fn mark_closed(&self) {
        self.shared.lock().handle = StdinHandle::Closed;
    }
}

async fn run_queue(shared: Arc<StdinShared>, mut jobs: mpsc::Receiver<StdinJob>) {
    while let Some(job) = jobs.recv().await {
        match job {
            StdinJob::Write { id, bytes } => {
                let written = shared.write_all(&bytes).await;
                let mut state = shared.lock();
                state.queued -= 1;
                let written = shared.settle(&mut state, &id, written);
                if let Some(outcome) = state.in_flight.remove(&id) {
                    outcome.send_replace(Some(written));
                }
            }
            StdinJob::Close { done } => {
                shared.close().await;
                shared.lock().queued -= 1;
                let _ = done.send(());
            }
        }
    }
}

impl StdinShared {
    fn lock(&self) -> std::sync::MutexGuard<'_, StdinState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that the keeper holds the file in which the next write is recorded, however long its socket is full.
    async fn provide_journal(&self) {
        let needed = |state: &StdinState| state.journal.as_ref().is_some_and(WriteJournal::needs_file);
        if !needed(&self.lock()) {
            return;
        }
        let _turn = self.journal_turn.lock().await;
        let (new, in_flight) = {
            let state = self.lock();
            let Some(journal) = state.journal.as_ref().filter(|_| needed(&state)) else { return };
            let in_flight = state.history.iter().filter(|(_, state)| *state == WriteState::InFlight);
            (journal.with_new_file(&state.history), in_flight.map(|(id, _)| id.clone()).collect::<Vec<_>>())
        };
        let mut new = match new {
            Ok(new) => new,
            Err(errno) => return tracing::warn!(%errno, "the journal of stdin writes cannot be written"),
        };
        if let Some(file) = new.file() {
            let request = KeeperRequest::AddFd { number: self.number, role: FdRole::WriteJournal };
            // It fails only if the keeper is gone, and then there is no next owner.
            let _ = self.keeper.send_descriptor(&request, file).await;
        }
        let mut state = self.lock();
        for id in in_flight.iter().filter(|id| state.history.state(id) == Some(WriteState::Applied)) {
            new.applied(id);
        }
        state.journal = Some(new);
    }

    fn begin(&self, state: &mut StdinState, id: &WriteId) -> Option<Written> {
        if matches!(state.handle, StdinHandle::Closed) {
            return Some(Written::StdinClosed);
        }
        if let Some(journal) = &mut state.journal
            && let Err(errno) = journal.begun(id)
        {
            // No reason to refuse the write: the record is needed only if we are killed during this very write.
            tracing::warn!(%errno, "a stdin write could not be recorded");
        }
        state.history.begin(id);
        None
    }

    /// The write has ended; the history and the journal learn how.
    fn settle(&self, state: &mut StdinState, id: &WriteId, written: Written) -> Written {
        match written {
            Written::Accepted => state.history.applied(id),
            Written::StdinClosed => state.history.refused(id),
            Written::InDoubt => state.history.in_doubt(id),
        }
        if let Some(journal) = &mut state.journal {
            match written {
                Written::Accepted => journal.applied(id),
                Written::StdinClosed => journal.refused(id),
                Written::InDoubt => {}
            }
        }
        written
    }

    /// Writes what the kernel takes now.
    fn write_some(&self, state: &mut StdinState, bytes: &[u8], mut taken: usize) -> WriteProgress {
        let descriptor = match &state.handle {
            StdinHandle::Idle(descriptor) => descriptor.clone(),
            StdinHandle::Async(descriptor) => descriptor.get_ref().clone(),
            StdinHandle::Closed => return WriteProgress::Done(Written::StdinClosed),
        };
        while taken < bytes.len() {
            match rustix::io::write(&*descriptor, &bytes[taken..]) {
                Ok(count) => {
                    taken += count;
                    state.within_line = ends_within_line(&bytes[..taken]);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return WriteProgress::Blocked(taken),
                // The reader is gone. It has what it read before; nobody can read the rest.
                Err(_) => {
                    state.handle = StdinHandle::Closed;
                    let _ = self
                        .keeper
                        .try_send(&KeeperRequest::CloseFd { number: self.number, role: FdRole::Stdin }, None);
                    return WriteProgress::Done(Written::StdinClosed);
                }
            }
        }
        WriteProgress::Done(Written::Accepted)
    }

    async fn write_all(&self, bytes: &[u8]) -> Written {
        let mut taken = 0;
        loop {
            let Some(descriptor) = self.async_descriptor() else { return Written::StdinClosed };
            // The readiness is taken before the write, so that space freed after the write is a newer readiness than
            // the one that is cleared.
            let Ok(mut ready) = descriptor.writable().await else { return Written::StdinClosed };
            let progress = self.write_some(&mut self.lock(), bytes, taken);
            match progress {
                WriteProgress::Done(written) => return written,
                WriteProgress::Blocked(so_far) => {
                    taken = so_far;
                    ready.clear_ready();
                }
            }
        }
    }

    fn async_descriptor(&self) -> Option<AsyncDescriptor> {
        let mut state = self.lock();
        if let StdinHandle::Idle(descriptor) = &state.handle {
            match AsyncFd::new(descriptor.clone()) {
                Ok(registered) => state.handle = StdinHandle::Async(Arc::new(registered)),
                Err(error) => {
                    tracing::error!(%error, "stdin cannot be waited for");
                    state.handle = StdinHandle::Closed;
                }
            }
        }
        match &state.handle {
            StdinHandle::Async(descriptor) => Some(descriptor.clone()),
            _ => None,
        }
    }

    async fn close(&self) {
        if self.terminal {
            self.type_end_of_file().await;
            return;
        }
        self.lock().handle = StdinHandle::Closed;
        // The keeper holds a duplicate; the child sees end-of-file when both are closed.
        let _ = self.keeper.send(&KeeperRequest::CloseFd { number: self.number, role: FdRole::Stdin }).await;
    }

    /// What means end-of-file to a terminal is a character, usually Ctrl-D. Inside a line it only delivers that line to
    /// whoever reads, so there it takes two. To a terminal without lines it is a byte like any other.
    async fn type_end_of_file(&self) {
        const CTRL_D: u8 = 4;
        let (attributes, within_line) = {
            let mut state = self.lock();
            let attributes = match &state.handle {
                StdinHandle::Async(descriptor) => tcgetattr(&**descriptor.get_ref()).ok(),
                _ => None,
            };
            (attributes, std::mem::take(&mut state.within_line))
        };
        let character = attributes.as_ref().map_or(CTRL_D, |found| found.special_codes[SpecialCodeIndex::VEOF]);
        let has_lines = attributes.is_none_or(|found| found.local_modes.contains(LocalModes::ICANON));
        let times = if within_line && has_lines { 2 } else { 1 };
        self.write_all(&[character; 2][..times]).await;
        self.lock().within_line = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use exec_keeper::channel::{Channel, Received};
    use exec_keeper::protocol::Message;
    use exec_keeper::spool::directory::SpoolDirectory;

    use super::*;

    /// Otherwise the next owner would not know of the write, and would do it again.
    #[tokio::test]
    async fn a_write_waits_until_the_keeper_has_the_file_in_which_it_is_recorded() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (ours, theirs) = Channel::pair().expect("two descriptors");
        let keeper = KeeperClient::unwelcomed(ours);
        let mut filling = 0;
        while keeper.try_send(&KeeperRequest::Members { number: 1 }, None).is_ok() {
            filling += 1;
        }
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).expect("two descriptors");
        let journal = WriteJournal::new(Arc::new(SpoolDirectory::new(folder.path(), 1 << 20)));
        let handle = StdinHandle::Idle(Arc::new(write));
        let (stdin, _task) = Stdin::new(1, keeper, handle, WriteHistory::default(), Some(journal));
        let id = WriteId::new("w").expect("short");
        let mut writing = std::pin::pin!(stdin.write(id, Bytes::from_static(b"once")));
        let once = std::future::poll_fn(|context| std::task::Poll::Ready(writing.as_mut().poll(context).is_pending()));
        assert!(once.await, "the line is full");
        let mut found = [0; 8];
        assert_eq!(rustix::io::read(&read, &mut found), Err(Errno::AGAIN), "nothing is written before it is recorded");
        for _ in 0..filling {
            assert!(matches!(theirs.receive(), Ok(Received::Message { .. })));
        }
        assert_eq!(writing.await, Written::Accepted);
        assert_eq!(rustix::io::read(&read, &mut found), Ok(4));
        let Ok(Received::Message { message, descriptors, .. }) = theirs.receive() else { panic!("the file comes") };
        let add = KeeperRequest::AddFd { number: 1, role: FdRole::WriteJournal };
        assert_eq!(KeeperRequest::decode(&message), Ok(add));
        let directory = Arc::new(SpoolDirectory::new(folder.path(), 1 << 20));
        let file = descriptors.into_iter().next().expect("it came with its message");
        let (_, history) = WriteJournal::recover(directory, file).expect("it reads");
        assert_eq!(history.state(&WriteId::new("w").expect("short")), Some(WriteState::Applied));
    }
}
