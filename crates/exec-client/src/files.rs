//! The files at the far end: the verbs of the waist as calls over a link.
//!
//! A call that changes nothing, whose repetition is the same as the one time, or that the server knows by its id, is sent
//! again after a break; any other fails and says that it may have happened. What our server adds to the original is asked for only where it is there:
//! a server that would silently leave out a condition is not asked at all.
//!
//! Reading order: `handle` (a file that stays open, over connections that do not), [`stream`] (any size in little
//! memory), `watch`, `search`.

mod handle;
mod search;
pub mod stream;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use exec_env::files::tree::CopyProgress;
use exec_env::files::{
    ChangeStream, Copied, CopyOptions, CreateDirectoryOptions, DirectoryEntry, ExpectedFile, FileError, FileFuture, Files, SearchResults,
    GlobQuery, GlobMatches, LinkPolicy, Metadata, MissingPathWatch, OpenFile, OpenMode, FileReason, RemoveOptions, RenameOptions,
    SearchQuery, FileTimes, FileVerb, WalkListing, WalkOptions, WatchOptions, WriteOptions, limits,
};
use exec_wire::fs as wire;
use exec_wire::{Call, NotificationMethod, PathUri};
use tokio::sync::mpsc;

use crate::convert;
use crate::error;
use crate::limits::{HEARD, LONG_CALL, STREAM_BLOCK_BYTES, WRITE_FILE_BYTES};
use crate::link::{Heard, Link, Terms};
use crate::replay::Replay;
use handle::RemoteFile;
use watch::MissingWatches;

/// A server that cannot do what is asked.
const ENOSYS: i32 = 38;

/// More than one message holds.
const EFBIG: i32 = 27;

/// The files at the far end.
#[derive(Debug)]
pub(crate) struct RemoteFiles {
    link: Link,
    missing: MissingWatches,
}

impl RemoteFiles {
    pub(crate) fn new(link: Link) -> Self {
        Self { link, missing: MissingWatches::default() }
    }

    /// Asks on terms that suit files: a tree may take long, and a dead link is noticed by the transport.
    async fn ask<C: Call>(&self, at: At<'_>, params: C, replay: Replay) -> Result<C::Result, FileError> {
        ask(&self.link, at, &params, replay).await
    }

    fn need(&self, at: At<'_>, extension: &str) -> Result<(), FileError> {
        match self.link.has(extension) {
            true => Ok(()),
            false => Err(at.error(FileReason::Os(ENOSYS))),
        }
    }

    /// What does not fit one answer is fetched in blocks; it must not change meanwhile.
    async fn read_in_blocks(&self, at: At<'_>, links: LinkPolicy) -> Result<Bytes, FileError> {
        let file = RemoteFile::open(self.link.clone(), at.path, OpenMode::Read, links).await?;
        let size_bytes = usize::try_from(file.size_bytes()).unwrap_or(usize::MAX);
        let file: Arc<dyn OpenFile> = Arc::new(file);
        let mut blocks = stream::Blocks::new(file, 0);
        let mut bytes = BytesMut::with_capacity(size_bytes.min(limits::READ_BYTES as usize));
        while let Some(block) = blocks.next().await.map_err(|error| FileError { verb: at.verb, ..error })? {
            if (bytes.len() + block.len()) as u64 > limits::READ_BYTES {
                return Err(at.error(FileReason::TooLarge { limit_bytes: limits::READ_BYTES }));
            }
            bytes.extend_from_slice(&block);
        }
        Ok(bytes.freeze())
    }
}

/// What is asked, and of which path: the two things that every error names.
#[derive(Debug, Clone, Copy)]
struct At<'a> {
    verb: FileVerb,
    path: &'a Path,
}

impl<'a> At<'a> {
    fn new(verb: FileVerb, path: &'a Path) -> Self {
        Self { verb, path }
    }

    fn error(&self, reason: FileReason) -> FileError {
        FileError::new(self.verb, self.path, reason)
    }

    fn uri(&self) -> Result<PathUri, FileError> {
        uri(*self, self.path)
    }
}

/// A path as the wire has it. One that depends on a working directory means nothing over there.
fn uri(at: At<'_>, path: &Path) -> Result<PathUri, FileError> {
    const EINVAL: i32 = 22;
    PathUri::from_path(path).map_err(|_| FileError::new(at.verb, path, FileReason::Os(EINVAL)))
}

async fn ask<C: Call>(link: &Link, at: At<'_>, params: &C, replay: Replay) -> Result<C::Result, FileError> {
    let answered = link.call_with(params, Terms { deadline: LONG_CALL, replay }).await;
    answered.result.map_err(|error| error::file_error(at.verb, at.path, error))
}

/// Tells the server something that nobody waits for, as when a handle is dropped. The task ends by itself: with the
/// answer, with the link, or at the call's deadline.
fn tell<C: Call + Sync>(link: &Link, params: C) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let link = link.clone();
        drop(runtime.spawn(async move { link.call(params).await.map(drop) }));
    }
}

fn follow(links: LinkPolicy) -> Option<bool> {
    match links {
        LinkPolicy::Follow => None,
        LinkPolicy::Refuse => Some(false),
    }
}

impl Files for RemoteFiles {
    fn read<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Bytes> {
        Box::pin(async move {
            let at = At::new(FileVerb::Read, path);
            let params = wire::ReadFileParams { path: at.uri()?, follow_symlinks: follow(links), sandbox: None };
            let terms = Terms { deadline: LONG_CALL, replay: Replay::Again };
            match self.link.call_with(&params, terms).await.result {
                Ok(read) => Ok(read.data_base64.0),
                Err(error) if error::is_answer_too_large(&error) => self.read_in_blocks(at, links).await,
                Err(error) => Err(error::file_error(at.verb, path, error)),
            }
        })
    }

    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode, links: LinkPolicy) -> FileFuture<'a, Box<dyn OpenFile>> {
        Box::pin(async move {
            if mode == OpenMode::Append || links == LinkPolicy::Refuse {
                self.need(At::new(FileVerb::Open, path), "fs/open.append")?;
            }
            let file = RemoteFile::open(self.link.clone(), path, mode, links).await?;
            Ok(Box::new(file) as Box<dyn OpenFile>)
        })
    }

    fn write<'a>(&'a self, path: &'a Path, bytes: Bytes, options: WriteOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let at = At::new(FileVerb::Write, path);
            if bytes.len() > WRITE_FILE_BYTES {
                return Err(at.error(FileReason::Os(EFBIG)));
            }
            let wishes = [
                (options.append, "fs/writeFile.append"),
                (options.expect != ExpectedFile::Anything, "fs/writeFile.ifMatch"),
                (options.mode.is_some(), "fs/writeFile.mode"),
                (options.sync, "fs/writeFile.sync"),
            ];
            for (_, extension) in wishes.iter().filter(|(wished, _)| *wished) {
                self.need(at, extension)?;
            }
            let if_match = match options.expect {
                ExpectedFile::Anything => None,
                ExpectedFile::Absent => Some("absent".to_owned()),
                ExpectedFile::Content(hash) => Some(hash.to_string()),
            };
            // The same bytes once more make the same file, unless they are added, or what was there has changed by it.
            let same_again = !options.append && options.expect == ExpectedFile::Anything;
            let replay = if same_again { Replay::Again } else { Replay::Known };
            let params = wire::WriteFileParams {
                path: at.uri()?,
                data_base64: bytes.into(),
                follow_symlinks: follow(options.links),
                sandbox: None,
                append: options.append,
                if_match,
                mode: options.mode,
                sync: options.sync,
            };
            self.ask(at, params, replay).await.map(drop)
        })
    }

    fn create_directory<'a>(&'a self, path: &'a Path, options: CreateDirectoryOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let at = At::new(FileVerb::CreateDirectory, path);
            if options.mode.is_some() {
                self.need(at, "fs/createDirectory.mode")?;
            }
            let params = wire::CreateDirectoryParams {
                path: at.uri()?,
                recursive: Some(options.recursive),
                follow_symlinks: follow(options.links),
                sandbox: None,
                mode: options.mode,
            };
            let replay = if options.recursive { Replay::Again } else { Replay::Known };
            self.ask(at, params, replay).await.map(drop)
        })
    }

    fn remove<'a>(&'a self, path: &'a Path, options: RemoveOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let at = At::new(FileVerb::Remove, path);
            let params = wire::RemoveParams {
                path: at.uri()?,
                recursive: Some(options.recursive),
                force: Some(options.force),
                follow_symlinks: follow(options.links),
                sandbox: None,
            };
            // Sent again, it could remove what somebody has put there since.
            self.ask(at, params, Replay::Known).await.map(drop)
        })
    }

    fn copy<'a>(&'a self, source: &'a Path, destination: &'a Path, options: CopyOptions) -> FileFuture<'a, Copied> {
        Box::pin(async move {
            let at = At::new(FileVerb::Copy, source);
            if options.keep_times {
                self.need(at, "fs/copy.keepTimes")?;
            }
            let progress_id = options.progress.is_some().then(fresh_id);
            let params = wire::CopyParams {
                source_path: at.uri()?,
                destination_path: uri(at, destination)?,
                recursive: options.recursive,
                sandbox: None,
                report: true,
                progress_id: progress_id.clone(),
                keep_times: options.keep_times,
            };
            let (Some(progress_id), Some(progress)) = (progress_id, &options.progress) else {
                let copied = self.ask(at, params, Replay::Known).await?;
                return Ok(copied.copied.map_or_else(Copied::default, convert::copied));
            };
            let hearing = self.link.listen_about(NotificationMethod::FsCopyProgress, &progress_id, HEARD);
            let copied = report_on(hearing, progress, self.ask(at, params, Replay::Known)).await?;
            let copied = copied.copied.map_or_else(Copied::default, convert::copied);
            progress(&copied);
            Ok(copied)
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path, options: RenameOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let at = At::new(FileVerb::Rename, from);
            let params = wire::RenameParams {
                source_path: at.uri()?,
                destination_path: uri(at, to)?,
                no_replace: options.no_replace,
                follow_symlinks: follow(options.links),
                sandbox: None,
            };
            self.ask(at, params, Replay::Known).await.map(drop)
        })
    }

    fn metadata<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Metadata> {
        Box::pin(async move {
            let at = At::new(FileVerb::Metadata, path);
            let params = wire::GetMetadataParams { path: at.uri()?, follow_symlinks: follow(links), sandbox: None };
            self.ask(at, params, Replay::Again).await.map(|found| convert::metadata(&found))
        })
    }

    fn canonicalize<'a>(&'a self, path: &'a Path) -> FileFuture<'a, PathBuf> {
        Box::pin(async move {
            let at = At::new(FileVerb::Canonicalize, path);
            let params = wire::CanonicalizeParams { path: at.uri()?, sandbox: None };
            let canonical = self.ask(at, params, Replay::Again).await?;
            native(at, &canonical.path)
        })
    }

    fn read_directory<'a>(&'a self, path: &'a Path) -> FileFuture<'a, Vec<DirectoryEntry>> {
        Box::pin(async move {
            let at = At::new(FileVerb::ReadDirectory, path);
            let params = wire::ReadDirectoryParams { path: at.uri()?, sandbox: None };
            let listed = self.ask(at, params, Replay::Again).await?;
            Ok(listed.entries.into_iter().map(convert::directory_entry).collect())
        })
    }

    fn walk<'a>(&'a self, root: &'a Path, options: WalkOptions) -> FileFuture<'a, WalkListing> {
        Box::pin(async move {
            let at = At::new(FileVerb::Walk, root);
            let params = wire::WalkParams { path: at.uri()?, options: convert::walk_options(options), sandbox: None };
            self.ask(at, params, Replay::Again).await.map(convert::walk)
        })
    }

    fn set_permissions<'a>(&'a self, path: &'a Path, mode: u32, links: LinkPolicy) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let at = At::new(FileVerb::SetPermissions, path);
            let follow_symlinks = follow(links);
            let params = wire::SetPermissionsParams { path: at.uri()?, mode, follow_symlinks, sandbox: None };
            self.ask(at, params, Replay::Again).await.map(drop)
        })
    }

    fn set_times<'a>(&'a self, path: &'a Path, times: FileTimes, links: LinkPolicy) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let at = At::new(FileVerb::SetTimes, path);
            self.need(at, "fs/setTimes")?;
            let (accessed_ns, modified_ns) =
                (convert::nanoseconds(times.accessed), convert::nanoseconds(times.modified));
            let follow_symlinks = follow(links);
            let path = at.uri()?;
            let params = wire::SetTimesParams { path, accessed_ns, modified_ns, follow_symlinks, sandbox: None };
            self.ask(at, params, Replay::Again).await.map(drop)
        })
    }

    fn read_link<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, PathBuf> {
        Box::pin(async move {
            let at = At::new(FileVerb::ReadLink, path);
            let params = wire::ReadLinkParams { path: at.uri()?, follow_symlinks: follow(links), sandbox: None };
            self.ask(at, params, Replay::Again).await.map(|link| PathBuf::from(link.target.0))
        })
    }

    fn create_symlink<'a>(&'a self, target: &'a Path, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let at = At::new(FileVerb::CreateSymlink, path);
            let params = wire::CreateSymlinkParams {
                path: at.uri()?,
                target: target.as_os_str().into(),
                follow_symlinks: follow(links),
                sandbox: None,
            };
            self.ask(at, params, Replay::Known).await.map(drop)
        })
    }

    fn watch_missing<'a>(
        &'a self,
        missing: &'a [PathBuf],
        present: Option<&'a Path>,
    ) -> FileFuture<'a, Option<Box<dyn MissingPathWatch>>> {
        Box::pin(self.missing.watch(&self.link, missing, present))
    }

    fn watch<'a>(&'a self, root: &'a Path, options: WatchOptions) -> FileFuture<'a, Box<dyn ChangeStream>> {
        Box::pin(async move { watch::watch(self.link.clone(), root.to_owned(), options).await })
    }

    fn search<'a>(&'a self, query: SearchQuery) -> FileFuture<'a, Box<dyn SearchResults>> {
        Box::pin(search::search(self.link.clone(), query))
    }

    fn glob<'a>(&'a self, query: GlobQuery) -> FileFuture<'a, GlobMatches> {
        Box::pin(async move {
            let at = At::new(FileVerb::Glob, &query.root);
            let params = wire::GlobParams {
                path: at.uri()?,
                patterns: query.patterns.clone(),
                ignore_files: Some(query.ignore_files),
                hidden: Some(query.hidden),
                max_paths: Some(query.max_paths),
                sandbox: None,
            };
            let found = self.ask(at, params, Replay::Again).await?;
            let paths = found.paths.iter().map(|path| native(at, path)).collect::<Result<_, _>>()?;
            Ok(GlobMatches { paths, truncated: found.truncated })
        })
    }
}

/// Passes on what is heard of a copy until it is answered. What came before the answer is heard before it.
async fn report_on<T>(
    mut hearing: mpsc::Receiver<Heard>,
    progress: &CopyProgress,
    answer: impl Future<Output = T>,
) -> T {
    let tell = |heard: &Heard| {
        if let Ok(told) = heard.params.decode::<wire::CopyProgressParams>() {
            progress(&convert::copied(told.copied));
        }
    };
    let mut answer = std::pin::pin!(answer);
    loop {
        tokio::select! {
            biased;
            Some(heard) = hearing.recv() => tell(&heard),
            answer = &mut answer => {
                while let Ok(heard) = hearing.try_recv() {
                    tell(&heard);
                }
                return answer;
            }
        }
    }
}

/// A path that the server names. One of another operating system is nothing that could be used here.
fn native(at: At<'_>, path: &PathUri) -> Result<PathBuf, FileError> {
    path.to_path().map_err(|foreign| at.error(FileReason::Unreachable { why: foreign.to_string() }))
}

/// A name that no other handle, watch, search or body of this client has.
pub(crate) fn fresh_id() -> String {
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("{:08x}-{count:x}", std::process::id())
}

/// The bytes of a stream's blocks must fit what one block may be.
const _: () = assert!(STREAM_BLOCK_BYTES <= limits::BLOCK_BYTES);

/// Why a stream's end failed to arrive: the server was not the one who said so.
fn unreachable(at: At<'_>, why: impl Into<String>) -> FileError {
    at.error(FileReason::Unreachable { why: why.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_is_an_invalid_argument() {
        let at = At::new(FileVerb::Read, Path::new("here"));
        assert_eq!(at.uri().map_err(|error| error.reason), Err(FileReason::Os(22)));
    }

    #[test]
    fn ids_differ() {
        assert_ne!(fresh_id(), fresh_id());
        assert!(fresh_id().len() <= exec_wire::limits::HANDLE_ID_BYTES);
    }
}
