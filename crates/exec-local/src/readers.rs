//! Who reads a log along, and how far they are: so that a full log drops nothing that is about to be read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use exec_core::Seq;
use exec_core::limits::READER_PATIENCE;
use tokio::sync::Notify;

/// The readers of one log.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    places: Mutex<Places>,
    moved: Notify,
}

#[derive(Debug, Default)]
struct Places {
    by_reader: BTreeMap<u64, Place>,
    next: u64,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    /// Read up to here.
    after: Seq,
    since: Instant,
    /// It took nothing for so long that nobody waits for it, until it moves again.
    given_up: bool,
}

/// A reader's place; given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Reader {
    readers: Arc<Readers>,
    number: u64,
}

impl Readers {
    pub(crate) fn enter(self: &Arc<Self>, after: Seq) -> Reader {
        let mut places = self.places();
        let number = places.next;
        places.next += 1;
        places.by_reader.insert(number, Place { after, since: Instant::now(), given_up: false });
        Reader { readers: self.clone(), number }
    }

    /// The first entry that somebody will want.
    pub(crate) fn wanted(&self) -> Option<Seq> {
        let places = self.places();
        places.by_reader.values().filter(|place| !place.given_up).map(|place| place.after.saturating_add(1)).min()
    }

    /// The slowest reader keeps the child waiting since `held`: until when, if it does not move.
    pub(crate) fn patience(&self, held: Instant) -> Option<Instant> {
        let places = self.places();
        let slowest = places.by_reader.values().filter(|place| !place.given_up).min_by_key(|place| place.after)?;
        Some(slowest.since.max(held) + READER_PATIENCE)
    }

    /// The slowest reader is waited for no longer.
    pub(crate) fn give_up(&self) {
        let mut places = self.places();
        let waited_for = places.by_reader.values_mut().filter(|place| !place.given_up);
        if let Some(slowest) = waited_for.min_by_key(|place| place.after) {
            slowest.given_up = true;
        }
    }

    /// One of them has moved or left since this was last asked.
    pub(crate) async fn moved(&self) {
        self.moved.notified().await;
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// It has read up to `after`.
    pub(crate) fn is_at(&self, after: Seq) {
        let place = Place { after, since: Instant::now(), given_up: false };
        self.readers.places().by_reader.insert(self.number, place);
        self.readers.moved.notify_one();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.readers.places().by_reader.remove(&self.number);
        self.readers.moved.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_reader_counts_until_it_is_given_up_and_again_when_it_moves() {
        let readers = Arc::new(Readers::default());
        assert_eq!(readers.wanted(), None);
        let slow = readers.enter(3);
        let fast = readers.enter(3);
        fast.is_at(90);
        assert_eq!(readers.wanted(), Some(4));
        readers.give_up();
        assert_eq!(readers.wanted(), Some(91));
        slow.is_at(5);
        assert_eq!(readers.wanted(), Some(6));
        drop(slow);
        assert_eq!(readers.wanted(), Some(91));
        drop(fast);
        assert_eq!(readers.wanted(), None);
    }

    #[test]
    fn patience_begins_when_the_child_waits_or_the_reader_last_moved() {
        let readers = Arc::new(Readers::default());
        let reader = readers.enter(0);
        let held = Instant::now() + READER_PATIENCE;
        assert_eq!(readers.patience(held), Some(held + READER_PATIENCE));
        reader.is_at(1);
        let long_ago = Instant::now().checked_sub(READER_PATIENCE);
        let ends = readers.patience(long_ago.unwrap_or_else(Instant::now)).expect("there is one");
        assert!(ends > Instant::now() + READER_PATIENCE / 2);
    }
}
