//! Copies one file or one link, from one machine to another.
//!
//! ```text
//! one machine ──► it copies by itself (with shared blocks where the file system can)
//! small ────────► read whole, written whole
//! large ────────► in blocks, read ahead and written behind, to a temporary file beside; then renamed
//! ```
//!
//! In every case the file appears whole or not at all, and both ends are asked for the BLAKE3 of what they have.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use exec_client::files::stream::fingerprint;
use exec_env::files::{
    ContentHash, Copied, CopyFailures, CopyOptions, FileError, FileKind, FileReason, FileVerb, LinkPolicy, Metadata,
    OpenMode, RemoveOptions, RenameOptions, WriteOptions,
};
use exec_wire::text::OsText;
use exec_wire::{Extension, Method};
use libc::{EEXIST, ELOOP, ENOSYS};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::block_copy::{BlockCopyError, Window, copy_blocks};
use super::error::{AtLocation, CopyError};
use super::progress::{Progress, combine};
use crate::location::{FilePath, Location};
use crate::output::os_text;
use crate::{messages, runtime};

/// How often a call is made, if the connection breaks. One that is lost for good fails at once each time.
const TRIES: u32 = 5;

/// Files up to this size are copied whole: two calls instead of five. As many as a tree copies at once fit into memory.
const SMALL_BYTES: u64 = 1 << 20;

pub(super) struct Copier {
    pub(super) from: Arc<Location>,
    pub(super) to: Arc<Location>,
    pub(super) progress: Arc<Progress>,
    /// Large files are copied one at a time: one uses the whole connection, and two would only double the memory.
    large: Semaphore,
    /// Temporary files, to be removed if we are interrupted, with what happens to links in their paths.
    unfinished: Mutex<HashMap<PathBuf, LinkPolicy>>,
}

/// A regular file to be copied.
#[derive(Clone, Copy)]
pub(super) struct FileCopy<'a> {
    pub(super) from: &'a Path,
    pub(super) to: &'a Path,
    pub(super) metadata: &'a Metadata,
    pub(super) links: LinkPolicies,
}

/// What happens to links in the paths at either end. Where they are refused, the path is without links, and a link of
/// the file's name at the target is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkPolicies {
    pub(super) from: LinkPolicy,
    pub(super) to: LinkPolicy,
}

impl LinkPolicies {
    pub(super) const REFUSE: Self = Self { from: LinkPolicy::Refuse, to: LinkPolicy::Refuse };
}

#[derive(Debug, Serialize)]
struct CopiedFileJson<'a> {
    event: &'static str,
    from: EndpointJson<'a>,
    to: EndpointJson<'a>,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
}

#[derive(Debug, Serialize)]
struct EndpointJson<'a> {
    environment: &'a str,
    path: OsText,
}

impl Copier {
    pub(super) fn new(from: &FilePath, to: &FilePath, progress: Arc<Progress>) -> Self {
        Self {
            from: Arc::clone(&from.location),
            to: Arc::clone(&to.location),
            progress,
            large: Semaphore::new(1),
            unfinished: Mutex::default(),
        }
    }

    pub(super) fn is_one_machine(&self) -> bool {
        Arc::ptr_eq(&self.from, &self.to)
    }

    pub(super) async fn copy_file(&self, file: FileCopy<'_>) -> Result<(), CopyError> {
        let FileCopy { from, to, metadata, links } = file;
        if self.is_one_machine() && (links.to == LinkPolicy::Follow || !self.is_link_at(to).await) {
            return self.copy_on_one_machine(from, to, None).await;
        }
        let small = metadata.size_bytes <= SMALL_BYTES;
        let written = match small {
            true => self.copy_whole(file).await,
            false => self.copy_streamed(file).await,
        };
        let (bytes, hash) = match written {
            // There is a link at that name, which must not be followed. A rename replaces it.
            Err(CopyError::Files { error: FileError { reason: FileReason::Os(ELOOP), .. }, .. })
                if small && links.to == LinkPolicy::Refuse && self.is_link_at(to).await =>
            {
                self.copy_streamed(file).await?
            }
            other => other?,
        };
        self.progress.add(&Copied { files: 1, ..Copied::default() });
        self.report_file(from, to, bytes, hash);
        Ok(())
    }

    /// Lets the machine copy a file by itself, or a tree: then `tree_failed` is told what is left out of it.
    pub(super) async fn copy_on_one_machine(
        &self,
        from: &Path,
        to: &Path,
        tree_failed: Option<CopyFailures>,
    ) -> Result<(), CopyError> {
        let (progress, reported) = (Arc::clone(&self.progress), Mutex::new(Copied::default()));
        let report = Arc::new(move |now: &Copied| {
            let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
            progress.add(&combine(now, &reported, u64::saturating_sub));
            *reported = *now;
        });
        let keep_times = self.to.supports(Extension::COPY_KEEP_TIMES);
        let recursive = tree_failed.is_some();
        let options = CopyOptions { recursive, keep_times, progress: Some(Arc::clone(&report) as _) };
        let copied = match tree_failed {
            Some(failed) => self.to.files().copy_what_can_be(from, to, options, failed).await,
            None => self.to.files().copy(from, to, options).await,
        };
        report(&copied.at(&self.to)?);
        Ok(())
    }

    /// Copies a link as a link. What has that name already is replaced, unless it is a directory.
    pub(super) async fn copy_link(&self, from: &Path, to: &Path, links: LinkPolicies) -> Result<(), CopyError> {
        let text = self.from.files().read_link(from, links.from).await.at(&self.from)?;
        match retry_unreachable(|| self.to.files().create_symlink(&text, to, links.to)).await.0 {
            Err(error) if error.errno() == Some(EEXIST) => {
                if self.is_directory_at(to).await {
                    return Err(CopyError::DirectoryInTheWay { path: self.to.display_path(to) });
                }
                let temp = self.new_temp(to, links.to);
                let replaced = async {
                    let (created, unsure) =
                        retry_unreachable(|| self.to.files().create_symlink(&text, &temp, links.to)).await;
                    match created {
                        Err(error) if error.errno() == Some(EEXIST) && unsure => {}
                        other => other?,
                    }
                    self.rename_temp(&temp, to, links.to).await
                };
                let replaced = replaced.await.at(&self.to);
                self.release_temp(&temp, links.to, replaced.is_ok()).await;
                replaced?;
            }
            other => other.at(&self.to)?,
        }
        self.progress.add(&Copied { symlinks: 1, ..Copied::default() });
        Ok(())
    }

    /// Removes the temporary files after an interruption.
    pub(super) async fn remove_unfinished(&self) {
        let unfinished = std::mem::take(&mut *self.unfinished());
        for (path, links) in unfinished {
            self.remove(&path, links).await;
        }
    }

    async fn copy_whole(&self, file: FileCopy<'_>) -> Result<(u64, Option<ContentHash>), CopyError> {
        let FileCopy { from, to, metadata, links } = file;
        let bytes = self.from.files().read(from, links.from).await.at(&self.from)?;
        let size_bytes = bytes.len() as u64;
        let hash = ContentHash(blake3::hash(&bytes));
        // Before the write, which replaces what was there.
        let source_checked = self.check_source(file, hash).await?;
        let mode = self.to.supports(Extension::WRITE_FILE_MODE).then_some(self.mode(metadata));
        let options = WriteOptions { mode, links: links.to, ..WriteOptions::default() };
        self.to.files().write(to, bytes, options).await.at(&self.to)?;
        let keep_times = async {
            match self.to.supports(Method::FsSetTimes) {
                true => self.to.files().set_times(to, metadata.times(), links.to).await.at(&self.to),
                false => Ok(()),
            }
        };
        let (times, target_checked) = tokio::join!(keep_times, self.check_target(file, to, hash));
        times?;
        self.progress.bytes(size_bytes);
        Ok((size_bytes, (source_checked && target_checked?).then_some(hash)))
    }

    async fn copy_streamed(&self, file: FileCopy<'_>) -> Result<(u64, Option<ContentHash>), CopyError> {
        // The semaphore is never closed, so this cannot fail.
        let _permit = self.large.acquire().await;
        let temp = self.new_temp(file.to, file.links.to);
        let filled = self.fill_temp(file, &temp).await;
        self.release_temp(&temp, file.links.to, filled.is_ok()).await;
        filled
    }

    /// Fills a temporary file, and renames it once both ends have confirmed its contents.
    async fn fill_temp(&self, file: FileCopy<'_>, temp: &Path) -> Result<(u64, Option<ContentHash>), CopyError> {
        let FileCopy { from, to, metadata, links } = file;
        // Errors name the destination: the user does not know the temporary file.
        let at_target =
            |error| CopyError::at(&self.to, FileError { verb: FileVerb::Write, path: to.to_owned(), ..error });
        let files = self.to.files();
        // Created with mode 0600: while it is filled, nobody may read what the mode of the source forbids.
        if self.to.supports(Extension::WRITE_FILE_MODE) {
            let private = WriteOptions { mode: Some(0o600), links: links.to, ..WriteOptions::default() };
            files.write(temp, Bytes::new(), private).await.map_err(at_target)?;
        }
        let source = self.from.files().open(from, OpenMode::Read, links.from).await.at(&self.from)?;
        let target = files.open(temp, OpenMode::Replace, links.to).await.map_err(at_target)?;
        let window = Window::between(&self.from, &self.to);
        let copied = copy_blocks(Arc::from(source), Arc::from(target), window, &self.progress).await;
        let (size_bytes, hash) = copied.map_err(|failure| match failure {
            BlockCopyError::Source(error) => CopyError::at(&self.from, error),
            BlockCopyError::Target(error) => at_target(error),
        })?;
        if self.to.supports(Method::FsSetPermissions) {
            files.set_permissions(temp, self.mode(metadata), links.to).await.map_err(at_target)?;
        }
        if self.to.supports(Method::FsSetTimes) {
            files.set_times(temp, metadata.times(), links.to).await.map_err(at_target)?;
        }
        let (source, target) = tokio::join!(self.check_source(file, hash), self.check_target(file, temp, hash));
        let (source_checked, target_checked) = (source?, target?);
        self.rename_temp(temp, to, links.to).await.map_err(at_target)?;
        Ok((size_bytes, (source_checked && target_checked).then_some(hash)))
    }

    async fn rename_temp(&self, temp: &Path, to: &Path, links: LinkPolicy) -> Result<(), FileError> {
        let options = RenameOptions { no_replace: false, links };
        let (renamed, unsure) = retry_unreachable(|| self.to.files().rename(temp, to, options)).await;
        match renamed {
            // Nobody else knows the temporary name, so an earlier attempt, whose reply was lost, has renamed it.
            Err(error) if error.is_not_found() && unsure => Ok(()),
            other => other.map_err(|error| FileError { path: to.to_owned(), ..error }),
        }
    }

    /// Checks that the source still has this hash. Returns `false` if its machine cannot compute it.
    async fn check_source(&self, file: FileCopy<'_>, hash: ContentHash) -> Result<bool, CopyError> {
        let found = match self.from.is_local() {
            // We have read it ourselves.
            true => Some(hash),
            false => hash_if_supported(&self.from, file.from, file.links.from).await.at(&self.from)?,
        };
        match found {
            Some(found) if found != hash => Err(CopyError::Changed { path: self.from.display_path(file.from) }),
            found => Ok(found.is_some()),
        }
    }

    /// Checks that what was written has this hash. Returns `false` if its machine cannot compute it.
    async fn check_target(&self, file: FileCopy<'_>, written: &Path, hash: ContentHash) -> Result<bool, CopyError> {
        match hash_if_supported(&self.to, written, file.links.to).await.at(&self.to)? {
            Some(found) if found != hash => Err(CopyError::Corrupt { path: self.to.display_path(file.to) }),
            found => Ok(found.is_some()),
        }
    }

    /// Without set-user-id and set-group-id: the same number is another account there.
    pub(super) fn mode(&self, metadata: &Metadata) -> u32 {
        metadata.mode & 0o1777
    }

    /// A temporary name in the same directory as `to`.
    fn new_temp(&self, to: &Path, links: LinkPolicy) -> PathBuf {
        let temp = to.with_file_name(format!(".exec-server-cp-{:016x}", runtime::random()));
        self.unfinished().insert(temp.clone(), links);
        temp
    }

    async fn release_temp(&self, temp: &Path, links: LinkPolicy, is_gone: bool) {
        if !is_gone {
            self.remove(temp, links).await;
        }
        self.unfinished().remove(temp);
    }

    /// A failure is not reported: the user has seen already why the file is removed.
    async fn remove(&self, path: &Path, links: LinkPolicy) {
        let options = RemoveOptions { recursive: false, force: true, links };
        if let Err(error) = self.to.files().remove(path, options).await {
            tracing::debug!(%error, path = %path.display(), "a temporary file stays");
        }
    }

    fn unfinished(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, LinkPolicy>> {
        // A panic cannot leave a table of names inconsistent.
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn is_link_at(&self, path: &Path) -> bool {
        self.to.files().read_link(path, LinkPolicy::Refuse).await.is_ok()
    }

    async fn is_directory_at(&self, path: &Path) -> bool {
        let metadata = self.to.files().metadata(path, LinkPolicy::Follow).await;
        metadata.is_ok_and(|metadata| metadata.kind == FileKind::Directory && !metadata.is_symlink)
    }

    fn report_file(&self, from: &Path, to: &Path, bytes: u64, hash: Option<ContentHash>) {
        if !self.progress.is_json() {
            return;
        }
        let line = CopiedFileJson {
            event: "file",
            from: EndpointJson { environment: self.from.environment_id(), path: os_text(from) },
            to: EndpointJson { environment: self.to.environment_id(), path: os_text(to) },
            bytes,
            hash: hash.map(|hash| hash.to_string()),
        };
        // A closed stdout does not stop the copy.
        if let Err(error) = messages::print_json(&line) {
            tracing::debug!(%error, "a line of JSON was not printed");
        }
    }
}

/// `None` if that machine cannot compute it.
async fn hash_if_supported(
    location: &Location,
    path: &Path,
    links: LinkPolicy,
) -> Result<Option<ContentHash>, FileError> {
    match retry_unreachable(|| fingerprint(location.files(), path, links)).await.0 {
        Ok(hash) => Ok(Some(hash)),
        Err(error) if error.errno() == Some(ENOSYS) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Repeats a call that changes something, where the caller can tell from the second result whether the first call was
/// carried out. Returns the last result, and whether an earlier call may have been carried out though its reply was lost.
pub(super) async fn retry_unreachable<T, F>(mut call: impl FnMut() -> F) -> (Result<T, FileError>, bool)
where
    F: Future<Output = Result<T, FileError>>,
{
    let mut unsure = false;
    for _ in 1..TRIES {
        match call().await {
            Err(FileError { reason: FileReason::Unreachable { .. }, .. }) => unsure = true,
            result => return (result, unsure),
        }
    }
    (call().await, unsure)
}
