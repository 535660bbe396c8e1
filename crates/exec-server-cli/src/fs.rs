//! `exec-server fs`: one file per command, or per small family of commands.
//!
//! Each command is a function over the `Files` of the environments that its arguments name. What they share is here: how
//! they begin and end.

pub(crate) mod cat;
mod change;
pub(crate) mod file_info;
mod find;
mod grep;
mod head;
mod ls;
mod stat;
mod watch;
mod write;

use std::ffi::OsString;

use crate::args::{CommonArgs, FsCommand};
use crate::connection_status::LinkMonitors;
use crate::exit_code;
use crate::failures::Failures;
use crate::location::{BarePath, FilePath, Locations};
use crate::output::StdoutBuffer;

/// Concurrent calls about files: enough to hide the latency of a connection.
const AT_ONCE: usize = 16;

/// The exit code if the command as a whole fails.
pub(crate) fn failure_code(command: &FsCommand) -> u8 {
    match command {
        // As with grep, 1 means that nothing was found.
        FsCommand::Grep(_) => exit_code::USAGE_ERROR,
        _ => exit_code::FAILED,
    }
}

pub(crate) async fn run(command: &FsCommand) -> anyhow::Result<u8> {
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
        FsCommand::Head(args) => head::head(args).await,
        FsCommand::Write(args) => write::write(args).await,
        FsCommand::Chmod(args) => write::chmod(args).await,
    }
}

/// What a command prints to, and what it reports.
pub(crate) struct FsContext {
    json: bool,
    stdout: StdoutBuffer,
    pub(crate) failures: Failures,
    pub(crate) links: LinkMonitors,
}

/// Resolves the paths, runs `work` on them, and ends the sessions. The exit code is 1 if a failure was reported.
async fn with_files(
    args: &CommonArgs,
    paths: &[OsString],
    work: impl AsyncFnOnce(&[FilePath], &mut FsContext) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    with_files_at(args, BarePath::Chosen, paths, work).await
}

/// The same for a command to which a path without an environment may mean something else.
pub(crate) async fn with_files_at(
    args: &CommonArgs,
    bare: BarePath,
    paths: &[OsString],
    work: impl AsyncFnOnce(&[FilePath], &mut FsContext) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let mut locations = Locations::new(&args.target, bare);
    let files = locations.resolve_all(paths).await?;
    let mut context = FsContext {
        json: args.json,
        stdout: StdoutBuffer::new(),
        failures: Failures::new(args.json),
        links: locations.link_monitors(false),
    };
    work(&files, &mut context).await?;
    context.stdout.flush().await?;
    // A session can be ended only when nothing refers to it any more.
    drop(files);
    locations.close().await;
    Ok(context.failures.exit_code())
}
