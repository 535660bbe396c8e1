//! `fs rm`, `fs mkdir`, `fs mv`: the commands that change names. A path that fails does not stop the others.

use std::path::Path;

use anyhow::bail;
use exec_env::files::{
    CreateDirectoryOptions, FileError, FileKind, LinkPolicy, Metadata, RemoveOptions, RenameOptions,
};
use exec_wire::text::OsText;
use serde::Serialize;

use super::{FsContext, with_files};
use crate::args::{MkdirArgs, MvArgs, RmArgs};
use crate::location::FilePath;
use crate::output::os_text;
use crate::{exit_code, messages};

/// One change that was made.
#[derive(Debug, Serialize)]
struct ChangeJson<'a> {
    event: &'static str,
    environment: &'a str,
    path: OsText,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<OsText>,
}

pub(super) async fn rm(args: &RmArgs) -> anyhow::Result<u8> {
    with_files(&args.common, &args.paths, async |files, context| {
        for file in files {
            if file.names_contents() {
                bail!("refused to remove {:?}: name the directory itself, by its full name", file.as_written());
            }
        }
        let options = RemoveOptions { recursive: args.recursive, force: args.force, links: LinkPolicy::Follow };
        for file in files {
            // `Files::remove` removes empty directories without `recursive`; users of rm expect to need -r.
            if !args.recursive && directory(file).await.is_some_and(|metadata| !metadata.is_symlink) {
                let message = format!("cannot remove {:?}: it is a directory: say -r", file.as_written());
                context.failures.report("EISDIR", &message)?;
                continue;
            }
            let removed = file.files().remove(&file.path, options).await;
            report(context, file, removed, "removed", None).await?;
        }
        Ok(())
    })
    .await
}

pub(super) async fn mkdir(args: &MkdirArgs) -> anyhow::Result<u8> {
    with_files(&args.common, &args.paths, async |files, context| {
        let options = CreateDirectoryOptions { recursive: args.parents, links: LinkPolicy::Follow, mode: args.mode };
        for file in files {
            let created = file.files().create_directory(&file.path, options).await;
            report(context, file, created, "created", None).await?;
        }
        Ok(())
    })
    .await
}

pub(super) async fn mv(args: &MvArgs) -> anyhow::Result<u8> {
    // Not left to clap, which would want two paths on either side of an option.
    if args.paths.len() < 2 {
        messages::print_note("name what to move, and where to: see `exec-server fs mv --help`");
        return Ok(exit_code::USAGE_ERROR);
    }
    with_files(&args.common, &args.paths, async |files, context| {
        let Some((target, files)) = files.split_last() else { bail!("nothing to move") };
        if let Some(elsewhere) = files.iter().find(|file| !file.is_on(&target.location)) {
            bail!(
                "{:?} and {:?} are on different machines: copy it with `exec-server cp -r`, then remove it with \
                 `exec-server fs rm -r`",
                elsewhere.as_written(),
                target.as_written()
            );
        }
        let into = directory(target).await.is_some();
        if !into && (files.len() > 1 || target.must_be_directory()) {
            bail!("{:?} is no directory: make it first with `exec-server fs mkdir`", target.as_written());
        }
        let options = RenameOptions { no_replace: args.no_clobber, links: LinkPolicy::Follow };
        for file in files {
            let to = match (into, file.path.file_name()) {
                (false, _) => target.path.clone(),
                (true, Some(name)) if !file.names_contents() => target.path.join(name),
                (true, _) => bail!("{:?} has no name of its own: name the directory itself", file.as_written()),
            };
            let moved = rename(file, &to, options).await;
            report(context, file, moved, "moved", Some(&to)).await?;
        }
        Ok(())
    })
    .await
}

/// Renames. If the new name is the obstacle, the error is about that path.
async fn rename(file: &FilePath, to: &Path, options: RenameOptions) -> Result<(), FileError> {
    file.files().rename(&file.path, to, options).await.map_err(|error| match error.reason.name() {
        "EEXIST" | "ENOTEMPTY" | "EISDIR" => FileError { path: to.to_owned(), ..error },
        _ => error,
    })
}

/// The metadata of a directory, or of a link to one; `None` for everything else.
async fn directory(file: &FilePath) -> Option<Metadata> {
    let metadata = file.files().metadata(&file.path, LinkPolicy::Follow).await;
    metadata.ok().filter(|metadata| metadata.kind == FileKind::Directory)
}

pub(super) async fn report(
    context: &mut FsContext,
    file: &FilePath,
    outcome: Result<(), FileError>,
    event: &'static str,
    to: Option<&Path>,
) -> anyhow::Result<()> {
    match outcome {
        Err(error) => context.failures.report_file_error(file, &error),
        Ok(()) if context.json => {
            let environment = file.location.environment_id();
            context.stdout.push_json(&ChangeJson {
                event,
                environment,
                path: os_text(&file.path),
                to: to.map(os_text),
            })?;
            context.stdout.flush().await
        }
        Ok(()) => Ok(()),
    }
}
