//! Parameters of a start that this server does not support. They are refused, never ignored, because a client relies on
//! what it was granted.

use exec_core::NetworkProxy;
use exec_core::command::BadCommand;
use exec_core::network::ProxyRules;
use exec_wire::error::RpcError;
use exec_wire::process::StartParams;
use exec_wire::sandbox::WindowsSandboxLevel;

use crate::limits::{ASKING_PROCESS_ID_BYTES, SNAPSHOT_SCOPE_BYTES};
use crate::reply;

/// Refuses a proxy that cannot be as it is asked for. Codex's server looks at it first.
pub(super) fn check_proxy(params: &StartParams) -> Result<(), RpcError> {
    let Some(launch) = &params.network_proxy else { return Ok(()) };
    if launch.policy_decision_timeout_ms == Some(0) {
        return Err(reply::bad_params("network policy decision callback timeout must be nonzero"));
    }
    let id_fits = (1..=ASKING_PROCESS_ID_BYTES).contains(&params.process_id.len());
    if launch.policy_decision_timeout_ms.is_some() && !id_fits {
        return Err(reply::bad_params(format!(
            "callback-enabled process ID must be non-empty and at most {ASKING_PROCESS_ID_BYTES} bytes"
        )));
    }
    if !launch.proxy.enabled {
        return Err(reply::bad_params(
            "invalid network proxy config: executor-local network proxy launch requires an enabled proxy",
        ));
    }
    ProxyRules::new(&NetworkProxy::from(launch.clone())).map_err(|bad| reply::bad_proxy(&bad))?;
    Ok(())
}

/// Refuses a sandbox or a shell snapshot that we cannot provide.
pub(super) fn check(params: &StartParams) -> Result<(), RpcError> {
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
    if params.enforce_managed_network && params.sandbox.is_some() && params.network_proxy.is_none() {
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
