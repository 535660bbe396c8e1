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
pub const LARGE_RESPONSE_BYTES: usize = 64 << 20;

/// An answer below this is not counted against [`LARGE_RESPONSE_BYTES`].
pub const SMALL_MESSAGE_BYTES: usize = 64 << 10;

/// Output one process may send in one turn.
pub const PUSH_BYTES: usize = 64 << 10;

/// A turn below this was a small one: its process is let in before the floods next time.
pub const SMALL_PUSH_BYTES: usize = 4 << 10;

/// Small turns in a row while a flood waits; then the flood has one.
pub const SMALL_PUSHES_IN_A_ROW: u32 = 8;

/// After a resume, the push of a process waits this long for the client's first read of it.
pub const FIRST_READ_WAIT: Duration = Duration::from_secs(5);

/// An id of a closed process is free again after this, as in Codex's server.
pub const ID_REUSE_DELAY: Duration = Duration::from_secs(30);

/// A closed process is kept this long.
pub const CLOSED_TTL: Duration = Duration::from_secs(600);

/// Closed processes kept in one session; each costs three descriptors in two processes. The oldest go first.
pub const CLOSED_PROCESSES: usize = 1024;

/// How often expired sessions and closed processes are looked for.
pub const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(5);

/// Sessions of a server.
pub const SESSIONS: usize = 4096;

/// Longest snapshot scope, as in Codex's server.
pub const SNAPSHOT_SCOPE_BYTES: usize = 256;

/// How long a connection that is to end may take to say so to its peer.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Watches of one connection; each costs an inotify instance, of which a user has 128 by default.
pub const WATCHES: usize = 32;

/// Searches of one connection; the environment lets fewer run at once, and the others wait.
pub const SEARCHES: usize = 64;

/// Bodies of HTTP answers that one connection streams at once.
pub const STREAMED_BODIES: usize = 64;

/// Longest name a client may give a watch or a search, in bytes.
pub const WATCH_OR_SEARCH_ID_BYTES: usize = 64;

/// Changes in one `fs/changed`: with the longest paths there are, each escaped, they still fit a message.
pub const CHANGES_PER_NOTIFICATION: usize = 1024;

/// What a long listing takes while it is made: 50,000 names of ordinary length.
pub const LISTING_BYTES: usize = 4 << 20;

/// What the answer of a walk or a glob may take.
pub const WALK_BYTES: usize = 16 << 20;

/// A body that is answered whole, not streamed: as base64 it must fit a message.
pub const WHOLE_BODY_BYTES: usize = 47 << 20;

/// Contents that one discovery may answer with: as JSON text, some of it escaped, they must fit a message.
pub const DISCOVERY_BYTES: usize = 32 << 20;

/// Contents of one root, as in Codex's server.
pub const CAPABILITY_ROOT_BYTES: usize = 16 << 20;

/// One file of a root, as in Codex's server.
pub const CAPABILITY_FILE_BYTES: usize = 1 << 20;

/// Bytes of large requests of one connection in memory. Beyond, its socket is not read until some are answered.
pub const LARGE_REQUEST_BYTES: usize = 128 << 20;

/// ResponseCache to requests that change files which a session remembers, in case they are asked again after a break.
pub const CACHED_RESPONSES: usize = 1024;

/// The word by which a client tells its requests from those of others.
pub const REQUEST_SCOPE_BYTES: usize = 64;

/// Reports of a copy that wait to be sent; more are left out, because a copy must not wait for its reader.
pub const COPY_PROGRESS_REPORTS: usize = 64;
