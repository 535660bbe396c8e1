//! Every bound of the tools over files: a name, a unit, a reason.

/// Lines that `read` shows unless asked for another number. A model reads about so many before it searches instead.
pub const READ_LINES: usize = 2_000;

/// Most lines that `read` shows at once; more would be cut by [`READ_TEXT_BYTES`] anyhow.
pub const READ_LINES_MAX: usize = 20_000;

/// Bytes of text that `read` shows unless asked for another number: some 16,000 tokens.
pub const READ_TEXT_BYTES: usize = 64 << 10;

/// Most bytes of text that `read` shows at once.
pub const READ_TEXT_BYTES_MAX: usize = 1 << 20;

/// Bytes of one line that `read` shows; minified files have lines of megabytes.
pub const LINE_BYTES: usize = 2_000;

/// Bytes at the beginning of a file that decide whether it is text, as Git does it.
pub const BINARY_PROBE_BYTES: usize = 8_000;

/// A file whose size the kernel does not know (in /proc) is read up to here.
pub const UNSIZED_BYTES: u64 = 16 << 20;

/// Largest file that `edit`, `edit_many` and `apply_patch` take: it is held in memory, and one message carries it back.
pub const EDIT_FILE_BYTES: u64 = 16 << 20;

/// Largest contents that `write` takes, for the same reason.
pub const WRITE_BYTES: usize = 16 << 20;

/// Most changed files of one `edit_many` or `apply_patch`.
pub const MANY_FILES: usize = exec_env::files::limits::CHANGE_SET_FILES;

/// Most new bytes of one `edit_many` or `apply_patch`: one message carries them.
pub const MANY_BYTES: usize = exec_env::files::limits::CHANGE_SET_BYTES;

/// Most edits of one `edit_many`.
pub const MANY_EDITS: usize = 10_000;

/// Times that an unguarded change is made anew because somebody else changed the file meanwhile. Fifty editors at once need
/// fewer than fifty each.
pub const CHANGE_ATTEMPTS: usize = 200;

/// Places that an error names when a text occurs too often.
pub const NAMED_PLACES: usize = 20;

/// Similar places that an error shows when a text does not occur.
pub const SIMILAR_PLACES: usize = 3;

/// Lines of a file among which similar ones are looked for; comparing them all takes some ten milliseconds.
pub const SIMILAR_LINES: usize = 20_000;

/// Lines that an error shows of each similar place.
pub const SIMILAR_SHOWN_LINES: usize = 12;

/// Bytes of a line that are compared, and shown in an error.
pub const SIMILAR_LINE_BYTES: usize = 200;

/// Unchanged lines that are shown before and after an edit.
pub const EDIT_CONTEXT_LINES: usize = 3;

/// Most lines of an edited file that are shown.
pub const EDIT_SHOWN_LINES: usize = 40;

/// Entries of a listing unless asked for another number.
pub const LIST_ENTRIES: usize = 500;

/// Most entries of a listing.
pub const LIST_ENTRIES_MAX: usize = 10_000;

/// Deepest listing.
pub const LIST_DEPTH: usize = 16;

/// Paths of a glob unless asked for another number.
pub const GLOB_PATHS: usize = 500;

/// Matching lines of a grep unless asked for another number.
pub const GREP_MATCHES: u64 = 200;

/// Most matching lines of a grep.
pub const GREP_MATCHES_MAX: u64 = 10_000;

/// Bytes of one line that a grep shows.
pub const GREP_LINE_BYTES: usize = 500;

/// Bytes before the first match of a long line that a grep shows.
pub const GREP_BEFORE_BYTES: usize = 100;

/// Most bytes of lines that a grep returns.
pub const GREP_TEXT_BYTES: usize = 256 << 10;

/// Matching lines that a count goes up to, so that it ends.
pub const GREP_COUNT: u64 = 1_000_000;

/// Files that a grep names.
pub const GREP_FILES: usize = 2_000;

/// Files that a grep names because they were not searched, or not whole.
pub const GREP_PROBLEMS: usize = 5;

/// Largest image: what models take, and base64 of it fits a message.
pub const IMAGE_BYTES: u64 = 10 << 20;

/// Longest patch. It is held in memory a few times over.
pub const PATCH_BYTES: usize = 4 << 20;
