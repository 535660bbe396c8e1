//! One verb on one path: what every call about files needs, whatever it does.
//!
//! Here a path becomes the wire's, the sandbox and the user of a call are added, and an error gets its verb and its path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exec_core::sandbox::FileCeiling;
use exec_env::files::{ExpectedFile, FileError, FileReason, FileVerb, LinkPolicy};
use exec_wire::path_uri::RelativePath;
use exec_wire::process::RunAs;
use exec_wire::sandbox::SandboxContext;
use exec_wire::{Call, Extension, PathUri, RetryPolicy};

use super::{EINVAL, ENOSYS};
use crate::error;
use crate::limits::LONG_CALL;
use crate::link::{CallOptions, Link};

/// The link over which the server is called, and the sandbox that every call over it asks for.
#[derive(Debug, Clone)]
pub(super) struct FilesLink {
    pub(super) link: Link,
    /// An error if the policy has a relative path, which means nothing on another machine.
    pub(super) sandbox: Result<Option<Arc<SandboxContext>>, RelativePath>,
    /// Whose rights every call asks for; those of the server if `None`.
    pub(super) user: Option<Arc<str>>,
    /// The wire cannot ask for one, so that calls under it are refused here.
    pub(super) ceiling: Option<Arc<FileCeiling>>,
}

impl std::ops::Deref for FilesLink {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

impl FilesLink {
    /// A server that does not know the member would leave it out, and act with its own rights.
    pub(super) fn require_users(&self) -> Result<(), FileReason> {
        match self.link.has(Extension::SANDBOX_RUN_AS) {
            true => Ok(()),
            false => {
                let why = "this server cannot act on files as another user: update it, or name no user".to_owned();
                Err(FileReason::UserUnavailable { why })
            }
        }
    }
}

/// One verb on one path, the two things that every error names, and the link over which the server is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation<'a> {
    pub(super) link: &'a FilesLink,
    pub(super) verb: FileVerb,
    pub(super) path: &'a Path,
}

impl Operation<'_> {
    pub(super) async fn call<C: Call>(&self, params: &C) -> Result<C::Result, FileError> {
        self.call_with(params, C::METHOD.behaviour().retry).await
    }

    /// The deadline is long, because a tree may take long; the transport notices a dead connection.
    pub(super) async fn call_with<C: Call>(&self, params: &C, retry: RetryPolicy) -> Result<C::Result, FileError> {
        let outcome = self.link.call_with(params, CallOptions { deadline: LONG_CALL, retry }).await;
        outcome.result.map_err(|error| error::file_error(self.verb, self.path, error))
    }

    /// Refuses the operation if the server lacks an extension that it needs.
    pub(super) fn require(&self, extension: impl Into<Extension>) -> Result<(), FileError> {
        match self.link.has(extension) {
            true => Ok(()),
            false => Err(self.error(FileReason::Os(ENOSYS))),
        }
    }

    pub(super) fn error(&self, reason: FileReason) -> FileError {
        FileError::new(self.verb, self.path, reason)
    }

    pub(super) fn unreachable(&self, why: impl Into<String>) -> FileError {
        self.error(FileReason::Unreachable { why: why.into() })
    }

    pub(super) fn uri(&self) -> Result<PathUri, FileError> {
        self.uri_of(self.path)
    }

    pub(super) fn sandbox(&self) -> Result<Option<SandboxContext>, FileError> {
        if let Some(ceiling) = &self.link.ceiling {
            let why = "only the server of these files can enforce a ceiling: set it there".to_owned();
            return Err(self.error(FileReason::Forbidden { rule: ceiling.rule.clone(), why }));
        }
        let sandbox = self.link.sandbox.as_ref().map_err(|_| self.error(FileReason::Os(EINVAL)))?;
        let sandbox = sandbox.as_deref().cloned();
        let Some(user) = &self.link.user else { return Ok(sandbox) };
        // Looked at for every call: after a break the server may be another.
        self.link.require_users().map_err(|reason| self.error(reason))?;
        let run_as = Some(RunAs { user: user.to_string() });
        Ok(Some(SandboxContext { run_as, ..sandbox.unwrap_or_else(SandboxContext::unrestricted) }))
    }

    /// A path as the wire has it. A relative one is refused, because the server has another working directory.
    pub(super) fn uri_of(&self, path: &Path) -> Result<PathUri, FileError> {
        PathUri::from_path(path).map_err(|_| FileError::new(self.verb, path, FileReason::Os(EINVAL)))
    }

    /// A path that the server names. One of another operating system cannot be used here.
    pub(super) fn native(&self, uri: &PathUri) -> Result<PathBuf, FileError> {
        uri.to_path().map_err(|foreign| self.unreachable(foreign.to_string()))
    }
}

pub(super) fn follow_symlinks(links: LinkPolicy) -> Option<bool> {
    match links {
        LinkPolicy::Follow => None,
        LinkPolicy::Refuse => Some(false),
    }
}

pub(super) fn if_match(expect: ExpectedFile) -> Option<String> {
    match expect {
        ExpectedFile::Anything => None,
        ExpectedFile::Absent => Some("absent".to_owned()),
        ExpectedFile::Content(hash) => Some(hash.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::inbox::{Inbox, InboxLimits};
    use crate::link::LinkShared;

    #[test]
    fn a_relative_path_is_an_invalid_argument() {
        let link = Link::new(Arc::new(LinkShared::new(Duration::ZERO, Inbox::new(InboxLimits::default()))));
        let link = FilesLink { link, sandbox: Ok(None), user: None, ceiling: None };
        let operation = Operation { link: &link, verb: FileVerb::Read, path: Path::new("here") };
        assert_eq!(operation.uri().map_err(|error| error.reason), Err(FileReason::Os(22)));
    }
}
