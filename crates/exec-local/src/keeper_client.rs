//! The connection to the keeper: callers send their requests themselves, one task routes the replies to them.
//!
//! Exits come without a request and go to the process they concern. When the connection breaks, every pending request
//! fails, and every process learns it through [`KeeperClient::gone`].

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use exec_core::{Exit, Stream};
use exec_env::process::Unreachable;
use exec_keeper::channel::{Channel, NO_REQUEST, Received};
use exec_keeper::lease::{Lease, Moving};
use exec_keeper::protocol::{FdRole, KeeperEvent, KeeperRequest, Message, ProcessNumber, ProcessRecord, VERSION};
use exec_keeper::spool::OutputSource;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};

use crate::OpenError;

/// How long a keeper may take to say hello, and to hand over each process. It does nothing else meanwhile; on a machine that is
/// merely busy it takes milliseconds.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(30);

/// Between two tries to read while there is no memory for it.
const READ_PAUSE: Duration = Duration::from_millis(10);

/// How soon it is looked again whether a tree is gone, at first.
const FIRST_TREE_PAUSE: Duration = Duration::from_millis(10);

/// Where the keeper runs, to be waited for at the end.
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
    pub(crate) descriptors: Descriptors,
}

/// Descriptors of a process by their role.
#[derive(Debug)]
pub(crate) struct Descriptors(Vec<(FdRole, OwnedFd)>);

impl Descriptors {
    pub(crate) fn new(roles: Vec<FdRole>, descriptors: Vec<OwnedFd>) -> Self {
        Self(roles.into_iter().zip(descriptors).collect())
    }

    pub(crate) fn take(&mut self, role: FdRole) -> Option<OwnedFd> {
        let at = self.0.iter().position(|(held, _)| *held == role)?;
        Some(self.0.swap_remove(at).1)
    }

    /// What the spool moves output from.
    pub(crate) fn take_sources(&mut self) -> Vec<(Stream, OutputSource)> {
        let mut sources = Vec::new();
        for (stream, role) in [(Stream::Stdout, FdRole::Stdout), (Stream::Stderr, FdRole::Stderr)] {
            if let Some(pipe) = self.take(role) {
                sources.push((stream, OutputSource::Pipe(Arc::new(pipe))));
            }
        }
        if let (Some(out), Some(into)) = (self.take(FdRole::RelayRead), self.take(FdRole::RelayWrite))
            && let Some(master) = self.take(FdRole::PtyMaster)
        {
            sources.push((Stream::Pty, OutputSource::Pty { master: Arc::new(master), relay: (out, into) }));
        }
        sources
    }
}

/// With the descriptors that came with it.
pub(crate) type Reply = (KeeperEvent, Vec<OwnedFd>);

pub(crate) struct KeeperClient {
    channel: AsyncFd<Channel>,
    pending: Mutex<PendingRequests>,
    gone: watch::Sender<bool>,
    /// Our right to move output, as long as we are connected.
    lease: OnceLock<Lease>,
    host: Mutex<KeeperHost>,
}

#[derive(Default)]
struct PendingRequests {
    last_request_id: u64,
    /// Bounded by the number of callers, each of which waits for one reply.
    replies: HashMap<u64, oneshot::Sender<Reply>>,
    /// The connection is broken: there will be no replies.
    closed: bool,
}

/// A request that somebody waits for.
struct AwaitedReply<'a> {
    client: &'a KeeperClient,
    request_id: u64,
}

impl Drop for AwaitedReply<'_> {
    fn drop(&mut self) {
        self.client.lock().replies.remove(&self.request_id);
    }
}

impl KeeperClient {
    /// Says hello, and receives the processes that the keeper holds.
    pub(crate) async fn open(
        channel: Channel,
        host: KeeperHost,
        state: &Path,
    ) -> Result<(Arc<Self>, Vec<(ProcessRecord, HandedProcess)>), OpenError> {
        let no_answer = |why: &str| OpenError::NoAnswer { why: why.to_owned() };
        // Not for writability as well: that would wake us whenever the keeper has read something.
        let channel = AsyncFd::with_interest(channel, Interest::READABLE);
        let channel = channel.map_err(|error| no_answer(&error.to_string()))?;
        let keeper = Self {
            channel,
            pending: Mutex::default(),
            gone: watch::Sender::new(false),
            lease: OnceLock::new(),
            host: Mutex::new(host),
        };
        // A keeper that serves another owner says so and closes, maybe before it reads this. What it said counts.
        let _ = keeper.send(&KeeperRequest::Hello { version: VERSION }).await;
        let mut found = Vec::new();
        let (mut expected, mut skipped) = (None, 0);
        while expected != Some(found.len() + skipped) {
            let received = tokio::time::timeout(WELCOME_TIMEOUT, keeper.receive()).await;
            let received = received.map_err(|_| no_answer("it is stopped or hangs: continue or end its process"))?;
            match received {
                Some((_, KeeperEvent::Welcome { version: VERSION, processes, .. }, descriptors)) => {
                    let lease = descriptors.first().ok_or(Errno::MFILE).and_then(Lease::open);
                    let lease = lease.map_err(|errno| no_answer(&format!("no right to move output: {errno}")))?;
                    let _ = keeper.lease.set(lease);
                    expected = Some(processes as usize);
                }
                Some((_, KeeperEvent::Welcome { version, .. }, _)) => {
                    return Err(OpenError::Version { state: state.to_owned(), theirs: version, ours: VERSION });
                }
                Some((_, KeeperEvent::Busy { owner_pid }, _)) => {
                    return Err(OpenError::Busy { state: state.to_owned(), owner_pid });
                }
                Some((_, KeeperEvent::ExistingProcess { number, pid, exit, roles, record }, descriptors)) => {
                    if roles.len() > descriptors.len() {
                        // The keeper goes on to hold it, for an owner that may open more.
                        tracing::error!(id = %record.id, "too many open files: a process of an earlier owner is left to the keeper; raise the limit and start again");
                        skipped += 1;
                        continue;
                    }
                    let descriptors = Descriptors::new(roles, descriptors);
                    found.push((*record, HandedProcess { number, pid, exit, descriptors }));
                }
                Some(_) => return Err(no_answer("it said something out of turn")),
                None => return Err(no_answer("it closed the line")),
            }
        }
        Ok((Arc::new(keeper), found))
    }

    /// A connection on which nobody has said hello.
    #[cfg(test)]
    pub(crate) fn unwelcomed(channel: Channel) -> Arc<Self> {
        let channel = AsyncFd::with_interest(channel, Interest::READABLE).expect("a test runs in a runtime");
        let (gone, host) = (watch::Sender::new(false), Mutex::new(KeeperHost::None));
        Arc::new(Self { channel, pending: Mutex::default(), gone, lease: OnceLock::new(), host })
    }

    /// Routes replies to their requesters until the connection breaks. The process table owns this task.
    pub(crate) async fn route_replies(self: Arc<Self>, on_exit: impl Fn(ProcessNumber, Exit)) {
        while let Some((request_id, event, descriptors)) = self.receive().await {
            if let KeeperEvent::Exited { number, exit } = event {
                on_exit(number, exit);
                continue;
            }
            let requester = self.lock().replies.remove(&request_id);
            if let Some(requester) = requester {
                // A requester that gave up needs no reply. A start is never given up: the process table awaits it.
                let _ = requester.send((event, descriptors));
            }
        }
        let mut pending = self.lock();
        pending.closed = true;
        pending.replies.clear();
        drop(pending);
        self.gone.send_replace(true);
    }

    /// Sends a request and waits for its reply.
    pub(crate) async fn request(&self, request: KeeperRequest) -> Result<Reply, Unreachable> {
        self.request_with(request, &[], |_| {}).await
    }

    /// The same with descriptors; `on_id` is told the id under which the request is sent, before it is.
    pub(crate) async fn request_with(
        &self,
        request: KeeperRequest,
        with: &[OwnedFd],
        on_id: impl FnOnce(u64),
    ) -> Result<Reply, Unreachable> {
        let descriptors: Vec<BorrowedFd<'_>> = with.iter().map(AsFd::as_fd).collect();
        let (sender, receiver) = oneshot::channel();
        let request_id = {
            let mut pending = self.lock();
            if pending.closed {
                return Err(keeper_gone());
            }
            pending.last_request_id += 1;
            let request_id = pending.last_request_id;
            pending.replies.insert(request_id, sender);
            request_id
        };
        on_id(request_id);
        // However this ends; a keeper that hangs may never answer whoever has given up.
        let _wanted = AwaitedReply { client: self, request_id };
        self.send_with_id(request_id, &request, &descriptors).await?;
        receiver.await.map_err(|_| keeper_gone())
    }

    /// The pids of the tree of a process.
    pub(crate) async fn members(&self, number: ProcessNumber) -> Result<Vec<u32>, Unreachable> {
        match self.request(KeeperRequest::Members { number }).await? {
            (KeeperEvent::Members { pids }, _) => Ok(pids),
            _ => Err(keeper_gone()),
        }
    }

    /// Returns when nobody of a tree is left. The kernel has no event for that, so it is looked for, less and less often, at
    /// last with a pause of `longest`.
    pub(crate) async fn tree_ended(&self, number: ProcessNumber, longest: Duration) -> Result<(), Unreachable> {
        let mut pause = FIRST_TREE_PAUSE;
        while !self.members(number).await?.is_empty() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
        Ok(())
    }

    /// Sends something that has no reply, waiting until the socket takes it.
    pub(crate) async fn send(&self, request: &KeeperRequest) -> Result<(), Unreachable> {
        self.send_with_id(NO_REQUEST, request, &[]).await
    }

    /// The same with a descriptor.
    pub(crate) async fn send_descriptor(&self, request: &KeeperRequest, file: &OwnedFd) -> Result<(), Unreachable> {
        self.send_with_id(NO_REQUEST, request, &[file.as_fd()]).await
    }

    async fn send_with_id(
        &self,
        request_id: u64,
        request: &KeeperRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Unreachable> {
        let message = request.encode();
        let mut writable = None;
        loop {
            match (self.channel.get_ref().send(request_id, &message, descriptors), &writable) {
                (Ok(()), _) => return Ok(()),
                (Err(Errno::AGAIN), None) => writable = Some(self.writable_socket().map_err(not_sent)?),
                (Err(Errno::AGAIN), Some(writable)) => writable.writable().await.map_err(not_sent)?.clear_ready(),
                (Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN), _) => return Err(keeper_gone()),
                (Err(errno), _) => return Err(not_sent(errno.into())),
            }
        }
    }

    /// A second handle of the socket, to wait until it can be written.
    fn writable_socket(&self) -> std::io::Result<AsyncFd<OwnedFd>> {
        AsyncFd::with_interest(self.channel.get_ref().socket().try_clone_to_owned()?, Interest::WRITABLE)
    }

    /// Sends something that has no reply, unless the socket is full.
    pub(crate) fn try_send(&self, request: &KeeperRequest, descriptor: Option<&OwnedFd>) -> Result<(), Errno> {
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().map(AsFd::as_fd).collect();
        self.channel.get_ref().send(NO_REQUEST, &request.encode(), &descriptors)
    }

    /// Closes the connection from our side. The keeper reads what was sent before, and then it has no owner.
    pub(crate) fn disconnect(&self) {
        let _ = rustix::net::shutdown(self.channel.get_ref().socket(), rustix::net::Shutdown::Both);
    }

    /// True once the connection is broken.
    pub(crate) fn gone(&self) -> watch::Receiver<bool> {
        self.gone.subscribe()
    }

    /// Waits until the keeper's thread or process has ended.
    pub(crate) async fn join(&self) {
        let host = std::mem::replace(
            &mut *self.host.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
            KeeperHost::None,
        );
        let wait = move || match host {
            KeeperHost::Thread(thread) => drop(thread.join()),
            KeeperHost::Process(mut child) => drop(child.wait()),
            KeeperHost::None => {}
        };
        let _ = tokio::task::spawn_blocking(wait).await;
    }

    /// The right to move output now; `None` once the keeper, or the next owner, moves it.
    pub(crate) fn begin_move(&self) -> Option<Moving<'_>> {
        self.lease.get()?.begin_move()
    }

    /// The next message; `None` when the keeper has closed the connection. One that does not read is the refusal of the
    /// request that it answers.
    async fn receive(&self) -> Option<(u64, KeeperEvent, Vec<OwnedFd>)> {
        loop {
            let (request_id, errno) = match self.channel.get_ref().receive() {
                Ok(Received::Message { request_id, message, descriptors }) => match KeeperEvent::decode(&message) {
                    Ok(event) => return Some((request_id, event, descriptors)),
                    Err(_) => (request_id, Errno::BADMSG),
                },
                Ok(Received::Damaged { request_id, errno }) => (request_id, errno),
                Ok(Received::Closed) => return None,
                Err(Errno::AGAIN) => {
                    self.channel.readable().await.ok()?.clear_ready();
                    continue;
                }
                Err(errno) => {
                    // There is no memory to read it now.
                    tracing::warn!(%errno, "the keeper's socket cannot be read for a moment");
                    tokio::time::sleep(READ_PAUSE).await;
                    continue;
                }
            };
            if request_id != NO_REQUEST {
                return Some((request_id, KeeperEvent::Refused { errno: errno.raw_os_error() }, Vec::new()));
            }
            tracing::error!(%errno, "a message of the keeper does not read");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for KeeperClient {
    fn drop(&mut self) {
        let host = self.host.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let KeeperHost::Process(child) = host {
            // It ends by itself when our socket closes. If it has ended already, it is reaped here.
            let _ = child.try_wait();
        }
    }
}

/// The request was not sent, or not taken; others may be.
fn not_sent(error: std::io::Error) -> Unreachable {
    Unreachable { why: format!("the keeper was not asked: {error}") }
}

/// Why a request has no other answer than this.
pub(crate) fn unanswered(event: &KeeperEvent) -> Unreachable {
    match event {
        KeeperEvent::Refused { errno } => not_sent(std::io::Error::from_raw_os_error(*errno)),
        _ => keeper_gone(),
    }
}

pub(crate) fn keeper_gone() -> Unreachable {
    Unreachable { why: "the keeper has ended; start the server again".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_keeper_that_says_nothing_is_not_waited_for_for_ever() {
        let (ours, _theirs) = Channel::pair().expect("two descriptors");
        let Err(error) = KeeperClient::open(ours, KeeperHost::None, Path::new("/")).await else { panic!("no welcome") };
        assert!(error.to_string().contains("stopped or hangs"), "{error}");
    }
}
