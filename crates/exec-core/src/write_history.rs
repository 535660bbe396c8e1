//! Which stdin writes have happened, so that a write happens once however often it is sent.
//!
//! ```text
//!   unknown ── begin ──► in flight ── applied ──► applied   (remembered; the oldest is forgotten first)
//!                          └── refused ──► unknown           (no byte was taken: it may be sent again)
//!                          └── owner died ──► in doubt       (nobody can know, and the caller is told so)
//! ```

use std::collections::{HashMap, VecDeque};

use crate::id::WriteId;
use crate::limits::REMEMBERED_WRITES;

/// What became of a write so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteState {
    /// The kernel has all its bytes.
    Applied,
    InFlight,
    /// Its owner died while it was in flight: some, all or none of its bytes arrived.
    InDoubt,
}

/// The writes to one process's stdin that are remembered.
#[derive(Debug, Default)]
pub struct WriteHistory {
    states: HashMap<WriteId, WriteState>,
    order: VecDeque<WriteId>,
}

impl WriteHistory {
    /// Begins a write, unless its id is known already; then returns its state.
    pub fn begin(&mut self, id: &WriteId) -> Option<WriteState> {
        if let Some(state) = self.states.get(id) {
            return Some(*state);
        }
        self.states.insert(id.clone(), WriteState::InFlight);
        self.order.push_back(id.clone());
        while self.order.len() > REMEMBERED_WRITES && self.forget_oldest_settled() {}
        None
    }

    pub fn applied(&mut self, id: &WriteId) {
        self.settle(id, WriteState::Applied);
    }

    /// Some of its bytes were taken and the rest cannot be, or the owner that began it is gone.
    pub fn in_doubt(&mut self, id: &WriteId) {
        self.settle(id, WriteState::InDoubt);
    }

    /// The owner that began them is gone.
    pub fn mark_in_flight_in_doubt(&mut self) {
        for state in self.states.values_mut() {
            if *state == WriteState::InFlight {
                *state = WriteState::InDoubt;
            }
        }
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&WriteId, WriteState)> {
        self.order.iter().filter_map(|id| Some((id, *self.states.get(id)?)))
    }

    /// No byte was taken, so the id may be used again.
    pub fn refused(&mut self, id: &WriteId) {
        if self.states.remove(id).is_some() {
            self.order.retain(|other| other != id);
        }
    }

    pub fn state(&self, id: &WriteId) -> Option<WriteState> {
        self.states.get(id).copied()
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn settle(&mut self, id: &WriteId, to: WriteState) {
        if let Some(state) = self.states.get_mut(id) {
            *state = to;
        }
    }

    /// A write in flight is never forgotten, because its caller still waits. The bound of the queue keeps those few.
    fn forget_oldest_settled(&mut self) -> bool {
        let Self { states, order } = self;
        let found = order.iter().position(|id| states.get(id) != Some(&WriteState::InFlight));
        found.and_then(|at| order.remove(at)).is_some_and(|id| states.remove(&id).is_some())
    }
}
