//! `fs watch`: a line per change, until Ctrl-C or until what is watched is gone.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use exec_env::files::{Change, ChangeBatch, FileError, WatchOptions};
use serde::Serialize;

use crate::args::WatchArgs;
use crate::failures::Failures;
use crate::location::{BarePath, FilePath, Locations};
use crate::messages;
use crate::output::{StdoutBuffer, Style, Text};

/// Tells of changes; the code is 1 if they cannot be watched.
pub(super) async fn watch(args: &WatchArgs) -> anyhow::Result<u8> {
    let mut locations = Locations::new(&args.common.target, BarePath::Chosen);
    let file = locations.resolve(&args.path).await?;
    let mut failures = Failures::new(args.common.json);
    let mut links = locations.link_monitors(false);
    let watched = links.report_during(print_changes(&file, args)).await?;
    if let Err(error) = watched {
        failures.report_file_error(&file, &error)?;
    }
    drop(file);
    locations.close().await;
    Ok(failures.exit_code())
}

/// The outer failure is of stdout, the inner one of the watch.
async fn print_changes(file: &FilePath, args: &WatchArgs) -> anyhow::Result<Result<(), FileError>> {
    let options = WatchOptions { recursive: !args.flat, ignore_files: args.ignore };
    let mut changes = match file.files().watch(&file.path, options).await {
        Ok(changes) => changes,
        Err(error) => return Ok(Err(error)),
    };
    // Whoever changes something once it sees this line sees that change here.
    if !args.common.json {
        messages::print_note(format_args!("watching {:?}; Ctrl-C ends it", file.as_written()));
    }
    let mut stdout = StdoutBuffer::new();
    if args.common.json {
        stdout.push_json(&WatchEvent::Watching {
            path: Text::name(&file.path),
            environment: file.location.environment_id(),
        })?;
        stdout.flush().await?;
    }
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let batch = tokio::select! {
            batch = changes.next() => batch,
            // Asked to stop, which is how a watch ends.
            _ = &mut interrupted => return Ok(Ok(())),
        };
        match batch {
            Ok(Some(batch)) => print(&batch, file, args, &mut stdout)?,
            Ok(None) => {
                messages::print_note(format_args!("{:?} is gone", file.as_written()));
                return Ok(Ok(()));
            }
            Err(error) => return Ok(Err(error)),
        }
        stdout.flush().await?;
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "camelCase")]
enum WatchEvent<'a> {
    Watching { path: Text, environment: &'a str },
    Created { path: Text },
    Modified { path: Text },
    Removed { path: Text },
    Renamed { from: Text, to: Text },
    Overflow { path: Text },
}

impl WatchEvent<'_> {
    fn new(change: &Change) -> Self {
        match change {
            Change::Created(path) => Self::Created { path: Text::name(path) },
            Change::Modified(path) => Self::Modified { path: Text::name(path) },
            Change::Removed(path) => Self::Removed { path: Text::name(path) },
            Change::Renamed { from, to } => Self::Renamed { from: Text::name(from), to: Text::name(to) },
        }
    }
}

fn print(batch: &ChangeBatch, file: &FilePath, args: &WatchArgs, stdout: &mut StdoutBuffer) -> anyhow::Result<()> {
    if args.common.json {
        for change in &batch.changes {
            stdout.push_json(&WatchEvent::new(change))?;
        }
        if let Some(root) = &batch.overflow {
            stdout.push_json(&WatchEvent::Overflow { path: Text::name(root) })?;
        }
        return Ok(());
    }
    let path =
        |stdout: &mut StdoutBuffer, path: &Path| stdout.push_styled(file.display_path(path).as_bytes(), Style::Path);
    for change in &batch.changes {
        let (event, first, second) = match change {
            Change::Created(at) => ("created", at, None),
            Change::Modified(at) => ("modified", at, None),
            Change::Removed(at) => ("removed", at, None),
            Change::Renamed { from, to } => ("renamed", from, Some(to)),
        };
        stdout.push_str(&format!("{event:<9} "));
        path(stdout, first);
        if let Some(second) = second {
            stdout.push_str(" -> ");
            path(stdout, second);
        }
        stdout.push_str("\n");
    }
    if let Some(root) = &batch.overflow {
        stdout.push_str("overflow  ");
        path(stdout, root);
        stdout.push_str("\n");
        messages::print_note("more changed than could be followed: look through it again");
    }
    Ok(())
}
