//! Every bound of the lower rooms: a name, a unit, a reason.
//!
//! Bounds of the wire and of connections live beside them, in `exec-wire` and `exec-server`.

use std::time::Duration;

/// Most bytes of one log entry. Small enough that one turn of a flood does not ruin another process's echo, large
/// enough that a flood is not drowned in headers.
pub const ENTRY_BYTES: u32 = 64 << 10;

/// Most bytes one splice may take when nothing else is ready; recorded as several entries.
pub const SPLICE_BYTES: u32 = 256 << 10;

/// Capacity a pipe is given once it floods. `pipe-user-pages-soft` allows 64 MiB per user, and 1 MiB showed no gain.
pub const FLOOD_PIPE_BYTES: u32 = 256 << 10;

/// Output a process may hold before its overflow policy speaks.
pub const SPOOL_BYTES: u64 = 256 << 20;

/// Output all processes of an environment may hold together.
pub const SPOOL_TOTAL_BYTES: u64 = 4 << 30;

/// Least a spool may be asked to hold: below this, single entries would not fit.
pub const SPOOL_MIN_BYTES: u64 = 1 << 20;

/// Holes are punched in steps of this size, because a punch costs about the same for one page as for 1 MiB.
pub const PUNCH_BYTES: u64 = 1 << 20;

/// What an entry costs beside its bytes: its index record. Counted against the cap, or a child that writes one byte at
/// a time would own a disk of records.
pub const RECORD_BYTES: u64 = 32;

/// While a PTY floods, its 4 KiB reads are gathered this long before an entry is sealed.
pub const PTY_BATCH_TIME: Duration = Duration::from_millis(2);

/// A few bytes of a terminal that has run dry are an answer somebody waits for, not a flood, unless the last ones were
/// this short a time ago: no answer to an answer is faster.
pub const PTY_ECHO_GAP: Duration = Duration::from_micros(40);

/// What counts as a few bytes: a line or two, redrawn.
pub const PTY_ECHO_BYTES: u32 = 1 << 10;

/// Ids of accepted stdin writes remembered per process, as Codex's server does.
pub const REMEMBERED_WRITES: usize = 4096;

/// Stdin writes that may wait for one process; one more is told to try later by waiting itself.
pub const QUEUED_WRITES: usize = 128;

/// Most bytes of one stdin write; a larger one is refused before it is queued.
pub const WRITE_BYTES: usize = 64 << 20;

/// Longest process id, in bytes. Long enough for any client's scheme, short enough for a log line.
pub const PROCESS_ID_BYTES: usize = 512;

/// Longest write id, in bytes.
pub const WRITE_ID_BYTES: usize = 256;

/// Most bytes of argv and environment together. The kernel allows a quarter of the stack limit (2 MiB by default); a
/// caller over that gets the kernel's own `E2BIG`, a caller over this is refused before it costs memory.
pub const ARGUMENT_BYTES: usize = 16 << 20;

/// How long a terminated tree is given to disappear before the answer says that something is left.
pub const TREE_EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a keeper without an owner keeps its processes, unless told otherwise.
pub const ORPHAN_TTL: Duration = Duration::from_secs(600);

/// Output that an attached reader has not read yet is not dropped for newer output: the child waits. But not for a
/// reader that takes nothing for so long; it may have been stopped, or forgotten.
pub const READER_TIMEOUT: Duration = Duration::from_secs(10);

/// While a spool has no room (disk full, or `block` and full), the mover looks again this often.
pub const STALL_RETRY: Duration = Duration::from_millis(50);
