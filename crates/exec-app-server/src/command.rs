//! `command/exec` and `process/spawn`: params become a [`Launch`], or the error that Codex answers. The order of the checks is
//! Codex's, because a client that makes two mistakes learns of the same one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use exec_core::environ::Variables;
use exec_core::{Command, EnvPolicy, Environ, Io, TerminalSize, TimeLimit};
use exec_wire::RpcError;

use crate::limits::{OUTPUT_BYTES_CAP, PROCESS_ID_BYTES, TIME_LIMIT, TIME_LIMIT_MAX};
use crate::native_path;
use crate::process_table::Family;
use crate::reply;
use crate::sandbox::{Confinement, NETWORK_DISABLED};
use crate::shapes::{Bound, CommandExecParams, CommandExecTerminalSize, ProcessSpawnParams, ProcessTerminalSize};

/// A process to run for a client, and what the client wants of it.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) family: Family,
    /// The client's id; a `command/exec` that streams nothing needs none.
    pub(crate) name: Option<String>,
    pub(crate) command: Command,
    /// The client writes its stdin.
    pub(crate) stdin: bool,
    /// Output is sent as it comes; otherwise it is part of the result.
    pub(crate) stream: bool,
    /// Bytes of each stream that are sent or returned; `None` for all.
    pub(crate) cap: Option<usize>,
}

impl Launch {
    pub(crate) fn tty(&self) -> bool {
        matches!(self.command.io, Io::Pty(_))
    }
}

/// What a command finds on the machine when it says nothing else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// Where the server was started.
    pub(crate) cwd: &'a Path,
    pub(crate) home: Option<&'a Path>,
    /// The machine's variables, if this process has the same.
    pub(crate) variables: Option<&'a Variables>,
}

pub(crate) fn exec(params: CommandExecParams, surroundings: Surroundings<'_>) -> Result<Launch, RpcError> {
    if params.command.is_empty() {
        return Err(reply::refused("command must not be empty"));
    }
    if params.sandbox_policy.is_some() && params.permission_profile.is_some() {
        return Err(reply::refused("`permissionProfile` cannot be combined with `sandboxPolicy`"));
    }
    if params.size.is_some() && !params.tty {
        return Err(reply::invalid_params("command/exec size requires tty: true"));
    }
    if params.output_bytes_cap.is_some() && params.disable_output_cap {
        return Err(reply::invalid_params("command/exec cannot set both outputBytesCap and disableOutputCap"));
    }
    if params.timeout_ms.is_some() && params.disable_timeout {
        return Err(reply::invalid_params("command/exec cannot set both timeoutMs and disableTimeout"));
    }
    let time_limit = match params.timeout_ms {
        Some(ms) => Some(milliseconds("command/exec", ms)?),
        None => (!params.disable_timeout).then_some(TIME_LIMIT),
    };
    let cwd = working_directory(&params.cwd.unwrap_or_default(), surroundings);
    let confinement = Confinement::choose(
        params.sandbox_policy.as_ref(),
        params.permission_profile.as_deref(),
        surroundings.cwd,
        &cwd,
    )?;
    let size = params.size.map(CommandExecTerminalSize::checked).transpose()?;
    if params.process_id.is_none() && (params.tty || params.stream_stdin || params.stream_stdout_stderr) {
        return Err(reply::refused("command/exec tty or streaming requires a client-supplied processId"));
    }
    check_name("processId", params.process_id.as_deref())?;
    let mut environ = environ(params.env.unwrap_or_default(), surroundings);
    if !confinement.network {
        environ.vars.insert(NETWORK_DISABLED.into(), "1".into());
    }
    let stdin = params.stream_stdin || params.tty;
    Ok(Launch {
        family: Family::Exec,
        name: params.process_id,
        command: Command {
            environ,
            io: io(params.tty, size, stdin),
            time_limit: time_limit.map(kill_after),
            sandbox: confinement.policy,
            ..Command::new(params.command, cwd)
        },
        stdin,
        stream: params.stream_stdout_stderr || params.tty,
        cap: match params.disable_output_cap {
            true => None,
            false => Some(params.output_bytes_cap.unwrap_or(OUTPUT_BYTES_CAP)),
        },
    })
}

pub(crate) fn spawn(params: ProcessSpawnParams, surroundings: Surroundings<'_>) -> Result<Launch, RpcError> {
    if params.command.is_empty() {
        return Err(reply::refused("command must not be empty"));
    }
    if params.process_handle.is_empty() {
        return Err(reply::refused("processHandle must not be empty"));
    }
    if params.size.is_some() && !params.tty {
        return Err(reply::invalid_params("process/spawn size requires tty: true"));
    }
    let time_limit = match params.timeout_ms {
        Bound::Default => Some(TIME_LIMIT),
        Bound::None => None,
        Bound::Some(ms) => Some(milliseconds("process/spawn", ms)?),
    };
    let size = params.size.map(ProcessTerminalSize::checked).transpose()?;
    check_name("processHandle", Some(&params.process_handle))?;
    let stdin = params.stream_stdin || params.tty;
    Ok(Launch {
        family: Family::Spawn,
        name: Some(params.process_handle),
        command: Command {
            environ: environ(params.env.unwrap_or_default(), surroundings),
            io: io(params.tty, size, stdin),
            time_limit: time_limit.map(kill_after),
            ..Command::new(params.command, params.cwd.as_path())
        },
        stdin,
        stream: params.stream_stdout_stderr || params.tty,
        cap: match params.output_bytes_cap {
            Bound::Default => Some(OUTPUT_BYTES_CAP),
            Bound::None => None,
            Bound::Some(cap) => Some(cap),
        },
    })
}

/// A path relative to where the server was started, or to the home directory if it begins with `~`; without `.` and `..`.
fn working_directory(given: &Path, surroundings: Surroundings<'_>) -> PathBuf {
    let base = match (given.strip_prefix("~"), surroundings.home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => surroundings.cwd.join(given),
    };
    native_path::normalize(&base)
}

impl CommandExecTerminalSize {
    pub(crate) fn checked(self) -> Result<TerminalSize, RpcError> {
        checked_size("command/exec", self.rows, self.cols)
    }
}

impl ProcessTerminalSize {
    pub(crate) fn checked(self) -> Result<TerminalSize, RpcError> {
        checked_size("process", self.rows, self.cols)
    }
}

fn checked_size(whose: &str, rows: u16, cols: u16) -> Result<TerminalSize, RpcError> {
    match rows > 0 && cols > 0 {
        true => Ok(TerminalSize { rows, cols }),
        false => Err(reply::invalid_params(format!("{whose} size rows and cols must be greater than 0"))),
    }
}

fn milliseconds(whose: &str, ms: i64) -> Result<Duration, RpcError> {
    let ms = u64::try_from(ms)
        .map_err(|_| reply::invalid_params(format!("{whose} timeoutMs must be non-negative, got {ms}")))?;
    Ok(Duration::from_millis(ms).min(TIME_LIMIT_MAX))
}

/// The whole tree, at once.
fn kill_after(after: Duration) -> TimeLimit {
    TimeLimit { after, grace: Duration::ZERO }
}

fn io(tty: bool, size: Option<TerminalSize>, stdin: bool) -> Io {
    match tty {
        true => Io::Pty(size.unwrap_or_default()),
        false => Io::Pipes { stdin },
    }
}

fn check_name(member: &str, name: Option<&str>) -> Result<(), RpcError> {
    match name {
        Some(name) if name.len() > PROCESS_ID_BYTES => {
            Err(reply::refused(format!("{member} is longer than {PROCESS_ID_BYTES} bytes")))
        }
        _ => Ok(()),
    }
}

/// The machine's variables, with those of the request set, or unset where they are null.
fn environ(given: BTreeMap<String, Option<String>>, surroundings: Surroundings<'_>) -> Environ {
    if let Some(machine) = surroundings.variables {
        let mut vars = machine.clone();
        for (name, value) in given {
            match value {
                Some(value) => drop(vars.insert(name.into(), value.into())),
                None => drop(vars.remove(&OsString::from(name))),
            }
        }
        return Environ { policy: None, vars };
    }
    let mut policy = EnvPolicy::everything();
    let mut vars = Variables::new();
    for (name, value) in given {
        match value {
            Some(value) => drop(vars.insert(name.into(), value.into())),
            // A policy has wildcards, and nobody has a variable with one in its name.
            None if name.contains(['*', '?']) => {}
            None => policy.exclude.push(name),
        }
    }
    Environ { policy: Some(policy), vars }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_working_directory_is_relative_to_the_server_or_to_the_home() {
        let surroundings = Surroundings { cwd: Path::new("/srv"), home: Some(Path::new("/home/u")), variables: None };
        for (given, found) in [
            ("", "/srv"),
            ("a/../b/", "/srv/b"),
            ("/a/../b", "/b"),
            ("~", "/home/u"),
            ("~/a", "/home/u/a"),
            ("~a", "/srv/~a"),
            ("a/~", "/srv/a/~"),
        ] {
            assert_eq!(working_directory(Path::new(given), surroundings), Path::new(found), "{given}");
        }
    }
}
