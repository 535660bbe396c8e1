//! Every bound of this crate: a name, a unit, a reason.

use std::time::Duration;

/// Environments of one router. Each costs a task and a connection once it is used, and whoever may add some could add
/// without end.
pub const ENVIRONMENTS: usize = 1024;

/// How long a call waits for a server that is away, and was there before. Long enough for a server to be started again or a
/// network to be changed, short enough for somebody who waits.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// How long after a server could not be reached the next call tries it again. Calls in between fail with the same reason.
pub const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// How long the connection to a server that was reached once is tried for. For ever, as far as that can be said: its session
/// is kept there, and nobody else knows it.
pub const RECONNECT_TIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How long a server is asked to keep our session while we are away. A server grants less if it wants to.
pub const FAR_SESSION_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// The same where nothing is stored, so that no later router can come for it.
pub const FORGOTTEN_SESSION_TTL: Duration = Duration::from_secs(600);

/// How long the end of a router waits for servers to end what runs there.
pub const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest session file. An id is a UUID.
pub const SESSION_FILE_BYTES: u64 = 1 << 10;
