//! File arguments: what `ENV:PATH` means, and access to the files of that environment.
//!
//! A [`PathArg`] is an argument as the user wrote it, parsed. A [`Location`] is a machine whose files can be used; it is
//! opened once per command, however many arguments name it. A [`FilePath`] is a path at a location.
//!
//! Deliberately absent: what is done with the files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use exec_client::Environments;
use exec_env::{Environment, Files};
use exec_local::files::LocalFiles;
use exec_wire::Extension;

use crate::args::{ConnectArgs, TargetArgs};
use crate::connection_status::LinkMonitors;
use crate::target::{self, OpenConnection, OpenTarget, RemoteTarget, Target};

/// What a path without a colon means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarePath {
    /// A file of this machine, whatever the default environment is.
    Local,
    /// A file of the environment that the options name, or of the default.
    Chosen,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PathArg<'a> {
    prefix: PathPrefix<'a>,
    path: &'a Path,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathPrefix<'a> {
    /// There is no colon before the first slash.
    None,
    /// There is nothing before the colon.
    Empty,
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
            // Ids are UTF-8, so this is the name of a file.
            Err(_) => Self { prefix: PathPrefix::None, path: Path::new(arg) },
        }
    }
}

/// The machines that the arguments of one command name.
pub(crate) struct Locations<'a> {
    chosen: &'a TargetArgs,
    bare: BarePath,
    open: Vec<Arc<Location>>,
}

impl<'a> Locations<'a> {
    pub(crate) fn new(chosen: &'a TargetArgs, bare: BarePath) -> Self {
        Self { chosen, bare, open: Vec::new() }
    }

    /// Resolves all arguments before anything is done: with a mistake in one of them, nothing happens to the others.
    pub(crate) async fn resolve_all(&mut self, args: &[OsString]) -> anyhow::Result<Vec<FilePath>> {
        let mut files = Vec::with_capacity(args.len());
        for arg in args {
            files.push(self.resolve(arg).await?);
        }
        Ok(files)
    }

    async fn resolve(&mut self, arg: &OsStr) -> anyhow::Result<FilePath> {
        let PathArg { prefix, path } = PathArg::parse(arg);
        let location = match prefix {
            PathPrefix::None if self.bare == BarePath::Local => self.open(Target::Local).await?,
            PathPrefix::None | PathPrefix::Empty => self.open(target::choose(self.chosen)?).await?,
            PathPrefix::Environment(id) => self.open(named_environment(id, arg, &self.chosen.connection)?).await?,
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
        if let Some(open) = self.open.iter().find(|location| location.access.name() == name.as_deref()) {
            return Ok(Arc::clone(open));
        }
        let location = Arc::new(match target {
            Target::Local => Location::local(),
            Target::Remote(remote) => Location::connect(&remote).await?,
        });
        self.open.push(Arc::clone(&location));
        Ok(location)
    }

    pub(crate) fn link_monitors(&self, quiet: bool) -> LinkMonitors {
        LinkMonitors(self.open.iter().filter_map(|location| location.access.link_monitor(None, quiet)).collect())
    }

    /// Ends the sessions. A location of which a [`FilePath`] is still held is only disconnected, when that is dropped.
    pub(crate) async fn close(self) {
        for location in self.open {
            if let Some(Location { access: OpenTarget::Remote(connection), .. }) = Arc::into_inner(location) {
                connection.end().await;
            }
        }
    }
}

/// The environment with that id. The error says what else the argument might have meant.
fn named_environment(id: &str, arg: &OsStr, connection: &ConnectArgs) -> anyhow::Result<Target> {
    target::by_id(&Environments::discover()?, id, connection).with_context(|| {
        match arg.to_string_lossy().contains("://") {
            true => format!("cannot tell where {arg:?} is: name a URL with --connect, and a path there as :/path"),
            false => format!("cannot tell where {arg:?} is (a local file of that name is written ./{})", arg.display()),
        }
    })
}

/// A machine whose files can be used.
pub(crate) struct Location {
    access: OpenTarget<LocalFiles>,
    /// Where a relative path begins.
    base: Option<PathBuf>,
}

impl Location {
    fn local() -> Self {
        Self { access: OpenTarget::Local(Box::new(LocalFiles::open(None))), base: std::env::current_dir().ok() }
    }

    async fn connect(remote: &RemoteTarget) -> anyhow::Result<Self> {
        let connection = OpenConnection::open(remote).await?;
        let base = target::base_directory(connection.environment.info());
        Ok(Self { access: OpenTarget::Remote(Box::new(connection)), base })
    }

    pub(crate) fn files(&self) -> &dyn Files {
        match &self.access {
            OpenTarget::Local(files) => files.as_ref(),
            OpenTarget::Remote(connection) => connection.environment.files(),
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        self.access.is_local()
    }

    /// See [`OpenTarget::supports`].
    pub(crate) fn supports(&self, extension: impl Into<Extension>) -> bool {
        self.access.supports(extension)
    }

    /// A path of this location for the user: with the environment before it, unless it is this machine.
    pub(crate) fn display_path(&self, path: &Path) -> OsString {
        match self.access.name() {
            None => path.as_os_str().to_owned(),
            Some(name) => {
                let mut text = OsString::from(name);
                text.push(":");
                text.push(path);
                text
            }
        }
    }

    /// What `--json` prints as `environment`.
    pub(crate) fn environment_id(&self) -> &str {
        self.access.name().unwrap_or("local")
    }
}

/// A path at a location.
#[derive(Clone)]
pub(crate) struct FilePath {
    pub(crate) location: Arc<Location>,
    /// Absolute, if the location says where a relative path begins.
    pub(crate) path: PathBuf,
    /// The argument as it was written.
    arg: OsString,
}

impl FilePath {
    pub(crate) fn files(&self) -> &dyn Files {
        self.location.files()
    }

    pub(crate) fn is_on(&self, location: &Arc<Location>) -> bool {
        Arc::ptr_eq(&self.location, location)
    }

    pub(crate) fn as_written(&self) -> &OsStr {
        &self.arg
    }

    /// A path at or below this one, shown as a continuation of what the user wrote.
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
        self.arg.as_bytes().ends_with(b"/") || self.names_contents()
    }

    /// Whether it was written as the contents of a directory rather than as the directory: `x/.`, `..`, `env:`.
    pub(crate) fn names_contents(&self) -> bool {
        let path = PathArg::parse(&self.arg).path.as_os_str().as_bytes();
        matches!(path, b"" | b"." | b".." | b"/") || path.ends_with(b"/.") || path.ends_with(b"/..")
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
