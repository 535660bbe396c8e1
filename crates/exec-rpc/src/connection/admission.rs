//! What may come in. Everything that arrives needs room before it is looked into further, and holds it until its answer was
//! sent. So a peer that does not read its answers is, after a while, not read from.
//!
//! ```text
//!   answers to nonsense, control, short work ──► accepted: waits for room, and the socket with it
//!   wait, long polls, stdin writes ────────────► waiting: refused as busy when nothing has moved for a second
//! ```
//!
//! Requests that may wait for as long as a child wants are counted apart, in number and in bytes. However many of them
//! there are, work and control requests find their room.

use std::sync::Arc;
use std::time::Duration;

use exec_wire::envelope::RequestId;
use exec_wire::error::RpcError;
use exec_wire::method::{Method, Priority};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::dispatch::Params;
use crate::limits::{
    ACCEPTED_REQUESTS, LARGE_REQUEST_BYTES, LARGE_RESPONSE_BYTES, UNCOUNTED_BYTES, WAITING_BYTES, WAITING_PATIENCE,
    WAITING_REQUESTS,
};

/// What a peer has sent and what is to be answered.
pub(super) enum Arrival {
    Request(ArrivedRequest),
    /// A message that cannot be carried out, and the answer to it.
    Refusal {
        id: RequestId,
        error: RpcError,
        jsonrpc: bool,
    },
}

pub(super) struct ArrivedRequest {
    pub(super) id: RequestId,
    pub(super) method: Method,
    pub(super) params: Params,
    pub(super) jsonrpc: bool,
    pub(super) frame_bytes: usize,
}

pub(super) enum Admission {
    Admitted(AdmissionPermits),
    /// There is no room, and none has become free for a while; the text says of what.
    Busy(String),
}

/// The place of a request until its answer was sent, and the memory of a large one.
pub(super) struct AdmissionPermits {
    pub(super) slot: OwnedSemaphorePermit,
    pub(super) memory: Option<OwnedSemaphorePermit>,
}

/// Requests of one kind: how many, and how many KiB of large ones.
struct Pool {
    slots: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    memory_kib: usize,
}

pub(super) struct AdmissionControl {
    accepted: Pool,
    waiting: Pool,
    /// Long refusals. They are accepted too, and have the memory of responses.
    refusals: Pool,
    /// Until when the arrival that is being kept may wait for a place among the waiting requests.
    patient_until: Instant,
    /// Whether nothing became free among the waiting requests since one was refused. Then others are refused at once.
    stuck: bool,
}

impl Default for AdmissionControl {
    fn default() -> Self {
        let accepted = Pool::new(ACCEPTED_REQUESTS, LARGE_REQUEST_BYTES);
        let refusals = Pool { slots: accepted.slots.clone(), ..Pool::new(0, LARGE_RESPONSE_BYTES) };
        Self {
            accepted,
            waiting: Pool::new(WAITING_REQUESTS, WAITING_BYTES),
            refusals,
            patient_until: Instant::now(),
            stuck: false,
        }
    }
}

impl AdmissionControl {
    /// Room for it, if there is some now.
    pub(super) fn try_admit(&mut self, arrival: &Arrival) -> Option<Admission> {
        let permits = self.pool_of(arrival).try_take(arrival.large_bytes())?;
        if arrival.may_wait() {
            self.stuck = false;
        }
        Some(Admission::Admitted(permits))
    }

    /// An arrival for which there is no room is kept from now on.
    pub(super) fn begin_waiting(&mut self) {
        let patience = if self.stuck { Duration::ZERO } else { WAITING_PATIENCE };
        self.patient_until = Instant::now() + patience;
    }

    /// Waits until there is room for the arrival that is being kept. Cancelling this loses nothing.
    pub(super) async fn admit(&mut self, arrival: Option<&Arrival>) -> Admission {
        let Some(arrival) = arrival else { return std::future::pending().await };
        let taken = self.pool_of(arrival).take(arrival.large_bytes());
        if !arrival.may_wait() {
            return Admission::Admitted(taken.await);
        }
        match tokio::time::timeout_at(self.patient_until, taken).await {
            Ok(permits) => {
                self.stuck = false;
                Admission::Admitted(permits)
            }
            Err(_) => {
                self.stuck = true;
                Admission::Busy(format!(
                    "the requests of this connection that wait for a process are at their limit ({WAITING_REQUESTS} \
                     requests, {} MiB): let some end first",
                    WAITING_BYTES >> 20
                ))
            }
        }
    }

    fn pool_of(&self, arrival: &Arrival) -> &Pool {
        match arrival {
            Arrival::Refusal { .. } => &self.refusals,
            Arrival::Request(_) if arrival.may_wait() => &self.waiting,
            Arrival::Request(_) => &self.accepted,
        }
    }
}

impl Arrival {
    /// Whether it may take as long as a child wants. Control requests are short by themselves or must always get in.
    fn may_wait(&self) -> bool {
        match self {
            Self::Request(request) => {
                let behaviour = request.method.behaviour();
                behaviour.waits && behaviour.priority == Priority::Ordinary
            }
            Self::Refusal { .. } => false,
        }
    }

    fn large_bytes(&self) -> usize {
        match self {
            Self::Request(request) if request.frame_bytes > UNCOUNTED_BYTES => request.frame_bytes,
            // Some of its words may be the peer's, and each letter may be escaped.
            Self::Refusal { error, .. } if error.message.len() > UNCOUNTED_BYTES / 4 => 6 * error.message.len(),
            Self::Request(_) | Self::Refusal { .. } => 0,
        }
    }
}

impl Pool {
    fn new(slots: usize, memory_bytes: usize) -> Self {
        let memory_kib = memory_bytes >> 10;
        Self { slots: Arc::new(Semaphore::new(slots)), memory: Arc::new(Semaphore::new(memory_kib)), memory_kib }
    }

    fn try_take(&self, large_bytes: usize) -> Option<AdmissionPermits> {
        let memory = match self.kib(large_bytes) {
            0 => None,
            kib => Some(self.memory.clone().try_acquire_many_owned(kib).ok()?),
        };
        Some(AdmissionPermits { slot: self.slots.clone().try_acquire_owned().ok()?, memory })
    }

    async fn take(&self, large_bytes: usize) -> AdmissionPermits {
        const NEVER_CLOSED: &str = "nobody closes these semaphores";
        let memory = match self.kib(large_bytes) {
            0 => None,
            kib => Some(self.memory.clone().acquire_many_owned(kib).await.expect(NEVER_CLOSED)),
        };
        AdmissionPermits { slot: self.slots.clone().acquire_owned().await.expect(NEVER_CLOSED), memory }
    }

    /// The largest message takes all of the memory, however little that is.
    fn kib(&self, bytes: usize) -> u32 {
        u32::try_from((bytes >> 10).min(self.memory_kib)).unwrap_or(u32::MAX)
    }
}
