//! The files of this machine.
//!
//! Every verb is a blocking function that runs on a `BlockingPool`. In the order in which a verb meets them:
//!
//! - `blocking`: how many calls run at once and for whom, and how a long one learns that its caller is gone;
//! - `resolve`: from a path to a handle; symbolic links are followed or refused there and nowhere else;
//! - `path_ops`: verbs over one path (metadata, listing, create, rename, permissions, links);
//! - `read`: whole files and open files; `hash`: one short call for each piece of a file;
//! - `write`, through `write_target` (what is at the path now), `atomic_replace` (a temporary file and a rename) and
//!   `temp_registry` (which finds temporary files again after a kill);
//! - `copy`, `remove`, `walk`, `walk_page`, `filtered_walk` (globs and ignore files), `search`, `watch`: verbs over trees; some go
//!   through them by `descent`.
//!
//! Nothing here knows of connections, handle names, URIs or JSON.

mod atomic_replace;
mod blocking;
mod copy;
mod descent;
mod filtered_walk;
mod hash;
mod path_ops;
mod read;
mod remove;
mod resolve;
#[cfg(feature = "search")]
mod search;
#[cfg(not(feature = "search"))]
#[path = "files/search_absent.rs"]
mod search;
mod temp_registry;
mod walk;
mod walk_page;
mod watch;
mod write;
mod write_target;

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use exec_env::files::{
    ChangeStream, Copied, CopyOptions, CreateDirectoryOptions, DirectoryEntry, DirectoryPage, FileError, FileFuture,
    FileHash, FileReason, FileTimes, FileVerb, Files, GlobMatches, GlobQuery, HashAlgorithm, LinkPolicy, Metadata,
    MissingPathWatch, OpenFile, OpenMode, RemoveOptions, RenameOptions, SearchQuery, SearchResults, WalkListing,
    WalkOptions, WalkPage, WalkPosition, WatchOptions, WriteOptions,
};

use crate::descriptors::{DescriptorBudget, DescriptorPermit, DescriptorUse};
use blocking::{BlockingPool, CancelFlag, PoolSize};
use hash::PartialHash;
use resolve::os;
use temp_registry::TempRegistry;
use write::FileLocks;

/// Short calls. More at once would only queue at the disk; those that hang are not counted there, but need a thread.
const SHORT_CALLS: PoolSize = PoolSize { per_caller: 16, at_once: 32, threads: 256 };

/// Walks, copies and removals of trees. They have a pool of their own, so that a short call never waits for a long one.
const LONG_CALLS: PoolSize = PoolSize { per_caller: 4, at_once: 64, threads: 64 };

/// Searches. A search whose reader is slow occupies its thread all the while, so searches have a pool of their own.
const SEARCHES: PoolSize = PoolSize { per_caller: 4, at_once: 64, threads: 64 };

/// This machine's files, for one of its callers.
#[derive(Clone)]
pub struct LocalFiles {
    short: BlockingPool,
    long: BlockingPool,
    searches: BlockingPool,
    shared: Arc<Shared>,
    descriptors: DescriptorBudget,
}

/// What running calls share with each other.
struct Shared {
    temp_registry: TempRegistry,
    file_locks: FileLocks,
}

impl LocalFiles {
    /// `registry_directory` is a directory of our own in which an earlier server, if it was killed, has left a record
    /// of its temporary files; they are removed before this returns. Without it, temporary files of killed writes stay.
    pub fn open(registry_directory: Option<&Path>) -> Self {
        Self {
            short: BlockingPool::new(SHORT_CALLS),
            long: BlockingPool::new(LONG_CALLS),
            searches: BlockingPool::new(SEARCHES),
            shared: Arc::new(Shared {
                temp_registry: TempRegistry::open(registry_directory),
                file_locks: FileLocks::new(),
            }),
            descriptors: DescriptorBudget::of_this_process(),
        }
    }

    /// The same files, whose handles and watches share the descriptors of this process with others.
    pub fn with_descriptors(self, descriptors: DescriptorBudget) -> Self {
        Self { descriptors, ..self }
    }

    /// The same files for another caller, who waits for none of this one's calls.
    pub fn for_caller(&self) -> Self {
        Self {
            short: self.short.for_caller(),
            long: self.long.for_caller(),
            searches: self.searches.for_caller(),
            shared: Arc::clone(&self.shared),
            descriptors: self.descriptors.clone(),
        }
    }

    /// The right to hold one descriptor open for a caller.
    fn take_descriptor(&self, purpose: DescriptorUse) -> Result<DescriptorPermit, FileReason> {
        self.descriptors.take(purpose, 1).map_err(|full| FileReason::TooManyOpenFiles { limit: full.limit })
    }

    /// Runs a verb that takes microseconds, unless the disk is slow.
    fn short<'a, T: Send + 'static>(
        &'a self,
        verb: FileVerb,
        path: &Path,
        work: impl FnOnce(&Path, &Shared) -> Result<T, FileReason> + Send + 'static,
    ) -> FileFuture<'a, T> {
        let (path, shared) = (path.to_owned(), Arc::clone(&self.shared));
        Box::pin(self.short.run(move |_| work(&path, &shared).map_err(|reason| FileError::new(verb, path, reason))))
    }

    /// Runs a verb over a whole tree.
    fn long<'a, T: Send + 'static>(
        &'a self,
        work: impl FnOnce(&Shared, &CancelFlag) -> Result<T, FileError> + Send + 'static,
    ) -> FileFuture<'a, T> {
        let shared = Arc::clone(&self.shared);
        Box::pin(self.long.run(move |cancel| work(&shared, cancel)))
    }
}

impl Files for LocalFiles {
    fn read<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Bytes> {
        self.short(FileVerb::Read, path, move |path, _| read::read(path, links))
    }

    fn hash<'a>(&'a self, path: &'a Path, algorithm: HashAlgorithm, links: LinkPolicy) -> FileFuture<'a, FileHash> {
        Box::pin(async move {
            let permit = self.take_descriptor(DescriptorUse::FileHandles);
            let _permit = permit.map_err(|reason| FileError::new(FileVerb::Read, path, reason))?;
            let opened = self.short(FileVerb::Read, path, move |path, _| PartialHash::open(path, algorithm, links));
            let mut partial = opened.await?;
            // A call of its own for each piece: a file of any size occupies no thread for long, and when the caller drops
            // this future, no further piece is read.
            loop {
                match self.short(FileVerb::Read, path, move |_, _| partial.add_piece()).await? {
                    ControlFlow::Continue(more) => partial = more,
                    ControlFlow::Break(hash) => return Ok(hash),
                }
            }
        })
    }

    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode, links: LinkPolicy) -> FileFuture<'a, Box<dyn OpenFile>> {
        let (path, pool) = (path.to_owned(), self.short.clone());
        Box::pin(async move {
            let permit = self.take_descriptor(DescriptorUse::FileHandles);
            let permit = permit.map_err(|reason| FileError::new(FileVerb::Open, path.clone(), reason))?;
            let opened = self.short.run(move |_| read::open(path, mode, links, permit, pool));
            Ok(Box::new(opened.await?) as Box<dyn OpenFile>)
        })
    }

    fn write<'a>(&'a self, path: &'a Path, bytes: Bytes, options: WriteOptions) -> FileFuture<'a, ()> {
        self.short(FileVerb::Write, path, move |path, shared| {
            write::write(path, &bytes, options, &shared.file_locks, &shared.temp_registry)
        })
    }

    fn create_directory<'a>(&'a self, path: &'a Path, options: CreateDirectoryOptions) -> FileFuture<'a, ()> {
        self.short(FileVerb::CreateDirectory, path, move |path, _| path_ops::create_directory(path, options))
    }

    fn remove<'a>(&'a self, path: &'a Path, options: RemoveOptions) -> FileFuture<'a, ()> {
        let path = path.to_owned();
        match options.recursive {
            true => self.long(move |_, cancel| remove::remove(&path, options, cancel)),
            false => Box::pin(self.short.run(move |cancel| remove::remove(&path, options, cancel))),
        }
    }

    fn copy<'a>(&'a self, source: &'a Path, destination: &'a Path, options: CopyOptions) -> FileFuture<'a, Copied> {
        let (source, destination) = (source.to_owned(), destination.to_owned());
        self.long(move |shared, cancel| copy::copy(&source, &destination, &options, &shared.temp_registry, cancel))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path, options: RenameOptions) -> FileFuture<'a, ()> {
        let to = to.to_owned();
        self.short(FileVerb::Rename, from, move |from, _| path_ops::rename(from, &to, options).map_err(os))
    }

    fn metadata<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Metadata> {
        self.short(FileVerb::Metadata, path, move |path, _| path_ops::metadata(path, links))
    }

    fn canonicalize<'a>(&'a self, path: &'a Path) -> FileFuture<'a, PathBuf> {
        self.short(FileVerb::Canonicalize, path, |path, _| path_ops::canonicalize(path))
    }

    fn read_directory<'a>(&'a self, path: &'a Path) -> FileFuture<'a, Vec<DirectoryEntry>> {
        self.short(FileVerb::ReadDirectory, path, |path, _| path_ops::read_directory(path))
    }

    fn read_directory_page<'a>(
        &'a self,
        path: &'a Path,
        after: Option<&'a OsStr>,
        max_entries: usize,
    ) -> FileFuture<'a, DirectoryPage> {
        let after = after.map(OsStr::to_owned);
        self.short(FileVerb::ReadDirectory, path, move |path, _| {
            path_ops::read_directory_page(path, after.as_deref(), max_entries)
        })
    }

    fn walk<'a>(&'a self, root: &'a Path, options: WalkOptions) -> FileFuture<'a, WalkListing> {
        let root = root.to_owned();
        self.long(move |_, cancel| {
            walk::walk(&root, options, cancel).map_err(|reason| FileError::new(FileVerb::Walk, root, reason))
        })
    }

    fn walk_page<'a>(
        &'a self,
        root: &'a Path,
        options: WalkOptions,
        after: Option<WalkPosition>,
    ) -> FileFuture<'a, WalkPage> {
        let root = root.to_owned();
        self.long(move |_, cancel| {
            let page = walk_page::walk_page(&root, options, after, cancel);
            page.map_err(|reason| FileError::new(FileVerb::Walk, root, reason))
        })
    }

    fn set_permissions<'a>(&'a self, path: &'a Path, mode: u32, links: LinkPolicy) -> FileFuture<'a, ()> {
        self.short(FileVerb::SetPermissions, path, move |path, _| path_ops::set_permissions(path, mode, links))
    }

    fn set_times<'a>(&'a self, path: &'a Path, times: FileTimes, links: LinkPolicy) -> FileFuture<'a, ()> {
        self.short(FileVerb::SetTimes, path, move |path, _| path_ops::set_times(path, times, links))
    }

    fn read_link<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, PathBuf> {
        self.short(FileVerb::ReadLink, path, move |path, _| path_ops::read_link(path, links).map_err(os))
    }

    fn create_symlink<'a>(&'a self, target: &'a Path, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, ()> {
        let target = target.to_owned();
        self.short(FileVerb::CreateSymlink, path, move |path, _| {
            path_ops::create_symlink(&target, path, links).map_err(os)
        })
    }

    fn watch_missing<'a>(
        &'a self,
        missing: &'a [PathBuf],
        present: Option<&'a Path>,
    ) -> FileFuture<'a, Option<Box<dyn MissingPathWatch>>> {
        let (missing, present) = (missing.to_vec(), present.map(Path::to_owned));
        Box::pin(async move {
            let permit = self.take_descriptor(DescriptorUse::Watches);
            watch::watch_missing(missing, present, permit, &self.short).await
        })
    }

    fn watch<'a>(&'a self, root: &'a Path, options: WatchOptions) -> FileFuture<'a, Box<dyn ChangeStream>> {
        Box::pin(async move {
            let root = root.to_owned();
            let permit = self.take_descriptor(DescriptorUse::Watches);
            let changes = watch::watch(root, options, permit, &self.long, self.short.clone()).await?;
            Ok(Box::new(changes) as Box<dyn ChangeStream>)
        })
    }

    fn search<'a>(&'a self, query: SearchQuery) -> FileFuture<'a, Box<dyn SearchResults>> {
        Box::pin(search::search(query, &self.short, self.searches.clone()))
    }

    fn glob<'a>(&'a self, query: GlobQuery) -> FileFuture<'a, GlobMatches> {
        self.long(move |_, cancel| filtered_walk::glob(&query, cancel))
    }
}
