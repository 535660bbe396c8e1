//! What an audit is told, and the queue to whoever writes it down.
//!
//! Requests hand their events to a bounded queue, and one thread writes them ([`AuditReceiver`] is its end; the file is not
//! known here). Nothing waits for a disk on a worker: when the queue is full, the request waits for room in it, and others
//! go on. If the audit is required, a request also waits until its line is written, and while lines cannot be written,
//! requests that would need one are refused.
//!
//! Arguments of programs are told, because what ran is what an audit is for. Values of variables, contents of files, bodies
//! and headers of requests, and what follows the host in a URL never are.

mod process;
mod request;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use exec_wire::network::PolicyDecisionParams;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

pub(crate) use process::{StartAudit, record_exit};
pub(crate) use request::{HttpAudit, RequestAudit, denial, record_stream};

/// Events that wait to be written: enough for a burst, and little memory.
const QUEUED_EVENTS: usize = 1024;

/// One thing that happened. The members are those of the line in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum AuditEvent {
    ServerStarted {
        version: String,
        pid: u32,
    },
    ServerStopped {
        pid: u32,
    },
    /// The log ended in the middle of a line when it was opened: its writer was killed. What there was of the line.
    TornLine {
        bytes: u64,
        text: String,
    },
    /// So many events could not be written.
    EventsLost {
        count: u64,
    },
    SessionOpened {
        session: String,
        client: String,
        peer: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
    },
    SessionResumed {
        session: String,
        peer: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
    },
    /// A client looks on, and may change nothing.
    SessionObserved {
        session: String,
        client: String,
        peer: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
    },
    /// An observer has got the drive of the session: it was handed over, taken, or nobody had it.
    DriveChanged {
        session: String,
        client: String,
        peer: String,
    },
    SessionClosed {
        session: String,
        reason: &'static str,
    },
    /// A client has had the server know another place.
    EnvironmentAdded {
        session: String,
        environment: String,
        /// Its URL; never its token.
        place: String,
    },
    EnvironmentRemoved {
        session: String,
        environment: String,
    },
    ProcessStarted {
        session: String,
        process: String,
        /// Here and below: where, if the server has several environments.
        #[serde(skip_serializing_if = "Option::is_none")]
        environment: Option<String>,
        /// Words that are not UTF-8 have U+FFFD in place of what is not.
        argv: Vec<String>,
        cwd: String,
        /// The user whose rights it was to have, if not the server's.
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
        /// What confines it; empty if nothing does.
        sandbox: Vec<String>,
        #[serde(flatten)]
        outcome: Outcome,
    },
    ProcessExited {
        session: String,
        process: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        environment: Option<String>,
        /// As a shell shows it; `null` if it was forgotten before anybody knew.
        code: Option<i32>,
        /// As clients are told: `exited`, `signalled`, `timedOut` and so on; or `forgotten`.
        cause: String,
    },
    FileChanged {
        session: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        environment: Option<String>,
        method: &'static str,
        /// As the client wrote them; of two the second is where to.
        paths: Vec<String>,
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// Something was refused.
    Denied {
        #[serde(skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        #[serde(skip_serializing_if = "String::is_empty")]
        peer: String,
        method: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        environment: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        process: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        paths: Vec<String>,
        /// `server/…` and `token/…` as errors name them, or `sandbox`.
        rule: String,
        why: String,
    },
    HttpRequest {
        session: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        environment: Option<String>,
        method: String,
        /// Scheme, host and port.
        origin: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// A connection was made for the client, or the machine listens for it.
    StreamOpened {
        session: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        environment: Option<String>,
        /// `net/open` or `net/listen`.
        method: &'static str,
        /// `localhost:3000`, or the path of a socket.
        address: String,
        #[serde(flatten)]
        outcome: Outcome,
    },
    NetworkDecision {
        session: String,
        process: String,
        decision: String,
        source: String,
        reason: String,
        protocol: String,
        host: String,
        port: u16,
        /// What the client gave its proxy for this, see `auditMetadata`.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        metadata: BTreeMap<String, String>,
    },
}

/// Whether something was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Outcome {
    Done,
    Failed {
        /// The kind of the error, or its code if it has none.
        error: String,
    },
    /// The connection ended while it was under way; it may have been done.
    Interrupted,
}

impl AuditEvent {
    /// What was decided about a destination that a process of `session` wanted to reach.
    pub fn network_decision(
        session: &str,
        decided: &PolicyDecisionParams,
        metadata: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let protocol = serde_json::to_value(decided.protocol).ok();
        Self::NetworkDecision {
            session: session.to_owned(),
            process: decided.process_id.clone(),
            decision: decided.decision.clone(),
            source: decided.source.clone(),
            reason: decided.reason.clone(),
            protocol: protocol.and_then(|protocol| Some(protocol.as_str()?.to_owned())).unwrap_or_default(),
            host: decided.host.clone(),
            port: decided.port,
            metadata: metadata.into_iter().collect(),
        }
    }
}

/// An event on its way to the log.
#[derive(Debug)]
pub struct AuditRecord {
    pub at: SystemTime,
    pub event: AuditEvent,
    /// Whoever waits until it is written.
    pub written: Option<oneshot::Sender<()>>,
}

/// Where events are handed in. Clones share the queue.
#[derive(Debug, Clone)]
pub struct AuditSink {
    queue: mpsc::Sender<AuditRecord>,
    state: Arc<AuditState>,
}

/// The end of whoever writes the log.
#[derive(Debug)]
pub struct AuditReceiver {
    queue: mpsc::Receiver<AuditRecord>,
    state: Arc<AuditState>,
}

#[derive(Debug)]
struct AuditState {
    required: bool,
    /// Whether the last attempt to write failed.
    failing: AtomicBool,
    /// Events that found no room and could not wait.
    lost: AtomicU64,
    /// Processes, as `session/process`, whose exit an earlier server has written down.
    exited: Mutex<HashSet<String>>,
}

/// The two ends of an audit. If it is `required`, nothing that it would record happens without it.
pub fn audit_queue(required: bool) -> (AuditSink, AuditReceiver) {
    // Bounded: when it is full, whoever has an event waits.
    let (sender, receiver) = mpsc::channel(QUEUED_EVENTS);
    let state =
        AuditState { required, failing: AtomicBool::new(false), lost: AtomicU64::new(0), exited: Mutex::default() };
    let state = Arc::new(state);
    (AuditSink { queue: sender, state: Arc::clone(&state) }, AuditReceiver { queue: receiver, state })
}

impl AuditSink {
    /// Hands an event in. Waits for room in the queue, and if the audit is required until the event is written.
    pub async fn record(&self, event: AuditEvent) {
        let (written, is_written) = match self.state.required {
            true => {
                let (written, is_written) = oneshot::channel();
                (Some(written), Some(is_written))
            }
            false => (None, None),
        };
        let record = AuditRecord { at: SystemTime::now(), event, written };
        if self.queue.send(record).await.is_err() {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        } else if let Some(is_written) = is_written {
            // An error says that it was not written, which the log tells when it can.
            let _ = is_written.await;
        }
    }

    /// Hands an event in where nobody can wait. If there is no room, the log tells that one was lost.
    pub(crate) fn record_at_once(&self, event: AuditEvent) {
        let record = AuditRecord { at: SystemTime::now(), event, written: None };
        if self.queue.try_send(record).is_err() {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether what needs a line in the log may happen now.
    pub(crate) fn is_usable(&self) -> bool {
        !self.state.required || !self.state.failing.load(Ordering::Relaxed)
    }

    /// Whether an earlier server has written down how this process exited. Asked once: another may get its id later.
    pub(crate) fn knows_exit(&self, session: &str, process: &str) -> bool {
        let mut exited = self.state.exited.lock().unwrap_or_else(PoisonError::into_inner);
        exited.remove(&format!("{session}/{process}"))
    }

    /// Waits until everything that was handed in before is written, or cannot be.
    pub async fn flush(&self, last: AuditEvent) {
        let (written, is_written) = oneshot::channel();
        let record = AuditRecord { at: SystemTime::now(), event: last, written: Some(written) };
        if self.queue.send(record).await.is_ok() {
            let _ = is_written.await;
        }
    }
}

impl AuditReceiver {
    /// The next event; `None` when nobody can hand in any more.
    pub async fn next(&mut self) -> Option<AuditRecord> {
        self.queue.recv().await
    }

    /// The next event, if there is one already.
    pub fn next_at_once(&mut self) -> Option<AuditRecord> {
        self.queue.try_recv().ok()
    }

    pub fn set_failing(&self, failing: bool) {
        self.state.failing.store(failing, Ordering::Relaxed);
    }

    /// How many events found no room since this was last asked.
    pub fn take_lost(&self) -> u64 {
        self.state.lost.swap(0, Ordering::Relaxed)
    }

    /// Tells which exits the log has already, as `session/process`.
    pub fn set_known_exits(&self, exited: HashSet<String>) {
        *self.state.exited.lock().unwrap_or_else(PoisonError::into_inner) = exited;
    }
}
