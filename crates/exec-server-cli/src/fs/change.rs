//! `fs rm`, `fs mkdir`, `fs mv`: what changes names. Each is done path by path; one that fails does not stop the others.

use std::path::Path;

use anyhow::bail;
use exec_env::files::{CreateDirectoryOptions, FileError, FileKind, LinkPolicy, RemoveOptions, RenameOptions};
use serde::Serialize;

use super::resolve_all;
use crate::args::{MkdirArgs, MvArgs, RmArgs};
use crate::failures::Failures;
use crate::location::{BarePath, FilePath, Locations};
use crate::output::{StdoutBuffer, Text};

/// One thing that was done.
#[derive(Debug, Serialize)]
struct ChangeJson {
    event: &'static str,
    environment: String,
    path: Text,
    /// The new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Text>,
}

impl ChangeJson {
    fn new(event: &'static str, file: &FilePath, to: Option<&Path>) -> Self {
        let environment = file.location.environment_id().to_owned();
        Self { event, environment, path: Text::name(&file.path), to: to.map(Text::name) }
    }
}

/// Removes them; the code is 1 if one could not be removed.
pub(super) async fn rm(args: &RmArgs) -> anyhow::Result<u8> {
    let mut locations = Locations::new(&args.common.target, BarePath::Chosen);
    let files = resolve_all(&mut locations, &args.paths).await?;
    for file in &files {
        if file.names_contents() {
            bail!("refused to remove {:?}: name the directory itself, by its full name", file.as_written());
        }
    }
    let options = RemoveOptions { recursive: args.recursive, force: args.force, links: LinkPolicy::Follow };
    let mut report = ChangeReport::new(args.common.json);
    for file in &files {
        // Empty directories go without it in the waist; people expect to have to say it, as with rm.
        let removed = match !args.recursive && is_directory(file).await {
            true => {
                let message = format!("cannot remove {:?}: it is a directory: say -r", file.as_written());
                report.failures.report("EISDIR", &message)?;
                continue;
            }
            false => file.files().remove(&file.path, options).await,
        };
        report.add(file, removed, "removed", None).await?;
    }
    drop(files);
    locations.close().await;
    Ok(report.failures.exit_code())
}

/// Makes them; the code is 1 if one could not be made.
pub(super) async fn mkdir(args: &MkdirArgs) -> anyhow::Result<u8> {
    let mut locations = Locations::new(&args.common.target, BarePath::Chosen);
    let files = resolve_all(&mut locations, &args.paths).await?;
    let options = CreateDirectoryOptions { recursive: args.parents, links: LinkPolicy::Follow, mode: args.mode };
    let mut report = ChangeReport::new(args.common.json);
    for file in &files {
        let made = file.files().create_directory(&file.path, options).await;
        report.add(file, made, "created", None).await?;
    }
    drop(files);
    locations.close().await;
    Ok(report.failures.exit_code())
}

/// Moves them; the code is 1 if one could not be moved.
pub(super) async fn mv(args: &MvArgs) -> anyhow::Result<u8> {
    let mut locations = Locations::new(&args.common.target, BarePath::Chosen);
    let mut files = resolve_all(&mut locations, &args.paths).await?;
    let Some(target) = files.pop() else { bail!("nothing to move") };
    if let Some(elsewhere) = files.iter().find(|file| !file.is_on(&target.location)) {
        bail!(
            "{:?} and {:?} are on different machines: copy it with `exec-server cp -r`, then remove it with \
             `exec-server fs rm -r`",
            elsewhere.as_written(),
            target.as_written()
        );
    }
    let into = leads_to_directory(&target).await;
    if !into && (files.len() > 1 || target.must_be_directory()) {
        bail!("{:?} is no directory: make it first with `exec-server fs mkdir`", target.as_written());
    }
    let options = RenameOptions { no_replace: args.no_clobber, links: LinkPolicy::Follow };
    let mut report = ChangeReport::new(args.common.json);
    for file in &files {
        let to = match (into, file.path.file_name()) {
            (false, _) => target.path.clone(),
            (true, Some(name)) if !file.names_contents() => target.path.join(name),
            (true, _) => bail!("{:?} has no name of its own: name the directory itself", file.as_written()),
        };
        let moved = rename(file, &to, options).await;
        report.add(file, moved, "moved", Some(&to)).await?;
    }
    drop((files, target));
    locations.close().await;
    Ok(report.failures.exit_code())
}

/// The path an error is told with is the one that stood in the way.
async fn rename(file: &FilePath, to: &Path, options: RenameOptions) -> Result<(), FileError> {
    file.files().rename(&file.path, to, options).await.map_err(|error| match error.reason.name() {
        "EEXIST" | "ENOTEMPTY" | "EISDIR" => FileError { path: to.to_owned(), ..error },
        _ => error,
    })
}

/// Whether it is a directory itself, not a link to one.
async fn is_directory(file: &FilePath) -> bool {
    let metadata = file.files().metadata(&file.path, LinkPolicy::Follow).await;
    metadata.is_ok_and(|metadata| metadata.kind == FileKind::Directory && !metadata.is_symlink)
}

async fn leads_to_directory(file: &FilePath) -> bool {
    let metadata = file.files().metadata(&file.path, LinkPolicy::Follow).await;
    metadata.is_ok_and(|metadata| metadata.kind == FileKind::Directory)
}

/// What was done, and what could not be.
struct ChangeReport {
    json: bool,
    failures: Failures,
    stdout: StdoutBuffer,
}

impl ChangeReport {
    fn new(json: bool) -> Self {
        Self { json, failures: Failures::new(json), stdout: StdoutBuffer::new() }
    }

    async fn add(
        &mut self,
        file: &FilePath,
        outcome: Result<(), FileError>,
        event: &'static str,
        to: Option<&Path>,
    ) -> anyhow::Result<()> {
        match outcome {
            Err(error) => self.failures.report_file_error(file, &error),
            Ok(()) if self.json => {
                self.stdout.push_json(&ChangeJson::new(event, file, to))?;
                self.stdout.flush().await
            }
            Ok(()) => Ok(()),
        }
    }
}
