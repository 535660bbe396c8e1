//! From words to a command: where, with which variables, wired how.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::Context;
use exec_core::{Command, Environ, Io, Size, TimeLimit};

use crate::args::RunArgs;

/// What to run. `size` is that of our terminal, `own` looks a variable of ours up.
pub(super) fn of(
    args: &RunArgs,
    size: Option<Size>,
    own: impl Fn(&OsStr) -> Option<OsString>,
) -> anyhow::Result<Command> {
    let variables = variables(args, own)?;
    let environ = if args.clear_env { Environ::exactly(variables) } else { Environ::inherit_and(variables) };
    let io = if args.tty { Io::Pty(size.unwrap_or_default()) } else { Io::Pipes { stdin: !args.no_stdin } };
    let time_limit = args.timeout.map(|after| TimeLimit { after, grace: args.grace });
    let spool_bytes = Some(args.spool);
    Ok(Command { environ, io, time_limit, spool_bytes, ..Command::new(args.argv.clone(), cwd(args)?) })
}

fn cwd(args: &RunArgs) -> anyhow::Result<PathBuf> {
    match &args.cwd {
        Some(cwd) if cwd.is_absolute() => Ok(cwd.clone()),
        cwd => {
            let here = std::env::current_dir()
                .context("cannot tell the current folder (was it removed?): give --cwd a full path")?;
            Ok(cwd.as_ref().map_or(here.clone(), |cwd| here.join(cwd)))
        }
    }
}

fn variables(args: &RunArgs, own: impl Fn(&OsStr) -> Option<OsString>) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let pair = |word: &crate::args::EnvWord| {
        let value = word.value.clone().or_else(|| own(&word.name));
        let unset = || format!("--env {}: it is not set here; give it a value with NAME=VALUE", word.name.display());
        Ok((word.name.clone(), value.with_context(unset)?))
    };
    args.env.iter().map(pair).collect()
}
