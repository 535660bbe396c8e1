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

use super::native;
use super::permission::{self, Need};
use crate::belongings::OpenRefusal;
use crate::convert;
use crate::dispatch::{Counter, Done};
use crate::limits::SMALL_ANSWER_BYTES;
use crate::reply;

/// What an answer to `fs/readFile` takes beside its base64.
const ENVELOPE_BYTES: u64 = 1024;

pub(crate) async fn read_file(counter: Counter, params: ReadFileParams) -> Result<Done<ReadFileResult>, RpcError> {
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Read)?;
    let links = convert::links(params.follow_symlinks);
    // What cannot be looked at cannot be read either, and the read says why in its own words.
    let size_bytes = match counter.files().metadata(&path, links).await {
        Ok(found) if found.kind == FileKind::File => found.size_bytes,
        _ => 0,
    };
    // Beyond the bound of reading, the environment has an error of its own.
    if size_bytes <= READ_BYTES && size_bytes.div_ceil(3) * 4 + ENVELOPE_BYTES > MESSAGE_BYTES as u64 {
        return Err(reply::file_too_large(size_bytes));
    }
    let room = match usize::try_from(size_bytes) {
        Ok(bytes) if bytes > SMALL_ANSWER_BYTES && size_bytes <= READ_BYTES => counter.desk.room(bytes).await,
        _ => None,
    };
    let bytes = counter.files().read(&path, links).await.map_err(|error| reply::file_error(&error))?;
    Ok(Done { bytes: room, ..ReadFileResult { data_base64: Base64(bytes) }.into() })
}

pub(crate) async fn write_file(counter: Counter, params: WriteFileParams) -> Result<Done<WriteFileResult>, RpcError> {
    let bytes = params.data_base64.0.map_err(reply::bad_base64)?;
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Write)?;
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
    counter.files().write(&path, bytes, options).await.map_err(|error| reply::file_error(&error))?;
    Ok(WriteFileResult {}.into())
}

pub(crate) async fn open(counter: Counter, params: OpenParams) -> Result<Done<OpenResult>, RpcError> {
    known_length(&params.handle_id)?;
    let path = native(&params.path)?;
    let need = if params.mode == OpenMode::Read { Need::Read } else { Need::Write };
    permission::check(params.sandbox.as_ref(), need)?;
    let handles = &counter.desk.belongings().handles;
    let handle_id = params.handle_id;
    let opening = handles.reserve(&handle_id).map_err(|refusal| reply::handle_refused(&handle_id, refusal))?;
    let (mode, links) = (convert::open_mode(params.mode), convert::links(params.follow_symlinks));
    let file = counter.files().open(&path, mode, links).await.map_err(|error| reply::file_error(&error))?;
    let size_bytes = Some(file.size_bytes());
    opening.done(file);
    Ok(OpenResult { handle_id, size_bytes }.into())
}

pub(crate) async fn read_block(counter: Counter, params: ReadBlockParams) -> Result<Done<ReadBlockResult>, RpcError> {
    let (block, room) = block(&counter, &params).await?;
    Ok(Done { bytes: room, ..ReadBlockResult { chunk: Base64(block.bytes), eof: block.eof }.into() })
}

/// The same as raw bytes.
pub(crate) async fn read_raw_block(
    counter: Counter,
    params: ReadBlockParams,
    request: &RequestId,
    out: &mut Vec<u8>,
) -> Result<Option<OwnedSemaphorePermit>, RpcError> {
    let request_id = serde_json::to_string(request).expect("a number or a string");
    let (block, room) = block(&counter, &params).await?;
    let header = binary::FrameHeader::Block { request_id: &request_id, offset: params.offset, eof: block.eof };
    binary::encode(out, &header, &block.bytes).map_err(|long| reply::bad_params(long.to_string()))?;
    Ok(room)
}

async fn block(counter: &Counter, params: &ReadBlockParams) -> Result<(FileBlock, Option<OwnedSemaphorePermit>), RpcError> {
    known_length(&params.handle_id)?;
    if !(1..=BLOCK_BYTES).contains(&params.len) {
        return Err(nonsense(FileVerb::ReadBlock, FileReason::ReadBlockLength));
    }
    let handles = &counter.desk.belongings().handles;
    let file = handles.find(&params.handle_id).ok_or_else(|| reply::unknown_handle(&params.handle_id))?;
    let room = match params.len {
        len if len > SMALL_ANSWER_BYTES => counter.desk.room(len).await,
        _ => None,
    };
    match file.read_block(params.offset, params.len).await {
        Ok(block) => Ok((block, room)),
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
fn known_length(handle_id: &str) -> Result<(), RpcError> {
    match handle_id.len() > HANDLE_ID_BYTES {
        true => Err(reply::handle_refused(handle_id, OpenRefusal::LongId)),
        false => Ok(()),
    }
}

/// A block that makes no sense whatever the file is. The original says so before it looks for the handle.
fn nonsense(verb: FileVerb, reason: FileReason) -> RpcError {
    reply::file_error(&FileError::new(verb, "", reason))
}

pub(crate) async fn write_block(
    counter: Counter,
    params: WriteBlockParams,
) -> Result<Done<WriteBlockResult>, RpcError> {
    known_length(&params.handle_id)?;
    let bytes: Bytes = params.chunk.0;
    if !(1..=BLOCK_BYTES).contains(&bytes.len()) {
        return Err(nonsense(FileVerb::WriteBlock, FileReason::WriteBlockLength));
    }
    let end = params.offset.checked_add(bytes.len() as u64);
    if end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(nonsense(FileVerb::WriteBlock, FileReason::WriteRange));
    }
    let handles = &counter.desk.belongings().handles;
    let file = handles.find(&params.handle_id).ok_or_else(|| reply::unknown_handle(&params.handle_id))?;
    file.write_block(params.offset, bytes).await.map_err(|error| reply::file_error(&error))?;
    Ok(WriteBlockResult {}.into())
}

pub(crate) async fn close(counter: Counter, params: CloseParams) -> Result<Done<CloseResult>, RpcError> {
    known_length(&params.handle_id)?;
    let closed = counter.desk.belongings().handles.close(&params.handle_id).await;
    closed.map_err(|error| reply::file_error(&error))?;
    Ok(CloseResult {}.into())
}
