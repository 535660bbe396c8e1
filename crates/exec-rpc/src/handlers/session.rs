//! Sessions as operators see them; only for peers of this very machine.

use exec_transport::PeerKind;
use exec_wire::error::RpcError;
use exec_wire::session::{CloseParams, CloseResult, ListParams, ListResult};

use crate::dispatch::{RequestContext, Response};
use crate::reply;

pub(crate) async fn list(context: RequestContext, _params: ListParams) -> Result<Response<ListResult>, RpcError> {
    require_operator(&context)?;
    Ok(ListResult { sessions: context.connection.server().sessions() }.into())
}

pub(crate) async fn close(context: RequestContext, params: CloseParams) -> Result<Response<CloseResult>, RpcError> {
    // A client may always close its own.
    if params.session_id != context.session.id {
        require_operator(&context)?;
    }
    let closed = context.connection.server().close_session(&params.session_id).await;
    Ok(CloseResult { closed }.into())
}

/// A unix socket lets only its owner in, stdio and memory belong to whoever started us; a TCP port does not say who it is.
fn require_operator(context: &RequestContext) -> Result<(), RpcError> {
    if context.connection.peer().kind() == PeerKind::WebSocket
        && !context.connection.server().options().operators_everywhere
    {
        return Err(reply::forbidden("session methods need a unix socket or stdio connection to the server"));
    }
    Ok(())
}
