//! Turns the arguments of `run` into a command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use exec_core::{Command, Environ, Io, ResourceLimits, RunAs, TerminalSize, TimeLimit};
use exec_env::MachineInfo;

use crate::args::{EnvArg, LimitArg, RunArgs};
use crate::sandbox_choice::SandboxChoice;
use crate::target;

/// What applies where the arguments say nothing.
#[derive(Debug)]
pub(super) struct CommandDefaults {
    /// The size of our terminal.
    pub(super) size: Option<TerminalSize>,
    /// The working directory, and where a relative one begins.
    pub(super) base: Option<PathBuf>,
    /// The type of our terminal, if the child does not inherit it.
    pub(super) term: Option<OsString>,
}

impl CommandDefaults {
    pub(super) fn local(size: Option<TerminalSize>) -> Self {
        Self { size, base: std::env::current_dir().ok(), term: None }
    }

    /// Our working directory means nothing there, and the server has no terminal.
    pub(super) fn remote(size: Option<TerminalSize>, info: &MachineInfo) -> Self {
        Self { size, base: target::base_directory(info), term: std::env::var_os("TERM") }
    }
}

pub(super) fn build(args: &RunArgs, defaults: CommandDefaults) -> anyhow::Result<Command> {
    let cwd = cwd(args.cwd.as_deref(), defaults.base)?;
    let mut variables = variables(&args.env)?;
    if let Some(term) = defaults.term.filter(|_| args.tty) {
        // It comes first, so that --env can override it.
        variables.insert(0, ("TERM".into(), term));
    }
    let environ = if args.clear_env { Environ::exactly(variables) } else { Environ::inherit_and(variables) };
    let io = if args.tty { Io::Pty(defaults.size.unwrap_or_default()) } else { Io::Pipes { stdin: !args.no_stdin } };
    let time_limit = args.timeout.map(|after| TimeLimit { after, grace: args.grace });
    let spool_bytes = Some(args.spool);
    let keep = args.detach.then_some(args.keep);
    let sandbox = match SandboxChoice::load(&args.sandbox)? {
        Some(choice) => choice.policy(&cwd)?,
        None => None,
    };
    let mut limits = ResourceLimits::default();
    args.limits.iter().for_each(|LimitArg { limit, value }| limits.set(*limit, *value));
    let run_as = args.user.clone().map(|user| RunAs { user });
    let argv = args.argv.clone();
    Ok(Command { environ, io, time_limit, limits, run_as, spool_bytes, keep, sandbox, ..Command::new(argv, cwd) })
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

fn variables(args: &[EnvArg]) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let pair = |arg: &EnvArg| {
        let value = arg.value.clone().or_else(|| std::env::var_os(&arg.name));
        let unset = || format!("--env {}: it is not set here; give it a value with NAME=VALUE", arg.name.display());
        Ok((arg.name.clone(), value.with_context(unset)?))
    };
    args.iter().map(pair).collect()
}
