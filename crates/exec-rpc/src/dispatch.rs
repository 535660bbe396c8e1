//! Dispatch: finds the handler of a request's method, gives it typed params and a context, and sends its response.
//!
//! The order of checks is that of Codex's server: the method is known, its params decode, the handshake is complete, and
//! only then the operation itself.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use exec_transport::Message;
use exec_wire::SharedJson;
use exec_wire::envelope::{self, RequestId};
use exec_wire::error::RpcError;
use exec_wire::fs::WriteBlockParams;
use exec_wire::limits::MESSAGE_BYTES;
use exec_wire::method::{Call, Method, MethodFamily, Priority};
use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use crate::connection::{ConnectionShared, HandshakeState};
use crate::handlers;
use crate::limits::SMALL_MESSAGE_BYTES;
use crate::reply;
use crate::session::{CacheLookup, Session};
use crate::writer::WriterCommand;

/// A request that the connection has accepted.
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) method: Method,
    pub(crate) params: Params,
    pub(crate) jsonrpc: bool,
    /// The state when the request arrived.
    pub(crate) handshake: HandshakeState,
    pub(crate) accepted: OwnedSemaphorePermit,
    /// The memory that a large request takes. Never read, only dropped.
    pub(crate) _memory: Option<OwnedSemaphorePermit>,
}

pub(crate) enum Params {
    Json(SharedJson),
    /// The params of `fs/writeBlock`, which came as a binary frame.
    WriteBlock(WriteBlockParams),
}

impl Params {
    pub(crate) fn decode<C: DeserializeOwned>(&self) -> Result<C, RpcError> {
        match self {
            Self::Json(json) => json.decode().map_err(|error| RpcError::invalid_params(error.reason())),
            Self::WriteBlock(_) => Err(RpcError::invalid_params("a binary frame where JSON is expected")),
        }
    }
}

/// What a handler works with, beside its params.
pub(crate) struct RequestContext {
    pub(crate) connection: Arc<ConnectionShared>,
    pub(crate) session: Arc<Session>,
}

pub(crate) type HandlerResult<R> = Result<Response<R>, RpcError>;

/// The response of a handler, before it is serialized.
pub(crate) struct Response<R> {
    pub(crate) result: R,
    /// Goes to the writer right behind the response.
    pub(crate) then: Option<WriterCommand>,
    /// The memory that a large response takes.
    pub(crate) memory: Option<OwnedSemaphorePermit>,
}

impl<R> From<R> for Response<R> {
    fn from(result: R) -> Self {
        Self { result, then: None, memory: None }
    }
}

/// How a response that was serialized is to be sent.
#[derive(Default)]
struct ResponseDelivery {
    then: Option<WriterCommand>,
    memory: Option<OwnedSemaphorePermit>,
    /// Whether it is a binary frame, not text.
    binary: bool,
}

/// Carries a request out and sends its response. Dropping this future cancels the request; only requests that change
/// nothing are ever dropped.
pub(crate) async fn handle_request(connection: Arc<ConnectionShared>, request: Request) {
    let cached_in = response_cache(&connection, &request);
    let pending = match &cached_in {
        None => None,
        Some((session, scope)) => match session.responses.lookup(scope, &request.id).await {
            CacheLookup::Miss(pending) => Some(pending),
            CacheLookup::Hit(response) => {
                return connection.send(WriterCommand::Message(response, Some((request.accepted, None))));
            }
        },
    };
    let _run_permit = match request.method.spec().priority {
        Priority::Control => None,
        Priority::Ordinary => connection.acquire_run_permit().await,
    };
    let mut out = Vec::new();
    let handled = catch_panics(request.method, call_handler(&connection, &request, &mut out)).await;
    let ResponseDelivery { then, memory, binary } = handled.unwrap_or_else(|error| {
        out.clear();
        envelope::write_error(&mut out, &request.id, &error, request.jsonrpc);
        ResponseDelivery::default()
    });
    if out.len() > MESSAGE_BYTES {
        let error = reply::response_too_large(out.len());
        out.clear();
        envelope::write_error(&mut out, &request.id, &error, request.jsonrpc);
    }
    let out = Bytes::from(out);
    if let Some(pending) = pending {
        pending.complete(out.clone());
    }
    let permits = Some((request.accepted, memory));
    // What follows a response must not overtake it, so such a response never queues with the bulk messages.
    connection.send(match (binary, then.is_none() && out.len() > SMALL_MESSAGE_BYTES) {
        (true, _) => WriterCommand::Bulk(Message::Binary(out), permits),
        (false, true) => WriterCommand::Bulk(Message::Text(out), permits),
        (false, false) => WriterCommand::Message(out, permits),
    });
    // Only now: the output of a process must come after the response to its start.
    if let Some(then) = then {
        connection.send(then);
    }
}

/// Where the response to a request is cached: only if the request changes files and its client has named a scope.
fn response_cache(connection: &ConnectionShared, request: &Request) -> Option<(Arc<Session>, Arc<str>)> {
    use Method::{FsCopy, FsCreateDirectory, FsCreateSymlink, FsRemove, FsRename, FsWriteFile};
    let changes_files =
        matches!(request.method, FsWriteFile | FsCreateDirectory | FsRemove | FsCopy | FsRename | FsCreateSymlink);
    match &request.handshake {
        HandshakeState::Complete(session) if changes_files => {
            Some((session.clone(), connection.request_scope()?.clone()))
        }
        _ => None,
    }
}

/// Turns a panic of a handler into an error response, so that its client does not wait for ever.
async fn catch_panics(
    method: Method,
    work: impl Future<Output = Result<ResponseDelivery, RpcError>>,
) -> Result<ResponseDelivery, RpcError> {
    // Unwind safe: what handlers share is behind locks that ignore poisoning, and what they wrote to `out` is discarded.
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(method = method.name(), "a request broke down; this is a fault of the server");
        Err(reply::handler_panicked(method.name()))
    })
}

async fn call_handler(
    connection: &Arc<ConnectionShared>,
    request: &Request,
    out: &mut Vec<u8>,
) -> Result<ResponseDelivery, RpcError> {
    use handlers::fs::{content, search, tree, watch};
    use handlers::{discovery, environment, http, process, session};
    match request.method {
        Method::EnvironmentInfo => handle_json(connection, request, out, environment::info).await,
        Method::EnvironmentStatus => handle_json(connection, request, out, environment::status).await,
        Method::EnvironmentConfigRead => handle_json(connection, request, out, environment::config).await,
        Method::ProcessStart => handle_json(connection, request, out, process::start).await,
        Method::ProcessRead => handle_json(connection, request, out, process::read).await,
        Method::ProcessWrite => handle_json(connection, request, out, process::write).await,
        Method::ProcessSignal => handle_json(connection, request, out, process::signal).await,
        Method::ProcessTerminate => handle_json(connection, request, out, process::terminate).await,
        Method::ProcessResize => handle_json(connection, request, out, process::resize).await,
        Method::ProcessCloseStdin => handle_json(connection, request, out, process::close_stdin).await,
        Method::ProcessList => handle_json(connection, request, out, process::list).await,
        Method::ProcessWait => handle_json(connection, request, out, process::wait).await,
        Method::ProcessForget => handle_json(connection, request, out, process::forget).await,
        Method::HttpRequest => handle_json(connection, request, out, http::request).await,
        Method::CapabilityRootsDiscover => handle_json(connection, request, out, discovery::roots).await,
        Method::FsReadFile => handle_json(connection, request, out, content::read_file).await,
        Method::FsWriteFile => handle_json(connection, request, out, content::write_file).await,
        Method::FsOpen => handle_json(connection, request, out, content::open).await,
        Method::FsReadBlock if connection.uses_binary_frames() => read_binary_block(connection, request, out).await,
        Method::FsReadBlock => handle_json(connection, request, out, content::read_block).await,
        Method::FsWriteBlock => write_block(connection, request, out).await,
        Method::FsClose => handle_json(connection, request, out, content::close).await,
        Method::FsCreateDirectory => handle_json(connection, request, out, tree::create_directory).await,
        Method::FsGetMetadata => handle_json(connection, request, out, tree::get_metadata).await,
        Method::FsCanonicalize => handle_json(connection, request, out, tree::canonicalize).await,
        Method::FsReadDirectory => handle_json(connection, request, out, tree::read_directory).await,
        Method::FsWalk => handle_json(connection, request, out, tree::walk).await,
        Method::FsRemove => handle_json(connection, request, out, tree::remove).await,
        Method::FsCopy => handle_json(connection, request, out, tree::copy).await,
        Method::FsRename => handle_json(connection, request, out, tree::rename).await,
        Method::FsSetPermissions => handle_json(connection, request, out, tree::set_permissions).await,
        Method::FsSetTimes => handle_json(connection, request, out, tree::set_times).await,
        Method::FsReadLink => handle_json(connection, request, out, tree::read_link).await,
        Method::FsCreateSymlink => handle_json(connection, request, out, tree::create_symlink).await,
        Method::FsGlob => handle_json(connection, request, out, tree::glob).await,
        Method::FsWatchMissing => handle_json(connection, request, out, watch::watch_missing).await,
        Method::FsWatch => handle_json(connection, request, out, watch::watch).await,
        Method::FsUnwatch => handle_json(connection, request, out, watch::unwatch).await,
        Method::FsSearch => handle_json(connection, request, out, search::search).await,
        Method::FsCancelSearch => handle_json(connection, request, out, search::cancel).await,
        Method::SessionList => handle_json(connection, request, out, session::list).await,
        Method::SessionClose => handle_json(connection, request, out, session::close).await,
        // `capabilities/discoverV2`: its result is not known well enough to answer it completely.
        other => Err(RpcError::unknown_method(other.name())),
    }
}

/// Calls the handler of a method whose params and result are JSON.
async fn handle_json<C, F, W>(
    connection: &Arc<ConnectionShared>,
    request: &Request,
    out: &mut Vec<u8>,
    handler: F,
) -> Result<ResponseDelivery, RpcError>
where
    C: Call,
    F: FnOnce(RequestContext, C) -> W,
    W: Future<Output = HandlerResult<C::Result>>,
{
    let (context, params) = decode_and_check(connection, request)?;
    let response = handler(context, params).await?;
    envelope::write_response(out, &request.id, &response.result, request.jsonrpc);
    Ok(ResponseDelivery { then: response.then, memory: response.memory, binary: false })
}

/// The one method whose result may be a binary frame, if the client has asked for them.
async fn read_binary_block(
    connection: &Arc<ConnectionShared>,
    request: &Request,
    out: &mut Vec<u8>,
) -> Result<ResponseDelivery, RpcError> {
    let (context, params) = decode_and_check(connection, request)?;
    let memory = handlers::fs::content::read_binary_block(context, params, &request.id, out).await?;
    Ok(ResponseDelivery { then: None, memory, binary: true })
}

/// The one method whose params may come as a binary frame.
async fn write_block(
    connection: &Arc<ConnectionShared>,
    request: &Request,
    out: &mut Vec<u8>,
) -> Result<ResponseDelivery, RpcError> {
    let (context, params) = match &request.params {
        Params::Json(_) => decode_and_check(connection, request)?,
        Params::WriteBlock(params) => (request_context(connection, request)?, params.clone()),
    };
    let response = handlers::fs::content::write_block(context, params).await?;
    envelope::write_response(out, &request.id, &response.result, request.jsonrpc);
    Ok(ResponseDelivery::default())
}

fn decode_and_check<C: Call>(
    connection: &Arc<ConnectionShared>,
    request: &Request,
) -> Result<(RequestContext, C), RpcError> {
    let params = request.params.decode()?;
    Ok((request_context(connection, request)?, params))
}

/// Refuses a request that came before the handshake was complete.
fn request_context(connection: &Arc<ConnectionShared>, request: &Request) -> Result<RequestContext, RpcError> {
    let family = request.method.spec().family;
    match &request.handshake {
        HandshakeState::NotStarted => Err(RpcError::not_initialized(family)),
        HandshakeState::AwaitingInitialized => Err(RpcError::not_confirmed(family)),
        HandshakeState::Complete(session) => {
            Ok(RequestContext { connection: connection.clone(), session: session.clone() })
        }
    }
}

/// Whether a request may be cancelled when its connection ends, because it changes nothing.
pub(crate) fn may_be_cancelled(method: Method) -> bool {
    use Method::{
        FsCanonicalize, FsGetMetadata, FsGlob, FsReadBlock, FsReadDirectory, FsReadFile, FsReadLink, FsSearch, FsWalk,
        FsWatch, FsWatchMissing, ProcessRead, ProcessWait,
    };
    matches!(method, ProcessRead | ProcessWait)
        || matches!(method, FsReadFile | FsReadBlock | FsGetMetadata | FsCanonicalize | FsReadLink)
        || matches!(method, FsReadDirectory | FsWalk | FsGlob | FsSearch | FsWatch | FsWatchMissing)
        || matches!(method.spec().family, MethodFamily::EnvironmentInfo | MethodFamily::EnvironmentStatus)
        // An HTTP request may change something elsewhere, but nobody is left to receive its response.
        || matches!(method.spec().family, MethodFamily::Http | MethodFamily::CapabilityDiscovery)
}
