//! Every bound of processes and their logs: a name, a unit, a reason.
//!
//! Bounds of files are in `exec-env`, those of the protocol and of connections in `exec-wire` and `exec-rpc`.

use std::time::Duration;

/// Most bytes of one log entry. Small enough that moving one does not delay another process's echo, large enough that
/// headers are a small part of a flood.
pub const ENTRY_BYTES: u32 = 64 << 10;

/// Most bytes one splice may move when no other process is ready; recorded as several entries.
pub const SPLICE_BYTES: u32 = 256 << 10;

/// Capacity a pipe is given once it floods. `pipe-user-pages-soft` allows 64 MiB per user, and 1 MiB showed no gain.
pub const FLOOD_PIPE_BYTES: u32 = 256 << 10;

/// Output a process may hold before its overflow policy applies.
pub const SPOOL_BYTES: u64 = 256 << 20;

/// Output all processes of an environment may hold together.
pub const SPOOL_TOTAL_BYTES: u64 = 4 << 30;

/// Least a spool may be asked to hold: below this, single entries would not fit.
pub const SPOOL_MIN_BYTES: u64 = 1 << 20;

/// Holes are punched in steps of this size, because a punch costs about the same for one page as for 1 MiB.
pub const PUNCH_BYTES: u64 = 1 << 20;

/// What an entry costs beside its bytes: its index record. Counted against the cap, or a child that writes one byte at
/// a time would fill a disk with records.
pub const RECORD_BYTES: u64 = 32;

/// While a PTY floods, its 4 KiB reads are batched this long before they become an entry.
pub const PTY_BATCH_TIME: Duration = Duration::from_millis(2);

/// A few bytes after which a terminal has nothing more to read are an echo that somebody waits for, unless the previous
/// bytes came less than this ago: nobody reacts to an echo faster, so it is a flood.
pub const PTY_ECHO_GAP: Duration = Duration::from_micros(40);

/// What counts as a few bytes: a line or two, redrawn.
pub const PTY_ECHO_BYTES: u32 = 1 << 10;

/// Ids of accepted stdin writes remembered per process; as many as Codex's server remembers.
pub const REMEMBERED_WRITES: usize = 4096;

/// Keys of signals remembered per process: more than can be on their way when a connection or a server breaks down.
pub const REMEMBERED_SIGNALS: usize = 256;

/// Stdin writes that may be queued for one process. The caller of one more waits until there is space.
pub const QUEUED_WRITES: usize = 128;

/// Most bytes of one stdin write; a larger one is refused before it is queued.
pub const WRITE_BYTES: usize = 64 << 20;

/// Longest process id, in bytes: a client's id of a thousand characters, and the session that a server puts before it.
pub const PROCESS_ID_BYTES: usize = (4 << 10) + 64;

/// Most entries of one page, however small they are. An entry takes some 130 bytes of memory beside its output, and four
/// values of a JSON message, of which there may be 262,144.
pub const PAGE_ENTRIES: usize = 16 << 10;

/// Longest write id, in bytes.
pub const WRITE_ID_BYTES: usize = 256;

/// Most bytes of argv, environment and label together. The kernel allows a quarter of the stack limit (2 MiB by default) and
/// never more than 6 MiB; a caller over that gets the kernel's own `E2BIG`, a caller over this is refused before it costs
/// memory.
pub const ARGUMENT_BYTES: usize = 8 << 20;

/// Most bytes of all patterns of a process's proxy: each is held against the host of every request.
pub const PROXY_RULE_BYTES: usize = 128 << 10;

/// Longest name of a user. Linux allows 32 bytes, directories of accounts a few more.
pub const USER_NAME_BYTES: usize = 256;

/// Most directories of a `PATH` that are searched for a program. Each is a system call of the child, for which a thread of
/// the keeper waits.
pub const PATH_DIRECTORIES: usize = 1024;

/// Threads in which the keeper spawns. Each can hang at a program or a directory whose mount does not answer; a start that
/// finds no other is refused with `EBUSY`. Each costs some 20 KiB of memory.
pub const SPAWN_THREADS: usize = 32;

/// How long all of those threads must have been stuck before the starts that wait for one are refused. On a machine that
/// is merely busy, one comes back sooner.
pub const START_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a start may take before it is cancelled with `ETIMEDOUT`, so that starts which hang and whose client has gone
/// do not keep their threads. A program on the slowest disk runs sooner.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long `terminate` waits for the tree to disappear before it answers that something is left.
pub const TREE_EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long its owner waits for a keeper that is to end. It gives its trees [`TREE_EXIT_TIMEOUT`]; beyond twice that it is
/// stopped or hangs, and whoever stops a server must not wait for that.
pub const KEEPER_EXIT_TIMEOUT: Duration = Duration::from_secs(2 * TREE_EXIT_TIMEOUT.as_secs());

/// How long a keeper without an owner keeps its processes, unless its configuration has another number.
pub const ORPHAN_TTL: Duration = Duration::from_secs(600);

/// Output that an attached reader has not read yet is not dropped for newer output: the child waits. But it does not
/// wait for a reader that takes nothing for so long, which may have been stopped or forgotten.
pub const READER_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for a reader that says itself how far it has read, as long as it is attached: a person may have stopped it,
/// or reads page by page. The child waits as it would at a pipe, and this bound only ends what was forgotten.
pub const ATTACHED_READER_TIMEOUT: Duration = Duration::from_secs(3600);

/// While a spool has no space (the disk is full, or the spool is full and blocks), the mover tries again this often.
pub const STALL_RETRY: Duration = Duration::from_millis(50);
