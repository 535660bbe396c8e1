//! Which calls may be sent twice. After a break nobody knows whether a call that was sent has been carried out; this table
//! says what is done about it. Pure.

use exec_wire::Method;

/// What happens to a call whose connection broke before its answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryPolicy {
    /// It is sent again: it changes nothing, doing it twice is doing it once, or the server knows its key.
    Always,
    /// It is sent again if the same server answers, which then recognizes it by its id; otherwise as [`Self::IfUnsent`].
    IfServerRemembers,
    /// It is sent again only if it had not been sent; otherwise it fails, and the error says that it may have happened.
    IfUnsent,
}

impl RetryPolicy {
    /// The policy of a method, whatever its params. Where they matter (a write that appends), the caller decides.
    pub fn of(method: Method) -> Self {
        match method {
            Method::EnvironmentInfo
            | Method::EnvironmentStatus
            | Method::EnvironmentConfigRead
            // Its key is the process id: the second of two is told that the process exists.
            | Method::ProcessStart
            // Its key is the write id.
            | Method::ProcessWrite
            | Method::ProcessRead
            | Method::ProcessTerminate
            | Method::ProcessResize
            | Method::ProcessCloseStdin
            | Method::ProcessList
            | Method::ProcessWait
            | Method::ProcessForget
            | Method::CapabilityRootsDiscover
            | Method::CapabilitiesDiscoverV2
            | Method::FsReadFile
            | Method::FsGetMetadata
            | Method::FsCanonicalize
            | Method::FsReadDirectory
            | Method::FsWalk
            | Method::FsReadLink
            | Method::FsSetPermissions
            | Method::FsSetTimes
            | Method::FsGlob
            | Method::SessionList
            | Method::SessionClose => Self::Always,
            // Sent twice, they could fail the second time, or undo what somebody else has done since.
            Method::FsWriteFile
            | Method::FsCreateDirectory
            | Method::FsRemove
            | Method::FsCopy
            | Method::FsRename
            | Method::FsCreateSymlink => Self::IfServerRemembers,
            // Two signals are not one; handles, watches, searches and bodies belong to the connection that broke.
            _ => Self::IfUnsent,
        }
    }
}
