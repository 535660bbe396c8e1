//! The rows of WIRE A.1 (and what else it declares) that permit a difference: ours is better on purpose.

/// Why ours may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Row {
    /// "requests of a connection run one after another"
    RequestsRunTogether,
    /// "resuming an attached session is refused (-32010)"
    TakeOver,
    /// "terminate … after the leader's exit it does nothing": it also ends descendants of an exited leader.
    WholeTree,
    /// "a PTY child killed by a signal exits 1"
    SignalOfPtyChild,
    /// "`arg0` of a PTY child replaces the program"
    Arg0OfPtyChild,
    /// "a missing cwd of a PTY child falls back to home"
    CwdOfPtyChild,
    /// "`accepted` means queued; a write after exit is `accepted`"
    WriteAfterExit,
    /// "an unknown notification closes the connection"
    UnknownNotice,
    /// "`jsonrpc` is never written"
    Jsonrpc,
    /// A.2: `process/signal` with any of …; methods and members we add.
    Added,
    /// 2.13, 2.5.4 and 4: what we do not have is refused, not ignored.
    NotHere,
}
