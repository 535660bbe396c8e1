//! Which access a path has under a policy.
//!
//! The rules of a policy name paths as a client knows them; files are found by paths without links. So the links in the
//! rules are resolved once, when a policy is used, and afterwards a decision is a pure question about a path without links:
//! the path of a file that is open already (decide on the handle, never before it).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use exec_core::sandbox::{FileAccess, FilePolicy, FileRule, RuleTarget};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Directories of programs, libraries and their configuration; nothing below them belongs to a user.
const SYSTEM_DIRECTORIES: &[&str] =
    &["/bin", "/sbin", "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/run/current-system/sw"];

/// What a policy refers to without naming it.
#[derive(Debug, Clone, Default)]
pub struct MachinePaths {
    /// `TMPDIR`, if it is set.
    pub temporary: Vec<PathBuf>,
    /// Directories of the server itself (state, sockets). No restricted policy reaches them.
    pub private: Vec<PathBuf>,
}

/// What may be done at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathAccess {
    /// No rule matches: it is as if nothing were there.
    Hidden,
    /// A rule denies it.
    Denied,
    Read,
    /// Reading and writing.
    Write,
}

/// The rules of a policy for files, ready to decide.
#[derive(Debug, Clone)]
pub struct PathRules {
    /// `None`: everything may be read and written.
    restricted: Option<RestrictedRules>,
}

#[derive(Debug, Clone)]
struct RestrictedRules {
    /// Longest paths first; of equal paths the one that wins first.
    by_path: Vec<(PathBuf, PathAccess)>,
    denied_globs: GlobSet,
    globs: Vec<String>,
    glob_scan_depth: Option<usize>,
}

/// A glob in a policy that cannot be understood. A denial that we cannot read must not be ignored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pattern {pattern:?} of the sandbox policy is not a glob: {reason}")]
pub struct BadGlob {
    pub pattern: String,
    pub reason: String,
}

impl PathRules {
    /// Resolves the links in the rules' paths, as the files are now.
    pub fn resolve(policy: &FilePolicy, machine: &MachinePaths) -> Result<Self, BadGlob> {
        let FilePolicy::Restricted { rules, glob_scan_depth } = policy else { return Ok(Self { restricted: None }) };
        let mut by_path = Vec::new();
        let mut globs = Vec::new();
        let mut set = GlobSetBuilder::new();
        for FileRule { target, access } in rules {
            match target {
                RuleTarget::Path(path) => add_path(&mut by_path, path, *access),
                RuleTarget::SystemFiles => {
                    SYSTEM_DIRECTORIES.iter().for_each(|path| add_path(&mut by_path, Path::new(path), *access));
                }
                RuleTarget::TemporaryDirectory => {
                    machine.temporary.iter().for_each(|path| add_path(&mut by_path, path, *access));
                }
                // A glob can only take away: what it would grant nobody could enforce for files that do not exist yet.
                RuleTarget::Glob(pattern) if *access == FileAccess::Deny => {
                    let pattern = resolve_fixed_part(pattern);
                    let glob = GlobBuilder::new(&pattern).literal_separator(true).build();
                    let glob =
                        glob.map_err(|bad| BadGlob { pattern: pattern.clone(), reason: bad.kind().to_string() })?;
                    set.add(glob);
                    globs.push(pattern);
                }
                RuleTarget::Glob(_) => {}
            }
        }
        for path in &machine.private {
            add_path(&mut by_path, path, FileAccess::Deny);
        }
        let order = |access: PathAccess| match access {
            PathAccess::Denied => 0,
            PathAccess::Write => 1,
            PathAccess::Read | PathAccess::Hidden => 2,
        };
        by_path.sort_by_key(|(path, access)| (usize::MAX - path.components().count(), path.clone(), order(*access)));
        by_path.dedup_by(|later, first| later.0 == first.0);
        let denied_globs = set.build();
        let denied_globs =
            denied_globs.map_err(|bad| BadGlob { pattern: globs.join(" "), reason: bad.kind().to_string() })?;
        Ok(Self {
            restricted: Some(RestrictedRules { by_path, denied_globs, globs, glob_scan_depth: *glob_scan_depth }),
        })
    }

    /// What may be done at `path`, which is absolute and goes through no link.
    pub fn access(&self, path: &Path) -> PathAccess {
        let Some(rules) = &self.restricted else { return PathAccess::Write };
        if rules.is_denied_by_glob(path) {
            return PathAccess::Denied;
        }
        let found = rules.by_path.iter().find(|(root, _)| path.starts_with(root));
        found.map_or(PathAccess::Hidden, |(_, access)| *access)
    }

    /// Whether something below `path` may be less than `path` itself: such a directory must not be moved or removed as
    /// a whole.
    pub fn has_less_below(&self, path: &Path) -> bool {
        let Some(rules) = &self.restricted else { return false };
        let here = self.access(path);
        rules.by_path.iter().any(|(root, access)| *access < here && root != path && root.starts_with(path))
            || (here > PathAccess::Denied && rules.globs.iter().any(|glob| may_match_below(glob, path)))
    }

    /// Whether a glob denies `path`, or a directory above it.
    pub fn is_denied_by_glob(&self, path: &Path) -> bool {
        self.restricted.as_ref().is_some_and(|rules| rules.is_denied_by_glob(path))
    }

    /// Whether files are restricted at all.
    pub fn is_restricted(&self) -> bool {
        self.restricted.is_some()
    }

    /// The rules by path, longest first, each with what it grants; none if files are not restricted.
    pub fn by_path(&self) -> &[(PathBuf, PathAccess)] {
        self.restricted.as_ref().map_or(&[], |rules| &rules.by_path)
    }

    /// The globs that deny, absolute, and how deep they are to be looked for.
    pub fn denied_globs(&self) -> (&[String], Option<usize>) {
        self.restricted.as_ref().map_or((&[], None), |rules| (&rules.globs, rules.glob_scan_depth))
    }
}

impl RestrictedRules {
    fn is_denied_by_glob(&self, path: &Path) -> bool {
        !self.globs.is_empty() && path.ancestors().any(|path| self.denied_globs.is_match(path))
    }
}

fn add_path(by_path: &mut Vec<(PathBuf, PathAccess)>, path: &Path, access: FileAccess) {
    let granted = match access {
        FileAccess::Read => PathAccess::Read,
        FileAccess::Write => PathAccess::Write,
        FileAccess::Deny => PathAccess::Denied,
    };
    let target = without_links(path);
    // A link that is protected is protected itself, too, or somebody would put another one in its place.
    if access != FileAccess::Write
        && let (Some(parent), Some(name)) = (path.parent(), path.file_name())
    {
        let link = without_links(parent).join(name);
        if link != target {
            by_path.push((link, granted));
        }
    }
    by_path.push((target, granted));
}

/// The path without links as far as it exists; what does not exist is kept as it is.
fn without_links(path: &Path) -> PathBuf {
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut existing = path;
    loop {
        if let Ok(resolved) = existing.canonicalize() {
            return missing.iter().rev().fold(resolved, |path, name| path.join(name));
        }
        match (existing.parent(), existing.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name);
                existing = parent;
            }
            _ => return path.to_owned(),
        }
    }
}

/// The glob with the links resolved in the directories before its first wildcard.
fn resolve_fixed_part(pattern: &str) -> String {
    let wildcard = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
    let Some(slash) = pattern[..wildcard].rfind('/').filter(|slash| *slash > 0) else { return pattern.to_owned() };
    let resolved = without_links(Path::new(&pattern[..slash]));
    match resolved.to_str() {
        // A path with wildcards in it would become a pattern; it stays as the client wrote it.
        Some(fixed) if fixed != "/" && !fixed.contains(['*', '?', '[', '{', '\\']) => {
            format!("{fixed}{}", &pattern[slash..])
        }
        Some("/") => pattern[slash..].to_owned(),
        _ => pattern.to_owned(),
    }
}

/// Whether a glob may match something below `path`; true where that is not clear.
fn may_match_below(glob: &str, path: &Path) -> bool {
    let wildcard = glob.find(['*', '?', '[', '{', '\\']).unwrap_or(glob.len());
    let fixed = Path::new(&glob[..glob[..wildcard].rfind('/').map_or(0, |slash| slash.max(1))]);
    fixed.starts_with(path) || path.starts_with(fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(entries: &[(&str, FileAccess)]) -> PathRules {
        let rules = entries.iter().map(|(path, access)| FileRule {
            target: match path.contains('*') {
                true => RuleTarget::Glob((*path).to_owned()),
                false => RuleTarget::Path(PathBuf::from(path)),
            },
            access: *access,
        });
        let policy = FilePolicy::Restricted { rules: rules.collect(), glob_scan_depth: None };
        PathRules::resolve(&policy, &MachinePaths::default()).expect("the globs are good")
    }

    #[test]
    fn the_longest_path_decides_and_a_denial_wins_a_tie() {
        let rules = rules(&[
            ("/", FileAccess::Read),
            ("/no/w", FileAccess::Write),
            ("/no/w/.git", FileAccess::Read),
            ("/no/w/.git/x", FileAccess::Write),
            ("/no/w/tie", FileAccess::Write),
            ("/no/w/tie", FileAccess::Deny),
            ("/no/w/**/*.key", FileAccess::Deny),
        ]);
        for (path, access) in [
            ("/", PathAccess::Read),
            ("/no", PathAccess::Read),
            ("/no/w", PathAccess::Write),
            ("/no/wide", PathAccess::Read),
            ("/no/w/a/b", PathAccess::Write),
            ("/no/w/.git", PathAccess::Read),
            ("/no/w/.git/config", PathAccess::Read),
            ("/no/w/.git/x/y", PathAccess::Write),
            ("/no/w/.gitignore", PathAccess::Write),
            ("/no/w/tie/a", PathAccess::Denied),
            ("/no/w/a/b.key", PathAccess::Denied),
            ("/no/w/a/b.key/below", PathAccess::Denied),
            ("/no/w/b.keys", PathAccess::Write),
        ] {
            assert_eq!(rules.access(Path::new(path)), access, "{path}");
        }
    }

    #[test]
    fn what_no_rule_names_is_hidden() {
        let rules = rules(&[("/no/w", FileAccess::Write)]);
        assert_eq!(rules.access(Path::new("/no")), PathAccess::Hidden);
        assert_eq!(rules.access(Path::new("/etc")), PathAccess::Hidden);
    }

    #[test]
    fn a_directory_with_something_protected_below_is_known() {
        let rules =
            rules(&[("/no", FileAccess::Write), ("/no/a/.git", FileAccess::Read), ("/no/g/*.key", FileAccess::Deny)]);
        for (path, less) in [("/no", true), ("/no/a", true), ("/no/a/.git", false), ("/no/b", false), ("/no/g", true)] {
            assert_eq!(rules.has_less_below(Path::new(path)), less, "{path}");
        }
    }

    #[test]
    fn links_in_rules_are_resolved_and_a_protected_link_is_protected_itself() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let root = dir.path().canonicalize().expect("it exists");
        std::fs::create_dir_all(root.join("real/git")).expect("it is ours");
        std::os::unix::fs::symlink(root.join("real"), root.join("work")).expect("it is ours");
        std::os::unix::fs::symlink("git", root.join("real/.git")).expect("it is ours");
        let (work, git) = (root.join("work"), root.join("work/.git"));
        let rules = rules(&[
            (work.to_str().expect("it is UTF-8"), FileAccess::Write),
            (git.to_str().expect("it is UTF-8"), FileAccess::Read),
        ]);
        for (path, access) in [
            ("real/new", PathAccess::Write),
            ("real/.git", PathAccess::Read),
            ("real/git/config", PathAccess::Read),
            ("work", PathAccess::Hidden),
        ] {
            assert_eq!(rules.access(&root.join(path)), access, "{path}");
        }
    }

    #[test]
    fn the_servers_own_directories_are_denied_whatever_the_policy_says() {
        let files = FilePolicy::Restricted {
            rules: vec![FileRule { target: RuleTarget::Path("/no/state".into()), access: FileAccess::Write }],
            glob_scan_depth: None,
        };
        let machine = MachinePaths { private: vec!["/no/state".into()], ..MachinePaths::default() };
        let rules = PathRules::resolve(&files, &machine).expect("there are no globs");
        assert_eq!(rules.access(Path::new("/no/state/daemon.sock")), PathAccess::Denied);
    }
}
