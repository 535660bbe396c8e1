//! `exec-server cp`: files and directories, between any two machines.
//!
//! Reading order: here, what the words mean and the loop that waits; [`route`] (what goes where), [`copier`] (one file or
//! one link, and what is left to be taken away if we are stopped), [`pump`] (a file's contents), [`tree`] (directories,
//! entry by entry), [`persist`] (what is asked again), [`measure`] (how much there is), [`progress`] (how far it is),
//! [`error`].
//!
//! Nothing is gathered on the way: a file is a stream of blocks, a tree is a stream of entries. On one machine the
//! machine copies by itself.

mod copier;
mod error;
mod measure;
mod persist;
mod progress;
mod pump;
mod route;
mod tree;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::CpArgs;
use crate::site::{News, Plain, Sites, Spot};
use crate::trouble::Troubles;
use crate::{errand, exit_code, fs, say};
use copier::Copier;
use error::CopyError;
use progress::Progress;
use route::Job;

/// Copies; the code is 1 if something could not be copied.
pub(crate) fn main(args: &CpArgs) -> ExitCode {
    errand::run(fs::quietly(cp(args)), exit_code::FAILED)
}

async fn cp(args: &CpArgs) -> anyhow::Result<u8> {
    let mut sites = Sites::new(&args.common.place, Plain::Here);
    let mut spots = Vec::with_capacity(args.paths.len());
    for word in &args.paths {
        spots.push(sites.spot(word).await?);
    }
    let target = spots.pop().context("there is nothing to copy")?;
    let progress = Arc::new(Progress::begin(args.quiet, args.common.json));
    let copiers = spots.iter().map(|spot| Copier::new(spot, &target, Arc::clone(&progress))).collect::<Vec<_>>();
    let mut troubles = Troubles::new(args.common.json);
    let ended = {
        let work = copy_all(&spots, &copiers, &target, args, &progress, &mut troubles);
        wait(work, measure_all(&spots, &progress), &mut sites.news(args.quiet), &progress).await?
    };
    if let Ended::ByASignal(_) = ended {
        for copier in &copiers {
            copier.take_away_unfinished().await;
        }
    }
    progress.end();
    drop((spots, target, copiers));
    sites.leave().await;
    match ended {
        Ended::ByItself(done) => {
            done?;
            if !args.quiet || args.common.json {
                progress.summary()?;
            }
            Ok(troubles.code())
        }
        Ended::ByASignal(number) => {
            say::note("stopped: what was copied whole is there, and nothing else");
            Ok(exit_code::of_signal(number))
        }
    }
}

enum Ended {
    ByItself(anyhow::Result<()>),
    ByASignal(i32),
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
    news: &mut News,
    progress: &Progress,
) -> anyhow::Result<Ended> {
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
            change = news.changed() => Event::Link(change),
            _ = ticks.tick() => Event::Tick,
        };
        match event {
            Event::Done(done) => return Ok(Ended::ByItself(done)),
            Event::Measured => measured = true,
            Event::Signal(number) => return Ok(Ended::ByASignal(number)),
            Event::Link(change) => match progress.has_bar() {
                true => progress.link(&change.1),
                false => news.tell(change),
            },
            Event::Tick => progress.tick()?,
        }
    }
}

async fn copy_all(
    spots: &[Spot],
    copiers: &[Copier],
    target: &Spot,
    args: &CpArgs,
    progress: &Progress,
    troubles: &mut Troubles,
) -> anyhow::Result<()> {
    let target = match route::Target::look(target, spots.len()).await {
        Ok(target) => target,
        Err(error) => return troubles.tell(error.reason(), &error.to_string()),
    };
    for (spot, copier) in spots.iter().zip(copiers) {
        let copied = match target.job(spot, args.recursive).await {
            Ok(job) => carry_out(job, copier, progress, troubles).await?,
            Err(error) => Err(error),
        };
        if let Err(error) = copied {
            troubles.tell(error.reason(), &error.to_string())?;
            if error.ends_all() {
                break;
            }
        }
    }
    Ok(())
}

/// The outer failure is of stdout, the inner one of the job as a whole; entries of a tree that fail are told.
async fn carry_out(
    job: Job,
    copier: &Copier,
    progress: &Progress,
    troubles: &mut Troubles,
) -> anyhow::Result<Result<(), CopyError>> {
    Ok(match job {
        Job::File { from, to, found, links } => {
            progress.expect(&from, found.size_bytes);
            copier.file(&from, &to, &found, links).await
        }
        Job::Link { from, to } => copier.link(&from, &to, exec_env::files::LinkPolicy::Follow).await,
        Job::Tree { from, to, is_new } => return tree::copy(copier, from, to, is_new, troubles).await,
    })
}

async fn measure_all(spots: &[Spot], progress: &Progress) {
    for spot in spots {
        if progress.has_bar() || (spot.site.is_here() && progress.is_shown()) {
            measure::measure(spot, progress).await;
        }
    }
}
