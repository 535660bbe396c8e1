//! Every bound of connections and sessions: a name, a unit, a reason.

use std::time::Duration;

/// Questions about the network that a client may have open. About one more it is not asked, and the process is refused; as
/// in Codex's server.
pub const NETWORK_QUESTIONS: usize = 256;

/// Decisions about the network that may wait to be written to a connection. One more is not told.
pub const NETWORK_DECISIONS: usize = 1024;

/// Longest id of a process, in bytes, as its client names it; the session that is put before it takes the rest of
/// [`exec_core::limits::PROCESS_ID_BYTES`].
pub const CLIENT_PROCESS_ID_BYTES: usize = 4 << 10;

/// Longest id of a process whose client is asked about its network, in bytes; as in Codex's server.
pub const ASKING_PROCESS_ID_BYTES: usize = 256;

// Environments.

/// Ids of environments that an error names, when it says which there are.
pub const NAMED_ENVIRONMENTS: usize = 32;

/// How long `initialize` waits for an environment that was never reached, to tell what the machine is. One that does not
/// answer then is left out.
pub const INTRODUCTION_WAIT: Duration = Duration::from_secs(2);

/// How long a server that starts waits for far environments to tell which processes of an earlier server they have. Those
/// that are late are asked on, and what they have is found when they answer.
pub const RECOVERY_WAIT: Duration = Duration::from_secs(3);

/// How long after it did not answer such an environment is asked again.
pub const RECOVERY_PAUSE: Duration = Duration::from_millis(500);

/// How long after a place did not answer it is asked again for the exit of a process, for the audit or a ceiling.
pub const EXIT_RETRY_PAUSE: Duration = Duration::from_secs(5);

// Sessions.

/// How long a session lives without a connection, unless its client asks for another time. The 30 s of Codex's server are
/// shorter than a laptop's nap.
pub const DETACHED_TTL: Duration = Duration::from_secs(600);

/// The longest such time that a client may ask for.
pub const DETACHED_TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Sessions of a server.
pub const SESSIONS: usize = 4096;

/// Of these, only peers on this machine may open the last ones, so that an operator always gets in.
pub const OPERATOR_SESSIONS: usize = 64;

/// Sessions that one peer may have: a user of this machine, the subject of a token, or an address without one.
pub const SESSIONS_PER_PEER: usize = 1024;

/// Longest name of a client, in bytes. It is kept as long as the session is, and shown to operators.
pub const CLIENT_NAME_BYTES: usize = 1024;

/// Observers of one session, besides those that have handed the drive over. Each costs a connection, and what it is pushed.
pub const OBSERVERS: usize = 64;

/// Processes of others that an observer does not follow yet, beyond which those that were forgotten are sorted out.
pub(crate) const NEW_PROCESSES_PRUNED: usize = 256;

/// Longest key of a signal, in bytes.
pub const SIGNAL_ID_BYTES: usize = 256;

/// Longest label that a client may give a process, in bytes. It is kept as long as the process is, and copied when
/// processes are listed.
pub const LABEL_BYTES: usize = 64 << 10;

/// What a run of coloured cells takes in a message, or a little more, in bytes.
pub const SCREEN_RUN_BYTES: usize = 128;

/// Longest key of a streamed HTTP body, or of the reports of a copy, in bytes.
pub const STREAM_ID_BYTES: usize = 256;

/// Largest window of a streamed HTTP body, in bytes: of its pieces, each at least 4 KiB of it, a note is kept until they are
/// acknowledged.
pub const BODY_WINDOW_BYTES: u64 = 64 << 20;

/// Streams of one session, those that are being closed included. Each costs a socket, and at worst what is kept of both its
/// directions. An idle one has two requests waiting, so that these leave half of [`WAITING_REQUESTS`] to others.
pub const STREAMS: usize = 256;

/// Listeners of one session. Each has a request waiting.
pub const STREAM_LISTENERS: usize = 32;

/// What was accepted of a stream and not written yet, in bytes: as much as is kept in the other direction.
pub const STREAM_QUEUE_BYTES: usize =
    exec_wire::limits::STREAM_CHUNK_BYTES * exec_wire::limits::STREAM_WINDOW_CHUNKS as usize;

/// How long a stream that its client has closed may take to write what was accepted.
pub const STREAM_LINGER: Duration = Duration::from_secs(30);

/// Starts that a session remembers after their processes were forgotten, in case they are asked for again.
pub const REMEMBERED_STARTS: usize = 1024;

/// Requests of a session that the audit has told, so that one that is repeated after a break is told once: more than can be
/// under way when a connection breaks.
pub(crate) const REMEMBERED_AUDITS: usize = 1024;

/// How often expired sessions and closed processes are looked for.
pub const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(5);

/// The id of a process may be used again this long after the process was closed, as in Codex's server.
pub const ID_REUSE_DELAY: Duration = Duration::from_secs(30);

/// How long a closed process is kept, unless its client has asked for another time.
pub const CLOSED_TTL: Duration = Duration::from_secs(600);

/// The longest such time that a client may ask for. Its session lives as long at most.
pub const KEEP_MAX: Duration = DETACHED_TTL_MAX;

/// Processes of one session beyond which the oldest closed ones are forgotten. Each costs three descriptors in two
/// processes.
pub const CLOSED_PROCESSES: usize = 1024;

/// Responses to requests that change files which a session caches, in case they are repeated after a broken connection.
pub const CACHED_RESPONSES: usize = 1024;

/// Longest scope of request ids, in bytes.
pub const REQUEST_SCOPE_BYTES: usize = 64;

/// Longest scope of a shell snapshot, in bytes, as in Codex's server.
pub const SNAPSHOT_SCOPE_BYTES: usize = 256;

// Requests and responses of one connection.

/// Requests that run at once; more wait. Control requests are not counted, and neither are those that wait for a process.
pub const CONCURRENT_REQUESTS: usize = 256;

/// Messages that are accepted and whose answer was not sent yet, nonsense included. Beyond, the socket is not read; only a
/// client that does not read its answers gets here. Those that may wait for processes, and half as many others: each takes some
/// kilobytes, and four clients that read nothing must leave the server within 64 MiB.
pub const ACCEPTED_REQUESTS: usize = 1536;

/// Bytes of requests in memory. Beyond, the socket is not read until some were handled. A larger message takes all of it.
pub const LARGE_REQUEST_BYTES: usize = 16 << 20;

/// Requests that wait for a process (long polls, `process/wait`, stdin writes) and whose response was not sent yet. Beyond,
/// they are refused as busy.
pub const WAITING_REQUESTS: usize = 1024;

/// Bytes of such requests: a stuck child's stdin. A larger message takes all of it.
pub const WAITING_BYTES: usize = 16 << 20;

/// Longest params of a start, as JSON. Twice what the command itself may have, because text may be escaped; beyond, they
/// are not even decoded.
pub const START_PARAMS_BYTES: usize = 2 * exec_core::limits::ARGUMENT_BYTES;

/// How long such a request waits for its place before it is refused, if none becomes free: a client that writes faster than
/// its child reads is slowed down, and only one whose child reads nothing is refused.
pub const WAITING_PATIENCE: Duration = Duration::from_secs(1);

/// Longest id of a request, in bytes. It is kept until the response is sent, and in the response cache.
pub const REQUEST_ID_BYTES: usize = 1024;

/// Bytes of responses in memory: enough to keep a socket busy, and little enough for a dozen clients that ask for much and
/// read nothing. A larger response takes all of it.
pub const LARGE_RESPONSE_BYTES: usize = 4 << 20;

/// A message up to this size is counted as one of the accepted requests only, and its bytes are not.
pub const UNCOUNTED_BYTES: usize = 4 << 10;

/// A response up to this size goes before the output of processes; larger ones alternate with it.
pub const SMALL_MESSAGE_BYTES: usize = 64 << 10;

/// How long a connection that is to close may take to send its last messages.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

// The push of output.

/// Output that one process may send before another one has its turn.
pub const PUSH_BYTES: usize = 64 << 10;

/// The same for a connection that only observes: a smaller page, because there may be many of them, and each of their pages
/// stands before a driver's echo.
pub const OBSERVER_PUSH_BYTES: usize = 16 << 10;

/// Pages that a connection sends before other tasks of its thread run. An echo waits for no more than these.
pub const PAGES_IN_A_TURN: usize = 4;

/// A process that sent less than this goes before the floods next time.
pub const SMALL_PUSH_BYTES: usize = 4 << 10;

/// After this many small sends in a row, a flood that waits has its turn.
pub const SMALL_PUSHES_IN_A_ROW: u32 = 8;

/// What one page of a push can cost the client that holds it: its output, and 96 bytes for each of the 4,096 entries that
/// a page may have.
pub const PUSH_COST_BYTES: usize = 512 << 10;

/// The largest window of output that a client may ask for. It costs the client memory, and us 16 bytes for each 4 KiB.
pub const OUTPUT_WINDOW_BYTES: usize = 16 << 20;

/// Pages of a push that are acknowledged together, so that many small ones cost little memory.
pub const ACKNOWLEDGED_TOGETHER_BYTES: usize = 4 << 10;

/// How long a full log waits for a client that has just started the process and has not said yet whether it reads the
/// output. Longer than most round trips.
pub const FIRST_FOLLOW_WAIT: Duration = Duration::from_secs(1);

/// After a resume, the push of a process waits this long for the client's first read of it.
pub const FIRST_READ_WAIT: Duration = Duration::from_secs(5);

/// Then it waits so long for the client to handle the answer. Codex's client puts output that comes meanwhile aside, and
/// gives the process up when that is more than 1 MiB; a flood is that in a millisecond.
pub const PAUSE_AFTER_FIRST_READ: Duration = Duration::from_millis(150);

// Watches, searches and bodies of one connection.

/// Each watch costs an inotify instance, of which a user has 128 by default.
pub const WATCHES: usize = 32;

/// The environment lets fewer searches run at once; the others wait there.
pub const SEARCHES: usize = 64;

/// Bodies of HTTP responses that are streamed at once.
pub const STREAMED_BODIES: usize = 64;

/// Longest id that a client may give a watch or a search, in bytes.
pub const WATCH_OR_SEARCH_ID_BYTES: usize = 64;

/// Changes in one `fs/changed`: with the longest paths there are, each escaped, they still fit a message.
pub const CHANGES_PER_NOTIFICATION: usize = 1024;

/// Reports of a copy that wait to be sent; more are left out, because a copy must not wait for its reader.
pub const COPY_PROGRESS_REPORTS: usize = 64;

// Memory that the responses of some methods reserve, and what they may contain.

/// What an entry of a page takes beside its output, in the page and in the response.
pub const PAGE_ENTRY_BYTES: usize = 192;

/// Words of a command line that are listed with its process, and their bytes together. A list is to show what runs; the
/// words of some programs are megabytes.
pub const LISTED_ARGV: usize = 1024;

/// See [`LISTED_ARGV`].
pub const LISTED_ARGV_BYTES: usize = 64 << 10;

/// A page of the list of processes. One process fits, whatever it has; the values of all do, because each word counts
/// [`LISTED_WORD_BYTES`], and each process [`LISTED_PROCESS_BYTES`], beside its text.
pub const PROCESS_PAGE_BYTES: usize = 4 << 20;

/// See [`PROCESS_PAGE_BYTES`]. A word that is no text is two values.
pub const LISTED_WORD_BYTES: usize = 64;

/// See [`PROCESS_PAGE_BYTES`].
pub const LISTED_PROCESS_BYTES: usize = 1024;

/// A directory listing, while it is made: 50,000 names of ordinary length.
pub const LISTING_BYTES: usize = 4 << 20;

/// Entries of a page of a directory: their values fit a message, and a round trip does not matter beside them.
pub const DIRECTORY_PAGE_ENTRIES: usize = 16_384;

/// The result of a walk or a glob.
pub const WALK_BYTES: usize = 16 << 20;

/// What an entry of a walk counts beside its URI.
pub const WALK_ENTRY_BYTES: usize = 64;

/// A body that is not streamed: as base64 it must fit a message.
pub const WHOLE_BODY_BYTES: usize = 47 << 20;

/// Contents in the result of one discovery: as JSON text, some of it escaped, they must fit a message.
pub const DISCOVERY_BYTES: usize = 32 << 20;

/// Contents of one capability root, as in Codex's server.
pub const CAPABILITY_ROOT_BYTES: usize = 16 << 20;

/// One file of a capability root, as in Codex's server.
pub const CAPABILITY_FILE_BYTES: usize = 1 << 20;

/// A file that remembers a session: a few numbers and the client's name. A larger one is not ours.
pub(crate) const SESSION_FILE_BYTES: u64 = 1 << 20;

/// How often a connection looks whether its token has expired.
pub(crate) const TOKEN_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(30);

/// A file of Codex's configuration; people write them.
pub(crate) const CONFIG_FILE_BYTES: u64 = 1 << 20;

/// All files of Codex's configuration that one request reads: as JSON text, each character escaped, they fit a message.
pub(crate) const CONFIG_BYTES: u64 = 8 << 20;

/// Files and warnings in the result of one discovery. A file is at most five JSON values.
pub(crate) const DISCOVERY_ITEMS: usize = 32_768;

/// What the paths of these files and the warnings take together.
pub(crate) const DISCOVERY_PATH_BYTES: usize = 8 << 20;

/// JSON values of one `fs/searchMatches`, or a line more: a line with all the matches that it may have is some 50,000.
pub(crate) const FOUND_VALUES: usize = 65_536;
