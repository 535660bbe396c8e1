//! Where files are: what `ENV:PATH` means, and the way to the files it names.
//!
//! A [`Word`] is what a person wrote, taken apart; a [`Location`] is a machine whose files can be reached, opened once per
//! command however many words name it; a [`FilePath`] is a path on a site.
//!
//! Deliberately absent: what is done with the files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use exec_client::{LinkState, Options, RemoteEnvironment};
use exec_env::{Environment, Files};
use exec_local::files::LocalFiles;

use crate::args::TargetArgs;
use crate::spinner::LinkMonitor;
use crate::target::{self, KnownEnvironments, RemoteTarget, Target};

/// How long a session is kept for us after a break. Longer than a lost connection is looked for.
const DETACHED_TTL: Duration = Duration::from_secs(60);

/// What a path without an environment means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarePath {
    /// A file of this machine, whatever the default is.
    Local,
    /// A file of the place that was chosen.
    Chosen,
}

/// A path as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PathArg<'a> {
    prefix: PathPrefix<'a>,
    path: &'a Path,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathPrefix<'a> {
    /// No colon before the first slash.
    None,
    /// Nothing before the colon.
    Empty,
    /// An id.
    Environment(&'a str),
}

impl<'a> PathArg<'a> {
    fn parse(arg: &'a OsStr) -> Self {
        let bytes = arg.as_bytes();
        let colon = bytes.iter().position(|byte| matches!(byte, b':' | b'/')).filter(|at| bytes[*at] == b':');
        let Some(colon) = colon else { return Self { prefix: PathPrefix::None, path: Path::new(arg) } };
        let path = Path::new(OsStr::from_bytes(&bytes[colon + 1..]));
        match std::str::from_utf8(&bytes[..colon]) {
            Ok("") => Self { prefix: PathPrefix::Empty, path },
            Ok(id) => Self { prefix: PathPrefix::Environment(id), path },
            // No id of an environment, so the name of a file.
            Err(_) => Self { prefix: PathPrefix::None, path: Path::new(arg) },
        }
    }
}

/// The machines that the words of one command name.
pub(crate) struct Locations<'a> {
    chosen: &'a TargetArgs,
    bare: BarePath,
    open: Vec<Arc<Location>>,
}

impl<'a> Locations<'a> {
    pub(crate) fn new(chosen: &'a TargetArgs, bare: BarePath) -> Self {
        Self { chosen, bare, open: Vec::new() }
    }

    /// The file that a word means, on a machine that can be reached.
    pub(crate) async fn resolve(&mut self, arg: &OsStr) -> anyhow::Result<FilePath> {
        let PathArg { prefix, path } = PathArg::parse(arg);
        let location = match prefix {
            PathPrefix::None if self.bare == BarePath::Local => self.open(Target::Local).await?,
            PathPrefix::None | PathPrefix::Empty => self.open(target::choose(self.chosen)?).await?,
            PathPrefix::Environment(id) => self.open(named_environment(id, arg)?).await?,
        };
        if path.as_os_str().is_empty() && prefix == PathPrefix::None {
            bail!("a path is empty: write . for the current folder");
        }
        let resolved = match (path.is_absolute(), &location.base) {
            (true, _) => path.to_owned(),
            (false, Some(base)) if path.as_os_str().is_empty() => base.clone(),
            (false, Some(base)) => base.join(path),
            (false, None) => bail!("{arg:?}: a relative path has no beginning there: write the full path"),
        };
        Ok(FilePath { location, path: resolved, arg: arg.to_owned() })
    }

    async fn open(&mut self, target: Target) -> anyhow::Result<Arc<Location>> {
        let name = match &target {
            Target::Local => None,
            Target::Remote(remote) => Some(remote.address.to_string()),
        };
        if let Some(open) = self.open.iter().find(|location| location.name() == name.as_deref()) {
            return Ok(Arc::clone(open));
        }
        let location = Arc::new(match target {
            Target::Local => Location::local(),
            Target::Remote(remote) => Location::connect(&remote).await?,
        });
        self.open.push(Arc::clone(&location));
        Ok(location)
    }

    /// News of the links to all of them, for whoever waits.
    pub(crate) fn link_monitors(&self, quiet: bool) -> LinkMonitors {
        LinkMonitors(self.open.iter().filter_map(|location| location.link_monitor(quiet)).collect())
    }

    /// Leaves them all. Every [`FilePath`] must be gone, or its machine is left when it goes.
    pub(crate) async fn close(self) {
        for location in self.open {
            if let Some(Location { access: FileAccess::Remote { environment, .. }, .. }) = Arc::into_inner(location) {
                end_session(*environment).await;
            }
        }
    }
}

/// An environment by its id; if there is none, with what else the word might have meant.
fn named_environment(id: &str, arg: &OsStr) -> anyhow::Result<Target> {
    let known = KnownEnvironments::discover()?;
    known.target(id).with_context(|| match arg.to_string_lossy().contains("://") {
        true => format!("cannot tell where {arg:?} is: name a URL with --connect, and a path there as :/path"),
        false => format!("cannot tell where {arg:?} is (a local file of that name is written ./{})", arg.display()),
    })
}

async fn end_session(environment: RemoteEnvironment) {
    let is_connected = *environment.link().states().borrow() == LinkState::Connected;
    match is_connected {
        true => {
            if let Err(error) = environment.end().await {
                tracing::debug!(%error, "the session ends by itself");
            }
        }
        false => environment.close().await,
    }
}

/// A machine whose files can be reached.
pub(crate) struct Location {
    access: FileAccess,
    /// Where a relative path begins.
    base: Option<PathBuf>,
}

enum FileAccess {
    Local(Box<LocalFiles>),
    Remote { environment: Box<RemoteEnvironment>, name: String },
}

impl Location {
    fn local() -> Self {
        Self { access: FileAccess::Local(Box::new(LocalFiles::open(None))), base: std::env::current_dir().ok() }
    }

    async fn connect(remote: &RemoteTarget) -> anyhow::Result<Self> {
        let options = Options { detached_ttl: Some(DETACHED_TTL), ..Options::default() };
        let connected = remote.connect(options).await;
        let environment = connected.map_err(|failure| anyhow::Error::msg(remote.explain(&failure)))?;
        let info = environment.info();
        let base = info.cwd.clone().or_else(|| info.home.clone());
        Ok(Self {
            access: FileAccess::Remote { environment: Box::new(environment), name: remote.address.to_string() },
            base,
        })
    }

    pub(crate) fn files(&self) -> &dyn Files {
        match &self.access {
            FileAccess::Local(files) => files.as_ref(),
            FileAccess::Remote { environment, .. } => environment.files(),
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        matches!(self.access, FileAccess::Local(_))
    }

    /// Whether it can do what not every server can; by the names of `exec_wire::environment::EXTENSIONS`.
    pub(crate) fn supports(&self, extension: &str) -> bool {
        match &self.access {
            FileAccess::Local(_) => true,
            FileAccess::Remote { environment, .. } => environment.link().has(extension),
        }
    }

    fn name(&self) -> Option<&str> {
        match &self.access {
            FileAccess::Local(_) => None,
            FileAccess::Remote { name, .. } => Some(name),
        }
    }

    fn link_monitor(&self, quiet: bool) -> Option<LinkMonitor> {
        match &self.access {
            FileAccess::Local(_) => None,
            FileAccess::Remote { environment, name } => {
                Some(LinkMonitor::new(environment.link(), name.clone(), false, quiet))
            }
        }
    }

    /// A path of this site, for people: with the environment before it, unless it is here.
    pub(crate) fn display_path(&self, path: &Path) -> OsString {
        match self.name() {
            None => path.as_os_str().to_owned(),
            Some(name) => {
                let mut text = OsString::from(name);
                text.push(":");
                text.push(path);
                text
            }
        }
    }

    /// The environment's name, for programs.
    pub(crate) fn environment_id(&self) -> &str {
        self.name().unwrap_or("local")
    }
}

/// A path on a site.
#[derive(Clone)]
pub(crate) struct FilePath {
    pub(crate) location: Arc<Location>,
    /// Absolute, if its site tells where it begins.
    pub(crate) path: PathBuf,
    /// As it was written.
    arg: OsString,
}

impl FilePath {
    pub(crate) fn files(&self) -> &dyn Files {
        self.location.files()
    }

    pub(crate) fn is_on(&self, location: &Arc<Location>) -> bool {
        Arc::ptr_eq(&self.location, location)
    }

    /// As it was written.
    pub(crate) fn as_written(&self) -> &OsStr {
        &self.arg
    }

    /// A path at or below this one, in the words of whoever wrote this one.
    pub(crate) fn display_path(&self, path: &Path) -> OsString {
        let Ok(below) = path.strip_prefix(&self.path) else { return self.location.display_path(path) };
        if below.as_os_str().is_empty() {
            return self.arg.clone();
        }
        let mut text = self.arg.clone().into_vec();
        if !matches!(text.last(), Some(b'/' | b':') | None) {
            text.push(b'/');
        }
        text.extend_from_slice(below.as_os_str().as_bytes());
        OsString::from_vec(text)
    }

    /// Whether it was written as something that can only be a directory.
    pub(crate) fn must_be_directory(&self) -> bool {
        let word = self.arg.as_bytes();
        word.ends_with(b"/") || self.names_contents()
    }

    /// Whether it was written as what is in a directory rather than as the directory: `x/.`, `..`, `env:`.
    pub(crate) fn names_contents(&self) -> bool {
        let word = self.arg.as_bytes();
        let path = match word.iter().position(|byte| *byte == b':') {
            Some(colon) if PathArg::parse(&self.arg).prefix != PathPrefix::None => &word[colon + 1..],
            _ => word,
        };
        matches!(path, b"" | b"." | b".." | b"/") || path.ends_with(b"/.") || path.ends_with(b"/..")
    }
}

/// What becomes of the links to several machines.
pub(crate) struct LinkMonitors(Vec<LinkMonitor>);

impl LinkMonitors {
    /// Waits for a change; for ever where there is no link. Cancelling it loses nothing.
    pub(crate) async fn changed(&mut self) -> (usize, LinkState) {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let changes = self.0.iter_mut().map(|link| Box::pin(link.changed()));
        let (state, which, _) = futures_util::future::select_all(changes).await;
        (which, state)
    }

    /// Tells of it.
    pub(crate) fn report(&mut self, (which, state): (usize, LinkState)) {
        if let Some(link) = self.0.get_mut(which) {
            link.report(&state);
        }
    }

    /// Does something, and tells of links that break meanwhile.
    pub(crate) async fn report_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                change = self.changed() => self.report(change),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (PathPrefix<'_>, &str) {
        let PathArg { prefix, path } = PathArg::parse(OsStr::new(text));
        (prefix, path.to_str().expect("it was text"))
    }

    #[test]
    fn an_environment_stands_before_the_first_colon_and_no_slash_before_that() {
        assert_eq!(parse("build:/tmp/x"), (PathPrefix::Environment("build"), "/tmp/x"));
        assert_eq!(parse("build:x:y"), (PathPrefix::Environment("build"), "x:y"));
        assert_eq!(parse("build:"), (PathPrefix::Environment("build"), ""));
        assert_eq!(parse(":/x"), (PathPrefix::Empty, "/x"));
        for bare in ["x", "./a:b", "/a:b", "a/b:c", "."] {
            assert_eq!(parse(bare), (PathPrefix::None, bare));
        }
    }

    #[test]
    fn what_is_found_is_told_in_the_words_of_whoever_asked() {
        let file = |arg: &str, path: &str| FilePath {
            location: Arc::new(Location::local()),
            path: path.into(),
            arg: arg.into(),
        };
        assert_eq!(file("src", "/w/src").display_path(Path::new("/w/src/a.rs")), "src/a.rs");
        assert_eq!(file("far:", "/w").display_path(Path::new("/w/a")), "far:a");
        assert_eq!(file("src/", "/w/src/").display_path(Path::new("/w/src/a")), "src/a");
        assert_eq!(file("src", "/w/src").display_path(Path::new("/w/src")), "src");
    }

    #[test]
    fn what_is_in_a_directory_is_told_from_the_directory() {
        let names_contents = |arg: &str| {
            FilePath { location: Arc::new(Location::local()), path: "/x".into(), arg: arg.into() }.names_contents()
        };
        assert!([".", "..", "a/.", "a/..", "far:", "far:.", "far:a/.", "/", "far:/"].into_iter().all(names_contents));
        assert!(!["a", "a/", "far:a", ".a", "a.", "far:/a"].into_iter().any(names_contents));
    }
}
