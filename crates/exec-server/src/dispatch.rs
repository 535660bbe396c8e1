//! The switchboard: which counter answers a request, with which params, in which state.
//!
//! The order of checks is the original's: the method is known, its params decode, the handshake is done, and only then
//! the operation itself.

use std::sync::Arc;

use bytes::Bytes;
use exec_wire::SharedJson;
use exec_wire::envelope::{self, Id};
use exec_wire::error::RpcError;
use exec_wire::limits::MESSAGE_BYTES;
use exec_wire::method::{Call, Family, Lane, Method};
use tokio::sync::OwnedSemaphorePermit;

use crate::connection::Desk;
use crate::handlers;
use crate::mailroom::Post;
use crate::reply;
use crate::session::Session;

/// How far the handshake was when a request came.
#[derive(Debug, Clone)]
pub(crate) enum Handshake {
    None,
    Asked,
    Done(Arc<Session>),
}

/// A request that was accepted.
pub(crate) struct Request {
    pub(crate) id: Id,
    pub(crate) method: Method,
    pub(crate) params: SharedJson,
    pub(crate) jsonrpc: bool,
    pub(crate) handshake: Handshake,
    pub(crate) accepted: OwnedSemaphorePermit,
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
    let _turn = match request.method.spec().lane {
        Lane::Control => None,
        Lane::Ordinary => desk.turn().await,
    };
    let mut out = Vec::new();
    let (then, bytes) = match route(&desk, &request, &mut out).await {
        Ok(followed) => followed,
        Err(error) => {
            out.clear();
            envelope::write_error(&mut out, &request.id, &error, request.jsonrpc);
            (None, None)
        }
    };
    if out.len() > MESSAGE_BYTES {
        let error = reply::answer_too_large(out.len());
        out.clear();
        envelope::write_error(&mut out, &request.id, &error, request.jsonrpc);
    }
    desk.post(Post::Message(Bytes::from(out), Some((request.accepted, bytes))));
    // After the answer, never before it: output follows the reply to its own start.
    if let Some(then) = then {
        desk.post(then);
    }
}

/// What follows an answer, and the room it took.
type Followed = (Option<Post>, Option<OwnedSemaphorePermit>);

async fn route(desk: &Arc<Desk>, request: &Request, out: &mut Vec<u8>) -> Result<Followed, RpcError> {
    use handlers::{environment as place, process as proc, session as operator};
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
        Method::SessionList => typed(desk, request, out, operator::list).await,
        Method::SessionClose => typed(desk, request, out, operator::close).await,
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
    let params: C = request.params.decode().map_err(|error| RpcError::invalid_params(error.reason()))?;
    let family = request.method.spec().family;
    let session = match &request.handshake {
        Handshake::None => return Err(RpcError::not_initialized(family)),
        Handshake::Asked => return Err(RpcError::not_confirmed(family)),
        Handshake::Done(session) => session.clone(),
    };
    let done = work(Counter { desk: desk.clone(), session }, params).await?;
    envelope::write_response(out, &request.id, &done.result, request.jsonrpc);
    Ok((done.then, done.bytes))
}

/// Whether a request that is under way when its connection ends may simply be dropped: it changes nothing.
pub(crate) fn may_be_dropped(method: Method) -> bool {
    matches!(method, Method::ProcessRead | Method::ProcessWait)
        || matches!(method.spec().family, Family::EnvironmentInfo | Family::EnvironmentStatus)
}
