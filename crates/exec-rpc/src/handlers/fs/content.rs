//! Contents: whole files, and files in blocks.

use bytes::Bytes;
use exec_env::files::limits::READ_BYTES;
use exec_env::files::{FileBlock, ExpectedFile, FileError, FileKind, FileReason, FileVerb, WriteOptions};
use exec_wire::binary;
use exec_wire::base64::Base64;
use exec_wire::envelope::RequestId;
use exec_wire::error::RpcError;
use exec_wire::fs::{
    CloseParams, CloseResult, OpenMode, OpenParams, OpenResult, ReadBlockParams, ReadBlockResult, ReadFileParams,
    ReadFileResult, WriteBlockParams, WriteBlockResult, WriteFileParams, WriteFileResult,
};
use exec_wire::limits::{BLOCK_BYTES, HANDLE_ID_BYTES, MESSAGE_BYTES};
use tokio::sync::OwnedSemaphorePermit;

use super::native_path;
use super::permission::{self, FileAccess};
use crate::convert;
use crate::dispatch::{RequestContext, Response};
use crate::limits::SMALL_MESSAGE_BYTES;
use crate::reply;
use crate::resources::OpenHandleError;

/// What an answer to `fs/readFile` takes beside its base64.
const ENVELOPE_BYTES: u64 = 1024;

pub(crate) async fn read_file(
    context: RequestContext,
    params: ReadFileParams,
) -> Result<Response<ReadFileResult>, RpcError> {
    let path = native_path(&params.path)?;
    permission::check(params.sandbox.as_ref(), FileAccess::Read)?;
    let links = convert::links(params.follow_symlinks);
    // What cannot be looked at cannot be read either, and the read says why in its own words.
    let size_bytes = match context.files().metadata(&path, links).await {
        Ok(found) if found.kind == FileKind::File => found.size_bytes,
        _ => 0,
    };
    // Beyond the bound of reading, the environment has an error of its own.
    if size_bytes <= READ_BYTES && size_bytes.div_ceil(3) * 4 + ENVELOPE_BYTES > MESSAGE_BYTES as u64 {
        return Err(reply::file_too_large(size_bytes));
    }
    let memory = match usize::try_from(size_bytes) {
        Ok(bytes) if bytes > SMALL_MESSAGE_BYTES && size_bytes <= READ_BYTES => {
            context.connection.reserve_response_memory(bytes).await
        }
        _ => None,
    };
    let bytes = context.files().read(&path, links).await.map_err(|error| reply::file_error(&error))?;
    Ok(Response { memory, ..ReadFileResult { data_base64: Base64(bytes) }.into() })
}

pub(crate) async fn write_file(
    context: RequestContext,
    params: WriteFileParams,
) -> Result<Response<WriteFileResult>, RpcError> {
    let bytes = params.data_base64.0.map_err(reply::bad_base64)?;
    let path = native_path(&params.path)?;
    permission::check(params.sandbox.as_ref(), FileAccess::Write)?;
    let expect = match params.if_match.as_deref() {
        None => ExpectedFile::Anything,
        Some("absent") => ExpectedFile::Absent,
        Some(hash) => ExpectedFile::Content(hash.parse().map_err(|error| reply::bad_params(format!("ifMatch: {error}")))?),
    };
    let options = WriteOptions {
        append: params.append,
        expect,
        sync: params.sync,
        links: convert::links(params.follow_symlinks),
        mode: params.mode,
    };
    context.files().write(&path, bytes, options).await.map_err(|error| reply::file_error(&error))?;
    Ok(WriteFileResult {}.into())
}

pub(crate) async fn open(context: RequestContext, params: OpenParams) -> Result<Response<OpenResult>, RpcError> {
    check_handle_id(&params.handle_id)?;
    let path = native_path(&params.path)?;
    let access = if params.mode == OpenMode::Read { FileAccess::Read } else { FileAccess::Write };
    permission::check(params.sandbox.as_ref(), access)?;
    let handles = &context.connection.resources().handles;
    let handle_id = params.handle_id;
    let opening = handles.reserve(&handle_id).map_err(|refusal| reply::handle_refused(&handle_id, refusal))?;
    let (mode, links) = (convert::open_mode(params.mode), convert::links(params.follow_symlinks));
    let file = context.files().open(&path, mode, links).await.map_err(|error| reply::file_error(&error))?;
    let size_bytes = Some(file.size_bytes());
    opening.done(file);
    Ok(OpenResult { handle_id, size_bytes }.into())
}

pub(crate) async fn read_block(
    context: RequestContext,
    params: ReadBlockParams,
) -> Result<Response<ReadBlockResult>, RpcError> {
    let (block, memory) = block(&context, &params).await?;
    Ok(Response { memory, ..ReadBlockResult { chunk: Base64(block.bytes), eof: block.eof }.into() })
}

/// The same as raw bytes.
pub(crate) async fn read_binary_block(
    context: RequestContext,
    params: ReadBlockParams,
    request: &RequestId,
    out: &mut Vec<u8>,
) -> Result<Option<OwnedSemaphorePermit>, RpcError> {
    let request_id = serde_json::to_string(request).expect("a number or a string");
    let (block, memory) = block(&context, &params).await?;
    let header = binary::FrameHeader::Block { request_id: &request_id, offset: params.offset, eof: block.eof };
    binary::encode(out, &header, &block.bytes).map_err(|long| reply::bad_params(long.to_string()))?;
    Ok(memory)
}

async fn block(
    context: &RequestContext,
    params: &ReadBlockParams,
) -> Result<(FileBlock, Option<OwnedSemaphorePermit>), RpcError> {
    check_handle_id(&params.handle_id)?;
    if !(1..=BLOCK_BYTES).contains(&params.len) {
        return Err(invalid_block(FileVerb::ReadBlock, FileReason::ReadBlockLength));
    }
    let handles = &context.connection.resources().handles;
    let file = handles.find(&params.handle_id).ok_or_else(|| reply::unknown_handle(&params.handle_id))?;
    let memory = match params.len {
        len if len > SMALL_MESSAGE_BYTES => context.connection.reserve_response_memory(len).await,
        _ => None,
    };
    match file.read_block(params.offset, params.len).await {
        Ok(block) => Ok((block, memory)),
        Err(error) => {
            // A disk that failed once is not asked again through the same handle; a bad length says nothing of it.
            if error.errno().is_some() {
                drop(file);
                let _ = handles.close(&params.handle_id).await;
            }
            Err(reply::file_error(&error))
        }
    }
}

/// No handle has such a name, so none is looked for.
fn check_handle_id(handle_id: &str) -> Result<(), RpcError> {
    match handle_id.len() > HANDLE_ID_BYTES {
        true => Err(reply::handle_refused(handle_id, OpenHandleError::IdTooLong)),
        false => Ok(()),
    }
}

/// A block that makes no sense whatever the file is. The original says so before it looks for the handle.
fn invalid_block(verb: FileVerb, reason: FileReason) -> RpcError {
    reply::file_error(&FileError::new(verb, "", reason))
}

pub(crate) async fn write_block(
    context: RequestContext,
    params: WriteBlockParams,
) -> Result<Response<WriteBlockResult>, RpcError> {
    check_handle_id(&params.handle_id)?;
    let bytes: Bytes = params.chunk.0;
    if !(1..=BLOCK_BYTES).contains(&bytes.len()) {
        return Err(invalid_block(FileVerb::WriteBlock, FileReason::WriteBlockLength));
    }
    let end = params.offset.checked_add(bytes.len() as u64);
    if end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(invalid_block(FileVerb::WriteBlock, FileReason::WriteRange));
    }
    let handles = &context.connection.resources().handles;
    let file = handles.find(&params.handle_id).ok_or_else(|| reply::unknown_handle(&params.handle_id))?;
    file.write_block(params.offset, bytes).await.map_err(|error| reply::file_error(&error))?;
    Ok(WriteBlockResult {}.into())
}

pub(crate) async fn close(context: RequestContext, params: CloseParams) -> Result<Response<CloseResult>, RpcError> {
    check_handle_id(&params.handle_id)?;
    let closed = context.connection.resources().handles.close(&params.handle_id).await;
    closed.map_err(|error| reply::file_error(&error))?;
    Ok(CloseResult {}.into())
}
