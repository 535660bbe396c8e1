//! What can be done with processes, and how each verb can fail.
//!
//! `read` looks once and never slows the child. `follow` is a place in the log that lives as long as its handle; push
//! is only a follower that reads at once. What is normal is an outcome; an error is what the caller must act on.

mod error;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use exec_core::{Command, Entry, Exit, Gap, Head, Page, ProcessId, Seq, Signal, TerminalSize, WriteId};

use crate::BoxFuture;
pub use error::{
    ForgetError, ListError, ReadError, ResizeError, SignalError, SpawnFailure, StartError, TerminateError,
    UnknownProcess, Unreachable, WaitError, WriteError,
};
pub use exec_core::SpawnStep;

/// The verbs.
pub trait Processes: Send + Sync {
    /// Starts `command` under the name `id`. After it returns, the process exists and its log can be read.
    fn start<'a>(&'a self, id: &'a ProcessId, command: Command) -> BoxFuture<'a, Result<Started, StartError>>;

    /// Looks at the log once: entries after `query.after`, waiting up to `query.wait` for the first.
    fn read<'a>(&'a self, id: &'a ProcessId, query: ReadQuery) -> BoxFuture<'a, Result<Page, ReadError>>;

    /// A place in the log, after `after`.
    fn follow<'a>(&'a self, id: &'a ProcessId, after: Seq) -> BoxFuture<'a, Result<Box<dyn LogFollower>, ReadError>>;

    /// Writes to stdin, once per `write_id`. Returns when the kernel has all the bytes, or cannot take them.
    fn write<'a>(
        &'a self,
        id: &'a ProcessId,
        write_id: WriteId,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<Written, WriteError>>;

    /// Ends stdin. On a terminal this types the end-of-file character.
    fn close_stdin<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<Written, WriteError>>;

    /// Changes the size of the terminal; the child gets SIGWINCH.
    fn resize<'a>(&'a self, id: &'a ProcessId, size: TerminalSize) -> BoxFuture<'a, Result<(), ResizeError>>;

    /// Sends a signal to the process group.
    fn signal<'a>(&'a self, id: &'a ProcessId, signal: Signal) -> BoxFuture<'a, Result<Signalled, SignalError>>;

    /// Ends the whole tree: KILL at once, or TERM and after `grace` KILL. Answers when the tree is gone. Also ends
    /// what an exited leader left behind.
    fn terminate<'a>(&'a self, id: &'a ProcessId, grace: Duration)
    -> BoxFuture<'a, Result<Terminated, TerminateError>>;

    /// Waits until something is true of the process, but not longer than `deadline`.
    fn wait<'a>(
        &'a self,
        id: &'a ProcessId,
        until: WaitCondition,
        deadline: Option<Duration>,
    ) -> BoxFuture<'a, Result<Waited, WaitError>>;

    /// Everything there is, closed ones included, in the order of their start.
    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, ListError>>;

    /// Lets go of a closed process: its log and its name. One that is not closed is terminated first.
    fn forget<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<(), ForgetError>>;
}

/// A place in a log.
pub trait LogFollower: Send {
    /// Waits until [`Self::next`] would not wait; reads nothing. Cancelling it loses nothing.
    fn ready(&mut self) -> BoxFuture<'_, ()>;

    /// The entries after this place, at most about `max_bytes` of output (but at least one entry), waiting for the
    /// first; moves on. After `Closed` it answers `None`. Cancelling it loses nothing.
    fn next(&mut self, max_bytes: usize) -> BoxFuture<'_, Result<Option<Page>, ReadError>>;
}

/// A process that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// What the kernel calls it over there; for people, never for signals.
    pub pid: u32,
}

/// What to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadQuery {
    /// Entries after this place.
    pub after: Seq,
    /// Stop before this many output bytes are passed; but at least one entry. `None`: as much as fits a page.
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
    /// The server died while it wrote them: some, all or none arrived. Never written again.
    InDoubt,
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signalled {
    /// It was sent.
    Sent,
    /// There is nobody left in the group.
    AlreadyExited,
}

/// What terminate found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminated {
    /// Whether the leader was running.
    pub was_running: bool,
    /// Processes of the tree that were ended.
    pub ended: u32,
    /// Processes that are still there (stuck in the kernel, or out of our rights).
    pub left: u32,
}

/// What to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitCondition {
    /// The leader's end.
    Exited,
    /// The end of the log.
    Closed,
    /// Output after `after` that matches this regular expression; a match may span entries of one stream.
    Output {
        /// The expression, over bytes.
        regex: String,
        /// Where to begin.
        after: Seq,
    },
    /// No output for this long.
    Silence(Duration),
    /// A TCP port the tree listens on; any if `None`.
    Port(Option<u16>),
}

/// How waiting ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The leader has ended.
    Exited(Exit),
    /// The log is complete.
    Closed(Exit),
    /// The expression matched in output that ends with entry `seq`.
    Matched {
        /// The entry that completed the match.
        seq: Seq,
        /// What matched, cut to 4 KiB.
        text: Bytes,
    },
    /// It has been silent that long.
    Silent,
    /// It listens.
    Listening {
        /// On this port.
        port: u16,
    },
    /// The deadline came first.
    DeadlinePassed,
}

/// One process as `list` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its name.
    pub id: ProcessId,
    /// The pid over there.
    pub pid: u32,
    /// What was asked to run, without its environment.
    pub argv: Vec<std::ffi::OsString>,
    /// Where.
    pub cwd: std::path::PathBuf,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Whether stdin can be written.
    pub stdin_open: bool,
    /// When it started, by that machine's clock.
    pub started: SystemTime,
    /// Its log.
    pub head: Head,
    /// The owner's own words.
    pub label: Vec<u8>,
}

/// What `follow` and `read` tell, one thing at a time; for callers that want events rather than pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEvent {
    /// The next entry.
    Entry(Entry),
    /// Entries that are gone.
    Gap(Gap),
}

impl LogEvent {
    /// The events of a page, in order.
    pub fn of(page: Page) -> impl Iterator<Item = LogEvent> {
        page.gap.into_iter().map(LogEvent::Gap).chain(page.entries.into_iter().map(LogEvent::Entry))
    }
}
