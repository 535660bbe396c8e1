//! `fs find`: paths by pattern and kind.
//!
//! A search for files or directories without a pattern is one walk, which returns kinds as well. Everything else is a glob,
//! and a call for each path whose kind matters.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use exec_env::files::{
    FileError, FileKind, FileReason, GlobQuery, LinkPolicy, WalkEntry, WalkItem, WalkKind, WalkOptions, limits,
};
use futures_util::StreamExt;
use libc::ENOSYS;

use super::file_info::FileJson;
use super::{AT_ONCE, with_files};
use crate::args::{FindArgs, FindKind};
use crate::location::FilePath;
use crate::output::StdoutBuffer;

/// The exit code is 1 if a part could not be searched, or there are more paths than the limit.
pub(super) async fn find(args: &FindArgs) -> anyhow::Result<u8> {
    with_files(&args.common, std::slice::from_ref(&args.path), async |files, context| {
        let file = &files[0];
        let searched = match can_walk(args) {
            true => context.links.report_during(walk(file, args)).await,
            false => context.links.report_during(glob(file, args)).await,
        };
        let found = match searched {
            Ok(found) => found,
            Err(error) => return context.failures.report_file_error(file, &error),
        };
        context.links.report_during(print(file, args, &found, &mut context.stdout)).await?;
        for error in &found.errors {
            context.failures.report_file_error(file, error)?;
        }
        if found.truncated {
            let message = format!(
                "stopped after {} paths, and there are more: look below a smaller directory, narrow it with -g, or \
                 raise --limit",
                found.paths.len()
            );
            context.failures.report("truncated", &message)?;
        }
        Ok(())
    })
    .await
}

/// What was found; with kinds, where they are known without further calls.
struct FoundPaths {
    paths: Vec<(PathBuf, Option<FileKind>)>,
    errors: Vec<FileError>,
    truncated: bool,
}

/// A walk supports no patterns, no ignore files and no links.
fn can_walk(args: &FindArgs) -> bool {
    let by_kind = matches!(args.kind, Some(FindKind::F | FindKind::D));
    by_kind && args.globs.is_empty() && !args.ignore && !args.no_hidden
}

async fn walk(file: &FilePath, args: &FindArgs) -> Result<FoundPaths, FileError> {
    let options = WalkOptions {
        max_depth: limits::WALK_DEPTH,
        max_directories: limits::WALK_DIRECTORIES,
        max_entries: limits::WALK_ENTRIES,
        follow_directory_symlinks: false,
        prune_hidden_directories: false,
    };
    let wanted = match args.kind {
        Some(FindKind::D) => WalkKind::Directory,
        _ => WalkKind::File,
    };
    let (entries, errors, truncated) = match walk_in_pages(file, options, wanted, args.limit).await {
        // A server that has no pages.
        Err(error) if error.reason == FileReason::Os(ENOSYS) => {
            let walk = file.files().walk(&file.path, options).await?;
            let truncated = walk.truncated;
            let (entries, errors) = walk.into_parts();
            (entries, errors, truncated)
        }
        walked => walked?,
    };
    let mut paths: Vec<_> = entries.into_iter().filter(|entry| entry.kind == wanted).collect();
    // In the order of a glob: depth first.
    paths.sort_by(|a, b| a.path.cmp(&b.path));
    let truncated = truncated || paths.len() > args.limit;
    paths.truncate(args.limit);
    let kind = match wanted {
        WalkKind::Directory => FileKind::Directory,
        WalkKind::File => FileKind::File,
    };
    let paths = paths.into_iter().map(|entry| (entry.path, Some(kind))).collect();
    Ok(FoundPaths { paths, errors, truncated })
}

/// Walks until there are more entries than wanted, and no further: a tree may have no end.
async fn walk_in_pages(
    file: &FilePath,
    options: WalkOptions,
    wanted: WalkKind,
    limit: usize,
) -> Result<(Vec<WalkEntry>, Vec<FileError>, bool), FileError> {
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    let mut next = None;
    loop {
        let page = file.files().walk_page(&file.path, options, next).await?;
        for item in page.items {
            match item {
                WalkItem::Entry(entry) if entry.kind == wanted => entries.push(entry),
                WalkItem::Entry(_) => {}
                WalkItem::Unreadable(error) => errors.push(error),
            }
        }
        next = page.next;
        if next.is_none() || entries.len() > limit || errors.len() > limits::WALK_ENTRIES {
            return Ok((entries, errors, next.is_some()));
        }
    }
}

async fn glob(file: &FilePath, args: &FindArgs) -> Result<FoundPaths, FileError> {
    let patterns = match args.globs.is_empty() {
        true => vec!["**".to_owned()],
        false => args.globs.iter().map(|glob| at_any_depth(glob)).collect(),
    };
    let query = GlobQuery {
        root: file.path.clone(),
        patterns,
        ignore_files: args.ignore,
        hidden: !args.no_hidden,
        max_paths: args.limit,
    };
    let found = file.files().glob(query).await?;
    let truncated = found.truncated || found.paths.len() > args.limit;
    let paths = found.paths.into_iter().take(args.limit).map(|path| (path, None)).collect();
    Ok(FoundPaths { paths, errors: Vec::new(), truncated })
}

/// A pattern without a slash is matched with the name alone, at any depth.
fn at_any_depth(glob: &str) -> String {
    match glob.contains('/') {
        true => glob.trim_start_matches("./").to_owned(),
        false => format!("**/{glob}"),
    }
}

async fn print(file: &FilePath, args: &FindArgs, found: &FoundPaths, stdout: &mut StdoutBuffer) -> anyhow::Result<()> {
    let needs_kind = args.common.json || args.kind.is_some();
    let lookups = found.paths.iter().map(|(path, known)| async move {
        match known {
            Some(kind) => (path, Some((*kind, false))),
            None if !needs_kind => (path, None),
            None => (path, Some(kind_of(file, path).await)),
        }
    });
    // In order, so that the output stays sorted.
    let mut lookups = futures_util::stream::iter(lookups).buffered(AT_ONCE);
    while let Some((path, kind)) = lookups.next().await {
        let (kind, is_symlink) = kind.unwrap_or((FileKind::File, false));
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
            true => stdout.push_json(&FileJson::new(&file.location, path, kind, is_symlink))?,
            false => {
                stdout.push_untrusted(file.display_path(path).as_bytes());
                stdout.push("\n");
            }
        }
        stdout.flush_if_full().await?;
    }
    stdout.flush().await
}

/// The kind, and whether it is a link. There is no metadata of a link that leads nowhere.
async fn kind_of(file: &FilePath, path: &std::path::Path) -> (FileKind, bool) {
    match file.files().metadata(path, LinkPolicy::Follow).await {
        Ok(found) => (found.kind, found.is_symlink),
        Err(_) => (FileKind::Symlink, true),
    }
}

#[cfg(test)]
mod tests {
    use super::at_any_depth;

    #[test]
    fn a_pattern_without_a_slash_matches_at_any_depth() {
        assert_eq!(["*.rs", "src/*.rs", "./a/*"].map(at_any_depth), ["**/*.rs", "src/*.rs", "a/*"]);
    }
}
