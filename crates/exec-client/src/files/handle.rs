//! A file that stays open over connections that do not.
//!
//! A handle of the wire belongs to its connection. After a break the server does not know it any more; then the file is
//! opened again and the block is read or written again, which is safe because blocks have offsets. A file that is written
//! is not truncated a second time. If the file at the path is another one by then, or another version of one that is
//! read, the error is ESTALE: a mixture of two versions would be worse.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use exec_env::files::{FileBlock, FileError, FileFuture, FileReason, FileVerb, LinkPolicy, OpenFile, OpenMode};
use exec_wire::base64::Base64;
use exec_wire::fs as wire;
use exec_wire::{Extension, PathUri};
use tokio::sync::Mutex;

use super::{FilesLink, Operation, follow_symlinks, send_detached, unique_id};
use crate::error;
use crate::limits::{LONG_CALL, REOPENS};
use crate::link::CallOptions;

const ESTALE: i32 = 116;

#[derive(Debug)]
pub(super) struct RemoteFile {
    link: FilesLink,
    path: PathBuf,
    uri: PathUri,
    mode: OpenMode,
    links: LinkPolicy,
    size_bytes: u64,
    identity: Option<FileIdentity>,
    /// Locked while the file is opened again, so that of many blocks that need it only one does so.
    handle: Mutex<FileHandle>,
}

#[derive(Debug, Clone)]
struct FileHandle {
    id: String,
    /// How often the file was opened again.
    reopened: u32,
}

/// Two files with the same identity are the same file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileIdentity {
    device: Option<u64>,
    inode: Option<u64>,
    /// Size and time of modification, only of a file that is read.
    version: Option<(u64, i64)>,
}

impl RemoteFile {
    pub(super) async fn open(
        link: FilesLink,
        path: &Path,
        mode: OpenMode,
        links: LinkPolicy,
    ) -> Result<Self, FileError> {
        let uri = Operation { link: &link, verb: FileVerb::Open, path }.uri()?;
        let mut file = Self {
            handle: Mutex::new(FileHandle { id: unique_id(), reopened: 0 }),
            link,
            path: path.to_owned(),
            uri,
            mode,
            links,
            size_bytes: 0,
            identity: None,
        };
        let id = file.handle.get_mut().id.clone();
        let size_bytes = match mode {
            OpenMode::Read => {
                // Both at once, because a second round trip would double what a small file costs.
                let (opened, identity) = tokio::join!(file.open_handle(&id, mode), file.fetch_identity());
                file.identity = identity;
                opened?
            }
            OpenMode::Replace | OpenMode::Append => {
                let opened = file.open_handle(&id, mode).await?;
                file.identity = file.fetch_identity().await;
                opened
            }
        };
        file.size_bytes = match size_bytes {
            Some(size_bytes) => size_bytes,
            // The original server does not tell it.
            None => file.identity.as_ref().and_then(|identity| identity.version).map_or(0, |(size, _)| size),
        };
        Ok(file)
    }

    fn operation(&self, verb: FileVerb) -> Operation<'_> {
        Operation { link: &self.link, verb, path: &self.path }
    }

    async fn open_handle(&self, id: &str, mode: OpenMode) -> Result<Option<u64>, FileError> {
        let params = wire::OpenParams {
            handle_id: id.to_owned(),
            path: self.uri.clone(),
            mode: match mode {
                OpenMode::Read => wire::OpenMode::Read,
                OpenMode::Replace => wire::OpenMode::Replace,
                OpenMode::Append => wire::OpenMode::Append,
            },
            sandbox: self.operation(FileVerb::Open).sandbox()?,
            follow_symlinks: follow_symlinks(self.links),
        };
        // Sending it again is safe, because the handle of a connection that broke is gone.
        let opened = self.operation(FileVerb::Open).call(&params).await?;
        Ok(opened.size_bytes)
    }

    async fn fetch_identity(&self) -> Option<FileIdentity> {
        let params = wire::GetMetadataParams {
            path: self.uri.clone(),
            follow_symlinks: follow_symlinks(self.links),
            sandbox: self.operation(FileVerb::Metadata).sandbox().ok()?,
        };
        let found = self.operation(FileVerb::Metadata).call(&params).await.ok()?;
        let modified = found.modified_ns.unwrap_or(found.modified_at_ms);
        let version = (self.mode == OpenMode::Read).then_some((found.size, modified));
        Some(FileIdentity { device: found.device, inode: found.inode, version })
    }

    /// Opens the file again, unless another block has done so since it saw the handle `seen`.
    async fn reopen(&self, seen: &FileHandle, operation: Operation<'_>) -> Result<(), FileError> {
        let mut handle = self.handle.lock().await;
        if handle.reopened != seen.reopened {
            return Ok(());
        }
        let mode = match self.mode {
            OpenMode::Read => OpenMode::Read,
            OpenMode::Replace | OpenMode::Append => OpenMode::Append,
        };
        if mode == OpenMode::Append && !self.link.has(Extension::OPEN_APPEND) {
            return Err(operation.unreachable("the connection broke, and this server cannot open a file to write on"));
        }
        let id = unique_id();
        self.open_handle(&id, mode).await.map_err(|error| FileError { verb: operation.verb, ..error })?;
        if self.identity.is_some() && self.fetch_identity().await != self.identity {
            // Other blocks wait for a handle, and must not get one of another file.
            send_detached(&self.link, wire::CloseParams { handle_id: id });
            return Err(operation.error(FileReason::Os(ESTALE)));
        }
        *handle = FileHandle { id, reopened: handle.reopened + 1 };
        Ok(())
    }

    /// Reads or writes a block with the present handle. After a break the file is opened again before the block is sent
    /// again: all the blocks in flight with a handle that the server does not know would be megabytes for nothing, and a
    /// connection that breaks before those are through would never carry the file on.
    async fn call_block<C: exec_wire::Call>(
        &self,
        verb: FileVerb,
        params: impl Fn(String) -> C,
    ) -> Result<C::Result, FileError> {
        let operation = self.operation(verb);
        let mut reopened = 0;
        loop {
            let handle = self.handle.lock().await.clone();
            let options = CallOptions { deadline: LONG_CALL, retry: C::METHOD.behaviour().retry };
            match self.link.call_with(&params(handle.id.clone()), options).await.result {
                Ok(result) => return Ok(result),
                Err(error) if !error::has_ended_with_its_connection(&error) => {
                    return Err(error::file_error(verb, &self.path, error));
                }
                Err(_) if reopened == REOPENS => {
                    let why = format!("the connection broke {REOPENS} times before a block of the file was through");
                    return Err(operation.unreachable(why));
                }
                Err(_) => {
                    reopened += 1;
                    self.reopen(&handle, operation).await?;
                }
            }
        }
    }
}

impl OpenFile for RemoteFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_block(&self, offset: u64, len: usize) -> FileFuture<'_, FileBlock> {
        Box::pin(async move {
            let params = |handle_id| wire::ReadBlockParams { handle_id, offset, len };
            let block = self.call_block(FileVerb::ReadBlock, params).await?;
            Ok(FileBlock { bytes: block.chunk.0, eof: block.eof })
        })
    }

    fn write_block(&self, offset: u64, bytes: Bytes) -> FileFuture<'_, ()> {
        Box::pin(async move {
            let params = |handle_id| wire::WriteBlockParams { handle_id, offset, chunk: Base64(bytes.clone()) };
            self.call_block(FileVerb::WriteBlock, params).await.map(drop)
        })
    }

    fn close(self: Box<Self>) -> FileFuture<'static, ()> {
        Box::pin(async move {
            let handle_id = std::mem::take(&mut self.handle.lock().await.id);
            let params = wire::CloseParams { handle_id };
            self.operation(FileVerb::Close).call(&params).await.map(drop)
        })
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        let handle_id = std::mem::take(&mut self.handle.get_mut().id);
        // The id is empty if the file was closed before.
        if !handle_id.is_empty() {
            send_detached(&self.link, wire::CloseParams { handle_id });
        }
    }
}
