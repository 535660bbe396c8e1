//! What belongs to a connection and ends with it: open files, watches, searches, bodies on their way.
//!
//! ```text
//!   request ── reserve ──► SourceReservation ── moves into ──► source task ── post, wait, post … ──► writer
//!                            └─ dropped: the name is free again, and whoever stops it may go on
//! ```
//!
//! A source has one message under way at a time, so a client that does not read stops it, and costs one message. The
//! connection awaits all of them at its end. Deliberately absent: what the sources say.

mod file_handles;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::{SEARCHES, STREAMED_BODIES, WATCHES};

pub(crate) use file_handles::{FileHandles, OpenHandleError};

/// Everything of one connection.
pub(crate) struct ConnectionResources {
    pub(crate) handles: Arc<FileHandles>,
    pub(crate) watches: Arc<NotificationSources>,
    pub(crate) searches: Arc<NotificationSources>,
    pub(crate) bodies: Arc<NotificationSources>,
    pub(crate) missing: MissingWatch,
    tasks: TaskTracker,
    connection_over: CancellationToken,
}

impl ConnectionResources {
    pub(crate) fn new() -> Self {
        let connection_over = CancellationToken::new();
        Self {
            handles: Arc::default(),
            watches: NotificationSources::new(WATCHES, &connection_over),
            searches: NotificationSources::new(SEARCHES, &connection_over),
            bodies: NotificationSources::new(STREAMED_BODIES, &connection_over),
            missing: MissingWatch::new(&connection_over),
            tasks: TaskTracker::new(),
            connection_over,
        }
    }

    /// Runs a source until it ends or the connection does. A source stops by its own token.
    pub(crate) fn run(&self, source: impl Future<Output = ()> + Send + 'static) {
        drop(self.tasks.spawn(source));
    }

    /// Stops everything and waits for it.
    pub(crate) async fn close(&self) {
        self.connection_over.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.handles.close_all().await;
    }
}

/// Sources of one kind, by the client's name for them.
pub(crate) struct NotificationSources {
    running: Mutex<HashMap<String, Running>>,
    most: usize,
    connection_over: CancellationToken,
}

/// How one is stopped, and how it says that it has.
#[derive(Clone)]
struct Running {
    stop: CancellationToken,
    stopped: CancellationToken,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReserveError {
    /// The name is taken.
    Taken,
    /// There are as many as there may be.
    Full { most: usize },
}

impl NotificationSources {
    fn new(most: usize, connection_over: &CancellationToken) -> Arc<Self> {
        Arc::new(Self { running: Mutex::default(), most, connection_over: connection_over.clone() })
    }

    /// Takes the name. It is held by the place.
    pub(crate) fn reserve(self: &Arc<Self>, id: &str) -> Result<SourceReservation, ReserveError> {
        let mut running = self.lock();
        if running.contains_key(id) {
            return Err(ReserveError::Taken);
        }
        if running.len() >= self.most {
            return Err(ReserveError::Full { most: self.most });
        }
        let tokens = Running { stop: self.connection_over.child_token(), stopped: CancellationToken::new() };
        running.insert(id.to_owned(), tokens.clone());
        Ok(SourceReservation { sources: self.clone(), id: id.to_owned(), tokens })
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
pub(crate) struct SourceReservation {
    sources: Arc<NotificationSources>,
    id: String,
    tokens: Running,
}

impl SourceReservation {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Cancelled when it shall stop.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.tokens.stop.clone()
    }
}

impl Drop for SourceReservation {
    fn drop(&mut self) {
        self.sources.lock().remove(&self.id);
        self.tokens.stopped.cancel();
    }
}

/// The one `fs/watchMissing` that a connection may have: a newer one replaces it.
pub(crate) struct MissingWatch {
    /// The last id, and what stops its watch. The original counts from 1.
    state: Mutex<(u64, CancellationToken)>,
    connection_over: CancellationToken,
}

impl MissingWatch {
    fn new(connection_over: &CancellationToken) -> Self {
        Self { state: Mutex::new((0, connection_over.child_token())), connection_over: connection_over.clone() }
    }

    /// The token of a watch that takes the place of the last one; `None` if its id is not greater.
    pub(crate) fn replace(&self, watch_id: u64) -> Option<CancellationToken> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if watch_id <= state.0 {
            return None;
        }
        state.1.cancel();
        *state = (watch_id, self.connection_over.child_token());
        Some(state.1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_free_again_when_its_reservation_is_dropped_and_whoever_stopped_it_may_go_on() {
        let resources = ConnectionResources::new();
        let reservation = resources.watches.reserve("a").expect("nothing is there yet");
        assert_eq!(resources.watches.reserve("a").err(), Some(ReserveError::Taken));
        let stop = reservation.stop();
        resources.run(async move {
            stop.cancelled().await;
            drop(reservation);
        });
        resources.watches.stop("a").await;
        assert!(resources.watches.reserve("a").is_ok());
        resources.watches.stop("unknown").await;
        resources.close().await;
    }

    #[tokio::test]
    async fn the_end_stops_what_runs() {
        let resources = ConnectionResources::new();
        let reservation = resources.searches.reserve("a").expect("nothing is there yet");
        resources.run(async move { reservation.stop().cancelled().await });
        resources.close().await;
        assert!(resources.searches.reserve("a").is_ok(), "its place is free");
    }

    #[test]
    fn a_missing_watch_is_replaced_only_by_a_greater_id() {
        let watch = MissingWatch::new(&CancellationToken::new());
        let first = watch.replace(3).expect("the first");
        assert!(watch.replace(3).is_none() && watch.replace(2).is_none() && !first.is_cancelled());
        assert!(watch.replace(4).is_some() && first.is_cancelled());
    }
}
