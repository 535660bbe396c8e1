//! Room for connections that the listener shares with others: what a connection needs of the machine is not known here.

use std::fmt;
use std::sync::Arc;

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
