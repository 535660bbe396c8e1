//! Keys that clients choose (ids of processes, file handles, watches …): each is free, reserved, or has a value.
//!
//! A key is reserved before the slow work on it begins, so that of two requests for one key only one succeeds. The
//! [`Reservation`] is a guard. If it is dropped before it is committed, because the work failed, was cancelled or
//! panicked, the key is free again.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct Reservations<K, V> {
    /// `None` for a key that is reserved and has no value yet.
    entries: Mutex<HashMap<K, Option<V>>>,
    limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReserveError {
    Taken,
    /// As many keys are in use as there may be.
    Full {
        limit: usize,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup<V> {
    Free,
    Reserved,
    Present(V),
}

impl<K: Eq + Hash + Clone, V: Clone> Reservations<K, V> {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { entries: Mutex::default(), limit })
    }

    pub(crate) fn reserve(self: &Arc<Self>, key: K) -> Result<Reservation<K, V>, ReserveError> {
        self.take(key, None, |_| false).map(|(reservation, _)| reservation)
    }

    /// Reserves a key that has a value as long as the reservation lives.
    pub(crate) fn reserve_with(self: &Arc<Self>, key: K, value: V) -> Result<Reservation<K, V>, ReserveError> {
        self.take(key, Some(value), |_| false).map(|(reservation, _)| reservation)
    }

    /// Reserves a key that is free or whose value is `replaceable`. That value is gone, and is returned.
    pub(crate) fn reserve_replacing(
        self: &Arc<Self>,
        key: K,
        replaceable: impl FnOnce(&V) -> bool,
    ) -> Result<(Reservation<K, V>, Option<V>), ReserveError> {
        self.take(key, None, replaceable)
    }

    fn take(
        self: &Arc<Self>,
        key: K,
        value: Option<V>,
        replaceable: impl FnOnce(&V) -> bool,
    ) -> Result<(Reservation<K, V>, Option<V>), ReserveError> {
        let mut entries = self.lock();
        match entries.get(&key) {
            Some(Some(present)) if replaceable(present) => {}
            Some(_) => return Err(ReserveError::Taken),
            None if entries.len() >= self.limit => return Err(ReserveError::Full { limit: self.limit }),
            None => {}
        }
        let old = entries.insert(key.clone(), value).flatten();
        Ok((Reservation { table: self.clone(), key, committed: false }, old))
    }

    pub(crate) fn find<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Lookup<V>
    where
        K: Borrow<Q>,
    {
        match self.lock().get(key) {
            None => Lookup::Free,
            Some(None) => Lookup::Reserved,
            Some(Some(value)) => Lookup::Present(value.clone()),
        }
    }

    /// Gives a key a value without a reservation, whatever the limit.
    pub(crate) fn insert(&self, key: K, value: V) {
        self.lock().insert(key, Some(value));
    }

    /// Frees a key whose value is `unwanted`. A key that is only reserved belongs to whoever reserved it.
    pub(crate) fn remove_if<Q: Eq + Hash + ?Sized>(&self, key: &Q, unwanted: impl FnOnce(&V) -> bool) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let mut entries = self.lock();
        let remove = matches!(entries.get(key), Some(Some(value)) if unwanted(value));
        if remove { entries.remove(key).flatten() } else { None }
    }

    pub(crate) fn values(&self) -> Vec<V> {
        self.lock().values().flatten().cloned().collect()
    }

    /// Frees every key.
    pub(crate) fn drain(&self) -> Vec<V> {
        std::mem::take(&mut *self.lock()).into_values().flatten().collect()
    }

    /// Keys in use, reserved ones included.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

impl<K, V> Reservations<K, V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Option<V>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key that is taken. Dropping this frees it, unless it was committed.
pub(crate) struct Reservation<K: Eq + Hash, V> {
    table: Arc<Reservations<K, V>>,
    key: K,
    committed: bool,
}

impl<K: Eq + Hash + Clone, V> Reservation<K, V> {
    /// Gives the key its value, which stays when the reservation is gone.
    pub(crate) fn commit(mut self, value: V) {
        self.committed = true;
        self.table.lock().insert(self.key.clone(), Some(value));
    }
}

impl<K: Eq + Hash, V> Drop for Reservation<K, V> {
    fn drop(&mut self) {
        if !self.committed {
            self.table.lock().remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    type Numbers = Reservations<&'static str, u8>;

    #[test]
    fn a_handler_that_panics_frees_its_key() {
        let table = Numbers::new(1);
        let handler = || {
            let _reservation = table.reserve("a").expect("nothing is reserved yet");
            assert_eq!(table.find("a"), Lookup::Reserved);
            panic!("the handler's own fault");
        };
        assert!(catch_unwind(AssertUnwindSafe(handler)).is_err());
        assert_eq!(table.find("a"), Lookup::Free);
        assert!(table.reserve("a").is_ok());
    }

    #[test]
    fn a_committed_value_outlives_its_reservation_and_one_held_by_it_does_not() {
        let table = Numbers::new(2);
        table.reserve("a").expect("it is free").commit(1);
        let held = table.reserve_with("b", 2).expect("it is free");
        assert_eq!((table.find("a"), table.find("b")), (Lookup::Present(1), Lookup::Present(2)));
        drop(held);
        assert_eq!((table.values(), table.len()), (vec![1], 1));
    }

    #[test]
    fn a_taken_key_is_refused_and_so_is_one_beyond_the_limit() {
        let table = Numbers::new(2);
        let held = [table.reserve("a").expect("it is free"), table.reserve("b").expect("the limit is two")];
        assert_eq!(table.reserve("a").err(), Some(ReserveError::Taken));
        assert_eq!(table.reserve("c").err(), Some(ReserveError::Full { limit: 2 }));
        drop(held);
        assert!(table.reserve("c").is_ok());
    }

    #[test]
    fn only_a_replaceable_value_gives_its_key_up() {
        let table = Numbers::new(1);
        table.insert("a", 1);
        assert_eq!(table.reserve_replacing("a", |value| *value > 1).err(), Some(ReserveError::Taken));
        let (reservation, old) = table.reserve_replacing("a", |value| *value == 1).expect("it may be replaced");
        assert_eq!((old, table.find("a")), (Some(1), Lookup::Reserved));
        assert_eq!(table.reserve_replacing("a", |_| true).err(), Some(ReserveError::Taken), "it is reserved");
        assert_eq!(table.remove_if("a", |_| true), None, "a reservation is not removed by others");
        drop(reservation);
        assert_eq!(table.find("a"), Lookup::Free);
    }
}
