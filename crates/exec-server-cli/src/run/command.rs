//! From words to a command: where, with which variables, wired how.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::Context;
use exec_core::{Command, Environ, Io, TerminalSize, TimeLimit};
use exec_env::MachineInfo;

use crate::args::{EnvArg, RunArgs};

/// What the words mean depends on it.
#[derive(Debug)]
pub(super) struct CommandDefaults {
    /// Of our terminal; of the usual size without it.
    pub(super) size: Option<TerminalSize>,
    /// The folder that is meant if none is named, and where a relative one begins.
    pub(super) base: Option<PathBuf>,
    /// What kind of terminal ours is, if the child would not learn it by itself.
    pub(super) term: Option<OsString>,
}

impl CommandDefaults {
    /// Of a program that runs here: it inherits what we have.
    pub(super) fn local(size: Option<TerminalSize>) -> Self {
        Self { size, base: std::env::current_dir().ok(), term: None }
    }

    /// Of a program that runs in a far place: our folder means nothing there, and its server has no terminal.
    pub(super) fn remote(size: Option<TerminalSize>, info: &MachineInfo) -> Self {
        let base = info.cwd.clone().or_else(|| info.home.clone());
        Self { size, base, term: std::env::var_os("TERM") }
    }
}

/// What to run. `own` looks a variable of ours up.
pub(super) fn build(
    args: &RunArgs,
    defaults: CommandDefaults,
    own: impl Fn(&OsStr) -> Option<OsString>,
) -> anyhow::Result<Command> {
    let cwd = cwd(args.cwd.as_deref(), defaults.base)?;
    let mut variables = variables(&args.env, own)?;
    if let Some(term) = defaults.term.filter(|_| args.tty) {
        // First, so that --env has the last word.
        variables.insert(0, ("TERM".into(), term));
    }
    let environ = if args.clear_env { Environ::exactly(variables) } else { Environ::inherit_and(variables) };
    let io = if args.tty { Io::Pty(defaults.size.unwrap_or_default()) } else { Io::Pipes { stdin: !args.no_stdin } };
    let time_limit = args.timeout.map(|after| TimeLimit { after, grace: args.grace });
    let spool_bytes = Some(args.spool);
    Ok(Command { environ, io, time_limit, spool_bytes, ..Command::new(args.argv.clone(), cwd) })
}

fn cwd(requested: Option<&Path>, base: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    match requested {
        Some(cwd) if cwd.is_absolute() => Ok(cwd.to_owned()),
        cwd => {
            let base = base.context("cannot tell the current folder (was it removed?): give --cwd a full path")?;
            Ok(cwd.map_or(base.clone(), |cwd| base.join(cwd)))
        }
    }
}

fn variables(args: &[EnvArg], own: impl Fn(&OsStr) -> Option<OsString>) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let pair = |arg: &EnvArg| {
        let value = arg.value.clone().or_else(|| own(&arg.name));
        let unset = || format!("--env {}: it is not set here; give it a value with NAME=VALUE", arg.name.display());
        Ok((arg.name.clone(), value.with_context(unset)?))
    };
    args.iter().map(pair).collect()
}
