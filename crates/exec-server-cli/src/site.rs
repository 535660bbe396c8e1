//! Where files are: what `ENV:PATH` means, and the way to the files it names.
//!
//! A [`Word`] is what a person wrote, taken apart; a [`Site`] is a machine whose files can be reached, opened once per
//! command however many words name it; a [`Spot`] is a path on a site.
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

use crate::args::WhereArgs;
use crate::place::{self, Known, Place, There};
use crate::spinner::LinkNews;

/// How long a session is kept for us after a break. Longer than a lost connection is looked for.
const LIVES_WITHOUT_US: Duration = Duration::from_secs(60);

/// What a path without an environment means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    /// A file of this machine, whatever the default is.
    Here,
    /// A file of the place that was chosen.
    Chosen,
}

/// A path as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word<'a> {
    at: At<'a>,
    path: &'a Path,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At<'a> {
    /// No colon before the first slash.
    Plain,
    /// Nothing before the colon.
    Chosen,
    /// An id.
    Environment(&'a str),
}

impl<'a> Word<'a> {
    fn of(word: &'a OsStr) -> Self {
        let bytes = word.as_bytes();
        let colon = bytes.iter().position(|byte| matches!(byte, b':' | b'/')).filter(|at| bytes[*at] == b':');
        let Some(colon) = colon else { return Self { at: At::Plain, path: Path::new(word) } };
        let path = Path::new(OsStr::from_bytes(&bytes[colon + 1..]));
        match std::str::from_utf8(&bytes[..colon]) {
            Ok("") => Self { at: At::Chosen, path },
            Ok(id) => Self { at: At::Environment(id), path },
            // No id of an environment, so the name of a file.
            Err(_) => Self { at: At::Plain, path: Path::new(word) },
        }
    }
}

/// The machines that the words of one command name.
pub(crate) struct Sites<'a> {
    chosen: &'a WhereArgs,
    plain: Plain,
    open: Vec<Arc<Site>>,
}

impl<'a> Sites<'a> {
    pub(crate) fn new(chosen: &'a WhereArgs, plain: Plain) -> Self {
        Self { chosen, plain, open: Vec::new() }
    }

    /// The file that a word means, on a machine that can be reached.
    pub(crate) async fn spot(&mut self, word: &OsStr) -> anyhow::Result<Spot> {
        let Word { at, path } = Word::of(word);
        let site = match at {
            At::Plain if self.plain == Plain::Here => self.open(Place::Here).await?,
            At::Plain | At::Chosen => self.open(place::choose(self.chosen)?).await?,
            At::Environment(id) => self.open(environment(id, word)?).await?,
        };
        if path.as_os_str().is_empty() && at == At::Plain {
            bail!("a path is empty: write . for the current folder");
        }
        let resolved = match (path.is_absolute(), &site.base) {
            (true, _) => path.to_owned(),
            (false, Some(base)) if path.as_os_str().is_empty() => base.clone(),
            (false, Some(base)) => base.join(path),
            (false, None) => bail!("{word:?}: a relative path has no beginning there: write the full path"),
        };
        Ok(Spot { site, path: resolved, word: word.to_owned() })
    }

    async fn open(&mut self, place: Place) -> anyhow::Result<Arc<Site>> {
        let name = match &place {
            Place::Here => None,
            Place::There(there) => Some(there.address.to_string()),
        };
        if let Some(open) = self.open.iter().find(|site| site.name() == name.as_deref()) {
            return Ok(Arc::clone(open));
        }
        let site = Arc::new(match place {
            Place::Here => Site::here(),
            Place::There(there) => Site::there(&there).await?,
        });
        self.open.push(Arc::clone(&site));
        Ok(site)
    }

    /// News of the links to all of them, for whoever waits.
    pub(crate) fn news(&self, quiet: bool) -> News {
        News(self.open.iter().filter_map(|site| site.news(quiet)).collect())
    }

    /// Leaves them all. Every [`Spot`] must be gone, or its machine is left when it goes.
    pub(crate) async fn leave(self) {
        for site in self.open {
            if let Some(Site { reach: Reach::There { environment, .. }, .. }) = Arc::into_inner(site) {
                end(*environment).await;
            }
        }
    }
}

/// An environment by its id; if there is none, with what else the word might have meant.
fn environment(id: &str, word: &OsStr) -> anyhow::Result<Place> {
    let known = Known::discover()?;
    known.place(id).with_context(|| match word.to_string_lossy().contains("://") {
        true => format!("cannot tell where {word:?} is: name a URL with --connect, and a path there as :/path"),
        false => format!("cannot tell where {word:?} is (a local file of that name is written ./{})", word.display()),
    })
}

async fn end(environment: RemoteEnvironment) {
    let within_reach = *environment.link().states().borrow() == LinkState::Connected;
    match within_reach {
        true => {
            if let Err(error) = environment.end().await {
                tracing::debug!(%error, "the session ends by itself");
            }
        }
        false => environment.close().await,
    }
}

/// A machine whose files can be reached.
pub(crate) struct Site {
    reach: Reach,
    /// Where a relative path begins.
    base: Option<PathBuf>,
}

enum Reach {
    Here(Box<LocalFiles>),
    There { environment: Box<RemoteEnvironment>, name: String },
}

impl Site {
    fn here() -> Self {
        Self { reach: Reach::Here(Box::new(LocalFiles::open(None))), base: std::env::current_dir().ok() }
    }

    async fn there(there: &There) -> anyhow::Result<Self> {
        let options = Options { detached_ttl: Some(LIVES_WITHOUT_US), ..Options::default() };
        let connected = there.connect(options).await;
        let environment = connected.map_err(|failure| anyhow::Error::msg(there.failure(&failure)))?;
        let info = environment.info();
        let base = info.cwd.clone().or_else(|| info.home.clone());
        Ok(Self { reach: Reach::There { environment: Box::new(environment), name: there.address.to_string() }, base })
    }

    pub(crate) fn files(&self) -> &dyn Files {
        match &self.reach {
            Reach::Here(files) => files.as_ref(),
            Reach::There { environment, .. } => environment.files(),
        }
    }

    pub(crate) fn is_here(&self) -> bool {
        matches!(self.reach, Reach::Here(_))
    }

    /// Whether it can do what not every server can; by the names of `exec_wire::environment::EXTENSIONS`.
    pub(crate) fn can(&self, extension: &str) -> bool {
        match &self.reach {
            Reach::Here(_) => true,
            Reach::There { environment, .. } => environment.link().has(extension),
        }
    }

    fn name(&self) -> Option<&str> {
        match &self.reach {
            Reach::Here(_) => None,
            Reach::There { name, .. } => Some(name),
        }
    }

    fn news(&self, quiet: bool) -> Option<LinkNews> {
        match &self.reach {
            Reach::Here(_) => None,
            Reach::There { environment, name } => Some(LinkNews::of(environment.link(), name.clone(), false, quiet)),
        }
    }

    /// A path of this site, for people: with the environment before it, unless it is here.
    pub(crate) fn shown(&self, path: &Path) -> OsString {
        match self.name() {
            None => path.as_os_str().to_owned(),
            Some(name) => {
                let mut shown = OsString::from(name);
                shown.push(":");
                shown.push(path);
                shown
            }
        }
    }

    /// The environment's name, for programs.
    pub(crate) fn environment(&self) -> &str {
        self.name().unwrap_or("local")
    }
}

/// A path on a site.
#[derive(Clone)]
pub(crate) struct Spot {
    pub(crate) site: Arc<Site>,
    /// Absolute, if its site tells where it begins.
    pub(crate) path: PathBuf,
    /// As it was written.
    word: OsString,
}

impl Spot {
    pub(crate) fn files(&self) -> &dyn Files {
        self.site.files()
    }

    pub(crate) fn is_on(&self, site: &Arc<Site>) -> bool {
        Arc::ptr_eq(&self.site, site)
    }

    /// As it was written.
    pub(crate) fn word(&self) -> &OsStr {
        &self.word
    }

    /// A path at or below this one, in the words of whoever wrote this one.
    pub(crate) fn shown(&self, path: &Path) -> OsString {
        let Ok(below) = path.strip_prefix(&self.path) else { return self.site.shown(path) };
        if below.as_os_str().is_empty() {
            return self.word.clone();
        }
        let mut shown = self.word.clone().into_vec();
        if !matches!(shown.last(), Some(b'/' | b':') | None) {
            shown.push(b'/');
        }
        shown.extend_from_slice(below.as_os_str().as_bytes());
        OsString::from_vec(shown)
    }

    /// Whether it was written as something that can only be a directory.
    pub(crate) fn must_be_directory(&self) -> bool {
        let word = self.word.as_bytes();
        word.ends_with(b"/") || self.names_contents()
    }

    /// Whether it was written as what is in a directory rather than as the directory: `x/.`, `..`, `env:`.
    pub(crate) fn names_contents(&self) -> bool {
        let word = self.word.as_bytes();
        let path = match word.iter().position(|byte| *byte == b':') {
            Some(colon) if Word::of(&self.word).at != At::Plain => &word[colon + 1..],
            _ => word,
        };
        matches!(path, b"" | b"." | b".." | b"/") || path.ends_with(b"/.") || path.ends_with(b"/..")
    }
}

/// What becomes of the links to several machines.
pub(crate) struct News(Vec<LinkNews>);

impl News {
    /// Waits for a change; for ever where there is no link. Cancelling it loses nothing.
    pub(crate) async fn changed(&mut self) -> (usize, LinkState) {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let changes = self.0.iter_mut().map(|news| Box::pin(news.changed()));
        let (state, which, _) = futures_util::future::select_all(changes).await;
        (which, state)
    }

    /// Tells of it.
    pub(crate) fn tell(&mut self, (which, state): (usize, LinkState)) {
        if let Some(news) = self.0.get_mut(which) {
            news.tell(&state);
        }
    }

    /// Does something, and tells of links that break meanwhile.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                change = self.changed() => self.tell(change),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> (At<'_>, &str) {
        let Word { at, path } = Word::of(OsStr::new(text));
        (at, path.to_str().expect("it was text"))
    }

    #[test]
    fn an_environment_stands_before_the_first_colon_and_no_slash_before_that() {
        assert_eq!(word("build:/tmp/x"), (At::Environment("build"), "/tmp/x"));
        assert_eq!(word("build:x:y"), (At::Environment("build"), "x:y"));
        assert_eq!(word("build:"), (At::Environment("build"), ""));
        assert_eq!(word(":/x"), (At::Chosen, "/x"));
        for plain in ["x", "./a:b", "/a:b", "a/b:c", "."] {
            assert_eq!(word(plain), (At::Plain, plain));
        }
    }

    #[test]
    fn what_is_found_is_told_in_the_words_of_whoever_asked() {
        let spot = |word: &str, path: &str| Spot { site: Arc::new(Site::here()), path: path.into(), word: word.into() };
        assert_eq!(spot("src", "/w/src").shown(Path::new("/w/src/a.rs")), "src/a.rs");
        assert_eq!(spot("far:", "/w").shown(Path::new("/w/a")), "far:a");
        assert_eq!(spot("src/", "/w/src/").shown(Path::new("/w/src/a")), "src/a");
        assert_eq!(spot("src", "/w/src").shown(Path::new("/w/src")), "src");
    }

    #[test]
    fn what_is_in_a_directory_is_told_from_the_directory() {
        let names_contents =
            |word: &str| Spot { site: Arc::new(Site::here()), path: "/x".into(), word: word.into() }.names_contents();
        assert!([".", "..", "a/.", "a/..", "far:", "far:.", "far:a/.", "/", "far:/"].into_iter().all(names_contents));
        assert!(!["a", "a/", "far:a", ".a", "a.", "far:/a"].into_iter().any(names_contents));
    }
}
