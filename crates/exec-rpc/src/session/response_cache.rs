//! The response cache of a session: the responses to requests that change files. A client that repeats such a request
//! after a broken connection gets the cached response, and the change is not made a second time.
//!
//! A request is identified by its id and by the scope that its client chose, because every client numbers its requests
//! from the start. The cache ends with the server; `requestMemory` in the response to `initialize` lets a client see
//! whether it still talks to the server that has its responses.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use exec_wire::envelope::RequestId;
use tokio::sync::watch;

use crate::limits::CACHED_RESPONSES;

/// The client's scope, and the id of the request within it.
type Key = (Arc<str>, RequestId);

#[derive(Debug, Default)]
pub(crate) struct ResponseCache {
    entries: Mutex<CacheEntries>,
}

#[derive(Debug, Default)]
struct CacheEntries {
    /// `None` while the request is still running.
    responses: HashMap<Key, watch::Receiver<Option<Bytes>>>,
    /// Oldest first.
    order: VecDeque<Key>,
}

pub(crate) enum CacheLookup<'a> {
    /// The request is new: carry it out, then complete this.
    Miss(PendingResponse<'a>),
    /// The request was carried out before, with this response.
    Hit(Bytes),
}

/// A request that is being carried out. If this is dropped before it is completed, the cache forgets the request.
pub(crate) struct PendingResponse<'a> {
    cache: &'a ResponseCache,
    key: Key,
    response: watch::Sender<Option<Bytes>>,
}

impl ResponseCache {
    /// Waits while the same request is already running, and then returns its response.
    pub(crate) async fn lookup(&self, scope: &Arc<str>, id: &RequestId) -> CacheLookup<'_> {
        let key = (scope.clone(), id.clone());
        loop {
            let mut earlier = match self.try_begin(&key) {
                Ok(pending) => return CacheLookup::Miss(pending),
                Err(earlier) => earlier,
            };
            // An error means that the earlier request was dropped without a response. The next round takes its place.
            if let Ok(response) = earlier.wait_for(Option::is_some).await
                && let Some(response) = response.as_ref()
            {
                return CacheLookup::Hit(response.clone());
            }
        }
    }

    fn try_begin(&self, key: &Key) -> Result<PendingResponse<'_>, watch::Receiver<Option<Bytes>>> {
        let mut entries = self.lock();
        if let Some(earlier) = entries.responses.get(key) {
            return Err(earlier.clone());
        }
        let (response, receiver) = watch::channel(None);
        entries.responses.insert(key.clone(), receiver);
        entries.order.push_back(key.clone());
        entries.trim();
        Ok(PendingResponse { cache: self, key: key.clone(), response })
    }

    fn lock(&self) -> MutexGuard<'_, CacheEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheEntries {
    /// Forgets the oldest completed responses. Pending ones need no bound here: a connection bounds its requests.
    fn trim(&mut self) {
        while self.order.len() > CACHED_RESPONSES {
            let oldest = self.order.front().and_then(|key| self.responses.get(key));
            if oldest.is_some_and(|response| response.borrow().is_none()) {
                return;
            }
            if let Some(key) = self.order.pop_front() {
                self.responses.remove(&key);
            }
        }
    }
}

impl PendingResponse<'_> {
    pub(crate) fn complete(self, response: Bytes) {
        self.response.send_replace(Some(response));
    }
}

impl Drop for PendingResponse<'_> {
    fn drop(&mut self) {
        if self.response.borrow().is_none() {
            let mut entries = self.cache.lock();
            entries.responses.remove(&self.key);
            entries.order.retain(|key| *key != self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(lookup: CacheLookup<'_>) -> PendingResponse<'_> {
        match lookup {
            CacheLookup::Miss(pending) => pending,
            CacheLookup::Hit(response) => panic!("{response:?} is known already"),
        }
    }

    #[tokio::test]
    async fn a_request_is_carried_out_once_and_answered_as_often_as_it_is_asked() {
        let (cache, scope) = (ResponseCache::default(), Arc::from("a"));
        let under_way = pending(cache.lookup(&scope, &RequestId::Number(1)).await);
        let again = cache.lookup(&scope, &RequestId::Number(1));
        let other = pending(cache.lookup(&Arc::from("b"), &RequestId::Number(1)).await);
        let (again, ()) = tokio::join!(again, async { under_way.complete(Bytes::from_static(b"done")) });
        assert!(matches!(again, CacheLookup::Hit(response) if response == "done"));
        drop(other);
        pending(cache.lookup(&Arc::from("b"), &RequestId::Number(1)).await).complete(Bytes::new());
    }

    #[tokio::test]
    async fn only_the_last_are_remembered() {
        let (cache, scope) = (ResponseCache::default(), Arc::from("a"));
        for number in 0..=CACHED_RESPONSES as i64 {
            pending(cache.lookup(&scope, &RequestId::Number(number)).await).complete(Bytes::new());
        }
        assert!(matches!(cache.lookup(&scope, &RequestId::Number(1)).await, CacheLookup::Hit(_)));
        drop(pending(cache.lookup(&scope, &RequestId::Number(0)).await));
    }
}
