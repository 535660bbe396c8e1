//! `fs watch`: a line per change, until Ctrl-C or until what is watched is gone.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use exec_env::files::{Change, ChangeBatch, FileError, WatchOptions};
use serde::Serialize;

use crate::args::WatchArgs;
use crate::paper::{Ink, Paper, Text};
use crate::say;
use crate::site::{Plain, Sites, Spot};
use crate::trouble::Troubles;

/// Tells of changes; the code is 1 if they cannot be watched.
pub(super) async fn watch(args: &WatchArgs) -> anyhow::Result<u8> {
    let mut sites = Sites::new(&args.common.place, Plain::Chosen);
    let spot = sites.spot(&args.path).await?;
    let mut troubles = Troubles::new(args.common.json);
    let mut news = sites.news(false);
    let told = news.during(tell(&spot, args)).await?;
    if let Err(error) = told {
        troubles.at(&spot, &error)?;
    }
    drop(spot);
    sites.leave().await;
    Ok(troubles.code())
}

/// The outer failure is of stdout, the inner one of the watch.
async fn tell(spot: &Spot, args: &WatchArgs) -> anyhow::Result<Result<(), FileError>> {
    let options = WatchOptions { recursive: !args.flat, ignore_files: args.ignore };
    let mut changes = match spot.files().watch(&spot.path, options).await {
        Ok(changes) => changes,
        Err(error) => return Ok(Err(error)),
    };
    // Whoever changes something once it sees this line sees that change here.
    if !args.common.json {
        say::note(format_args!("watching {:?}; Ctrl-C ends it", spot.word()));
    }
    let mut paper = Paper::new();
    if args.common.json {
        paper.put_json(&Event::Watching { path: Text::name(&spot.path), environment: spot.site.environment() })?;
        paper.flush().await?;
    }
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let batch = tokio::select! {
            batch = changes.next() => batch,
            // Asked to stop, which is how a watch ends.
            _ = &mut interrupted => return Ok(Ok(())),
        };
        match batch {
            Ok(Some(batch)) => print(&batch, spot, args, &mut paper)?,
            Ok(None) => {
                say::note(format_args!("{:?} is gone", spot.word()));
                return Ok(Ok(()));
            }
            Err(error) => return Ok(Err(error)),
        }
        paper.flush().await?;
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "camelCase")]
enum Event<'a> {
    Watching { path: Text, environment: &'a str },
    Created { path: Text },
    Modified { path: Text },
    Removed { path: Text },
    Renamed { from: Text, to: Text },
    Overflow { path: Text },
}

impl Event<'_> {
    fn of(change: &Change) -> Self {
        match change {
            Change::Created(path) => Self::Created { path: Text::name(path) },
            Change::Modified(path) => Self::Modified { path: Text::name(path) },
            Change::Removed(path) => Self::Removed { path: Text::name(path) },
            Change::Renamed { from, to } => Self::Renamed { from: Text::name(from), to: Text::name(to) },
        }
    }
}

fn print(batch: &ChangeBatch, spot: &Spot, args: &WatchArgs, paper: &mut Paper) -> anyhow::Result<()> {
    if args.common.json {
        for change in &batch.changes {
            paper.put_json(&Event::of(change))?;
        }
        if let Some(root) = &batch.overflow {
            paper.put_json(&Event::Overflow { path: Text::name(root) })?;
        }
        return Ok(());
    }
    let path = |paper: &mut Paper, path: &Path| paper.put_inked(spot.shown(path).as_bytes(), Ink::Path);
    for change in &batch.changes {
        let (event, first, second) = match change {
            Change::Created(at) => ("created", at, None),
            Change::Modified(at) => ("modified", at, None),
            Change::Removed(at) => ("removed", at, None),
            Change::Renamed { from, to } => ("renamed", from, Some(to)),
        };
        paper.put(&format!("{event:<9} "));
        path(paper, first);
        if let Some(second) = second {
            paper.put(" -> ");
            path(paper, second);
        }
        paper.put("\n");
    }
    if let Some(root) = &batch.overflow {
        paper.put("overflow  ");
        path(paper, root);
        paper.put("\n");
        say::note("more changed than could be followed: look through it again");
    }
    Ok(())
}
