//! Every bound of the shell tools: a name, a unit, a reason.

use std::time::Duration;

/// How long a call waits for its command unless the caller says otherwise, as in Codex.
pub const YIELD_DEFAULT: Duration = Duration::from_secs(10);

/// The least such time: a model cannot use an answer that comes sooner.
pub const YIELD_LEAST: Duration = Duration::from_millis(250);

/// The most: transports of agents give up after 60 s, and some sooner.
pub const YIELD_MOST: Duration = Duration::from_secs(30);

/// How long a look at a session without input waits unless the caller says otherwise.
pub const POLL_DEFAULT: Duration = Duration::from_secs(5);

/// The most for such a look, and for `wait`: as in Codex, for clients without a time limit of their own.
pub const POLL_MOST: Duration = Duration::from_secs(300);

/// After input, how long a call waits for what it causes unless the caller says otherwise.
pub const INPUT_YIELD_DEFAULT: Duration = Duration::from_millis(250);

/// A command that ends so soon after its start is told as ended even if its caller wanted to wait less.
pub const EARLY_EXIT_GRACE: Duration = Duration::from_millis(150);

/// After the exit, how long the streams may take to close. A background child may hold them for ever.
pub const CLOSE_GRACE: Duration = Duration::from_millis(50);

/// Between TERM and KILL, unless the caller says otherwise.
pub const KILL_GRACE: Duration = Duration::from_secs(2);

/// The longest such time: the caller waits for it.
pub const KILL_GRACE_MOST: Duration = Duration::from_secs(25);

/// Output that a model gets in one answer unless it says otherwise, in tokens, as in Codex.
pub const OUTPUT_TOKENS_DEFAULT: usize = 10_000;

/// The most it may ask for: 1 MiB of text, which the answer holds in memory some three times.
pub const OUTPUT_TOKENS_MOST: usize = 256 << 10;

/// About so many bytes are a token.
pub const TOKEN_BYTES: usize = 4;

/// Sessions of an environment beyond which finished ones are forgotten and, if all run, new ones are refused. As in Codex:
/// a model that has lost sight of so many will not find them again.
pub const SESSIONS: usize = 64;

/// How long the output and the exit code of a finished session are kept, if the server allows it.
pub const KEEP: Duration = Duration::from_secs(24 * 3600);

/// Bytes that are read from a log at once.
pub const PAGE_BYTES: usize = 1 << 20;

/// Longest command line that `list` shows, in characters: enough to recognise it.
pub const LISTED_COMMAND_CHARS: usize = 200;
