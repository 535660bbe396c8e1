//! Processes: every `process/*` method and notification.
//!
//! Reading order: a start ([`start`]), the log as it is read and pushed ([`log`]) and shown ([`view`],
//! [`screen`]), control ([`control`]). Members that
//! Codex's server does not have are optional on the way in and named in
//! [`Extension`](crate::Extension). What of it has a counterpart in `exec-core` is converted in `domain`.

pub mod control;
mod domain;
mod limits_reached;
pub mod log;
pub mod screen;
pub mod start;
pub mod view;

pub use control::{
    CloseStdinParams, CloseStdinResult, ForgetParams, ForgetResult, ListParams, ListResult, ProcessInfo, ProcessSignal,
    ProcessState, ResizeParams, ResizeResult, SignalParams, SignalResult, SignalStatus, TerminateParams,
    TerminateResult, UnreachableEnvironment, Until, WaitOutcome, WaitParams, WaitResult, WriteParams, WriteResult,
    WriteStatus,
};
pub use domain::{NotSendable, round_up_to_millis, stall};
pub use limits_reached::LimitsReached;
pub use log::{
    AcknowledgeParams, Chunk, ClosedParams, DenialEvidence, Exit, ExitKind, ExitedParams, LogHead, OutputParams,
    ReadParams, ReadResult, StallReason, Stream,
};
pub use screen::{ScreenCursor, ScreenParams, ScreenResult, ScreenRow, ScreenRun};
pub use start::{
    EnvInherit, EnvPolicy, LimitReport, Limits, Metadata, Overflow, RunAs, SandboxReport, SandboxType, ShellSnapshot,
    Size, StartParams, StartResult, ThreadId,
};
pub use view::{
    ViewAmount, ViewCollapsed, ViewGap, ViewGrep, ViewLeftOut, ViewLine, ViewLines, ViewParams, ViewResult,
};
