//! The link: calls go in, answers come out, whatever happens to the connections in between.
//!
//! ```text
//!   caller ── call ──► shared state ── queue ──► writer task ──► connection
//!   caller ◄─ answer ─ shared state ◄─────────── driver task ◄── connection
//!   follower ◄─ wake ─ inbox ◄──────────────────┘
//! ```
//!
//! A call is kept, with the bytes it was sent as, until its answer is there; after a break the driver sends again what
//! may be sent again. The decisions are those of [`crate::session`], [`crate::inbox`] and [`crate::retry`]. Nothing of
//! processes or files is known here but where their notifications go.

pub(crate) mod driver;
mod incoming;
pub(crate) mod shared;
mod writer;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use exec_transport::Message;
use exec_wire::binary::{self, FrameHeader};
use exec_wire::envelope::{self, RequestId};
use exec_wire::fs::{ReadBlockResult, WriteBlockParams};
use exec_wire::{Call, Method, NotificationMethod, SharedJson};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::error::CallError;
use crate::retry::RetryPolicy;
use crate::session::SessionLoss;
use shared::{CallReply, PendingCall, ReplyOutcome, Shared};
use writer::OutgoingMessage;

/// A link to a server. Cheap to clone; it ends with its environment, not with its clones.
#[derive(Debug, Clone)]
pub struct Link {
    shared: Arc<Shared>,
}

/// On what terms a call is made.
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
    /// The answer.
    pub result: Result<T, CallError>,
    /// Whether it was sent more than once, so that the answer may be about the second time.
    pub resent: bool,
}

/// How the link is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// A first connection is being made.
    Connecting,
    /// Calls are answered.
    Connected,
    /// The connection broke; the session is being looked for.
    Reconnecting {
        /// The number of the try, from 1.
        attempt: u32,
    },
    /// The session is lost. The next call opens another.
    Lost(SessionLoss),
    /// We have left.
    Ended,
}

/// The link in numbers, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkMetrics {
    /// How often the session was found again after a break.
    pub reconnects: u64,
    /// Bytes of messages that came.
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

/// A notification for those who listen.
#[derive(Debug, Clone)]
pub struct Notification {
    /// Which.
    pub method: NotificationMethod,
    /// What it says.
    pub params: SharedJson,
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Asks, on the usual terms of the method.
    pub async fn call<C: Call>(&self, params: C) -> Result<C::Result, CallError> {
        self.call_with(&params, self.default_options(C::METHOD)).await.result
    }

    /// The usual terms of a method.
    pub fn default_options(&self, method: Method) -> CallOptions {
        CallOptions { deadline: self.shared.call_deadline, retry: RetryPolicy::of(method) }
    }

    /// Calls with these options. Dropping the future frees its permit; the server may still carry it out.
    pub async fn call_with<C: Call>(&self, params: &C, options: CallOptions) -> CallOutcome<C::Result> {
        let method = C::METHOD;
        let failed = |error| CallOutcome { result: Err(error), resent: false };
        let late = || CallError::Deadline { method, after: options.deadline };
        let Ok(permit) = tokio::time::timeout(options.deadline, self.shared.call_permit()).await else {
            return failed(late());
        };
        let id = self.shared.new_id();
        let outgoing = OutgoingMessage::new(self.message(id, params), permit);
        let outgoing = match method {
            Method::FsWriteBlock | Method::FsWriteFile => outgoing.bulk(),
            _ => outgoing,
        };
        let (reply, answer) = oneshot::channel();
        let pending =
            PendingCall { method, retry: options.retry, outgoing, reply, sent_at: Instant::now(), resent: false };
        if let Err(error) = self.shared.submit(id, pending) {
            return failed(error);
        }
        let cancel = CancelOnDrop { shared: &self.shared, id };
        let reply = self.answer(id, answer, options.deadline).await;
        drop(cancel);
        match reply {
            Some(CallReply { outcome, resent }) => CallOutcome { result: decode::<C>(outcome), resent },
            None => failed(late()),
        }
    }

    /// The call as it is sent. Of one method, the params go as raw bytes where the server takes them.
    fn message<C: Call>(&self, id: i64, params: &C) -> Message {
        let any: &dyn Any = params;
        let mut out = Vec::new();
        if let Some(block) = any.downcast_ref::<WriteBlockParams>()
            && self.shared.lock().binary
        {
            let request_id = id.to_string();
            let header = FrameHeader::Write { request_id: &request_id, handle_id: &block.handle_id, offset: block.offset };
            binary::encode(&mut out, &header, &block.chunk.0).expect("a number and a handle of ours are short");
            return Message::Binary(out.into());
        }
        envelope::write_request(&mut out, &RequestId::Number(id), C::METHOD.name(), params, None, false);
        Message::Text(out.into())
    }

    /// Waits for the answer. Time without a connection does not count: the give-up time of the session bounds it.
    async fn answer(&self, id: i64, mut answer: oneshot::Receiver<CallReply>, deadline: Duration) -> Option<CallReply> {
        let mut remaining = deadline;
        loop {
            match tokio::time::timeout(remaining, &mut answer).await {
                Ok(Ok(reply)) => return Some(reply),
                // The table lets go of a call only with an answer, or when the driver is gone without a word.
                Ok(Err(_)) => {
                    let outcome = ReplyOutcome::Failed(CallError::Lost { why: "the link has ended".into() });
                    return Some(CallReply { outcome, resent: false });
                }
                Err(_) => remaining = self.shared.time_left(id, deadline)?,
            }
        }
    }

    /// Hears these notifications from now on. The channel ends when the connection breaks, because what is told this way
    /// (changes, bodies, findings) belongs to it; and when `capacity` of them wait, because nobody else may wait for a
    /// slow subscriber.
    pub fn subscribe(&self, methods: &[NotificationMethod], capacity: usize) -> mpsc::Receiver<Notification> {
        self.add_subscriber(methods, None, capacity)
    }

    /// The same, but only what is about the watch, search, body or copy of that name.
    pub fn subscribe_to_id(&self, method: NotificationMethod, name: &str, capacity: usize) -> mpsc::Receiver<Notification> {
        self.add_subscriber(&[method], Some(name.to_owned()), capacity)
    }

    fn add_subscriber(
        &self,
        methods: &[NotificationMethod],
        about: Option<String>,
        capacity: usize,
    ) -> mpsc::Receiver<Notification> {
        let (sender, notifications) = mpsc::channel(capacity.max(1));
        let mut state = self.shared.lock();
        // Those who stopped listening are noticed here, or they would only be when something comes for them.
        state.subscribers.retain(|subscriber| !subscriber.sender.is_closed());
        state.subscribers.push(shared::Subscriber { methods: methods.into(), about, sender });
        notifications
    }

    /// Whether the server has this extension (a name of `exec_wire::environment::EXTENSIONS`).
    pub fn has(&self, extension: &str) -> bool {
        self.shared.lock().extensions.contains(extension)
    }

    /// The session, while there is one.
    pub fn session_id(&self) -> Option<String> {
        self.shared.lock().session_id.clone()
    }

    /// How the link is, and every change of it.
    pub fn states(&self) -> watch::Receiver<LinkState> {
        self.shared.link_state.subscribe()
    }

    /// The link in numbers.
    pub fn metrics(&self) -> LinkMetrics {
        self.shared.metrics()
    }
}

/// Takes a call back whose caller is gone.
struct CancelOnDrop<'a> {
    shared: &'a Shared,
    id: i64,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.lock().calls.remove(&self.id);
    }
}

fn decode<C: Call>(outcome: ReplyOutcome) -> Result<C::Result, CallError> {
    let method = C::METHOD;
    match outcome {
        ReplyOutcome::Json(json) => {
            json.decode().map_err(|error| CallError::Undecodable { method, reason: error.reason().to_owned() })
        }
        // A block comes as raw bytes; it is the result of one method only.
        ReplyOutcome::Block { bytes, eof } => {
            let result: Box<dyn Any> = Box::new(ReadBlockResult { chunk: bytes.into(), eof });
            let reason = || "a file block is the answer to fs/readBlock only".to_owned();
            result.downcast().map(|result| *result).map_err(|_| CallError::Undecodable { method, reason: reason() })
        }
        ReplyOutcome::Refused(error) => Err(CallError::Refused { method, error: Box::new(error) }),
        ReplyOutcome::Failed(error) => Err(error),
    }
}
