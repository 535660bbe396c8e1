//! Connections that the machine makes and accepts for a client. What they carry is kept by the session.

use std::sync::Arc;

use bytes::Bytes;
use exec_env::streams::{StreamAddress, StreamError, StreamVerb};
use exec_wire::base64::Base64;
use exec_wire::binary;
use exec_wire::envelope::RequestId;
use exec_wire::error::RpcError;
use exec_wire::limits::STREAM_ID_BYTES;
use exec_wire::net::{
    AcceptParams, AcceptResult, AwaitRoomParams, CloseParams, CloseResult, Endpoint, ListenParams, ListenResult,
    OpenParams, OpenResult, ReadParams, ReadResult, UnlistenParams, UnlistenResult, WriteParams, WriteResult,
};

use super::fs::native_path;
use crate::audit;
use crate::convert;
use crate::dispatch::{HandlerResult, RequestContext};
use crate::reply;
use crate::session::streams::{BadPosition, Chunk, SessionStream, StreamSlot};

pub(crate) async fn open(context: RequestContext, params: OpenParams) -> HandlerResult<OpenResult> {
    check_id("streamId", &params.stream_id)?;
    let address = address(&params.to)?;
    context.connection.permissions.allow_stream(&address).map_err(reply::violation)?;
    let environment = context.environment()?;
    let streams = &context.session.streams;
    let slot = streams.enter(&params.stream_id, &environment.id, &address);
    let slot = slot.map_err(|full| reply::too_many_streams("streams", full.limit))?;
    let connecting = async { Ok((environment.environment.streams().connect(address.clone()).await?, None)) };
    let made = slot.make(connecting).await.map(drop).map_err(reply::stream_error);
    streams.leave(&params.stream_id, &slot);
    close_if_ended(&context, &params.stream_id, &slot);
    audit::record_stream(&context, "net/open", &address, made.as_ref().err()).await;
    made?;
    Ok(OpenResult {}.into())
}

/// A stream that was made after its session had ended would be found by nobody.
fn close_if_ended(context: &RequestContext, id: &str, slot: &Arc<StreamSlot>) {
    if context.session.is_ended() {
        context.session.streams.remove(id, slot);
    }
}

pub(crate) async fn read(context: RequestContext, params: ReadParams) -> HandlerResult<ReadResult> {
    let result = match read_chunk(&context, &params).await? {
        Chunk::Bytes(bytes) => ReadResult { chunk: Base64(bytes), eof: false },
        Chunk::Eof => ReadResult { chunk: Base64::default(), eof: true },
    };
    Ok(result.into())
}

/// The same with a binary frame as its result. Its header is written to `out`, and the chunk is returned.
pub(crate) async fn read_binary_chunk(
    context: RequestContext,
    params: ReadParams,
    request: &RequestId,
    out: &mut Vec<u8>,
) -> Result<Bytes, RpcError> {
    let request_id = serde_json::to_string(request).expect("a number or a string");
    let chunk = read_chunk(&context, &params).await?;
    let eof = matches!(chunk, Chunk::Eof);
    let header = binary::FrameHeader::Block { request_id: &request_id, offset: params.seq, eof };
    binary::encode_header(out, &header).map_err(|long| reply::bad_params(long.to_string()))?;
    Ok(match chunk {
        Chunk::Bytes(bytes) => bytes,
        Chunk::Eof => Bytes::new(),
    })
}

async fn read_chunk(context: &RequestContext, params: &ReadParams) -> Result<Chunk, RpcError> {
    let slot = find(context, &params.stream_id)?;
    let stream = made(&slot, &params.stream_id)?;
    let reading = async { Ok(stream.read(params.seq, params.acknowledged).await) };
    let read: Result<Result<Chunk, StreamError>, BadPosition> =
        slot.unless_closed(StreamVerb::Read, reading).await.map_err(reply::stream_error)?;
    read.map_err(bad_position)?.map_err(reply::stream_error)
}

pub(crate) async fn write(context: RequestContext, params: WriteParams) -> HandlerResult<WriteResult> {
    let slot = find(&context, &params.stream_id)?;
    let stream = made(&slot, &params.stream_id)?;
    let written = stream.write(params.offset, &params.chunk.0, params.eof).map_err(bad_position)?;
    Ok(WriteResult { accepted: written.map_err(reply::stream_error)? }.into())
}

pub(crate) async fn await_room(context: RequestContext, params: AwaitRoomParams) -> HandlerResult<WriteResult> {
    let slot = find(&context, &params.stream_id)?;
    let stream = made(&slot, &params.stream_id)?;
    let room = slot.unless_closed(StreamVerb::Write, stream.await_room()).await;
    Ok(WriteResult { accepted: room.map_err(reply::stream_error)? }.into())
}

pub(crate) async fn close(context: RequestContext, params: CloseParams) -> HandlerResult<CloseResult> {
    check_id("streamId", &params.stream_id)?;
    let streams = &context.session.streams;
    if let Some(slot) = streams.find(&params.stream_id) {
        context.require_environment("stream", &params.stream_id, &slot.environment)?;
        if let Some(stream) = slot.stream() {
            stream.end(params.reset).await;
        }
        streams.remove(&params.stream_id, &slot);
    }
    Ok(CloseResult {}.into())
}

pub(crate) async fn listen(context: RequestContext, params: ListenParams) -> HandlerResult<ListenResult> {
    check_id("listenerId", &params.listener_id)?;
    let address = address(&params.at)?;
    context.connection.permissions.allow_stream(&address).map_err(reply::violation)?;
    let environment = context.environment()?;
    let streams = &context.session.streams;
    let slot = streams.enter_listener(&params.listener_id, &environment.id, &address);
    let slot = slot.map_err(|full| reply::too_many_streams("listeners", full.limit))?;
    let listening = slot.make(environment.environment.streams().listen(address.clone())).await;
    let at = listening.map(|listener| listener.address().clone()).map_err(reply::stream_error);
    if at.is_err() || context.session.is_ended() {
        streams.remove_listener(&params.listener_id);
    }
    audit::record_stream(&context, "net/listen", &address, at.as_ref().err()).await;
    Ok(ListenResult { at: endpoint(&at?)? }.into())
}

pub(crate) async fn accept(context: RequestContext, params: AcceptParams) -> HandlerResult<AcceptResult> {
    check_id("streamId", &params.stream_id)?;
    let unknown = || reply::unknown_stream("listener", &params.listener_id);
    let listener = context.session.streams.find_listener(&params.listener_id).ok_or_else(unknown)?;
    context.require_environment("listener", &params.listener_id, &listener.environment)?;
    context.connection.permissions.allow_stream(&listener.address).map_err(reply::violation)?;
    let streams = &context.session.streams;
    let slot = streams.enter(&params.stream_id, &listener.environment, &listener.address);
    let slot = slot.map_err(|full| reply::too_many_streams("streams", full.limit))?;
    // Nobody is kept waiting for a connection that never comes: when the request is dropped, its id is free again.
    let _leave = LeaveOnDrop { context: &context, id: &params.stream_id, slot: &slot };
    let peer = slot.make(listener.accept()).await.map_err(reply::stream_error)?.peer.clone();
    Ok(AcceptResult { peer }.into())
}

struct LeaveOnDrop<'a> {
    context: &'a RequestContext,
    id: &'a str,
    slot: &'a Arc<StreamSlot>,
}

impl Drop for LeaveOnDrop<'_> {
    fn drop(&mut self) {
        self.context.session.streams.leave(self.id, self.slot);
        close_if_ended(self.context, self.id, self.slot);
    }
}

pub(crate) async fn unlisten(context: RequestContext, params: UnlistenParams) -> HandlerResult<UnlistenResult> {
    check_id("listenerId", &params.listener_id)?;
    if let Some(slot) = context.session.streams.find_listener(&params.listener_id) {
        context.require_environment("listener", &params.listener_id, &slot.environment)?;
        context.session.streams.remove_listener(&params.listener_id);
    }
    Ok(UnlistenResult {}.into())
}

/// The stream of this id. A session may be resumed with a token that permits less than the one that opened it.
fn find(context: &RequestContext, id: &str) -> Result<Arc<StreamSlot>, RpcError> {
    check_id("streamId", id)?;
    let slot = context.session.streams.find(id).ok_or_else(|| reply::unknown_stream("stream", id))?;
    context.require_environment("stream", id, &slot.environment)?;
    context.connection.permissions.allow_stream(&slot.address).map_err(reply::violation)?;
    Ok(slot)
}

fn made<'a>(slot: &'a StreamSlot, id: &str) -> Result<&'a SessionStream, RpcError> {
    slot.stream().ok_or_else(|| reply::unknown_stream("stream", id))
}

fn check_id(what: &str, id: &str) -> Result<(), RpcError> {
    match id.len() {
        0 => Err(reply::bad_params(format!("{what} must not be empty"))),
        long if long > STREAM_ID_BYTES => Err(reply::too_long(what, long, STREAM_ID_BYTES)),
        _ => Ok(()),
    }
}

fn bad_position(bad: BadPosition) -> RpcError {
    reply::bad_params(bad.to_string())
}

fn address(endpoint: &Endpoint) -> Result<StreamAddress, RpcError> {
    Ok(match endpoint {
        Endpoint::Tcp { host, port } => StreamAddress::Tcp { host: host.clone(), port: *port },
        Endpoint::Unix { path } => StreamAddress::Unix { path: native_path(path)? },
    })
}

fn endpoint(address: &StreamAddress) -> Result<Endpoint, RpcError> {
    Ok(match address {
        StreamAddress::Tcp { host, port } => Endpoint::Tcp { host: host.clone(), port: *port },
        StreamAddress::Unix { path } => {
            let path = convert::uri(path).ok_or_else(|| reply::bad_params("the path of a socket must be absolute"))?;
            Endpoint::Unix { path }
        }
    })
}
