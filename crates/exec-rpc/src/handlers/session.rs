//! Sessions as operators see them: only for peers on this machine, unless the options say otherwise.

use exec_transport::PeerKind;
use exec_wire::error::RpcError;
use exec_wire::session::{CloseParams, CloseResult, ListParams, ListResult};

use crate::dispatch::{HandlerResult, RequestContext, Response};
use crate::limits::LARGE_RESPONSE_BYTES;
use crate::reply;

pub(crate) async fn list(context: RequestContext, _params: ListParams) -> HandlerResult<ListResult> {
    require_operator(&context)?;
    let memory = context.connection.reserve_encoded(LARGE_RESPONSE_BYTES).await;
    Ok(Response { memory, ..ListResult { sessions: context.connection.server.sessions() }.into() })
}

pub(crate) async fn close(context: RequestContext, params: CloseParams) -> HandlerResult<CloseResult> {
    // A client may always close its own session.
    if params.session_id != context.session.id {
        require_operator(&context)?;
    }
    let closed = context.connection.server.close_session(&params.session_id).await;
    Ok(CloseResult { closed }.into())
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
