//! Every bound on files: a name, a unit, a reason.

use std::time::Duration;

/// Most bytes `read` answers with. Codex's own bound; larger files are read in blocks.
pub const READ_BYTES: u64 = 512 << 20;

/// Most bytes of one block. With base64 and its envelope a block stays well under every known frame limit.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Most entries `read_directory` answers with.
pub const DIRECTORY_ENTRIES: usize = 50_000;

/// Deepest walk.
pub const WALK_DEPTH: usize = 64;

/// Most directories a walk may enter.
pub const WALK_DIRECTORIES: usize = 10_000;

/// Most entries a walk may examine.
pub const WALK_ENTRIES: usize = 50_000;

/// What a walk's answer may weigh, so that it fits one message with room to spare. 50,000 entries of ordinary length
/// fit whole.
pub const WALK_BYTES: usize = 16 << 20;

/// What an entry of a walk weighs beside its URI.
pub const WALK_ENTRY_BYTES: usize = 64;

/// Paths `watch_missing` may be asked for at once.
pub const MISSING_PATHS: usize = 64;

/// Directories `watch_missing` may have to look at: all that are on the way, from the root on.
pub const MISSING_WATCHES: usize = 64;

/// Most changes in one batch. What comes later stays in the kernel's queue.
pub const BATCH_CHANGES: usize = 4096;

/// A batch is complete after this much silence: editors and compilers write in bursts.
pub const BATCH_SILENCE: Duration = Duration::from_millis(10);

/// A batch is complete after this long even if the burst goes on.
pub const BATCH_AGE: Duration = Duration::from_millis(100);

/// Matches a search finds unless it is told otherwise.
pub const SEARCH_MATCHES: u64 = 10_000;

/// Most bytes of a line that a search reports; minified files have lines of megabytes.
pub const SEARCH_LINE_BYTES: usize = 4 << 10;

/// Lines are handed over once they weigh this much, or when their file ends.
pub const SEARCH_BATCH_BYTES: usize = 64 << 10;

/// Batches a search may be ahead of its reader; then it waits.
pub const SEARCH_AHEAD: usize = 8;

/// Most lines of context on either side of a match.
pub const SEARCH_CONTEXT_LINES: u32 = 100;

/// Files a search cannot read are named up to this number; beyond it they are only counted.
pub const SEARCH_PROBLEMS: usize = 100;

/// Paths a glob finds unless it is told otherwise.
pub const GLOB_PATHS: usize = 10_000;
