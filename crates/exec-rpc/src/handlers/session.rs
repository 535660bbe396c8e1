//! Sessions as operators see them; only for peers of this very machine.

use exec_transport::PeerKind;
use exec_wire::error::RpcError;
use exec_wire::session::{CloseParams, CloseResult, ListParams, ListResult};

use crate::dispatch::{Counter, Done};
use crate::reply;

pub(crate) async fn list(counter: Counter, _params: ListParams) -> Result<Done<ListResult>, RpcError> {
    operator(&counter)?;
    Ok(ListResult { sessions: counter.desk.server().sessions() }.into())
}

pub(crate) async fn close(counter: Counter, params: CloseParams) -> Result<Done<CloseResult>, RpcError> {
    // A client may always close its own.
    if params.session_id != counter.session.id {
        operator(&counter)?;
    }
    let closed = counter.desk.server().close_session(&params.session_id).await;
    Ok(CloseResult { closed }.into())
}

/// A unix socket lets only its owner in, stdio and memory belong to whoever started us; a TCP port does not say who it is.
fn operator(counter: &Counter) -> Result<(), RpcError> {
    if counter.desk.peer().kind() == PeerKind::WebSocket && !counter.desk.server().options().operators_everywhere {
        return Err(reply::forbidden("session methods need a unix socket or stdio connection to the server"));
    }
    Ok(())
}
