//! The positions of a log's readers, so that a full log drops nothing that is about to be read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use exec_core::Seq;
use exec_core::limits::READER_TIMEOUT;
use tokio::sync::Notify;

/// The readers of one log.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    positions: Mutex<Positions>,
    moved: Notify,
}

#[derive(Debug, Default)]
struct Positions {
    by_reader: BTreeMap<u64, Position>,
    next: u64,
    /// Everything behind this entry is kept until then, or until the first reader has come. One that has registered is taken for
    /// it unless it withdraws, or leaves before it has read anything.
    awaited: Option<(Seq, Instant)>,
}

#[derive(Debug, Clone, Copy)]
struct Position {
    /// Everything up to here was read.
    after: Seq,
    since: Instant,
    /// How long the child waits for it, if it reads nothing.
    patience: Duration,
    /// It has read nothing for so long that nobody waits for it, until it reads again.
    ignored: bool,
}

/// A reader that a full log waits for; until it is dropped.
#[derive(Debug)]
pub(crate) struct RegisteredReader {
    readers: Arc<Readers>,
    number: u64,
    patience: Duration,
    /// What was kept for the first reader, which this one turns out to be when it reads.
    awaited: Mutex<Option<(Seq, Instant)>>,
}

impl Position {
    fn now(after: Seq, patience: Duration) -> Self {
        Self { after, since: Instant::now(), patience, ignored: false }
    }
}

impl Readers {
    pub(crate) fn register(self: &Arc<Self>, after: Seq) -> RegisteredReader {
        self.add(after, |positions| positions.awaited.take())
    }

    /// Registers one that is not the first reader, even if no other has come yet.
    pub(crate) fn register_beside(self: &Arc<Self>, after: Seq) -> RegisteredReader {
        self.add(after, |_| None)
    }

    fn add(
        self: &Arc<Self>,
        after: Seq,
        awaited: impl FnOnce(&mut Positions) -> Option<(Seq, Instant)>,
    ) -> RegisteredReader {
        let mut positions = self.positions();
        let awaited = Mutex::new(awaited(&mut positions));
        let number = positions.next;
        positions.next += 1;
        positions.by_reader.insert(number, Position::now(after, READER_TIMEOUT));
        // The mover may have noted that nobody reads.
        self.moved.notify_one();
        RegisteredReader { readers: self.clone(), number, patience: READER_TIMEOUT, awaited }
    }

    /// Keeps what comes after `after` for a while: the owner before us was killed, and whoever read along may come back.
    pub(crate) fn await_first(&self, after: Seq) {
        self.positions().awaited = Instant::now().checked_add(READER_TIMEOUT).map(|until| (after, until));
    }

    /// The first entry that a reader has not read.
    pub(crate) fn first_needed(&self) -> Option<Seq> {
        let positions = self.positions();
        let awaited = positions.awaited.filter(|(_, until)| Instant::now() < *until).map(|(after, _)| after);
        let after = positions.by_reader.values().filter(|position| !position.ignored).map(|position| position.after);
        after.chain(awaited).min().map(|after| after.saturating_add(1))
    }

    /// Until when the child, which waits since `child_waits_since`, waits for the slowest reader if that reads nothing.
    pub(crate) fn deadline_of_slowest(&self, child_waits_since: Instant) -> Option<Instant> {
        let positions = self.positions();
        if let Some((_, until)) = positions.awaited {
            return Some(until);
        }
        let slowest =
            positions.by_reader.values().filter(|position| !position.ignored).min_by_key(|position| position.after)?;
        slowest.since.max(child_waits_since).checked_add(slowest.patience)
    }

    /// Nobody waits for the slowest reader any longer.
    pub(crate) fn ignore_slowest(&self) {
        let mut positions = self.positions();
        if positions.awaited.take().is_some() {
            return;
        }
        let waited_for = positions.by_reader.values_mut().filter(|position| !position.ignored);
        if let Some(slowest) = waited_for.min_by_key(|position| position.after) {
            slowest.ignored = true;
        }
    }

    /// Returns when a reader has read or left since the last call.
    pub(crate) async fn moved(&self) {
        self.moved.notified().await;
    }

    fn positions(&self) -> MutexGuard<'_, Positions> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegisteredReader {
    /// How long the child waits for it from now on.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    pub(crate) fn advance_to(&self, after: Seq) {
        self.take_awaited();
        let position = Position::now(after, self.patience);
        self.readers.positions().by_reader.insert(self.number, position);
        self.readers.moved.notify_one();
    }

    /// Nothing is kept for it, until it says again what it has read. It must not count as a reader that has read everything:
    /// on a full disk, that would be dropped. Nor is it the first reader for whom something was kept.
    pub(crate) fn withdraw(&self) {
        let awaited = self.take_awaited();
        let mut positions = self.readers.positions();
        positions.by_reader.remove(&self.number);
        positions.awaited = positions.awaited.or(awaited);
        drop(positions);
        self.readers.moved.notify_one();
    }

    fn take_awaited(&self) -> Option<(Seq, Instant)> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for RegisteredReader {
    fn drop(&mut self) {
        // If it has read nothing, the first reader has yet to come.
        self.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_reader_counts_until_it_is_given_up_and_again_when_it_moves() {
        let readers = Arc::new(Readers::default());
        assert_eq!(readers.first_needed(), None);
        let slow = readers.register(3);
        let fast = readers.register(3);
        fast.advance_to(90);
        assert_eq!(readers.first_needed(), Some(4));
        readers.ignore_slowest();
        assert_eq!(readers.first_needed(), Some(91));
        slow.advance_to(5);
        assert_eq!(readers.first_needed(), Some(6));
        drop(slow);
        assert_eq!(readers.first_needed(), Some(91));
        drop(fast);
        assert_eq!(readers.first_needed(), None);
    }

    #[test]
    fn a_reader_of_an_earlier_owner_is_awaited_until_the_first_one_comes() {
        let readers = Arc::new(Readers::default());
        readers.await_first(3);
        assert_eq!(readers.first_needed(), Some(4));
        assert!(readers.deadline_of_slowest(Instant::now()).is_some_and(|until| until > Instant::now()));
        let searcher = readers.register_beside(95);
        assert_eq!(readers.first_needed(), Some(4), "it only looks for something");
        searcher.advance_to(96);
        drop(searcher);
        assert_eq!(readers.first_needed(), Some(4));
        let reader = readers.register(90);
        assert_eq!(readers.first_needed(), Some(91));
        drop(reader);
        assert_eq!(readers.first_needed(), Some(4), "it has read nothing");
        let reader = readers.register(90);
        reader.advance_to(91);
        drop(reader);
        assert_eq!(readers.first_needed(), None);
        readers.await_first(3);
        readers.ignore_slowest();
        assert_eq!(readers.first_needed(), None);
    }

    #[test]
    fn a_reader_for_which_nothing_is_kept_is_none() {
        let readers = Arc::new(Readers::default());
        let (reader, observer) = (readers.register(3), readers.register(3));
        observer.withdraw();
        reader.advance_to(90);
        assert_eq!(readers.first_needed(), Some(91));
        drop(reader);
        assert_eq!(readers.first_needed(), None, "and not what nobody has read");
        observer.advance_to(5);
        assert_eq!(readers.first_needed(), Some(6));
    }

    #[test]
    fn what_is_kept_for_the_first_reader_is_not_let_go_of_because_an_observer_comes() {
        let readers = Arc::new(Readers::default());
        readers.await_first(7);
        let observer = readers.register(0);
        assert_eq!(readers.first_needed(), Some(1));
        observer.withdraw();
        assert_eq!(readers.first_needed(), Some(8), "it is not the reader that was to come");
        drop(observer);
        assert_eq!(readers.first_needed(), Some(8));
        let reader = readers.register(7);
        reader.advance_to(20);
        assert_eq!(readers.first_needed(), Some(21));
        drop(reader);
        assert_eq!(readers.first_needed(), None, "it has come, and left");
    }

    #[test]
    fn patience_begins_when_the_child_waits_or_the_reader_last_moved() {
        let readers = Arc::new(Readers::default());
        let reader = readers.register(0);
        let held = Instant::now() + READER_TIMEOUT;
        assert_eq!(readers.deadline_of_slowest(held), Some(held + READER_TIMEOUT));
        reader.advance_to(1);
        let long_ago = Instant::now().checked_sub(READER_TIMEOUT);
        let ends = readers.deadline_of_slowest(long_ago.unwrap_or_else(Instant::now)).expect("there is one");
        assert!(ends > Instant::now() + READER_TIMEOUT / 2);
    }

    #[test]
    fn a_reader_may_ask_for_more_patience_and_for_any() {
        let readers = Arc::new(Readers::default());
        let mut reader = readers.register(0);
        reader.set_patience(READER_TIMEOUT * 10);
        reader.advance_to(1);
        let ends = readers.deadline_of_slowest(Instant::now()).expect("there is one");
        assert!(ends > Instant::now() + READER_TIMEOUT * 9);
        reader.set_patience(Duration::MAX);
        reader.advance_to(1);
        assert_eq!(readers.deadline_of_slowest(Instant::now()), None);
    }
}
