//! What belongs to a connection and ends with it: open files, watches, searches, bodies on their way.
//!
//! ```text
//!   request ── reserve ──► Place ── moves into ──► source task ── post, wait, post … ──► mailroom
//!                            └─ dropped: the name is free again, and whoever stops it may go on
//! ```
//!
//! A source has one message under way at a time, so a client that does not read stops it, and costs one message. The
//! connection awaits all of them at its end. Deliberately absent: what the sources say.

mod handles;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::{BODIES, SEARCHES, WATCHES};

pub(crate) use handles::{Handles, OpenRefusal};

/// Everything of one connection.
pub(crate) struct Belongings {
    pub(crate) handles: Arc<Handles>,
    pub(crate) watches: Arc<Sources>,
    pub(crate) searches: Arc<Sources>,
    pub(crate) bodies: Arc<Sources>,
    pub(crate) missing: MissingWatch,
    tasks: TaskTracker,
    over: CancellationToken,
}

impl Belongings {
    pub(crate) fn new() -> Self {
        let over = CancellationToken::new();
        Self {
            handles: Arc::default(),
            watches: Sources::new(WATCHES, &over),
            searches: Sources::new(SEARCHES, &over),
            bodies: Sources::new(BODIES, &over),
            missing: MissingWatch::new(&over),
            tasks: TaskTracker::new(),
            over,
        }
    }

    /// Runs a source until it ends or the connection does. A source stops by its own token.
    pub(crate) fn run(&self, source: impl Future<Output = ()> + Send + 'static) {
        drop(self.tasks.spawn(source));
    }

    /// Stops everything and waits for it.
    pub(crate) async fn end(&self) {
        self.over.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.handles.close_all().await;
    }
}

/// Sources of one kind, by the client's name for them.
pub(crate) struct Sources {
    running: Mutex<HashMap<String, Running>>,
    most: usize,
    over: CancellationToken,
}

/// How one is stopped, and how it says that it has.
#[derive(Clone)]
struct Running {
    stop: CancellationToken,
    stopped: CancellationToken,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// The name is taken.
    Taken,
    /// There are as many as there may be.
    Full { most: usize },
}

impl Sources {
    fn new(most: usize, over: &CancellationToken) -> Arc<Self> {
        Arc::new(Self { running: Mutex::default(), most, over: over.clone() })
    }

    /// Takes the name. It is held by the place.
    pub(crate) fn reserve(self: &Arc<Self>, id: &str) -> Result<Place, NoPlace> {
        let mut running = self.lock();
        if running.contains_key(id) {
            return Err(NoPlace::Taken);
        }
        if running.len() >= self.most {
            return Err(NoPlace::Full { most: self.most });
        }
        let tokens = Running { stop: self.over.child_token(), stopped: CancellationToken::new() };
        running.insert(id.to_owned(), tokens.clone());
        Ok(Place { sources: self.clone(), id: id.to_owned(), tokens })
    }

    /// Stops one and waits for its last word. One that is not there has stopped.
    pub(crate) async fn stop(&self, id: &str) {
        let tokens = self.lock().get(id).cloned();
        if let Some(Running { stop, stopped }) = tokens {
            stop.cancel();
            stopped.cancelled().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name that is taken, as long as this lives.
pub(crate) struct Place {
    sources: Arc<Sources>,
    id: String,
    tokens: Running,
}

impl Place {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Cancelled when it shall stop.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.tokens.stop.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.sources.lock().remove(&self.id);
        self.tokens.stopped.cancel();
    }
}

/// The one `fs/watchMissing` that a connection may have: a newer one replaces it.
pub(crate) struct MissingWatch {
    /// The last id, and what stops its watch. The original counts from 1.
    state: Mutex<(u64, CancellationToken)>,
    over: CancellationToken,
}

impl MissingWatch {
    fn new(over: &CancellationToken) -> Self {
        Self { state: Mutex::new((0, over.child_token())), over: over.clone() }
    }

    /// The token of a watch that takes the place of the last one; `None` if its id is not greater.
    pub(crate) fn replace(&self, watch_id: u64) -> Option<CancellationToken> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if watch_id <= state.0 {
            return None;
        }
        state.1.cancel();
        *state = (watch_id, self.over.child_token());
        Some(state.1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_free_again_when_its_place_is_dropped_and_whoever_stopped_it_may_go_on() {
        let belongings = Belongings::new();
        let place = belongings.watches.reserve("a").expect("nothing is there yet");
        assert_eq!(belongings.watches.reserve("a").err(), Some(NoPlace::Taken));
        let stop = place.stop();
        belongings.run(async move {
            stop.cancelled().await;
            drop(place);
        });
        belongings.watches.stop("a").await;
        assert!(belongings.watches.reserve("a").is_ok());
        belongings.watches.stop("unknown").await;
        belongings.end().await;
    }

    #[tokio::test]
    async fn the_end_stops_what_runs() {
        let belongings = Belongings::new();
        let place = belongings.searches.reserve("a").expect("nothing is there yet");
        belongings.run(async move { place.stop().cancelled().await });
        belongings.end().await;
        assert!(belongings.searches.reserve("a").is_ok(), "its place is free");
    }

    #[test]
    fn a_missing_watch_is_replaced_only_by_a_greater_id() {
        let watch = MissingWatch::new(&CancellationToken::new());
        let first = watch.replace(3).expect("the first");
        assert!(watch.replace(3).is_none() && watch.replace(2).is_none() && !first.is_cancelled());
        assert!(watch.replace(4).is_some() && first.is_cancelled());
    }
}
