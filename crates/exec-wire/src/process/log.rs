//! The log of a process: read by `process/read`, pushed by `process/output`, `process/exited` and `process/closed`.
//!
//! All share one counter per process: 1, 2, 3 …; exit and closed take a number each, closed the highest.
//! [`crate::output_codec`] writes `process/output` without serde; a test checks that both write the same bytes.

use super::limits_reached::LimitsReached;
use crate::base64::Base64;
use crate::shape::{Nullable, shapes};

shapes! {
    /// Asks for output that is held.
    pub struct ReadParams {
        pub process_id: String,
        /// Output after this number; from the beginning if absent.
        pub after_seq: Nullable<u64>,
        /// At most about so many bytes; but at least one chunk.
        pub max_bytes: Nullable<usize>,
        /// How long to wait if there is nothing yet.
        pub wait_ms: Nullable<u64>,
    }

    /// Output, and how the process stands.
    pub struct ReadResult {
        /// In the order of their numbers.
        pub chunks: Vec<Chunk>,
        /// Where to go on: the number of what comes after this page.
        pub next_seq: u64,
        /// Whether the leader has ended.
        pub exited: bool,
        /// With what code; 128+n for a signal.
        #[serde(default)]
        pub exit_code: Nullable<i32>,
        /// Whether no more output can come.
        pub closed: bool,
        /// Never set by a server; clients have a use for it.
        #[serde(default)]
        pub failure: Nullable<String>,
        /// Whether a sandbox seems to be the reason for the end.
        #[serde(default)]
        pub sandbox_denied: bool,
        /// Ours: the first number still held.
        pub first_seq: Option<u64>,
        /// Ours: how many bytes of output are gone, in all.
        pub dropped_bytes: Option<u64>,
        /// Ours: how it ended.
        pub exit: Option<Exit>,
        /// Ours: the whole log at that moment, whatever the page holds of it.
        pub head: Option<LogHead>,
    }

    /// A log at one moment. Always of the present, even when the page ends early.
    #[derive(Copy)]
    pub struct LogHead {
        /// The first number still held.
        pub first_seq: u64,
        /// The number that the next entry will get.
        pub next_seq: u64,
        /// Output that is held.
        pub held_bytes: u64,
        /// Output that is gone.
        pub dropped_bytes: u64,
        /// The number of `exited`, once the leader has ended.
        pub exit_seq: Option<u64>,
        /// Whether no more output can come.
        pub closed: bool,
        /// Whether the child waits with its output.
        #[serde(default)]
        pub stalled: bool,
        /// Why it waits.
        pub stalled_by: Option<StallReason>,
    }

    /// Why a child waits with its output.
    pub enum StallReason {
        /// The server's disk is full, or cannot be written for now.
        DiskFull,
        /// Its spool is full, and may drop nothing.
        SpoolFull,
        /// Its spool is full of what a reader has yet to read.
        Reader,
    }

    /// A piece of output.
    pub struct Chunk {
        pub seq: u64,
        pub stream: Stream,
        pub chunk: Base64,
    }

    #[derive(Hash)]
    pub enum Stream {
        /// Standard output.
        Stdout,
        /// Standard error.
        Stderr,
        /// A terminal, which does not tell stdout from stderr.
        Pty,
    }

    pub struct OutputParams {
        pub process_id: String,
        pub seq: u64,
        pub stream: Stream,
        pub chunk: Base64,
    }

    /// The leader has ended. Output of what it left behind may still come.
    pub struct ExitedParams {
        pub process_id: String,
        pub seq: u64,
        /// With what code; 128+n for a signal.
        pub exit_code: i32,
        /// Whether a sandbox seems to be the reason; a client that is not told asks by `process/read`.
        pub sandbox_denied: Option<bool>,
        /// Ours: how it ended.
        pub exit: Option<Exit>,
    }

    /// What the client has read of a process's log. Until then the log keeps it, and the child waits if there is no more
    /// room.
    pub struct AcknowledgeParams {
        pub process_id: String,
        /// The number of the last entry that was read; 0 for none yet. Absent if nobody reads this process any longer.
        pub seq: Option<u64>,
        /// Where several read at the client: what the fastest of them has read, if that is more. The push goes by it, and the
        /// others fetch what they need.
        pub fastest_seq: Option<u64>,
    }

    /// No more output can come.
    pub struct ClosedParams {
        pub process_id: String,
        /// The highest number of the process.
        pub seq: u64,
    }

    /// How a process ended, and what it cost.
    #[derive(Copy)]
    pub struct Exit {
        pub kind: ExitKind,
        /// The code it returned, if it returned one.
        pub code: Option<i32>,
        /// The signal that ended it, if one did.
        pub signal: Option<i32>,
        /// Whether a core was dumped.
        #[serde(default)]
        pub core_dumped: bool,
        /// CPU time in user mode.
        #[serde(default)]
        pub user_ms: u64,
        /// CPU time in the kernel.
        #[serde(default)]
        pub system_ms: u64,
        /// Largest resident set.
        #[serde(default)]
        pub max_rss_bytes: u64,
        /// What says that its sandbox stopped it; absent if nothing does, or it has none.
        pub denial: Option<DenialEvidence>,
        /// Limits that its tree has reached until then, whether or not that ended it.
        #[serde(default, skip_serializing_if = "LimitsReached::is_empty")]
        pub limits_reached: LimitsReached,
    }

    /// What says that a sandbox stopped a process.
    pub enum DenialEvidence {
        /// The kernel ended it for a system call that it may not make.
        Signal,
        /// It failed, and printed words that programs print then.
        Words,
    }

    /// Who or what ended a process.
    pub enum ExitKind {
        /// The process returned from `main` or called `exit`.
        Exited,
        /// A signal from somebody on that machine.
        Signalled,
        /// Its time limit.
        TimedOut,
        /// A request to terminate it.
        Terminated,
        /// The kernel, because memory ran out.
        OutOfMemory,
        /// Its limit of processor time.
        CpuLimit,
        /// Its limit of the size of a file.
        FileSizeLimit,
        /// It could not be started.
        SpawnFailed,
        /// It ended while neither server nor keeper ran, so nobody knows how.
        Lost,
    }
}

impl Stream {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Pty => "pty",
        }
    }
}
