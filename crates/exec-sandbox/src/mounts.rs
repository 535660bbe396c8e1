//! Which mounts give a process the access that a policy grants, and no more. Pure: what is at a path is told by the caller.
//!
//! ```text
//!   the root        read-only, or empty where nothing may be read by default, or as it is
//!   a writable root is bound onto itself, writable
//!   what is protected below it is bound onto itself, read-only
//!   what is denied  is covered by something that nobody can open
//! ```
//!
//! A mount cannot be renamed or removed, but a directory above it can, and with it what it protects would be out of the way.
//! So every directory between a writable root and something protected becomes a mount, too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use exec_core::sandbox::MountStep;

use crate::path_rules::{PathAccess, PathRules};

/// What is at a path, without following a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileFact {
    Directory,
    /// Anything else that can be opened.
    File,
    Link {
        target: PathBuf,
    },
}

/// The mounts of a sandboxed process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MountPlan {
    /// Empty if none are needed.
    pub steps: Vec<MountStep>,
    /// Directories that must exist while the process runs, so that something can be mounted on them: they stand for
    /// protected paths that do not exist, and could otherwise be created.
    pub placeholders: Vec<PathBuf>,
}

/// A link inside a writable directory that nobody may replace. No mount can hold it in place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path:?} is protected and is a symbolic link in a writable directory: protect its target, or make it a directory"
)]
pub struct ProtectedLink {
    pub path: PathBuf,
}

/// The mounts for `rules`. `denied` are the paths that the rules' globs match now.
pub fn plan(
    rules: &PathRules,
    denied: &[PathBuf],
    fact: &dyn Fn(&Path) -> Option<FileFact>,
) -> Result<MountPlan, ProtectedLink> {
    if !rules.is_restricted() {
        return Ok(MountPlan::default());
    }
    // What a rule grants below a directory that a glob denies is denied, too.
    let mut entries: Vec<(&Path, PathAccess)> =
        rules.by_path().iter().map(|(path, _)| (path.as_path(), rules.access(path))).collect();
    entries.extend(denied.iter().map(|path| (path.as_path(), PathAccess::Denied)));
    entries.sort_by_key(|(path, access)| (path.components().count(), path.to_path_buf(), *access));
    entries.dedup_by(|later, first| later.0 == first.0);
    let root = Path::new("/");
    let root_access = entries.iter().find(|(path, _)| *path == root).map_or(PathAccess::Hidden, |(_, access)| *access);
    let mut planner =
        Planner { entries: &entries, root_access, fact, mounted: BTreeSet::from([root]), plan: MountPlan::default() };
    planner.root();
    for (path, access) in entries.iter().filter(|(path, _)| *path != root) {
        planner.entry(path, *access)?;
    }
    Ok(planner.plan)
}

struct Planner<'a> {
    entries: &'a [(&'a Path, PathAccess)],
    root_access: PathAccess,
    fact: &'a dyn Fn(&Path) -> Option<FileFact>,
    /// What is a mount by now, or the root.
    mounted: BTreeSet<&'a Path>,
    plan: MountPlan,
}

impl<'a> Planner<'a> {
    fn root(&mut self) {
        let (devices, processes) = (Path::new("/dev"), Path::new("/proc"));
        match self.root_access {
            PathAccess::Write => {}
            PathAccess::Read => self.plan.steps.push(MountStep::ReadOnlyRoot),
            PathAccess::Hidden | PathAccess::Denied => self.plan.steps.push(MountStep::EmptyRoot),
        }
        // Programs find themselves there. Who else runs is not to be read in it.
        if (self.fact)(processes).is_some() {
            self.plan.steps.push(MountStep::Processes);
            self.mounted.insert(processes);
        }
        // Devices are no files: a policy that means them must name them.
        if !self.entries.contains(&(devices, PathAccess::Write)) {
            self.plan.steps.push(MountStep::Devices);
            self.mounted.insert(devices);
        }
    }

    fn entry(&mut self, path: &'a Path, access: PathAccess) -> Result<(), ProtectedLink> {
        let around = path.parent().map_or(self.root_access, |parent| self.access_at(parent));
        if self.mounted.contains(path)
            || access == around
            || (access == PathAccess::Denied && around <= PathAccess::Denied)
        {
            return Ok(());
        }
        let fact = (self.fact)(path);
        if let Some(FileFact::Link { target }) = fact {
            return match around {
                PathAccess::Write => Err(ProtectedLink { path: path.to_owned() }),
                PathAccess::Hidden => {
                    self.plan.steps.push(MountStep::Link { path: path.to_owned(), target });
                    Ok(())
                }
                // Where it lies nobody can replace it, and what it leads to has a rule of its own.
                PathAccess::Read | PathAccess::Denied => Ok(()),
            };
        }
        let Some(fact) = fact else {
            if around == PathAccess::Write {
                self.protect_missing(path, access);
            }
            return Ok(());
        };
        if around == PathAccess::Write {
            self.hold_in_place(path);
        }
        let at = path.to_owned();
        self.plan.steps.push(match (access, fact) {
            (PathAccess::Read, _) => MountStep::Bind { path: at, writable: false },
            (PathAccess::Write, _) => MountStep::Bind { path: at, writable: true },
            (PathAccess::Denied | PathAccess::Hidden, FileFact::Directory) => {
                MountStep::HideDirectory { path: at, passable: self.grants_below(path) }
            }
            (PathAccess::Denied | PathAccess::Hidden, _) => MountStep::HideFile { path: at },
        });
        self.mounted.insert(path);
        Ok(())
    }

    /// A protected path that does not exist must not come into existence: its first missing component is an empty
    /// directory that nobody can write.
    fn protect_missing(&mut self, path: &'a Path, access: PathAccess) {
        let missing = path.ancestors().take_while(|path| (self.fact)(path).is_none()).last().unwrap_or(path);
        // If it is not in a place that can be written, nobody can make it.
        let around = missing.parent().map_or(self.root_access, |parent| self.access_at(parent));
        if self.mounted.contains(missing) || around != PathAccess::Write || missing.starts_with("/proc") {
            return;
        }
        self.hold_in_place(missing);
        // Below a file there is nothing, as long as it stays a file.
        if missing.parent().and_then(self.fact) == Some(FileFact::File) {
            return;
        }
        let at = missing.to_owned();
        self.plan.placeholders.push(at.clone());
        self.plan.steps.push(match access {
            PathAccess::Denied => MountStep::HideDirectory { path: at, passable: false },
            _ => MountStep::EmptyDirectory { path: at },
        });
        self.mounted.insert(missing);
    }

    /// Makes every directory above `path` a mount, up to the next one that is.
    fn hold_in_place(&mut self, path: &'a Path) {
        let above: Vec<&Path> = path.ancestors().skip(1).take_while(|path| !self.mounted.contains(path)).collect();
        for path in above.into_iter().rev() {
            self.plan.steps.push(MountStep::Bind { path: path.to_owned(), writable: true });
            self.mounted.insert(path);
        }
    }

    fn access_at(&self, path: &Path) -> PathAccess {
        let enclosing = self.entries.iter().rev().find(|(root, _)| path.starts_with(root));
        enclosing.map_or(PathAccess::Hidden, |(_, access)| *access)
    }

    fn grants_below(&self, path: &Path) -> bool {
        self.entries.iter().any(|(below, access)| *access > PathAccess::Denied && below.starts_with(path))
    }
}

#[cfg(test)]
mod tests {
    use exec_core::sandbox::{FileAccess, FilePolicy, FileRule, RuleTarget};

    use super::*;
    use crate::path_rules::MachinePaths;

    /// No path of the tests exists, so that rules are what they say; these facts are told instead.
    fn planned(rules: &[(&str, FileAccess)], denied: &[&str], files: &[(&str, FileFact)]) -> Result<MountPlan, String> {
        let rules = rules.iter().map(|(path, access)| FileRule {
            target: match path.contains('*') {
                true => RuleTarget::Glob((*path).to_owned()),
                false => RuleTarget::Path(PathBuf::from(path)),
            },
            access: *access,
        });
        let policy = FilePolicy::Restricted { rules: rules.collect(), glob_scan_depth: None };
        let rules = PathRules::resolve(&policy, &MachinePaths::default()).expect("the globs are good");
        let denied: Vec<PathBuf> = denied.iter().map(PathBuf::from).collect();
        let fact = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, fact)| fact.clone()).or((path == Path::new("/")).then_some(FileFact::Directory))
        };
        plan(&rules, &denied, &fact).map_err(|link| link.to_string())
    }

    /// What is protected right below every writable directory, without being named, in the order of the plan.
    const ALWAYS: [&str; 4] = [".agents", ".aws", ".codex", ".git"];

    fn empty(directory: &str, names: &[&str]) -> Vec<MountStep> {
        names.iter().map(|name| MountStep::EmptyDirectory { path: Path::new(directory).join(name) }).collect()
    }

    fn bind(path: &str, writable: bool) -> MountStep {
        MountStep::Bind { path: path.into(), writable }
    }

    const DIR: FileFact = FileFact::Directory;

    #[test]
    fn a_protected_directory_in_a_writable_one_is_mounted_over_it() {
        let rules = [("/", FileAccess::Read), ("/no-w", FileAccess::Write), ("/no-w/.git", FileAccess::Read)];
        let plan = planned(&rules, &[], &[("/no-w", DIR), ("/no-w/.git", DIR)]).expect("there is no link");
        let mut steps = vec![MountStep::ReadOnlyRoot, MountStep::Devices, bind("/no-w", true)];
        steps.extend(empty("/no-w", &ALWAYS[..3]));
        steps.push(bind("/no-w/.git", false));
        assert_eq!(plan.steps, steps);
    }

    #[test]
    fn directories_above_what_is_protected_are_held_in_place() {
        let rules = [("/", FileAccess::Read), ("/no-w", FileAccess::Write), ("/no-w/a/b/.git", FileAccess::Read)];
        let files = [("/no-w", DIR), ("/no-w/a", DIR), ("/no-w/a/b", DIR), ("/no-w/a/b/.git", DIR)];
        let plan = planned(&rules, &[], &files).expect("there is no link");
        let held = [bind("/no-w/a", true), bind("/no-w/a/b", true), bind("/no-w/a/b/.git", false)];
        assert!(plan.steps.ends_with(&held), "{plan:?}");
    }

    #[test]
    fn a_protected_path_that_does_not_exist_gets_a_placeholder_and_only_where_it_could_be_made() {
        let rules = [
            ("/", FileAccess::Read),
            ("/no-w", FileAccess::Write),
            ("/no-w/a/.git", FileAccess::Read),
            ("/no-r/.git", FileAccess::Deny),
            ("/no-gone", FileAccess::Write),
        ];
        let plan = planned(&rules, &[], &[("/no-w", DIR)]).expect("there is no link");
        let missing = [&ALWAYS[..], &["a"]].concat();
        assert_eq!(plan.steps[2..], [vec![bind("/no-w", true)], empty("/no-w", &missing)].concat());
        assert_eq!(plan.placeholders, missing.iter().map(|name| Path::new("/no-w").join(name)).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_that_can_be_written_needs_no_placeholders_and_stays_a_file() {
        let rules = [("/", FileAccess::Read), ("/no-f", FileAccess::Write), ("/proc", FileAccess::Write)];
        let plan = planned(&rules, &[], &[("/no-f", FileFact::File), ("/proc", DIR)]).expect("there is no link");
        assert_eq!((&plan.steps[3..], plan.placeholders), (&[bind("/no-f", true)][..], Vec::<PathBuf>::new()));
        let rules = [("/", FileAccess::Read), ("/no-w", FileAccess::Write), ("/no-w/f/.git", FileAccess::Read)];
        let plan = planned(&rules, &[], &[("/no-w", DIR), ("/no-w/f", FileFact::File)]).expect("there is no link");
        assert!(plan.steps.ends_with(&[bind("/no-w/f", true)]), "{plan:?}");
        assert_eq!(plan.placeholders, ALWAYS.map(|name| Path::new("/no-w").join(name)));
    }

    #[test]
    fn what_is_denied_is_hidden_and_what_is_granted_below_it_is_not() {
        let rules = [("/", FileAccess::Read), ("/no-d", FileAccess::Deny), ("/no-d/in/ok", FileAccess::Write)];
        let files = [("/no-d", DIR), ("/no-d/in/ok", DIR), ("/no-k", FileFact::File)];
        let plan = planned(&rules, &["/no-k"], &files).expect("there is no link");
        let expected = [
            MountStep::HideDirectory { path: "/no-d".into(), passable: true },
            MountStep::HideFile { path: "/no-k".into() },
            bind("/no-d/in/ok", true),
        ];
        assert_eq!(plan.steps[2..], [&expected[..], &empty("/no-d/in/ok", &ALWAYS)].concat());
    }

    #[test]
    fn nothing_is_granted_below_what_a_glob_denies() {
        let rules = [
            ("/", FileAccess::Read),
            ("/no-w", FileAccess::Write),
            ("/no-w/secret*", FileAccess::Deny),
            ("/no-w/secret-a/in", FileAccess::Write),
        ];
        let files = ["/no-w", "/no-w/secret-a", "/no-w/secret-a/in", "/no-w/secret-a/in/.git"].map(|path| (path, DIR));
        let plan = planned(&rules, &["/no-w/secret-a"], &files).expect("there is no link");
        let hidden = MountStep::HideDirectory { path: "/no-w/secret-a".into(), passable: false };
        assert!(plan.steps.contains(&hidden), "{plan:?}");
        let is_below = |step: &MountStep| match step {
            MountStep::Bind { path, .. } | MountStep::EmptyDirectory { path } => path.starts_with("/no-w/secret-a"),
            _ => false,
        };
        assert!(!plan.steps.iter().any(is_below), "{plan:?}");
    }

    #[test]
    fn without_a_rule_for_the_root_only_what_is_named_is_there() {
        let rules = [("/no-u", FileAccess::Read), ("/no-l", FileAccess::Read), ("/no-w", FileAccess::Write)];
        let link = FileFact::Link { target: "no-u/x".into() };
        let files = [("/proc", DIR), ("/no-u", DIR), ("/no-l", link), ("/no-w", DIR)];
        let plan = planned(&rules, &[], &files).expect("a link is fine here");
        let expected = [
            MountStep::EmptyRoot,
            MountStep::Processes,
            MountStep::Devices,
            MountStep::Link { path: "/no-l".into(), target: "no-u/x".into() },
            bind("/no-u", false),
            bind("/no-w", true),
        ];
        assert_eq!(plan.steps, [&expected[..], &empty("/no-w", &ALWAYS)].concat());
    }

    #[test]
    fn a_protected_link_in_a_writable_directory_is_refused() {
        let rules = [("/", FileAccess::Read), ("/no-w", FileAccess::Write), ("/no-w/.git", FileAccess::Read)];
        let link = FileFact::Link { target: "elsewhere".into() };
        let refused = planned(&rules, &[], &[("/no-w", DIR), ("/no-w/.git", link)]);
        assert!(refused.is_err_and(|text| text.contains("/no-w/.git")));
    }

    #[test]
    fn a_writable_root_has_the_machines_devices_only_if_they_are_named() {
        let rules = [("/", FileAccess::Write), ("/no-w/.git", FileAccess::Read), ("/dev", FileAccess::Write)];
        let files = [("/no-w", DIR), ("/no-w/.git", DIR), ("/dev", DIR)];
        let named = planned(&rules, &[], &files).expect("there is no link");
        assert!(!named.steps.contains(&MountStep::Devices), "{named:?}");
        let plan = planned(&rules[..2], &[], &files).expect("there is no link");
        assert_eq!(plan.steps[0], MountStep::Devices);
        assert!(plan.steps.ends_with(&[bind("/no-w", true), bind("/no-w/.git", false)]), "{plan:?}");
    }
}
