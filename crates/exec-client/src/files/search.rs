//! Searches at the far end. A search belongs to its connection: if that breaks, the search is over and says so.

use std::collections::VecDeque;

use exec_env::files::{FileError, FileFuture, Found, FoundLines, SearchQuery, SearchStep, SearchSummary, Verb};
use exec_wire::NoticeMethod;
use exec_wire::fs as wire;
use tokio::sync::mpsc;

use super::{At, ask, fresh_id, tell, unreachable};
use crate::limits::HEARD;
use crate::link::{Heard, Link};
use crate::replay::Replay;
use crate::{convert, error};

/// Begins one.
pub(super) async fn search(link: Link, query: SearchQuery) -> Result<Box<dyn Found>, FileError> {
    let at = At::new(Verb::Search, &query.root);
    let search_id = fresh_id();
    let params = convert::search_params(search_id.clone(), at.uri()?, &query);
    let hearing = link.listen_about(NoticeMethod::FsFound, &search_id, HEARD);
    ask(&link, at, &params, Replay::IfUnsent).await?;
    Ok(Box::new(RemoteFound { link, query, search_id, hearing, seq: 0, waiting: VecDeque::new(), over: None }))
}

struct RemoteFound {
    link: Link,
    query: SearchQuery,
    search_id: String,
    hearing: mpsc::Receiver<Heard>,
    seq: u64,
    /// Lines of the last notice.
    waiting: VecDeque<FoundLines>,
    over: Option<Result<SearchSummary, FileError>>,
}

impl RemoteFound {
    async fn hear(&mut self) {
        let at = At::new(Verb::Search, &self.query.root);
        let found = loop {
            let Some(heard) = self.hearing.recv().await else {
                let why = "the connection broke, or what was found was not taken in time: search again";
                self.over = Some(Err(unreachable(at, why)));
                return;
            };
            match heard.params.decode::<wire::FoundParams>() {
                // What was heard already may be said again.
                Ok(found) if found.search_id == self.search_id && found.seq > self.seq => break found,
                _ => {}
            }
        };
        self.seq += 1;
        if found.seq != self.seq {
            self.over = Some(Err(unreachable(at, "a part of what was found is missing: search again")));
            return;
        }
        self.waiting.extend(found.files.into_iter().filter_map(convert::found_lines));
        if let Some(refusal) = found.error {
            self.over = Some(Err(error::refused_file(Verb::Search, &self.query.root, &refusal)));
        } else if let Some(summary) = found.done {
            self.over = Some(Ok(convert::search_summary(summary)));
        }
    }
}

impl Found for RemoteFound {
    fn next(&mut self) -> FileFuture<'_, SearchStep> {
        Box::pin(async move {
            loop {
                if let Some(lines) = self.waiting.pop_front() {
                    return Ok(SearchStep::Lines(lines));
                }
                match &self.over {
                    Some(over) => return over.clone().map(SearchStep::Done),
                    None => self.hear().await,
                }
            }
        })
    }
}

impl Drop for RemoteFound {
    fn drop(&mut self) {
        if self.over.is_none() {
            tell(&self.link, wire::CancelSearchParams { search_id: std::mem::take(&mut self.search_id) });
        }
    }
}
