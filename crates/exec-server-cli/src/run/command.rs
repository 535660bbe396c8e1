//! Turns the arguments of `run` into a command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use exec_core::{Command, Environ, Io, ResourceLimits, RunAs, TerminalSize, TimeLimit};
use exec_env::MachineInfo;

use super::env_file;
use crate::args::{LimitArg, RunArgs};
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
    /// The variables that it would have inherited from us, if we do not start it ourselves.
    pub(super) inherited: Vec<(OsString, OsString)>,
}

impl CommandDefaults {
    pub(super) fn local(size: Option<TerminalSize>) -> Self {
        Self { size, base: std::env::current_dir().ok(), term: None, inherited: Vec::new() }
    }

    /// The server of the account has the folder and the variables of whoever needed it first. The child gets ours.
    pub(super) fn of_this_account(size: Option<TerminalSize>) -> Self {
        Self { inherited: std::env::vars_os().collect(), ..Self::local(size) }
    }

    /// Our working directory means nothing there, and the server has no terminal.
    pub(super) fn remote(size: Option<TerminalSize>, info: &MachineInfo) -> Self {
        let term = std::env::var_os("TERM");
        Self { size, base: target::base_directory(info), term, inherited: Vec::new() }
    }
}

pub(super) fn build(args: &RunArgs, defaults: CommandDefaults) -> anyhow::Result<Command> {
    let cwd = cwd(args.cwd.as_deref(), defaults.base)?;
    let mut variables = variables(args)?;
    if let Some(term) = defaults.term.filter(|_| args.tty) {
        // It comes first, so that --env can override it.
        variables.insert(0, ("TERM".into(), term));
    }
    let environ = match (args.clear_env, defaults.inherited) {
        (true, _) => Environ::exactly(variables),
        (false, inherited) if inherited.is_empty() => Environ::inherit_and(variables),
        (false, mut inherited) => {
            inherited.retain(|(name, _)| variables.iter().all(|(set, _)| set != name));
            Environ::exactly(inherited.into_iter().chain(variables))
        }
    };
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

/// Those of the files first: a later one wins.
fn variables(args: &RunArgs) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let mut variables = Vec::new();
    for path in &args.env_files {
        variables.extend(env_file::read(path)?);
    }
    for arg in &args.env {
        let value = arg.value.clone().or_else(|| std::env::var_os(&arg.name));
        let unset = || format!("--env {}: it is not set here; give it a value with NAME=VALUE", arg.name.display());
        variables.push((arg.name.clone(), value.with_context(unset)?));
    }
    Ok(variables)
}
