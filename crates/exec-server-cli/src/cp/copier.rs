//! One file or one link, from one machine to another.
//!
//! ```text
//! one machine ──► it copies by itself (shared blocks where the file system can)
//! small ────────► read whole, written whole
//! large ────────► blocks, read ahead and written behind, to a temporary file beside; then its name
//! ```
//!
//! In every case the file appears whole or not at all, and both ends are asked for the BLAKE3 of what they have.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use exec_client::files::stream::fingerprint;
use exec_env::files::{
    ContentHash, Copied, CopyOptions, FileError, FileKind, LinkPolicy, Metadata, OpenMode, FileReason, RemoveOptions,
    RenameOptions, FileVerb, WriteOptions,
};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::block_copy::{BlockCopyError, Window, copy_blocks};
use super::error::CopyError;
use super::progress::Progress;
use super::retry::retry_unreachable;
use crate::failures::{EEXIST, ELOOP, ENOSYS};
use crate::location::{FilePath, Location};
use crate::output::Text;
use crate::{messages, runtime};

/// Files up to this size travel whole: two calls instead of five. As many as a tree copies at once fit into memory.
const SMALL_BYTES: u64 = 1 << 20;

/// From one machine to another.
pub(super) struct Copier {
    pub(super) from: Arc<Location>,
    pub(super) to: Arc<Location>,
    pub(super) progress: Arc<Progress>,
    /// Large files go one at a time: one alone fills the line, and two would only double the memory.
    large: Semaphore,
    /// Temporary files that must go if we are stopped.
    unfinished: Mutex<HashSet<PathBuf>>,
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
    path: Text,
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

    /// A regular file. With links refused, both paths are without links, and one at `to` is replaced, not followed.
    pub(super) async fn copy_file(
        &self,
        from: &Path,
        to: &Path,
        metadata: &Metadata,
        links: LinkPolicy,
    ) -> Result<(), CopyError> {
        if self.is_one_machine() && (links == LinkPolicy::Follow || !self.is_link_at(to).await) {
            return self.copy_on_one_machine(from, to, false).await;
        }
        let small = metadata.size_bytes <= SMALL_BYTES;
        let written = match small {
            true => self.copy_whole(from, to, metadata, links).await,
            false => self.copy_streamed(from, to, metadata, links).await,
        };
        let (bytes, hash) = match written {
            // There is a link at that name, which must not be followed: a rename replaces it.
            Err(CopyError::Files { error: FileError { reason: FileReason::Os(ELOOP), .. }, .. })
                if small && links == LinkPolicy::Refuse && self.is_link_at(to).await =>
            {
                self.copy_streamed(from, to, metadata, links).await?
            }
            other => other?,
        };
        self.progress.add(&Copied { files: 1, ..Copied::default() });
        self.report_file(from, to, bytes, hash);
        Ok(())
    }

    /// Whatever it is, by the machine itself.
    pub(super) async fn copy_on_one_machine(&self, from: &Path, to: &Path, recursive: bool) -> Result<(), CopyError> {
        let (progress, before) = (Arc::clone(&self.progress), Mutex::new(Copied::default()));
        let report = Arc::new(move |now: &Copied| {
            let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
            progress.add(&difference(now, &before));
            *before = *now;
        });
        let keep_times = self.to.supports("fs/copy.keepTimes");
        let options = CopyOptions { recursive, keep_times, progress: Some(Arc::clone(&report) as _) };
        let copied = self.to.files().copy(from, to, options).await.map_err(|error| self.at_target(error))?;
        report(&copied);
        Ok(())
    }

    /// A link, as a link. What is there of that name is replaced, unless it is a directory.
    pub(super) async fn copy_link(&self, from: &Path, to: &Path, links: LinkPolicy) -> Result<(), CopyError> {
        let text = self.from.files().read_link(from, links).await.map_err(|error| self.at_source(error))?;
        match retry_unreachable(|| self.to.files().create_symlink(&text, to, links)).await.0 {
            Err(error) if error.errno() == Some(EEXIST) => {
                if self.is_directory_at(to).await {
                    return Err(CopyError::with_path(&self.to, to, |path| CopyError::DirectoryInTheWay { path }));
                }
                let temp = self.new_temp(to);
                let replaced = async {
                    let (created, unsure) =
                        retry_unreachable(|| self.to.files().create_symlink(&text, &temp, links)).await;
                    match created {
                        Err(error) if error.errno() == Some(EEXIST) && unsure => {}
                        other => other?,
                    }
                    self.rename_temp(&temp, to, links).await
                };
                let replaced = replaced.await.map_err(|error| self.at_target(error));
                self.release_temp(&temp, replaced.is_ok()).await;
                replaced?;
            }
            other => other.map_err(|error| self.at_target(error))?,
        }
        self.progress.add(&Copied { symlinks: 1, ..Copied::default() });
        Ok(())
    }

    /// Removes what we were stopped in the middle of.
    pub(super) async fn remove_unfinished(&self) {
        let unfinished = std::mem::take(&mut *self.unfinished());
        for path in unfinished {
            self.remove(&path).await;
        }
    }

    async fn copy_whole(
        &self,
        from: &Path,
        to: &Path,
        metadata: &Metadata,
        links: LinkPolicy,
    ) -> Result<(u64, Option<ContentHash>), CopyError> {
        let bytes = self.from.files().read(from, links).await.map_err(|error| self.at_source(error))?;
        let size_bytes = bytes.len() as u64;
        let hash = ContentHash(*blake3::hash(&bytes).as_bytes());
        let mode = self.to.supports("fs/writeFile.mode").then_some(self.mode(metadata));
        let options = WriteOptions { mode, links, ..WriteOptions::default() };
        self.to.files().write(to, bytes, options).await.map_err(|error| self.at_target(error))?;
        let (times, checked) =
            tokio::join!(self.keep_times(to, metadata, links), self.compare(from, to, to, links, hash));
        times?;
        self.progress.bytes(size_bytes);
        Ok((size_bytes, checked?.then_some(hash)))
    }

    async fn copy_streamed(
        &self,
        from: &Path,
        to: &Path,
        metadata: &Metadata,
        links: LinkPolicy,
    ) -> Result<(u64, Option<ContentHash>), CopyError> {
        // Only closed together with us.
        let _permit = self.large.acquire().await;
        let temp = self.new_temp(to);
        let filled = self.fill(from, &temp, to, metadata, links).await;
        self.release_temp(&temp, filled.is_ok()).await;
        filled
    }

    /// Fills a temporary file, and gives it its name once both ends agree about it.
    async fn fill(
        &self,
        from: &Path,
        temp: &Path,
        to: &Path,
        metadata: &Metadata,
        links: LinkPolicy,
    ) -> Result<(u64, Option<ContentHash>), CopyError> {
        // Nobody knows the temporary file by its name.
        let at_target = |error| self.at_target(FileError { verb: FileVerb::Write, path: to.to_owned(), ..error });
        let files = self.to.files();
        // Made closed: nobody may read what the source keeps from them, while it is on its way.
        if self.to.supports("fs/writeFile.mode") {
            let closed = WriteOptions { mode: Some(0o600), links, ..WriteOptions::default() };
            files.write(temp, Bytes::new(), closed).await.map_err(at_target)?;
        }
        let source = self.from.files().open(from, OpenMode::Read, links).await;
        let source = source.map_err(|error| self.at_source(error))?;
        let target = files.open(temp, OpenMode::Replace, links).await.map_err(at_target)?;
        let window = Window::between(&self.from, &self.to);
        let copied = copy_blocks(Arc::from(source), Arc::from(target), window, &self.progress).await;
        let (size_bytes, hash) = copied.map_err(|failure| match failure {
            BlockCopyError::Source(error) => self.at_source(error),
            BlockCopyError::Target(error) => at_target(error),
        })?;
        if self.to.supports("fs/setPermissions") {
            files.set_permissions(temp, self.mode(metadata), links).await.map_err(at_target)?;
        }
        if self.to.supports("fs/setTimes") {
            files.set_times(temp, metadata.times(), links).await.map_err(at_target)?;
        }
        let checked = self.compare(from, temp, to, links, hash).await?;
        self.rename_temp(temp, to, links).await.map_err(at_target)?;
        Ok((size_bytes, checked.then_some(hash)))
    }

    /// Gives a staged file its name.
    async fn rename_temp(&self, temp: &Path, to: &Path, links: LinkPolicy) -> Result<(), FileError> {
        let options = RenameOptions { no_replace: false, links };
        let (renamed, unsure) = retry_unreachable(|| self.to.files().rename(temp, to, options)).await;
        match renamed {
            // Nobody else knows that name: the question that broke was carried out.
            Err(error) if error.is_not_found() && unsure => Ok(()),
            other => other.map_err(|error| FileError { path: to.to_owned(), ..error }),
        }
    }

    /// Whether both ends have these contents. `false`: one of them cannot tell. `named` is what a person is told of.
    async fn compare(
        &self,
        from: &Path,
        to: &Path,
        named: &Path,
        links: LinkPolicy,
        hash: ContentHash,
    ) -> Result<bool, CopyError> {
        let source = async {
            match self.from.is_local() {
                // We have read it ourselves, with nothing between.
                true => Ok(Some(hash)),
                false => hash_if_supported(&self.from, from, links).await.map_err(|error| self.at_source(error)),
            }
        };
        let target = async { hash_if_supported(&self.to, to, links).await.map_err(|error| self.at_target(error)) };
        let (source, target) = tokio::join!(source, target);
        let (source, target) = (source?, target?);
        if source.is_some_and(|source| source != hash) {
            return Err(CopyError::with_path(&self.from, from, |path| CopyError::Changed { path }));
        }
        if target.is_some_and(|target| target != hash) {
            return Err(CopyError::with_path(&self.to, named, |path| CopyError::Corrupt { path }));
        }
        Ok(source.is_some() && target.is_some())
    }

    async fn keep_times(&self, path: &Path, metadata: &Metadata, links: LinkPolicy) -> Result<(), CopyError> {
        match self.to.supports("fs/setTimes") {
            true => {
                self.to.files().set_times(path, metadata.times(), links).await.map_err(|error| self.at_target(error))
            }
            false => Ok(()),
        }
    }

    /// Set-user-id of another machine's account would be set-user-id of whoever has that number, or of us.
    pub(super) fn mode(&self, metadata: &Metadata) -> u32 {
        metadata.mode & 0o1777
    }

    /// A name beside `to` that nobody else uses.
    fn new_temp(&self, to: &Path) -> PathBuf {
        let temp = to.with_file_name(format!(".exec-server-cp-{:016x}", runtime::random()));
        self.unfinished().insert(temp.clone());
        temp
    }

    async fn release_temp(&self, temp: &Path, is_gone: bool) {
        if !is_gone {
            self.remove(temp).await;
        }
        self.unfinished().remove(temp);
    }

    /// Nothing to tell if it fails: what made us remove it is told already.
    async fn remove(&self, path: &Path) {
        let options = RemoveOptions { recursive: false, force: true, links: LinkPolicy::Follow };
        if let Err(error) = self.to.files().remove(path, options).await {
            tracing::debug!(%error, path = %path.display(), "a temporary file stays");
        }
    }

    fn unfinished(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        // A set of names: a panic under it leaves nothing broken.
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn is_link_at(&self, path: &Path) -> bool {
        self.to.files().read_link(path, LinkPolicy::Refuse).await.is_ok()
    }

    async fn is_directory_at(&self, path: &Path) -> bool {
        let metadata = self.to.files().metadata(path, LinkPolicy::Follow).await;
        metadata.is_ok_and(|metadata| metadata.kind == FileKind::Directory && !metadata.is_symlink)
    }

    pub(super) fn at_source(&self, error: FileError) -> CopyError {
        CopyError::at(&self.from, error)
    }

    pub(super) fn at_target(&self, error: FileError) -> CopyError {
        CopyError::at(&self.to, error)
    }

    fn report_file(&self, from: &Path, to: &Path, bytes: u64, hash: Option<ContentHash>) {
        if !self.progress.is_json() {
            return;
        }
        let line = CopiedFileJson {
            event: "file",
            from: EndpointJson { environment: self.from.environment_id(), path: Text::name(from) },
            to: EndpointJson { environment: self.to.environment_id(), path: Text::name(to) },
            bytes,
            hash: hash.map(|hash| hash.to_string()),
        };
        // Whether anybody reads it does not change what is copied.
        if let Err(error) = messages::print_json(&line) {
            tracing::debug!(%error, "a line is not told");
        }
    }
}

/// The hash of what is there; `None` if that machine cannot tell.
async fn hash_if_supported(location: &Location, path: &Path, links: LinkPolicy) -> Result<Option<ContentHash>, FileError> {
    match retry_unreachable(|| fingerprint(location.files(), path, links)).await.0 {
        Ok(hash) => Ok(Some(hash)),
        Err(error) if error.errno() == Some(ENOSYS) => Ok(None),
        Err(error) => Err(error),
    }
}

fn difference(now: &Copied, before: &Copied) -> Copied {
    Copied {
        files: now.files.saturating_sub(before.files),
        directories: now.directories.saturating_sub(before.directories),
        symlinks: now.symlinks.saturating_sub(before.symlinks),
        bytes: now.bytes.saturating_sub(before.bytes),
        skipped: now.skipped.saturating_sub(before.skipped),
    }
}
