//! `fs ls`: what is in directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use exec_env::files::{FileError, FileKind, Files, LinkPolicy, Metadata};
use futures_util::StreamExt;

use super::file_info::{self, FileJson, MetadataJson};
use super::{AT_ONCE, resolve_all};
use crate::args::LsArgs;
use crate::failures::Failures;
use crate::location::{BarePath, FilePath, Locations};
use crate::output::{StdoutBuffer, Text, escape_control};
use crate::{runtime, table};

/// Lists them; the code is 1 if one could not be listed.
pub(super) async fn ls(args: &LsArgs) -> anyhow::Result<u8> {
    let mut locations = Locations::new(&args.common.target, BarePath::Chosen);
    let files = resolve_all(&mut locations, &args.paths).await?;
    let mut failures = Failures::new(args.common.json);
    let mut stdout = StdoutBuffer::new();
    let several = files.len() > 1;
    for (number, file) in files.iter().enumerate() {
        match list(file, args, &stdout).await {
            Ok(rows) => {
                if several && !args.common.json {
                    let gap = if number > 0 { "\n" } else { "" };
                    stdout.push_str(gap);
                    stdout.push_untrusted(file.as_written().as_bytes());
                    stdout.push_str(":\n");
                }
                print(file, &rows, args, &mut stdout).await?;
            }
            Err(error) => failures.report_file_error(file, &error)?,
        }
    }
    stdout.flush().await?;
    drop(files);
    locations.close().await;
    Ok(failures.exit_code())
}

/// A name, and what is known of it.
struct ListedFile {
    name: Vec<u8>,
    kind: FileKind,
    is_symlink: bool,
    /// `None` if nobody asked, or it cannot be told: a link that leads nowhere, a file that vanished.
    metadata: Option<Metadata>,
    target: Option<Vec<u8>>,
}

async fn list(file: &FilePath, args: &LsArgs, stdout: &StdoutBuffer) -> Result<Vec<ListedFile>, FileError> {
    let entries = match file.files().read_directory(&file.path).await {
        // A file is its own listing, as everywhere.
        Err(error) if error.reason.name() == "ENOTDIR" => {
            let metadata = file.files().metadata(&file.path, LinkPolicy::Follow).await.map_err(|_| error)?;
            let target = link_target(file.files(), &file.path, metadata.is_symlink).await;
            let name = file.as_written().as_bytes().to_vec();
            return Ok(vec![ListedFile {
                name,
                kind: metadata.kind,
                is_symlink: metadata.is_symlink,
                metadata: Some(metadata),
                target,
            }]);
        }
        other => other?,
    };
    let wanted = entries.into_iter().filter(|entry| args.all || !entry.name.as_bytes().starts_with(b"."));
    let details = args.common.json || args.long || (stdout.is_terminal() && !args.one);
    let rows = wanted.map(|entry| async move {
        let path = file.path.join(&entry.name);
        let (metadata, target) = match details {
            true => (
                file.files().metadata(&path, LinkPolicy::Follow).await.ok(),
                link_target(file.files(), &path, entry.is_symlink).await,
            ),
            false => (None, None),
        };
        let name = entry.name.as_bytes().to_vec();
        ListedFile { name, kind: entry.kind, is_symlink: entry.is_symlink, metadata, target }
    });
    let mut rows: Vec<ListedFile> = futures_util::stream::iter(rows).buffer_unordered(AT_ONCE).collect().await;
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

/// What a link says.
async fn link_target(files: &dyn Files, path: &Path, is_symlink: bool) -> Option<Vec<u8>> {
    match is_symlink {
        true => files.read_link(path, LinkPolicy::Follow).await.ok().map(|text| text.as_os_str().as_bytes().to_vec()),
        false => None,
    }
}

async fn print(file: &FilePath, rows: &[ListedFile], args: &LsArgs, stdout: &mut StdoutBuffer) -> anyhow::Result<()> {
    if args.common.json {
        for row in rows {
            stdout.push_json(&FileJson {
                path: Text::name(file.path.join(OsStr::from_bytes(&row.name))),
                environment: Some(file.location.environment_id().to_owned()),
                kind: file_info::kind_name(row.kind),
                is_symlink: row.is_symlink,
                target: row.target.as_deref().map(Text::of),
                metadata: row.metadata.as_ref().map(MetadataJson::new),
                hash: None,
            })?;
            stdout.flush_if_full().await?;
        }
    } else if args.long || (stdout.is_terminal() && !args.one) {
        stdout.flush().await?;
        if !rows.is_empty() {
            let now_ms = runtime::now_ms();
            let rows = rows.iter().map(|row| table_row(row, now_ms)).collect();
            table::print(["MODE", "SIZE", "MODIFIED", "NAME"], rows).context("cannot print the table")?;
        }
    } else {
        for row in rows {
            stdout.push_untrusted(&row.name);
            stdout.push_str("\n");
            stdout.flush_if_full().await?;
        }
    }
    Ok(())
}

fn table_row(row: &ListedFile, now_ms: u64) -> [String; 4] {
    let mut name = escape_control(&row.name);
    if row.kind == FileKind::Directory && !row.is_symlink && !name.ends_with('/') {
        name.push('/');
    }
    if let Some(target) = &row.target {
        let nowhere = if row.metadata.is_none() { " (leads nowhere)" } else { "" };
        name += &format!(" -> {}{nowhere}", escape_control(target));
    }
    match &row.metadata {
        None => {
            let letter = if row.is_symlink { "l?????????" } else { "??????????" };
            [letter.to_owned(), "-".to_owned(), "-".to_owned(), name]
        }
        Some(metadata) => {
            let size = match metadata.kind {
                FileKind::File => table::size(metadata.size_bytes),
                _ => "-".to_owned(),
            };
            let modified_ms = u64::try_from(file_info::nanoseconds(metadata.modified) / 1_000_000).unwrap_or(0);
            [
                file_info::mode_string(metadata.kind, row.is_symlink, metadata.mode),
                size,
                table::ago(modified_ms, now_ms),
                name,
            ]
        }
    }
}
