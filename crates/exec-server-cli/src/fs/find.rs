//! `fs find`: paths by pattern and kind.
//!
//! A search for files or directories without a pattern is one walk, which tells kinds for free. Everything else is a
//! glob, and a look at each path where its kind matters.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use exec_env::files::{FileError, FileKind, GlobQuery, LinkPolicy, WalkKind, WalkOptions, limits};
use futures_util::StreamExt;
use serde::Serialize;

use super::{AT_ONCE, known};
use crate::args::{FindArgs, FindKind};
use crate::paper::{Paper, Text};
use crate::site::{Plain, Sites, Spot};
use crate::trouble::Troubles;

/// Finds them; the code is 1 if not everything could be looked at.
pub(super) async fn find(args: &FindArgs) -> anyhow::Result<u8> {
    let mut sites = Sites::new(&args.common.place, Plain::Chosen);
    let spot = sites.spot(&args.path).await?;
    let mut troubles = Troubles::new(args.common.json);
    let mut news = sites.news(false);
    let looked = match can_walk(args) {
        true => news.during(walk(&spot, args)).await,
        false => news.during(glob(&spot, args)).await,
    };
    match looked {
        Err(error) => troubles.at(&spot, &error)?,
        Ok(found) => {
            let told = news.during(print(&spot, args, &found)).await;
            told?;
            for error in &found.errors {
                troubles.at(&spot, error)?;
            }
            if found.truncated {
                let message = format!(
                    "stopped after {} paths, and there are more: look below a smaller directory, narrow it with -g, or \
                     raise --limit",
                    found.paths.len()
                );
                troubles.tell("truncated", &message)?;
            }
        }
    }
    drop(spot);
    sites.leave().await;
    Ok(troubles.code())
}

/// What was found; kinds where they came for free.
struct FoundPaths {
    paths: Vec<(PathBuf, Option<FileKind>)>,
    errors: Vec<FileError>,
    truncated: bool,
}

/// A walk knows no patterns, no ignore files and no links.
fn can_walk(args: &FindArgs) -> bool {
    let by_kind = matches!(args.kind, Some(FindKind::F | FindKind::D));
    by_kind && args.globs.is_empty() && !args.ignore && !args.no_hidden
}

async fn walk(spot: &Spot, args: &FindArgs) -> Result<FoundPaths, FileError> {
    let options = WalkOptions {
        max_depth: limits::WALK_DEPTH,
        max_directories: limits::WALK_DIRECTORIES,
        max_entries: limits::WALK_ENTRIES,
        follow_directory_symlinks: false,
        prune_hidden_directories: false,
    };
    let walk = spot.files().walk(&spot.path, options).await?;
    let wanted = match args.kind {
        Some(FindKind::D) => WalkKind::Directory,
        _ => WalkKind::File,
    };
    let mut paths: Vec<_> = walk.entries.into_iter().filter(|entry| entry.kind == wanted).collect();
    // As a glob would have it: depth first.
    paths.sort_by(|a, b| a.path.cmp(&b.path));
    let truncated = walk.truncated || paths.len() > args.limit;
    paths.truncate(args.limit);
    let kind = match wanted {
        WalkKind::Directory => FileKind::Directory,
        WalkKind::File => FileKind::File,
    };
    let paths = paths.into_iter().map(|entry| (entry.path, Some(kind))).collect();
    Ok(FoundPaths { paths, errors: walk.errors, truncated })
}

async fn glob(spot: &Spot, args: &FindArgs) -> Result<FoundPaths, FileError> {
    let patterns = match args.globs.is_empty() {
        true => vec!["**".to_owned()],
        false => args.globs.iter().map(|glob| anywhere(glob)).collect(),
    };
    let query = GlobQuery {
        root: spot.path.clone(),
        patterns,
        ignore_files: args.ignore,
        hidden: !args.no_hidden,
        max_paths: args.limit,
    };
    let found = spot.files().glob(query).await?;
    let paths = found.paths.into_iter().map(|path| (path, None)).collect();
    Ok(FoundPaths { paths, errors: Vec::new(), truncated: found.truncated })
}

/// A pattern without a slash is about the name, wherever it is.
fn anywhere(glob: &str) -> String {
    match glob.contains('/') {
        true => glob.trim_start_matches("./").to_owned(),
        false => format!("**/{glob}"),
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    path: Text,
    environment: &'a str,
    /// Of a link, what it leads to.
    kind: &'static str,
    is_symlink: bool,
}

async fn print(spot: &Spot, args: &FindArgs, found: &FoundPaths) -> anyhow::Result<()> {
    let mut paper = Paper::new();
    let must_look = args.common.json || args.kind.is_some();
    let looks = found.paths.iter().map(|(path, known)| async move {
        match known {
            Some(kind) => (path, Some((*kind, false))),
            None if !must_look => (path, None),
            None => (path, Some(look(spot, path).await)),
        }
    });
    // In order, so that what is found comes sorted.
    let mut looks = futures_util::stream::iter(looks).buffered(AT_ONCE);
    while let Some((path, seen)) = looks.next().await {
        let (kind, is_symlink) = seen.unwrap_or((FileKind::File, false));
        let wanted = match args.kind {
            None => true,
            Some(FindKind::L) => is_symlink,
            Some(FindKind::F) => kind == FileKind::File && !is_symlink,
            Some(FindKind::D) => kind == FileKind::Directory && !is_symlink,
        };
        if !wanted {
            continue;
        }
        match args.common.json {
            true => paper.put_json(&Line {
                path: Text::name(path),
                environment: spot.site.environment(),
                kind: known::kind(kind),
                is_symlink,
            })?,
            false => {
                paper.put_foreign(spot.shown(path).as_bytes());
                paper.put("\n");
            }
        }
        paper.settle().await?;
    }
    paper.flush().await
}

/// What is there. A link that leads nowhere cannot be looked at, but is there.
async fn look(spot: &Spot, path: &std::path::Path) -> (FileKind, bool) {
    match spot.files().metadata(path, LinkPolicy::Follow).await {
        Ok(found) => (found.kind, found.is_symlink),
        Err(_) => (FileKind::Symlink, true),
    }
}

#[cfg(test)]
mod tests {
    use super::anywhere;

    #[test]
    fn a_pattern_without_a_slash_matches_at_any_depth() {
        assert_eq!(["*.rs", "src/*.rs", "./a/*"].map(anywhere), ["**/*.rs", "src/*.rs", "a/*"]);
    }
}
