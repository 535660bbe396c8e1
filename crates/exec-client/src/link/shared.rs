//! What callers, followers and the driver of a link share: the table of calls, the inbox, the process cache, the
//! subscribers. Which calls are sent again, and when there is a connection, is decided elsewhere; here it is carried out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use exec_core::{Entry, ProcessId};
use exec_env::NetworkDecider;
use exec_transport::Message;
use exec_wire::environment::EnvironmentInfo;
use exec_wire::process::AcknowledgeParams;
use exec_wire::session::{AttachedParams, Role};
use exec_wire::{Method, NotificationMethod, RetryPolicy, RpcError, SharedJson, envelope};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::Instant;

use super::subscription::Subscriber;
use super::writer::{OutgoingMessage, WriterQueue};
use super::{CallOutcome, LinkState, Outage, RawResult};
use crate::error::CallError;
use crate::inbox::Inbox;
use crate::limits::{ACKNOWLEDGEMENTS, ANSWERS, CALL_RESENDS, CALLS};
use crate::process_cache::CachedProcess;
use crate::session::{LossKind, SessionLoss, random_seed};

/// What callers, followers and the driver share. One short lock, never held across an await; whoever changes something
/// that somebody waits for wakes them under it.
#[derive(Debug)]
pub(crate) struct LinkShared {
    pub(super) state: Mutex<SharedState>,
    /// Notified when a call is made while there is no connection.
    pub(super) connection_wanted: Notify,
    /// One permit per call that waits for its answer or to be written.
    pub(super) call_permits: Arc<Semaphore>,
    /// One permit per answer of ours that waits to be written.
    pub(super) answer_permits: Arc<Semaphore>,
    /// One permit per acknowledgement that waits to be written.
    pub(super) acknowledgement_permits: Arc<Semaphore>,
    /// Ids are unique over all connections, so that a call can be sent again as it is.
    pub(super) next_id: AtomicI64,
    /// A random word for this client. Together with the id of a call it tells the server which calls it has seen before.
    pub(super) request_scope: String,
    pub(super) call_deadline: Duration,
    pub(crate) link_state: watch::Sender<LinkState>,
    /// Who is attached to the session, once the server has told it.
    pub(crate) attendance: watch::Sender<Option<AttachedParams>>,
    pub(super) reconnects: AtomicU64,
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: Arc<AtomicU64>,
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
    pub(super) phase: LinkPhase,
    pub(super) outage: Option<Outage>,
    /// Whether somebody has asked for a connection since the last one was lost.
    pub(super) wanted: bool,
    /// By id, which is the order in which they were made.
    pub(super) calls: BTreeMap<i64, PendingCall>,
    pub(crate) inbox: Inbox,
    pub(crate) processes: HashMap<ProcessId, CachedProcess>,
    pub(super) subscribers: Vec<Subscriber>,
    pub(crate) extensions: BTreeSet<String>,
    /// Whether blocks may be sent as raw bytes.
    pub(super) binary: bool,
    /// Whether the server keeps what we have not acknowledged.
    pub(super) acknowledges: bool,
    pub(crate) info: Option<EnvironmentInfo>,
    pub(super) session_id: Option<String>,
    /// What we are to the session; `None` if we never said. After a break we come back as that.
    pub(crate) role: Option<Role>,
    /// The name of the server's memory of requests; `None` if it has none.
    pub(crate) request_memory: Option<String>,
}

/// Whether a call can be sent at once.
#[derive(Debug, Default)]
pub(super) enum LinkPhase {
    #[default]
    Down,
    Live(WriterQueue),
    Ended,
}

/// A call that waits for its answer.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) method: Method,
    pub(super) retry: RetryPolicy,
    /// Kept so that it can be sent again.
    pub(super) outgoing: OutgoingMessage,
    pub(super) reply: oneshot::Sender<CallOutcome<RawResult>>,
    /// When it was given to the present connection; when it was made, if there is none.
    pub(super) sent_at: Instant,
    /// How often it was sent again.
    pub(super) resends: u32,
}

impl PendingCall {
    pub(super) fn reply(self, result: Result<RawResult, CallError>) {
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

    pub(super) fn decider(&self) -> Option<Arc<dyn NetworkDecider>> {
        self.decider.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_attendance(&self, attendance: AttachedParams) {
        let mut state = self.lock();
        if state.role.is_some() {
            state.role = Some(attendance.role);
            self.attendance.send_replace(Some(attendance));
        }
    }

    pub(super) async fn call_permit(&self) -> OwnedSemaphorePermit {
        let permits = Arc::clone(&self.call_permits);
        permits.acquire_owned().await.expect("the semaphore is never closed")
    }

    pub(super) fn new_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a call in the table, and sends it if there is a connection.
    pub(super) fn submit(&self, id: i64, call: PendingCall) -> Result<(), CallError> {
        let mut state = self.lock();
        match &state.phase {
            LinkPhase::Ended => return Err(CallError::Lost { why: "the connection was closed by us".into() }),
            LinkPhase::Live(queue) => queue.send(call.outgoing.clone()),
            // Its connection is gone already, though its caller has not heard of it.
            LinkPhase::Down if call.retry == RetryPolicy::OnItsConnection => {
                return Err(CallError::Interrupted { method: call.method });
            }
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

    pub(super) fn acknowledge_in(&self, state: &mut SharedState, id: &ProcessId, least_bytes: usize) {
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
    pub(super) fn time_left(&self, id: i64, deadline: Duration) -> Option<Duration> {
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
    pub(super) fn record_outage(&self, why: &str) {
        let mut state = self.lock();
        let since = state.outage.as_ref().map_or_else(Instant::now, |outage| outage.since);
        state.outage = Some(Outage { since, why: why.to_owned() });
    }

    /// The session can be used: `initialized` and every call that waits is sent, in order.
    pub(super) fn go_live(&self, queue: WriterQueue, initialized: OutgoingMessage) {
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
    pub(super) fn connection_lost(&self) {
        let mut state = self.lock();
        state.phase = LinkPhase::Down;
        state.subscribers.clear();
        let tired = |call: &PendingCall| call.resends >= CALL_RESENDS && !call.method.behaviour().waits;
        for (_, call) in state.calls.extract_if(.., |_, call| tired(call)) {
            let why = format!("the connection broke {} times before {} was answered", call.resends, call.method.name());
            call.reply(Err(CallError::Lost { why }));
        }
        let forgetful = state.request_memory.is_none();
        state.fail(|call| match call.retry {
            RetryPolicy::Always => false,
            RetryPolicy::IfServerRemembers => forgetful && call.outgoing.was_sent(),
            RetryPolicy::IfUnsent => call.outgoing.was_sent(),
            RetryPolicy::OnItsConnection => true,
        });
    }

    /// The session is gone, and everything that belonged to it.
    pub(super) fn session_lost(&self, loss: &SessionLoss) {
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
    pub(super) fn set_request_memory(&mut self, memory: Option<String>) {
        if self.request_memory != memory || memory.is_none() {
            self.fail(|call| call.retry == RetryPolicy::IfServerRemembers && call.outgoing.was_sent());
        }
        self.request_memory = memory;
    }

    /// Fails the calls that may have been carried out and cannot be sent again.
    pub(super) fn fail(&mut self, is_hopeless: impl Fn(&PendingCall) -> bool) {
        for (_, call) in self.calls.extract_if(.., |_, call| is_hopeless(call)) {
            let method = call.method;
            call.reply(Err(CallError::Interrupted { method }));
        }
    }

    /// An entry was pushed.
    pub(super) fn push(&mut self, id: &str, entry: Entry) {
        let Ok(id) = ProcessId::new(id) else { return };
        self.inbox.push(&id, entry);
        if let Some(process) = self.processes.get(&id) {
            process.notify();
        }
    }

    /// A call was answered.
    pub(super) fn answer(&mut self, id: i64, answer: Result<RawResult, RpcError>) {
        // Without an entry nobody waits for it any more: the call was cancelled, or answered before a break.
        if let Some(call) = self.calls.remove(&id) {
            let method = call.method;
            call.reply(answer.map_err(|error| CallError::Refused { method, error: Box::new(error) }));
        }
    }

    /// Passes a notification on to its subscribers; `about` is the id of what it is about.
    pub(super) fn notify(
        &mut self,
        method: NotificationMethod,
        about: Option<&str>,
        params: &SharedJson,
        frame_bytes: usize,
    ) {
        self.subscribers.retain(|subscriber| {
            !subscriber.is_concerned(method, about) || subscriber.send(method, params, frame_bytes)
        });
    }
}
