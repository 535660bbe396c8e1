//! Search in contents: the query is judged by the answer, what is found follows in order.

use exec_env::files::{Found, SearchStep};
use exec_wire::error::RpcError;
use exec_wire::fs::{CancelSearchParams, CancelSearchResult, FoundParams, SearchParams, SearchResult};

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
    let query = convert::search_query(params).map_err(|foreign| reply::foreign_path(&foreign))?;
    let belongings = counter.desk.belongings();
    let place = belongings.searches.reserve(&search_id);
    let place = place.map_err(|refusal| reply::no_place("searchId", &search_id, "searches", refusal))?;
    let found = counter.files().search(query).await.map_err(|error| reply::file_error(&error))?;
    let (later, begin) = Voice::after_the_answer(counter.desk.clone(), place.stop());
    belongings.run(tell_findings(later, place, found));
    Ok(Done { then: Some(begin), ..SearchResult { search_id }.into() })
}

async fn tell_findings(later: Later, place: Place, found: Box<dyn Found>) {
    let Some(voice) = later.begin().await else { return };
    tell_until_stopped(&voice, &place, found).await;
    voice.settle().await;
}

async fn tell_until_stopped(voice: &Voice, place: &Place, mut found: Box<dyn Found>) {
    let mut seq = 0;
    while let Some(next) = voice.unless_stopped(found.next()).await {
        seq += 1;
        let mut notice =
            FoundParams { search_id: place.id().to_owned(), seq, files: Vec::new(), done: None, error: None };
        match next {
            Ok(SearchStep::Lines(lines)) => notice.files.extend(convert::found_lines(lines)),
            Ok(SearchStep::Done(summary)) => notice.done = Some(convert::search_summary(&summary)),
            Err(error) => notice.error = Some(reply::file_error(&error)),
        }
        let last = notice.done.is_some() || notice.error.is_some();
        if !voice.say(&notice).await || last {
            return;
        }
    }
}

pub(crate) async fn cancel(counter: Counter, params: CancelSearchParams) -> Result<Done<CancelSearchResult>, RpcError> {
    counter.desk.belongings().searches.stop(&params.search_id).await;
    Ok(CancelSearchResult {}.into())
}
