//! What survives connections: a session and its processes.

mod process_label;
mod response_cache;
mod store;
mod table;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use exec_core::{ProcessId, Seq};

use crate::writer::{WeakWriterHandle, WriterHandle};

pub(crate) use process_label::ProcessLabel;
pub(crate) use response_cache::CacheLookup;
use response_cache::ResponseCache;
pub(crate) use store::{SessionStore, StoredSession};
pub(crate) use table::{Attachment, ConnectionId, SessionTable};

/// A client's work on this machine.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) client_name: String,
    pub(crate) opened_at_ms: u64,
    processes: Mutex<HashMap<String, ProcessSlot>>,
    pub(crate) responses: ResponseCache,
    /// The connection that has the session, for starts that outlive the one that asked for them.
    writer: Mutex<Option<(ConnectionId, WeakWriterHandle)>>,
}

/// One process as its session knows it.
#[derive(Debug)]
pub(crate) struct SessionProcess {
    /// The client's name for it.
    pub(crate) wire_id: String,
    /// The environment's.
    pub(crate) id: ProcessId,
    /// The last entry that was handed to a transport, on any connection.
    last_sent: AtomicU64,
    /// Reads whose answer is not yet on its way, on any connection.
    readers: AtomicU64,
    /// When it was first seen to be closed.
    closed_since: Mutex<Option<Instant>>,
    /// Keys of signals that were sent; the last few, enough for what can be in flight when a connection breaks.
    signals: Mutex<VecDeque<String>>,
}

/// A read of a process that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct ReadInProgress(pub(crate) Arc<SessionProcess>);

impl ReadInProgress {
    pub(crate) fn of(process: Arc<SessionProcess>) -> Self {
        process.readers.fetch_add(1, Ordering::Relaxed);
        Self(process)
    }
}

impl Drop for ReadInProgress {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum ProcessSlot {
    Starting,
    Live(Arc<SessionProcess>),
}

/// What a name stands for.
#[derive(Debug)]
pub(crate) enum ProcessLookup {
    Nothing,
    Starting,
    Live(Arc<SessionProcess>),
}

impl Session {
    pub(crate) fn new(id: String, client_name: String, opened_at_ms: u64) -> Self {
        Self {
            id,
            client_name,
            opened_at_ms,
            processes: Mutex::default(),
            responses: ResponseCache::default(),
            writer: Mutex::default(),
        }
    }

    /// `connection` has the session now.
    pub(crate) fn set_writer(&self, connection: ConnectionId, writer: &WriterHandle) {
        let mut current = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some((connection, writer.downgrade()));
    }

    /// Who has the session, as long as it can be posted to.
    pub(crate) fn current_writer(&self) -> Option<(ConnectionId, WriterHandle)> {
        let current = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().and_then(|(connection, writer)| Some((*connection, writer.upgrade()?)))
    }

    pub(crate) fn find(&self, wire_id: &str) -> ProcessLookup {
        match self.lock().get(wire_id) {
            None => ProcessLookup::Nothing,
            Some(ProcessSlot::Starting) => ProcessLookup::Starting,
            Some(ProcessSlot::Live(process)) => ProcessLookup::Live(process.clone()),
        }
    }

    /// Holds a name for a start. A closed process gives its name up once `reuse` has passed; it is returned, to be
    /// forgotten first. `Err` if the name is taken.
    pub(crate) fn reserve(
        &self,
        wire_id: &str,
        reuse: Duration,
        now: Instant,
    ) -> Result<Option<Arc<SessionProcess>>, ()> {
        let mut processes = self.lock();
        let old = match processes.get(wire_id) {
            None => None,
            Some(ProcessSlot::Live(process)) if process.closed_for(now).is_some_and(|time| time >= reuse) => {
                Some(process.clone())
            }
            Some(_) => return Err(()),
        };
        processes.insert(wire_id.to_owned(), ProcessSlot::Starting);
        Ok(old)
    }

    /// The start failed; the name is free at once.
    pub(crate) fn release(&self, wire_id: &str) {
        let mut processes = self.lock();
        if matches!(processes.get(wire_id), Some(ProcessSlot::Starting)) {
            processes.remove(wire_id);
        }
    }

    /// The start succeeded, or the process was found again.
    pub(crate) fn insert_process(&self, process: Arc<SessionProcess>) {
        self.lock().insert(process.wire_id.clone(), ProcessSlot::Live(process));
    }

    /// The process is forgotten; unless another has its name by now.
    pub(crate) fn remove_process(&self, process: &Arc<SessionProcess>) {
        let mut processes = self.lock();
        if matches!(processes.get(&process.wire_id), Some(ProcessSlot::Live(held)) if Arc::ptr_eq(held, process)) {
            processes.remove(&process.wire_id);
        }
    }

    /// Everything that lives.
    pub(crate) fn processes(&self) -> Vec<Arc<SessionProcess>> {
        let live = |slot: &ProcessSlot| match slot {
            ProcessSlot::Starting => None,
            ProcessSlot::Live(process) => Some(process.clone()),
        };
        self.lock().values().filter_map(live).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ProcessSlot>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionProcess {
    pub(crate) fn new(wire_id: String, id: ProcessId) -> Self {
        Self {
            wire_id,
            id,
            last_sent: AtomicU64::new(0),
            readers: AtomicU64::new(0),
            closed_since: Mutex::default(),
            signals: Mutex::default(),
        }
    }

    /// Where the last writer stopped.
    pub(crate) fn last_sent(&self) -> Seq {
        self.last_sent.load(Ordering::Relaxed)
    }

    pub(crate) fn record_sent(&self, seq: Seq) {
        self.last_sent.fetch_max(seq, Ordering::Relaxed);
    }

    /// Whether somebody's read of it is under way.
    pub(crate) fn is_being_read(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// It is closed; answers for how long that has been known.
    pub(crate) fn record_closed(&self, now: Instant) -> Duration {
        let mut since = self.closed_since.lock().unwrap_or_else(PoisonError::into_inner);
        now.saturating_duration_since(*since.get_or_insert(now))
    }

    /// Whether a signal of this key has not been sent yet; from now on it has.
    pub(crate) fn record_signal_id(&self, signal_id: &str) -> bool {
        const REMEMBERED_SIGNALS: usize = 256;
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        if signals.iter().any(|known| known == signal_id) {
            return false;
        }
        signals.push_back(signal_id.to_owned());
        if signals.len() > REMEMBERED_SIGNALS {
            signals.pop_front();
        }
        true
    }

    fn closed_for(&self, now: Instant) -> Option<Duration> {
        let since = *self.closed_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map(|since| now.saturating_duration_since(since))
    }
}

/// Now, as the wire counts it.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
