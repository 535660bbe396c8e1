//! What survives connections: a session and its processes.

mod answers;
mod label;
mod roster;
mod store;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use exec_core::{ProcessId, Seq};

use crate::mailroom::{PostBox, WeakPostBox};

use answers::Answers;
pub(crate) use answers::Claim;
pub(crate) use label::Label;
pub(crate) use roster::{Attachment, ConnectionId, Roster};
pub(crate) use store::{Remembered, Store};

/// A client's work on this machine.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) client_name: String,
    pub(crate) opened_at_ms: u64,
    processes: Mutex<HashMap<String, Slot>>,
    pub(crate) answers: Answers,
    /// The connection that has the session, for starts that outlive the one that asked for them.
    holder: Mutex<Option<(ConnectionId, WeakPostBox)>>,
}

/// One process as its session knows it.
#[derive(Debug)]
pub(crate) struct Process {
    /// The client's name for it.
    pub(crate) wire_id: String,
    /// The environment's.
    pub(crate) id: ProcessId,
    /// The last entry that was handed to a transport, on any connection.
    sent: AtomicU64,
    /// Reads whose answer is not yet on its way, on any connection.
    readers: AtomicU64,
    /// When it was first seen to be closed.
    closed_since: Mutex<Option<Instant>>,
    /// Keys of signals that were sent; the last few, enough for what can be in flight when a connection breaks.
    signals: Mutex<VecDeque<String>>,
}

/// A read of a process that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct Reading(pub(crate) Arc<Process>);

impl Reading {
    pub(crate) fn of(process: Arc<Process>) -> Self {
        process.readers.fetch_add(1, Ordering::Relaxed);
        Self(process)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Slot {
    Starting,
    Live(Arc<Process>),
}

/// What a name stands for.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    Starting,
    Live(Arc<Process>),
}

impl Session {
    pub(crate) fn new(id: String, client_name: String, opened_at_ms: u64) -> Self {
        Self {
            id,
            client_name,
            opened_at_ms,
            processes: Mutex::default(),
            answers: Answers::default(),
            holder: Mutex::default(),
        }
    }

    /// `connection` has the session now.
    pub(crate) fn hold(&self, connection: ConnectionId, posts: &PostBox) {
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        *holder = Some((connection, posts.downgrade()));
    }

    /// Who has the session, as long as it can be posted to.
    pub(crate) fn holder(&self) -> Option<(ConnectionId, PostBox)> {
        let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        holder.as_ref().and_then(|(connection, posts)| Some((*connection, posts.upgrade()?)))
    }

    pub(crate) fn find(&self, wire_id: &str) -> Found {
        match self.lock().get(wire_id) {
            None => Found::Nothing,
            Some(Slot::Starting) => Found::Starting,
            Some(Slot::Live(process)) => Found::Live(process.clone()),
        }
    }

    /// Holds a name for a start. A closed process gives its name up once `reuse` has passed; it is returned, to be
    /// forgotten first. `Err` if the name is taken.
    pub(crate) fn reserve(&self, wire_id: &str, reuse: Duration, now: Instant) -> Result<Option<Arc<Process>>, ()> {
        let mut processes = self.lock();
        let old = match processes.get(wire_id) {
            None => None,
            Some(Slot::Live(process)) if process.closed_for(now).is_some_and(|time| time >= reuse) => {
                Some(process.clone())
            }
            Some(_) => return Err(()),
        };
        processes.insert(wire_id.to_owned(), Slot::Starting);
        Ok(old)
    }

    /// The start failed; the name is free at once.
    pub(crate) fn release(&self, wire_id: &str) {
        let mut processes = self.lock();
        if matches!(processes.get(wire_id), Some(Slot::Starting)) {
            processes.remove(wire_id);
        }
    }

    /// The start succeeded, or the process was found again.
    pub(crate) fn enter(&self, process: Arc<Process>) {
        self.lock().insert(process.wire_id.clone(), Slot::Live(process));
    }

    /// The process is forgotten; unless another has its name by now.
    pub(crate) fn leave(&self, process: &Arc<Process>) {
        let mut processes = self.lock();
        if matches!(processes.get(&process.wire_id), Some(Slot::Live(held)) if Arc::ptr_eq(held, process)) {
            processes.remove(&process.wire_id);
        }
    }

    /// Everything that lives.
    pub(crate) fn processes(&self) -> Vec<Arc<Process>> {
        let live = |slot: &Slot| match slot {
            Slot::Starting => None,
            Slot::Live(process) => Some(process.clone()),
        };
        self.lock().values().filter_map(live).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Slot>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Process {
    pub(crate) fn new(wire_id: String, id: ProcessId) -> Self {
        Self {
            wire_id,
            id,
            sent: AtomicU64::new(0),
            readers: AtomicU64::new(0),
            closed_since: Mutex::default(),
            signals: Mutex::default(),
        }
    }

    /// Where the last writer stopped.
    pub(crate) fn sent(&self) -> Seq {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn note_sent(&self, seq: Seq) {
        self.sent.fetch_max(seq, Ordering::Relaxed);
    }

    /// Whether somebody's read of it is under way.
    pub(crate) fn is_being_read(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// It is closed; answers for how long that has been known.
    pub(crate) fn note_closed(&self, now: Instant) -> Duration {
        let mut since = self.closed_since.lock().unwrap_or_else(PoisonError::into_inner);
        now.saturating_duration_since(*since.get_or_insert(now))
    }

    /// Whether a signal of this key has not been sent yet; from now on it has.
    pub(crate) fn first_time(&self, signal_id: &str) -> bool {
        const REMEMBERED: usize = 256;
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        if signals.iter().any(|known| known == signal_id) {
            return false;
        }
        signals.push_back(signal_id.to_owned());
        if signals.len() > REMEMBERED {
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
