//! Searches at the far end.
//!
//! A search belongs to its connection. After a break it is begun again behind the last line that was found: what is found
//! comes in order, by path and by line.

use std::collections::VecDeque;
use std::path::PathBuf;

use exec_env::files::{FileError, FileFuture, SearchResults, FileLines, SearchQuery, SearchItem, SearchSummary, FileVerb};
use exec_wire::NotificationMethod;
use exec_wire::fs as wire;
use tokio::sync::mpsc;

use super::{At, ask, fresh_id, tell, uri};
use crate::limits::HEARD;
use crate::link::{Heard, Link};
use crate::replay::Replay;
use crate::{convert, error};

/// Begins one.
pub(super) async fn search(link: Link, query: SearchQuery) -> Result<Box<dyn SearchResults>, FileError> {
    let ear = listen(&link, &query, None).await?;
    Ok(Box::new(RemoteFound { link, query, ear: Some(ear), last: None, waiting: VecDeque::new(), over: None }))
}

/// What is heard of one search of one connection. Dropping it ends the search.
struct Ear {
    link: Link,
    search_id: String,
    hearing: mpsc::Receiver<Heard>,
    seq: u64,
    done: bool,
}

impl Drop for Ear {
    fn drop(&mut self) {
        if !self.done {
            tell(&self.link, wire::CancelSearchParams { search_id: std::mem::take(&mut self.search_id) });
        }
    }
}

/// The last line that was found: its file and its number.
type Place = (PathBuf, u64);

async fn listen(link: &Link, query: &SearchQuery, last: Option<&Place>) -> Result<Ear, FileError> {
    let at = At::new(FileVerb::Search, &query.root);
    let root = at.uri()?;
    let place = |(path, line): &Place| Ok(wire::SearchPlace { path: uri(at, path)?, line: *line });
    let after = last.map(place).transpose()?;
    loop {
        // Listening begins before the question, or the first lines could be missed.
        let search_id = fresh_id();
        let hearing = link.listen_about(NotificationMethod::FsFound, &search_id, HEARD);
        let params = convert::search_params(search_id.clone(), root.clone(), query, after.clone());
        let ear = Ear { link: link.clone(), search_id, hearing, seq: 0, done: false };
        ask(link, at, &params, Replay::Again).await?;
        // The connection broke while it was asked: then it was asked on the new one, and nobody listens there.
        if !ear.hearing.is_closed() {
            return Ok(ear);
        }
    }
}

impl Ear {
    /// The next word about this search; `None` if some may be missing from here on.
    async fn next(&mut self) -> Option<wire::FoundParams> {
        loop {
            let heard = self.hearing.recv().await?;
            match heard.params.decode::<wire::FoundParams>() {
                // What was heard already may be said again.
                Ok(found) if found.search_id == self.search_id && found.seq > self.seq => {
                    self.seq += 1;
                    return (found.seq == self.seq).then_some(found);
                }
                _ => {}
            }
        }
    }
}

struct RemoteFound {
    link: Link,
    query: SearchQuery,
    /// None while it is begun again.
    ear: Option<Ear>,
    last: Option<Place>,
    /// Lines of the last notice.
    waiting: VecDeque<FileLines>,
    over: Option<Result<SearchSummary, FileError>>,
}

impl RemoteFound {
    async fn hear(&mut self) -> Result<(), FileError> {
        let ear = match &mut self.ear {
            Some(ear) => ear,
            None => self.ear.insert(listen(&self.link, &self.query, self.last.as_ref()).await?),
        };
        let Some(found) = ear.next().await else {
            self.ear = None;
            return Ok(());
        };
        ear.done = found.error.is_some() || found.done.is_some();
        for lines in found.files.into_iter().filter_map(convert::found_lines) {
            if let Some(line) = lines.lines.last() {
                self.last = Some((lines.path.clone(), line.number));
            }
            self.waiting.push_back(lines);
        }
        if let Some(refusal) = found.error {
            return Err(error::refused_file(FileVerb::Search, &self.query.root, &refusal));
        }
        if let Some(summary) = found.done {
            self.over = Some(Ok(convert::search_summary(summary)));
        }
        Ok(())
    }
}

impl SearchResults for RemoteFound {
    fn next(&mut self) -> FileFuture<'_, SearchItem> {
        Box::pin(async move {
            loop {
                if let Some(lines) = self.waiting.pop_front() {
                    return Ok(SearchItem::Lines(lines));
                }
                match &self.over {
                    Some(over) => return over.clone().map(SearchItem::Done),
                    None => {
                        if let Err(error) = self.hear().await {
                            self.over = Some(Err(error));
                        }
                    }
                }
            }
        })
    }
}
