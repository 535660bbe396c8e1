//! Views: the server computes them if it can; otherwise this file does, from pages, with the same engine.

use exec_core::ProcessId;
use exec_env::process::{ProcessReason, Unreachable};
use exec_env::view::{PagedProgress, PagedView, View, ViewQuery};
use exec_wire::Method;

use super::{reachable, read_once};
use crate::limits::LONG_CALL;
use crate::link::{CallOptions, Link};
use crate::{convert, error};

pub(super) async fn view(link: &Link, id: &ProcessId, query: ViewQuery) -> Result<View, ProcessReason> {
    reachable(link, id)?;
    if link.has(Method::ProcessView) {
        let params = convert::view_params(id, query);
        // An expression over a full spool takes seconds.
        let default = link.default_options(Method::ProcessView);
        let options = CallOptions { deadline: default.deadline.max(LONG_CALL), ..default };
        let result = link.call_with(&params, options).await.result;
        return result.map(convert::view).map_err(|error| error::process_reason(id, error));
    }
    let mut paged = PagedView::new(query)?;
    loop {
        let page = read_once(link, id, paged.next_page()).await?;
        // On another thread, because nobody else may wait for an expression that takes long.
        let progress = tokio::task::spawn_blocking(move || paged.push(page)).await;
        match progress {
            Ok(PagedProgress::More(more)) => paged = *more,
            Ok(PagedProgress::Done(view)) => return Ok(*view),
            Err(_) => return Err(Unreachable { why: "this program is shutting down".to_owned() }.into()),
        }
    }
}
