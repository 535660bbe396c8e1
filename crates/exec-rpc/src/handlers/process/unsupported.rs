//! Parameters of a start that this server does not support. They are refused, never ignored, because a client relies on
//! what it was granted.

use exec_core::command::BadCommand;
use exec_wire::error::RpcError;
use exec_wire::process::StartParams;
use exec_wire::sandbox::WindowsSandboxLevel;

use crate::limits::SNAPSHOT_SCOPE_BYTES;
use crate::reply;

/// Refuses a sandbox, a network proxy or a shell snapshot that we cannot provide.
pub(super) fn check(params: &StartParams) -> Result<(), RpcError> {
    if params.network_proxy.is_some() {
        return Err(reply::bad_params("invalid network proxy config: this executor has no network proxy"));
    }
    if let Some(snapshot) = &params.shell_snapshot {
        if snapshot.scope_id.is_empty() || snapshot.scope_id.len() > SNAPSHOT_SCOPE_BYTES {
            return Err(reply::bad_params("shell snapshot scope must be non-empty and at most 256 bytes"));
        }
        // For anything but a script of a login shell the snapshot has no effect, so that the name does not matter.
        let of_this_shell = matches!(&params.argv[..], [program, login, _, ..]
            if program.0 == *snapshot.shell.path && login.0 == "-lc");
        let name = &snapshot.shell.name;
        if of_this_shell && !["bash", "zsh", "sh"].contains(&name.as_str()) {
            return Err(reply::bad_params(format!("shell snapshots are unsupported for shell `{name}`")));
        }
    }
    // Without a proxy nothing would manage the network of the child, so that it would reach everything.
    if params.enforce_managed_network && params.sandbox.is_some() {
        return Err(reply::sandbox_not_enforceable());
    }
    match &params.sandbox {
        Some(context) if context.windows_sandbox_level == WindowsSandboxLevel::Mxc => {
            Err(reply::bad_params("native MXC is unavailable on this executor"))
        }
        _ => Ok(()),
    }
}

/// Codex's server names the kind of start when the program has no name.
pub(super) fn bad_command_error(bad: BadCommand, tty: bool) -> RpcError {
    let nameless = bad == BadCommand::EmptyProgram;
    let mut error = reply::process_error(bad.into(), "");
    if nameless && tty {
        error.message = "missing program for PTY spawn".to_owned();
    }
    error
}
