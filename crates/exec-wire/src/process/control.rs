//! What can be done to a process: write, signal, terminate, and ours: resize, end of input, wait, list, forget.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::log::{Exit, StallReason};
use super::start::{LimitReport, SandboxReport, Size};
use crate::base64::Base64;
use crate::empty::empty_results;
use crate::initialize::is_false;
use crate::path_uri::PathUri;
use crate::shape::shapes;
use crate::text::OsText;

shapes! {
    /// Writes bytes to stdin.
    pub struct WriteParams {
        pub process_id: String,
        pub chunk: Base64,
        /// The client's key: the same key is written once.
        pub write_id: String,
    }

    #[derive(Copy)]
    pub struct WriteResult {
        pub status: WriteStatus,
    }

    /// What became of bytes for stdin.
    pub enum WriteStatus {
        /// The bytes are in the child's stdin, now or since an earlier call with the same key.
        Accepted,
        /// There is no such process.
        UnknownProcess,
        /// Stdin is closed; nobody can read the bytes.
        StdinClosed,
        /// The process is still being started.
        Starting,
        /// Ours: the server died while it wrote the bytes; they are not written again.
        InDoubt,
    }

    /// Sends a signal to the process group.
    #[serde(expecting = "struct SignalParams")]
    pub struct SignalParams {
        pub process_id: String,
        /// Which; Codex's server knows `interrupt` only.
        pub signal: ProcessSignal,
        /// Ours: the client's key; within a session the same key is sent once, so that it may be asked again after a break.
        pub signal_id: Option<String>,
    }

    /// The signal was sent, or there was nobody to receive it.
    #[derive(Copy, Default)]
    pub struct SignalResult {
        /// Ours: which of the two; Codex's server says nothing.
        pub status: Option<SignalStatus>,
    }

    /// What became of a signal.
    pub enum SignalStatus {
        /// It was sent.
        Sent,
        /// Nobody is left in the group.
        AlreadyExited,
        /// There is no such process.
        UnknownProcess,
    }

    /// A signal by name.
    pub enum ProcessSignal {
        /// SIGHUP
        Hangup,
        /// SIGINT
        Interrupt,
        /// SIGQUIT
        Quit,
        /// SIGKILL
        Kill,
        /// SIGUSR1
        User1,
        /// SIGUSR2
        User2,
        /// SIGTERM
        Terminate,
        /// SIGSTOP
        Stop,
        /// SIGCONT
        Continue,
        /// SIGWINCH
        WindowChange,
    }

    /// Ends a process and everything it started.
    #[serde(expecting = "struct TerminateParams")]
    pub struct TerminateParams {
        pub process_id: String,
        /// Ours: time between TERM and KILL; KILL at once if absent or 0.
        pub grace_ms: Option<u64>,
    }

    #[derive(Copy)]
    pub struct TerminateResult {
        /// Whether the leader was still running.
        pub running: bool,
        /// Ours: processes of the tree that were ended.
        pub ended: Option<u32>,
        /// Ours: processes of the tree that are still there.
        pub left: Option<u32>,
        /// Ours: false if there is no such process, which is no error here.
        pub known: Option<bool>,
    }

    /// Changes the size of the terminal.
    pub struct ResizeParams {
        pub process_id: String,
        pub size: Size,
    }

    /// Closes stdin.
    pub struct CloseStdinParams {
        pub process_id: String,
    }

    /// Never `unknownProcess`, which is an error here.
    #[derive(Copy)]
    pub struct CloseStdinResult {
        /// `accepted`, or `stdinClosed` if it was closed before.
        pub status: WriteStatus,
    }

    /// Deletes a process: its output and its id. One that still runs is terminated first.
    pub struct ForgetParams {
        pub process_id: String,
    }

    /// The processes of the session, in the order of their start.
    #[serde(rename = "ProcessListResult")]
    pub struct ListResult {
        /// Those that are closed but not forgotten included.
        pub processes: Vec<ProcessInfo>,
        /// With a `cursor` in the request: where the next page begins, if there are more.
        pub next_cursor: Option<String>,
        /// The environments that have processes of the session, or may have, and cannot be reached: theirs are not listed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub unreachable: Vec<UnreachableEnvironment>,
    }

    pub struct UnreachableEnvironment {
        pub environment_id: String,
        /// Why, and since when.
        pub error: String,
    }

    pub struct ProcessInfo {
        /// The id that the client gave.
        pub process_id: String,
        /// The environment that it runs in, if the server has several.
        pub environment_id: Option<String>,
        /// The kernel's process id.
        pub pid: u32,
        pub argv: Vec<OsText>,
        /// Whether `argv` has only the first words, because it has very many or long ones.
        #[serde(default, skip_serializing_if = "is_false")]
        pub argv_cut: bool,
        pub cwd: PathUri,
        /// Whether it has a terminal.
        pub tty: bool,
        /// Whether stdin can be written.
        pub stdin_open: bool,
        /// When it started, in milliseconds since 1970, by that machine's clock.
        pub started_at_ms: u64,
        pub state: ProcessState,
        pub exit: Option<Exit>,
        /// The number of `exited`, once the leader has ended.
        pub exit_seq: Option<u64>,
        /// The first number still held.
        pub first_seq: u64,
        /// The number of what comes next.
        pub next_seq: u64,
        /// Output that is held.
        pub held_bytes: u64,
        /// Output that is gone.
        pub dropped_bytes: u64,
        /// Whether the child waits with its output.
        #[serde(default)]
        pub stalled: bool,
        /// Why it waits.
        pub stalled_by: Option<StallReason>,
        /// What confines it; absent if nothing does.
        pub sandbox: Option<SandboxReport>,
        /// What enforces its limits; absent if it has none.
        pub limits: Option<LimitReport>,
        /// The label that the client gave at the start.
        pub label: Option<Base64>,
    }

    pub enum ProcessState {
        /// It is being started.
        Starting,
        /// Its leader runs.
        Running,
        /// Its leader has ended; more output may come.
        Exited,
        /// Its log is complete.
        Closed,
    }

    /// Waits until a condition holds.
    pub struct WaitParams {
        pub process_id: String,
        pub until: Until,
        /// How long at most; for ever if absent.
        pub timeout_ms: Option<u64>,
    }

    /// How waiting ended.
    pub struct WaitResult {
        pub outcome: WaitOutcome,
    }
}

empty_results! {
    /// The terminal has the new size.
    ResizeResult,
    /// It is forgotten.
    ForgetResult,
}

/// Asks for the processes of the session. They may be absent, as those of a method without params.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ProcessListParams")]
pub struct ListParams {
    /// For pages: empty for the first one, then `nextCursor` of the one before. Without it there is one answer, or an error
    /// if that would be too large for a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl<'de> Deserialize<'de> for ListParams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        struct Members {
            cursor: Option<String>,
        }
        let Members { cursor } = Option::deserialize(deserializer)?.unwrap_or_default();
        Ok(Self { cursor })
    }
}

/// What to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Until {
    /// The leader's end.
    Exited,
    /// The end of the log.
    Closed,
    /// The end of the leader and of everything that it has started, whether that holds its output or not.
    TreeEnded,
    /// Output that matches; a match may span chunks of one stream.
    Output {
        /// The expression, over bytes.
        regex: String,
        /// A match that ends in the chunk with this number, or in one before it, does not count; one that began there may.
        #[serde(default)]
        after_seq: u64,
    },
    /// No output for so long.
    Silence {
        /// How long.
        silent_ms: u64,
    },
    /// A TCP port that the tree listens on.
    Port {
        /// Which; any if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
    },
}

/// How waiting ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum WaitOutcome {
    /// The leader has ended, as was waited for.
    Exited { exit: Exit },
    /// The log is complete, as was waited for.
    Closed { exit: Exit },
    /// Nothing is left of the process tree, as was waited for.
    TreeEnded { exit: Exit },
    /// The expression matched.
    Matched {
        /// The chunk that completed the match.
        seq: u64,
        /// The bytes that matched, cut to 4 KiB.
        text: Base64,
    },
    /// The process printed nothing for that long.
    Silent,
    /// The process tree listens on a port.
    Listening { port: u16 },
    /// The timeout passed first.
    TimedOut,
    /// The process ended, so the condition can no longer come true.
    Ended { exit: Exit },
}
