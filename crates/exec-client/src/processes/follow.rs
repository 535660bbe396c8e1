//! A follower of a log on the server: it takes entries from the inbox while they are there, and fetches the others.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use exec_core::limits::ATTACHED_READER_TIMEOUT;
use exec_core::{Entry, Gap, Head, Page, ProcessId, Seq};
use exec_env::BoxFuture;
use exec_env::process::{LogFollower, ProcessError, ProcessReason, ProcessVerb, ReadQuery};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{reachable, read_once, remove_from_cache};
use crate::inbox::{NextRead, ReaderId};
use crate::limits::{ACKNOWLEDGE_BYTES, ACKNOWLEDGE_DELAY, EMPTY_FETCH_WAIT, REFETCH_BYTES};
use crate::link::Link;
use crate::page::take_page;
use crate::process_cache::CachedProcess;

pub(super) async fn follow(link: &Link, id: &ProcessId, after: Seq) -> Result<Follower, ProcessReason> {
    let changes = subscribe(link, id).await?;
    let reader = link.shared().lock().inbox.add_reader(id, after).ok_or(ProcessReason::UnknownProcess)?;
    // From now on, the server keeps what comes after this position.
    link.shared().acknowledge(id, 0);
    Ok(Follower {
        link: link.clone(),
        id: id.clone(),
        reader,
        after,
        changes,
        taken: None,
        failure: None,
        ended: false,
        fetched_nothing: false,
        expiry: None,
    })
}

/// Makes sure that the inbox holds what is pushed of `id`. If nobody here knows the process, the server is asked whether
/// it exists.
pub(super) async fn subscribe(link: &Link, id: &ProcessId) -> Result<watch::Receiver<u64>, ProcessReason> {
    reachable(link, id)?;
    let known = link.shared().lock().processes.get(id).map(CachedProcess::changes);
    if let Some(changes) = known {
        return Ok(changes);
    }
    // The inbox is opened before the log is read, so that nothing is lost between the two.
    let changes = {
        let mut state = link.shared().lock();
        state.inbox.open(id);
        state.processes.entry(id.clone()).or_insert_with(CachedProcess::discovered).changes()
    };
    let read = read_once(link, id, ReadQuery { max_bytes: Some(0), ..ReadQuery::default() }).await;
    if let Err(error) = read {
        remove_from_cache(link, id);
        return Err(error);
    }
    Ok(changes)
}

pub(super) struct Follower {
    link: Link,
    id: ProcessId,
    reader: ReaderId,
    after: Seq,
    changes: watch::Receiver<u64>,
    /// What was fetched, or taken out of the inbox, and not yet delivered: at most one page, and never an empty one.
    taken: Option<TakenPage>,
    /// Why the last fetch failed, until it is told.
    failure: Option<ProcessReason>,
    ended: bool,
    /// Whether the last fetch brought nothing, though there should have been something.
    fetched_nothing: bool,
    /// Ends the wait for a reader that says nothing for too long.
    expiry: Option<AbortOnDrop>,
}

/// A task that ends with its owner.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct TakenPage {
    gap: Option<Gap>,
    entries: VecDeque<Entry>,
    head: Head,
}

impl Follower {
    pub(super) async fn advance(&mut self, max_bytes: usize) -> Result<Option<Page>, ProcessReason> {
        loop {
            if self.ended {
                return Ok(None);
            }
            if let Some(page) = self.take_page(max_bytes) {
                return Ok(Some(self.deliver(page)));
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            match self.next_from_inbox(max_bytes)? {
                NextRead::Page(page) => return Ok(Some(self.deliver(page))),
                NextRead::End => self.ended = true,
                NextRead::Fetch => self.fetch(max_bytes).await?,
                NextRead::Unknown => return Err(ProcessReason::UnknownProcess),
                // The sender is gone: the process was forgotten, or its id belongs to another process now.
                NextRead::Wait => self.wait_for_change().await.map_err(|_| ProcessReason::UnknownProcess)?,
            }
        }
    }

    /// Whoever calls `next` after this must not have to wait: for a server's writer, that would keep back whatever else it
    /// has to write. So a page is in our hands when this returns, or an end, or a failure.
    async fn wait_until_ready(&mut self) {
        while !self.ended && self.taken.is_none() && self.failure.is_none() {
            match self.next_from_inbox(REFETCH_BYTES) {
                Ok(NextRead::Page(Page { entries, gap, head })) => {
                    self.taken = Some(TakenPage { gap, entries: entries.into(), head });
                }
                Ok(NextRead::End) => self.ended = true,
                Ok(NextRead::Fetch) => match self.fetch(REFETCH_BYTES).await {
                    Ok(()) => {}
                    // The server did not answer in time. As long as it may have the process, it is asked again.
                    Err(ProcessReason::Unreachable(_)) if reachable(&self.link, &self.id).is_ok() => {
                        tokio::time::sleep(EMPTY_FETCH_WAIT).await;
                    }
                    Err(reason) => self.failure = Some(reason),
                },
                // A channel that has ended is something to read, too: the error that the process was forgotten.
                Ok(NextRead::Wait) if self.wait_for_change().await.is_ok() => {}
                Ok(NextRead::Wait | NextRead::Unknown) => self.failure = Some(ProcessReason::UnknownProcess),
                Err(reason) => self.failure = Some(reason),
            }
        }
    }

    /// Everything is read. The server is told so, if nothing comes for a moment.
    async fn wait_for_change(&mut self) -> Result<(), watch::error::RecvError> {
        while self.link.shared().owes_acknowledgement(&self.id) {
            match tokio::time::timeout(ACKNOWLEDGE_DELAY, self.changes.changed()).await {
                Ok(changed) => return changed,
                Err(_) => self.link.shared().acknowledge(&self.id, 0),
            }
        }
        self.changes.changed().await
    }

    fn next_from_inbox(&mut self, max_bytes: usize) -> Result<NextRead, ProcessReason> {
        // Marked as seen before the inbox is read, or a change in between would wake nobody.
        self.changes.borrow_and_update();
        if self.changes.has_changed().is_err() {
            return Err(ProcessReason::UnknownProcess);
        }
        reachable(&self.link, &self.id)?;
        Ok(self.link.shared().lock().inbox.next(&self.id, self.after, max_bytes))
    }

    async fn fetch(&mut self, max_bytes: usize) -> Result<(), ProcessReason> {
        let fetch_bytes = max_bytes.clamp(REFETCH_BYTES, 16 * REFETCH_BYTES);
        let wait = if self.fetched_nothing { EMPTY_FETCH_WAIT } else { Duration::ZERO };
        let query = ReadQuery { after: self.after, max_bytes: Some(fetch_bytes), wait };
        let page = read_once(&self.link, &self.id, query).await?;
        self.link.shared().fetches.fetch_add(1, Ordering::Relaxed);
        self.fetched_nothing = page.entries.is_empty() && page.gap.is_none();
        if !self.fetched_nothing {
            self.taken = Some(TakenPage { gap: page.gap, entries: page.entries.into(), head: page.head });
        }
        Ok(())
    }

    /// The next part of what was taken.
    fn take_page(&mut self, max_bytes: usize) -> Option<Page> {
        let taken = self.taken.as_mut()?;
        let page = Page { gap: taken.gap.take(), entries: take_page(&mut taken.entries, max_bytes), head: taken.head };
        if taken.entries.is_empty() {
            self.taken = None;
        }
        Some(page)
    }

    fn deliver(&mut self, mut page: Page) -> Page {
        self.after = page.cursor(self.after);
        let mut state = self.link.shared().lock();
        state.inbox.count_read(&self.id, self.reader, &page.entries);
        state.inbox.advance_reader(&self.id, self.reader, self.after);
        // The inbox may know a later head by now; a head never goes back.
        page.head = state.inbox.head(&self.id).unwrap_or(page.head);
        drop(state);
        self.link.shared().acknowledge(&self.id, ACKNOWLEDGE_BYTES);
        page
    }
}

impl LogFollower for Follower {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.wait_until_ready())
    }

    fn next(&mut self, max_bytes: usize) -> BoxFuture<'_, Result<Option<Page>, ProcessError>> {
        Box::pin(async move {
            let page = self.advance(max_bytes).await;
            page.map_err(|reason| ProcessError::new(ProcessVerb::Follow, &self.id, reason))
        })
    }

    /// The server is told at once: whoever says this does not read from here, so nothing else would tell it. It keeps what
    /// we have not acknowledged for as long as we are connected; a shorter patience is ours to keep.
    fn acknowledge(&mut self, upto: Seq, patience: Duration) {
        self.expiry = None;
        // Of a reader for whom nobody shall wait, what it is given counts as read: the wire has no word for it.
        if patience.is_zero() {
            return;
        }
        {
            let mut state = self.link.shared().lock();
            if !state.inbox.has_reader(&self.id, self.reader)
                && let Some(reader) = state.inbox.add_reader(&self.id, upto)
            {
                self.reader = reader;
            }
            state.inbox.acknowledge_reader(&self.id, self.reader, upto);
        }
        self.link.shared().acknowledge(&self.id, 0);
        if patience < ATTACHED_READER_TIMEOUT {
            let (link, id, reader) = (self.link.clone(), self.id.clone(), self.reader);
            self.expiry = Some(AbortOnDrop(tokio::spawn(async move {
                tokio::time::sleep(patience).await;
                link.shared().lock().inbox.remove_reader(&id, reader);
                link.shared().acknowledge(&id, 0);
            })));
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.link.shared().lock().inbox.remove_reader(&self.id, self.reader);
        self.link.shared().acknowledge(&self.id, 0);
    }
}
