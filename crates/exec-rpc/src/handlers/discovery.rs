//! Finds skills and plugins below capability roots, as Codex's server does. It reports files and their contents; what they
//! mean is the client's business.
//!
//! A root that cannot be read carries its own error; the request as a whole fails only if it is invalid. Everything is
//! read through the environment. Deliberately absent: `capabilities/discoverV2`, whose shapes are not known.

mod manifest;
mod scan;

use exec_wire::discovery::{DiscoverRootsParams, DiscoverRootsResult};
use exec_wire::limits::DISCOVERY_ROOTS;

use crate::dispatch::{HandlerResult, RequestContext, Response};
use crate::limits::{DISCOVERY_BYTES, DISCOVERY_ITEMS, DISCOVERY_PATH_BYTES};
use crate::reply;

pub(crate) async fn roots(context: RequestContext, params: DiscoverRootsParams) -> HandlerResult<DiscoverRootsResult> {
    if params.roots.len() > DISCOVERY_ROOTS {
        return Err(reply::too_many_roots(DISCOVERY_ROOTS));
    }
    let mut views = Vec::with_capacity(params.roots.len());
    for root in &params.roots {
        views.push(context.files_under(root.sandbox.as_ref()).await?);
    }
    // One after another: each may hold many files, and together they must fit one response.
    let memory = context.connection.reserve_response_memory(DISCOVERY_BYTES).await;
    let mut room =
        scan::ResponseRoom { content_bytes: DISCOVERY_BYTES, items: DISCOVERY_ITEMS, path_bytes: DISCOVERY_PATH_BYTES };
    let mut roots = Vec::with_capacity(params.roots.len());
    for (root, files) in params.roots.into_iter().zip(views) {
        roots.push(scan::root(&*files, root.id, root.path, &mut room).await);
    }
    Ok(Response { memory, ..DiscoverRootsResult { roots }.into() })
}
