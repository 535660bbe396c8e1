//! `fs ls`: what is in directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use exec_env::files::{FileError, FileKind, Files, LinkPolicy, Metadata};
use futures_util::StreamExt;

use super::known::{self, Facts, Line};
use super::{AT_ONCE, spots};
use crate::args::LsArgs;
use crate::paper::{Paper, Text, harmless};
use crate::site::{Plain, Sites, Spot};
use crate::trouble::Troubles;
use crate::{say, table};

/// Lists them; the code is 1 if one could not be listed.
pub(super) async fn ls(args: &LsArgs) -> anyhow::Result<u8> {
    let mut sites = Sites::new(&args.common.place, Plain::Chosen);
    let spots = spots(&mut sites, &args.paths).await?;
    let mut troubles = Troubles::new(args.common.json);
    let mut paper = Paper::new();
    let several = spots.len() > 1;
    for (number, spot) in spots.iter().enumerate() {
        match list(spot, args, &paper).await {
            Ok(rows) => {
                if several && !args.common.json {
                    let gap = if number > 0 { "\n" } else { "" };
                    paper.put(gap);
                    paper.put_foreign(spot.word().as_bytes());
                    paper.put(":\n");
                }
                print(spot, &rows, args, &mut paper).await?;
            }
            Err(error) => troubles.at(spot, &error)?,
        }
    }
    paper.flush().await?;
    drop(spots);
    sites.leave().await;
    Ok(troubles.code())
}

/// A name, and what is known of it.
struct Row {
    name: Vec<u8>,
    kind: FileKind,
    is_symlink: bool,
    /// `None` if nobody asked, or it cannot be told: a link that leads nowhere, a file that vanished.
    found: Option<Metadata>,
    target: Option<Vec<u8>>,
}

async fn list(spot: &Spot, args: &LsArgs, paper: &Paper) -> Result<Vec<Row>, FileError> {
    let entries = match spot.files().read_directory(&spot.path).await {
        // A file is its own listing, as everywhere.
        Err(error) if error.reason.name() == "ENOTDIR" => {
            let found = spot.files().metadata(&spot.path, LinkPolicy::Follow).await.map_err(|_| error)?;
            let target = target(spot.files(), &spot.path, found.is_symlink).await;
            let name = spot.word().as_bytes().to_vec();
            return Ok(vec![Row { name, kind: found.kind, is_symlink: found.is_symlink, found: Some(found), target }]);
        }
        other => other?,
    };
    let wanted = entries.into_iter().filter(|entry| args.all || !entry.name.as_bytes().starts_with(b"."));
    let details = args.common.json || args.long || (paper.is_for_a_person() && !args.one);
    let rows = wanted.map(|entry| async move {
        let path = spot.path.join(&entry.name);
        let (found, target) = match details {
            true => (
                spot.files().metadata(&path, LinkPolicy::Follow).await.ok(),
                target(spot.files(), &path, entry.is_symlink).await,
            ),
            false => (None, None),
        };
        let name = entry.name.as_bytes().to_vec();
        Row { name, kind: entry.kind, is_symlink: entry.is_symlink, found, target }
    });
    let mut rows: Vec<Row> = futures_util::stream::iter(rows).buffer_unordered(AT_ONCE).collect().await;
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

/// What a link says.
async fn target(files: &dyn Files, path: &Path, is_symlink: bool) -> Option<Vec<u8>> {
    match is_symlink {
        true => files.read_link(path, LinkPolicy::Follow).await.ok().map(|text| text.as_os_str().as_bytes().to_vec()),
        false => None,
    }
}

async fn print(spot: &Spot, rows: &[Row], args: &LsArgs, paper: &mut Paper) -> anyhow::Result<()> {
    if args.common.json {
        for row in rows {
            paper.put_json(&Line {
                path: Text::name(spot.path.join(OsStr::from_bytes(&row.name))),
                environment: Some(spot.site.environment().to_owned()),
                kind: known::kind(row.kind),
                is_symlink: row.is_symlink,
                target: row.target.as_deref().map(Text::of),
                facts: row.found.as_ref().map(Facts::of),
                hash: None,
            })?;
            paper.settle().await?;
        }
    } else if args.long || (paper.is_for_a_person() && !args.one) {
        paper.flush().await?;
        if !rows.is_empty() {
            let now_ms = say::now_ms();
            let rows = rows.iter().map(|row| cells(row, now_ms)).collect();
            table::print(["MODE", "SIZE", "MODIFIED", "NAME"], rows).context("cannot print the table")?;
        }
    } else {
        for row in rows {
            paper.put_foreign(&row.name);
            paper.put("\n");
            paper.settle().await?;
        }
    }
    Ok(())
}

fn cells(row: &Row, now_ms: u64) -> [String; 4] {
    let mut name = harmless(&row.name);
    if row.kind == FileKind::Directory && !row.is_symlink && !name.ends_with('/') {
        name.push('/');
    }
    if let Some(target) = &row.target {
        let nowhere = if row.found.is_none() { " (leads nowhere)" } else { "" };
        name += &format!(" -> {}{nowhere}", harmless(target));
    }
    match &row.found {
        None => {
            let letter = if row.is_symlink { "l?????????" } else { "??????????" };
            [letter.to_owned(), "-".to_owned(), "-".to_owned(), name]
        }
        Some(found) => {
            let size = match found.kind {
                FileKind::File => table::size(found.size_bytes),
                _ => "-".to_owned(),
            };
            let modified_ms = u64::try_from(known::nanoseconds(found.modified) / 1_000_000).unwrap_or(0);
            [known::mode(found.kind, row.is_symlink, found.mode), size, table::ago(modified_ms, now_ms), name]
        }
    }
}
