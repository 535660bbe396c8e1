//! What a session remembers of requests that change files: asked again after a break, they are answered and not carried
//! out a second time.
//!
//! A request is known by its id and the scope its client has chosen, because ids alone begin anew with every client.
//! The memory ends with the server; `requestMemory` in the answer to `initialize` tells one server's from another's.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use exec_wire::envelope::RequestId;
use tokio::sync::watch;

use crate::limits::REMEMBERED_ANSWERS;

/// Which request of which client.
type Key = (Arc<str>, RequestId);

/// The answers, and the requests that will have one.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    known: HashMap<Key, watch::Receiver<Option<Bytes>>>,
    order: VecDeque<Key>,
}

/// What to do about a request.
pub(crate) enum Claim<'a> {
    /// It is the first of its name: carry it out, and settle it.
    First(First<'a>),
    /// It was carried out, with this answer.
    Known(Bytes),
}

/// A request under way. Dropped unsettled, it was never made.
pub(crate) struct First<'a> {
    answers: &'a Answers,
    key: Key,
    answer: watch::Sender<Option<Bytes>>,
}

impl Answers {
    /// Whether the request was made before; waits for its answer if it is still under way.
    pub(crate) async fn claim(&self, scope: &Arc<str>, id: &RequestId) -> Claim<'_> {
        let key = (scope.clone(), id.clone());
        loop {
            let mut earlier = match self.first_or_earlier(&key) {
                Ok(first) => return Claim::First(first),
                Err(earlier) => earlier,
            };
            // An error says that the earlier one was given up; then this is the first.
            if let Ok(answer) = earlier.wait_for(Option::is_some).await
                && let Some(answer) = answer.as_ref()
            {
                return Claim::Known(answer.clone());
            }
        }
    }

    fn first_or_earlier(&self, key: &Key) -> Result<First<'_>, watch::Receiver<Option<Bytes>>> {
        let mut book = self.book();
        if let Some(earlier) = book.known.get(key) {
            return Err(earlier.clone());
        }
        let (answer, hearing) = watch::channel(None);
        book.known.insert(key.clone(), hearing);
        book.order.push_back(key.clone());
        book.trim();
        Ok(First { answers: self, key: key.clone(), answer })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Forgets the oldest that have their answers. Those under way are bounded by the requests of a connection.
    fn trim(&mut self) {
        while self.order.len() > REMEMBERED_ANSWERS {
            let settled = self.order.front().and_then(|key| self.known.get(key)).is_none_or(|it| it.borrow().is_some());
            if !settled {
                return;
            }
            if let Some(key) = self.order.pop_front() {
                self.known.remove(&key);
            }
        }
    }
}

impl First<'_> {
    /// It was carried out.
    pub(crate) fn settle(self, answer: Bytes) {
        self.answer.send_replace(Some(answer));
    }
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        if self.answer.borrow().is_none() {
            let mut book = self.answers.book();
            book.known.remove(&self.key);
            book.order.retain(|key| *key != self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(claim: Claim<'_>) -> First<'_> {
        match claim {
            Claim::First(first) => first,
            Claim::Known(answer) => panic!("{answer:?} is known already"),
        }
    }

    #[tokio::test]
    async fn a_request_is_carried_out_once_and_answered_as_often_as_it_is_asked() {
        let (answers, scope) = (Answers::default(), Arc::from("a"));
        let under_way = first(answers.claim(&scope, &RequestId::Number(1)).await);
        let again = answers.claim(&scope, &RequestId::Number(1));
        let other = first(answers.claim(&Arc::from("b"), &RequestId::Number(1)).await);
        let (again, ()) = tokio::join!(again, async { under_way.settle(Bytes::from_static(b"done")) });
        assert!(matches!(again, Claim::Known(answer) if answer == "done"));
        drop(other);
        first(answers.claim(&Arc::from("b"), &RequestId::Number(1)).await).settle(Bytes::new());
    }

    #[tokio::test]
    async fn only_the_last_are_remembered() {
        let (answers, scope) = (Answers::default(), Arc::from("a"));
        for number in 0..=REMEMBERED_ANSWERS as i64 {
            first(answers.claim(&scope, &RequestId::Number(number)).await).settle(Bytes::new());
        }
        assert!(matches!(answers.claim(&scope, &RequestId::Number(1)).await, Claim::Known(_)));
        drop(first(answers.claim(&scope, &RequestId::Number(0)).await));
    }
}
