//! Every bound of this crate: a name, a unit, a reason.

use std::time::Duration;

/// Calls that may wait for their answers at one time; one more waits for a permit. Codex's client allows as many.
pub const CALLS: usize = 1024;

/// How long an ordinary call may stay unanswered on a live connection.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// How long `initialize` may stay unanswered; as in Codex's client.
pub const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(10);

/// A call that waits for the process rather than for the link (a wait without an end, a write to a child that does not
/// read) is made anew after so long. The transport notices a dead connection much earlier.
pub const LONG_CALL: Duration = Duration::from_secs(3600);

/// How long the last attempt of a series is waited for, or as long as the series if that is shorter: a server that is slow to
/// answer may be back.
pub const LAST_ATTEMPT_TIME: Duration = Duration::from_secs(5);

/// How long we try to resume a session over a network. Codex's server keeps it for 30 s.
pub const GIVE_UP_NETWORK: Duration = Duration::from_secs(25);

/// The same for a program over stdio. Its server ended with its connection, so only a durable session can be resumed.
pub const GIVE_UP_PROGRAM: Duration = Duration::from_secs(5);

/// The longest that anybody may ask for; for ever, as far as a clock can count it.
pub const LONGEST_RECONNECT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The same for a server that a program such as ssh leads to. It outlives its connections, so nothing is lost by waiting: a
/// network that is away for an evening comes back. Time that a machine sleeps is not counted.
pub const GIVE_UP_BOOTSTRAP: Duration = Duration::from_secs(12 * 3600);

/// How long each step of the way in may take: logging in, hashing the binary there, starting the server. A server gets
/// 20 seconds of it.
pub const BOOTSTRAP_STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the rest of the binary may be on its way after we have written the last of it: ssh and the kernels hold some
/// megabytes, which are minutes on a slow line.
pub const UPLOAD_DRAIN_TIMEOUT: Duration = Duration::from_secs(300);

/// Attempts in a row that may fail before the next ones wait longer: somebody who guards that machine counts logins that fail.
pub const BOOTSTRAP_QUICK_FAILURES: u32 = 8;

/// How long they wait then, beside the delay between attempts.
pub const BOOTSTRAP_SLOW_RETRY: Duration = Duration::from_secs(15);

/// How long logging in may take while ssh may ask a person for a password.
pub const BOOTSTRAP_ASK_TIMEOUT: Duration = Duration::from_secs(300);

/// How long ssh tries to reach the host, in seconds.
pub const BOOTSTRAP_CONNECT_SECONDS: u32 = 15;

/// A connection of ssh's that is silent for [`SSH_ALIVE_COUNT`] times so many seconds is dead. Few, so that a laptop that
/// wakes up looks for a new one soon.
pub const SSH_ALIVE_SECONDS: u32 = 5;

/// See [`SSH_ALIVE_SECONDS`].
pub const SSH_ALIVE_COUNT: u32 = 3;

/// What a login shell may print before our command runs: a greeting has a page or two.
pub const BOOTSTRAP_JUNK_BYTES: usize = 64 << 10;

/// How much of the binary is sent at once. Small enough that progress is seen on a slow line.
pub const UPLOAD_PIECE_BYTES: usize = 64 << 10;

/// The delay after the first failed attempt; it doubles from there.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(100);

/// The longest delay between two attempts.
pub const BACKOFF_MOST: Duration = Duration::from_secs(2);

/// How often a connection that was of use is replaced at once when it breaks, within [`QUICK_REDIAL_TIME`]. A server that
/// answers something and hangs up, again and again, must not keep us and itself busy; a network that cuts every few
/// milliseconds must not make us slow.
pub const QUICK_REDIALS: usize = 100;

/// See [`QUICK_REDIALS`].
pub const QUICK_REDIAL_TIME: Duration = Duration::from_secs(2);

/// How often a call is sent again because its connection broke; one that waits for something has no such bound. A call
/// whose answer breaks every connection fails then. A call among three hundred others, over a transport that cuts every few
/// messages, was once unlucky twenty times.
pub const CALL_RESENDS: u32 = 40;

/// What a server may say about itself when it accepts us. It is kept for as long as the session lives.
pub const INTRODUCTION_BYTES: usize = 1 << 20;

/// Output of one process that was pushed and not yet read. Our server pushes no more until some of it is acknowledged;
/// with a round trip of 80 ms, that is 50 MB/s. What another server pushes beyond it is dropped, and fetched when somebody
/// reads it; nothing else waits for that.
pub const WINDOW_BYTES: usize = 4 << 20;

/// Output that a follower has read is acknowledged when it is so much, or after [`ACKNOWLEDGE_DELAY`]. Much less than the
/// smallest spool holds, so that a child never waits for what was read long ago.
pub const ACKNOWLEDGE_BYTES: usize = 256 << 10;

/// A follower that has read everything acknowledges it after so long, if nothing new comes. Long enough that most echoes
/// of keystrokes cost no message of their own.
pub const ACKNOWLEDGE_DELAY: Duration = Duration::from_millis(20);

/// Acknowledgements that may wait to be written, beside [`CALLS`]. One more is left to the next one, which includes it.
pub const ACKNOWLEDGEMENTS: usize = 64;

/// The same for all processes of a link together.
pub const WINDOWS_BYTES: usize = 32 << 20;

/// What a held entry costs beside its bytes. Without it, a child that prints byte by byte could fill our memory. Servers
/// count the same.
pub const ENTRY_OVERHEAD_BYTES: usize = exec_wire::limits::ENTRY_OVERHEAD_BYTES;

/// How much a follower that must catch up fetches at once: enough that the round trip does not matter.
pub const REFETCH_BYTES: usize = 1 << 20;

/// How long the server is asked to wait by a follower whose last fetch brought nothing, though there should have been
/// something.
pub const EMPTY_FETCH_WAIT: Duration = Duration::from_secs(1);

/// Stdin bytes of one message. Base64 of the largest write would not fit a message, so it travels in pieces.
pub const WRITE_PIECE_BYTES: usize = 4 << 20;

/// Answers to requests of the server that may wait to be written, beside [`CALLS`]. One more is dropped, which the
/// server takes for a denial.
pub const ANSWERS: usize = 64;

/// Longest id of an environment, in characters.
pub const ENVIRONMENT_ID_CHARS: usize = 64;

/// A whole file in one message, which its base64 must fit. Larger ones are streamed.
pub const WRITE_FILE_BYTES: usize = 47 << 20;

/// One block of a stream. Small enough that the echo of a keystroke does not wait long behind one.
pub const STREAM_BLOCK_BYTES: usize = 256 << 10;

/// Blocks of a stream in flight: with a round trip of 80 ms, that is 50 MB/s.
pub const STREAM_WINDOW: usize = 16;

/// How often a file is opened again for one block. A connection that breaks more often than that carries nothing.
pub const REOPENS: u32 = 64;

/// A list of processes, over all its pages. Our server lists at most 64 KiB of words and 64 KiB of a label for each.
pub const LISTED_BYTES: usize = 64 << 20;

/// What a listed process counts beside its words and its label.
pub const LISTED_PROCESS_BYTES: usize = 512;

/// Entries of a directory that are asked for at once.
pub const DIRECTORY_PAGE_ENTRIES: usize = 16_384;

/// Entries of a directory that is too large to be returned are counted up to here, to say how many there are.
pub const COUNTED_ENTRIES: usize = 1 << 20;

/// Notifications of one watch, search or body that may wait to be received. One more ends the subscription, because
/// nobody else may wait for a slow subscriber.
pub const NOTIFICATION_QUEUE: usize = 1024;

/// What these may take together, as they came. The largest message fits, so that whoever keeps up gets everything.
pub const NOTIFICATION_BYTES: usize = exec_wire::limits::MESSAGE_BYTES;

/// What the server may send of a body and we have not taken yet. So many pieces fit the queue, however small they are.
pub const BODY_WINDOW_BYTES: usize = 2 << 20;
const _: () = assert!(BODY_WINDOW_BYTES / exec_wire::limits::BODY_DELTA_LEAST_BYTES < NOTIFICATION_QUEUE);

/// Pieces of a body that were taken are acknowledged when they are so much of its window.
pub const BODY_ACKNOWLEDGE_BYTES: usize = BODY_WINDOW_BYTES / 4;

/// A stream or a listener may wait for ever for its far end. The transport notices a dead connection much earlier.
pub const STREAM_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Chunks that are asked for at once of a stream that is idle: the second is asked for before the first is there, so that
/// what follows a first byte does not wait for a round trip.
pub const STREAM_IDLE_READS: usize = 2;

/// Chunks that are asked for at once of all streams that are busy; half of [`CALLS`], so that others find their place. Each
/// stream has at least [`STREAM_IDLE_READS`].
pub const STREAM_READS: usize = CALLS / 2;

/// Writes to one stream that wait for the task that sends them; beyond, the writer waits.
pub const STREAM_QUEUE: usize = 2;

/// How long what was written to a stream may take to be accepted after the stream was dropped.
pub const STREAM_LINGER: Duration = Duration::from_secs(30);
