//! Files: from the wire's verbs to the environment's.
//!
//! Reading order: what a call may do at all ([`permission`]), contents ([`content`]), names and trees ([`tree`]), what
//! goes on after its response ([`watch`], [`search`]).

pub(crate) mod content;
pub(super) mod permission;
pub(crate) mod search;
pub(crate) mod tree;
pub(crate) mod watch;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use exec_env::Files;
use exec_wire::PathUri;
use exec_wire::error::RpcError;
use exec_wire::sandbox::SandboxContext;

use crate::dispatch::RequestContext;
use crate::reply;
use permission::FileAccess;

impl RequestContext {
    pub(super) fn files(&self) -> &dyn Files {
        self.connection.files()
    }
}

/// The path on this machine, if the sandbox of the call permits this access to files.
fn permitted_path(path: &PathUri, sandbox: Option<&SandboxContext>, access: FileAccess) -> Result<PathBuf, RpcError> {
    let path = native_path(path)?;
    permission::check(sandbox, access)?;
    Ok(path)
}

fn native_path(path: &PathUri) -> Result<PathBuf, RpcError> {
    let path = path.to_path().map_err(reply::foreign_path)?;
    match path.as_os_str().as_bytes().contains(&0) {
        true => Err(reply::nul_in_path()),
        false => Ok(path),
    }
}
