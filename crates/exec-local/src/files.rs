//! The files of this machine.
//!
//! Every verb crosses the `gate` and is one function beside: `read`, [`write`] (through `target`, `staged` and
//! `leftovers`), `names`, `remove`, `copy`, `walk`, `watch`, `search`, `trees`. How a path becomes a
//! handle, and what links are worth on the way, is decided in `place` alone.
//!
//! Nothing here knows of connections, handle names, URIs or JSON.

mod copy;
mod gate;
mod leftovers;
mod names;
mod place;
mod read;
mod remove;
mod search;
mod staged;
mod target;
mod trees;
mod walk;
mod watch;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use exec_env::files::{
    Changes, Copied, CopyOptions, CreateDirectoryOptions, DirectoryEntry, FileError, FileFuture, Files, Found,
    GlobQuery, Globbed, Links, Metadata, Missing, OpenFile, OpenMode, Reason, RemoveOptions, RenameOptions,
    SearchQuery, Times, Verb, Walk, WalkOptions, WatchOptions, WriteOptions,
};

use gate::{Gate, Stop};
use leftovers::Leftovers;
use place::os;
use write::Turns;

/// Short calls at once. Each takes a thread while it lasts; more would only queue at the disk.
const SHORT_CALLS: usize = 32;

/// Walks, copies, removals of trees at once. Apart from the short ones, which must never wait behind a long one.
const LONG_CALLS: usize = 8;

/// Searches at once. One whose reader is slow keeps its place, so they are counted by themselves.
const SEARCHES: usize = 8;

/// This machine's files.
pub struct LocalFiles {
    short: Gate,
    long: Gate,
    searches: Gate,
    shared: Arc<Shared>,
}

/// What calls under way share with each other.
struct Shared {
    leftovers: Leftovers,
    turns: Turns,
}

impl LocalFiles {
    /// Opens them. `registers` is a folder of our own where a killed predecessor noted its unfinished writes; they are
    /// cleaned up now, before this returns. Without one, temporary files of killed writes stay where they are.
    pub fn open(registers: Option<&Path>) -> Self {
        Self {
            short: Gate::new(SHORT_CALLS),
            long: Gate::new(LONG_CALLS),
            searches: Gate::new(SEARCHES),
            shared: Arc::new(Shared { leftovers: Leftovers::open(registers), turns: Turns::new() }),
        }
    }

    /// A verb that takes microseconds, disk willing.
    fn short<'a, T: Send + 'static>(
        &'a self,
        verb: Verb,
        path: &Path,
        work: impl FnOnce(&Path, &Shared) -> Result<T, Reason> + Send + 'static,
    ) -> FileFuture<'a, T> {
        let (path, shared) = (path.to_owned(), Arc::clone(&self.shared));
        Box::pin(self.short.run(move |_| work(&path, &shared).map_err(|reason| FileError::new(verb, path, reason))))
    }

    /// A verb over a whole tree.
    fn long<'a, T: Send + 'static>(
        &'a self,
        work: impl FnOnce(&Shared, &Stop) -> Result<T, FileError> + Send + 'static,
    ) -> FileFuture<'a, T> {
        let shared = Arc::clone(&self.shared);
        Box::pin(self.long.run(move |stop| work(&shared, stop)))
    }
}

impl Files for LocalFiles {
    fn read<'a>(&'a self, path: &'a Path, links: Links) -> FileFuture<'a, Bytes> {
        self.short(Verb::Read, path, move |path, _| read::read(path, links))
    }

    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode, links: Links) -> FileFuture<'a, Box<dyn OpenFile>> {
        let (path, gate) = (path.to_owned(), self.short.clone());
        Box::pin(async move {
            let opened = self.short.run(move |_| read::open(path, mode, links, gate));
            Ok(Box::new(opened.await?) as Box<dyn OpenFile>)
        })
    }

    fn write<'a>(&'a self, path: &'a Path, bytes: Bytes, options: WriteOptions) -> FileFuture<'a, ()> {
        self.short(Verb::Write, path, move |path, shared| {
            write::write(path, &bytes, options, &shared.turns, &shared.leftovers)
        })
    }

    fn create_directory<'a>(&'a self, path: &'a Path, options: CreateDirectoryOptions) -> FileFuture<'a, ()> {
        self.short(Verb::CreateDirectory, path, move |path, _| names::create_directory(path, options))
    }

    fn remove<'a>(&'a self, path: &'a Path, options: RemoveOptions) -> FileFuture<'a, ()> {
        let path = path.to_owned();
        match options.recursive {
            true => self.long(move |_, stop| remove::remove(&path, options, stop)),
            false => Box::pin(self.short.run(move |stop| remove::remove(&path, options, stop))),
        }
    }

    fn copy<'a>(&'a self, source: &'a Path, destination: &'a Path, options: CopyOptions) -> FileFuture<'a, Copied> {
        let (source, destination) = (source.to_owned(), destination.to_owned());
        self.long(move |shared, stop| copy::copy(&source, &destination, &options, &shared.leftovers, stop))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path, options: RenameOptions) -> FileFuture<'a, ()> {
        let to = to.to_owned();
        self.short(Verb::Rename, from, move |from, _| names::rename(from, &to, options).map_err(os))
    }

    fn metadata<'a>(&'a self, path: &'a Path, links: Links) -> FileFuture<'a, Metadata> {
        self.short(Verb::Metadata, path, move |path, _| names::metadata(path, links))
    }

    fn canonicalize<'a>(&'a self, path: &'a Path) -> FileFuture<'a, PathBuf> {
        self.short(Verb::Canonicalize, path, |path, _| names::canonicalize(path))
    }

    fn read_directory<'a>(&'a self, path: &'a Path) -> FileFuture<'a, Vec<DirectoryEntry>> {
        self.short(Verb::ReadDirectory, path, |path, _| names::read_directory(path))
    }

    fn walk<'a>(&'a self, root: &'a Path, options: WalkOptions) -> FileFuture<'a, Walk> {
        let root = root.to_owned();
        self.long(move |_, stop| {
            walk::walk(&root, options, stop).map_err(|reason| FileError::new(Verb::Walk, root, reason))
        })
    }

    fn set_permissions<'a>(&'a self, path: &'a Path, mode: u32, links: Links) -> FileFuture<'a, ()> {
        self.short(Verb::SetPermissions, path, move |path, _| names::set_permissions(path, mode, links))
    }

    fn set_times<'a>(&'a self, path: &'a Path, times: Times, links: Links) -> FileFuture<'a, ()> {
        self.short(Verb::SetTimes, path, move |path, _| names::set_times(path, times, links))
    }

    fn read_link<'a>(&'a self, path: &'a Path, links: Links) -> FileFuture<'a, PathBuf> {
        self.short(Verb::ReadLink, path, move |path, _| names::read_link(path, links).map_err(os))
    }

    fn create_symlink<'a>(&'a self, target: &'a Path, path: &'a Path, links: Links) -> FileFuture<'a, ()> {
        let target = target.to_owned();
        self.short(Verb::CreateSymlink, path, move |path, _| names::create_symlink(&target, path, links).map_err(os))
    }

    fn watch_missing<'a>(
        &'a self,
        missing: &'a [PathBuf],
        present: Option<&'a Path>,
    ) -> FileFuture<'a, Option<Box<dyn Missing>>> {
        let (missing, present) = (missing.to_vec(), present.map(Path::to_owned));
        Box::pin(watch::watch_missing(missing, present, &self.short))
    }

    fn watch<'a>(&'a self, root: &'a Path, options: WatchOptions) -> FileFuture<'a, Box<dyn Changes>> {
        Box::pin(async move {
            let root = root.to_owned();
            let changes = watch::watch(root, options, &self.long, self.short.clone()).await?;
            Ok(Box::new(changes) as Box<dyn Changes>)
        })
    }

    fn search<'a>(&'a self, query: SearchQuery) -> FileFuture<'a, Box<dyn Found>> {
        Box::pin(async move {
            let searches = self.searches.clone();
            // Compiling an expression and opening the root are blocking work, too.
            let hunt = self.short.run(move |_| search::prepare(query)).await?;
            Ok(Box::new(search::begin(hunt, searches)) as Box<dyn Found>)
        })
    }

    fn glob<'a>(&'a self, query: GlobQuery) -> FileFuture<'a, Globbed> {
        self.long(move |_, stop| trees::glob(&query, stop))
    }
}
