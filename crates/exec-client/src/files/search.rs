//! Searches on the server.
//!
//! A search belongs to its connection. After a break it is begun again after the last line that was found, which is
//! possible because lines are found in order, by path and by number.

use std::collections::VecDeque;
use std::path::PathBuf;

use exec_env::files::{
    FileError, FileFuture, FileLines, FileVerb, SearchItem, SearchQuery, SearchResults, SearchSummary,
};
use exec_wire::NotificationMethod;
use exec_wire::fs as wire;
use tokio::sync::mpsc;

use super::{FilesLink, Operation, send_detached, unique_id};
use crate::limits::NOTIFICATION_QUEUE;
use crate::link::{Notification, next_params};
use crate::{convert, error};

pub(super) async fn search(link: FilesLink, query: SearchQuery) -> Result<Box<dyn SearchResults>, FileError> {
    let subscription = subscribe(&link, &query, None).await?;
    Ok(Box::new(RemoteFound {
        link,
        query,
        subscription: Some(subscription),
        last: None,
        waiting: VecDeque::new(),
        result: None,
    }))
}

/// The notifications of one search on one connection. Dropping it ends the search.
struct SearchSubscription {
    link: FilesLink,
    search_id: String,
    notifications: mpsc::Receiver<Notification>,
    seq: u64,
    done: bool,
}

impl Drop for SearchSubscription {
    fn drop(&mut self) {
        if !self.done {
            send_detached(&self.link, wire::CancelSearchParams { search_id: std::mem::take(&mut self.search_id) });
        }
    }
}

/// The last line that was found: its file and its number.
type LinePosition = (PathBuf, u64);

async fn subscribe(
    link: &FilesLink,
    query: &SearchQuery,
    last: Option<&LinePosition>,
) -> Result<SearchSubscription, FileError> {
    let operation = Operation { link, verb: FileVerb::Search, path: &query.root };
    let root = operation.uri()?;
    let position = |(path, line): &LinePosition| Ok(wire::SearchPlace { path: operation.uri_of(path)?, line: *line });
    let after = last.map(position).transpose()?;
    loop {
        // We subscribe before the call, or the first lines could be missed.
        let search_id = unique_id();
        let notifications = link.subscribe(&[NotificationMethod::FsFound], Some(&search_id), NOTIFICATION_QUEUE);
        let sandbox = operation.sandbox()?;
        let params = convert::search_params(search_id.clone(), root.clone(), query, after.clone(), sandbox);
        let subscription = SearchSubscription { link: link.clone(), search_id, notifications, seq: 0, done: false };
        operation.call(&params).await?;
        // If it is closed, the connection broke during the call. The search then runs on the new one, without a subscriber.
        if !subscription.notifications.is_closed() {
            return Ok(subscription);
        }
    }
}

impl SearchSubscription {
    /// The next notification of this search; `None` if some may be missing from here on.
    async fn next(&mut self) -> Option<wire::FoundParams> {
        // A notification that was received already may come again.
        let is_new = |found: &wire::FoundParams| found.search_id == self.search_id && found.seq > self.seq;
        let found = next_params(&mut self.notifications, is_new).await?;
        self.seq += 1;
        (found.seq == self.seq).then_some(found)
    }
}

struct RemoteFound {
    link: FilesLink,
    query: SearchQuery,
    /// `None` until it is begun again.
    subscription: Option<SearchSubscription>,
    last: Option<LinePosition>,
    /// The lines of the last notification.
    waiting: VecDeque<FileLines>,
    result: Option<Result<SearchSummary, FileError>>,
}

impl RemoteFound {
    async fn receive(&mut self) -> Result<(), FileError> {
        let subscription = match &mut self.subscription {
            Some(subscription) => subscription,
            None => self.subscription.insert(subscribe(&self.link, &self.query, self.last.as_ref()).await?),
        };
        let Some(found) = subscription.next().await else {
            self.subscription = None;
            return Ok(());
        };
        subscription.done = found.error.is_some() || found.done.is_some();
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
            self.result = Some(Ok(convert::search_summary(summary)));
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
                match &self.result {
                    Some(result) => return result.clone().map(SearchItem::Done),
                    None => {
                        if let Err(error) = self.receive().await {
                            self.result = Some(Err(error));
                        }
                    }
                }
            }
        })
    }
}
