//! What a connection that only observes its session may do. Decided here, by the table of methods, before anything is done;
//! a method that nobody has thought of yet is refused if it changes something.

use exec_wire::error::RpcError;
use exec_wire::method::{Call, Method, ObserverAccess};

use crate::connection::{ConnectionShared, HandshakeState};
use crate::reply;

/// Refuses a method that an observer may not call, whatever its params are.
pub(crate) fn check_method(
    connection: &ConnectionShared,
    handshake: &HandshakeState,
    method: Method,
) -> Result<(), RpcError> {
    match (handshake, method.behaviour().observers) {
        (HandshakeState::Complete(session), ObserverAccess::Refused) if !connection.drives() => {
            Err(reply::only_observes(&session.id))
        }
        _ => Ok(()),
    }
}

/// Refuses params with which an observer would change something.
pub(crate) fn check_params<C: Call>(
    connection: &ConnectionShared,
    session_id: &str,
    params: &C,
) -> Result<(), RpcError> {
    match C::METHOD.behaviour().observers {
        ObserverAccess::IfNoPathChanges if !connection.drives() && !params.changed_paths().is_empty() => {
            Err(reply::only_observes(session_id))
        }
        _ => Ok(()),
    }
}
