//! What the server notifies, on its way to those who have subscribed to it: bounded in number and bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use exec_wire::{NotificationMethod, SharedJson};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::limits::NOTIFICATION_BYTES;

/// A notification of the server, as subscribers get it.
#[derive(Debug, Clone)]
pub struct Notification {
    /// Its method, one of those that were subscribed to.
    pub method: NotificationMethod,
    /// Its params, not yet decoded.
    pub params: SharedJson,
    _waiting: Arc<WaitingBytes>,
}

/// What a notification adds to those of its subscription that wait; until it is dropped.
#[derive(Debug)]
struct WaitingBytes {
    waiting: Arc<AtomicUsize>,
    bytes: usize,
}

impl WaitingBytes {
    /// `None` if too much waits already.
    fn add(waiting: &Arc<AtomicUsize>, bytes: usize) -> Option<Self> {
        // Only the holder of the link's lock adds.
        if waiting.load(Ordering::Relaxed) + bytes > NOTIFICATION_BYTES {
            return None;
        }
        waiting.fetch_add(bytes, Ordering::Relaxed);
        Some(Self { waiting: Arc::clone(waiting), bytes })
    }
}

impl Drop for WaitingBytes {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Receives the params of the next notification that can be decoded and for which `is_wanted` holds; `None` at the end of
/// the subscription.
pub(crate) async fn next_params<P: DeserializeOwned>(
    notifications: &mut mpsc::Receiver<Notification>,
    is_wanted: impl Fn(&P) -> bool,
) -> Option<P> {
    loop {
        match notifications.recv().await?.params.decode() {
            Ok(params) if is_wanted(&params) => return Some(params),
            _ => {}
        }
    }
}

/// Who has subscribed to notifications.
#[derive(Debug)]
pub(super) struct Subscriber {
    methods: Box<[NotificationMethod]>,
    /// Only notifications about the watch, search, body or copy with this id; all of them if `None`.
    about: Option<String>,
    sender: mpsc::Sender<Notification>,
    /// Bytes of the messages that it has not received yet.
    waiting: Arc<AtomicUsize>,
}

impl Subscriber {
    pub(super) fn new(methods: &[NotificationMethod], about: Option<&str>, sender: mpsc::Sender<Notification>) -> Self {
        Self { methods: methods.into(), about: about.map(str::to_owned), sender, waiting: Arc::default() }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }

    pub(super) fn is_concerned(&self, method: NotificationMethod, about: Option<&str>) -> bool {
        self.methods.contains(&method) && self.about.as_deref().is_none_or(|wanted| about == Some(wanted))
    }

    /// `false` if the subscription must end.
    pub(super) fn send(&self, method: NotificationMethod, params: &SharedJson, frame_bytes: usize) -> bool {
        let Some(waiting) = WaitingBytes::add(&self.waiting, frame_bytes) else { return false };
        self.sender.try_send(Notification { method, params: params.clone(), _waiting: Arc::new(waiting) }).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use exec_wire::RawJson;

    use super::*;

    #[test]
    fn a_subscription_holds_so_many_bytes_and_ends_with_the_next_one_unless_some_were_received() {
        let (sender, mut notifications) = mpsc::channel(1024);
        let subscriber = Subscriber::new(&[NotificationMethod::HttpBodyDelta], None, sender);
        let params = SharedJson::new(&Bytes::from_static(b"null"), RawJson::NULL);
        let send = |bytes| subscriber.send(NotificationMethod::HttpBodyDelta, &params, bytes);
        assert!(send(NOTIFICATION_BYTES - 1) && send(1));
        drop(notifications.try_recv().expect("two wait"));
        assert!(send(NOTIFICATION_BYTES - 1), "the largest was received");
        assert!(!send(1), "there is no room");
        let left = std::iter::from_fn(|| notifications.try_recv().ok()).count();
        assert_eq!(left, 2, "what was received before is not lost");
    }
}
