//! Trees as people mean them: without what ignore files leave out, in a fixed order. For search and glob.

use std::path::Path;

use exec_env::files::{FileError, FileReason, FileVerb, GlobMatches, GlobQuery};
use globset::{GlobBuilder, GlobSetBuilder};
use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use rustix::io::Errno;

use super::blocking::CancelFlag;
use super::resolve::os;

/// What of a tree is wanted.
pub(super) struct WalkFilter<'a> {
    pub(super) root: &'a Path,
    /// `*.rs` takes, `!*.md` leaves out.
    pub(super) globs: &'a [String],
    pub(super) ignore_files: bool,
    pub(super) hidden: bool,
    pub(super) follow_symlinks: bool,
}

/// A walk over it, depth first, names sorted bytewise within each directory.
pub(super) fn filtered_walk(filter: &WalkFilter<'_>) -> Result<ignore::Walk, FileReason> {
    let mut overrides = OverrideBuilder::new(filter.root);
    for glob in filter.globs {
        overrides.add(glob).map_err(bad_pattern)?;
    }
    let overrides = overrides.build().map_err(bad_pattern)?;
    Ok(WalkBuilder::new(filter.root)
        .standard_filters(filter.ignore_files)
        // Ignore files count where they lie, with a repository around them or without.
        .require_git(false)
        .hidden(!filter.hidden)
        .follow_links(filter.follow_symlinks)
        .overrides(overrides)
        .sort_by_file_name(|a, b| a.as_encoded_bytes().cmp(b.as_encoded_bytes()))
        .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git")
        .build())
}

/// The paths below a root that match.
pub(super) fn glob(query: &GlobQuery, cancel: &CancelFlag) -> Result<GlobMatches, FileError> {
    let failed = |reason| FileError::new(FileVerb::Glob, query.root.clone(), reason);
    rustix::fs::stat(&query.root).map_err(|errno| failed(os(errno)))?;
    let mut patterns = GlobSetBuilder::new();
    for pattern in &query.patterns {
        let pattern =
            GlobBuilder::new(pattern).literal_separator(true).build().map_err(|error| failed(bad_pattern(error)))?;
        patterns.add(pattern);
    }
    let patterns = patterns.build().map_err(|error| failed(bad_pattern(error)))?;
    let tree = filtered_walk(&WalkFilter {
        root: &query.root,
        globs: &[],
        ignore_files: query.ignore_files,
        hidden: query.hidden,
        follow_symlinks: false,
    })
    .map_err(failed)?;
    let mut matches = GlobMatches::default();
    // What cannot be read cannot match; a glob tells what there is, not what might be.
    for entry in tree.flatten() {
        if cancel.is_set() {
            return Err(failed(os(Errno::CANCELED)));
        }
        let Ok(below) = entry.path().strip_prefix(&query.root) else {
            continue;
        };
        if below.as_os_str().is_empty() || !patterns.is_match(below) {
            continue;
        }
        if matches.paths.len() >= query.max_paths {
            matches.truncated = true;
            break;
        }
        matches.paths.push(entry.into_path());
    }
    Ok(matches)
}

/// What a walk could not read, as our own error.
pub(super) fn walk_error(error: ignore::Error, verb: FileVerb, root: &Path) -> FileError {
    let path = path_of(&error).unwrap_or(root).to_owned();
    let reason = match error.io_error().and_then(std::io::Error::raw_os_error) {
        Some(errno) => FileReason::Os(errno),
        // Links that lead in a circle, or an ignore file with a line that does not parse.
        None if is_loop(&error) => os(Errno::LOOP),
        None => bad_pattern(error),
    };
    FileError::new(verb, path, reason)
}

fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::Loop { child, .. } => Some(child),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => path_of(err),
        _ => None,
    }
}

fn is_loop(error: &ignore::Error) -> bool {
    match error {
        ignore::Error::Loop { .. } => true,
        ignore::Error::WithPath { err, .. }
        | ignore::Error::WithDepth { err, .. }
        | ignore::Error::WithLineNumber { err, .. } => is_loop(err),
        _ => false,
    }
}

fn bad_pattern(error: impl std::fmt::Display) -> FileReason {
    FileReason::BadPattern { why: error.to_string() }
}
