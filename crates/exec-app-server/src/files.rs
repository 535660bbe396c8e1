//! `fs/*` but for watches: each call is one verb of the waist, on the files of this connection's caller.

use std::time::{SystemTime, UNIX_EPOCH};

use exec_env::Files;
use exec_env::files::{CopyOptions, CreateDirectoryOptions, FileKind, LinkPolicy, RemoveOptions, WriteOptions, limits};
use exec_wire::{RpcError, base64};
use tokio::sync::Semaphore;

use crate::limits::READ_BYTES_UNDER_WAY;
use crate::native_path::NativePath;
use crate::reply;
use crate::shapes::*;

/// The permits of file contents in memory count in this many bytes, because a semaphore counts 32 bits.
const PERMIT_BYTES: usize = 4 << 10;

pub(crate) fn read_budget() -> Semaphore {
    Semaphore::new(READ_BYTES_UNDER_WAY / PERMIT_BYTES)
}

/// Several large files are read one after the other.
pub(crate) async fn read(
    files: &dyn Files,
    budget: &Semaphore,
    params: FsReadFileParams,
) -> Result<FsReadFileResponse, RpcError> {
    let path = checked(&params.path)?;
    let failed = |error| reply::file_failed(&error);
    let metadata = files.metadata(path.as_path(), LinkPolicy::Follow).await.map_err(failed)?;
    let bytes = metadata.size_bytes.min(limits::READ_BYTES) as usize;
    let permits = (bytes / PERMIT_BYTES).min(READ_BYTES_UNDER_WAY / PERMIT_BYTES) as u32;
    let _permit = budget.acquire_many(permits).await.expect("the semaphore is never closed");
    let contents = files.read(path.as_path(), LinkPolicy::Follow).await.map_err(failed)?;
    Ok(FsReadFileResponse { data_base64: base64::encode(&contents) })
}

pub(crate) async fn write(files: &dyn Files, params: FsWriteFileParams) -> Result<Empty, RpcError> {
    let contents = base64::decode(params.data_base64.as_bytes()).map_err(reply::bad_contents)?;
    let path = checked(&params.path)?;
    done(files.write(path.as_path(), contents.into(), WriteOptions::default()).await)
}

pub(crate) async fn create_directory(files: &dyn Files, params: FsCreateDirectoryParams) -> Result<Empty, RpcError> {
    let path = checked(&params.path)?;
    let options = CreateDirectoryOptions { recursive: params.recursive.unwrap_or(true), ..Default::default() };
    done(files.create_directory(path.as_path(), options).await)
}

pub(crate) async fn metadata(
    files: &dyn Files,
    params: FsGetMetadataParams,
) -> Result<FsGetMetadataResponse, RpcError> {
    let path = checked(&params.path)?;
    let found = files.metadata(path.as_path(), LinkPolicy::Follow).await;
    let metadata = found.map_err(|error| reply::file_failed(&error))?;
    Ok(FsGetMetadataResponse {
        is_directory: metadata.kind == FileKind::Directory,
        is_file: metadata.kind == FileKind::File,
        is_symlink: metadata.is_symlink,
        created_at_ms: metadata.created.map_or(0, milliseconds),
        modified_at_ms: milliseconds(metadata.modified),
    })
}

pub(crate) async fn read_directory(
    files: &dyn Files,
    params: FsReadDirectoryParams,
) -> Result<FsReadDirectoryResponse, RpcError> {
    let path = checked(&params.path)?;
    let entries = files.read_directory(path.as_path()).await.map_err(|error| reply::file_failed(&error))?;
    let entry = |entry: exec_env::files::DirectoryEntry| FsReadDirectoryEntry {
        file_name: entry.name.to_string_lossy().into_owned(),
        is_directory: entry.kind == FileKind::Directory,
        is_file: entry.kind == FileKind::File,
    };
    // Codex leaves out links that lead nowhere.
    let entries = entries.into_iter().filter(|entry| entry.kind != FileKind::Symlink);
    Ok(FsReadDirectoryResponse { entries: entries.map(entry).collect() })
}

pub(crate) async fn remove(files: &dyn Files, params: FsRemoveParams) -> Result<Empty, RpcError> {
    let path = checked(&params.path)?;
    let options = RemoveOptions {
        recursive: params.recursive.unwrap_or(true),
        force: params.force.unwrap_or(true),
        links: LinkPolicy::Follow,
    };
    done(files.remove(path.as_path(), options).await)
}

pub(crate) async fn copy(files: &dyn Files, params: FsCopyParams) -> Result<Empty, RpcError> {
    let (source, destination) = (checked(&params.source_path)?, checked(&params.destination_path)?);
    let options = CopyOptions { recursive: params.recursive, ..Default::default() };
    done(files.copy(source.as_path(), destination.as_path(), options).await.map(drop))
}

/// A path that the kernel takes.
pub(crate) fn checked(path: &NativePath) -> Result<&NativePath, RpcError> {
    match path {
        path if path.has_nul() => Err(reply::nul_in_path()),
        path if path.is_too_long() => Err(reply::path_too_long()),
        path => Ok(path),
    }
}

fn done(result: Result<(), exec_env::files::FileError>) -> Result<Empty, RpcError> {
    result.map(|()| Empty {}).map_err(|error| reply::file_failed(&error))
}

/// Since 1970; 0 for times before that, as with Codex.
fn milliseconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
