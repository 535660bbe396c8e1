//! Starts under way: calls that start commands at the same time agree about the room that there is, and about numbers.
//!
//! In each environment one call at a time counts the sessions and makes room. It reserves a number, and starts its command when
//! the next call has its turn already; until the command is listed, the reservation counts in its place.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::SessionNumber;

#[derive(Default)]
pub(super) struct Starting {
    environments: Mutex<HashMap<String, Arc<Places>>>,
}

#[derive(Default)]
struct Places {
    turn: Arc<tokio::sync::Mutex<()>>,
    reserved: Mutex<HashSet<SessionNumber>>,
}

/// The right to count and to make room.
pub(super) struct Turn {
    places: Arc<Places>,
    _turn: tokio::sync::OwnedMutexGuard<()>,
}

/// A number that nobody else takes, until this is dropped.
pub(super) struct Reserved {
    places: Arc<Places>,
    number: SessionNumber,
}

impl Starting {
    pub(super) async fn turn(&self, environment_id: &str) -> Turn {
        let places = {
            let mut environments = self.environments.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(environments.entry(environment_id.to_owned()).or_default())
        };
        let turn = Arc::clone(&places.turn).lock_owned().await;
        Turn { places, _turn: turn }
    }
}

impl Turn {
    pub(super) fn reserved(&self) -> HashSet<SessionNumber> {
        self.places.reserved().clone()
    }

    pub(super) fn reserve(&self, number: SessionNumber) -> Reserved {
        self.places.reserved().insert(number);
        Reserved { places: Arc::clone(&self.places), number }
    }
}

impl Reserved {
    pub(super) fn number(&self) -> SessionNumber {
        self.number
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.places.reserved().remove(&self.number);
    }
}

impl Places {
    fn reserved(&self) -> MutexGuard<'_, HashSet<SessionNumber>> {
        // The set is whole after every statement.
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
