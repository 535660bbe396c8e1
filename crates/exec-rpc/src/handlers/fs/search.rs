//! Search in contents: the response says whether the query is valid, notifications with the matches follow in order.

use std::cmp::Ordering;
use std::path::PathBuf;

use exec_env::files::{FileLines, SearchItem, SearchResults};
use exec_wire::fs::{CancelSearchParams, CancelSearchResult, FoundParams, SearchParams, SearchPlace, SearchResult};

use crate::convert;
use crate::dispatch::{HandlerResult, RequestContext, Response};
use crate::handlers::notifications::{NotificationSender, spawn_after_response};
use crate::limits::WATCH_OR_SEARCH_ID_BYTES;
use crate::reply;

pub(crate) async fn search(context: RequestContext, params: SearchParams) -> HandlerResult<SearchResult> {
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let search_id = params.search_id.clone();
    if search_id.len() > WATCH_OR_SEARCH_ID_BYTES {
        return Err(reply::bad_params(format!("searchId must not exceed {WATCH_OR_SEARCH_ID_BYTES} bytes")));
    }
    let position = |place: &SearchPlace| Ok((place.path.to_path()?, place.line));
    let after = params.after.as_ref().map(position).transpose().map_err(reply::foreign_path)?;
    let query = convert::search_query(params).map_err(reply::foreign_path)?;
    let reservation = context.connection.resources.searches.reserve(&search_id);
    let reservation = reservation.map_err(|error| reply::source_refused("searchId", &search_id, "searches", error))?;
    let found = files.search(query).await.map_err(reply::file_error)?;
    let (stop, id) = (reservation.stop_token(), search_id.clone());
    let then = spawn_after_response(&context, stop, reservation, |sender| send_matches(sender, id, found, after));
    Ok(Response { then: Some(then), ..SearchResult { search_id }.into() })
}

/// The file and the number of a line.
type LinePosition = (PathBuf, u64);

async fn send_matches(
    sender: NotificationSender,
    search_id: String,
    mut found: Box<dyn SearchResults>,
    after: Option<LinePosition>,
) {
    let mut seq = 0;
    while let Some(mut next) = sender.unless_stopped(found.next()).await {
        if let (Ok(SearchItem::Lines(lines)), Some(after)) = (&mut next, &after) {
            keep_lines_after(lines, after);
            if lines.lines.is_empty() {
                continue;
            }
        }
        let mut notification = |files| {
            seq += 1;
            FoundParams { search_id: search_id.clone(), seq, files, done: None, error: None }
        };
        let last = match next {
            Ok(SearchItem::Lines(lines)) => {
                for piece in convert::found_lines(lines) {
                    if !sender.send(&notification(vec![piece])).await {
                        return;
                    }
                }
                continue;
            }
            Ok(SearchItem::Done(summary)) => {
                FoundParams { done: Some(convert::search_summary(&summary)), ..notification(Vec::new()) }
            }
            Err(error) => FoundParams { error: Some(reply::file_error(error)), ..notification(Vec::new()) },
        };
        sender.send(&last).await;
        return;
    }
}

/// Keeps the lines that come after this one in the order of the search.
fn keep_lines_after(found: &mut FileLines, (path, number): &LinePosition) {
    match found.path.cmp(path) {
        Ordering::Less => found.lines.clear(),
        Ordering::Equal => found.lines.retain(|line| line.number > *number),
        Ordering::Greater => {}
    }
}

pub(crate) async fn cancel(context: RequestContext, params: CancelSearchParams) -> HandlerResult<CancelSearchResult> {
    context.connection.resources.searches.stop(&params.search_id).await;
    Ok(CancelSearchResult {}.into())
}
