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
//! and the table of methods ([`RetryPolicy`]). Of processes and files, the link knows only where their notifications go.

pub(crate) mod driver;
mod shared;
mod subscription;
mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use exec_transport::Message;
use exec_wire::envelope::{self, RequestId};
use exec_wire::{Call, Extension, Method, NotificationMethod, RetryPolicy, SharedJson};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::error::CallError;
use crate::limits::LONG_CALL;
use crate::session::SessionLoss;
pub(crate) use shared::LinkShared;
use shared::PendingCall;
pub use subscription::Notification;
use subscription::Subscriber;
pub(crate) use subscription::next_params;
use writer::OutgoingMessage;

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

    /// The call as it is sent: as a binary frame if the method has one and the server accepts it, otherwise as JSON. A
    /// message may go on with a payload.
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
    /// belongs to it; and when `capacity` of them wait, or [`NOTIFICATION_BYTES`](crate::limits::NOTIFICATION_BYTES),
    /// because nobody else may wait for a slow subscriber.
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
