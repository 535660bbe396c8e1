//! What can be done with processes, and how each verb can fail.
//!
//! `read` looks once and never slows the child. `follow` is a place in the log that lives as long as its handle; push
//! is only a follower that reads at once. What is normal is an outcome; an error is what the caller must act on.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use exec_core::command::BadCommand;
use exec_core::{Command, Entry, Exit, Gap, Head, Page, ProcessId, Seq, Signal, Size, WriteId};

use crate::BoxFuture;

/// The verbs.
pub trait Processes: Send + Sync {
    /// Starts `command` under the name `id`. After it returns, the process exists and its log can be read.
    fn start<'a>(&'a self, id: &'a ProcessId, command: Command) -> BoxFuture<'a, Result<Started, StartError>>;

    /// Looks at the log once: entries after `query.after`, waiting up to `query.wait` for the first.
    fn read<'a>(&'a self, id: &'a ProcessId, query: ReadQuery) -> BoxFuture<'a, Result<Page, ReadError>>;

    /// A place in the log, after `after`.
    fn follow<'a>(&'a self, id: &'a ProcessId, after: Seq) -> BoxFuture<'a, Result<Box<dyn Follow>, ReadError>>;

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
    fn resize<'a>(&'a self, id: &'a ProcessId, size: Size) -> BoxFuture<'a, Result<(), ResizeError>>;

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
        until: Until,
        deadline: Option<Duration>,
    ) -> BoxFuture<'a, Result<Waited, WaitError>>;

    /// Everything there is, closed ones included, in the order of their start.
    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, ListError>>;

    /// Lets go of a closed process: its log and its name. One that is not closed is terminated first.
    fn forget<'a>(&'a self, id: &'a ProcessId) -> BoxFuture<'a, Result<(), ForgetError>>;
}

/// A place in a log.
pub trait Follow: Send {
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
pub enum Until {
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

/// Why a process was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// No kernel could run it.
    #[error(transparent)]
    BadCommand(#[from] BadCommand),
    /// The name is taken.
    #[error("process {id} already exists: choose another id, or forget the old one first")]
    IdInUse {
        /// The name.
        id: ProcessId,
    },
    /// The kernel said no.
    #[error("cannot start process {id}: {failure}")]
    Spawn {
        /// The name.
        id: ProcessId,
        /// What exactly.
        failure: SpawnFailure,
    },
    /// It was terminated while it was being started.
    #[error("process {id} start was cancelled")]
    Cancelled {
        /// The name.
        id: ProcessId,
    },
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Which step of a start failed, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnFailure {
    /// The step.
    pub step: Step,
    /// The kernel's number for the reason.
    pub errno: i32,
    /// What the step was about: the program or the folder.
    pub subject: std::path::PathBuf,
}

/// The steps of a start, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Making the log.
    Spool,
    /// Making pipes.
    Pipe,
    /// Making a terminal.
    Pty,
    /// Making the process itself.
    Clone,
    /// Making it a session of its own.
    Session,
    /// Entering the folder.
    Cwd,
    /// Running the program.
    Exec,
}

impl std::fmt::Display for SpawnFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let subject = &self.subject;
        let error = std::io::Error::from_raw_os_error(self.errno);
        match (self.step, self.errno) {
            (Step::Cwd, 2) => write!(f, "working directory {subject:?} does not exist"),
            (Step::Cwd, 20) => write!(f, "working directory {subject:?} is not a directory"),
            (Step::Cwd, _) => write!(f, "cannot enter working directory {subject:?}: {error}"),
            (Step::Exec, 2) => {
                write!(f, "program {subject:?} was not found: give its full path, or a PATH that has it")
            }
            (Step::Exec, 13) => {
                write!(f, "program {subject:?} is not executable: check its mode, and that it is a file")
            }
            (Step::Exec, 8) => write!(f, "program {subject:?} is not in an executable format: does it lack a #! line?"),
            (Step::Exec, 7) => write!(f, "arguments and environment of {subject:?} are too long for the kernel"),
            (Step::Exec, _) => write!(f, "cannot execute {subject:?}: {error}"),
            (Step::Spool, 28) => write!(f, "no space left in spool folder {subject:?}: free some, or set another"),
            (Step::Spool, 30) => write!(f, "spool folder {subject:?} is read-only: set another"),
            (Step::Spool, _) => write!(f, "cannot make its log in {subject:?}: {error}"),
            (Step::Pipe, _) => write!(f, "cannot make pipes: {error}: raise the limit of open files"),
            (Step::Pty, _) => write!(f, "cannot make a terminal: {error}"),
            (Step::Clone, _) => write!(f, "cannot make a process: {error}: too many processes, or too little memory"),
            (Step::Session, _) => write!(f, "cannot make a session: {error}"),
        }
    }
}

/// Nobody answers for the environment any more: its connection was given up, or its keeper is gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the environment cannot be reached: {why}")]
pub struct Unreachable {
    /// What happened, for a person.
    pub why: String,
}

/// No process of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown process id {id}")]
pub struct UnknownProcess {
    /// The name.
    pub id: ProcessId,
}

/// Why a log was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The spool could not be read.
    #[error("cannot read the output of process {id}: {error}", error = std::io::Error::from_raw_os_error(*errno))]
    Spool {
        /// The process.
        id: ProcessId,
        /// The kernel's reason.
        errno: i32,
    },
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// More than one write may carry.
    #[error("a write of {found_bytes} bytes is too large: write at most {limit_bytes} at a time")]
    TooLarge {
        /// What came.
        found_bytes: usize,
        /// What is allowed.
        limit_bytes: usize,
    },
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why a terminal was not resized.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// It has pipes.
    #[error("process {id} has no terminal: start it with a tty to resize it")]
    NoTerminal {
        /// The process.
        id: ProcessId,
    },
    /// No cells.
    #[error("terminal size {rows}x{cols} has no cells: rows and cols must be at least 1", rows = size.rows, cols = size.cols)]
    NoCells {
        /// What was asked.
        size: Size,
    },
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why a signal was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignalError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The kernel refused, as for a program that changed its user.
    #[error("cannot signal process {id}: {error}", error = std::io::Error::from_raw_os_error(*errno))]
    Refused {
        /// The process.
        id: ProcessId,
        /// The kernel's reason.
        errno: i32,
    },
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why a process was not terminated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TerminateError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why waiting was not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The expression does not parse.
    #[error("bad regular expression: {why}")]
    BadRegex {
        /// The parser's words.
        why: String,
    },
    /// The process ended, so what was waited for cannot come any more.
    #[error("process {id} has ended (exit code {code}) before what was waited for came", code = exit.shell_code())]
    Ended {
        /// The process.
        id: ProcessId,
        /// How it ended.
        exit: Exit,
    },
    /// The log could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why there is no list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Why a process was not forgotten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// No such process.
    #[error(transparent)]
    Unknown(#[from] UnknownProcess),
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

impl From<ReadError> for WaitError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unknown(unknown) => Self::Unknown(unknown),
            ReadError::Unreachable(unreachable) => Self::Unreachable(unreachable),
            spool @ ReadError::Spool { .. } => Self::Read(spool),
        }
    }
}

/// What `follow` and `read` tell, one thing at a time; for callers that want events rather than pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The next entry.
    Entry(Entry),
    /// Entries that are gone.
    Gap(Gap),
}

impl Event {
    /// The events of a page, in order.
    pub fn of(page: Page) -> impl Iterator<Item = Event> {
        page.gap.into_iter().map(Event::Gap).chain(page.entries.into_iter().map(Event::Entry))
    }
}
