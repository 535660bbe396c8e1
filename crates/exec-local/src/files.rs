//! The files of this machine.
//!
//! Every verb is a blocking function that runs on a [`BlockingPool`]. In the order in which a verb meets them:
//!
//! - `blocking`: how many calls run at once, and how a long one learns that its caller is gone;
//! - `resolve`: from a path to a handle; symbolic links are followed or refused there and nowhere else;
//! - `path_ops`: verbs over one path (metadata, listing, create, rename, permissions, links);
//! - `read`: whole files and open files; a hash is many short calls, one for each piece of a file (`PartialHash`, below);
//! - `write`, through `write_target` (what is at the path now), `atomic_replace` (a temporary file and a rename) and
//!   `temp_registry` (which finds temporary files again after a kill);
//! - `copy`, `remove`, `walk`, `filtered_walk` (globs and ignore files), `search`, `watch`: verbs over trees.
//!
//! Nothing here knows of connections, handle names, URIs or JSON.

mod atomic_replace;
mod blocking;
mod copy;
mod filtered_walk;
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
mod watch;
mod write;
mod write_target;

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use exec_env::files::limits::READ_BYTES;
use exec_env::files::{
    ChangeStream, Copied, CopyOptions, CreateDirectoryOptions, DirectoryEntry, FileError, FileFuture, FileHash,
    FileReason, FileTimes, FileVerb, Files, GlobMatches, GlobQuery, HashAlgorithm, LinkPolicy, Metadata,
    MissingPathWatch, OpenFile, OpenMode, RemoveOptions, RenameOptions, SearchQuery, SearchResults, WalkListing,
    WalkOptions, WatchOptions, WriteOptions,
};
use rustix::fs::OFlags;
use rustix::io::retry_on_intr;
use sha2::Digest;

use blocking::{BlockingPool, CancelFlag};
use resolve::{open_regular, os, size_bytes};
use temp_registry::TempRegistry;
use write::FileLocks;

/// Short calls at once. Each occupies a thread while it lasts; more would only queue at the disk.
const MAX_SHORT_CALLS: usize = 32;

/// Walks, copies and removals of trees at once. They have a pool of their own, so that a short call never waits for a
/// long one.
const MAX_LONG_CALLS: usize = 8;

/// Searches at once. A search whose reader is slow occupies its thread all the while, so searches have a pool of their
/// own.
const MAX_SEARCHES: usize = 8;

/// What a hash reads in one short call. Between two of them others have their turn, and a caller that is gone is noticed.
const HASH_PIECE_BYTES: usize = 1 << 20;

/// What a hash reads at once. Its memory, while it waits for its turn.
const HASH_BUFFER_BYTES: usize = 64 << 10;

/// This machine's files.
pub struct LocalFiles {
    short: BlockingPool,
    long: BlockingPool,
    searches: BlockingPool,
    shared: Arc<Shared>,
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
            short: BlockingPool::new(MAX_SHORT_CALLS),
            long: BlockingPool::new(MAX_LONG_CALLS),
            searches: BlockingPool::new(MAX_SEARCHES),
            shared: Arc::new(Shared {
                temp_registry: TempRegistry::open(registry_directory),
                file_locks: FileLocks::new(),
            }),
        }
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
            let opened = self.short.run(move |_| read::open(path, mode, links, pool));
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

    fn walk<'a>(&'a self, root: &'a Path, options: WalkOptions) -> FileFuture<'a, WalkListing> {
        let root = root.to_owned();
        self.long(move |_, cancel| {
            walk::walk(&root, options, cancel).map_err(|reason| FileError::new(FileVerb::Walk, root, reason))
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
        Box::pin(watch::watch_missing(missing, present, &self.short))
    }

    fn watch<'a>(&'a self, root: &'a Path, options: WatchOptions) -> FileFuture<'a, Box<dyn ChangeStream>> {
        Box::pin(async move {
            let root = root.to_owned();
            let changes = watch::watch(root, options, &self.long, self.short.clone()).await?;
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

/// A file that is hashed up to some point.
struct PartialHash {
    file: OwnedFd,
    hasher: Hasher,
    hashed_bytes: u64,
    limit_bytes: u64,
    buffer: Vec<u8>,
}

impl PartialHash {
    fn open(path: &Path, algorithm: HashAlgorithm, links: LinkPolicy) -> Result<Self, FileReason> {
        let (file, stat) = open_regular(path, links, OFlags::RDONLY)?;
        Ok(Self {
            file,
            hasher: Hasher::new(algorithm),
            hashed_bytes: 0,
            // The size is only a hint: a file of /proc has none, and a log grows. But the end must come.
            limit_bytes: size_bytes(&stat).saturating_add(READ_BYTES),
            buffer: vec![0; HASH_BUFFER_BYTES],
        })
    }

    fn add_piece(mut self) -> Result<ControlFlow<FileHash, Self>, FileReason> {
        for _ in 0..HASH_PIECE_BYTES / HASH_BUFFER_BYTES {
            let got = retry_on_intr(|| rustix::io::read(&self.file, &mut self.buffer)).map_err(os)?;
            if got == 0 {
                let hash = FileHash { digest: self.hasher.finalize(), size_bytes: self.hashed_bytes };
                return Ok(ControlFlow::Break(hash));
            }
            self.hasher.update(&self.buffer[..got]);
            self.hashed_bytes += got as u64;
            if self.hashed_bytes > self.limit_bytes {
                return Err(FileReason::TooLarge { limit_bytes: self.limit_bytes });
            }
        }
        Ok(ControlFlow::Continue(self))
    }
}

/// One of the algorithms at work.
enum Hasher {
    Blake3(Box<blake3::Hasher>),
    Sha256(sha2::Sha256),
}

impl Hasher {
    fn new(algorithm: HashAlgorithm) -> Self {
        match algorithm {
            HashAlgorithm::Blake3 => Self::Blake3(Box::default()),
            HashAlgorithm::Sha256 => Self::Sha256(sha2::Sha256::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(hasher) => drop(hasher.update(bytes)),
            Self::Sha256(hasher) => hasher.update(bytes),
        }
    }

    fn finalize(self) -> [u8; 32] {
        match self {
            Self::Blake3(hasher) => hasher.finalize().into(),
            Self::Sha256(hasher) => hasher.finalize().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many descriptors of this process lead to the file.
    fn descriptors(path: &Path) -> usize {
        let entries = std::fs::read_dir("/proc/self/fd").expect("Linux has it").flatten();
        entries.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path)).count()
    }

    #[tokio::test]
    async fn a_hash_lets_others_in_between_and_stops_when_nobody_waits_for_it() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path().canonicalize().expect("it exists").join("hole");
        // To hash that many zeros takes longer than a test may.
        std::fs::File::create(&path).and_then(|file| file.set_len(1 << 42)).expect("a hole takes no space");
        let files = LocalFiles { short: BlockingPool::new(1), ..LocalFiles::open(None) };
        let mut hashing = files.hash(&path, HashAlgorithm::Sha256, LinkPolicy::Follow);
        for _ in 0..3 {
            tokio::select! {
                biased;
                hash = &mut hashing => panic!("it cannot be done yet: {hash:?}"),
                metadata = files.metadata(&path, LinkPolicy::Follow) => drop(metadata.expect("it is there")),
            }
            assert_eq!(descriptors(&path), 1, "it is being hashed");
        }
        drop(hashing);
        // A piece that is being read ends first. There is only one thread to wait for.
        while descriptors(&path) != 0 {
            files.metadata(&path, LinkPolicy::Follow).await.expect("it is there");
        }
    }

    #[test]
    fn a_file_that_grows_is_hashed_up_to_the_limit_and_not_beyond() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path().join("file");
        std::fs::write(&path, [7; 10]).expect("the directory is ours");
        let hash = |limit_bytes| {
            let opened = PartialHash::open(&path, HashAlgorithm::Blake3, LinkPolicy::Follow).expect("it is a file");
            assert_eq!(opened.limit_bytes, 10 + READ_BYTES);
            PartialHash { limit_bytes, ..opened }.add_piece().map(ControlFlow::break_value)
        };
        let digest = blake3::hash(&[7; 10]).into();
        assert_eq!(hash(10), Ok(Some(FileHash { digest, size_bytes: 10 })));
        assert_eq!(hash(9), Err(FileReason::TooLarge { limit_bytes: 9 }));
    }
}
