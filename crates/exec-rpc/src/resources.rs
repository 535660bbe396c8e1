//! What ends with a connection: open files, watches, searches, HTTP bodies that are being streamed.
//!
//! Watches, searches and bodies are sources of notifications. Each runs as a task:
//!
//! ```text
//!   request ── reserve ──► SourceReservation ── moves into ──► task ── send, wait, send … ──► writer
//!                            └─ dropped: the id is free again, and whoever waits for the stop goes on
//! ```
//!
//! A source has at most one message with the writer. A client that does not read therefore stops its sources, and costs
//! one message for each. The connection waits for all of them when it ends. What the sources send is not decided here.

mod file_handles;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::limits::{SEARCHES, STREAMED_BODIES, WATCHES};
use crate::reservations::{Lookup, Reservation, Reservations, ReserveError};

pub(crate) use file_handles::{FileHandles, HandleError, SharedFile, check_handle_id};

pub(crate) struct ConnectionResources {
    pub(crate) handles: FileHandles,
    pub(crate) watches: NotificationSources,
    pub(crate) searches: NotificationSources,
    pub(crate) bodies: NotificationSources,
    pub(crate) missing: MissingWatch,
    tasks: TaskTracker,
    connection_over: CancellationToken,
}

impl ConnectionResources {
    pub(crate) fn new() -> Self {
        let connection_over = CancellationToken::new();
        Self {
            handles: FileHandles::default(),
            watches: NotificationSources::new(WATCHES, &connection_over),
            searches: NotificationSources::new(SEARCHES, &connection_over),
            bodies: NotificationSources::new(STREAMED_BODIES, &connection_over),
            missing: MissingWatch::new(&connection_over),
            tasks: TaskTracker::new(),
            connection_over,
        }
    }

    /// Runs the task of a source. It must end soon after its token is cancelled, because [`Self::close`] waits for it.
    pub(crate) fn spawn(&self, source: impl Future<Output = ()> + Send + 'static) {
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

/// The running sources of one kind, by the ids that the client gave them.
pub(crate) struct NotificationSources {
    running: Arc<Reservations<String, SourceTokens>>,
    connection_over: CancellationToken,
}

#[derive(Clone)]
struct SourceTokens {
    /// Cancelled to make the source stop.
    stop: CancellationToken,
    /// Cancelled when it has stopped.
    stopped: CancellationToken,
    /// The number of the last notification that the client has acknowledged. Only bodies of responses have any.
    acknowledged: watch::Sender<u64>,
}

impl NotificationSources {
    fn new(limit: usize, connection_over: &CancellationToken) -> Self {
        Self { running: Reservations::new(limit), connection_over: connection_over.clone() }
    }

    pub(crate) fn reserve(&self, id: &str) -> Result<SourceReservation, ReserveError> {
        let tokens = SourceTokens {
            stop: self.connection_over.child_token(),
            stopped: CancellationToken::new(),
            acknowledged: watch::Sender::new(0),
        };
        let id = self.running.reserve_with(id.to_owned(), tokens.clone())?;
        let acknowledged = tokens.acknowledged.subscribe();
        Ok(SourceReservation { _id: id, stop: tokens.stop, _stopped: tokens.stopped.drop_guard(), acknowledged })
    }

    /// Notes that the client has taken the notifications up to `seq`, if there is a source of this id.
    pub(crate) fn acknowledge(&self, id: &str, seq: u64) {
        if let Lookup::Present(tokens) = self.running.find(id) {
            tokens.acknowledged.send_modify(|last| *last = seq.max(*last));
        }
    }

    /// Stops a source and waits until its last message was sent. Returns at once if there is none of this id.
    pub(crate) async fn stop(&self, id: &str) {
        if let Lookup::Present(SourceTokens { stop, stopped, .. }) = self.running.find(id) {
            stop.cancel();
            stopped.cancelled().await;
        }
    }
}

/// The id of a source, taken as long as this lives. Fields are dropped in this order: whoever waits for the stop must
/// find the id free.
pub(crate) struct SourceReservation {
    _id: Reservation<String, SourceTokens>,
    stop: CancellationToken,
    _stopped: DropGuard,
    acknowledged: watch::Receiver<u64>,
}

impl SourceReservation {
    /// Cancelled when the source must stop.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Changes whenever the client acknowledges notifications.
    pub(crate) fn acknowledged(&self) -> watch::Receiver<u64> {
        self.acknowledged.clone()
    }
}

/// The one `fs/watchMissing` that a connection may have: a newer one replaces it.
pub(crate) struct MissingWatch {
    /// The last id, and the token that stops its watch. Codex's server counts from 1.
    state: Mutex<(u64, CancellationToken)>,
    connection_over: CancellationToken,
}

impl MissingWatch {
    fn new(connection_over: &CancellationToken) -> Self {
        Self { state: Mutex::new((0, connection_over.child_token())), connection_over: connection_over.clone() }
    }

    /// Stops the last watch and returns the token of the new one; `None` if the new id is not greater.
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
        let stop = reservation.stop_token();
        resources.spawn(async move {
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
        resources.spawn(async move { reservation.stop_token().cancelled().await });
        resources.close().await;
        assert!(resources.searches.reserve("a").is_ok(), "its id is free");
    }

    #[test]
    fn a_missing_watch_is_replaced_only_by_a_greater_id() {
        let watch = MissingWatch::new(&CancellationToken::new());
        let first = watch.replace(3).expect("the first");
        assert!(watch.replace(3).is_none() && watch.replace(2).is_none() && !first.is_cancelled());
        assert!(watch.replace(4).is_some() && first.is_cancelled());
    }
}
