//! Search in contents: the query is judged by the answer, what is found follows in order.

use std::cmp::Ordering;
use std::path::PathBuf;

use exec_env::files::{SearchResults, FileLines, SearchItem};
use exec_wire::error::RpcError;
use exec_wire::fs::{CancelSearchParams, CancelSearchResult, FoundParams, SearchParams, SearchPlace, SearchResult};

use super::permission::{self, FileAccess};
use super::{DeferredSender, NotificationSender};
use crate::convert;
use crate::dispatch::{RequestContext, Response};
use crate::limits::WATCH_OR_SEARCH_ID_BYTES;
use crate::reply;
use crate::resources::SourceReservation;

pub(crate) async fn search(context: RequestContext, params: SearchParams) -> Result<Response<SearchResult>, RpcError> {
    permission::check(params.sandbox.as_ref(), FileAccess::Read)?;
    let search_id = params.search_id.clone();
    if search_id.len() > WATCH_OR_SEARCH_ID_BYTES {
        return Err(reply::bad_params(format!("searchId must not exceed {WATCH_OR_SEARCH_ID_BYTES} bytes")));
    }
    let foreign = |foreign| reply::foreign_path(&foreign);
    let position = |place: &SearchPlace| Ok((place.path.to_path()?, place.line));
    let after = params.after.as_ref().map(position).transpose().map_err(foreign)?;
    let query = convert::search_query(params).map_err(foreign)?;
    let resources = context.connection.resources();
    let reservation = resources.searches.reserve(&search_id);
    let reservation =
        reservation.map_err(|refusal| reply::source_refused("searchId", &search_id, "searches", refusal))?;
    let found = context.files().search(query).await.map_err(|error| reply::file_error(&error))?;
    let (deferred, begin) = NotificationSender::after_response(context.connection.clone(), reservation.stop());
    resources.run(send_matches(deferred, reservation, found, after));
    Ok(Response { then: Some(begin), ..SearchResult { search_id }.into() })
}

/// A line: its file and its number.
type LinePosition = (PathBuf, u64);

async fn send_matches(
    deferred: DeferredSender,
    reservation: SourceReservation,
    found: Box<dyn SearchResults>,
    after: Option<LinePosition>,
) {
    let Some(sender) = deferred.wait_for_response().await else { return };
    send_until_stopped(&sender, &reservation, found, after.as_ref()).await;
    sender.flush().await;
}

async fn send_until_stopped(
    sender: &NotificationSender,
    reservation: &SourceReservation,
    mut found: Box<dyn SearchResults>,
    after: Option<&LinePosition>,
) {
    let mut seq = 0;
    while let Some(mut next) = sender.unless_stopped(found.next()).await {
        if let (Ok(SearchItem::Lines(lines)), Some(after)) = (&mut next, after) {
            keep_lines_after(lines, after);
            if lines.lines.is_empty() {
                continue;
            }
        }
        seq += 1;
        let mut notification =
            FoundParams { search_id: reservation.id().to_owned(), seq, files: Vec::new(), done: None, error: None };
        match next {
            Ok(SearchItem::Lines(lines)) => notification.files.extend(convert::found_lines(lines)),
            Ok(SearchItem::Done(summary)) => notification.done = Some(convert::search_summary(&summary)),
            Err(error) => notification.error = Some(reply::file_error(&error)),
        }
        let last = notification.done.is_some() || notification.error.is_some();
        if !sender.send(&notification).await || last {
            return;
        }
    }
}

/// Keeps the lines behind this one, in the order in which they are found.
fn keep_lines_after(found: &mut FileLines, (path, number): &LinePosition) {
    match found.path.cmp(path) {
        Ordering::Less => found.lines.clear(),
        Ordering::Equal => found.lines.retain(|line| line.number > *number),
        Ordering::Greater => {}
    }
}

pub(crate) async fn cancel(
    context: RequestContext,
    params: CancelSearchParams,
) -> Result<Response<CancelSearchResult>, RpcError> {
    context.connection.resources().searches.stop(&params.search_id).await;
    Ok(CancelSearchResult {}.into())
}
