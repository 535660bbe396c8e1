//! `exec-server cp`: files and directories, between any two machines.
//!
//! Reading order: here, what the words mean and the loop that waits; [`route`] (what goes where), [`copier`] (one file or
//! one link, and what is left to be taken away if we are stopped), [`pump`] (a file's contents), [`tree`] (directories,
//! entry by entry), [`retry_unreachable`] (what is asked again), [`measure`] (how much there is), [`progress`] (how far it is),
//! [`error`].
//!
//! Nothing is gathered on the way: a file is a stream of blocks, a tree is a stream of entries. On one machine the
//! machine copies by itself.

mod block_copy;
mod copier;
mod error;
mod measure;
mod plan;
mod progress;
mod retry;
mod tree;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::CpArgs;
use crate::failures::Failures;
use crate::location::{BarePath, FilePath, LinkMonitors, Locations};
use crate::{exit_code, fs, messages, runtime};
use copier::Copier;
use error::CopyError;
use plan::CopyJob;
use progress::Progress;

/// Copies; the code is 1 if something could not be copied.
pub(crate) fn main(args: &CpArgs) -> ExitCode {
    runtime::run(fs::quiet_on_broken_pipe(cp(args)), exit_code::FAILED)
}

async fn cp(args: &CpArgs) -> anyhow::Result<u8> {
    let mut locations = Locations::new(&args.common.target, BarePath::Local);
    let mut sources = Vec::with_capacity(args.paths.len());
    for arg in &args.paths {
        sources.push(locations.resolve(arg).await?);
    }
    let target = sources.pop().context("there is nothing to copy")?;
    let progress = Arc::new(Progress::new(args.quiet, args.common.json));
    let copiers = sources.iter().map(|source| Copier::new(source, &target, Arc::clone(&progress))).collect::<Vec<_>>();
    let mut failures = Failures::new(args.common.json);
    let ended = {
        let work = copy_all(&sources, &copiers, &target, args, &progress, &mut failures);
        wait(work, measure_all(&sources, &progress), &mut locations.link_monitors(args.quiet), &progress).await?
    };
    if let CopyEnd::Interrupted(_) = ended {
        for copier in &copiers {
            copier.remove_unfinished().await;
        }
    }
    progress.end();
    drop((sources, target, copiers));
    locations.close().await;
    match ended {
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

/// Waits for the end of the work, and tells of it meanwhile.
async fn wait(
    work: impl Future<Output = anyhow::Result<()>>,
    measuring: impl Future<Output = ()>,
    links: &mut LinkMonitors,
    progress: &Progress,
) -> anyhow::Result<CopyEnd> {
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    let mut terminations = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let (mut work, mut measuring) = (std::pin::pin!(work), std::pin::pin!(measuring));
    let mut measured = false;
    let mut ticks = tokio::time::interval(progress::TICK);
    loop {
        let event = tokio::select! {
            done = &mut work => Event::Done(done),
            () = &mut measuring, if !measured => Event::Measured,
            _ = interrupts.recv() => Event::Signal(SignalKind::interrupt().as_raw_value()),
            _ = terminations.recv() => Event::Signal(SignalKind::terminate().as_raw_value()),
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
    let destination = match plan::Destination::inspect(target, sources.len()).await {
        Ok(destination) => destination,
        Err(error) => return failures.report(error.reason(), &error.to_string()),
    };
    for (source, copier) in sources.iter().zip(copiers) {
        let copied = match destination.job_for(source, args.recursive).await {
            Ok(job) => run_job(job, copier, progress, failures).await?,
            Err(error) => Err(error),
        };
        if let Err(error) = copied {
            failures.report(error.reason(), &error.to_string())?;
            if error.ends_all() {
                break;
            }
        }
    }
    Ok(())
}

/// The outer failure is of stdout, the inner one of the job as a whole; entries of a tree that fail are told.
async fn run_job(
    job: CopyJob,
    copier: &Copier,
    progress: &Progress,
    failures: &mut Failures,
) -> anyhow::Result<Result<(), CopyError>> {
    Ok(match job {
        CopyJob::File { from, to, metadata, links } => {
            progress.expect_file(&from, metadata.size_bytes);
            copier.copy_file(&from, &to, &metadata, links).await
        }
        CopyJob::Link { from, to } => copier.copy_link(&from, &to, exec_env::files::LinkPolicy::Follow).await,
        CopyJob::Tree { from, to, is_new } => return tree::copy(copier, from, to, is_new, failures).await,
    })
}

async fn measure_all(sources: &[FilePath], progress: &Progress) {
    for source in sources {
        if progress.has_bar() || (source.location.is_local() && progress.is_shown()) {
            measure::measure(source, progress).await;
        }
    }
}
