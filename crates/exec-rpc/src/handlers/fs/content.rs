//! Contents of files: as a whole, and in blocks of files that are kept open.

use std::sync::Arc;

use bytes::Bytes;
use exec_env::files::limits::READ_BYTES;
use exec_env::files::{
    self, ChangeAction, ChangeSet, ExpectedFile, FileBlock, FileChange, FileError, FileKind, FileReason, FileVerb,
    WriteOptions,
};
use exec_wire::base64::Base64;
use exec_wire::binary;
use exec_wire::envelope::RequestId;
use exec_wire::error::RpcError;
use exec_wire::fs::{
    ApplyChangesParams, ApplyChangesResult, CloseParams, CloseResult, HashAlgorithm, HashParams, HashResult,
    OpenParams, OpenResult, ReadBlockParams, ReadBlockResult, ReadFileParams, ReadFileResult, WriteBlockParams,
    WriteBlockResult, WriteFileParams, WriteFileResult,
};
use exec_wire::limits::{BLOCK_BYTES, MESSAGE_BYTES};
use tokio::sync::OwnedSemaphorePermit;

use super::native_path;
use crate::convert;
use crate::dispatch::{HandlerResult, RequestContext, Response};
use crate::reply;
use crate::resources::{self, SharedFile};

/// What a response to `fs/readFile` takes beside its base64.
const ENVELOPE_BYTES: u64 = 1024;

pub(crate) async fn read_file(context: RequestContext, params: ReadFileParams) -> HandlerResult<ReadFileResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let links = convert::links(params.follow_symlinks);
    // If this fails, the read below fails too, and its error is the one to report.
    let size_bytes = match files.metadata(&path, links).await {
        Ok(found) if found.kind == FileKind::File => found.size_bytes,
        _ => 0,
    };
    // For a file beyond the environment's own bound, its error is the one to report.
    if size_bytes <= READ_BYTES && size_bytes.div_ceil(3) * 4 + ENVELOPE_BYTES > MESSAGE_BYTES as u64 {
        return Err(reply::file_too_large(size_bytes));
    }
    let memory = match usize::try_from(size_bytes) {
        Ok(bytes) if size_bytes <= READ_BYTES => context.connection.reserve_if_large(bytes).await,
        _ => None,
    };
    let bytes = files.read(&path, links).await.map_err(reply::file_error)?;
    Ok(Response { memory, ..ReadFileResult { data_base64: Base64(bytes) }.into() })
}

pub(crate) async fn write_file(context: RequestContext, params: WriteFileParams) -> HandlerResult<WriteFileResult> {
    let bytes = params.data_base64.0.map_err(reply::bad_base64)?;
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let expect = expected(params.if_match.as_deref())?;
    let options = WriteOptions {
        append: params.append,
        expect,
        sync: params.sync,
        links: convert::links(params.follow_symlinks),
        mode: params.mode,
    };
    files.write(&path, bytes, options).await.map_err(reply::file_error)?;
    Ok(WriteFileResult {}.into())
}

fn expected(if_match: Option<&str>) -> Result<ExpectedFile, RpcError> {
    match if_match {
        None => Ok(ExpectedFile::Anything),
        Some("absent") => Ok(ExpectedFile::Absent),
        Some(hash) => {
            let hash = hash.parse().map_err(|error| reply::bad_params(format!("ifMatch: {error}")))?;
            Ok(ExpectedFile::Content(hash))
        }
    }
}

pub(crate) async fn apply_changes(
    context: RequestContext,
    params: ApplyChangesParams,
) -> HandlerResult<ApplyChangesResult> {
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let changes = params.changes.into_iter().map(file_change).collect::<Result<_, _>>()?;
    let set = ChangeSet { changes, make_directories: params.make_directories };
    files.change_set(set).await.map_err(reply::file_error)?;
    Ok(ApplyChangesResult {}.into())
}

fn file_change(change: exec_wire::fs::FileChange) -> Result<FileChange, RpcError> {
    let (path, if_match, action) = match change {
        exec_wire::fs::FileChange::Write { path, data_base64, mode, if_match } => {
            (path, if_match, ChangeAction::Write { bytes: data_base64.0, mode })
        }
        exec_wire::fs::FileChange::Remove { path, if_match } => (path, if_match, ChangeAction::Remove),
        exec_wire::fs::FileChange::Rename { path, destination_path, if_match } => {
            (path, if_match, ChangeAction::Rename { to: native_path(&destination_path)? })
        }
    };
    Ok(FileChange { path: native_path(&path)?, expect: expected(if_match.as_deref())?, action })
}

pub(crate) async fn hash(context: RequestContext, params: HashParams) -> HandlerResult<HashResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let algorithm = match params.algorithm {
        HashAlgorithm::Blake3 => files::HashAlgorithm::Blake3,
        HashAlgorithm::Sha256 => files::HashAlgorithm::Sha256,
    };
    let hashed = files.hash(&path, algorithm, convert::links(params.follow_symlinks)).await;
    let hashed = hashed.map_err(reply::file_error)?;
    Ok(HashResult { algorithm: params.algorithm, hash: hashed.hex(), size_bytes: hashed.size_bytes }.into())
}

pub(crate) async fn open(context: RequestContext, params: OpenParams) -> HandlerResult<OpenResult> {
    check_handle_id(&params.handle_id)?;
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let handles = &context.connection.resources.handles;
    let handle_id = params.handle_id;
    let reservation = handles.reserve(&handle_id).map_err(|error| reply::handle_refused(&handle_id, error))?;
    let (mode, links) = (convert::open_mode(params.mode), convert::links(params.follow_symlinks));
    let file = files.open(&path, mode, links).await.map_err(reply::file_error)?;
    let size_bytes = Some(file.size_bytes());
    reservation.commit(SharedFile { file: Arc::new(file), environment: context.environment()?.id });
    Ok(OpenResult { handle_id, size_bytes }.into())
}

pub(crate) async fn read_block(context: RequestContext, params: ReadBlockParams) -> HandlerResult<ReadBlockResult> {
    let (block, memory) = load_block(&context, &params).await?;
    Ok(Response { memory, ..ReadBlockResult { chunk: Base64(block.bytes), eof: block.eof }.into() })
}

/// The same with a binary frame as its result. Its header is written to `out`, and the block is returned.
pub(crate) async fn read_binary_block(
    context: RequestContext,
    params: ReadBlockParams,
    request: &RequestId,
    out: &mut Vec<u8>,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), RpcError> {
    let request_id = serde_json::to_string(request).expect("a number or a string");
    let (block, memory) = load_block(&context, &params).await?;
    let header = binary::FrameHeader::Block { request_id: &request_id, offset: params.offset, eof: block.eof };
    binary::encode_header(out, &header).map_err(|long| reply::bad_params(long.to_string()))?;
    Ok((block.bytes, memory))
}

async fn load_block(
    context: &RequestContext,
    params: &ReadBlockParams,
) -> Result<(FileBlock, Option<OwnedSemaphorePermit>), RpcError> {
    check_handle_id(&params.handle_id)?;
    if !(1..=BLOCK_BYTES).contains(&params.len) {
        return Err(invalid_block(FileVerb::ReadBlock, FileReason::ReadBlockLength));
    }
    let handles = &context.connection.resources.handles;
    let file = find_handle(context, &params.handle_id)?;
    let memory = context.connection.reserve_if_large(params.len).await;
    match file.file.read_block(params.offset, params.len).await {
        Ok(block) => Ok((block, memory)),
        Err(error) => {
            // After an error of the disk the handle is not used again. An error without errno says nothing about the disk.
            if error.errno().is_some() {
                drop(file);
                let _ = handles.close(&params.handle_id).await;
            }
            Err(reply::file_error(error))
        }
    }
}

fn find_handle(context: &RequestContext, id: &str) -> Result<SharedFile, RpcError> {
    let file = context.connection.resources.handles.find(id).ok_or_else(|| reply::unknown_handle(id))?;
    context.require_environment("file handle", id, &file.environment)?;
    Ok(file)
}

/// No handle has a longer id, so none is looked for.
fn check_handle_id(id: &str) -> Result<(), RpcError> {
    resources::check_handle_id(id).map_err(|error| reply::handle_refused(id, error))
}

/// A length or offset that is wrong for any file. Codex's server reports it before it looks for the handle.
fn invalid_block(verb: FileVerb, reason: FileReason) -> RpcError {
    reply::file_error(FileError::new(verb, "", reason))
}

pub(crate) async fn write_block(context: RequestContext, params: WriteBlockParams) -> HandlerResult<WriteBlockResult> {
    check_handle_id(&params.handle_id)?;
    let bytes: Bytes = params.chunk.0;
    if !(1..=BLOCK_BYTES).contains(&bytes.len()) {
        return Err(invalid_block(FileVerb::WriteBlock, FileReason::WriteBlockLength));
    }
    let end = params.offset.checked_add(bytes.len() as u64);
    if end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(invalid_block(FileVerb::WriteBlock, FileReason::WriteRange));
    }
    let file = find_handle(&context, &params.handle_id)?;
    file.file.write_block(params.offset, bytes).await.map_err(reply::file_error)?;
    Ok(WriteBlockResult {}.into())
}

pub(crate) async fn close(context: RequestContext, params: CloseParams) -> HandlerResult<CloseResult> {
    check_handle_id(&params.handle_id)?;
    if let Some(file) = context.connection.resources.handles.find(&params.handle_id) {
        context.require_environment("file handle", &params.handle_id, &file.environment)?;
    }
    let closed = context.connection.resources.handles.close(&params.handle_id).await;
    closed.map_err(reply::file_error)?;
    Ok(CloseResult {}.into())
}
