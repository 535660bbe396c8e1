//! Walks that leave out what ignore files exclude, in a fixed order: for glob, and for search in contents.
//!
//! The walk goes by paths. Under a policy that is not enough: somebody may swap a directory for a link while it is listed.
//! So the walk then reads no ignore files itself, enters no directory that may not be read, and whoever gets a path from
//! it resolves that again under the policy before anything is told about it.

use std::path::Path;
use std::sync::Mutex;

use exec_env::files::limits::{WALK_BYTES, WALK_ENTRY_BYTES};
use exec_env::files::{FileError, FileReason, FileVerb, GlobMatches, GlobQuery, LinkPolicy};
use globset::{GlobBuilder, GlobSetBuilder};
use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use rustix::io::Errno;

use super::blocking::CancelFlag;
use super::policy::{CallPolicy, Wanted};
use super::resolve::{LastLink, ResolvedPath, open_directory, open_handle, os};
use super::watch::ignore_rules::IgnoreRules;

/// Which part of a tree is walked.
pub(super) struct WalkFilter<'a> {
    pub(super) policy: &'a CallPolicy,
    pub(super) root: &'a Path,
    /// `*.rs` includes, `!*.md` excludes.
    pub(super) globs: &'a [String],
    pub(super) ignore_files: bool,
    pub(super) hidden: bool,
    pub(super) follow_symlinks: bool,
    /// Levels below the root; `None`: all.
    pub(super) max_depth: Option<usize>,
}

/// Depth first, names sorted bytewise within each directory.
pub(super) fn filtered_walk(filter: &WalkFilter<'_>) -> Result<ignore::Walk, FileReason> {
    let mut overrides = OverrideBuilder::new(filter.root);
    for glob in filter.globs {
        overrides.add(glob).map_err(bad_pattern)?;
    }
    let overrides = overrides.build().map_err(bad_pattern)?;
    let restricted = filter.policy.is_restricted().then(|| RestrictedWalk::new(filter));
    Ok(WalkBuilder::new(filter.root)
        .standard_filters(filter.ignore_files && restricted.is_none())
        // Ignore files apply to their directory, whether it is in a repository or not.
        .require_git(false)
        .hidden(!filter.hidden)
        .follow_links(filter.follow_symlinks)
        .max_depth(filter.max_depth)
        .overrides(overrides)
        .sort_by_file_name(|a, b| a.as_encoded_bytes().cmp(b.as_encoded_bytes()))
        .filter_entry(move |entry| {
            let shown = entry.depth() == 0 || entry.file_name() != ".git";
            shown && restricted.as_ref().is_none_or(|restricted| restricted.shows(entry))
        })
        .build())
}

/// What a walk under a policy leaves out.
struct RestrictedWalk {
    policy: CallPolicy,
    /// Those of the directories that were entered, and of those above the root.
    ignore_rules: Option<Mutex<IgnoreRules>>,
    last: LastLink,
}

impl RestrictedWalk {
    fn new(filter: &WalkFilter<'_>) -> Self {
        let ignore_rules = filter.ignore_files.then(|| {
            let mut rules = IgnoreRules::below(Path::new("/"), filter.policy.clone());
            filter.root.ancestors().for_each(|directory| rules.load(directory));
            Mutex::new(rules)
        });
        let last = if filter.follow_symlinks { LastLink::Follow } else { LastLink::Keep };
        Self { policy: filter.policy.clone(), ignore_rules, last }
    }

    fn shows(&self, entry: &ignore::DirEntry) -> bool {
        if entry.depth() == 0 {
            return true;
        }
        let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
        if is_directory && open_directory(&self.policy, entry.path(), self.last).is_err() {
            return false;
        }
        let Some(rules) = &self.ignore_rules else { return true };
        let mut rules = rules.lock().expect("no holder of this lock panics");
        let shown = !rules.is_ignored(entry.path(), is_directory);
        if shown && is_directory {
            rules.load(entry.path());
        }
        shown
    }
}

/// Whether the caller may see that there is something at `path`.
fn is_visible(policy: &CallPolicy, path: &Path) -> bool {
    !policy.is_restricted() || look_at(policy, path).is_ok()
}

/// Fails as a call would that looks at what is at `path`.
pub(super) fn look_at(policy: &CallPolicy, path: &Path) -> Result<(), Errno> {
    ResolvedPath::resolve(policy, path, LinkPolicy::Follow)?.stat().map(drop)
}

pub(super) fn glob(policy: &CallPolicy, query: &GlobQuery, cancel: &CancelFlag) -> Result<GlobMatches, FileError> {
    let failed = |reason| FileError::new(FileVerb::Glob, query.root.clone(), reason);
    open_handle(policy, &query.root, LinkPolicy::Follow, Wanted::Read).map_err(|errno| failed(os(errno)))?;
    let mut patterns = GlobSetBuilder::new();
    for pattern in &query.patterns {
        let pattern =
            GlobBuilder::new(pattern).literal_separator(true).build().map_err(|error| failed(bad_pattern(error)))?;
        patterns.add(pattern);
    }
    let patterns = patterns.build().map_err(|error| failed(bad_pattern(error)))?;
    let tree = filtered_walk(&WalkFilter {
        policy,
        root: &query.root,
        globs: &[],
        ignore_files: query.ignore_files,
        hidden: query.hidden,
        follow_symlinks: false,
        max_depth: deepest(&query.patterns),
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
        if below.as_os_str().is_empty() || !patterns.is_match(below) || !is_visible(policy, entry.path()) {
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

/// How deep a path that matches can be. Below that nothing needs to be walked.
fn deepest(patterns: &[String]) -> Option<usize> {
    let depth = |pattern: &String| (!pattern.contains("**")).then(|| pattern.matches('/').count() + 1);
    patterns.iter().map(depth).try_fold(0, |deepest, depth| Some(deepest.max(depth?)))
}

pub(super) fn bad_pattern(error: impl std::fmt::Display) -> FileReason {
    FileReason::BadPattern { why: error.to_string() }
}
