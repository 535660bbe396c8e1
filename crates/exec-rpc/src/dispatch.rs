//! Dispatch: finds the handler of a request's method, gives it typed params and a context, and sends its response.
//!
//! What the server's ceiling or the token of a connection does not permit is refused first. After that, the order of
//! checks is that of Codex's server: the method is known, its params decode, the handshake is complete, and only then
//! the operation itself.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use exec_transport::Message;
use exec_wire::SharedJson;
use exec_wire::envelope::{self, RequestId};
use exec_wire::environment::EnvironmentId;
use exec_wire::error::RpcError;
use exec_wire::limits::{MESSAGE_BYTES, MESSAGE_VALUES};
use exec_wire::method::{Call, Method, Priority};
use futures_util::FutureExt;
use tokio::sync::OwnedSemaphorePermit;

use crate::audit::{self, RequestAudit};
use crate::connection::{ConnectionShared, HandshakeState};
use crate::handlers;
use crate::limits::{SMALL_MESSAGE_BYTES, START_PARAMS_BYTES, UNCOUNTED_BYTES};
use crate::reply;
use crate::roles;
use crate::routing::NamedEnvironment;
use crate::session::{CacheLookup, Session, unix_ms};
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
    /// A binary frame, of a method that has such frames.
    Frame(Bytes),
}

impl Params {
    fn bytes(&self) -> usize {
        match self {
            Self::Json(json) => json.bytes(),
            Self::Frame(frame) => frame.len(),
        }
    }

    /// The environment that a request names. A binary frame has no room for one: its handle says where its file is.
    fn environment_id(&self) -> Result<Option<String>, RpcError> {
        match self {
            Self::Json(json) => {
                let named = EnvironmentId::of_params(json.raw());
                named.map(|id| id.0).map_err(|error| RpcError::invalid_params(error.reason()))
            }
            Self::Frame(_) => Ok(None),
        }
    }

    pub(crate) fn decode<C: Call>(&self) -> Result<C, RpcError> {
        match self {
            Self::Json(json) => json.decode().map_err(|error| RpcError::invalid_params(error.reason())),
            Self::Frame(frame) => {
                C::from_frame(frame).ok_or_else(|| RpcError::invalid_params("a binary frame where JSON is expected"))
            }
        }
    }
}

/// What a handler works with, beside its params.
pub(crate) struct RequestContext {
    pub(crate) connection: Arc<ConnectionShared>,
    pub(crate) session: Arc<Session>,
    pub(crate) request_id: RequestId,
    /// Whether it is a file call under a sandbox; known once it has its files.
    pub(crate) is_sandboxed: Arc<AtomicBool>,
    /// Whether the audit has told of it, on a connection before.
    pub(crate) is_repeated: bool,
    /// The environment that it names, if it names one.
    pub(crate) environment_id: Option<String>,
    /// The same as the environment itself, of a request that is carried out in one.
    named: Option<NamedEnvironment>,
    /// In which environment it was carried out, once that is known.
    pub(crate) carried_out_in: Arc<OnceLock<Arc<str>>>,
}

impl RequestContext {
    /// The environment that the request is for: the one that it names, or the default.
    pub(crate) fn environment(&self) -> Result<NamedEnvironment, RpcError> {
        let environment = match &self.named {
            Some(named) => named.clone(),
            None => self.connection.server.environment(None)?,
        };
        let _ = self.carried_out_in.set(environment.id.clone());
        Ok(environment)
    }

    /// What the client has under `id` is in this environment. Refuses a request that names another.
    pub(crate) fn require_environment(&self, what: &str, id: &str, is_in: &Arc<str>) -> Result<(), RpcError> {
        match &self.environment_id {
            Some(named) if **named != **is_in => Err(reply::other_environment(what, id, is_in, named)),
            _ => {
                let _ = self.carried_out_in.set(is_in.clone());
                Ok(())
            }
        }
    }

    /// The environment for a line of the audit, if there are several.
    pub(crate) fn audited_environment(&self) -> Option<String> {
        let id = self.carried_out_in.get().filter(|_| self.connection.server.routing.has_several());
        id.map(|id| id.to_string())
    }

    /// What identifies the request in its session, on whichever connection it comes; empty if its client named no scope.
    pub(crate) fn request_key(&self) -> String {
        self.connection.request_scope().map(|scope| format!("{scope} {}", self.request_id)).unwrap_or_default()
    }
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
    /// What the message goes on with: a block or a chunk, which is not copied.
    body: Bytes,
    /// The JSON values of the message.
    values: usize,
}

/// Carries a request out and sends its response. Dropping this future cancels the request; only requests that change
/// nothing are ever dropped.
pub(crate) async fn handle_request(connection: Arc<ConnectionShared>, request: Request) {
    // Before anything else, so that not even a response that is remembered is repeated to whoever may not ask for it.
    if let Err(violation) = connection.permissions.allow_method(request.method) {
        tracing::info!(peer = %connection.peer, method = request.method.name(), rule = violation.rule, "not permitted");
        return refuse(&connection, request, reply::violation(violation)).await;
    }
    if let Err(error) = roles::check_method(&connection, &request.handshake, request.method) {
        return refuse(&connection, request, error).await;
    }
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
    // What waits for a process holds nothing that other requests need.
    let behaviour = request.method.behaviour();
    let _run_permit = match behaviour.priority {
        Priority::Ordinary if !behaviour.waits => connection.acquire_run_permit().await,
        Priority::Ordinary | Priority::Control => None,
    };
    let mut out = Vec::new();
    let Request { id, method, params, jsonrpc, handshake, accepted, _memory } = request;
    let head = RequestHead { id, method, jsonrpc, handshake };
    // In memory of its own, which only those have that run: the handlers together take kilobytes, and thousands of requests
    // may wait for their turn or for their client to read.
    let handling = Box::pin(call_handler(&connection, &head, params, &mut out));
    let handled = catch_panics(method, handling).await;
    let RequestHead { id, .. } = head;
    let ResponseDelivery { then, memory, binary, body, values } = handled.unwrap_or_else(|error| {
        out.clear();
        envelope::write_error(&mut out, &id, &error, jsonrpc);
        ResponseDelivery::default()
    });
    // Handlers bound what they return, and say there what to ask for instead. Whatever they missed ends here: a client of
    // ours could not read it.
    if out.len() > MESSAGE_BYTES || values > MESSAGE_VALUES {
        let error = reply::response_too_large(out.len(), values);
        out.clear();
        envelope::write_error(&mut out, &id, &error, jsonrpc);
    }
    // What its handler did not reserve is reserved now: a client that does not read gets no further answers, of whatever
    // size they are.
    let response_bytes = out.len() + body.len();
    let memory = match memory {
        None if response_bytes > UNCOUNTED_BYTES => connection.reserve_encoded(response_bytes).await,
        memory => memory,
    };
    let out = Bytes::from(out);
    if let Some(pending) = pending {
        pending.complete(out.clone());
    }
    let permits = Some((accepted, memory));
    // What follows a response must not overtake it, so such a response never queues with the bulk messages.
    connection.send(match (binary, then.is_none() && response_bytes > SMALL_MESSAGE_BYTES) {
        // What a forwarded terminal echoes must not wait for what another stream floods.
        (true, _) if response_bytes <= UNCOUNTED_BYTES => {
            WriterCommand::SmallFrame([out, body].concat().into(), permits)
        }
        (true, _) => WriterCommand::Bulk { message: Message::Binary(out), body, permits },
        (false, true) => WriterCommand::Bulk { message: Message::Text(out), body, permits },
        (false, false) => WriterCommand::Message(out, permits),
    });
    // Only now: the output of a process must come after the response to its start.
    if let Some(then) = then {
        connection.send(then);
    }
}

/// The answer to a method that the server, the token of the connection or its role does not permit.
async fn refuse(connection: &ConnectionShared, request: Request, error: RpcError) {
    if let Some(audit) = connection.server.audit() {
        let (session, peer) = (request.handshake.session(), connection.peer.to_string());
        // A client may send it again after a break.
        let key = connection.request_scope().map(|scope| format!("{} {scope} {}", request.method.name(), request.id));
        let is_first = session.zip(key).is_none_or(|(session, key)| session.record_audited(key));
        if is_first {
            let id = session.map(|session| session.id.as_str());
            audit.record(audit::denial(id, peer, request.method.name(), &error)).await;
        }
    }
    let mut out = Vec::new();
    envelope::write_error(&mut out, &request.id, &error, request.jsonrpc);
    connection.send(WriterCommand::Message(Bytes::from(out), Some((request.accepted, None))));
}

/// Where the response to a request is cached: only if the table says so and its client has named a scope.
fn response_cache(connection: &ConnectionShared, request: &Request) -> Option<(Arc<Session>, Arc<str>)> {
    match &request.handshake {
        HandshakeState::Complete(session) if request.method.behaviour().is_remembered() => {
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

/// A request without its params, which are dropped when they were decoded: the largest are megabytes, and may be in memory
/// as long as a child does not read them.
struct RequestHead {
    id: RequestId,
    method: Method,
    jsonrpc: bool,
    handshake: HandshakeState,
}

async fn call_handler(
    connection: &Arc<ConnectionShared>,
    request: &RequestHead,
    params: Params,
    out: &mut Vec<u8>,
) -> Result<ResponseDelivery, RpcError> {
    use handlers::fs::{content, search, tree, watch};
    use handlers::{discovery, environment, http, net, process, session};
    let call = HandlerCall { connection, request, params, out };
    match request.method {
        Method::EnvironmentInfo => call.handle(environment::info).await,
        Method::EnvironmentStatus => call.handle(environment::status).await,
        Method::EnvironmentList => call.handle(environment::list).await,
        Method::EnvironmentAdd => call.handle(environment::add).await,
        Method::EnvironmentRemove => call.handle(environment::remove).await,
        Method::EnvironmentConfigRead => call.handle(environment::config).await,
        Method::ProcessStart => call.handle(process::start).await,
        Method::ProcessRead => call.handle(process::read).await,
        Method::ProcessView => call.handle(process::view).await,
        Method::ProcessScreen => call.handle(process::screen).await,
        Method::ProcessWrite => call.handle(process::write).await,
        Method::ProcessSignal => call.handle(process::signal).await,
        Method::ProcessTerminate => call.handle(process::terminate).await,
        Method::ProcessResize => call.handle(process::resize).await,
        Method::ProcessCloseStdin => call.handle(process::close_stdin).await,
        Method::ProcessList => call.handle(process::list).await,
        Method::ProcessWait => call.handle(process::wait).await,
        Method::ProcessForget => call.handle(process::forget).await,
        Method::HttpRequest => call.handle(http::request).await,
        Method::HttpAcknowledge => call.handle(http::acknowledge).await,
        Method::HttpCancel => call.handle(http::cancel).await,
        Method::NetOpen => call.handle(net::open).await,
        Method::NetRead if connection.uses_binary_frames() => call.read_binary_chunk().await,
        Method::NetRead => call.handle(net::read).await,
        Method::NetWrite => call.handle(net::write).await,
        Method::NetAwaitRoom => call.handle(net::await_room).await,
        Method::NetClose => call.handle(net::close).await,
        Method::NetListen => call.handle(net::listen).await,
        Method::NetAccept => call.handle(net::accept).await,
        Method::NetUnlisten => call.handle(net::unlisten).await,
        Method::CapabilityRootsDiscover => call.handle(discovery::roots).await,
        Method::FsReadFile => call.handle(content::read_file).await,
        Method::FsWriteFile => call.handle(content::write_file).await,
        Method::FsHash => call.handle(content::hash).await,
        Method::FsOpen => call.handle(content::open).await,
        Method::FsReadBlock if connection.uses_binary_frames() => call.read_binary_block().await,
        Method::FsReadBlock => call.handle(content::read_block).await,
        Method::FsWriteBlock => call.handle(content::write_block).await,
        Method::FsClose => call.handle(content::close).await,
        Method::FsCreateDirectory => call.handle(tree::create_directory).await,
        Method::FsGetMetadata => call.handle(tree::get_metadata).await,
        Method::FsCanonicalize => call.handle(tree::canonicalize).await,
        Method::FsReadDirectory => call.handle(tree::read_directory).await,
        Method::FsWalk => call.handle(tree::walk).await,
        Method::FsRemove => call.handle(tree::remove).await,
        Method::FsCopy => call.handle(tree::copy).await,
        Method::FsApplyChanges => call.handle(content::apply_changes).await,
        Method::FsRename => call.handle(tree::rename).await,
        Method::FsSetPermissions => call.handle(tree::set_permissions).await,
        Method::FsSetTimes => call.handle(tree::set_times).await,
        Method::FsGetAttributes => call.handle(tree::get_attributes).await,
        Method::FsSetAttributes => call.handle(tree::set_attributes).await,
        Method::FsReadLink => call.handle(tree::read_link).await,
        Method::FsCreateSymlink => call.handle(tree::create_symlink).await,
        Method::FsGlob => call.handle(tree::glob).await,
        Method::FsWatchMissing => call.handle(watch::watch_missing).await,
        Method::FsWatch => call.handle(watch::watch).await,
        Method::FsUnwatch => call.handle(watch::unwatch).await,
        Method::FsSearch => call.handle(search::search).await,
        Method::FsCancelSearch => call.handle(search::cancel).await,
        Method::SessionList => call.handle(session::list).await,
        Method::SessionClose => call.handle(session::close).await,
        Method::SessionDrive => call.handle(session::drive).await,
        // The connection itself answers the first, the second is ours to ask, and the result of the third is not known
        // well enough to answer it completely.
        Method::Initialize | Method::NetworkPolicyRequest | Method::CapabilitiesDiscoverV2 => {
            Err(RpcError::unknown_method(request.method.name()))
        }
    }
}

/// A request on its way to the handler of its method.
struct HandlerCall<'a> {
    connection: &'a Arc<ConnectionShared>,
    request: &'a RequestHead,
    params: Params,
    out: &'a mut Vec<u8>,
}

impl HandlerCall<'_> {
    /// Calls a handler with its params and writes its response as JSON.
    async fn handle<C, F, W>(self, handler: F) -> Result<ResponseDelivery, RpcError>
    where
        C: Call,
        F: FnOnce(RequestContext, C) -> W,
        W: Future<Output = HandlerResult<C::Result>>,
    {
        let Self { connection, request, params, out } = self;
        let (context, params) = decode_and_check(connection, request, params)?;
        let audit = RequestAudit::begin(&context, &params)?;
        let carried_out_in = Arc::clone(&context.carried_out_in);
        // In memory of its own: the largest handler takes many times what most of them do.
        let handled = Box::pin(handler(context, params)).await;
        let handled = handled.map_err(|error| name_environment(connection, error, carried_out_in.get()));
        if let Some(audit) = audit {
            audit.finish(handled.as_ref().err()).await;
        }
        let response = handled?;
        let values = envelope::write_response(out, &request.id, &response.result, request.jsonrpc);
        let Response { then, memory, .. } = response;
        Ok(ResponseDelivery { then, memory, values, ..ResponseDelivery::default() })
    }

    /// A chunk of a stream as a binary frame.
    async fn read_binary_chunk(self) -> Result<ResponseDelivery, RpcError> {
        let Self { connection, request, params, out } = self;
        let (context, params) = decode_and_check(connection, request, params)?;
        let body = handlers::net::read_binary_chunk(context, params, &request.id, out).await?;
        Ok(ResponseDelivery { binary: true, body, ..ResponseDelivery::default() })
    }

    /// A block of a file as a binary frame.
    async fn read_binary_block(self) -> Result<ResponseDelivery, RpcError> {
        let Self { connection, request, params, out } = self;
        let (context, params) = decode_and_check(connection, request, params)?;
        let (body, memory) = handlers::fs::content::read_binary_block(context, params, &request.id, out).await?;
        Ok(ResponseDelivery { memory, binary: true, body, ..ResponseDelivery::default() })
    }
}

/// Says in the data of an error in which of several environments it happened.
fn name_environment(connection: &ConnectionShared, mut error: RpcError, environment: Option<&Arc<str>>) -> RpcError {
    if let (Some(data), Some(id)) = (&mut error.data, environment)
        && connection.server.routing.has_several()
    {
        data.environment_id.get_or_insert_with(|| id.to_string());
    }
    error
}

/// Refuses params that do not decode, and then a request that came before the handshake was complete. Compiled for every
/// method, so what is the same for all of them is in functions of its own.
fn decode_and_check<C: Call>(
    connection: &Arc<ConnectionShared>,
    request: &RequestHead,
    params: Params,
) -> Result<(RequestContext, C), RpcError> {
    if request.method == Method::ProcessStart && params.bytes() > START_PARAMS_BYTES {
        return Err(reply::too_long("a command", params.bytes(), START_PARAMS_BYTES));
    }
    let environment_id = params.environment_id()?;
    let params: C = params.decode()?;
    let session = session_of(request)?;
    roles::check_params(connection, &session.id, &params)?;
    Ok((request_context(connection, request, session, environment_id)?, params))
}

fn session_of(request: &RequestHead) -> Result<&Arc<Session>, RpcError> {
    let family = request.method.spec().family;
    match &request.handshake {
        HandshakeState::NotStarted => Err(RpcError::not_initialized(family)),
        HandshakeState::AwaitingInitialized => Err(RpcError::not_confirmed(family)),
        HandshakeState::Complete(session) => Ok(session),
    }
}

fn request_context(
    connection: &Arc<ConnectionShared>,
    request: &RequestHead,
    session: &Arc<Session>,
    environment_id: Option<String>,
) -> Result<RequestContext, RpcError> {
    if connection.drives() {
        session.record_activity(unix_ms(SystemTime::now()));
    }
    let method = request.method;
    let named = match &environment_id {
        Some(id) if method.behaviour().routed => Some(connection.server.environment(Some(id))?),
        _ => None,
    };
    let mut context = RequestContext {
        connection: connection.clone(),
        session: session.clone(),
        request_id: request.id.clone(),
        is_sandboxed: Arc::default(),
        is_repeated: false,
        environment_id,
        named,
        carried_out_in: Arc::default(),
    };
    if method.behaviour().audited && context.connection.server.audit().is_some() {
        let key = context.request_key();
        let is_first = key.is_empty() || context.session.record_audited(format!("{} {key}", method.name()));
        context.is_repeated = !is_first;
    }
    Ok(context)
}
