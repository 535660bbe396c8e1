//! Files: from the wire's verbs to the environment's.
//!
//! Reading order: which files a call may reach ([`permission`]), contents ([`content`]), names and trees ([`tree`]), what
//! goes on after its response ([`watch`], [`search`]).

pub(crate) mod content;
pub(super) mod permission;
pub(crate) mod search;
pub(crate) mod tree;
pub(crate) mod watch;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use exec_env::Files;
use exec_wire::PathUri;
use exec_wire::error::RpcError;
use exec_wire::sandbox::SandboxContext;

use crate::dispatch::RequestContext;
use crate::reply;

impl RequestContext {
    /// The files under the sandbox that the call asks for, with the rights of the user that it names.
    pub(super) async fn files_under(&self, sandbox: Option<&SandboxContext>) -> Result<Arc<dyn Files>, RpcError> {
        let mut files = self.connection.files(&self.environment()?);
        if let Some(run_as) = sandbox.and_then(|sandbox| sandbox.run_as.as_ref()) {
            files = files.as_user(&run_as.user).await.map_err(|reason| reply::file_user(&reason))?;
        }
        let (files, is_sandboxed) = permission::files_under(&files, sandbox)?;
        self.is_sandboxed.store(is_sandboxed, Ordering::Relaxed);
        Ok(files)
    }
}

pub(super) fn native_path(path: &PathUri) -> Result<PathBuf, RpcError> {
    let path = path.to_path().map_err(reply::foreign_path)?;
    match path.as_os_str().as_bytes().contains(&0) {
        true => Err(reply::nul_in_path()),
        false => Ok(path),
    }
}
