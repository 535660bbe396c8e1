//! Walks that leave out what ignore files exclude, in a fixed order: for glob, and for search in contents.
//!
//! The walk goes by paths. Under a policy that is not enough: somebody may swap a directory for a link while it is listed.
//! So the walk then enters no directory that may not be read, and whoever gets a path from it resolves that again under the
//! policy before anything is told about it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use exec_env::files::limits::{WALK_BYTES, WALK_ENTRY_BYTES};
use exec_env::files::{FileError, FileReason, FileVerb, GlobMatches, GlobQuery, LinkPolicy};
use exec_env::view::PATTERN_BYTES;
use globset::{GlobBuilder, GlobSetBuilder};
use ignore::gitignore::Gitignore;
use ignore::overrides::{Override, OverrideBuilder};
use ignore::{DirEntry, Match, WalkBuilder};
use rustix::io::Errno;

use super::blocking::CancelFlag;
use super::path_ops::canonicalize;
use super::policy::{CallPolicy, Wanted};
use super::resolve::{LastLink, ResolvedPath, open_directory, open_handle, os};
use super::watch::ignore_rules::{self, DirectoryRules, Verdict};

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
    check_pattern_bytes(filter.globs)?;
    for glob in filter.globs {
        overrides.add(glob).map_err(bad_pattern)?;
    }
    let entries = EntryFilter {
        policy: filter.policy.clone(),
        last: if filter.follow_symlinks { LastLink::Follow } else { LastLink::Keep },
        overrides: overrides.build().map_err(bad_pattern)?,
        hidden: filter.hidden,
        ignore_rules: filter.ignore_files.then(|| Mutex::new(WalkRules::of_root(filter))),
    };
    Ok(WalkBuilder::new(filter.root)
        // It would open whatever has the name of an ignore file.
        .standard_filters(false)
        .follow_links(filter.follow_symlinks)
        .max_depth(filter.max_depth)
        .sort_by_file_name(|a, b| a.as_encoded_bytes().cmp(b.as_encoded_bytes()))
        .filter_entry(move |entry| entry.depth() == 0 || entries.shows(entry))
        .build())
}

/// Which entries a walk shows. Globs decide first, then ignore files, then whether hidden names are shown.
struct EntryFilter {
    policy: CallPolicy,
    last: LastLink,
    overrides: Override,
    hidden: bool,
    ignore_rules: Option<Mutex<WalkRules>>,
}

impl EntryFilter {
    /// It is asked once for each entry, in the order of the walk.
    fn shows(&self, entry: &DirEntry) -> bool {
        let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
        let mut rules = self.ignore_rules.as_ref().map(|rules| rules.lock().expect("no holder of this lock panics"));
        if let Some(rules) = &mut rules {
            rules.levels.truncate(entry.depth());
        }
        if entry.file_name() == ".git" || !self.is_chosen(entry, is_directory, rules.as_deref()) {
            return false;
        }
        if is_directory && self.policy.is_restricted() && open_directory(&self.policy, entry.path(), self.last).is_err()
        {
            return false;
        }
        if is_directory && let Some(rules) = &mut rules {
            let held_weight = rules.weight();
            rules.levels.push(DirectoryRules::read(&self.policy, entry.path(), held_weight));
        }
        true
    }

    fn is_chosen(&self, entry: &DirEntry, is_directory: bool, rules: Option<&WalkRules>) -> bool {
        match self.overrides.matched(entry.path(), is_directory) {
            Match::Ignore(_) => return false,
            Match::Whitelist(_) => return true,
            Match::None => {}
        }
        match rules.map_or(Match::None, |rules| rules.verdict(entry.path(), is_directory)) {
            Match::Ignore(()) => false,
            Match::Whitelist(()) => true,
            Match::None => self.hidden || !entry.file_name().as_bytes().starts_with(b"."),
        }
    }
}

/// The ignore files of the directories that the walk is in.
struct WalkRules {
    root: PathBuf,
    /// The root without links, and the rules above it, the nearest first.
    real_root: PathBuf,
    above: Vec<DirectoryRules>,
    /// Those of the root, and then a directory for each level below.
    levels: Vec<DirectoryRules>,
    of_the_user: Gitignore,
}

impl WalkRules {
    fn of_root(filter: &WalkFilter<'_>) -> Self {
        let real_root = canonicalize(filter.policy, filter.root).unwrap_or_else(|_| filter.root.to_owned());
        let mut rules = Self {
            above: Vec::new(),
            levels: vec![DirectoryRules::read(filter.policy, filter.root, 0)],
            // A policy is about what its caller may read, and that is none of the user's files.
            of_the_user: match filter.policy.is_restricted() {
                true => Gitignore::empty(),
                false => ignore_rules::of_the_user(filter.root),
            },
            root: filter.root.to_owned(),
            real_root: PathBuf::new(),
        };
        for directory in real_root.ancestors().skip(1) {
            let found = DirectoryRules::read(filter.policy, directory, rules.weight());
            rules.above.extend(Some(found).filter(|found| !found.is_empty()));
        }
        Self { real_root, ..rules }
    }

    fn weight(&self) -> usize {
        self.above.iter().chain(&self.levels).map(DirectoryRules::weight).sum()
    }

    fn verdict(&self, path: &Path, is_directory: bool) -> Verdict {
        // Rules above the root know nothing of the link that may have led to it.
        let real = match path.strip_prefix(&self.root) {
            Ok(below) if !self.above.is_empty() => self.real_root.join(below),
            _ => PathBuf::new(),
        };
        let below = self.levels.iter().rev().map(|rules| (rules, path));
        let above = self.above.iter().map(|rules| (rules, real.as_path()));
        match ignore_rules::verdict(below.chain(above), is_directory) {
            Match::None => self.of_the_user.matched(path, is_directory).map(drop),
            verdict => verdict,
        }
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
    check_pattern_bytes(&query.patterns).map_err(failed)?;
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

/// To compile patterns takes some hundred times as much memory as they have text.
pub(super) fn check_pattern_bytes<'a>(patterns: impl IntoIterator<Item = &'a String>) -> Result<(), FileReason> {
    match patterns.into_iter().map(String::len).sum::<usize>() {
        ..=PATTERN_BYTES => Ok(()),
        found => Err(bad_pattern(format_args!("all have {found} bytes together, and may have {PATTERN_BYTES}"))),
    }
}

pub(super) fn bad_pattern(error: impl std::fmt::Display) -> FileReason {
    FileReason::BadPattern { why: error.to_string() }
}
