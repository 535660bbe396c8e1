//! `fs ls`: the entries of directories.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use exec_env::files::{DirectoryEntry, FileError, FileKind, FileReason, FileVerb, Files, LinkPolicy, Metadata};
use futures_util::StreamExt;

use super::file_info::{self, FileJson, MetadataJson};
use super::{AT_ONCE, with_files};
use crate::args::LsArgs;
use crate::location::FilePath;
use crate::output::{StdoutBuffer, os_text, visible};
use crate::{runtime, table};

pub(super) async fn ls(args: &LsArgs) -> anyhow::Result<u8> {
    with_files(&args.common, &args.paths, async |files, context| {
        let stdout = &mut context.stdout;
        let as_table = args.long || (stdout.is_terminal() && !args.one);
        for (number, file) in files.iter().enumerate() {
            match list(file, args, as_table).await {
                Ok(rows) => {
                    if files.len() > 1 && !args.common.json {
                        stdout.push(if number > 0 { "\n" } else { "" });
                        stdout.push_untrusted(file.as_written().as_bytes());
                        stdout.push(":\n");
                    }
                    print(file, &rows, args, as_table, stdout).await?;
                }
                Err(error) => context.failures.report_file_error(file, &error)?,
            }
        }
        Ok(())
    })
    .await
}

struct ListedFile {
    name: OsString,
    kind: FileKind,
    is_symlink: bool,
    /// `None` if it is not needed, or cannot be had: of a link that leads nowhere, of a file that vanished.
    metadata: Option<Metadata>,
    target: Option<PathBuf>,
}

async fn list(file: &FilePath, args: &LsArgs, as_table: bool) -> Result<Vec<ListedFile>, FileError> {
    let entries = match all_entries(file.files(), &file.path).await {
        // The listing of a file is the file itself.
        Err(error) if error.reason.name() == "ENOTDIR" => {
            let metadata = file.files().metadata(&file.path, LinkPolicy::Follow).await.map_err(|_| error)?;
            let Metadata { kind, is_symlink, .. } = metadata;
            let target = link_target(file.files(), &file.path, is_symlink).await;
            let name = file.as_written().to_owned();
            return Ok(vec![ListedFile { name, kind, is_symlink, metadata: Some(metadata), target }]);
        }
        other => other?,
    };
    let wanted = entries.into_iter().filter(|entry| args.all || !entry.name.as_bytes().starts_with(b"."));
    let needs_metadata = args.common.json || as_table;
    let rows = wanted.map(|entry| async move {
        let path = file.path.join(&entry.name);
        let (metadata, target) = match needs_metadata {
            true => (
                file.files().metadata(&path, LinkPolicy::Follow).await.ok(),
                link_target(file.files(), &path, entry.is_symlink).await,
            ),
            false => (None, None),
        };
        ListedFile { name: entry.name, kind: entry.kind, is_symlink: entry.is_symlink, metadata, target }
    });
    let mut rows: Vec<ListedFile> = futures_util::stream::iter(rows).buffer_unordered(AT_ONCE).collect().await;
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

/// Entries that are listed of one directory. Beyond, a table of them would take too much memory.
const LISTED_ENTRIES: usize = 1_000_000;

/// Entries that are asked for at once.
const PAGE_ENTRIES: usize = 16_384;

async fn all_entries(files: &dyn Files, path: &Path) -> Result<Vec<DirectoryEntry>, FileError> {
    let mut entries = Vec::new();
    let mut next: Option<OsString> = None;
    loop {
        let page = files.read_directory_page(path, next.as_deref(), PAGE_ENTRIES).await?;
        entries.extend(page.entries);
        next = page.next;
        if next.is_none() {
            return Ok(entries);
        }
        if entries.len() > LISTED_ENTRIES {
            let reason = FileReason::TooManyEntries { found: entries.len() };
            return Err(FileError::new(FileVerb::ReadDirectory, path, reason));
        }
    }
}

async fn link_target(files: &dyn Files, path: &Path, is_symlink: bool) -> Option<PathBuf> {
    match is_symlink {
        true => files.read_link(path, LinkPolicy::Follow).await.ok(),
        false => None,
    }
}

async fn print(
    file: &FilePath,
    rows: &[ListedFile],
    args: &LsArgs,
    as_table: bool,
    stdout: &mut StdoutBuffer,
) -> anyhow::Result<()> {
    if args.common.json {
        for row in rows {
            stdout.push_json(&FileJson {
                target: row.target.as_ref().map(os_text),
                metadata: row.metadata.as_ref().map(MetadataJson::new),
                ..FileJson::new(&file.location, &file.path.join(&row.name), row.kind, row.is_symlink)
            })?;
            stdout.flush_if_full().await?;
        }
    } else if as_table {
        stdout.flush().await?;
        if !rows.is_empty() {
            let now_ms = runtime::now_ms();
            let rows = rows.iter().map(|row| table_row(row, now_ms)).collect();
            table::print(["MODE", "SIZE", "MODIFIED", "NAME"], rows).context("cannot print the table")?;
        }
    } else {
        for row in rows {
            stdout.push_untrusted(row.name.as_bytes());
            stdout.push("\n");
            stdout.flush_if_full().await?;
        }
    }
    Ok(())
}

fn table_row(row: &ListedFile, now_ms: u64) -> [String; 4] {
    let mut name = visible(row.name.as_bytes());
    if row.kind == FileKind::Directory && !row.is_symlink && !name.ends_with('/') {
        name.push('/');
    }
    if let Some(target) = &row.target {
        let nowhere = if row.metadata.is_none() { " (leads nowhere)" } else { "" };
        name += &format!(" -> {}{nowhere}", visible(target.as_os_str().as_bytes()));
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
