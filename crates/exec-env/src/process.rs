//! What can be done with processes, and how the verbs can fail.
//!
//! `read` reads the log once and never slows the child. `follow` is a position in the log that lives as long as its
//! handle; push is only a follower that reads at once. What happens in normal use is an outcome (stdin was closed, the
//! process had exited); an error is what the caller must act on.

mod error;
mod match_window;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use exec_core::{Command, Entry, Exit, Gap, Head, Page, ProcessId, Seq, Signal, TerminalSize, WriteId};
use regex::bytes::{Regex, RegexBuilder};

use crate::screen::{self, Screen, ScreenQuery};
use crate::view::{self, PATTERN_BYTES, REGEX_BYTES, View, ViewQuery};
use crate::{BoxFuture, NetworkDecider};
pub use error::{ProcessError, ProcessReason, ProcessVerb, SpawnFailure, Unreachable};
pub use exec_core::SpawnStep;
pub use exec_core::sandbox::{SandboxMeans, SandboxReport};
pub use exec_core::{Limit, LimitMeans, LimitReport};
pub use match_window::{MATCH_WINDOW_BYTES, MatchWindow};

/// The verbs over processes, each addressed by the id its starter chose.
pub trait Processes: Send + Sync {
    /// Starts `command` under `id`. After it returns, the process exists and its log can be read.
    fn start<'a>(&'a self, id: &'a ProcessId, command: Command) -> BoxFuture<'a, Result<Started, ProcessError>>;

    /// Reads the log once: entries after `query.after`, waiting up to `query.wait` for the first.
    fn read<'a>(&'a self, id: &'a ProcessId, query: ReadQuery) -> BoxFuture<'a, Result<Page, ProcessError>>;

    /// A position in the log, after `after`, from which to read on.
    fn follow<'a>(&'a self, id: &'a ProcessId, after: Seq)
    -> BoxFuture<'a, Result<Box<dyn LogFollower>, ProcessError>>;

    /// What `query` asks to see of the log, computed where the log is; if nobody does that there, from pages.
    fn view<'a>(&'a self, id: &'a ProcessId, query: ViewQuery) -> BoxFuture<'a, Result<View, ProcessError>> {
        Box::pin(view::view_by_reading(self, id, query))
    }

    /// The screen of a terminal, now or after any entry of its log.
    fn screen<'a>(&'a self, id: &'a ProcessId, query: ScreenQuery) -> BoxFuture<'a, Result<Screen, ProcessError>> {
        Box::pin(screen::screen_by_reading(self, id, query))
    }

    /// Writes to stdin, once per `write_id`. Returns when the kernel has all the bytes, or cannot take them.
    fn write<'a>(
        &'a self,
        id: &'a ProcessId,
        write_id: WriteId,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<Written, ProcessError>>;

    /// Closes stdin after what was written before. On a terminal this writes the end-of-file character.
    fn close_stdin<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<Written, ProcessError>>;

    /// Changes the size of the terminal; the child gets SIGWINCH.
    fn resize<'a>(&'a self, id: &'a ProcessId, size: TerminalSize) -> BoxFuture<'a, Result<(), ProcessError>>;

    /// Sends a signal to the process group.
    fn signal<'a>(&'a self, id: &'a ProcessId, signal: Signal) -> BoxFuture<'a, Result<Signalled, ProcessError>>;

    /// The same, once for each `key` of the caller's: asked again, it answers as the first time, also when the server was
    /// killed in between. A signal that failed was not sent.
    fn signal_once<'a>(
        &'a self,
        id: &'a ProcessId,
        signal: Signal,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Signalled, ProcessError>>;

    /// Ends the whole process tree: SIGKILL at once, or SIGTERM and after `grace` SIGKILL. Returns when the tree is
    /// gone. Also ends what an exited leader left behind.
    fn terminate<'a>(&'a self, id: &'a ProcessId, grace: Duration) -> BoxFuture<'a, Result<Terminated, ProcessError>>;

    /// Waits for `until`, but not longer than `deadline`.
    fn wait<'a>(
        &'a self,
        id: &'a ProcessId,
        until: WaitCondition,
        deadline: Option<Duration>,
    ) -> BoxFuture<'a, Result<Waited, ProcessError>>;

    /// All processes, closed ones included, in the order of their start.
    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, Unreachable>>;

    /// Frees the log and the id of a closed process. One that is not closed is terminated first.
    fn forget<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<(), ProcessError>>;

    /// From now on, this one decides what the proxies of processes leave open, those of an earlier owner included. Without
    /// one, the answer is no.
    fn set_network_decider(&self, decider: Arc<dyn NetworkDecider>);
}

/// A position in a log, from which a reader reads on.
pub trait LogFollower: Send {
    /// Waits until [`Self::next`] would not wait; reads nothing. Cancelling it loses nothing.
    fn ready(&mut self) -> BoxFuture<'_, ()>;

    /// Waits for an entry after this position, returns the entries after it (about `max_bytes` of output at most, but at
    /// least one entry) and moves on. After `Closed` it returns `None`. Cancelling it loses nothing.
    fn next(&mut self, max_bytes: usize) -> BoxFuture<'_, Result<Option<Page>, ProcessError>>;

    /// Says that everything up to `upto` was read, and that a full log shall wait so long for this reader. What
    /// [`Self::next`] returns counts as read by itself, until this is called for the first time; then only this counts. With a
    /// patience of zero, nothing is kept for this reader from now on, and a local log never waits for it.
    fn acknowledge(&mut self, upto: Seq, patience: Duration);
}

/// A process that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The pid on its machine; for people to read, never to send signals to.
    pub pid: u32,
    /// What confines it; `None` if nothing does.
    pub sandbox: Option<SandboxReport>,
    /// What enforces its limits; `None` if it has none.
    pub limits: Option<LimitReport>,
}

/// What to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadQuery {
    /// Entries after this one.
    pub after: Seq,
    /// Stop before this many output bytes are exceeded, but return at least one entry. `None`: as much as fits a page.
    pub max_bytes: Option<usize>,
    /// How long to wait if there is nothing yet.
    pub wait: Duration,
}

/// What became of bytes for stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// They are in the child's stdin, now or since an earlier call with the same id.
    Accepted,
    /// Nobody can read them any more, or stdin was never open.
    StdinClosed,
    /// The server died while it wrote them: some, all or none arrived. They are never written again.
    InDoubt,
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signalled {
    /// The kernel took it.
    Sent,
    /// No process is left in the group.
    AlreadyExited,
}

/// What `terminate` found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminated {
    /// Whether the leader was running.
    pub was_running: bool,
    /// Processes of the tree that were ended.
    pub ended: u32,
    /// Processes that are still there: stuck in the kernel, or not ours to kill.
    pub left: u32,
}

/// How long [`has_tree_ended`] waits for the answer. An environment has it at once, and may be far away or busy.
const TREE_ANSWER_TIME: Duration = Duration::from_secs(1);

/// Whether nothing is left of the tree of a process. To forget a process ends its tree, so whoever forgets one only to make room
/// asks this first: what it has left behind may be a server that somebody uses. `false` also if nobody can tell.
pub async fn has_tree_ended(processes: &dyn Processes, id: &ProcessId) -> bool {
    let waited = processes.wait(id, WaitCondition::TreeEnded, Some(TREE_ANSWER_TIME)).await;
    matches!(waited, Ok(Waited::TreeEnded(_)))
}

/// What to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitCondition {
    /// The leader has exited.
    Exited,
    /// The log is complete.
    Closed,
    /// Nothing is left of the process tree: neither the leader nor anything that it has started, whether that holds its
    /// output or not.
    TreeEnded,
    /// A regular expression matches output that is completed after `after`. A match may span entries of one stream.
    Output {
        /// Over bytes, in the syntax of the `regex` crate; within the bounds of [`wait_expression`].
        regex: String,
        /// A match that ends in this entry, or in one before it, does not count; one that began there may.
        after: Seq,
    },
    /// There was no output for this long.
    Silence(Duration),
    /// The process tree listens on this TCP port; on any if `None`.
    Port(Option<u16>),
}

/// Compiles the expression of [`WaitCondition::Output`], or says why not. That takes up to some hundred milliseconds, so it
/// belongs on a thread that serves nobody else. An expression has at most [`PATTERN_BYTES`], and takes at most
/// `memory_bytes`, which is at most [`REGEX_BYTES`].
pub fn wait_expression(regex: &str, memory_bytes: usize) -> Result<Regex, String> {
    if regex.len() > PATTERN_BYTES {
        return Err(format!("it has {} bytes, and may have {PATTERN_BYTES}", regex.len()));
    }
    let memory_bytes = memory_bytes.min(REGEX_BYTES);
    let compiled = RegexBuilder::new(regex).size_limit(memory_bytes).dfa_size_limit(REGEX_BYTES / 4).build();
    compiled.map_err(|error| error.to_string())
}

/// How waiting ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The leader has exited.
    Exited(Exit),
    /// The log is complete.
    Closed(Exit),
    /// Nothing is left of the process tree.
    TreeEnded(Exit),
    /// The expression matched.
    Matched {
        /// The entry that completed the match.
        seq: Seq,
        /// What matched, cut to 4 KiB.
        text: Bytes,
    },
    /// There was no output for that long.
    Silent,
    /// The process tree listens on a port that was waited for.
    Listening {
        /// The lowest, if there are several.
        port: u16,
    },
    /// The deadline came first.
    DeadlinePassed,
}

/// One process as `list` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The id its starter chose.
    pub id: ProcessId,
    /// The pid on its machine.
    pub pid: u32,
    /// The program and its arguments, as requested.
    pub argv: Vec<std::ffi::OsString>,
    /// Whether `argv` has only the first words: a remote machine does not list very many or long ones.
    pub argv_cut: bool,
    /// The working directory it was started in.
    pub cwd: std::path::PathBuf,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Whether stdin can be written.
    pub stdin_open: bool,
    /// When it started, by that machine's clock.
    pub started: SystemTime,
    /// The state of its log.
    pub head: Head,
    /// What confines it; `None` if nothing does.
    pub sandbox: Option<SandboxReport>,
    /// What enforces its limits; `None` if it has none.
    pub limits: Option<LimitReport>,
    /// What the command carried as its label.
    pub label: Vec<u8>,
}

/// What programs say when a sandbox has stopped them, in lower case. The kernel tells only the process itself what it
/// refused, so for most failures there are only the words that it has printed.
pub const DENIAL_WORDS: [&str; 7] = [
    "operation not permitted",
    "permission denied",
    "read-only file system",
    "seccomp",
    "sandbox",
    "landlock",
    "failed to write file",
];

/// The signal that ends a process for a system call that it may not make.
pub const DENIAL_SIGNAL: i32 = 31;

/// The contents of a page one by one, for callers that want events rather than pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEvent {
    /// The next entry.
    Entry(Entry),
    /// Entries that were dropped before they could be read.
    Gap(Gap),
}

impl LogEvent {
    /// The events of a page, in order.
    pub fn of(page: Page) -> impl Iterator<Item = LogEvent> {
        page.gap.into_iter().map(LogEvent::Gap).chain(page.entries.into_iter().map(LogEvent::Entry))
    }
}
