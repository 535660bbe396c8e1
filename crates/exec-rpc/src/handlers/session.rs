//! Sessions as operators see them: only for peers on this machine, unless the options say otherwise; and the drive of the
//! caller's own session.

use exec_transport::PeerKind;
use exec_wire::error::RpcError;
use exec_wire::session::{CloseParams, CloseResult, DriveParams, DriveResult, DriveStatus, ListParams, ListResult};

use crate::dispatch::{HandlerResult, RequestContext, Response};
use crate::limits::LARGE_RESPONSE_BYTES;
use crate::reply;
use crate::session::{ConnectionId, Opener, Session};

pub(crate) async fn list(context: RequestContext, _params: ListParams) -> HandlerResult<ListResult> {
    let subject = context.connection.subject.clone();
    let is_operator = require_operator(&context);
    // Whoever is named by a token may see what it has opened: it may have all of that anyway.
    let own = subject.filter(|subject| !subject.is_empty());
    if own.is_none() {
        is_operator.clone()?;
    }
    let own = own.map(Opener::Subject);
    let is_visible = |session: &Session| is_operator.is_ok() || own.as_ref() == Some(&session.opener);
    let memory = context.connection.reserve_encoded(LARGE_RESPONSE_BYTES).await;
    Ok(Response { memory, ..ListResult { sessions: context.connection.server.sessions(is_visible) }.into() })
}

pub(crate) async fn close(context: RequestContext, params: CloseParams) -> HandlerResult<CloseResult> {
    // A client may always close its own session.
    if params.session_id != context.session.id {
        require_operator(&context)?;
    }
    let closed = context.connection.server.close_session(&params.session_id).await;
    Ok(CloseResult { closed }.into())
}

pub(crate) async fn drive(context: RequestContext, params: DriveParams) -> HandlerResult<DriveResult> {
    let RequestContext { connection, session, .. } = &context;
    let (server, caller) = (&connection.server, connection.id());
    let done = match params {
        DriveParams { force: false, to: None, refuse: None } => {
            let answer = server.ask_for_drive(session, caller).map_err(reply::no_drive)?;
            let status = match answer {
                None => DriveStatus::Granted,
                // Nobody is left to answer if one of the two has gone.
                Some(answer) => answer.await.unwrap_or(DriveStatus::Refused),
            };
            return Ok(DriveResult { status }.into());
        }
        DriveParams { force: true, to: None, refuse: None } => {
            server.take_drive(session, caller).map(|()| DriveStatus::Granted)
        }
        DriveParams { force: false, to: Some(to), refuse: None } => {
            server.hand_over_drive(session, caller, ConnectionId(to)).map(|()| DriveStatus::HandedOver)
        }
        DriveParams { force: false, to: None, refuse: Some(observer) } => {
            server.refuse_drive(session, caller, ConnectionId(observer)).map(|()| DriveStatus::Refused)
        }
        _ => return Err(RpcError::invalid_params("only one of `force`, `to` and `refuse` can be said")),
    };
    let status = done.map_err(reply::no_drive)?;
    Ok(DriveResult { status }.into())
}

/// A unix socket admits only its owner, and stdio and memory belong to whoever started the server. Over TCP anybody on the
/// machine or beyond may connect.
fn require_operator(context: &RequestContext) -> Result<(), RpcError> {
    if context.connection.peer.kind() == PeerKind::WebSocket && !context.connection.server.options.operators_everywhere
    {
        return Err(reply::forbidden("session methods need a unix socket or stdio connection to the server"));
    }
    Ok(())
}
