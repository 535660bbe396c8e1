//! Stdin writes that happen once, however often they are asked.
//!
//! ```text
//!   unknown ── begin ──► in flight ── applied ──► applied   (remembered, the oldest forgotten first)
//!                          └── refused ──► unknown           (not one byte was taken: ask again)
//!                          └── owner died ──► in doubt       (nobody can say; told honestly)
//! ```

use std::collections::{HashMap, VecDeque};

use crate::id::WriteId;
use crate::limits::REMEMBERED_WRITES;

/// What is known of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteState {
    /// Its bytes are in the child's stdin.
    Applied,
    /// It is being written.
    InFlight,
    /// Its owner died between the two; some, all or none of its bytes arrived.
    InDoubt,
}

/// The memory of one process's stdin.
#[derive(Debug, Default)]
pub struct WriteHistory {
    known: HashMap<WriteId, WriteState>,
    order: VecDeque<WriteId>,
}

impl WriteHistory {
    /// Begins a write, unless its id is known already; then says what is known.
    pub fn begin(&mut self, id: &WriteId) -> Option<WriteState> {
        if let Some(known) = self.known.get(id) {
            return Some(*known);
        }
        self.known.insert(id.clone(), WriteState::InFlight);
        self.order.push_back(id.clone());
        while self.order.len() > REMEMBERED_WRITES && self.forget_oldest_settled() {}
        None
    }

    /// The kernel took all its bytes.
    pub fn applied(&mut self, id: &WriteId) {
        self.settle(id, WriteState::Applied);
    }

    /// Some of its bytes were taken and the rest never can be; or the owner that began it is gone.
    pub fn in_doubt(&mut self, id: &WriteId) {
        self.settle(id, WriteState::InDoubt);
    }

    /// The owner that began them is gone: what was in flight is in doubt.
    pub fn doubt_all_in_flight(&mut self) {
        for known in self.known.values_mut() {
            if *known == WriteState::InFlight {
                *known = WriteState::InDoubt;
            }
        }
    }

    /// All that are remembered, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&WriteId, WriteState)> {
        self.order.iter().filter_map(|id| Some((id, *self.known.get(id)?)))
    }

    /// Not one byte was taken; the id is free again.
    pub fn refused(&mut self, id: &WriteId) {
        if self.known.remove(id).is_some() {
            self.order.retain(|other| other != id);
        }
    }

    /// What is known of a write.
    pub fn known(&self, id: &WriteId) -> Option<WriteState> {
        self.known.get(id).copied()
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn settle(&mut self, id: &WriteId, to: WriteState) {
        if let Some(known) = self.known.get_mut(id) {
            *known = to;
        }
    }

    /// One in flight is never forgotten: its asker still waits. The queue's own bound keeps those few.
    fn forget_oldest_settled(&mut self) -> bool {
        let Self { known, order } = self;
        let found = order.iter().position(|id| known.get(id) != Some(&WriteState::InFlight));
        found.and_then(|at| order.remove(at)).is_some_and(|id| known.remove(&id).is_some())
    }
}
