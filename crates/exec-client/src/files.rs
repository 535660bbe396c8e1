//! The files of the server: the verbs of the waist as calls over a link.
//!
//! A call is sent again after a break if it changes nothing, if doing it twice is doing it once, or if the server
//! recognizes it by its id; any other fails and says that it may have happened. What our server adds to the original is
//! used only where it is there: a server that would silently leave out a condition is not called at all.
//!
//! Reading order: `operation` (one verb on one path), `handle` (a file that stays open over connections that do not),
//! [`stream`] (files of any size in little memory), `watch`, `search`.

mod handle;
mod operation;
mod search;
pub mod stream;
mod watch;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use exec_core::sandbox::{FileCeiling, FilePolicy, SandboxPolicy};
use exec_env::BoxFuture;
use exec_env::files::tree::CopyProgress;
use exec_env::files::{
    AttributeChanges, Attributes, ChangeAction, ChangeSet, ChangeStream, Copied, CopyOptions, CreateDirectoryOptions,
    DirectoryEntry, DirectoryPage, ExpectedFile, FileChange, FileError, FileFuture, FileHash, FileReason, FileTimes,
    FileVerb, Files, GlobMatches, GlobQuery, HashAlgorithm, LinkPolicy, Metadata, MissingPathWatch, OpenFile, OpenMode,
    RemoveOptions, RenameOptions, SearchQuery, SearchResults, WalkListing, WalkOptions, WalkPage, WalkPosition,
    WatchOptions, WriteOptions, limits,
};
use exec_wire::base64::Base64;
use exec_wire::fs as wire;
use exec_wire::sandbox::SandboxContext;
use exec_wire::text::OsText;
use exec_wire::{Call, Extension, Method, NotificationMethod, RetryPolicy};
use tokio::sync::mpsc;

use crate::convert;
use crate::error;
use crate::limits::{
    COUNTED_ENTRIES, DIRECTORY_PAGE_ENTRIES, LONG_CALL, NOTIFICATION_QUEUE, STREAM_BLOCK_BYTES, WRITE_FILE_BYTES,
};
use crate::link::{CallOptions, Link, Notification};
use handle::RemoteFile;
use operation::{FilesLink, Operation, follow_symlinks, if_match};
use watch::MissingWatches;

const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
const ENOSYS: i32 = 38;

#[derive(Debug)]
pub(crate) struct RemoteFiles {
    link: FilesLink,
    /// Shared with the views under a policy, because the wire has one such watch per connection.
    missing: Arc<MissingWatches>,
}

impl RemoteFiles {
    pub(crate) fn new(link: Link) -> Self {
        Self { link: FilesLink { link, sandbox: Ok(None), user: None, ceiling: None }, missing: Arc::default() }
    }

    fn operation<'a>(&'a self, verb: FileVerb, path: &'a Path) -> Operation<'a> {
        Operation { link: &self.link, verb, path }
    }

    /// The listing of a server that has no pages.
    async fn list_at_once(&self, path: &Path) -> Result<Vec<DirectoryEntry>, FileError> {
        let operation = self.operation(FileVerb::ReadDirectory, path);
        let path = operation.uri()?;
        let params = wire::ReadDirectoryParams { path, sandbox: operation.sandbox()?, max_entries: None, cursor: None };
        let listed = operation.call(&params).await?;
        Ok(listed.entries.into_iter().map(convert::directory_entry).collect())
    }

    /// Fetches a file that does not fit one answer in blocks. It must not change meanwhile.
    async fn read_in_blocks(&self, operation: Operation<'_>, links: LinkPolicy) -> Result<Bytes, FileError> {
        let file = RemoteFile::open(self.link.clone(), operation.path, OpenMode::Read, links).await?;
        let size_bytes = usize::try_from(file.size_bytes()).unwrap_or(usize::MAX);
        let file: Arc<dyn OpenFile> = Arc::new(file);
        let mut blocks = stream::Blocks::new(file, 0);
        let mut bytes = BytesMut::with_capacity(size_bytes.min(limits::READ_BYTES as usize));
        while let Some(block) = blocks.next().await.map_err(|error| FileError { verb: operation.verb, ..error })? {
            if (bytes.len() + block.len()) as u64 > limits::READ_BYTES {
                return Err(operation.error(FileReason::TooLarge { limit_bytes: limits::READ_BYTES }));
            }
            bytes.extend_from_slice(&block);
        }
        Ok(bytes.freeze())
    }
}

/// The page of a listing that a server sent as a whole.
fn page_of(mut entries: Vec<DirectoryEntry>, after: Option<&OsStr>, max_entries: usize) -> DirectoryPage {
    entries.retain(|entry| after.is_none_or(|after| entry.name.as_os_str() > after));
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let more = entries.len() > max_entries;
    entries.truncate(max_entries);
    DirectoryPage { next: entries.last().filter(|_| more).map(|entry| entry.name.clone()), entries }
}

/// Makes a call that nobody waits for, for example when a handle is dropped. The task ends by itself: with the answer, with
/// the link, or at the call's deadline.
pub(crate) fn send_detached<C: Call + Sync>(link: &Link, params: C) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let link = link.clone();
        drop(runtime.spawn(async move { link.call(params).await.map(drop) }));
    }
}

impl Files for RemoteFiles {
    fn read<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Bytes> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::Read, path);
            let params = wire::ReadFileParams {
                path: operation.uri()?,
                follow_symlinks: follow_symlinks(links),
                sandbox: operation.sandbox()?,
            };
            let options = CallOptions { deadline: LONG_CALL, retry: RetryPolicy::Always };
            match self.link.call_with(&params, options).await.result {
                Ok(read) => Ok(read.data_base64.0),
                Err(error) if error::is_answer_too_large(&error) => self.read_in_blocks(operation, links).await,
                Err(error) => Err(error::file_error(operation.verb, path, error)),
            }
        })
    }

    fn hash<'a>(&'a self, path: &'a Path, algorithm: HashAlgorithm, links: LinkPolicy) -> FileFuture<'a, FileHash> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::Read, path);
            operation.require(Method::FsHash)?;
            let algorithm = match algorithm {
                HashAlgorithm::Blake3 => wire::HashAlgorithm::Blake3,
                HashAlgorithm::Sha256 => wire::HashAlgorithm::Sha256,
            };
            let follow_symlinks = follow_symlinks(links);
            let params =
                wire::HashParams { path: operation.uri()?, algorithm, follow_symlinks, sandbox: operation.sandbox()? };
            let hashed = operation.call(&params).await?;
            FileHash::from_hex(&hashed.hash, hashed.size_bytes)
                .ok_or_else(|| operation.unreachable(format!("the server sent no hash but {:?}", hashed.hash)))
        })
    }

    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode, links: LinkPolicy) -> FileFuture<'a, Box<dyn OpenFile>> {
        Box::pin(async move {
            if mode == OpenMode::Append || links == LinkPolicy::Refuse {
                self.operation(FileVerb::Open, path).require(Extension::OPEN_APPEND)?;
            }
            let file = RemoteFile::open(self.link.clone(), path, mode, links).await?;
            Ok(Box::new(file) as Box<dyn OpenFile>)
        })
    }

    fn write<'a>(&'a self, path: &'a Path, bytes: Bytes, options: WriteOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::Write, path);
            if bytes.len() > WRITE_FILE_BYTES {
                return Err(operation.error(FileReason::Os(EFBIG)));
            }
            let needed = [
                (options.append, Extension::WRITE_FILE_APPEND),
                (options.expect != ExpectedFile::Anything, Extension::WRITE_FILE_IF_MATCH),
                (options.mode.is_some(), Extension::WRITE_FILE_MODE),
                (options.sync, Extension::WRITE_FILE_SYNC),
            ];
            for (_, extension) in needed.iter().filter(|(needed, _)| *needed) {
                operation.require(*extension)?;
            }
            let if_match = if_match(options.expect);
            // Writing the same bytes again gives the same file, unless they are appended or a condition no longer holds.
            let same_again = !options.append && options.expect == ExpectedFile::Anything;
            let retry = if same_again { RetryPolicy::Always } else { RetryPolicy::IfServerRemembers };
            let params = wire::WriteFileParams {
                path: operation.uri()?,
                data_base64: bytes.into(),
                follow_symlinks: follow_symlinks(options.links),
                sandbox: operation.sandbox()?,
                append: options.append,
                if_match,
                mode: options.mode,
                sync: options.sync,
            };
            operation.call_with(&params, retry).await.map(drop)
        })
    }

    fn change_set(&self, set: ChangeSet) -> FileFuture<'_, ()> {
        Box::pin(async move {
            let first = set.changes.first().map(|change| change.path.clone()).unwrap_or_default();
            let operation = self.operation(FileVerb::ChangeSet, &first);
            operation.require(Method::FsApplyChanges)?;
            let change = |change: FileChange| -> Result<wire::FileChange, FileError> {
                let (path, if_match) = (operation.uri_of(&change.path)?, if_match(change.expect));
                Ok(match change.action {
                    ChangeAction::Write { bytes, mode } => {
                        wire::FileChange::Write { path, data_base64: Base64(bytes), mode, if_match }
                    }
                    ChangeAction::Remove => wire::FileChange::Remove { path, if_match },
                    ChangeAction::Rename { to } => {
                        let destination_path = operation.uri_of(&to)?;
                        wire::FileChange::Rename { path, destination_path, if_match }
                    }
                })
            };
            let bytes = set.changes.iter().map(|change| match &change.action {
                ChangeAction::Write { bytes, .. } => bytes.len(),
                ChangeAction::Remove | ChangeAction::Rename { .. } => 0,
            });
            // The server would say so, too, but only after all of it was sent.
            if bytes.sum::<usize>() > limits::CHANGE_SET_BYTES {
                let limit_bytes = limits::CHANGE_SET_BYTES as u64;
                return Err(operation.error(FileReason::TooLarge { limit_bytes }));
            }
            let params = wire::ApplyChangesParams {
                changes: set.changes.into_iter().map(change).collect::<Result<_, _>>()?,
                make_directories: set.make_directories,
                sandbox: operation.sandbox()?,
            };
            operation.call(&params).await.map(drop)
        })
    }

    fn create_directory<'a>(&'a self, path: &'a Path, options: CreateDirectoryOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::CreateDirectory, path);
            if options.mode.is_some() {
                operation.require(Extension::CREATE_DIRECTORY_MODE)?;
            }
            let params = wire::CreateDirectoryParams {
                path: operation.uri()?,
                recursive: Some(options.recursive),
                follow_symlinks: follow_symlinks(options.links),
                sandbox: operation.sandbox()?,
                mode: options.mode,
            };
            let retry = if options.recursive { RetryPolicy::Always } else { RetryPolicy::IfServerRemembers };
            operation.call_with(&params, retry).await.map(drop)
        })
    }

    fn remove<'a>(&'a self, path: &'a Path, options: RemoveOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::Remove, path);
            let params = wire::RemoveParams {
                path: operation.uri()?,
                recursive: Some(options.recursive),
                force: Some(options.force),
                follow_symlinks: follow_symlinks(options.links),
                sandbox: operation.sandbox()?,
            };
            operation.call(&params).await.map(drop)
        })
    }

    fn copy<'a>(&'a self, source: &'a Path, destination: &'a Path, options: CopyOptions) -> FileFuture<'a, Copied> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::Copy, source);
            if options.keep_times {
                operation.require(Extension::COPY_KEEP_TIMES)?;
            }
            let progress_id = options.progress.is_some().then(unique_id);
            let params = wire::CopyParams {
                source_path: operation.uri()?,
                destination_path: operation.uri_of(destination)?,
                recursive: options.recursive,
                sandbox: operation.sandbox()?,
                report: true,
                progress_id: progress_id.clone(),
                keep_times: options.keep_times,
            };
            let call = operation.call(&params);
            let (Some(progress_id), Some(progress)) = (progress_id, &options.progress) else {
                return Ok(call.await?.copied.map_or_else(Copied::default, convert::copied));
            };
            let methods = &[NotificationMethod::FsCopyProgress];
            let notifications = self.link.subscribe(methods, Some(&progress_id), NOTIFICATION_QUEUE);
            let copied = report_progress(notifications, progress, call).await?.copied;
            let copied = copied.map_or_else(Copied::default, convert::copied);
            progress(&copied);
            Ok(copied)
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path, options: RenameOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::Rename, from);
            let params = wire::RenameParams {
                source_path: operation.uri()?,
                destination_path: operation.uri_of(to)?,
                no_replace: options.no_replace,
                follow_symlinks: follow_symlinks(options.links),
                sandbox: operation.sandbox()?,
            };
            operation.call(&params).await.map(drop)
        })
    }

    fn metadata<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Metadata> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::Metadata, path);
            let params = wire::GetMetadataParams {
                path: operation.uri()?,
                follow_symlinks: follow_symlinks(links),
                sandbox: operation.sandbox()?,
            };
            operation.call(&params).await.map(|found| convert::metadata(&found))
        })
    }

    fn canonicalize<'a>(&'a self, path: &'a Path) -> FileFuture<'a, PathBuf> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::Canonicalize, path);
            let params = wire::CanonicalizeParams { path: operation.uri()?, sandbox: operation.sandbox()? };
            let canonical = operation.call(&params).await?;
            operation.native(&canonical.path)
        })
    }

    fn read_directory<'a>(&'a self, path: &'a Path) -> FileFuture<'a, Vec<DirectoryEntry>> {
        Box::pin(async move {
            if !self.link.has(Extension::READ_DIRECTORY_CURSOR) {
                return self.list_at_once(path).await;
            }
            let (mut entries, mut found) = (Vec::new(), 0);
            let mut next: Option<OsString> = None;
            loop {
                let page = self.read_directory_page(path, next.as_deref(), DIRECTORY_PAGE_ENTRIES).await?;
                // An empty page counts, too: a server must not keep us here for ever.
                found += page.entries.len().max(usize::from(page.next.is_some()));
                match found > limits::DIRECTORY_ENTRIES {
                    true => entries.clear(),
                    false => entries.extend(page.entries),
                }
                next = page.next;
                if next.is_none() || found > COUNTED_ENTRIES {
                    break;
                }
            }
            match found > limits::DIRECTORY_ENTRIES {
                true => Err(self.operation(FileVerb::ReadDirectory, path).error(FileReason::TooManyEntries { found })),
                false => Ok(entries),
            }
        })
    }

    fn read_directory_page<'a>(
        &'a self,
        path: &'a Path,
        after: Option<&'a OsStr>,
        max_entries: usize,
    ) -> FileFuture<'a, DirectoryPage> {
        Box::pin(async move {
            if !self.link.has(Extension::READ_DIRECTORY_CURSOR) {
                return Ok(page_of(self.list_at_once(path).await?, after, max_entries));
            }
            let operation = self.operation(FileVerb::ReadDirectory, path);
            let params = wire::ReadDirectoryParams {
                path: operation.uri()?,
                sandbox: operation.sandbox()?,
                max_entries: Some(max_entries),
                cursor: after.map(|after| after.as_bytes().to_vec().into()),
            };
            let listed = operation.call(&params).await?;
            let next = listed.next_cursor.map(|cursor| OsString::from_vec(cursor.0.into()));
            if next.as_deref().is_some_and(|next| after.is_some_and(|after| next <= after)) {
                return Err(operation.unreachable("the server's pages of a directory do not advance"));
            }
            Ok(DirectoryPage { entries: listed.entries.into_iter().map(convert::directory_entry).collect(), next })
        })
    }

    fn walk<'a>(&'a self, root: &'a Path, options: WalkOptions) -> FileFuture<'a, WalkListing> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::Walk, root);
            let options = convert::walk_options(options);
            let params =
                wire::WalkParams { path: operation.uri()?, options, sandbox: operation.sandbox()?, cursor: None };
            operation.call(&params).await.map(convert::walk)
        })
    }

    fn walk_page<'a>(
        &'a self,
        root: &'a Path,
        options: WalkOptions,
        after: Option<WalkPosition>,
    ) -> FileFuture<'a, WalkPage> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::Walk, root);
            operation.require(Extension::WALK_CURSOR)?;
            let cursor = Some(convert::walk_cursor(after.as_ref()));
            let options = convert::walk_options(options);
            let params = wire::WalkParams { path: operation.uri()?, options, sandbox: operation.sandbox()?, cursor };
            let page = convert::walk_page(operation.call(&params).await?);
            if page.next.is_some() && page.next == after {
                return Err(operation.unreachable("the server's pages of a tree do not advance"));
            }
            Ok(page)
        })
    }

    fn set_permissions<'a>(&'a self, path: &'a Path, mode: u32, links: LinkPolicy) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::SetPermissions, path);
            let follow_symlinks = follow_symlinks(links);
            let params = wire::SetPermissionsParams {
                path: operation.uri()?,
                mode,
                follow_symlinks,
                sandbox: operation.sandbox()?,
            };
            operation.call(&params).await.map(drop)
        })
    }

    fn set_times<'a>(&'a self, path: &'a Path, times: FileTimes, links: LinkPolicy) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::SetTimes, path);
            operation.require(Method::FsSetTimes)?;
            let (accessed_ns, modified_ns) =
                (wire::nanoseconds_of(times.accessed), wire::nanoseconds_of(times.modified));
            let follow_symlinks = follow_symlinks(links);
            let path = operation.uri()?;
            let params =
                wire::SetTimesParams { path, accessed_ns, modified_ns, follow_symlinks, sandbox: operation.sandbox()? };
            operation.call(&params).await.map(drop)
        })
    }

    fn attributes<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, Attributes> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::Attributes, path);
            operation.require(Method::FsGetAttributes)?;
            let params = wire::GetAttributesParams {
                path: operation.uri()?,
                follow_symlinks: follow_symlinks(links),
                sandbox: operation.sandbox()?,
            };
            let found = operation.call(&params).await?;
            Ok(found.attributes.into_iter().map(|found| (found.name.0, found.data_base64.0)).collect())
        })
    }

    fn set_attributes<'a>(
        &'a self,
        path: &'a Path,
        attributes: AttributeChanges,
        links: LinkPolicy,
    ) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::SetAttributes, path);
            operation.require(Method::FsSetAttributes)?;
            let change = |(name, value): (OsString, Option<Bytes>)| wire::AttributeChange {
                name: OsText(name),
                data_base64: value.map(Into::into),
            };
            let params = wire::SetAttributesParams {
                path: operation.uri()?,
                attributes: attributes.into_iter().map(change).collect(),
                follow_symlinks: follow_symlinks(links),
                sandbox: operation.sandbox()?,
            };
            operation.call(&params).await.map(drop)
        })
    }

    fn read_link<'a>(&'a self, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, PathBuf> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::ReadLink, path);
            let params = wire::ReadLinkParams {
                path: operation.uri()?,
                follow_symlinks: follow_symlinks(links),
                sandbox: operation.sandbox()?,
            };
            operation.call(&params).await.map(|link| PathBuf::from(link.target.0))
        })
    }

    fn create_symlink<'a>(&'a self, target: &'a Path, path: &'a Path, links: LinkPolicy) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let operation = self.operation(FileVerb::CreateSymlink, path);
            let params = wire::CreateSymlinkParams {
                path: operation.uri()?,
                target: target.as_os_str().into(),
                follow_symlinks: follow_symlinks(links),
                sandbox: operation.sandbox()?,
            };
            operation.call(&params).await.map(drop)
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
            let operation = self.operation(FileVerb::Glob, &query.root);
            let params = wire::GlobParams {
                path: operation.uri()?,
                patterns: query.patterns.clone(),
                ignore_files: Some(query.ignore_files),
                hidden: Some(query.hidden),
                max_paths: Some(query.max_paths),
                sandbox: operation.sandbox()?,
            };
            let found = operation.call(&params).await?;
            let paths = found.paths.iter().map(|path| operation.native(path)).collect::<Result<_, _>>()?;
            Ok(GlobMatches { paths, truncated: found.truncated })
        })
    }

    fn as_user<'a>(&'a self, user: &'a str) -> BoxFuture<'a, Result<Arc<dyn Files>, FileReason>> {
        Box::pin(async move {
            self.link.require_users()?;
            let link = FilesLink { user: Some(user.into()), ..self.link.clone() };
            Ok(Arc::new(Self { link, missing: Arc::clone(&self.missing) }) as Arc<dyn Files>)
        })
    }

    fn under_policy(&self, policy: Arc<SandboxPolicy>) -> Arc<dyn Files> {
        let sandbox = match policy.files {
            FilePolicy::Unrestricted => Ok(None),
            FilePolicy::Restricted { .. } => SandboxContext::of_policy(&policy).map(|context| Some(Arc::new(context))),
        };
        let link = FilesLink { sandbox, ..self.link.clone() };
        Arc::new(Self { link, missing: Arc::clone(&self.missing) })
    }

    fn under_ceiling(&self, ceiling: Arc<FileCeiling>) -> Arc<dyn Files> {
        let link = FilesLink { ceiling: Some(ceiling), ..self.link.clone() };
        Arc::new(Self { link, missing: Arc::clone(&self.missing) })
    }
}

/// Reports the progress of a copy until it is answered. Notifications that came before the answer are reported before it.
async fn report_progress<T>(
    mut notifications: mpsc::Receiver<Notification>,
    progress: &CopyProgress,
    answer: impl Future<Output = T>,
) -> T {
    let report = |notification: &Notification| {
        if let Ok(params) = notification.params.decode::<wire::CopyProgressParams>() {
            progress(&convert::copied(params.copied));
        }
    };
    let mut answer = std::pin::pin!(answer);
    loop {
        tokio::select! {
            biased;
            Some(notification) = notifications.recv() => report(&notification),
            answer = &mut answer => {
                while let Ok(notification) = notifications.try_recv() {
                    report(&notification);
                }
                return answer;
            }
        }
    }
}

/// An id that no other handle, watch, search or body of this client has.
pub(crate) fn unique_id() -> String {
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("{:08x}-{count:x}", std::process::id())
}

// The server refuses larger blocks.
const _: () = assert!(STREAM_BLOCK_BYTES <= limits::BLOCK_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ() {
        assert_ne!(unique_id(), unique_id());
        assert!(unique_id().len() <= exec_wire::limits::HANDLE_ID_BYTES);
    }
}
