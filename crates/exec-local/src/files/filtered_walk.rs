//! Walks that leave out what ignore files exclude, in a fixed order: for glob, and for search in contents.

use std::path::Path;

use exec_env::files::limits::{WALK_BYTES, WALK_ENTRY_BYTES};
use exec_env::files::{FileError, FileReason, FileVerb, GlobMatches, GlobQuery};
use globset::{GlobBuilder, GlobSetBuilder};
use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use rustix::io::Errno;

use super::blocking::CancelFlag;
use super::resolve::os;

/// Which part of a tree is walked.
pub(super) struct WalkFilter<'a> {
    pub(super) root: &'a Path,
    /// `*.rs` includes, `!*.md` excludes.
    pub(super) globs: &'a [String],
    pub(super) ignore_files: bool,
    pub(super) hidden: bool,
    pub(super) follow_symlinks: bool,
}

/// Depth first, names sorted bytewise within each directory.
pub(super) fn filtered_walk(filter: &WalkFilter<'_>) -> Result<ignore::Walk, FileReason> {
    let mut overrides = OverrideBuilder::new(filter.root);
    for glob in filter.globs {
        overrides.add(glob).map_err(bad_pattern)?;
    }
    let overrides = overrides.build().map_err(bad_pattern)?;
    Ok(WalkBuilder::new(filter.root)
        .standard_filters(filter.ignore_files)
        // Ignore files apply to their directory, whether it is in a repository or not.
        .require_git(false)
        .hidden(!filter.hidden)
        .follow_links(filter.follow_symlinks)
        .overrides(overrides)
        .sort_by_file_name(|a, b| a.as_encoded_bytes().cmp(b.as_encoded_bytes()))
        .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git")
        .build())
}

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
    let (mut matches, mut bytes) = (GlobMatches::default(), 0);
    // Errors are skipped: a directory that cannot be read has no paths to report.
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
        bytes += entry.path().as_os_str().len() + WALK_ENTRY_BYTES;
        if matches.paths.len() >= query.max_paths || bytes > WALK_BYTES {
            matches.truncated = true;
            break;
        }
        matches.paths.push(entry.into_path());
    }
    Ok(matches)
}

pub(super) fn bad_pattern(error: impl std::fmt::Display) -> FileReason {
    FileReason::BadPattern { why: error.to_string() }
}
