//! `fs rm`, `fs mkdir`, `fs mv`: what changes names. Each is done path by path; one that fails does not stop the others.

use std::path::Path;

use anyhow::bail;
use exec_env::files::{CreateDirectoryOptions, FileError, FileKind, LinkPolicy, RemoveOptions, RenameOptions};
use serde::Serialize;

use super::spots;
use crate::args::{MkdirArgs, MvArgs, RmArgs};
use crate::paper::{Paper, Text};
use crate::site::{Plain, Sites, Spot};
use crate::trouble::Troubles;

/// One thing that was done.
#[derive(Debug, Serialize)]
struct Line {
    event: &'static str,
    environment: String,
    path: Text,
    /// The new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Text>,
}

impl Line {
    fn of(event: &'static str, spot: &Spot, to: Option<&Path>) -> Self {
        let environment = spot.site.environment().to_owned();
        Self { event, environment, path: Text::name(&spot.path), to: to.map(Text::name) }
    }
}

/// Removes them; the code is 1 if one could not be removed.
pub(super) async fn rm(args: &RmArgs) -> anyhow::Result<u8> {
    let mut sites = Sites::new(&args.common.place, Plain::Chosen);
    let spots = spots(&mut sites, &args.paths).await?;
    for spot in &spots {
        if spot.names_contents() {
            bail!("refused to remove {:?}: name the directory itself, by its full name", spot.word());
        }
    }
    let options = RemoveOptions { recursive: args.recursive, force: args.force, links: LinkPolicy::Follow };
    let mut report = Report::new(args.common.json);
    for spot in &spots {
        // Empty directories go without it in the waist; people expect to have to say it, as with rm.
        let removed = match !args.recursive && is_directory(spot).await {
            true => {
                let message = format!("cannot remove {:?}: it is a directory: say -r", spot.word());
                report.troubles.tell("EISDIR", &message)?;
                continue;
            }
            false => spot.files().remove(&spot.path, options).await,
        };
        report.add(spot, removed, "removed", None).await?;
    }
    drop(spots);
    sites.leave().await;
    Ok(report.troubles.code())
}

/// Makes them; the code is 1 if one could not be made.
pub(super) async fn mkdir(args: &MkdirArgs) -> anyhow::Result<u8> {
    let mut sites = Sites::new(&args.common.place, Plain::Chosen);
    let spots = spots(&mut sites, &args.paths).await?;
    let options = CreateDirectoryOptions { recursive: args.parents, links: LinkPolicy::Follow, mode: args.mode };
    let mut report = Report::new(args.common.json);
    for spot in &spots {
        let made = spot.files().create_directory(&spot.path, options).await;
        report.add(spot, made, "created", None).await?;
    }
    drop(spots);
    sites.leave().await;
    Ok(report.troubles.code())
}

/// Moves them; the code is 1 if one could not be moved.
pub(super) async fn mv(args: &MvArgs) -> anyhow::Result<u8> {
    let mut sites = Sites::new(&args.common.place, Plain::Chosen);
    let mut spots = spots(&mut sites, &args.paths).await?;
    let Some(target) = spots.pop() else { bail!("nothing to move") };
    if let Some(far) = spots.iter().find(|spot| !spot.is_on(&target.site)) {
        bail!(
            "{:?} and {:?} are on different machines: copy it with `exec-server cp -r`, then remove it with \
             `exec-server fs rm -r`",
            far.word(),
            target.word()
        );
    }
    let into = follow_is_directory(&target).await;
    if !into && (spots.len() > 1 || target.must_be_directory()) {
        bail!("{:?} is no directory: make it first with `exec-server fs mkdir`", target.word());
    }
    let options = RenameOptions { no_replace: args.no_clobber, links: LinkPolicy::Follow };
    let mut report = Report::new(args.common.json);
    for spot in &spots {
        let to = match (into, spot.path.file_name()) {
            (false, _) => target.path.clone(),
            (true, Some(name)) if !spot.names_contents() => target.path.join(name),
            (true, _) => bail!("{:?} has no name of its own: name the directory itself", spot.word()),
        };
        let moved = rename(spot, &to, options).await;
        report.add(spot, moved, "moved", Some(&to)).await?;
    }
    drop((spots, target));
    sites.leave().await;
    Ok(report.troubles.code())
}

/// The path an error is told with is the one that stood in the way.
async fn rename(spot: &Spot, to: &Path, options: RenameOptions) -> Result<(), FileError> {
    spot.files().rename(&spot.path, to, options).await.map_err(|error| match error.reason.name() {
        "EEXIST" | "ENOTEMPTY" | "EISDIR" => FileError { path: to.to_owned(), ..error },
        _ => error,
    })
}

/// Whether it is a directory itself, not a link to one.
async fn is_directory(spot: &Spot) -> bool {
    let found = spot.files().metadata(&spot.path, LinkPolicy::Follow).await;
    found.is_ok_and(|found| found.kind == FileKind::Directory && !found.is_symlink)
}

async fn follow_is_directory(spot: &Spot) -> bool {
    let found = spot.files().metadata(&spot.path, LinkPolicy::Follow).await;
    found.is_ok_and(|found| found.kind == FileKind::Directory)
}

/// What was done, and what could not be.
struct Report {
    json: bool,
    troubles: Troubles,
    paper: Paper,
}

impl Report {
    fn new(json: bool) -> Self {
        Self { json, troubles: Troubles::new(json), paper: Paper::new() }
    }

    async fn add(
        &mut self,
        spot: &Spot,
        outcome: Result<(), FileError>,
        event: &'static str,
        to: Option<&Path>,
    ) -> anyhow::Result<()> {
        match outcome {
            Err(error) => self.troubles.at(spot, &error),
            Ok(()) if self.json => {
                self.paper.put_json(&Line::of(event, spot, to))?;
                self.paper.flush().await
            }
            Ok(()) => Ok(()),
        }
    }
}
