//! Every bound on files: a name, a unit, a reason.

use std::time::Duration;

/// Most bytes `read` returns, as existing clients expect; larger files are read in blocks.
pub const READ_BYTES: u64 = 512 << 20;

/// Most bytes of one block. Encoded as base64 inside a JSON message it is still well under every known frame limit.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Most bytes of the extended attributes of a file, names and values, that are told or set at once. File systems hold some KiB of
/// them; one value may have 64 KiB.
pub const ATTRIBUTE_BYTES: usize = 256 << 10;

/// Most files that a change set changes. Each takes a descriptor or two and an `fsync`.
pub const CHANGE_SET_FILES: usize = 256;

/// Most bytes of new contents in a change set: as base64 they fit one message, and a server that decodes it keeps small.
pub const CHANGE_SET_BYTES: usize = 16 << 20;

/// Most entries that `read_directory` or one page of it returns.
pub const DIRECTORY_ENTRIES: usize = 50_000;

/// Deepest walk.
pub const WALK_DEPTH: usize = 64;

/// Most directories a walk may enter.
pub const WALK_DIRECTORIES: usize = 10_000;

/// Most entries a walk may examine.
pub const WALK_ENTRIES: usize = 50_000;

/// Most bytes of a walk's result in memory. 50,000 entries of ordinary length fit.
pub const WALK_BYTES: usize = 16 << 20;

/// What an entry of a walk's result takes beside its path.
pub const WALK_ENTRY_BYTES: usize = 64;

/// Most paths of one `watch_missing`.
pub const MISSING_PATHS: usize = 64;

/// Most directories that `watch_missing` may depend on: all those on the way to its paths, from the root on.
pub const MISSING_WATCHES: usize = 64;

/// Most changes in one batch. Later ones stay in the kernel's queue.
pub const BATCH_CHANGES: usize = 4096;

/// A batch is complete when nothing has changed for this long, because editors and compilers write in bursts.
pub const BATCH_SILENCE: Duration = Duration::from_millis(10);

/// A batch is complete after this long even if the burst goes on.
pub const BATCH_AGE: Duration = Duration::from_millis(100);

/// Matching lines of a search, unless the query has another number.
pub const SEARCH_MATCHES: u64 = 10_000;

/// Most bytes of a line that a search reports; minified files have lines of megabytes.
pub const SEARCH_LINE_BYTES: usize = 4 << 10;

/// Most matches within one line that a search reports. A line of a megabyte may have as many matches.
pub const SEARCH_SPANS: usize = 16_384;

/// Most bytes of lines that a search holds, a line and its context together. The rest of a longer line is not searched.
pub const SEARCH_WINDOW_BYTES: usize = 1 << 20;

/// The lines of a file are handed to the reader once they take this much memory, or when the file ends.
pub const SEARCH_BATCH_BYTES: usize = 64 << 10;

/// Batches a search may be ahead of its reader; then it waits.
pub const SEARCH_AHEAD: usize = 8;

/// Most lines of context on either side of a match.
pub const SEARCH_CONTEXT_LINES: u32 = 100;

/// Of the files that a search cannot read, so many are named; the rest are only counted.
pub const SEARCH_PROBLEMS: usize = 100;

/// Paths of a glob, unless the query has another number. They take at most [`WALK_BYTES`].
pub const GLOB_PATHS: usize = 10_000;
