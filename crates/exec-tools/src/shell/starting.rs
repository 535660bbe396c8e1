//! Starts under way: calls that start commands at the same time agree about the room that there is, and about numbers.
//!
//! In each environment one call at a time counts the sessions and makes room. It reserves a number, and starts its command when
//! the next call has its turn already; until the command is listed, the reservation counts in its place.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::SessionNumber;

#[derive(Default)]
pub(super) struct PendingStarts {
    environments: Mutex<HashMap<String, Arc<EnvironmentStarts>>>,
}

#[derive(Default)]
struct EnvironmentStarts {
    turn: Arc<tokio::sync::Mutex<()>>,
    reserved: Mutex<HashSet<SessionNumber>>,
}

/// The right to count and to make room.
pub(super) struct StartTurn {
    starts: Arc<EnvironmentStarts>,
    _turn: tokio::sync::OwnedMutexGuard<()>,
}

/// A number that nobody else takes, until this is dropped.
pub(super) struct ReservedNumber {
    starts: Arc<EnvironmentStarts>,
    number: SessionNumber,
}

impl PendingStarts {
    pub(super) async fn turn(&self, environment_id: &str) -> StartTurn {
        let starts = {
            let mut environments = self.environments.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(environments.entry(environment_id.to_owned()).or_default())
        };
        let turn = Arc::clone(&starts.turn).lock_owned().await;
        StartTurn { starts, _turn: turn }
    }
}

impl StartTurn {
    pub(super) fn reserved(&self) -> HashSet<SessionNumber> {
        self.starts.reserved().clone()
    }

    pub(super) fn reserve(&self, number: SessionNumber) -> ReservedNumber {
        self.starts.reserved().insert(number);
        ReservedNumber { starts: Arc::clone(&self.starts), number }
    }
}

impl ReservedNumber {
    pub(super) fn number(&self) -> SessionNumber {
        self.number
    }
}

impl Drop for ReservedNumber {
    fn drop(&mut self) {
        self.starts.reserved().remove(&self.number);
    }
}

impl EnvironmentStarts {
    fn reserved(&self) -> MutexGuard<'_, HashSet<SessionNumber>> {
        // The set is whole after every statement.
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
