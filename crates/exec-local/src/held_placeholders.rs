//! The placeholders that one process's sandbox needs, from its start until nobody of its tree is left.
//!
//! The process, the mover of its output and the task that looks for the end of its tree share them: whoever is first
//! removes them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use exec_keeper::protocol::ProcessNumber;

use crate::keeper_client::KeeperClient;
use crate::sandbox::PlaceholderGuard;

#[derive(Clone)]
pub(crate) struct HeldPlaceholders(Arc<Mutex<Option<PlaceholderGuard>>>);

impl HeldPlaceholders {
    pub(crate) fn new(placeholders: Option<PlaceholderGuard>) -> Self {
        Self(Arc::new(Mutex::new(placeholders)))
    }

    pub(crate) fn are_held(&self) -> bool {
        self.lock().is_some()
    }

    /// Its tree is gone.
    pub(crate) fn remove(&self) {
        drop(self.lock().take());
    }

    /// Removes them if the tree is gone; otherwise they are needed and stay.
    pub(crate) async fn remove_after(&self, number: ProcessNumber, keeper: &KeeperClient) {
        if !self.are_held() {
            return;
        }
        if keeper.members(number).await.is_ok_and(|pids| pids.is_empty()) {
            self.remove();
        }
    }

    /// The process lives on without us, and its placeholders with it.
    pub(crate) fn leave(&self) {
        std::mem::forget(self.lock().take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<PlaceholderGuard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
