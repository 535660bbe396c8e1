//! Where ours differs from Codex on purpose, as WIRE A.1 declares row by row (and A.2).

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeclaredDifference {
    /// "resuming an attached session is refused (-32010)"
    TakeOver,
    /// "a PTY child killed by a signal exits 1"
    SignalOfPtyChild,
    /// "`arg0` of a PTY child replaces the program"
    Arg0OfPtyChild,
    /// "… | the same as for pipes": a PTY child's program is looked for, and refused, as a pipe child's is.
    PtyChildLikePipeChild,
    /// "a missing cwd of a PTY child falls back to home"
    CwdOfPtyChild,
    /// "`accepted` means queued; a write after exit is `accepted`"
    WriteAfterExit,
    /// "an unknown notification closes the connection"
    UnknownNotice,
    /// "`jsonrpc` is never written"
    Jsonrpc,
    /// "copying a file onto itself empties it"
    CopyOntoItself,
    /// "names that are not UTF-8 come back lossy"
    ByteExactNames,
    /// "`sandboxType` is `linuxSeccomp` whenever a `sandbox` was given, also where nothing is enforced"
    SandboxType,
    /// Not in A.1: a folder's permissions are copied as a file's are, or a private folder would become a public one.
    FolderMode,
    /// A.2: `process/signal` with any of …; methods and members we add.
    Added,
}
