//! The switchboard: which counter answers a request, with which params, in which state.
//!
//! The order of checks is the original's: the method is known, its params decode, the handshake is done, and only then
//! the operation itself.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use exec_transport::Message;
use exec_wire::SharedJson;
use exec_wire::envelope::{self, RequestId};
use exec_wire::error::RpcError;
use exec_wire::fs::WriteBlockParams;
use exec_wire::limits::MESSAGE_BYTES;
use exec_wire::method::{Call, MethodFamily, Priority, Method};
use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use crate::connection::Desk;
use crate::handlers;
use crate::limits::SMALL_ANSWER_BYTES;
use crate::mailroom::Post;
use crate::reply;
use crate::session::{Claim, Session};

/// How far the handshake was when a request came.
#[derive(Debug, Clone)]
pub(crate) enum Handshake {
    None,
    Asked,
    Done(Arc<Session>),
}

/// A request that was accepted.
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) method: Method,
    pub(crate) params: Params,
    pub(crate) jsonrpc: bool,
    pub(crate) handshake: Handshake,
    pub(crate) accepted: OwnedSemaphorePermit,
    /// Its bytes among those of large requests. Never looked at, only dropped.
    pub(crate) _weight: Option<OwnedSemaphorePermit>,
}

/// What it is about.
pub(crate) enum Params {
    Json(SharedJson),
    /// Of `fs/writeBlock`, as raw bytes.
    Block(WriteBlockParams),
}

impl Params {
    pub(crate) fn decode<C: DeserializeOwned>(&self) -> Result<C, RpcError> {
        match self {
            Self::Json(json) => json.decode().map_err(|error| RpcError::invalid_params(error.reason())),
            Self::Block(_) => Err(RpcError::invalid_params("a binary frame where JSON is expected")),
        }
    }
}

/// What a counter gives back: the result, and what follows its answer.
pub(crate) struct Done<R> {
    pub(crate) result: R,
    pub(crate) then: Option<Post>,
    /// Room that a large answer took.
    pub(crate) bytes: Option<OwnedSemaphorePermit>,
}

impl<R> From<R> for Done<R> {
    fn from(result: R) -> Self {
        Self { result, then: None, bytes: None }
    }
}

/// What a counter works with.
pub(crate) struct Counter {
    pub(crate) desk: Arc<Desk>,
    pub(crate) session: Arc<Session>,
}

/// Answers a request. Dropping this future gives a request up; only those that change nothing are ever dropped.
pub(crate) async fn answer(desk: Arc<Desk>, request: Request) {
    let remembered = remembered(&desk, &request);
    let first = match &remembered {
        None => None,
        Some((session, scope)) => match session.answers.claim(scope, &request.id).await {
            Claim::First(first) => Some(first),
            Claim::Known(answer) => return desk.post(Post::Message(answer, Some((request.accepted, None)))),
        },
    };
    let _turn = match request.method.spec().priority {
        Priority::Control => None,
        Priority::Ordinary => desk.turn().await,
    };
    let mut out = Vec::new();
    let Followed { then, bytes, raw } = match sound(request.method, route(&desk, &request, &mut out)).await {
        Ok(followed) => followed,
        Err(error) => {
            out.clear();
            envelope::write_error(&mut out, &request.id, &error, request.jsonrpc);
            Followed::default()
        }
    };
    if out.len() > MESSAGE_BYTES {
        let error = reply::answer_too_large(out.len());
        out.clear();
        envelope::write_error(&mut out, &request.id, &error, request.jsonrpc);
    }
    let out = Bytes::from(out);
    if let Some(first) = first {
        first.settle(out.clone());
    }
    let held = Some((request.accepted, bytes));
    // What follows an answer must not overtake it, so such an answer never waits for its turn.
    desk.post(match (raw, then.is_none() && out.len() > SMALL_ANSWER_BYTES) {
        (true, _) => Post::Bulk(Message::Binary(out), held),
        (false, true) => Post::Bulk(Message::Text(out), held),
        (false, false) => Post::Message(out, held),
    });
    // After the answer, never before it: output follows the reply to its own start.
    if let Some(then) = then {
        desk.post(then);
    }
}

/// Where the answer to a request is remembered: it changes files, and its client has a word for its requests.
fn remembered(desk: &Desk, request: &Request) -> Option<(Arc<Session>, Arc<str>)> {
    use Method::{FsCopy, FsCreateDirectory, FsCreateSymlink, FsRemove, FsRename, FsWriteFile};
    let changes_files =
        matches!(request.method, FsWriteFile | FsCreateDirectory | FsRemove | FsCopy | FsRename | FsCreateSymlink);
    match &request.handshake {
        Handshake::Done(session) if changes_files => Some((session.clone(), desk.scope()?.clone())),
        _ => None,
    }
}

/// The work of a request; if it breaks a rule of its own and panics, the client is told instead of left waiting.
async fn sound(method: Method, work: impl Future<Output = Result<Followed, RpcError>>) -> Result<Followed, RpcError> {
    // What the work shares with others is behind locks that are taken again after a panic; what it wrote is thrown away.
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(method = method.name(), "a request broke down; this is a fault of the server");
        Err(reply::broken(method.name()))
    })
}

/// What follows an answer, the room it took, and whether it is raw bytes rather than text.
#[derive(Default)]
struct Followed {
    then: Option<Post>,
    bytes: Option<OwnedSemaphorePermit>,
    raw: bool,
}

async fn route(desk: &Arc<Desk>, request: &Request, out: &mut Vec<u8>) -> Result<Followed, RpcError> {
    use handlers::fs::{content, search, tree, watch};
    use handlers::{discovery, environment as place, http, process as proc, session as operator};
    match request.method {
        Method::EnvironmentInfo => typed(desk, request, out, place::info).await,
        Method::EnvironmentStatus => typed(desk, request, out, place::status).await,
        Method::EnvironmentConfigRead => typed(desk, request, out, place::config).await,
        Method::ProcessStart => typed(desk, request, out, proc::start).await,
        Method::ProcessRead => typed(desk, request, out, proc::read).await,
        Method::ProcessWrite => typed(desk, request, out, proc::write).await,
        Method::ProcessSignal => typed(desk, request, out, proc::signal).await,
        Method::ProcessTerminate => typed(desk, request, out, proc::terminate).await,
        Method::ProcessResize => typed(desk, request, out, proc::resize).await,
        Method::ProcessCloseStdin => typed(desk, request, out, proc::close_stdin).await,
        Method::ProcessList => typed(desk, request, out, proc::list).await,
        Method::ProcessWait => typed(desk, request, out, proc::wait).await,
        Method::ProcessForget => typed(desk, request, out, proc::forget).await,
        Method::HttpRequest => typed(desk, request, out, http::request).await,
        Method::CapabilityRootsDiscover => typed(desk, request, out, discovery::roots).await,
        Method::FsReadFile => typed(desk, request, out, content::read_file).await,
        Method::FsWriteFile => typed(desk, request, out, content::write_file).await,
        Method::FsOpen => typed(desk, request, out, content::open).await,
        Method::FsReadBlock if desk.binary() => raw_block(desk, request, out).await,
        Method::FsReadBlock => typed(desk, request, out, content::read_block).await,
        Method::FsWriteBlock => write_block(desk, request, out).await,
        Method::FsClose => typed(desk, request, out, content::close).await,
        Method::FsCreateDirectory => typed(desk, request, out, tree::create_directory).await,
        Method::FsGetMetadata => typed(desk, request, out, tree::get_metadata).await,
        Method::FsCanonicalize => typed(desk, request, out, tree::canonicalize).await,
        Method::FsReadDirectory => typed(desk, request, out, tree::read_directory).await,
        Method::FsWalk => typed(desk, request, out, tree::walk).await,
        Method::FsRemove => typed(desk, request, out, tree::remove).await,
        Method::FsCopy => typed(desk, request, out, tree::copy).await,
        Method::FsRename => typed(desk, request, out, tree::rename).await,
        Method::FsSetPermissions => typed(desk, request, out, tree::set_permissions).await,
        Method::FsSetTimes => typed(desk, request, out, tree::set_times).await,
        Method::FsReadLink => typed(desk, request, out, tree::read_link).await,
        Method::FsCreateSymlink => typed(desk, request, out, tree::create_symlink).await,
        Method::FsGlob => typed(desk, request, out, tree::glob).await,
        Method::FsWatchMissing => typed(desk, request, out, watch::watch_missing).await,
        Method::FsWatch => typed(desk, request, out, watch::watch).await,
        Method::FsUnwatch => typed(desk, request, out, watch::unwatch).await,
        Method::FsSearch => typed(desk, request, out, search::search).await,
        Method::FsCancelSearch => typed(desk, request, out, search::cancel).await,
        Method::SessionList => typed(desk, request, out, operator::list).await,
        Method::SessionClose => typed(desk, request, out, operator::close).await,
        // `capabilities/discoverV2`: what it would have to say is not known well enough to say it whole.
        other => Err(RpcError::unknown_method(other.name())),
    }
}

/// Params, then state, then the work.
async fn typed<C, F, W>(desk: &Arc<Desk>, request: &Request, out: &mut Vec<u8>, work: F) -> Result<Followed, RpcError>
where
    C: Call,
    F: FnOnce(Counter, C) -> W,
    W: Future<Output = Result<Done<C::Result>, RpcError>>,
{
    let (counter, params) = admit(desk, request)?;
    let done = work(counter, params).await?;
    envelope::write_response(out, &request.id, &done.result, request.jsonrpc);
    Ok(Followed { then: done.then, bytes: done.bytes, raw: false })
}

/// The same for the one method whose answer is raw bytes, where the client has asked for them.
async fn raw_block(desk: &Arc<Desk>, request: &Request, out: &mut Vec<u8>) -> Result<Followed, RpcError> {
    let (counter, params) = admit(desk, request)?;
    let bytes = handlers::fs::content::read_raw_block(counter, params, &request.id, out).await?;
    Ok(Followed { then: None, bytes, raw: true })
}

/// The one method whose params may come as raw bytes.
async fn write_block(desk: &Arc<Desk>, request: &Request, out: &mut Vec<u8>) -> Result<Followed, RpcError> {
    let (counter, params) = match &request.params {
        Params::Json(_) => admit(desk, request)?,
        Params::Block(params) => (counter(desk, request)?, params.clone()),
    };
    let done = handlers::fs::content::write_block(counter, params).await?;
    envelope::write_response(out, &request.id, &done.result, request.jsonrpc);
    Ok(Followed::default())
}

fn admit<C: Call>(desk: &Arc<Desk>, request: &Request) -> Result<(Counter, C), RpcError> {
    let params = request.params.decode()?;
    Ok((counter(desk, request)?, params))
}

fn counter(desk: &Arc<Desk>, request: &Request) -> Result<Counter, RpcError> {
    let family = request.method.spec().family;
    match &request.handshake {
        Handshake::None => Err(RpcError::not_initialized(family)),
        Handshake::Asked => Err(RpcError::not_confirmed(family)),
        Handshake::Done(session) => Ok(Counter { desk: desk.clone(), session: session.clone() }),
    }
}

/// Whether a request that is under way when its connection ends may simply be dropped: it changes nothing.
pub(crate) fn may_be_dropped(method: Method) -> bool {
    use Method::{
        FsCanonicalize, FsGetMetadata, FsGlob, FsReadBlock, FsReadDirectory, FsReadFile, FsReadLink, FsSearch, FsWalk,
        FsWatch, FsWatchMissing, ProcessRead, ProcessWait,
    };
    matches!(method, ProcessRead | ProcessWait)
        || matches!(method, FsReadFile | FsReadBlock | FsGetMetadata | FsCanonicalize | FsReadLink)
        || matches!(method, FsReadDirectory | FsWalk | FsGlob | FsSearch | FsWatch | FsWatchMissing)
        || matches!(method.spec().family, MethodFamily::EnvironmentInfo | MethodFamily::EnvironmentStatus)
        // Changes nothing here; and whoever asked for it would have had the answer.
        || matches!(method.spec().family, MethodFamily::Http | MethodFamily::CapabilityDiscovery)
}
