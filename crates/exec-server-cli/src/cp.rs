//! `exec-server cp`: copies files and directories between any two machines.
//!
//! Here are the command, its event loop, and the measuring for the progress bar. Then, in reading order: [`plan`] (what is
//! copied where), [`copier`] (one file or one link), [`block_copy`] (the contents of a file), [`tree`] (a directory, entry
//! by entry), [`progress`], [`error`].
//!
//! Nothing is collected on the way: a file is a stream of blocks, a tree is a stream of entries. On one machine the machine
//! copies by itself.

mod block_copy;
mod copier;
mod error;
pub(crate) mod from_stdin;
mod plan;
mod progress;
mod tree;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use exec_env::files::{FileKind, LinkPolicy};
use futures_util::StreamExt;

use crate::args::CpArgs;
use crate::connection_status::LinkMonitors;
use crate::failures::Failures;
use crate::fs::{self, with_files_at};
use crate::location::{BarePath, FilePath, Locations};
use crate::{exit_code, messages, signal_listener};
use copier::{Copier, FileCopy, LinkPolicies};
use error::CopyError;
use from_stdin::{StdinEnd, StdinOptions};
use plan::CopyJob;
use progress::Progress;

/// Concurrent calls to measure: fewer than to copy, which matters more.
const MEASURE_AT_ONCE: usize = 4;

/// How many directories are measured at the most, and how many may wait for it.
const MEASURED_DIRECTORIES: usize = 20_000;

pub(crate) async fn run(args: &CpArgs) -> anyhow::Result<u8> {
    // Not left to clap, which would want two paths on either side of an option.
    if args.paths.len() < 2 {
        messages::print_note("name what to copy, and where to: see `exec-server cp --help`");
        return Ok(exit_code::USAGE_ERROR);
    }
    let is_stream = |path: &OsString| path == "-";
    if args.paths.iter().any(is_stream) {
        return match &args.paths[..] {
            [from, to] if is_stream(from) && !is_stream(to) => copy_from_stdin(args, to).await,
            [from, to] if is_stream(to) && !is_stream(from) => copy_to_stdout(args, from).await,
            _ => bail!("`-` is stdin or stdout, and goes with one other path: a file of that name is written ./-"),
        };
    }
    let mut locations = Locations::new(&args.common.target, BarePath::Local);
    let mut sources = locations.resolve_all(&args.paths).await?;
    let target = sources.pop().context("there is nothing to copy")?;
    let progress = Arc::new(Progress::new(args.quiet, args.common.json));
    let copiers = sources.iter().map(|source| Copier::new(source, &target, Arc::clone(&progress))).collect::<Vec<_>>();
    let mut failures = Failures::new(args.common.json);
    let ended = {
        let work = copy_all(&sources, &copiers, &target, args, &progress, &mut failures);
        wait(work, measure_all(&sources, &progress), &mut locations.link_monitors(args.quiet), &progress).await
    };
    // It also ends before its time if progress cannot be shown, as on a terminal that was closed.
    if !matches!(ended, Ok(CopyEnd::Completed(_))) {
        for copier in &copiers {
            copier.remove_unfinished().await;
        }
    }
    progress.end();
    drop((sources, target, copiers));
    locations.close().await;
    match ended? {
        CopyEnd::Completed(done) => {
            done?;
            if !args.quiet || args.common.json {
                progress.summary()?;
            }
            Ok(failures.exit_code())
        }
        CopyEnd::Interrupted(number) => {
            messages::print_note("stopped: what was copied whole is there, and nothing else");
            Ok(exit_code::of_signal(number))
        }
    }
}

async fn copy_from_stdin(args: &CpArgs, to: &OsString) -> anyhow::Result<u8> {
    let mut code = None;
    let failed = with_files_at(&args.common, BarePath::Local, std::slice::from_ref(to), async |files, context| {
        let started = Instant::now();
        match from_stdin::write(&files[0], StdinOptions::default(), &mut context.links).await {
            Ok(StdinEnd::Written { bytes }) => progress::stream_summary(args, bytes, started.elapsed()),
            Ok(StdinEnd::Interrupted(number)) => {
                messages::print_note("stopped: the file is as it was");
                code = Some(exit_code::of_signal(number));
                Ok(())
            }
            Err(error) => context.failures.report_outcome(&files[0], Err(error)),
        }
    });
    let failed = failed.await?;
    Ok(code.unwrap_or(failed))
}

async fn copy_to_stdout(args: &CpArgs, from: &OsString) -> anyhow::Result<u8> {
    if args.common.json {
        bail!("--json and `-` both want stdout: leave one of them out");
    }
    with_files_at(&args.common, BarePath::Local, std::slice::from_ref(from), async |files, context| {
        let printed = fs::cat::print(&files[0], context).await;
        context.failures.report_outcome(&files[0], printed)
    })
    .await
}

enum CopyEnd {
    Completed(anyhow::Result<()>),
    Interrupted(i32),
}

enum Event {
    Done(anyhow::Result<()>),
    Measured,
    Signal(i32),
    Link((usize, exec_client::LinkState)),
    Tick,
}

/// Waits for the end of the work, and shows progress meanwhile.
async fn wait(
    work: impl Future<Output = anyhow::Result<()>>,
    measuring: impl Future<Output = ()>,
    links: &mut LinkMonitors,
    progress: &Progress,
) -> anyhow::Result<CopyEnd> {
    let mut signals = signal_listener::stop_signals().context("cannot wait for signals")?;
    let (mut work, mut measuring) = (std::pin::pin!(work), std::pin::pin!(measuring));
    let mut measured = false;
    let mut ticks = tokio::time::interval(progress::TICK);
    loop {
        let event = tokio::select! {
            done = &mut work => Event::Done(done),
            () = &mut measuring, if !measured => Event::Measured,
            number = signals.next() => Event::Signal(number),
            change = links.changed() => Event::Link(change),
            _ = ticks.tick() => Event::Tick,
        };
        match event {
            Event::Done(done) => return Ok(CopyEnd::Completed(done)),
            Event::Measured => measured = true,
            Event::Signal(number) => return Ok(CopyEnd::Interrupted(number)),
            Event::Link(change) => match progress.has_bar() {
                true => progress.link(&change.1),
                false => links.report(change),
            },
            Event::Tick => progress.tick()?,
        }
    }
}

async fn copy_all(
    sources: &[FilePath],
    copiers: &[Copier],
    target: &FilePath,
    args: &CpArgs,
    progress: &Progress,
    failures: &mut Failures,
) -> anyhow::Result<()> {
    let destination = match plan::Destination::inspect(target, sources).await {
        Ok(destination) => destination,
        Err(error) => return error.report(failures),
    };
    for (source, copier) in sources.iter().zip(copiers) {
        let copied = match destination.job_for(source, args.recursive).await {
            Ok(job) => run_job(job, destination.links(), copier, progress, failures).await,
            Err(error) => Err(error),
        };
        match copied {
            Ok(()) => {}
            Err(CopyError::Stdout(error)) => return Err(error),
            Err(error) => {
                error.report(failures)?;
                if error.ends_all() {
                    break;
                }
            }
        }
    }
    Ok(())
}

async fn run_job(
    job: CopyJob,
    to_links: LinkPolicy,
    copier: &Copier,
    progress: &Progress,
    failures: &mut Failures,
) -> Result<(), CopyError> {
    let links = LinkPolicies { from: LinkPolicy::Follow, to: to_links };
    match job {
        CopyJob::File { from, to, metadata } => {
            progress.expect_file(&from, metadata.size_bytes);
            let file = FileCopy { from: &from, to: &to, metadata: &metadata, links };
            copier.copy_file(file).await
        }
        CopyJob::Link { from, to } => copier.copy_link(&from, &to, links).await,
        CopyJob::Tree { from, to, is_new } => tree::copy(copier, from, to, is_new, failures).await,
    }
}

/// Adds up what is to be copied, while the copy is in progress.
async fn measure_all(sources: &[FilePath], progress: &Progress) {
    for source in sources {
        if progress.has_bar() || (source.location.is_local() && progress.is_shown()) {
            measure(source, progress).await;
        }
    }
}

/// Adds the size of one source. What cannot be read counts nothing; the copy reports why.
async fn measure(source: &FilePath, progress: &Progress) {
    let files = source.files();
    let Ok(metadata) = files.metadata(&source.path, LinkPolicy::Follow).await else { return };
    match metadata.kind {
        FileKind::File => return progress.expect_file(&source.path, metadata.size_bytes),
        FileKind::Directory => {}
        FileKind::Symlink | FileKind::Special => return,
    }
    let mut left: Vec<PathBuf> = vec![source.path.clone()];
    let mut directories = 0;
    while let Some(directory) = left.pop() {
        directories += 1;
        // The total is only for the bar, and a tree may have no end.
        if directories > MEASURED_DIRECTORIES || left.len() > MEASURED_DIRECTORIES {
            return;
        }
        let Ok(entries) = files.read_directory(&directory).await else { continue };
        let mut lookups = Vec::new();
        for entry in entries.into_iter().filter(|entry| !entry.is_symlink) {
            let path = directory.join(&entry.name);
            match entry.kind {
                FileKind::Directory => left.push(path),
                FileKind::File => lookups.push(async move { files.metadata(&path, LinkPolicy::Follow).await }),
                FileKind::Symlink | FileKind::Special => {}
            }
        }
        let mut lookups = futures_util::stream::iter(lookups).buffer_unordered(MEASURE_AT_ONCE);
        while let Some(metadata) = lookups.next().await {
            progress.expect_more(metadata.map_or(0, |metadata| metadata.size_bytes));
        }
    }
}
