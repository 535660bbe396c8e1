//! Ignore files, which exclude paths from walks and from the changes that a watch tells.
//!
//! `.ignore`, `.gitignore`, `.git/info/exclude` and the user's own file decide in this order; of files of one kind, the
//! nearest directory with a rule that matches does. The rules come from the `ignore` crate, but it reads no file for us:
//! in a tree of somebody else an ignore file may be a FIFO, which would never be opened, or a device or a giant line,
//! which would take all memory. So only regular files are read, and of those only a beginning.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use exec_env::files::LinkPolicy;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::OFlags;

use super::super::policy::CallPolicy;
use super::super::resolve::open_regular;

const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// How much of an ignore file is read. Longer ones are no work of a person.
const IGNORE_FILE_BYTES: u64 = 1 << 20;

/// How much is read of files that say where a repository is. A path is no longer.
const POINTER_BYTES: u64 = 4 << 10;

/// What the rules may weigh that a walk or a watch holds at a time, see [`weight`]. That is some 60 MiB of them at the worst;
/// where it is used up, no more are read. The ignore files of Linux weigh a hundredth of it.
const RULES_WEIGHT: usize = 1 << 17;

/// No path is longer, so no longer pattern is of use.
const PATTERN_BYTES: usize = 4 << 10;

/// What an ignore file says of a path; the nothing that most say is `Match::None`.
pub(in super::super) type Verdict = Match<()>;

/// The ignore files of one directory.
pub(in super::super) struct DirectoryRules {
    /// In the order in which they decide.
    kinds: [Gitignore; 3],
    weight: usize,
}

impl DirectoryRules {
    /// Reads no more rules than go with those that are held already.
    pub(in super::super) fn read(policy: &CallPolicy, directory: &Path, held_weight: usize) -> Self {
        let mut room = RULES_WEIGHT.saturating_sub(held_weight);
        let before = room;
        let mut read = |path: PathBuf| read_rules(policy, directory, &path, &mut room);
        let kinds = [
            read(directory.join(".ignore")),
            read(directory.join(".gitignore")),
            repository(policy, directory).map_or_else(Gitignore::empty, |git| read(git.join("info/exclude"))),
        ];
        Self { kinds, weight: before - room }
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.kinds.iter().all(Gitignore::is_empty)
    }

    pub(in super::super) fn weight(&self) -> usize {
        self.weight
    }
}

/// What these directories say of a path below them, the nearest one first.
pub(in super::super) fn verdict<'a>(
    nearest_first: impl Iterator<Item = (&'a DirectoryRules, &'a Path)>,
    is_directory: bool,
) -> Verdict {
    let mut of_kinds = [Match::None, Match::None, Match::None];
    for (rules, path) in nearest_first {
        for (verdict, kind) in of_kinds.iter_mut().zip(&rules.kinds) {
            if verdict.is_none() {
                *verdict = kind.matched(path, is_directory).map(drop);
            }
        }
    }
    of_kinds.into_iter().find(|verdict| !verdict.is_none()).unwrap_or(Match::None)
}

/// What the user of this process ignores everywhere: Git's `core.excludesFile`. Patterns with a slash are about `root`.
pub(in super::super) fn of_the_user(root: &Path) -> Gitignore {
    let policy = CallPolicy::default();
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("HOME");
    let in_home = |below: &str| home.as_ref().map(|home| home.join(below));
    let configuration = variable("XDG_CONFIG_HOME").or_else(|| in_home(".config"));
    let configurations = match variable("GIT_CONFIG_GLOBAL") {
        Some(file) => vec![Some(file)],
        None => vec![in_home(".gitconfig"), configuration.as_ref().map(|path| path.join("git/config"))],
    };
    let system = variable("GIT_CONFIG_SYSTEM").unwrap_or_else(|| PathBuf::from("/etc/gitconfig"));
    let named = configurations.into_iter().flatten().chain([system]).find_map(|file| {
        let text = read_beginning(&policy, &file, IGNORE_FILE_BYTES)?;
        excludes_file(&String::from_utf8_lossy(&text))
    });
    let named = named.map(|path| match path.strip_prefix("~/").and_then(in_home) {
        Some(path) => path,
        None => PathBuf::from(path),
    });
    let excludes = named.or_else(|| configuration.map(|path| path.join("git/ignore")));
    excludes.map_or_else(Gitignore::empty, |path| read_rules(&policy, root, &path, &mut { RULES_WEIGHT / 8 }))
}

/// The value of `excludesFile` in a configuration file of Git.
fn excludes_file(configuration: &str) -> Option<String> {
    configuration.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        let value = value.trim().trim_matches('"').trim();
        (key.trim().eq_ignore_ascii_case("excludesfile") && !value.is_empty()).then(|| value.to_owned())
    })
}

/// The directory of the repository whose work tree begins here: `.git`, or where that leads if it is a file.
fn repository(policy: &CallPolicy, directory: &Path) -> Option<PathBuf> {
    let git = directory.join(".git");
    let pointer = |path: &Path| {
        let text = String::from_utf8(read_beginning(policy, path, POINTER_BYTES)?).ok()?;
        text.lines().next().map(str::to_owned)
    };
    let Some(line) = pointer(&git) else { return git.is_dir().then_some(git) };
    let work_tree = directory.join(line.strip_prefix("gitdir: ")?);
    let common = pointer(&work_tree.join("commondir"))?;
    Some(work_tree.join(common))
}

/// The rules of one file about what is below `directory`, as far as there is room for them.
fn read_rules(policy: &CallPolicy, directory: &Path, path: &Path, room: &mut usize) -> Gitignore {
    let Some(bytes) = read_beginning(policy, path, IGNORE_FILE_BYTES) else { return Gitignore::empty() };
    let mut builder = GitignoreBuilder::new(directory);
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    for line in bytes.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A line that is no text, or does not parse, is skipped, as Git does.
        let Some(line) = std::str::from_utf8(line).ok().filter(|line| line.len() <= PATTERN_BYTES) else { continue };
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match room.checked_sub(weight(line)) {
            Some(left) => *room = left,
            None => break,
        }
        let _bad_line = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// What a rule costs, in pieces of some 300 bytes: a name or an ending goes into a table, anything else becomes an automaton.
fn weight(line: &str) -> usize {
    let name = line.strip_prefix("*.").unwrap_or(line);
    match name.contains(['*', '?', '[', '{', '\\']) {
        true => 16 + line.len(),
        false => 2 + line.len() / 16,
    }
}

fn read_beginning(policy: &CallPolicy, path: &Path, limit_bytes: u64) -> Option<Vec<u8>> {
    let (file, _) = open_regular(policy, path, LinkPolicy::Follow, OFlags::RDONLY).ok()?;
    let mut bytes = Vec::new();
    File::from(file).take(limit_bytes).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The rules of every watched directory that has an ignore file.
#[derive(Default)]
pub(super) struct IgnoreRules {
    root: PathBuf,
    policy: CallPolicy,
    of_directory: HashMap<PathBuf, DirectoryRules>,
    weight: usize,
}

impl IgnoreRules {
    pub(super) fn below(root: &Path, policy: CallPolicy) -> Self {
        Self { root: root.to_owned(), policy, of_directory: HashMap::new(), weight: 0 }
    }

    /// Reads the ignore files of `directory`, which is new or has changed ignore files.
    pub(super) fn load(&mut self, directory: &Path) {
        if let Some(old) = self.of_directory.remove(directory) {
            self.weight -= old.weight();
        }
        let rules = DirectoryRules::read(&self.policy, directory, self.weight);
        if !rules.is_empty() {
            self.weight += rules.weight();
            self.of_directory.insert(directory.to_owned(), rules);
        }
    }

    /// To be called when `directory` is no longer watched; it may be there again.
    pub(super) fn reload(&mut self, directory: &Path) {
        if self.of_directory.contains_key(directory) {
            self.load(directory);
        }
    }

    /// Lets go of the rules of `directory` and of all below it, which are elsewhere now.
    pub(super) fn forget_tree(&mut self, directory: &Path) {
        let gone = self.of_directory.extract_if(|path, _| path.starts_with(directory));
        self.weight -= gone.map(|(_, rules)| rules.weight()).sum::<usize>();
    }

    pub(super) fn is_ignore_file(path: &Path) -> bool {
        path.file_name().is_some_and(|name| IGNORE_FILES.iter().any(|file| name == *file))
    }

    pub(super) fn is_ignored(&self, path: &Path, is_directory: bool) -> bool {
        if path.file_name().is_some_and(|name| name == ".git") {
            return true;
        }
        let below_root = path.ancestors().skip(1).take_while(|directory| directory.starts_with(&self.root));
        let rules = below_root.filter_map(|directory| self.of_directory.get(directory));
        verdict(rules.map(|rules| (rules, path)), is_directory).is_ignore()
    }
}
