//! Every bound of connections and sessions: a name, a unit, a reason.

use std::time::Duration;

/// How long a session lives without a connection, unless asked otherwise. Codex's 30 s is shorter than a laptop's nap.
pub const DETACHED_TTL: Duration = Duration::from_secs(600);

/// The longest a client may ask for.
pub const DETACHED_TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Requests of one connection that run at once; more wait their turn. Control is not counted.
pub const CONCURRENT_REQUESTS: usize = 256;

/// Requests of one connection that are accepted and not yet answered. Beyond, its socket is not read: only a client that
/// does not read its own answers comes here.
pub const ACCEPTED_REQUESTS: usize = 4096;

/// Bytes of large answers of one connection that may be in memory at once. One answer of the largest size fits.
pub const LARGE_ANSWER_BYTES: usize = 64 << 20;

/// An answer below this is not counted against [`LARGE_ANSWER_BYTES`].
pub const SMALL_ANSWER_BYTES: usize = 64 << 10;

/// Output one process may send in one turn.
pub const TURN_BYTES: usize = 64 << 10;

/// A turn below this was a small one: its process is let in before the floods next time.
pub const SMALL_TURN_BYTES: usize = 4 << 10;

/// Small turns in a row while a flood waits; then the flood has one.
pub const SMALL_TURNS: u32 = 8;

/// After a resume, the push of a process waits this long for the client's first read of it.
pub const RESUME_WAIT: Duration = Duration::from_secs(5);

/// An id of a closed process is free again after this, as in Codex's server.
pub const ID_REUSE: Duration = Duration::from_secs(30);

/// A closed process is kept this long.
pub const CLOSED_TTL: Duration = Duration::from_secs(600);

/// Closed processes kept in one session; each costs three descriptors in two processes. The oldest go first.
pub const KEPT_CLOSED: usize = 1024;

/// How often expired sessions and closed processes are looked for.
pub const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// Sessions of a server.
pub const SESSIONS: usize = 4096;

/// Longest snapshot scope, as in Codex's server.
pub const SNAPSHOT_SCOPE_BYTES: usize = 256;

/// How long a connection that is to end may take to say so to its peer.
pub const FAREWELL: Duration = Duration::from_secs(3);
