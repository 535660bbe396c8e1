//! `fs watch`: a line per change, until Ctrl-C or until the watched path is gone.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use exec_env::files::{Change, ChangeBatch, WatchOptions};
use exec_wire::text::OsText;
use serde::Serialize;

use super::with_files;
use crate::args::WatchArgs;
use crate::location::FilePath;
use crate::messages;
use crate::output::{StdoutBuffer, Style, os_text};

pub(super) async fn watch(args: &WatchArgs) -> anyhow::Result<u8> {
    with_files(&args.common, std::slice::from_ref(&args.path), async |files, context| {
        let file = &files[0];
        let watched = context.links.report_during(print_changes(file, args, &mut context.stdout)).await;
        context.failures.report_outcome(file, watched)
    })
    .await
}

async fn print_changes(file: &FilePath, args: &WatchArgs, stdout: &mut StdoutBuffer) -> anyhow::Result<()> {
    let options = WatchOptions { recursive: !args.flat, ignore_files: args.ignore };
    let mut changes = file.files().watch(&file.path, options).await?;
    // Changes that are made after this line was seen are reported.
    match args.common.json {
        false => messages::print_note(format_args!("watching {:?}; Ctrl-C ends it", file.as_written())),
        true => {
            let environment = file.location.environment_id();
            stdout.push_json(&WatchEvent::Watching { path: os_text(&file.path), environment })?;
            stdout.flush().await?;
        }
    }
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let batch = tokio::select! {
            batch = changes.next() => batch,
            // This is how a watch normally ends.
            _ = &mut interrupted => return Ok(()),
        };
        let Some(batch) = batch? else {
            messages::print_note(format_args!("{:?} is gone", file.as_written()));
            return Ok(());
        };
        print(&batch, file, args, stdout)?;
        stdout.flush().await?;
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "camelCase")]
enum WatchEvent<'a> {
    Watching { path: OsText, environment: &'a str },
    Created { path: OsText },
    Modified { path: OsText },
    Removed { path: OsText },
    Renamed { from: OsText, to: OsText },
    Overflow { path: OsText },
}

impl WatchEvent<'_> {
    fn new(change: &Change) -> Self {
        match change {
            Change::Created(path) => Self::Created { path: os_text(path) },
            Change::Modified(path) => Self::Modified { path: os_text(path) },
            Change::Removed(path) => Self::Removed { path: os_text(path) },
            Change::Renamed { from, to } => Self::Renamed { from: os_text(from), to: os_text(to) },
        }
    }
}

fn print(batch: &ChangeBatch, file: &FilePath, args: &WatchArgs, stdout: &mut StdoutBuffer) -> anyhow::Result<()> {
    if args.common.json {
        for change in &batch.changes {
            stdout.push_json(&WatchEvent::new(change))?;
        }
        if let Some(root) = &batch.overflow {
            stdout.push_json(&WatchEvent::Overflow { path: os_text(root) })?;
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
        stdout.push_text(&format!("{event:<9} "));
        path(stdout, first);
        if let Some(second) = second {
            stdout.push(" -> ");
            path(stdout, second);
        }
        stdout.push("\n");
    }
    if let Some(root) = &batch.overflow {
        stdout.push("overflow  ");
        path(stdout, root);
        stdout.push("\n");
        messages::print_note("more changed than could be followed: look through it again");
    }
    Ok(())
}
