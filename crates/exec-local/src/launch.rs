//! From a command to what the keeper is asked to run: the environment resolved, the quota known.

use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use exec_core::flow::Quota;
use exec_core::{Command, Io, ProcessId};
use exec_keeper::protocol::{ProcessRecord, LaunchRequest};

/// The command has been checked. `shell` is the account's.
pub(crate) fn launch(id: &ProcessId, command: Command, default_spool_bytes: u64, shell: &OsStr) -> LaunchRequest {
    let mut variables = command.environ.resolve(std::env::vars_os());
    if matches!(command.io, Io::Pty(_)) {
        // The one thing added to what was asked for, as Codex's server does: programs of the terminal (editors, pagers,
        // `script`) start a shell of their own by this name.
        variables.entry("SHELL".into()).or_insert_with(|| shell.to_owned());
    }
    let path = variables.get(OsStr::new("PATH")).cloned();
    let environ = variables.into_iter().map(|(name, value)| join(name, &value)).collect();
    LaunchRequest {
        record: ProcessRecord {
            id: id.clone(),
            argv: command.argv,
            cwd: command.cwd,
            io: command.io,
            quota: Quota { cap_bytes: command.spool_bytes.unwrap_or(default_spool_bytes), overflow: command.overflow },
            started: SystemTime::now(),
            label: command.label,
        },
        arg0: command.arg0,
        environ,
        path,
        time_limit: command.time_limit,
    }
}

fn join(mut name: OsString, value: &OsStr) -> OsString {
    name.push("=");
    name.push(value);
    name
}
