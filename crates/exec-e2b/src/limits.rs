//! Every bound of the E2B front: a name, a unit, a reason.

use std::time::Duration;

/// How long a client may take to send the headers of a request, and how long a connection may be idle between two.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the next piece of a request's body may be in coming. A client that is stopped for longer has to begin again. Input
/// that is streamed to a process is typed by people, and has no such bound.
pub(crate) const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the end of a stream of messages of which no more are wanted may take to come after them. It is often sent by itself; a
/// whole response before it would end the connection, which the client may use for its next request. A client that goes on is
/// answered after this.
pub(crate) const STREAM_END_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections of one listener at a time; one more waits until another has ended. Each costs a descriptor, and every command that
/// is followed has one.
pub(crate) const CONNECTIONS: usize = 1024;

/// How long we rest after a connection could not be accepted: the next attempt needs a descriptor that somebody frees.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Most bytes of a request that is held whole: a message of Connect, or a body of the control API. Input for a process is base64
/// in it; whoever has more streams it.
pub(crate) const MESSAGE_BYTES: usize = 8 << 20;

/// Bytes of such requests that may be held for all clients together. A request that finds no space is refused.
pub(crate) const MESSAGES_BYTES: usize = 64 << 20;

/// Most bytes of the headers of one part of a multipart body.
pub(crate) const PART_HEADER_BYTES: usize = 16 << 10;

/// Longest boundary of a multipart body, in bytes, as RFC 2046 has it.
pub(crate) const BOUNDARY_BYTES: usize = 70;

/// Most files of one multipart body: each is told in the response.
pub(crate) const PARTS: usize = 10_000;

/// Bytes of a file that are moved at once, either way.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;

/// Bytes of a gzipped body that are decoded at once: at most 1,032 times as many come out of them.
pub(crate) const GZIP_PIECE_BYTES: usize = 4 << 10;

/// Output of a process that is put into one piece of a response, in bytes before base64.
pub(crate) const PAGE_BYTES: usize = 256 << 10;

/// Sandboxes at one time. Each is a connection to a server and a session there.
pub(crate) const SANDBOXES: usize = 256;

/// How long a sandbox lives, if its maker does not say: what the SDKs document.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The longest life that may be asked for at once, as E2B grants it. It can be asked for again.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Bytes of metadata and variables of one sandbox. They are in its state file, and variables in each of its processes.
pub(crate) const SANDBOX_TEXT_BYTES: usize = 256 << 10;

/// Bytes of the label of a process; a server keeps 64 KiB of it. Variables that do not fit are not listed.
pub(crate) const LABEL_BYTES: usize = 16 << 10;

/// Pids of processes that a sandbox remembers. What it has forgotten is found in the environment's list.
pub(crate) const REMEMBERED_PIDS: usize = 4096;

/// Longest tag of a process, in bytes. It is in its label.
pub(crate) const TAG_BYTES: usize = 1 << 10;

/// Sandboxes on one page of a list, if the client does not say, and at most.
pub(crate) const LIST_PAGE: usize = 100;

/// Entries that a listing of directories has at most; beyond it the caller has to ask for a part.
pub(crate) const LISTED_ENTRIES: usize = 20_000;

/// Levels that a listing descends at most.
pub(crate) const LISTED_DEPTH: usize = 64;

/// Watchers that one sandbox may have for polling. Each costs watches of the kernel.
pub(crate) const WATCHERS: usize = 64;

/// A poll of a watcher waits this long for changes, so that one that was made just before is told: changes come in batches, of
/// at most 100 ms.
pub(crate) const WATCH_POLL_WAIT: Duration = Duration::from_millis(150);

/// Most events that one poll returns. The rest are told by the next.
pub(crate) const POLLED_EVENTS: usize = 10_000;

/// Files that are looked at at the same time, to tell what happened to each: as many as an environment serves one caller at once.
pub(crate) const LOOKS_AT_ONCE: usize = 16;

/// How long a stream is silent before it says that it lives, if the client does not ask for another time.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(90);

/// The shortest time that it may ask for.
pub(crate) const SHORTEST_KEEPALIVE: Duration = Duration::from_secs(1);

/// Longest deadline that a call can have: what fits the 10 digits of its header.
pub(crate) const LONGEST_DEADLINE: Duration = Duration::from_millis(9_999_999_999);

/// How long the end of a sandbox may take before the next is ended.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Users and groups are read anew after this long: programs may add some.
pub(crate) const ACCOUNTS_AGE: Duration = Duration::from_secs(10);

/// Output of the command that measures the machine, in bytes; it prints a few hundred.
pub(crate) const MEASURED_BYTES: usize = 64 << 10;

/// How long that command may take.
pub(crate) const MEASURE_TIMEOUT: Duration = Duration::from_secs(10);
