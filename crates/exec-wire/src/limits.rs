//! Every bound of the wire: a name, a unit, a reason.
//!
//! Where Codex's server has the same bound, its number is kept, because clients are built around it. Bounds of
//! connections and queues are not here; they live in `exec-rpc` and `exec-transport`.

/// Most JSON values in one message, the root included. Keeps a small message from becoming a large tree.
pub const MESSAGE_VALUES: usize = 262_144;

/// Most nested containers in one message, the root included. Keeps recursion off the end of the stack.
pub const MESSAGE_DEPTH: usize = 127;

/// Most bytes of one message in either direction; a larger one is refused, or answered by an error.
pub const MESSAGE_BYTES: usize = 64 << 20;

/// Most bytes of one WebSocket frame that a peer may send.
pub const INCOMING_FRAME_BYTES: usize = 16 << 20;

/// Most bytes of one frame that we send; longer messages are cut, so that control frames find a gap.
pub const OUTGOING_FRAME_BYTES: usize = 1 << 20;

/// Most bytes of a `process/read` reply, whatever `maxBytes` says; beyond, the page ends early and says so. Twice what Codex's
/// server keeps of a process, and little enough that many clients may ask at once.
pub const READ_PAGE_BYTES: usize = 2 << 20;

/// Most bytes of the words of an error, in which a peer may find its own again: a method that nobody knows, a path.
pub const ERROR_TEXT_BYTES: usize = 4 << 10;

/// Most bytes `fs/readFile` gives at once; larger files are read by `fs/open` and `fs/readBlock`.
pub const READ_FILE_BYTES: u64 = 512 << 20;

/// Most bytes of one `fs/readBlock` or `fs/writeBlock`.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Most changes of one `fs/applyChanges`. Each takes a descriptor or two and an `fsync`.
pub const CHANGES: usize = 256;

/// Longest id of a file handle, in bytes.
pub const HANDLE_ID_BYTES: usize = 32;

/// Most file handles one connection may hold open.
pub const OPEN_HANDLES: usize = 128;

/// Most entries of one `fs/readDirectory`.
pub const DIRECTORY_ENTRIES: usize = 50_000;

/// Deepest `fs/walk`.
pub const WALK_DEPTH: usize = 64;

/// Most directories one `fs/walk` may enter.
pub const WALK_DIRECTORIES: usize = 10_000;

/// Most entries one `fs/walk` may examine.
pub const WALK_ENTRIES: usize = 50_000;

/// Most bytes of one `fs/walk` reply; four times Codex's, so that [`WALK_ENTRIES`] fit.
pub const WALK_REPLY_BYTES: usize = 16 << 20;

/// Most watch points of one `fs/watchMissing`.
pub const WATCH_POINTS: usize = 64;

/// Most roots of one `capabilityRoots/discoverV1`.
pub const DISCOVERY_ROOTS: usize = 128;

/// Most decoded bytes of one `http/request/bodyDelta`.
pub const BODY_DELTA_BYTES: usize = 1 << 20;

/// What a piece of a body takes of its window at least, so that the window bounds the number of pieces too.
pub const BODY_DELTA_LEAST_BYTES: usize = 4 << 10;

/// Longest id of a stream or of a listener, in bytes.
pub const STREAM_ID_BYTES: usize = 32;

/// Most bytes of a chunk of a stream. Small enough that the echo of a keystroke does not wait long behind one.
pub const STREAM_CHUNK_BYTES: usize = 256 << 10;

/// Chunks of a stream that were read and not acknowledged. With a round trip of 80 ms, that is 25 MB/s; and so much a server
/// keeps in memory of each stream whose client is away.
pub const STREAM_WINDOW_CHUNKS: u64 = 8;

/// What an entry of a log costs whoever holds it, beside its bytes. Counted against the window of a client, or a child that
/// prints byte by byte would fill its memory.
pub const ENTRY_OVERHEAD_BYTES: usize = 96;

/// Longest id in a binary frame, in bytes: what its length field can say.
pub const BINARY_ID_BYTES: usize = u16::MAX as usize;
