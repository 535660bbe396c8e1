//! What callers, followers and the driver share: the table of calls, the inbox, the records of processes.
//!
//! One short lock, never held across an await. Whoever changes something that somebody waits for wakes them under it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exec_core::{Entry, ProcessId};
use exec_wire::environment::EnvironmentInfo;
use exec_wire::{Method, NotificationMethod, RpcError, SharedJson};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::writer::{OutgoingMessage, WriterQueue};
use super::{LinkMetrics, LinkState, Notification};
use crate::environment::random_seed;
use crate::error::CallError;
use crate::inbox::Inbox;
use crate::limits::{ANSWERS, CALLS};
use crate::process_cache::CachedProcess;
use crate::retry::RetryPolicy;
use crate::session::{LossKind, SessionLoss};

/// The shared half of a link.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<SharedState>,
    /// Rung when a call is made while there is no connection.
    pub(crate) wanted: Notify,
    /// One permit per call that waits for its answer or to be written.
    call_permits: Arc<Semaphore>,
    /// One permit per answer of ours that waits to be written.
    pub(crate) answer_permits: Arc<Semaphore>,
    /// Ids are unique over all connections, so that a call can be sent again as it is.
    next_id: AtomicI64,
    /// Our own word for our calls, by which and by their ids a server knows them.
    pub(crate) request_scope: String,
    pub(crate) call_deadline: Duration,
    pub(crate) link_state: watch::Sender<LinkState>,
    pub(crate) reconnects: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: Arc<AtomicU64>,
    pub(crate) fetches: AtomicU64,
}

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) phase: LinkPhase,
    /// Whether somebody has asked for a connection since the last one was lost.
    pub(crate) wanted: bool,
    /// By id, which is the order in which they were made.
    pub(crate) calls: BTreeMap<i64, PendingCall>,
    pub(crate) inbox: Inbox,
    pub(crate) processes: HashMap<ProcessId, CachedProcess>,
    pub(crate) subscribers: Vec<Subscriber>,
    pub(crate) extensions: BTreeSet<String>,
    /// Whether blocks may be sent as raw bytes.
    pub(crate) binary: bool,
    pub(crate) info: Option<EnvironmentInfo>,
    pub(crate) session_id: Option<String>,
    /// Whose memory of requests it is; `None` if the server has none.
    pub(crate) request_memory: Option<String>,
}

/// Whether a call can be sent at once.
#[derive(Debug)]
pub(crate) enum LinkPhase {
    Down,
    Live(WriterQueue),
    Ended,
}

/// A word that no other client has.
fn request_scope() -> String {
    format!("{:016x}{:016x}", random_seed(), random_seed())
}

/// A call that waits.
#[derive(Debug)]
pub(crate) struct PendingCall {
    pub(crate) method: Method,
    pub(crate) retry: RetryPolicy,
    /// Kept to be sent again.
    pub(crate) outgoing: OutgoingMessage,
    pub(crate) reply: oneshot::Sender<CallReply>,
    /// When it was given to a connection, or made.
    pub(crate) sent_at: Instant,
    pub(crate) resent: bool,
}

/// What a caller is told.
#[derive(Debug)]
pub(crate) struct CallReply {
    pub(crate) outcome: ReplyOutcome,
    pub(crate) resent: bool,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) enum ReplyOutcome {
    Json(SharedJson),
    Block { bytes: Bytes, eof: bool },
    Refused(RpcError),
    Failed(CallError),
}

/// Somebody who hears notifications.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) methods: Box<[NotificationMethod]>,
    /// Only what is about this watch, search, body or copy; everything if `None`.
    pub(crate) about: Option<String>,
    pub(crate) sender: mpsc::Sender<Notification>,
}

impl Shared {
    pub(crate) fn new(call_deadline: Duration, inbox: Inbox) -> Self {
        let state = SharedState {
            phase: LinkPhase::Down,
            wanted: false,
            calls: BTreeMap::new(),
            inbox,
            processes: HashMap::new(),
            subscribers: Vec::new(),
            extensions: BTreeSet::new(),
            binary: false,
            info: None,
            session_id: None,
            request_memory: None,
        };
        Self {
            request_scope: request_scope(),
            state: Mutex::new(state),
            wanted: Notify::new(),
            call_permits: Arc::new(Semaphore::new(CALLS)),
            answer_permits: Arc::new(Semaphore::new(ANSWERS)),
            next_id: AtomicI64::new(1),
            call_deadline,
            link_state: watch::Sender::new(LinkState::Connecting),
            reconnects: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: Arc::default(),
            fetches: AtomicU64::new(0),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SharedState> {
        // A panic under the lock leaves counters at worst; the link goes on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit among the calls in flight.
    pub(crate) async fn call_permit(&self) -> OwnedSemaphorePermit {
        let call_permits = Arc::clone(&self.call_permits);
        call_permits.acquire_owned().await.expect("the semaphore is never closed")
    }

    pub(crate) fn new_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a call in the table, and on its way if there is a connection.
    pub(crate) fn submit(&self, id: i64, pending: PendingCall) -> Result<(), CallError> {
        let mut state = self.lock();
        match &state.phase {
            LinkPhase::Ended => return Err(CallError::Lost { why: "the connection was closed by us".into() }),
            LinkPhase::Live(queue) => queue.send(pending.outgoing.clone()),
            LinkPhase::Down => {
                state.wanted = true;
                self.wanted.notify_one();
            }
        }
        state.calls.insert(id, pending);
        Ok(())
    }

    /// Asks for a connection, without a call.
    pub(crate) fn request_connection(&self) {
        self.lock().wanted = true;
        self.wanted.notify_one();
    }

    /// How much longer a call may wait; `None` if its time is up.
    pub(crate) fn time_left(&self, id: i64, deadline: Duration) -> Option<Duration> {
        let state = self.lock();
        match (&state.phase, state.calls.get(&id)) {
            (LinkPhase::Live(_), Some(pending)) => {
                deadline.checked_sub(pending.sent_at.elapsed()).filter(|left| !left.is_zero())
            }
            // The answer is on its way through the channel, or the give-up time of the session counts.
            _ => Some(deadline),
        }
    }

    /// The session is there: `initialized` and everything that waits goes out, in order.
    pub(crate) fn go_live(&self, queue: WriterQueue, initialized: OutgoingMessage) {
        let mut state = self.lock();
        if !state.binary {
            // Made for a server that took them; this one is another.
            let binary = state.calls.iter().filter(|(_, call)| call.outgoing.is_binary()).map(|(id, _)| *id).collect();
            state.fail(binary);
        }
        queue.send(initialized);
        for pending in state.calls.values_mut() {
            pending.resent |= pending.outgoing.was_sent();
            pending.sent_at = Instant::now();
            queue.send(pending.outgoing.clone());
        }
        state.phase = LinkPhase::Live(queue);
        state.notify_all();
    }

    /// The connection is gone. What was sent and may not be sent twice fails; the rest waits for the next one.
    pub(crate) fn connection_lost(&self) {
        let mut state = self.lock();
        state.phase = LinkPhase::Down;
        state.subscribers.clear();
        let failed: Vec<i64> = state
            .calls
            .iter()
            .filter(|(_, call)| match call.retry {
                RetryPolicy::Always => false,
                RetryPolicy::IfServerRemembers => state.request_memory.is_none() && call.outgoing.was_sent(),
                RetryPolicy::IfUnsent => call.outgoing.was_sent(),
            })
            .map(|(id, _)| *id)
            .collect();
        state.fail(failed);
    }

    /// The session is gone, and everything that belonged to it.
    pub(crate) fn session_lost(&self, loss: &SessionLoss) {
        let mut state = self.lock();
        state.phase = if loss.kind == LossKind::Ended { LinkPhase::Ended } else { LinkPhase::Down };
        state.wanted = false;
        state.session_id = None;
        state.subscribers.clear();
        for (_, call) in std::mem::take(&mut state.calls) {
            call.reply(ReplyOutcome::Failed(loss.clone().into()));
        }
        let ids: Vec<ProcessId> = state.processes.keys().cloned().collect();
        for id in ids {
            state.inbox.close(&id);
        }
        for process in state.processes.values_mut() {
            process.mark_lost(&loss.why);
        }
    }

    pub(crate) fn metrics(&self) -> LinkMetrics {
        let state = self.lock();
        LinkMetrics {
            reconnects: self.reconnects.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
            calls: state.calls.len(),
            fetches: self.fetches.load(Ordering::Relaxed),
            held_bytes: state.inbox.held_bytes(),
            lag_entries: state.inbox.lag_entries(),
        }
    }
}

impl SharedState {
    /// A server has welcomed us that remembers calls under this name. If the last one was another, those that were sent may
    /// have happened, and nobody knows.
    pub(crate) fn set_request_memory(&mut self, memory: Option<String>) {
        if self.request_memory != memory || memory.is_none() {
            let sent = self
                .calls
                .iter()
                .filter(|(_, call)| call.retry == RetryPolicy::IfServerRemembers && call.outgoing.was_sent());
            let sent = sent.map(|(id, _)| *id).collect();
            self.fail(sent);
        }
        self.request_memory = memory;
    }

    /// These may have happened, and cannot be asked again.
    fn fail(&mut self, ids: Vec<i64>) {
        for id in ids {
            if let Some(call) = self.calls.remove(&id) {
                let error = CallError::Interrupted { method: call.method };
                call.reply(ReplyOutcome::Failed(error));
            }
        }
    }

    /// An entry was pushed.
    pub(crate) fn push(&mut self, id: &str, entry: Entry) {
        let Ok(id) = ProcessId::new(id) else { return };
        self.inbox.push(&id, entry);
        if let Some(process) = self.processes.get(&id) {
            process.notify();
        }
    }

    /// An answer came.
    pub(crate) fn answer(&mut self, id: i64, outcome: ReplyOutcome) {
        // Nobody waits for it any more: the call was taken back, or answered before a break.
        if let Some(call) = self.calls.remove(&id) {
            call.reply(outcome);
        }
    }

    /// A notification came for whoever listens; `about` is the name of what it is about.
    pub(crate) fn notify(&mut self, method: NotificationMethod, about: Option<&str>, params: &SharedJson) {
        self.subscribers.retain(|subscriber| {
            let notification = || Notification { method, params: params.clone() };
            let concerned = subscriber.methods.contains(&method)
                && subscriber.about.as_deref().is_none_or(|wanted| about == Some(wanted));
            !concerned || subscriber.sender.try_send(notification()).is_ok()
        });
    }

    pub(crate) fn notify_all(&self) {
        for process in self.processes.values() {
            process.notify();
        }
    }
}

impl PendingCall {
    fn reply(self, outcome: ReplyOutcome) {
        // A caller that is gone takes its call back itself.
        let _ = self.reply.send(CallReply { outcome, resent: self.resent });
    }
}
