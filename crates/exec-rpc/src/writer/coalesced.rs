//! What a writer must know and nobody waits for: only the last state of it counts. So it takes a bounded amount of memory
//! however slowly a peer reads, and the writer's queue has one command for each kind of news at most.
//!
//! Whoever changes something records it here first, and sends the command only if the result says so; the writer takes what
//! is recorded when it meets the command.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::limits::NEW_PROCESSES_PRUNED;
use crate::session::{Acknowledgement, SessionProcess};

#[derive(Debug)]
pub(crate) struct Coalesced {
    /// The last acknowledgement of each process, by the client's id of it. Bounded by the processes of the session.
    acknowledged: Mutex<HashMap<String, (Arc<SessionProcess>, Acknowledgement)>>,
    started: Mutex<StartedProcesses>,
    /// Whether the client drives its session, or only observes it.
    drives: AtomicBool,
    role_due: AtomicBool,
    attendance_due: AtomicBool,
}

/// Processes that others have started, and whose output the writer does not push yet.
#[derive(Debug, Default)]
struct StartedProcesses {
    /// Those that are forgotten meanwhile are removed now and then, so it is bounded by the processes that there are.
    waiting: Vec<Weak<SessionProcess>>,
    prune_at: usize,
}

impl Default for Coalesced {
    fn default() -> Self {
        Self {
            acknowledged: Mutex::default(),
            started: Mutex::default(),
            drives: AtomicBool::new(true),
            role_due: AtomicBool::new(false),
            attendance_due: AtomicBool::new(false),
        }
    }
}

impl Coalesced {
    /// The client has read so far; `true` if the writer must be told.
    pub(crate) fn record_acknowledgement(
        &self,
        process: &Arc<SessionProcess>,
        acknowledgement: Acknowledgement,
    ) -> bool {
        let mut acknowledged = lock(&self.acknowledged);
        match acknowledged.get_mut(&process.wire_id) {
            Some((known, last)) if Arc::ptr_eq(known, process) => {
                *last = acknowledgement;
                false
            }
            _ => {
                acknowledged.insert(process.wire_id.clone(), (process.clone(), acknowledgement));
                true
            }
        }
    }

    pub(crate) fn take_acknowledgement(&self, process: &Arc<SessionProcess>) -> Option<Acknowledgement> {
        let mut acknowledged = lock(&self.acknowledged);
        let (known, _) = acknowledged.get(&process.wire_id)?;
        if !Arc::ptr_eq(known, process) {
            return None;
        }
        acknowledged.remove(&process.wire_id).map(|(_, acknowledgement)| acknowledgement)
    }

    /// Another connection of the session has started a process; `true` if the writer must be told.
    pub(crate) fn record_started(&self, process: &Arc<SessionProcess>) -> bool {
        let mut started = lock(&self.started);
        if started.waiting.len() >= started.prune_at.max(NEW_PROCESSES_PRUNED) {
            started.waiting.retain(|process| process.strong_count() > 0);
            started.prune_at = 2 * started.waiting.len();
        }
        started.waiting.push(Arc::downgrade(process));
        started.waiting.len() == 1
    }

    pub(crate) fn take_started(&self) -> Vec<Arc<SessionProcess>> {
        let waiting = std::mem::take(&mut lock(&self.started).waiting);
        waiting.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn drives(&self) -> bool {
        self.drives.load(Ordering::SeqCst)
    }

    /// `true` if the writer must be told.
    pub(crate) fn set_drives(&self, drives: bool) -> bool {
        self.drives.store(drives, Ordering::SeqCst);
        !self.role_due.swap(true, Ordering::SeqCst)
    }

    /// The role as it is now.
    pub(crate) fn take_role(&self) -> bool {
        self.role_due.store(false, Ordering::SeqCst);
        self.drives()
    }

    /// Who is attached has changed; `true` if the writer must be told.
    pub(crate) fn record_attendance(&self) -> bool {
        !self.attendance_due.swap(true, Ordering::SeqCst)
    }

    /// Taken before the state is looked at, so that no later change is missed.
    pub(crate) fn take_attendance(&self) {
        self.attendance_due.store(false, Ordering::SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use exec_core::ProcessId;

    use super::*;
    use crate::session::ReadPositions;

    fn process(wire_id: &str) -> Arc<SessionProcess> {
        let id = ProcessId::new(format!("s/{wire_id}")).expect("short");
        Arc::new(SessionProcess::new(wire_id.to_owned(), id, crate::routing::tests::nowhere(), None, false))
    }

    #[test]
    fn of_many_acknowledgements_the_last_counts_and_the_writer_is_told_once() {
        let (news, p) = (Coalesced::default(), process("p"));
        let read = |seq| Some(ReadPositions { slowest: seq, fastest: seq });
        assert!(news.record_acknowledgement(&p, read(1)), "its writer must be told");
        assert!(!news.record_acknowledgement(&p, read(2)), "it was told");
        let taken = news.take_acknowledgement(&p).flatten().expect("it was recorded");
        assert_eq!((taken.slowest, taken.fastest), (2, 2));
        assert!(news.take_acknowledgement(&p).is_none());
        let other = process("p");
        assert!(news.record_acknowledgement(&p, read(3)) && news.record_acknowledgement(&other, read(4)));
        assert!(news.take_acknowledgement(&p).is_none(), "another process has its id");
    }

    #[test]
    fn processes_that_come_and_go_while_a_peer_does_not_read_cost_little() {
        let news = Coalesced::default();
        let kept = process("kept");
        assert!(news.record_started(&kept));
        for number in 0..10 * NEW_PROCESSES_PRUNED {
            assert!(!news.record_started(&process(&number.to_string())), "the writer was told");
        }
        assert!(lock(&news.started).waiting.len() <= NEW_PROCESSES_PRUNED);
        let taken = news.take_started();
        assert_eq!(taken.iter().map(|process| process.wire_id.as_str()).collect::<Vec<_>>(), ["kept"]);
        assert!(news.record_started(&kept), "it is told of the next one");
    }
}
