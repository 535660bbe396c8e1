//! What a scope permits, said again in the simplest words and without any code of the server's: methods are beginnings of
//! names, and paths are where they lead, one name after the other.

use std::path::{Component, Path, PathBuf};

use exec_testkit::test_data::SeededRng;
use exec_transport::token::{Audience, Root, TokenClaims, TokenScope, WeakestSandbox};
use exec_wire::method::Method;

use super::tree::{PROTECTED, SpelledPath, Tree, pick};

/// The audience of the server in the test.
pub(super) const ENVIRONMENT: &str = "build";

/// What a request does at a path.
#[derive(Debug, Clone)]
pub(super) enum PathUse {
    /// Reads what it leads to.
    Read(SpelledPath),
    /// Tells or lists what it leads to. That may be a folder on the way to a root, of which only the way is shown.
    Look(SpelledPath),
    /// Reads the name itself, which may be a link.
    ReadName(SpelledPath),
    /// Writes what it leads to.
    Write(SpelledPath),
    /// Makes something of this name.
    Make(SpelledPath),
    /// Takes this name away, with all below it.
    Remove(SpelledPath),
}

#[derive(Debug, Clone)]
pub(super) struct Scope {
    pub(super) methods: Vec<String>,
    /// As the token has them.
    pub(super) roots: Option<Vec<String>>,
    pub(super) weakest: Option<WeakestSandbox>,
    pub(super) environments: Option<Vec<&'static str>>,
    pub(super) is_expired: bool,
    pub(super) subject: Option<&'static str>,
}

/// How a path leads to a file: what it goes through, and the links that it follows.
struct Route {
    entered: Vec<PathBuf>,
    followed: Vec<PathBuf>,
    end: PathBuf,
}

impl PathUse {
    /// Whether its path leads straight to where it ends.
    pub(super) fn is_plain(&self) -> bool {
        let (Self::Read(path) | Self::Look(path) | Self::ReadName(path)) = self else { return true };
        route(&path.path, true).end == path.path
    }
}

impl Scope {
    pub(super) fn random(tree: &Tree, random: &mut SeededRng) -> Self {
        let methods = match random.below(8) {
            0..=2 => vec!["*".to_owned()],
            3 => vec!["fs/*".to_owned(), "environment*".to_owned(), "capability*".to_owned()],
            4 => vec!["process/*".to_owned(), "net/*".to_owned(), "http/request".to_owned(), "session/*".to_owned()],
            5 => vec!["fs/*".to_owned(), "process/*".to_owned(), "net/*".to_owned()],
            _ => (0..random.below(20)).map(|_| random_pattern(random)).collect(),
        };
        let roots = match random.below(8) {
            0 => None,
            _ => Some((0..=random.below(3)).map(|_| random_root(tree, random)).collect::<Vec<_>>()),
        };
        let roots = if random.below(20) == 0 { Some(Vec::new()) } else { roots };
        Self {
            methods,
            roots,
            weakest: *pick(
                random,
                &[None, None, None, None, None, Some(WeakestSandbox::ReadOnly), Some(WeakestSandbox::WorkspaceWrite)],
            ),
            environments: match random.below(24) {
                0 => None,
                1 => Some(vec!["prod"]),
                2 => Some(vec!["prod", "builder", "buil"]),
                3 => Some(vec!["prod", ENVIRONMENT]),
                _ => Some(vec![ENVIRONMENT]),
            },
            is_expired: random.below(20) == 0,
            subject: *pick(random, &[Some("bob"), Some("bob"), Some(""), None]),
        }
    }

    pub(super) fn claims(&self, now: i64) -> TokenClaims {
        let scope = TokenScope {
            methods: self.methods.iter().map(|pattern| pattern.parse().expect("a pattern")).collect(),
            roots: self
                .roots
                .as_ref()
                .map(|roots| roots.iter().map(|root| root.parse::<Root>().expect("a root")).collect()),
            weakest_sandbox: self.weakest,
        };
        let environments = self.environments.as_ref().map(|names| match names.as_slice() {
            [one] => Audience::One((*one).to_owned()),
            several => Audience::Many(several.iter().map(|name| (*name).to_owned()).collect()),
        });
        TokenClaims {
            exp: if self.is_expired { now - 3600 } else { now + 3600 },
            sub: self.subject.map(str::to_owned),
            aud: environments,
            scope: Some(scope),
            ..TokenClaims::default()
        }
    }

    /// Whether a connection with this token is let in at all.
    pub(super) fn is_let_in(&self) -> bool {
        let is_addressed = self.environments.as_ref().is_some_and(|names| names.contains(&ENVIRONMENT));
        let means_something = match &self.roots {
            Some(roots) => !roots.is_empty(),
            None => self.weakest != Some(WeakestSandbox::WorkspaceWrite),
        };
        is_addressed && means_something && !self.is_expired
    }

    pub(super) fn permits_method(&self, method: Method) -> bool {
        let name = method.name();
        method == Method::Initialize
            || self.methods.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => name.get(..beginning.len()) == Some(beginning),
                None => name == pattern,
            })
    }

    pub(super) fn restricts_files(&self) -> bool {
        self.roots.is_some() || self.weakest.is_some()
    }

    /// The rule that refuses to do something with files.
    pub(super) fn file_rule(&self) -> &'static str {
        if self.roots.is_some() { "token/roots" } else { "token/sandbox" }
    }

    pub(super) fn permits(&self, path_use: &PathUse) -> bool {
        match path_use {
            PathUse::Read(spelled) | PathUse::Look(spelled) => {
                self.passes(&route(&spelled.path, true), |end| self.reads(end))
            }
            PathUse::ReadName(spelled) => self.passes(&route(&spelled.path, false), |end| self.reads(end)),
            PathUse::Write(spelled) => self.passes(&route(&spelled.path, true), |end| self.writes(end)),
            PathUse::Make(spelled) => self.passes(&route(&spelled.path, false), |end| self.writes(end)),
            PathUse::Remove(spelled) => self.passes(&route(&spelled.path, false), |end| {
                let parent = end.parent().expect("nobody removes /");
                self.writes(end) && self.writes(parent) && self.guarded_below(end).is_empty()
            }),
        }
    }

    /// Whether a request may be told of a folder on the way to a root, and no more of it than the way, or of a link there.
    pub(super) fn may_show_the_way(&self, path_use: &PathUse) -> bool {
        match path_use {
            PathUse::Look(spelled) => self.passes(&route(&spelled.path, true), |end| self.is_on_the_way(end)),
            PathUse::ReadName(spelled) => self.passes(&route(&spelled.path, false), |end| {
                self.ways_of_roots().iter().any(|way| way.followed.iter().any(|link| link == end))
            }),
            _ => false,
        }
    }

    fn passes(&self, route: &Route, permits_end: impl Fn(&Path) -> bool) -> bool {
        let on_root_ways: Vec<PathBuf> = self.ways_of_roots().into_iter().flat_map(|way| way.followed).collect();
        route.entered.iter().all(|folder| self.reads(folder) || self.is_on_the_way(folder))
            && route.followed.iter().all(|link| self.reads(link) || on_root_ways.contains(link))
            && permits_end(&route.end)
    }

    /// Whether what is at a path without links may be read.
    pub(super) fn reads(&self, path: &Path) -> bool {
        if !self.restricts_files() {
            return true;
        }
        let is_system = ["/bin", "/sbin", "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/etc"]
            .iter()
            .any(|folder| path.starts_with(folder));
        let Some(roots) = &self.roots else { return !path.starts_with("/proc") };
        !path.starts_with("/proc")
            && ((is_system && roots.iter().any(|root| root == "system-files"))
                || self.ends_of_roots().iter().any(|root| path.starts_with(root)))
    }

    pub(super) fn writes(&self, path: &Path) -> bool {
        if !self.restricts_files() {
            return true;
        }
        self.weakest != Some(WeakestSandbox::ReadOnly)
            && self.ends_of_roots().iter().any(|root| path.starts_with(root))
            && !self.is_protected(path)
    }

    /// Whether a folder lies above something that may be read, or above a link to it that the token names.
    fn is_on_the_way(&self, path: &Path) -> bool {
        let links = self.root_paths().into_iter().flat_map(|root| route(&root, true).followed);
        self.ends_of_roots().iter().any(|end| end.starts_with(path))
            || links.into_iter().any(|link| link != path && link.starts_with(path))
    }

    /// Whether the nearest place above a path that anything was said of is what a sandbox for workspaces protects.
    fn is_protected(&self, path: &Path) -> bool {
        let roots = self.ends_of_roots();
        let nearest = path.ancestors().find(|above| roots.iter().any(|root| root == above) || self.is_guarded(above));
        nearest.is_some_and(|nearest| !roots.iter().any(|root| root == nearest))
    }

    /// What a sandbox for workspaces protects below a path.
    pub(super) fn guarded_below(&self, path: &Path) -> Vec<PathBuf> {
        let roots = self.ends_of_roots();
        let guarded = roots.iter().flat_map(|root| PROTECTED.map(|name| root.join(name)));
        let below =
            guarded.filter(|guarded| guarded != path && guarded.starts_with(path) && self.is_protected(guarded));
        below.collect()
    }

    /// Whether a root leads through a link that whoever has the token can change. It opens nothing; but what it protects
    /// where it leads, and the link itself, may stay protected from what the other roots permit.
    pub(super) fn has_a_root_that_is_none(&self) -> bool {
        self.ways_of_roots().len() < self.root_paths().len()
    }

    fn is_guarded(&self, path: &Path) -> bool {
        self.weakest == Some(WeakestSandbox::WorkspaceWrite)
            && path.file_name().is_some_and(|name| PROTECTED.iter().any(|protected| name == *protected))
            && path.parent().is_some_and(|parent| self.ends_of_roots().iter().any(|root| root == parent))
    }

    fn root_paths(&self) -> Vec<PathBuf> {
        let roots = self.roots.iter().flatten().filter(|root| *root != "system-files");
        roots.map(PathBuf::from).collect()
    }

    /// The roots without links.
    fn ends_of_roots(&self) -> Vec<PathBuf> {
        self.ways_of_roots().into_iter().map(|way| way.end).collect()
    }

    /// Where the roots lead. One that goes through a link that whoever has the token can change is none.
    fn ways_of_roots(&self) -> Vec<Route> {
        let ways: Vec<Route> = self.root_paths().iter().map(|root| route(root, true)).collect();
        let ends: Vec<PathBuf> = ways.iter().map(|way| way.end.clone()).collect();
        let can_change = |link: &PathBuf| {
            self.weakest != Some(WeakestSandbox::ReadOnly) && ends.iter().any(|end| link.starts_with(end))
        };
        ways.into_iter().filter(|way| !way.followed.iter().any(can_change)).collect()
    }
}

fn random_pattern(random: &mut SeededRng) -> String {
    let name = pick(random, Method::ALL).name();
    match random.below(3) {
        0 => format!("{}*", &name[..1 + random.below(name.len())]),
        _ => name.to_owned(),
    }
}

fn random_root(tree: &Tree, random: &mut SeededRng) -> String {
    let place = pick(random, &tree.places()).clone();
    let path = match random.below(12) {
        0 => return "system-files".to_owned(),
        1 => tree.root.clone(),
        2 => place.join("file"),
        3 => place.join("folder"),
        10 => place.join("to-a"),
        4 => tree.root.join("alias"),
        5 => tree.root.join("missing"),
        6 => return format!("{}//./", place.display()),
        7 => place.join(".git"),
        8 => place.join("to-outside"),
        9 => place.join("to-b"),
        _ => place,
    };
    path.display().to_string()
}

/// Where a path leads, as the kernel goes.
fn route(path: &Path, follows_last: bool) -> Route {
    let mut route = Route { entered: Vec::new(), followed: Vec::new(), end: PathBuf::from("/") };
    let mut left: Vec<Component<'_>> = path.components().collect();
    left.reverse();
    let mut owned: Vec<std::ffi::OsString> = left.iter().map(|part| part.as_os_str().to_owned()).collect();
    while let Some(name) = owned.pop() {
        if name == "/" || name == "." {
            continue;
        }
        if name == ".." {
            route.end.pop();
            continue;
        }
        let next = route.end.join(&name);
        let is_last = owned.is_empty();
        match std::fs::read_link(&next) {
            Ok(target) if !is_last || follows_last => {
                route.followed.push(next);
                if target.is_absolute() {
                    route.end = PathBuf::from("/");
                }
                owned.extend(target.components().rev().map(|part| part.as_os_str().to_owned()));
            }
            _ => {
                if !is_last {
                    route.entered.push(next.clone());
                }
                route.end = next;
            }
        }
    }
    route
}

/// The folder without links in which a path has its last name.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    route(path, false).end.parent().expect("it is below /").to_owned()
}

/// Where a path leads.
pub(super) fn end_of(path: &Path) -> PathBuf {
    route(path, true).end
}
