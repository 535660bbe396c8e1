//! Every bound of this front: a name, a unit, a reason. Those of messages are in `exec-transport` and `exec-wire`.

use std::time::Duration;

/// Output that a command returns or streams of each of its streams, unless it says otherwise; Codex's number.
pub const OUTPUT_BYTES_CAP: usize = 1 << 20;

/// Output of each stream that is kept for the result of a command that streams nothing, whatever the client allows: the
/// result is one message, and stands in memory three times while it is written. Streamed output has no such bound.
pub const CAPTURED_BYTES: usize = 128 << 20;

/// How long a command may run unless it says otherwise; Codex's number.
pub const TIME_LIMIT: Duration = Duration::from_secs(10);

/// A longer time limit is none: no clock counts that far, and additions to it must not overflow.
pub const TIME_LIMIT_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How long after a command's end its children may still print, if they hold its output open; Codex's number. Then they are
/// ended.
pub const DRAIN_TIME: Duration = Duration::from_secs(2);

/// How long we wait for the streams of a tree that was ended to close; only what hangs in the kernel takes longer.
pub const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Most bytes of one `outputDelta`; as Codex's.
pub const DELTA_BYTES: usize = 64 << 10;

/// Messages that wait to be written to a connection. Who has one more waits: so a flooding process waits for a slow client,
/// and what waits in memory is about 6 MiB at most, beside results.
pub const OUTBOX_MESSAGES: usize = 64;

/// How long a client may take nothing at all before its connection is given up. A person may have stopped it in a debugger,
/// and nothing is lost meanwhile; a client that is gone is noticed by its closed pipe or by unanswered pings.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(3600);

/// Requests of one connection under way at a time, those of running processes not counted. Nothing more is read from a
/// connection that has as many, so none is refused or lost.
pub const REQUESTS_UNDER_WAY: usize = 256;

/// Bytes of their params together, with the same consequence. One message of the largest size fits.
pub const REQUEST_BYTES_UNDER_WAY: usize = 80 << 20;

/// Bytes of file contents that a connection's `fs/readFile` requests hold at a time; one of the largest size fits.
pub const READ_BYTES_UNDER_WAY: usize = 512 << 20;

/// Processes of one connection at a time. Each has a log and a few descriptors.
pub const PROCESSES: usize = 1024;

/// Longest id of a process, in bytes: it stands in each of its messages.
pub const PROCESS_ID_BYTES: usize = 64 << 10;

/// Bytes for the stdin of one process that wait in memory while each write is answered at once, as Codex does. With more,
/// a write is answered when the process has taken it.
pub const STDIN_QUEUE_BYTES: usize = 1 << 20;

/// With so many waiting, a write is refused, and nothing of it is written.
pub const STDIN_QUEUE_BYTES_MAX: usize = 64 << 20;

/// The same for the number of writes.
pub const STDIN_QUEUE_WRITES_MAX: usize = 4096;

/// Resizes and terminations that wait for one process to be started; more are refused.
pub const CONTROL_QUEUE: usize = 64;

/// Watches of one connection. Each is a descriptor, and the kernel gives a user 128 by default.
pub const WATCHES: usize = 1024;

/// Changes are told this long after the first of them, together; Codex's number.
pub const WATCH_DEBOUNCE: Duration = Duration::from_millis(200);

/// Paths of one `fs/changed`. Beyond, the watched path itself stands for the rest.
pub const CHANGED_PATHS: usize = 8192;

/// How often a path is looked for that cannot be watched for, because a link leads to it.
pub const MISSING_PATH_PAUSE: Duration = Duration::from_millis(500);

/// Remote environments that clients may add.
pub const ENVIRONMENTS: usize = 256;

/// Longest id of an environment, in bytes.
pub const ENVIRONMENT_ID_BYTES: usize = 4 << 10;

/// How long connecting to a remote environment may take, unless the client says otherwise; Codex's number.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the end of a connection waits for its processes to be gone.
pub const FINISH_TIME: Duration = Duration::from_secs(10);
