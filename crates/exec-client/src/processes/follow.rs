//! A place in a far log: from the inbox while it has the next entry, by fetching where it has not.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use exec_core::{Entry, Gap, Head, Page, ProcessId, Seq};
use exec_env::BoxFuture;
use exec_env::process::{LogFollower, ReadError, ReadQuery};
use tokio::sync::watch;

use super::{fetch_bytes, reachable, read_once, unknown};
use crate::inbox::{NextRead, ReaderId};
use crate::limits::EMPTY_FETCH_WAIT;
use crate::link::Link;
use crate::page::take_page;
use crate::process_cache::CachedProcess;

/// Begins to follow.
pub(super) async fn follow(link: &Link, id: &ProcessId, after: Seq) -> Result<Follower, ReadError> {
    let changes = subscribe(link, id).await?;
    let reader = link.shared().lock().inbox.add_reader(id, after).ok_or_else(|| unknown(id))?;
    Ok(Follower {
        link: link.clone(),
        id: id.clone(),
        reader,
        after,
        changes,
        fetched: None,
        ended: false,
        fetched_nothing: false,
    })
}

/// Makes sure that the pushes of `id` are taken in, asking the server whether it exists if nobody here knows it.
pub(super) async fn subscribe(link: &Link, id: &ProcessId) -> Result<watch::Receiver<u64>, ReadError> {
    reachable(link, id)?;
    let known = link.shared().lock().processes.get(id).map(CachedProcess::changes);
    if let Some(changes) = known {
        return Ok(changes);
    }
    // Taken in from before the read, so that nothing falls between the two.
    let changes = {
        let mut state = link.shared().lock();
        state.inbox.open(id);
        state.processes.entry(id.clone()).or_insert_with(CachedProcess::discovered).changes()
    };
    let looked = read_once(link, id, ReadQuery { max_bytes: Some(0), ..ReadQuery::default() }).await;
    if let Err(error) = looked {
        let mut state = link.shared().lock();
        state.processes.remove(id);
        state.inbox.close(id);
        return Err(error);
    }
    Ok(changes)
}

/// A place.
pub(super) struct Follower {
    link: Link,
    id: ProcessId,
    reader: ReaderId,
    after: Seq,
    changes: watch::Receiver<u64>,
    /// What was fetched and not yet handed out; at most one page.
    fetched: Option<Fetched>,
    ended: bool,
    /// Whether the last fetch brought nothing, though there should have been something.
    fetched_nothing: bool,
}

struct Fetched {
    gap: Option<Gap>,
    entries: VecDeque<Entry>,
    head: Head,
}

impl Follower {
    pub(super) async fn advance(&mut self, max_bytes: usize) -> Result<Option<Page>, ReadError> {
        loop {
            if self.ended {
                return Ok(None);
            }
            if let Some(page) = self.take_fetched(max_bytes) {
                return Ok(Some(self.deliver(page)));
            }
            match self.next_from_inbox(max_bytes)? {
                NextRead::Page(page) => return Ok(Some(self.deliver(page))),
                NextRead::End => self.ended = true,
                NextRead::Fetch => self.fetch(max_bytes).await?,
                NextRead::Unknown => return Err(unknown(&self.id).into()),
                // Nobody wakes us any more: the process was forgotten, or its name is another's now.
                NextRead::Wait => self.changes.changed().await.map_err(|_| unknown(&self.id))?,
            }
        }
    }

    async fn wait_for_changes(&mut self) {
        while !self.ended && self.fetched.is_none() {
            match self.next_from_inbox(0) {
                // The end of the channel is a change too: the process was forgotten.
                Ok(NextRead::Wait) if self.changes.changed().await.is_ok() => {}
                _ => return,
            }
        }
    }

    fn next_from_inbox(&mut self, max_bytes: usize) -> Result<NextRead, ReadError> {
        // Marked as seen before the inbox is looked at, or a change in between would wake nobody.
        self.changes.borrow_and_update();
        if self.changes.has_changed().is_err() {
            return Err(unknown(&self.id).into());
        }
        reachable(&self.link, &self.id)?;
        Ok(self.link.shared().lock().inbox.next(&self.id, self.after, max_bytes))
    }

    async fn fetch(&mut self, max_bytes: usize) -> Result<(), ReadError> {
        let wait = if self.fetched_nothing { EMPTY_FETCH_WAIT } else { Duration::ZERO };
        let query = ReadQuery { after: self.after, max_bytes: Some(fetch_bytes(max_bytes)), wait };
        let page = read_once(&self.link, &self.id, query).await?;
        self.link.shared().fetches.fetch_add(1, Ordering::Relaxed);
        self.fetched_nothing = page.entries.is_empty() && page.gap.is_none();
        self.fetched = Some(Fetched { gap: page.gap, entries: page.entries.into(), head: page.head });
        Ok(())
    }

    /// The next bite of what was fetched.
    fn take_fetched(&mut self, max_bytes: usize) -> Option<Page> {
        let fetched = self.fetched.as_mut()?;
        let gap = fetched.gap.take();
        let entries = take_page(&mut fetched.entries, max_bytes);
        let head = fetched.head;
        if entries.is_empty() && gap.is_none() {
            self.fetched = None;
            return None;
        }
        Some(Page { entries, gap, head })
    }

    fn deliver(&mut self, mut page: Page) -> Page {
        self.after = page.cursor(self.after);
        let mut state = self.link.shared().lock();
        state.inbox.advance_reader(&self.id, self.reader, self.after);
        // What is known by now: a head never goes back.
        page.head = state.inbox.head(&self.id).unwrap_or(page.head);
        page
    }
}

impl LogFollower for Follower {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.wait_for_changes())
    }

    fn next(&mut self, max_bytes: usize) -> BoxFuture<'_, Result<Option<Page>, ReadError>> {
        Box::pin(self.advance(max_bytes))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.link.shared().lock().inbox.remove_reader(&self.id, self.reader);
    }
}
