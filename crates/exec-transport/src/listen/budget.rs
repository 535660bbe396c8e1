//! Room for connections that the listener shares with others: what a connection needs of the machine is not known here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Held as long as its connection lives; dropped, it gives the room back.
pub type SharedRoom = Box<dyn fmt::Debug + Send + Sync>;

/// Asked for each connection, beside the listener's own bound. Clones ask the same.
#[derive(Clone)]
pub struct ConnectionBudget(Arc<TakeRoom>);

type TakeRoom = dyn Fn() -> Result<SharedRoom, String> + Send + Sync;

impl ConnectionBudget {
    /// `take` takes room for one connection. Its error says why there is none; the client is told that.
    pub fn new(take: impl Fn() -> Result<SharedRoom, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub(super) fn take(&self) -> Result<SharedRoom, String> {
        (self.0)()
    }
}

impl fmt::Debug for ConnectionBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionBudget")
    }
}

/// The room of one connection. Dropped when it ends.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _place: OwnedSemaphorePermit,
    _shared: Option<SharedRoom>,
}

/// The room for all connections of a listener.
#[derive(Debug)]
pub(super) struct ConnectionRoom {
    max_connections: usize,
    places: Arc<Semaphore>,
    budget: Option<ConnectionBudget>,
    /// Whether the last connection could not be served; then the log has it.
    overloaded: AtomicBool,
}

impl ConnectionRoom {
    pub(super) fn new(max_connections: usize, budget: Option<ConnectionBudget>) -> Self {
        let places = Arc::new(Semaphore::new(max_connections));
        Self { max_connections, places, budget, overloaded: AtomicBool::new(false) }
    }

    /// Takes room for one connection. The error says why there is none, for the client.
    pub(super) fn take(&self) -> Result<ConnectionPermit, String> {
        let taken = self.take_quietly();
        match &taken {
            Ok(_) => self.overloaded.store(false, Ordering::Relaxed),
            Err(why) => self.log_overload(why),
        }
        taken
    }

    fn take_quietly(&self) -> Result<ConnectionPermit, String> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            format!("all {} connections are in use; close one or try again later", self.max_connections)
        })?;
        let shared = self.budget.as_ref().map(ConnectionBudget::take).transpose()?;
        Ok(ConnectionPermit { _place: place, _shared: shared })
    }

    /// Says it once, however many clients come meanwhile.
    pub(super) fn log_overload(&self, why: &str) {
        if !self.overloaded.swap(true, Ordering::Relaxed) {
            tracing::warn!("connections are refused for now: {why}");
        }
    }
}
