//! Every bound of the MCP front: a name, a unit, a reason.

use std::time::Duration;

/// How often a client is asked to look after a task: a build takes minutes, and a look costs a line of the log.
pub(crate) const TASK_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Output that a finished task or a resource shows, in tokens: what one tool call shows by default, four times.
pub(crate) const RESULT_TOKENS: usize = 40_000;

/// Output in the status of a task that runs, in tokens: the last lines.
pub(crate) const STATUS_TOKENS: usize = 100;

/// How long the environment of a new task may take to say when it began. It has just answered, so this passes only where the
/// connection broke since.
pub(crate) const TASK_START_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a client that wants to know is told that a call goes on.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Longest question to a person, in bytes: nobody reads more before deciding.
pub(crate) const QUESTION_BYTES: usize = 16 << 10;

/// Questions that wait for their answer, of all clients; the oldest is given up for one more. Each has the arguments of a call.
pub(crate) const OPEN_QUESTIONS: usize = 64;

/// How long an HTTP client may take to send the headers of a request.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP connections at a time; one more waits until another has ended. Each costs a descriptor.
pub(crate) const HTTP_CONNECTIONS: usize = 256;

/// How long we rest after a connection could not be accepted: the next attempt needs a descriptor that somebody frees.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Largest body of an HTTP request: a write to stdin, or a file, that a model has composed.
pub(crate) const HTTP_BODY_BYTES: usize = 16 << 20;

/// Longest message on stdin: a file as large as write_file takes, with some room for how JSON writes it.
pub(crate) const STDIO_MESSAGE_BYTES: usize = 32 << 20;

/// HTTP sessions of clients with a handshake. One more ends the one that was used least recently; each takes some 100 KiB.
pub(crate) const HTTP_SESSIONS: usize = 256;

/// How long such a session lives without a message: as long as what a command has printed is kept. A call may wait for five
/// minutes, and a person for a night.
pub(crate) const HTTP_SESSION_IDLE: Duration = exec_tools::shell::limits::KEEP;

/// What search_output shows at most, in bytes, 96 of each line included: some 15,000 tokens.
pub(crate) const VIEW_BYTES: usize = 64 << 10;

/// Characters of a result that Claude Code is asked to show its model as they are: the most that it takes. Every tool bounds
/// its results itself, by what the model has asked for.
pub(crate) const CLAUDE_RESULT_CHARS: usize = 500_000;
