//! A place in a far log: from the inbox while it has the next entry, by fetching where it has not.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use exec_core::{Entry, Gap, Head, Page, ProcessId, Seq};
use exec_env::BoxFuture;
use exec_env::process::{LogFollower, ReadError, ReadQuery};
use tokio::sync::watch;

use super::{fetch_bytes, look, reachable, unknown};
use crate::inbox::{Next, Reader};
use crate::limits::BARREN_WAIT;
use crate::link::Link;
use crate::page::bite;
use crate::records::Record;

/// Begins to follow.
pub(super) async fn follow(link: &Link, id: &ProcessId, after: Seq) -> Result<Follower, ReadError> {
    let news = watched(link, id).await?;
    let reader = link.shared().lock().inbox.join(id, after).ok_or_else(|| unknown(id))?;
    Ok(Follower { link: link.clone(), id: id.clone(), reader, after, news, fetched: None, over: false, barren: false })
}

/// Makes sure that the pushes of `id` are taken in, asking the server whether it exists if nobody here knows it.
pub(super) async fn watched(link: &Link, id: &ProcessId) -> Result<watch::Receiver<u64>, ReadError> {
    reachable(link, id)?;
    let known = link.shared().lock().records.get(id).map(Record::news);
    if let Some(news) = known {
        return Ok(news);
    }
    // Taken in from before the look, so that nothing falls between the two.
    let news = {
        let mut state = link.shared().lock();
        state.inbox.open(id);
        state.records.entry(id.clone()).or_insert_with(Record::found).news()
    };
    let looked = look(link, id, ReadQuery { max_bytes: Some(0), ..ReadQuery::default() }).await;
    if let Err(error) = looked {
        let mut state = link.shared().lock();
        state.records.remove(id);
        state.inbox.close(id);
        return Err(error);
    }
    Ok(news)
}

/// A place.
pub(super) struct Follower {
    link: Link,
    id: ProcessId,
    reader: Reader,
    after: Seq,
    news: watch::Receiver<u64>,
    /// What was fetched and not yet handed out; at most one page.
    fetched: Option<Fetched>,
    over: bool,
    /// Whether the last fetch brought nothing, though there should have been something.
    barren: bool,
}

struct Fetched {
    gap: Option<Gap>,
    entries: VecDeque<Entry>,
    head: Head,
}

impl Follower {
    pub(super) async fn advance(&mut self, max_bytes: usize) -> Result<Option<Page>, ReadError> {
        loop {
            if self.over {
                return Ok(None);
            }
            if let Some(page) = self.hand_out(max_bytes) {
                return Ok(Some(self.deliver(page)));
            }
            match self.look_in_the_inbox(max_bytes)? {
                Next::Page(page) => return Ok(Some(self.deliver(page))),
                Next::Over => self.over = true,
                Next::Fetch => self.fetch(max_bytes).await?,
                Next::Unknown => return Err(unknown(&self.id).into()),
                // Nobody wakes us any more: the process was forgotten, or its name is another's now.
                Next::Wait => self.news.changed().await.map_err(|_| unknown(&self.id))?,
            }
        }
    }

    async fn wait_for_news(&mut self) {
        while !self.over && self.fetched.is_none() {
            match self.look_in_the_inbox(0) {
                // An end of the news is news: the process was forgotten.
                Ok(Next::Wait) if self.news.changed().await.is_ok() => {}
                _ => return,
            }
        }
    }

    fn look_in_the_inbox(&mut self, max_bytes: usize) -> Result<Next, ReadError> {
        // Marked as seen before the inbox is looked at, or news in between would wake nobody.
        self.news.borrow_and_update();
        if self.news.has_changed().is_err() {
            return Err(unknown(&self.id).into());
        }
        reachable(&self.link, &self.id)?;
        Ok(self.link.shared().lock().inbox.next(&self.id, self.after, max_bytes))
    }

    async fn fetch(&mut self, max_bytes: usize) -> Result<(), ReadError> {
        let wait = if self.barren { BARREN_WAIT } else { Duration::ZERO };
        let query = ReadQuery { after: self.after, max_bytes: Some(fetch_bytes(max_bytes)), wait };
        let page = look(&self.link, &self.id, query).await?;
        self.link.shared().fetches.fetch_add(1, Ordering::Relaxed);
        self.barren = page.entries.is_empty() && page.gap.is_none();
        self.fetched = Some(Fetched { gap: page.gap, entries: page.entries.into(), head: page.head });
        Ok(())
    }

    /// The next bite of what was fetched.
    fn hand_out(&mut self, max_bytes: usize) -> Option<Page> {
        let fetched = self.fetched.as_mut()?;
        let gap = fetched.gap.take();
        let entries = bite(&mut fetched.entries, max_bytes);
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
        state.inbox.pass(&self.id, self.reader, self.after);
        // What is known by now: a head never goes back.
        page.head = state.inbox.head(&self.id).unwrap_or(page.head);
        page
    }
}

impl LogFollower for Follower {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.wait_for_news())
    }

    fn next(&mut self, max_bytes: usize) -> BoxFuture<'_, Result<Option<Page>, ReadError>> {
        Box::pin(self.advance(max_bytes))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.link.shared().lock().inbox.leave(&self.id, self.reader);
    }
}
