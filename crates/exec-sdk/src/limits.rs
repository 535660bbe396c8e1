//! Every bound of this crate, with its unit and its reason.

use std::time::Duration;

/// Threads on which everything runs. The work is moving bytes and waiting; more threads would only wake each other.
pub const WORKER_THREADS: usize = 2;

/// Most output of a page, in bytes. A language copies it while its one thread does nothing else, which must stay far below a
/// millisecond.
pub const PAGE_BYTES: usize = 256 << 10;

/// Output that is shorter, in bytes, is joined with what follows it on the same stream: an object for every few bytes
/// would cost a language more than the copy.
pub const JOIN_BYTES: usize = 16 << 10;

/// Most events of a page. Whoever handles them one by one comes back to its event loop in between.
pub const PAGE_EVENTS: usize = 32;

/// Bytes of stdin in one write: a pipe's worth.
pub const STDIN_BLOCK_BYTES: usize = 64 << 10;

/// Largest body of an HTTP response that is read whole, in bytes; larger ones are read in pieces. The bound of files that are
/// read whole.
pub const BODY_BYTES: usize = 512 << 20;

/// Entries of one page of a directory; the listing of a directory is put together from pages.
pub const DIRECTORY_PAGE_ENTRIES: usize = 10_000;

/// How long closing an environment waits for calls to end what they have started on a far machine.
pub const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// How long an interrupted call may take to clean up before whoever interrupted it goes on without waiting for it.
pub const CLEAN_UP: Duration = Duration::from_secs(5);
