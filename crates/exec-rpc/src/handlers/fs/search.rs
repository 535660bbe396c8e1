//! Search in contents: the query is judged by the answer, what is found follows in order.

use std::cmp::Ordering;
use std::path::PathBuf;

use exec_env::files::{SearchResults, FileLines, SearchItem};
use exec_wire::error::RpcError;
use exec_wire::fs::{CancelSearchParams, CancelSearchResult, FoundParams, SearchParams, SearchPlace, SearchResult};

use super::permission::{self, Need};
use super::{Later, Voice};
use crate::belongings::Place;
use crate::convert;
use crate::dispatch::{Counter, Done};
use crate::limits::SOURCE_ID_BYTES;
use crate::reply;

pub(crate) async fn search(counter: Counter, params: SearchParams) -> Result<Done<SearchResult>, RpcError> {
    permission::check(params.sandbox.as_ref(), Need::Read)?;
    let search_id = params.search_id.clone();
    if search_id.len() > SOURCE_ID_BYTES {
        return Err(reply::bad_params(format!("searchId must not exceed {SOURCE_ID_BYTES} bytes")));
    }
    let foreign = |foreign| reply::foreign_path(&foreign);
    let place = |place: &SearchPlace| Ok((place.path.to_path()?, place.line));
    let after = params.after.as_ref().map(place).transpose().map_err(foreign)?;
    let query = convert::search_query(params).map_err(foreign)?;
    let belongings = counter.desk.belongings();
    let place = belongings.searches.reserve(&search_id);
    let place = place.map_err(|refusal| reply::no_place("searchId", &search_id, "searches", refusal))?;
    let found = counter.files().search(query).await.map_err(|error| reply::file_error(&error))?;
    let (later, begin) = Voice::after_the_answer(counter.desk.clone(), place.stop());
    belongings.run(tell_findings(later, place, found, after));
    Ok(Done { then: Some(begin), ..SearchResult { search_id }.into() })
}

/// A line: its file and its number.
type Line = (PathBuf, u64);

async fn tell_findings(later: Later, place: Place, found: Box<dyn SearchResults>, after: Option<Line>) {
    let Some(voice) = later.begin().await else { return };
    tell_until_stopped(&voice, &place, found, after.as_ref()).await;
    voice.settle().await;
}

async fn tell_until_stopped(voice: &Voice, place: &Place, mut found: Box<dyn SearchResults>, after: Option<&Line>) {
    let mut seq = 0;
    while let Some(mut next) = voice.unless_stopped(found.next()).await {
        if let (Ok(SearchItem::Lines(lines)), Some(after)) = (&mut next, after) {
            keep_behind(lines, after);
            if lines.lines.is_empty() {
                continue;
            }
        }
        seq += 1;
        let mut notice =
            FoundParams { search_id: place.id().to_owned(), seq, files: Vec::new(), done: None, error: None };
        match next {
            Ok(SearchItem::Lines(lines)) => notice.files.extend(convert::found_lines(lines)),
            Ok(SearchItem::Done(summary)) => notice.done = Some(convert::search_summary(&summary)),
            Err(error) => notice.error = Some(reply::file_error(&error)),
        }
        let last = notice.done.is_some() || notice.error.is_some();
        if !voice.say(&notice).await || last {
            return;
        }
    }
}

/// Keeps the lines behind this one, in the order in which they are found.
fn keep_behind(found: &mut FileLines, (path, number): &Line) {
    match found.path.cmp(path) {
        Ordering::Less => found.lines.clear(),
        Ordering::Equal => found.lines.retain(|line| line.number > *number),
        Ordering::Greater => {}
    }
}

pub(crate) async fn cancel(counter: Counter, params: CancelSearchParams) -> Result<Done<CancelSearchResult>, RpcError> {
    counter.desk.belongings().searches.stop(&params.search_id).await;
    Ok(CancelSearchResult {}.into())
}
