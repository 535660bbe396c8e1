//! The link: calls to one server and their answers, whatever happens to the connections in between.
//!
//! ```text
//!   caller ── call ──► shared state ── queue ──► writer task ──► connection
//!   caller ◄─ answer ─ shared state ◄─────────── driver task ◄── connection
//!   follower ◄─ wake ─ inbox ◄──────────────────┘
//! ```
//!
//! [`Link`] is what callers hold. [`LinkShared`] is what callers, followers and the driver share: the table of calls, the
//! inbox, the process cache, the subscribers. A call is kept, with the bytes it was sent as, until it is answered; after
//! a break the driver sends again what may be sent again. The decisions are made in [`crate::session`], [`crate::inbox`]
//! and [`crate::retry`]. Of processes and files, the link knows only where their notifications go.

pub(crate) mod driver;
mod subscription;
mod writer;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exec_core::{Entry, ProcessId};
use exec_env::NetworkDecider;
use exec_transport::Message;
use exec_wire::envelope::{self, RequestId};
use exec_wire::environment::EnvironmentInfo;
use exec_wire::process::AcknowledgeParams;
use exec_wire::session::{AttachedParams, Role};
use exec_wire::{Call, Extension, Method, NotificationMethod, RetryPolicy, RpcError, SharedJson};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::error::CallError;
use crate::inbox::Inbox;
use crate::limits::{ACKNOWLEDGEMENTS, ANSWERS, CALL_RESENDS, CALLS, LONG_CALL};
use crate::process_cache::CachedProcess;
use crate::session::{LossKind, SessionLoss, random_seed};
pub use subscription::Notification;
use subscription::Subscriber;
pub(crate) use subscription::next_params;
use writer::{OutgoingMessage, WriterQueue};

/// Makes calls to one server and receives its notifications, over one connection after the other. Cheap to clone; it ends
/// with its environment, not with its clones.
#[derive(Debug, Clone)]
pub struct Link {
    shared: Arc<LinkShared>,
    /// Which of the server's environments the calls are for; `None` for its default.
    environment: Option<Arc<str>>,
}

/// How one call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallOptions {
    /// How long the server may take, on a live connection. While there is none, the give-up time of the link counts.
    pub deadline: Duration,
    /// What happens if the connection breaks first.
    pub retry: RetryPolicy,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOutcome<T> {
    /// The answer, or why there is none.
    pub result: Result<T, CallError>,
    /// Whether the call was sent more than once, so that the answer may be about the second time.
    pub resent: bool,
}

/// How the link is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// The first connection of a session is being made.
    Connecting,
    /// Calls are answered.
    Connected,
    /// The connection broke, and the session is being resumed.
    Reconnecting {
        /// The number of the attempt, from 1.
        attempt: u32,
        /// When we stop trying, and the session is lost to us.
        give_up_at: Instant,
    },
    /// The session is lost. The next call opens another.
    Lost(SessionLoss),
    /// We have closed the link.
    Ended,
}

/// A time without a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// When it began.
    pub since: Instant,
    /// Why the connection broke, or why the last attempt to make one failed.
    pub why: String,
}

/// The link in numbers, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkMetrics {
    /// How often the session was resumed after a break.
    pub reconnects: u64,
    /// Bytes of messages that were received.
    pub bytes_in: u64,
    /// Bytes of messages that were sent.
    pub bytes_out: u64,
    /// Calls that wait for their answers.
    pub calls: usize,
    /// Pages that followers had to fetch, because they were not in the inbox.
    pub fetches: u64,
    /// Pushed output that waits to be read.
    pub held_bytes: usize,
    /// Entries that are known to be there and that nobody has read yet, over all followed processes.
    pub lag_entries: u64,
}

impl Link {
    pub(crate) fn new(shared: Arc<LinkShared>) -> Self {
        Self { shared, environment: None }
    }

    /// The same link, for one of the server's environments.
    pub(crate) fn for_environment(&self, id: &str) -> Self {
        Self { shared: Arc::clone(&self.shared), environment: Some(id.into()) }
    }

    pub(crate) fn shared(&self) -> &Arc<LinkShared> {
        &self.shared
    }

    /// Calls with the default options of the method.
    pub async fn call<C: Call>(&self, params: C) -> Result<C::Result, CallError> {
        self.call_with(&params, self.default_options(C::METHOD)).await.result
    }

    /// The options that the table of methods gives a call, whatever its params. Where those matter, the caller decides.
    pub fn default_options(&self, method: Method) -> CallOptions {
        let behaviour = method.behaviour();
        let deadline = if behaviour.waits { LONG_CALL } else { self.shared.call_deadline };
        CallOptions { deadline, retry: behaviour.retry }
    }

    /// How long a server may take for a call that does not wait for anything.
    pub(crate) fn call_deadline(&self) -> Duration {
        self.shared.call_deadline
    }

    /// Calls with these options. Dropping the future frees its permit; the server may still carry it out.
    pub async fn call_with<C: Call>(&self, params: &C, options: CallOptions) -> CallOutcome<C::Result> {
        let method = C::METHOD;
        let failed = |error| CallOutcome { result: Err(error), resent: false };
        let late = || CallError::Deadline { method, after: options.deadline };
        let permit = tokio::time::timeout(options.deadline, self.shared.call_permit()).await;
        let Ok(permit) = permit else { return failed(late()) };
        let id = self.shared.new_id();
        let (message, body) = self.message(id, params);
        let outgoing = OutgoingMessage::new(message, permit).with_body(body);
        let outgoing = if method.behaviour().bulk { outgoing.bulk() } else { outgoing };
        let (reply, answer) = oneshot::channel();
        let call = PendingCall { method, retry: options.retry, outgoing, reply, sent_at: Instant::now(), resends: 0 };
        if let Err(error) = self.shared.submit(id, call) {
            return failed(error);
        }
        let cancel = CancelOnDrop { shared: &self.shared, id };
        let answer = self.answer(id, answer, options.deadline).await;
        drop(cancel);
        match answer {
            Some(CallOutcome { result, resent }) => CallOutcome { result: result.and_then(decode::<C>), resent },
            None => failed(late()),
        }
    }

    /// The call as it is sent: as a binary frame if the method has one and the server accepts it, otherwise as JSON. A message may
    /// go on with a payload.
    fn message<C: Call>(&self, id: i64, params: &C) -> (Message, Bytes) {
        let mut out = Vec::new();
        if self.shared.lock().binary
            && let Some(payload) = params.write_frame_header(&id.to_string(), &mut out)
        {
            return (Message::Binary(out.into()), payload);
        }
        let environment = self.environment.as_deref().filter(|_| C::METHOD.is_for_an_environment());
        envelope::write_request_for(&mut out, &RequestId::Number(id), C::METHOD.name(), params, environment);
        (Message::Text(out.into()), Bytes::new())
    }

    /// Waits for the answer; `None` at the deadline. Time without a connection does not count: the give-up time of the
    /// session bounds it.
    async fn answer(
        &self,
        id: i64,
        mut answer: oneshot::Receiver<CallOutcome<RawResult>>,
        deadline: Duration,
    ) -> Option<CallOutcome<RawResult>> {
        let mut remaining = deadline;
        loop {
            match tokio::time::timeout(remaining, &mut answer).await {
                Ok(Ok(outcome)) => return Some(outcome),
                // The table drops a call only after it was answered, unless the driver panicked.
                Ok(Err(_)) => {
                    let error = CallError::Lost { why: "the link has ended".into() };
                    return Some(CallOutcome { result: Err(error), resent: false });
                }
                Err(_) => remaining = self.shared.time_left(id, deadline)?,
            }
        }
    }

    /// Subscribes to these notifications: to those about the watch, search, body or copy with the id `about`, or to all.
    ///
    /// The channel ends when the connection breaks, because what is notified this way (changes, bodies, search results)
    /// belongs to it; and when `capacity` of them wait, or [`NOTIFICATION_BYTES`](crate::limits::NOTIFICATION_BYTES), because nobody else may wait for a slow
    /// subscriber.
    pub fn subscribe(
        &self,
        methods: &[NotificationMethod],
        about: Option<&str>,
        capacity: usize,
    ) -> mpsc::Receiver<Notification> {
        let (sender, notifications) = mpsc::channel(capacity.max(1));
        let mut state = self.shared.lock();
        // Subscribers that are gone would otherwise stay until a notification comes for them.
        state.subscribers.retain(|subscriber| !subscriber.is_gone());
        state.subscribers.push(Subscriber::new(methods, about, sender));
        notifications
    }

    /// Whether the server has this extension, or this method of ours.
    pub fn has(&self, extension: impl Into<Extension>) -> bool {
        self.shared.lock().extensions.contains(extension.into().name())
    }

    /// The id of the session, while there is one.
    pub fn session_id(&self) -> Option<String> {
        self.shared.lock().session_id.clone()
    }

    /// The state of the link, and every change of it.
    pub fn states(&self) -> watch::Receiver<LinkState> {
        self.shared.link_state.subscribe()
    }

    /// Why there is no connection, and since when; `None` if there is one, or nobody has asked for one yet.
    pub fn outage(&self) -> Option<Outage> {
        self.shared.lock().outage.clone()
    }

    /// The link in numbers.
    pub fn metrics(&self) -> LinkMetrics {
        let shared = &self.shared;
        let state = shared.lock();
        LinkMetrics {
            reconnects: shared.reconnects.load(Ordering::Relaxed),
            bytes_in: shared.bytes_in.load(Ordering::Relaxed),
            bytes_out: shared.bytes_out.load(Ordering::Relaxed),
            calls: state.calls.len(),
            fetches: shared.fetches.load(Ordering::Relaxed),
            held_bytes: state.inbox.held_bytes(),
            lag_entries: state.inbox.lag_entries(),
        }
    }
}

/// Removes a call whose caller is gone from the table.
struct CancelOnDrop<'a> {
    shared: &'a LinkShared,
    id: i64,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.lock().calls.remove(&self.id);
    }
}

/// A successful answer, before it is decoded to the result type of its method.
#[derive(Debug)]
enum RawResult {
    Json(SharedJson),
    /// A block of a file, as the raw bytes of a binary frame.
    Block {
        bytes: Bytes,
        eof: bool,
    },
}

fn decode<C: Call>(result: RawResult) -> Result<C::Result, CallError> {
    let unreadable = |reason: &str| CallError::Undecodable { method: C::METHOD, reason: reason.to_owned() };
    match result {
        RawResult::Json(json) => json.decode().map_err(|error| unreadable(error.reason())),
        RawResult::Block { bytes, eof } => {
            C::result_from_block(bytes, eof).ok_or_else(|| unreadable("a binary frame is no answer to this method"))
        }
    }
}

/// What callers, followers and the driver share. One short lock, never held across an await; whoever changes something
/// that somebody waits for wakes them under it.
#[derive(Debug)]
pub(crate) struct LinkShared {
    state: Mutex<SharedState>,
    /// Notified when a call is made while there is no connection.
    connection_wanted: Notify,
    /// One permit per call that waits for its answer or to be written.
    call_permits: Arc<Semaphore>,
    /// One permit per answer of ours that waits to be written.
    answer_permits: Arc<Semaphore>,
    /// One permit per acknowledgement that waits to be written.
    acknowledgement_permits: Arc<Semaphore>,
    /// Ids are unique over all connections, so that a call can be sent again as it is.
    next_id: AtomicI64,
    /// A random word for this client. Together with the id of a call it tells the server which calls it has seen before.
    request_scope: String,
    call_deadline: Duration,
    pub(crate) link_state: watch::Sender<LinkState>,
    /// Who is attached to the session, once the server has told it.
    pub(crate) attendance: watch::Sender<Option<AttachedParams>>,
    reconnects: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: Arc<AtomicU64>,
    pub(crate) fetches: AtomicU64,
    decider: DeciderSlot,
}

/// Who answers when the server asks about the network of a process.
#[derive(Default)]
struct DeciderSlot(Mutex<Option<Arc<dyn NetworkDecider>>>);

impl std::fmt::Debug for DeciderSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeciderSlot")
    }
}

/// What the lock of [`LinkShared`] guards.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    phase: LinkPhase,
    outage: Option<Outage>,
    /// Whether somebody has asked for a connection since the last one was lost.
    wanted: bool,
    /// By id, which is the order in which they were made.
    calls: BTreeMap<i64, PendingCall>,
    pub(crate) inbox: Inbox,
    pub(crate) processes: HashMap<ProcessId, CachedProcess>,
    subscribers: Vec<Subscriber>,
    pub(crate) extensions: BTreeSet<String>,
    /// Whether blocks may be sent as raw bytes.
    binary: bool,
    /// Whether the server keeps what we have not acknowledged.
    acknowledges: bool,
    pub(crate) info: Option<EnvironmentInfo>,
    session_id: Option<String>,
    /// What we are to the session; `None` if we never said. After a break we come back as that.
    pub(crate) role: Option<Role>,
    /// The name of the server's memory of requests; `None` if it has none.
    pub(crate) request_memory: Option<String>,
}

/// Whether a call can be sent at once.
#[derive(Debug, Default)]
enum LinkPhase {
    #[default]
    Down,
    Live(WriterQueue),
    Ended,
}

/// A call that waits for its answer.
#[derive(Debug)]
struct PendingCall {
    method: Method,
    retry: RetryPolicy,
    /// Kept so that it can be sent again.
    outgoing: OutgoingMessage,
    reply: oneshot::Sender<CallOutcome<RawResult>>,
    /// When it was given to the present connection; when it was made, if there is none.
    sent_at: Instant,
    /// How often it was sent again.
    resends: u32,
}

impl PendingCall {
    fn reply(self, result: Result<RawResult, CallError>) {
        // A caller that is gone removes its call itself.
        let _ = self.reply.send(CallOutcome { result, resent: self.resends > 0 });
    }
}

impl LinkShared {
    pub(crate) fn new(call_deadline: Duration, inbox: Inbox) -> Self {
        Self {
            request_scope: format!("{:016x}{:016x}", random_seed(), random_seed()),
            state: Mutex::new(SharedState { inbox, ..SharedState::default() }),
            connection_wanted: Notify::new(),
            call_permits: Arc::new(Semaphore::new(CALLS)),
            answer_permits: Arc::new(Semaphore::new(ANSWERS)),
            acknowledgement_permits: Arc::new(Semaphore::new(ACKNOWLEDGEMENTS)),
            next_id: AtomicI64::new(1),
            call_deadline,
            link_state: watch::Sender::new(LinkState::Connecting),
            attendance: watch::Sender::new(None),
            reconnects: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: Arc::default(),
            fetches: AtomicU64::new(0),
            decider: DeciderSlot::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SharedState> {
        // A panic under the lock leaves wrong counters at worst, so the link goes on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_decider(&self, decider: Arc<dyn NetworkDecider>) {
        *self.decider.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(decider);
    }

    fn decider(&self) -> Option<Arc<dyn NetworkDecider>> {
        self.decider.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_attendance(&self, attendance: AttachedParams) {
        let mut state = self.lock();
        if state.role.is_some() {
            state.role = Some(attendance.role);
            self.attendance.send_replace(Some(attendance));
        }
    }

    async fn call_permit(&self) -> OwnedSemaphorePermit {
        let permits = Arc::clone(&self.call_permits);
        permits.acquire_owned().await.expect("the semaphore is never closed")
    }

    fn new_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a call in the table, and sends it if there is a connection.
    fn submit(&self, id: i64, call: PendingCall) -> Result<(), CallError> {
        let mut state = self.lock();
        match &state.phase {
            LinkPhase::Ended => return Err(CallError::Lost { why: "the connection was closed by us".into() }),
            LinkPhase::Live(queue) => queue.send(call.outgoing.clone()),
            LinkPhase::Down => {
                state.wanted = true;
                self.connection_wanted.notify_one();
            }
        }
        state.calls.insert(id, call);
        Ok(())
    }

    /// Tells the server what was read of a process's log, if that is at least `least_bytes` more than it knows.
    pub(crate) fn acknowledge(&self, id: &ProcessId, least_bytes: usize) {
        self.acknowledge_in(&mut self.lock(), id, least_bytes);
    }

    fn acknowledge_in(&self, state: &mut SharedState, id: &ProcessId, least_bytes: usize) {
        let LinkPhase::Live(queue) = &state.phase else { return };
        let due = state.inbox.acknowledgement(id, least_bytes).filter(|_| state.acknowledges);
        let Some(positions) = due else { return };
        // Without a permit it is left to the next one, which includes it.
        let Ok(permit) = Arc::clone(&self.acknowledgement_permits).try_acquire_owned() else { return };
        let params = AcknowledgeParams {
            process_id: id.as_str().to_owned(),
            seq: positions.map(|positions| positions.slowest),
            fastest_seq: positions.filter(|read| read.fastest > read.slowest).map(|positions| positions.fastest),
        };
        let mut out = Vec::new();
        envelope::write_notification(&mut out, NotificationMethod::ProcessAcknowledge.name(), &params, false);
        queue.send(OutgoingMessage::new(Message::Text(out.into()), permit));
        state.inbox.acknowledged(id, positions);
    }

    /// Whether the server should be told what was read of a process's log, and can be told.
    pub(crate) fn owes_acknowledgement(&self, id: &ProcessId) -> bool {
        let state = self.lock();
        let can_tell = state.acknowledges && matches!(state.phase, LinkPhase::Live(_));
        can_tell && state.inbox.acknowledgement(id, 0).is_some()
    }

    /// Asks for a connection, without a call.
    pub(crate) fn request_connection(&self) {
        self.lock().wanted = true;
        self.connection_wanted.notify_one();
    }

    /// How much longer a call may wait; `None` if its time is up.
    fn time_left(&self, id: i64, deadline: Duration) -> Option<Duration> {
        let state = self.lock();
        match (&state.phase, state.calls.get(&id)) {
            (LinkPhase::Live(_), Some(call)) => {
                deadline.checked_sub(call.sent_at.elapsed()).filter(|left| !left.is_zero())
            }
            // Either the answer is already in the channel, or there is no connection and the give-up time counts.
            _ => Some(deadline),
        }
    }

    /// There is no connection, because of this.
    fn record_outage(&self, why: &str) {
        let mut state = self.lock();
        let since = state.outage.as_ref().map_or_else(Instant::now, |outage| outage.since);
        state.outage = Some(Outage { since, why: why.to_owned() });
    }

    /// The session can be used: `initialized` and every call that waits is sent, in order.
    fn go_live(&self, queue: WriterQueue, initialized: OutgoingMessage) {
        let mut state = self.lock();
        state.outage = None;
        if !state.binary {
            // They were encoded for a server that accepted binary frames; this one does not.
            state.fail(|call| call.outgoing.is_binary());
        }
        queue.send(initialized);
        for call in state.calls.values_mut() {
            call.resends += u32::from(call.outgoing.was_sent());
            call.sent_at = Instant::now();
            queue.send(call.outgoing.clone());
        }
        state.phase = LinkPhase::Live(queue);
        state.inbox.tell_again(None);
        let ids: Vec<ProcessId> = state.inbox.ids().cloned().collect();
        for id in &ids {
            self.acknowledge_in(&mut state, id, 0);
        }
        for process in state.processes.values() {
            process.notify();
        }
    }

    /// The connection is gone. Calls that were sent and may not be sent twice fail; the others wait for the next one.
    fn connection_lost(&self) {
        let mut state = self.lock();
        state.phase = LinkPhase::Down;
        state.subscribers.clear();
        let tired = |call: &PendingCall| call.resends >= CALL_RESENDS && !call.method.behaviour().waits;
        for (_, call) in state.calls.extract_if(.., |_, call| tired(call)) {
            let why = format!("the connection broke {} times before {} was answered", call.resends, call.method.name());
            call.reply(Err(CallError::Lost { why }));
        }
        let forgetful = state.request_memory.is_none();
        state.fail(|call| {
            call.outgoing.was_sent()
                && match call.retry {
                    RetryPolicy::Always => false,
                    RetryPolicy::IfServerRemembers => forgetful,
                    RetryPolicy::IfUnsent => true,
                }
        });
    }

    /// The session is gone, and everything that belonged to it.
    fn session_lost(&self, loss: &SessionLoss) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.phase = if loss.kind == LossKind::Ended { LinkPhase::Ended } else { LinkPhase::Down };
        state.wanted = false;
        state.session_id = None;
        state.subscribers.clear();
        for (_, call) in std::mem::take(&mut state.calls) {
            call.reply(Err(loss.clone().into()));
        }
        for (id, process) in &mut state.processes {
            state.inbox.close(id);
            process.mark_lost(&loss.why);
        }
    }
}

impl SharedState {
    /// The server that accepted us remembers calls under this name. If the last one had another memory, nobody knows
    /// whether the calls that were sent to it have been carried out.
    fn set_request_memory(&mut self, memory: Option<String>) {
        if self.request_memory != memory || memory.is_none() {
            self.fail(|call| call.retry == RetryPolicy::IfServerRemembers && call.outgoing.was_sent());
        }
        self.request_memory = memory;
    }

    /// Fails the calls that may have been carried out and cannot be sent again.
    fn fail(&mut self, is_hopeless: impl Fn(&PendingCall) -> bool) {
        for (_, call) in self.calls.extract_if(.., |_, call| is_hopeless(call)) {
            let method = call.method;
            call.reply(Err(CallError::Interrupted { method }));
        }
    }

    /// An entry was pushed.
    fn push(&mut self, id: &str, entry: Entry) {
        let Ok(id) = ProcessId::new(id) else { return };
        self.inbox.push(&id, entry);
        if let Some(process) = self.processes.get(&id) {
            process.notify();
        }
    }

    /// A call was answered.
    fn answer(&mut self, id: i64, answer: Result<RawResult, RpcError>) {
        // Without an entry nobody waits for it any more: the call was cancelled, or answered before a break.
        if let Some(call) = self.calls.remove(&id) {
            let method = call.method;
            call.reply(answer.map_err(|error| CallError::Refused { method, error: Box::new(error) }));
        }
    }

    /// Passes a notification on to its subscribers; `about` is the id of what it is about.
    fn notify(&mut self, method: NotificationMethod, about: Option<&str>, params: &SharedJson, frame_bytes: usize) {
        self.subscribers.retain(|subscriber| {
            !subscriber.is_concerned(method, about) || subscriber.send(method, params, frame_bytes)
        });
    }
}
