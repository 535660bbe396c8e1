//! The line to the keeper: requests go out from whoever asks, one task hands the answers to whom they belong.
//!
//! What comes unasked (exits) goes to the process it concerns. When the line breaks, every request under way is
//! answered with that, and every process is told.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use exec_env::process::Unreachable;
use exec_keeper::channel::{Channel, Received};
use exec_keeper::protocol::{KeeperRequest, ProcessRecord, ProcessNumber, FdRole, KeeperEvent, VERSION};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};

use crate::OpenError;
use exec_core::Exit;

/// What carries the keeper, to be waited for at the end.
pub(crate) enum KeeperHost {
    Thread(std::thread::JoinHandle<()>),
    Process(std::process::Child),
    None,
}

/// A process as the keeper hands it over.
#[derive(Debug)]
pub(crate) struct HandedProcess {
    pub(crate) number: ProcessNumber,
    pub(crate) pid: u32,
    pub(crate) exit: Option<Exit>,
    pub(crate) parts: Vec<(FdRole, OwnedFd)>,
}

/// An answer with the descriptors it brought.
pub(crate) type Reply = (KeeperEvent, Vec<OwnedFd>);

/// What the reader does with an exit: called with the process's number.
pub(crate) type OnExit = Box<dyn Fn(ProcessNumber, Exit) + Send + Sync>;

pub(crate) struct KeeperClient {
    socket: AsyncFd<KeeperSocket>,
    pending: Mutex<PendingRequests>,
    on_exit: OnceLock<OnExit>,
    gone: watch::Sender<bool>,
    carrier: Mutex<KeeperHost>,
}

struct KeeperSocket(Channel);

impl std::os::fd::AsRawFd for KeeperSocket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.socket().as_raw_fd()
    }
}

impl AsFd for KeeperSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket()
    }
}

#[derive(Default)]
struct PendingRequests {
    next_request_id: u64,
    /// Bounded by the requests under way, each of which holds one caller.
    replies: HashMap<u64, oneshot::Sender<Reply>>,
    /// The line is broken: nobody will answer.
    closed: bool,
}

impl KeeperClient {
    /// Says hello and hears what there is.
    pub(crate) async fn open(
        channel: Channel,
        carrier: KeeperHost,
        state: &Path,
    ) -> Result<(Arc<Self>, Vec<(ProcessRecord, HandedProcess)>), OpenError> {
        let no_answer = |why: &str| OpenError::NoAnswer { why: why.to_owned() };
        // Not for room as well: that would wake us whenever the keeper has read something.
        let socket = AsyncFd::with_interest(KeeperSocket(channel), Interest::READABLE);
        let socket = socket.map_err(|error| no_answer(&error.to_string()))?;
        let keeper = Self {
            socket,
            pending: Mutex::default(),
            on_exit: OnceLock::new(),
            gone: watch::Sender::new(false),
            carrier: Mutex::new(carrier),
        };
        // A keeper that serves somebody else says so and hangs up, maybe before it hears this. What it said counts.
        let _ = keeper.send(&KeeperRequest::Hello { version: VERSION }, &[]).await;
        let mut found = Vec::new();
        let mut expected = None;
        while expected != Some(found.len()) {
            match keeper.receive().await {
                Some((KeeperEvent::Welcome { version: VERSION, processes, .. }, _)) => expected = Some(processes as usize),
                Some((KeeperEvent::Welcome { version, .. }, _)) => {
                    return Err(OpenError::Version { state: state.to_owned(), theirs: version, ours: VERSION });
                }
                Some((KeeperEvent::Busy { owner_pid }, _)) => {
                    return Err(OpenError::Busy { state: state.to_owned(), owner_pid });
                }
                Some((KeeperEvent::ExistingProcess { number, pid, exit, roles: parts, record }, descriptors)) => {
                    let parts = parts.into_iter().zip(descriptors).collect();
                    found.push((*record, HandedProcess { number, pid, exit, parts }));
                }
                Some(_) => return Err(no_answer("it said something out of turn")),
                None => return Err(no_answer("it closed the line")),
            }
        }
        Ok((Arc::new(keeper), found))
    }

    /// Hands answers to whom they belong until the line breaks. The table owns this task.
    pub(crate) async fn route_replies(self: Arc<Self>, on_exit: OnExit) {
        let _ = self.on_exit.set(on_exit);
        while let Some((tell, descriptors)) = self.receive().await {
            let request_id = match &tell {
                KeeperEvent::Exited { number, exit } => {
                    if let Some(on_exit) = self.on_exit.get() {
                        on_exit(*number, *exit);
                    }
                    continue;
                }
                KeeperEvent::Started { request_id, .. }
                | KeeperEvent::StartFailed { request_id, .. }
                | KeeperEvent::Signalled { request_id, .. }
                | KeeperEvent::Terminated { request_id, .. }
                | KeeperEvent::Members { request_id, .. } => *request_id,
                KeeperEvent::Welcome { .. } | KeeperEvent::Busy { .. } | KeeperEvent::ExistingProcess { .. } => continue,
            };
            let requester = self.lock().replies.remove(&request_id);
            if let Some(requester) = requester {
                // An asker that gave up wants nothing any more; a start it asked for is ended by the table.
                let _ = requester.send((tell, descriptors));
            }
        }
        let mut pending = self.lock();
        pending.closed = true;
        pending.replies.clear();
        drop(pending);
        self.gone.send_replace(true);
    }

    /// Asks, and waits for the answer. `make` gets the request_id.
    pub(crate) async fn request(&self, make: impl FnOnce(u64) -> KeeperRequest) -> Result<Reply, Unreachable> {
        let (sender, receiver) = oneshot::channel();
        let request_id = {
            let mut pending = self.lock();
            if pending.closed {
                return Err(keeper_gone());
            }
            pending.next_request_id += 1;
            let request_id = pending.next_request_id;
            pending.replies.insert(request_id, sender);
            request_id
        };
        if let Err(unreachable) = self.send(&make(request_id), &[]).await {
            self.lock().replies.remove(&request_id);
            return Err(unreachable);
        }
        receiver.await.map_err(|_| keeper_gone())
    }

    /// Says something that has no answer, waiting for room.
    pub(crate) async fn send(&self, ask: &KeeperRequest, descriptors: &[BorrowedFd<'_>]) -> Result<(), Unreachable> {
        let message = ask.encode();
        let mut writable = None;
        loop {
            match (self.socket.get_ref().0.send(&message, descriptors), &writable) {
                (Ok(()), _) => return Ok(()),
                (Err(Errno::AGAIN), None) => writable = Some(self.writable_socket().map_err(|_| keeper_gone())?),
                (Err(Errno::AGAIN), Some(writable)) => {
                    writable.writable().await.map_err(|_| keeper_gone())?.clear_ready();
                }
                (Err(_), _) => return Err(keeper_gone()),
            }
        }
    }

    /// The line, to be waited for until there is room in it.
    fn writable_socket(&self) -> std::io::Result<AsyncFd<OwnedFd>> {
        AsyncFd::with_interest(self.socket.get_ref().as_fd().try_clone_to_owned()?, Interest::WRITABLE)
    }

    /// Says something at once, or not at all.
    pub(crate) fn try_send(&self, ask: &KeeperRequest, descriptor: Option<&OwnedFd>) -> Result<(), Errno> {
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().map(AsFd::as_fd).collect();
        self.socket.get_ref().0.send(&ask.encode(), &descriptors)
    }

    /// Closes the line from our side: the keeper is alone when it has heard what was said before.
    pub(crate) fn disconnect(&self) {
        let _ = rustix::net::shutdown(self.socket.get_ref(), rustix::net::Shutdown::Both);
    }

    /// True once the line is broken.
    pub(crate) fn gone(&self) -> watch::Receiver<bool> {
        self.gone.subscribe()
    }

    /// Waits until whoever carries the keeper is done.
    pub(crate) async fn join(&self) {
        let carrier = std::mem::replace(
            &mut *self.carrier.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
            KeeperHost::None,
        );
        let wait = move || match carrier {
            KeeperHost::Thread(thread) => drop(thread.join()),
            KeeperHost::Process(mut child) => drop(child.wait()),
            KeeperHost::None => {}
        };
        let _ = tokio::task::spawn_blocking(wait).await;
    }

    async fn receive(&self) -> Option<Reply> {
        loop {
            match self.socket.get_ref().0.receive() {
                Ok(Received::Message(message, descriptors)) => match KeeperEvent::decode(&message) {
                    Ok(tell) => return Some((tell, descriptors)),
                    Err(malformed) => {
                        tracing::error!(%malformed, "the keeper's line is given up");
                        return None;
                    }
                },
                Ok(Received::Closed) => return None,
                Err(Errno::AGAIN) => match self.socket.readable().await {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return None,
                },
                Err(errno) => {
                    tracing::error!(%errno, "the keeper's line is given up");
                    return None;
                }
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for KeeperClient {
    fn drop(&mut self) {
        let carrier = self.carrier.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let KeeperHost::Process(child) = carrier {
            // It ends by itself when our socket closes; until it is reaped it is only a zombie. Collected if it was quick.
            let _ = child.try_wait();
        }
    }
}

pub(crate) fn keeper_gone() -> Unreachable {
    Unreachable { why: "the keeper has ended; start the server again".to_owned() }
}
