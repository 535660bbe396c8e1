//! `exec-server fs`: one file per verb, or per small family of verbs.
//!
//! Each verb is a function over the `Files` of a site. What they share is here: how they begin and end.

mod cat;
mod change;
mod file_info;
mod find;
mod grep;
mod ls;
mod stat;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::args::FsCommand;
use crate::location::{FilePath, Locations};
use crate::output::BrokenPipe;
use crate::{exit_code, runtime};

/// Calls about files at one time: enough to hide the way there and back.
const AT_ONCE: usize = 16;

/// Does what is asked.
pub(crate) fn main(command: &FsCommand) -> ExitCode {
    let failed = match command {
        // As grep has it: 1 is "nothing found".
        FsCommand::Grep(_) => exit_code::USAGE_ERROR,
        _ => exit_code::FAILED,
    };
    runtime::run(quiet_on_broken_pipe(run(command)), failed)
}

async fn run(command: &FsCommand) -> anyhow::Result<u8> {
    match command {
        FsCommand::Ls(args) => ls::ls(args).await,
        FsCommand::Cat(args) => cat::cat(args).await,
        FsCommand::Stat(args) => stat::stat(args).await,
        FsCommand::Rm(args) => change::rm(args).await,
        FsCommand::Mkdir(args) => change::mkdir(args).await,
        FsCommand::Mv(args) => change::mv(args).await,
        FsCommand::Find(args) => find::find(args).await,
        FsCommand::Grep(args) => grep::grep(args).await,
        FsCommand::Watch(args) => watch::watch(args).await,
    }
}

/// A reader that has left is told to the shell, and to nobody else.
pub(crate) async fn quiet_on_broken_pipe(work: impl Future<Output = anyhow::Result<u8>>) -> anyhow::Result<u8> {
    match work.await {
        Err(error) if error.is::<BrokenPipe>() => Ok(exit_code::BROKEN_PIPE),
        other => other,
    }
}

/// The files that are meant. All are known before anything is done: a slip in one must not cost half of them.
async fn resolve_all(locations: &mut Locations<'_>, args: &[OsString]) -> anyhow::Result<Vec<FilePath>> {
    let mut files = Vec::with_capacity(args.len());
    for arg in args {
        files.push(locations.resolve(arg).await?);
    }
    Ok(files)
}
