//! The one order among requests that run at the same time: what is typed arrives as it was typed.

use std::collections::HashMap;

use exec_wire::method::Method;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::dispatch::Request;

/// Requests run at the same time, but what is typed must arrive in the order in which it was typed: each request for a
/// process's stdin waits for the one before it.
#[derive(Default)]
pub(super) struct StdinOrder {
    last: HashMap<String, CancellationToken>,
}

/// Processes whose last request is remembered before those that are done are cleared out.
const REMEMBERED_STDINS: usize = 256;

impl StdinOrder {
    /// Whom a request waits for, and what it drops when it is done.
    pub(super) fn place(&mut self, request: &Request) -> (Option<CancellationToken>, Option<DropGuard>) {
        if !matches!(request.method, Method::ProcessWrite | Method::ProcessCloseStdin) {
            return (None, None);
        }
        // Params that do not decode are refused later, with the right words.
        let Ok(whose) = request.params.decode::<Whose>() else { return (None, None) };
        if self.last.len() > REMEMBERED_STDINS {
            self.last.retain(|_, done| !done.is_cancelled());
        }
        let done = CancellationToken::new();
        let before = self.last.insert(whose.process_id, done.clone()).filter(|before| !before.is_cancelled());
        (before, Some(done.drop_guard()))
    }
}

/// The one member that says whose stdin it is.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Whose {
    process_id: String,
}
