//! From a command to what the keeper is asked to run: the environment resolved, the quota known.

use std::ffi::OsString;
use std::time::SystemTime;

use exec_core::flow::Quota;
use exec_core::{Command, ProcessId};
use exec_keeper::protocol::{Card, Launch};

/// The command has been checked.
pub(crate) fn launch(id: &ProcessId, command: Command, default_spool_bytes: u64) -> Launch {
    let variables = command.environ.resolve(std::env::vars_os());
    let path = variables.get(std::ffi::OsStr::new("PATH")).cloned();
    let environ = variables.into_iter().map(|(name, value)| join(name, &value)).collect();
    Launch {
        card: Card {
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

fn join(mut name: OsString, value: &std::ffi::OsStr) -> OsString {
    name.push("=");
    name.push(value);
    name
}
