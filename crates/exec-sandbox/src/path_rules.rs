//! Which access a path has under a policy.
//!
//! The rules of a policy name paths as a client knows them; files are found by paths without links. So the links in the
//! rules are resolved once, when a policy is used, and afterwards a decision is a pure question about a path without links:
//! the path of a file that is open already (decide on the handle, never before it).
//!
//! Whoever is confined by a policy can put links where the policy lets it write. If a rule were followed through such a
//! link, the confined could choose what the rule grants: replace a writable directory by a link to `/etc`, and the next
//! use of the policy would let it write there. So a rule that leads through a link in a writable place may take away, but
//! grants nothing.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

use exec_core::sandbox::{FileAccess, FilePolicy, FileRule, PROTECTED_NAMES, RuleTarget};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

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
    /// Links through which the rules' own paths lead.
    links: Vec<PathBuf>,
    denied_globs: Vec<Arc<GlobSet>>,
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

/// Globs that were compiled before, which takes longer than all the rest of a file call. A compiled glob depends on
/// nothing but its text, so none is ever out of date.
#[derive(Debug, Default)]
pub struct GlobCache(Mutex<CachedGlobs>);

#[derive(Debug, Default)]
struct CachedGlobs {
    sets: HashMap<Vec<String>, Arc<GlobSet>>,
    /// Text of their globs.
    bytes: usize,
}

/// Most text of the globs of one policy, and of all that are kept. Compiled they take some hundred times as much memory.
const GLOB_BYTES: usize = 64 << 10;

/// Sets of globs that are kept. There are as many as policies in use; beyond that the cache begins anew.
const CACHED_GLOB_SETS: usize = 64;

impl GlobCache {
    fn compile(&self, globs: &[String]) -> Result<Arc<GlobSet>, BadGlob> {
        if globs.is_empty() {
            return Ok(Arc::default());
        }
        let cached = || self.0.lock().expect("no holder of this lock panics");
        if let Some(set) = cached().sets.get(globs) {
            return Ok(Arc::clone(set));
        }
        let bytes: usize = globs.iter().map(String::len).sum();
        if bytes > GLOB_BYTES {
            let pattern = globs[0].clone();
            let reason = format!("with the others it has {bytes} bytes, and all may have {GLOB_BYTES}");
            return Err(BadGlob { pattern, reason });
        }
        let mut builder = GlobSetBuilder::new();
        for pattern in globs {
            let glob = GlobBuilder::new(pattern).literal_separator(true).build();
            let bad = |bad: globset::Error| BadGlob { pattern: pattern.clone(), reason: bad.kind().to_string() };
            builder.add(glob.map_err(bad)?);
        }
        let set = builder.build();
        let set = set.map_err(|bad| BadGlob { pattern: globs.join(" "), reason: bad.kind().to_string() })?;
        let set = Arc::new(set);
        let mut cached = cached();
        if cached.sets.len() >= CACHED_GLOB_SETS || cached.bytes + bytes > GLOB_BYTES {
            *cached = CachedGlobs::default();
        }
        cached.bytes += bytes;
        cached.sets.insert(globs.to_vec(), Arc::clone(&set));
        Ok(set)
    }
}

impl PathRules {
    /// Resolves the links in the rules' paths, as the files are now.
    pub fn resolve(policy: &FilePolicy, machine: &MachinePaths) -> Result<Self, BadGlob> {
        Self::resolve_with(policy, machine, &GlobCache::default())
    }

    /// The same for whoever does it often.
    pub fn resolve_with(policy: &FilePolicy, machine: &MachinePaths, cache: &GlobCache) -> Result<Self, BadGlob> {
        let FilePolicy::Restricted { rules, glob_scan_depth } = policy else { return Ok(Self { restricted: None }) };
        let mut by_path = Vec::new();
        let mut globs = Vec::new();
        for FileRule { target, access } in rules {
            let mut add = |path: &Path| by_path.push(ResolvedRule::of(path, *access));
            match target {
                RuleTarget::Path(path) => add(path),
                RuleTarget::SystemFiles => SYSTEM_DIRECTORIES.iter().for_each(|path| add(Path::new(path))),
                RuleTarget::TemporaryDirectory => machine.temporary.iter().for_each(|path| add(path)),
                // A glob can only take away: what it would grant nobody could enforce for files that do not exist yet.
                RuleTarget::Glob(pattern) if *access == FileAccess::Deny => globs.push(resolve_fixed_part(pattern)),
                RuleTarget::Glob(_) => {}
            }
        }
        let protected: Vec<ResolvedRule> = by_path.iter().flat_map(ResolvedRule::protected_below).collect();
        by_path.extend(protected);
        by_path.extend(machine.private.iter().map(|path| ResolvedRule::of(path, FileAccess::Deny)));
        let denied_globs = vec![cache.compile(&globs)?];
        let (by_path, links) = ordered(by_path);
        let glob_scan_depth = *glob_scan_depth;
        Ok(Self { restricted: Some(RestrictedRules { by_path, links, denied_globs, globs, glob_scan_depth }) })
    }

    /// What may be done at `path`, which is absolute and goes through no link.
    pub fn access(&self, path: &Path) -> PathAccess {
        let Some(rules) = &self.restricted else { return PathAccess::Write };
        if rules.is_denied_by_glob(path) {
            return PathAccess::Denied;
        }
        rules.access_by_path(path)
    }

    /// What both allow. That is exact, because an access changes only at the paths of rules.
    pub fn intersect(self, other: &Self) -> Self {
        let (Some(one), Some(two)) = (&self.restricted, &other.restricted) else {
            return if self.restricted.is_some() { self } else { other.clone() };
        };
        let paths = one.by_path.iter().chain(&two.by_path).map(|(path, _)| path);
        let both = paths.map(|path| (path.clone(), one.access_by_path(path).min(two.access_by_path(path))));
        // What is hidden needs no rule: in one of the two nothing above it has one either.
        let mut by_path: Vec<_> = both.filter(|(_, access)| *access != PathAccess::Hidden).collect();
        sort(&mut by_path);
        // A link is followed where both would follow it: because a rule leads through it, or because it may be read.
        let follows =
            |rules: &Self, link: &Path| rules.leads_through_link(link) || rules.access(link) >= PathAccess::Read;
        let links = one.links.iter().chain(&two.links).filter(|link| follows(&self, link) && follows(other, link));
        let restricted = RestrictedRules {
            by_path,
            links: links.cloned().collect(),
            denied_globs: one.denied_globs.iter().chain(&two.denied_globs).cloned().collect(),
            globs: one.globs.iter().chain(&two.globs).cloned().collect(),
            // The deeper of the two: what is looked for too deep is only denied.
            glob_scan_depth: one.glob_scan_depth.zip(two.glob_scan_depth).map(|(one, two)| one.max(two)),
        };
        Self { restricted: Some(restricted) }
    }

    /// The first place at which these rules allow more than `ceiling` does, with what they allow there. The access of
    /// either changes only at the paths of rules, so that no other place has to be asked about.
    pub fn exceeds(&self, ceiling: &Self) -> Option<(PathBuf, PathAccess)> {
        let root = [(PathBuf::from("/"), PathAccess::Hidden)];
        let mut places = self.by_path().iter().chain(ceiling.by_path()).chain(&root).map(|(path, _)| path);
        let more = places.find(|path| {
            let wanted = self.access(path);
            wanted >= PathAccess::Read && wanted > ceiling.access(path)
        });
        more.map(|path| (path.clone(), self.access(path)))
    }

    /// Whether something below `path` may be less than `path` itself: such a directory must not be moved or removed as
    /// a whole.
    pub fn has_less_below(&self, path: &Path) -> bool {
        self.has_lesser_rule_below(path) || (self.access(path) > PathAccess::Denied && self.may_deny_below(path))
    }

    /// Whether a rule for a path below `path` grants less than `path` has.
    pub fn has_lesser_rule_below(&self, path: &Path) -> bool {
        let here = self.access(path);
        self.by_path().iter().any(|(root, access)| *access < here && root != path && root.starts_with(path))
    }

    /// Whether a glob may deny something below `path`; true where that is not clear.
    pub fn may_deny_below(&self, path: &Path) -> bool {
        self.denied_globs().0.iter().any(|glob| may_match_below(glob, path))
    }

    /// Whether something below `path` may be read, or is a link that the path of a rule leads through, so that one may go
    /// through it, whatever it is itself.
    pub fn leads_to_something(&self, path: &Path) -> bool {
        let mut links = self.restricted.iter().flat_map(|rules| &rules.links);
        self.by_path().iter().any(|(root, access)| *access >= PathAccess::Read && root.starts_with(path))
            || links.any(|link| link != path && link.starts_with(path))
    }

    /// Whether the path of a rule leads through this link. It may be followed, though nothing may be read there.
    pub fn leads_through_link(&self, link: &Path) -> bool {
        self.restricted.as_ref().is_none_or(|rules| rules.links.iter().any(|path| path == link))
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
    fn access_by_path(&self, path: &Path) -> PathAccess {
        let found = self.by_path.iter().find(|(root, _)| path.starts_with(root));
        found.map_or(PathAccess::Hidden, |(_, access)| *access)
    }

    fn is_denied_by_glob(&self, path: &Path) -> bool {
        let is_match = |path| self.denied_globs.iter().any(|globs| globs.is_match(path));
        !self.globs.is_empty() && path.ancestors().any(is_match)
    }
}

/// Where `path` leads now, as far as it exists; without links.
pub fn without_links(path: &Path) -> PathBuf {
    ResolvedRule::of(path, FileAccess::Read).target
}

/// A rule, and where its path leads.
struct ResolvedRule {
    granted: PathAccess,
    /// Without links as far as it exists; what does not exist is kept as it is.
    target: PathBuf,
    /// The links on the way, each by its path without links.
    links: Vec<PathBuf>,
    /// The first of them that the whole path is, not only a part of it.
    whole_link: Option<PathBuf>,
}

/// As many links as the kernel itself follows.
const MAX_LINKS: usize = 40;

impl ResolvedRule {
    fn of(path: &Path, access: FileAccess) -> Self {
        let granted = match access {
            FileAccess::Read => PathAccess::Read,
            FileAccess::Write => PathAccess::Write,
            FileAccess::Deny => PathAccess::Denied,
        };
        let mut rule = Self { granted, target: PathBuf::from("/"), links: Vec::new(), whole_link: None };
        if has_no_links(path) {
            rule.target.extend(path.components());
            return rule;
        }
        let mut left = reversed(path);
        while let Some(name) = left.pop() {
            if name == ".." {
                rule.target.pop();
                continue;
            }
            rule.target.push(name);
            if let Ok(text) = std::fs::read_link(&rule.target) {
                if left.is_empty() && rule.whole_link.is_none() {
                    rule.whole_link = Some(rule.target.clone());
                }
                rule.links.push(rule.target.clone());
                if rule.links.len() > MAX_LINKS {
                    break;
                }
                if text.is_absolute() {
                    rule.target = PathBuf::from("/");
                } else {
                    rule.target.pop();
                }
                left.extend(reversed(&text));
            }
        }
        rule
    }
}

impl ResolvedRule {
    /// What is protected in this directory if it is writable.
    fn protected_below(&self) -> impl Iterator<Item = Self> + '_ {
        let names: &[&str] = if self.granted == PathAccess::Write { &PROTECTED_NAMES } else { &[] };
        names.iter().map(|name| {
            let target = self.target.join(name);
            let mut rule = match std::fs::read_link(&target) {
                Ok(_) => Self::of(&target, FileAccess::Read),
                Err(_) => Self { granted: PathAccess::Read, target, links: Vec::new(), whole_link: None },
            };
            // It is where it is because of the links of this rule. Without them it would grant to read what is protected
            // wherever somebody lets such a link lead, though this rule itself grants nothing there.
            rule.links.extend(self.links.iter().cloned());
            rule
        })
    }
}

/// The names of a path, the last first.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    let mut names: Vec<OsString> = names.map(|part| part.as_os_str().to_owned()).collect();
    names.reverse();
    names
}

/// Whether no link is on the way, as far as the path exists. One system call, because it is asked for every rule of
/// every file call; false where it cannot be known so fast.
fn has_no_links(path: &Path) -> bool {
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return false;
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // The kernel goes from left to right and says so as soon as it meets a link, so there was none before the end.
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => true,
        Err(_) => false,
    }
}

/// The rules in the order in which they are asked, and the links through which they lead.
fn ordered(rules: Vec<ResolvedRule>) -> (Vec<(PathBuf, PathAccess)>, Vec<PathBuf>) {
    let writable =
        |path: &PathBuf| rules.iter().any(|rule| rule.granted == PathAccess::Write && path.starts_with(&rule.target));
    let (doubtful, sound): (Vec<&ResolvedRule>, Vec<&ResolvedRule>) =
        rules.iter().partition(|rule| rule.links.iter().any(writable));
    let mut by_path = Vec::new();
    let mut links = Vec::new();
    for rule in sound {
        by_path.push((rule.target.clone(), rule.granted));
        links.extend(rule.links.iter().cloned());
    }
    sort(&mut by_path);
    let granted_without = |path: &Path| {
        let found = by_path.iter().find(|(root, _)| path.starts_with(root));
        found.map_or(PathAccess::Hidden, |(_, access)| *access)
    };
    let taken_away =
        doubtful.into_iter().filter(|rule| rule.granted <= granted_without(&rule.target).max(PathAccess::Denied));
    let mut more: Vec<(PathBuf, PathAccess)> = taken_away.map(|rule| (rule.target.clone(), rule.granted)).collect();
    // A link that is protected is protected itself, too, or somebody would put another one in its place.
    for rule in rules.iter().filter(|rule| rule.granted != PathAccess::Write) {
        more.extend(rule.whole_link.iter().map(|link| (link.clone(), rule.granted)));
        let on_the_way = rule.links.iter().filter(|link| Some(*link) != rule.whole_link.as_ref() && writable(link));
        more.extend(on_the_way.map(|link| (link.clone(), PathAccess::Read)));
    }
    by_path.append(&mut more);
    sort(&mut by_path);
    (without_readable_in_denied(by_path), links)
}

/// A rule that lets be read what lies in a denied directory counts for nothing, unless the directory is writable again
/// in between: what is denied may be written somewhere below, but is not opened again to be read. To deny everything is
/// to permit nothing by a rule of its own.
fn without_readable_in_denied(by_path: Vec<(PathBuf, PathAccess)>) -> Vec<(PathBuf, PathAccess)> {
    let mut kept: Vec<(PathBuf, PathAccess)> = Vec::new();
    // The shortest first, so that what a rule lies in is known when it is met.
    for (path, access) in by_path.into_iter().rev() {
        let above = kept.iter().rev().find(|(root, _)| path.starts_with(root)).map(|(_, access)| *access);
        let is_everything_denied = path == Path::new("/") && access == PathAccess::Denied;
        let is_read_in_denied = access == PathAccess::Read && above == Some(PathAccess::Denied);
        if !is_everything_denied && !is_read_in_denied {
            kept.push((path, access));
        }
    }
    kept.reverse();
    kept
}

fn sort(by_path: &mut Vec<(PathBuf, PathAccess)>) {
    let order = |access: PathAccess| match access {
        PathAccess::Denied => 0,
        PathAccess::Write => 1,
        PathAccess::Read | PathAccess::Hidden => 2,
    };
    by_path.sort_by_cached_key(|(path, access)| (usize::MAX - path.components().count(), path.clone(), order(*access)));
    by_path.dedup_by(|later, first| later.0 == first.0);
}

/// The glob with the links resolved in the directories before its first wildcard.
fn resolve_fixed_part(pattern: &str) -> String {
    let wildcard = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
    let Some(slash) = pattern[..wildcard].rfind('/').filter(|slash| *slash > 0) else { return pattern.to_owned() };
    let resolved = ResolvedRule::of(Path::new(&pattern[..slash]), FileAccess::Deny).target;
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
    fn globs_have_a_length_up_to_which_they_count_and_beyond_which_the_policy_is_refused() {
        let cache = GlobCache::default();
        let of_length = |bytes: usize| format!("/x/*{}", "y".repeat(bytes - 4));
        for number in 0..4 {
            let glob = format!("{}{number}", of_length(GLOB_BYTES - 1));
            assert!(cache.compile(&[glob]).is_ok());
            assert!(cache.0.lock().is_ok_and(|cached| cached.sets.len() == 1), "all that are kept are bounded too");
        }
        assert!(cache.compile(&[of_length(GLOB_BYTES / 2), of_length(GLOB_BYTES / 2 + 1)]).is_err());
    }

    #[test]
    fn one_may_go_to_the_link_that_a_rule_leads_through() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let root = folder.path().canonicalize().expect("it is there");
        for name in ["home/user", "data"] {
            std::fs::create_dir_all(root.join(name)).expect("the folder is ours");
        }
        let link = root.join("home/user/link");
        std::os::unix::fs::symlink(root.join("data"), &link).expect("the folder is ours");
        let rules = rules(&[(link.to_str().expect("plain"), FileAccess::Write)]);
        for (name, leads) in [("home", true), ("home/user", true), ("data", true), ("home/other", false), ("ho", false)]
        {
            assert_eq!(rules.leads_to_something(&root.join(name)), leads, "{name}");
        }
        assert!(rules.leads_through_link(&link));
        assert_eq!(rules.access(&root.join("home/user")), PathAccess::Hidden);
    }

    #[test]
    fn a_link_that_the_rules_let_anybody_change_opens_nothing_not_even_what_is_protected() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let root = folder.path().canonicalize().expect("it is there");
        for name in ["w", "home/.aws"] {
            std::fs::create_dir_all(root.join(name)).expect("the folder is ours");
        }
        std::os::unix::fs::symlink(root.join("home"), root.join("w/link")).expect("the folder is ours");
        let (workspace, link, outer) = (root.join("w"), root.join("w/link"), root.clone());
        let text = |path: &PathBuf| path.to_str().expect("plain").to_owned();
        let (workspace, link, outer) = (text(&workspace), text(&link), text(&outer));
        let narrow = rules(&[(&workspace, FileAccess::Write), (&link, FileAccess::Write)]);
        for closed in ["home", "home/.aws", "home/.git"] {
            assert_eq!(narrow.access(&root.join(closed)), PathAccess::Hidden, "{closed}");
        }
        // What is protected there stays so, if another rule opens the place.
        let wide = rules(&[(&outer, FileAccess::Write), (&link, FileAccess::Write)]);
        assert_eq!(wide.access(&root.join("home/.aws")), PathAccess::Read);
        assert_eq!(wide.access(&root.join("home/other")), PathAccess::Write);
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
    fn what_others_trust_is_protected_in_every_writable_directory_unless_a_rule_names_it() {
        let rules = rules(&[
            ("/", FileAccess::Read),
            ("/no/w", FileAccess::Write),
            ("/no/v", FileAccess::Write),
            ("/no/v/.git", FileAccess::Write),
            ("/no/v/.aws", FileAccess::Deny),
        ]);
        for (path, access) in [
            ("/no/w/.git/config", PathAccess::Read),
            ("/no/w/.codex", PathAccess::Read),
            ("/no/w/.agents/x", PathAccess::Read),
            ("/no/w/.aws", PathAccess::Read),
            ("/no/w/below/.git", PathAccess::Write),
            ("/no/v/.git/config", PathAccess::Write),
            ("/no/v/.aws", PathAccess::Denied),
        ] {
            assert_eq!(rules.access(Path::new(path)), access, "{path}");
        }
    }

    #[test]
    fn what_is_denied_is_not_opened_again_to_be_read_but_to_be_written() {
        let rules = rules(&[
            ("/", FileAccess::Read),
            ("/no/d", FileAccess::Deny),
            ("/no/d/r", FileAccess::Read),
            ("/no/d/r/w", FileAccess::Write),
            ("/no/d/r/w/x", FileAccess::Read),
        ]);
        for (path, access) in [
            ("/no/d/r/a", PathAccess::Denied),
            ("/no/d/r/w/a", PathAccess::Write),
            ("/no/d/r/w/x/a", PathAccess::Read),
            ("/no/d/r/w/.git", PathAccess::Read),
        ] {
            assert_eq!(rules.access(Path::new(path)), access, "{path}");
        }
    }

    #[test]
    fn where_everything_is_denied_only_what_a_rule_names_is_there() {
        let denied = rules(&[("/", FileAccess::Read), ("/", FileAccess::Deny), ("/no/r", FileAccess::Read)]);
        assert_eq!(denied.access(Path::new("/no/r/a")), PathAccess::Read);
        assert_eq!(denied.access(Path::new("/no/a")), PathAccess::Hidden);
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
    fn a_rule_through_a_link_in_a_writable_place_takes_away_but_grants_nothing() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let root = dir.path().canonicalize().expect("it exists");
        for made in ["w/real", "outside", "named"] {
            std::fs::create_dir_all(root.join(made)).expect("it is ours");
        }
        // Who may write below `w` has put links where the policy expects directories.
        for (link, target) in
            [("w/project", "outside"), ("w/shown", "outside"), ("w/.git", "w/real"), ("by-link", "named")]
        {
            std::os::unix::fs::symlink(root.join(target), root.join(link)).expect("it is ours");
        }
        let at = |path: &str| root.join(path).to_str().expect("it is UTF-8").to_owned();
        let rules = rules(&[
            (&at("w"), FileAccess::Write),
            (&at("w/project"), FileAccess::Write),
            (&at("w/shown"), FileAccess::Read),
            (&at("w/.git"), FileAccess::Read),
            (&at("by-link"), FileAccess::Write),
        ]);
        for (path, access) in [
            ("outside/x", PathAccess::Hidden),
            ("w/real/x", PathAccess::Read),
            ("w/.git", PathAccess::Read),
            ("w/shown", PathAccess::Read),
            ("named/x", PathAccess::Write),
        ] {
            assert_eq!(rules.access(&root.join(path)), access, "{path}");
        }
        assert!(rules.leads_through_link(&root.join("by-link")));
        assert!(!rules.leads_through_link(&root.join("w/project")));
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
