//! The order of stdin writes. Requests of a connection run concurrently, but the bytes for the stdin of a process must
//! arrive in the order in which they were sent: each request for it waits for the one before.

use std::collections::HashMap;

use tokio_util::sync::{CancellationToken, DropGuard};

use crate::dispatch::{Params, Request};

/// Processes whose last stdin request is remembered before finished requests are cleared out.
const REMEMBERED_PROCESSES: usize = 256;

/// For each process, a token that is cancelled when its last stdin request is done.
#[derive(Default)]
pub(super) struct StdinOrder {
    last: HashMap<String, CancellationToken>,
}

impl StdinOrder {
    /// Puts a request into the order. Returns the token that it must wait for, and the guard that it must drop when it
    /// is done.
    pub(super) fn enqueue(&mut self, request: &Request) -> (Option<CancellationToken>, Option<DropGuard>) {
        let Params::Json(json) = &request.params else { return (None, None) };
        if !request.method.behaviour().stdin {
            return (None, None);
        }
        // The handler decodes the params again and refuses malformed ones with the proper message.
        let Ok(params) = json.decode::<ProcessIdOnly>() else { return (None, None) };
        if self.last.len() > REMEMBERED_PROCESSES {
            self.last.retain(|_, done| !done.is_cancelled());
        }
        let done = CancellationToken::new();
        let before = self.last.insert(params.process_id, done.clone()).filter(|before| !before.is_cancelled());
        (before, Some(done.drop_guard()))
    }
}

/// The one member of the params that the order depends on.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProcessIdOnly {
    process_id: String,
}
