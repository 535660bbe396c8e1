//! Watches at the far end.
//!
//! A watch belongs to its connection. After a break it is set up again, and the caller is told to look through the root
//! once more, exactly as when the kernel could not keep up: what happened meanwhile, nobody has seen.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use exec_env::BoxFuture;
use exec_env::files::{ChangeBatch, ChangeStream, FileError, FileFuture, MissingPathWatch, FileVerb, WatchOptions};
use exec_wire::NotificationMethod;
use exec_wire::fs as wire;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Operation, call, send_detached, unique_id, uri};
use crate::convert;
use crate::limits::NOTIFICATION_QUEUE;
use crate::link::{Link, Notification};
use crate::retry::RetryPolicy;

/// Begins one.
pub(super) async fn watch(link: Link, root: PathBuf, options: WatchOptions) -> Result<Box<dyn ChangeStream>, FileError> {
    let subscription = subscribe(link.clone(), root.clone(), options).await?;
    Ok(Box::new(RemoteChanges { link, root, options, state: WatchState::Watching(subscription) }))
}

/// The notifications of one watch on one connection. Dropping it ends the watch.
struct WatchSubscription {
    link: Link,
    watch_id: String,
    notifications: mpsc::Receiver<Notification>,
}

impl Drop for WatchSubscription {
    fn drop(&mut self) {
        send_detached(&self.link, wire::UnwatchParams { watch_id: std::mem::take(&mut self.watch_id) });
    }
}

async fn subscribe(link: Link, root: PathBuf, options: WatchOptions) -> Result<WatchSubscription, FileError> {
    let operation = Operation::new(FileVerb::Watch, &root);
    let path = operation.uri()?;
    loop {
        // Listening begins before the question, or the first change could be missed.
        let watch_id = unique_id();
        let notifications = link.subscribe_to_id(NotificationMethod::FsChanged, &watch_id, NOTIFICATION_QUEUE);
        let params = wire::WatchParams {
            watch_id: watch_id.clone(),
            path: path.clone(),
            recursive: Some(options.recursive),
            ignore_files: options.ignore_files,
            sandbox: None,
        };
        call(&link, operation, &params, RetryPolicy::Always).await?;
        let subscription = WatchSubscription { link: link.clone(), watch_id, notifications };
        // The connection broke while it was asked: then it is asked on the new one, and nobody listens there yet.
        if !subscription.notifications.is_closed() {
            return Ok(subscription);
        }
    }
}

struct RemoteChanges {
    link: Link,
    root: PathBuf,
    options: WatchOptions,
    state: WatchState,
}

enum WatchState {
    Watching(WatchSubscription),
    /// Kept here, so that whoever stops waiting does not stop it.
    Resubscribing(BoxFuture<'static, Result<WatchSubscription, FileError>>),
    Over,
}

impl ChangeStream for RemoteChanges {
    fn next(&mut self) -> FileFuture<'_, Option<ChangeBatch>> {
        Box::pin(async move {
            loop {
                match &mut self.state {
                    WatchState::Over => return Ok(None),
                    WatchState::Watching(subscription) => match next_change(subscription).await {
                        Some(changed) if changed.ended => {
                            self.state = WatchState::Over;
                            let (_, overflow) = convert::changes(changed);
                            return Ok(overflow.map(|root| ChangeBatch { changes: Vec::new(), overflow: Some(root) }));
                        }
                        Some(changed) => {
                            let (changes, overflow) = convert::changes(changed);
                            return Ok(Some(ChangeBatch { changes, overflow }));
                        }
                        None => {
                            let again = subscribe(self.link.clone(), self.root.clone(), self.options);
                            self.state = WatchState::Resubscribing(Box::pin(again));
                        }
                    },
                    WatchState::Resubscribing(again) => match again.await {
                        Ok(subscription) => {
                            self.state = WatchState::Watching(subscription);
                            let overflow = Some(self.root.clone());
                            return Ok(Some(ChangeBatch { changes: Vec::new(), overflow }));
                        }
                        Err(error) => {
                            self.state = WatchState::Over;
                            // The root went while nobody looked.
                            return if error.is_not_found() { Ok(None) } else { Err(error) };
                        }
                    },
                }
            }
        })
    }
}

/// The next word about this watch; `None` if none will come.
async fn next_change(subscription: &mut WatchSubscription) -> Option<wire::ChangedParams> {
    loop {
        let notification = subscription.notifications.recv().await?;
        match notification.params.decode::<wire::ChangedParams>() {
            Ok(changed) if changed.watch_id == subscription.watch_id => return Some(changed),
            _ => {}
        }
    }
}

/// Watches for what is missing. The wire has one per connection, so that a newer one takes the place of the last, which
/// is then told that something might have come.
#[derive(Debug, Default)]
pub(super) struct MissingWatches {
    last: Mutex<(u64, CancellationToken)>,
}

impl MissingWatches {
    pub(super) async fn watch(
        &self,
        link: &Link,
        missing: &[PathBuf],
        present: Option<&Path>,
    ) -> Result<Option<Box<dyn MissingPathWatch>>, FileError> {
        let operation = Operation::new(FileVerb::Watch, missing.first().map_or(Path::new("/"), PathBuf::as_path));
        let (watch_id, replaced) = self.replace();
        let params = wire::WatchMissingParams {
            watch_id,
            missing: missing.iter().map(|path| uri(operation, path)).collect::<Result<_, _>>()?,
            present: present.map(|path| uri(operation, path)).transpose()?,
        };
        let notifications =
            link.subscribe_to_id(NotificationMethod::FsMissingChanged, &watch_id.to_string(), NOTIFICATION_QUEUE);
        let answer = call(link, operation, &params, RetryPolicy::Always).await?;
        Ok(answer.watching.then(|| Box::new(RemoteMissing { watch_id, notifications, replaced }) as Box<dyn MissingPathWatch>))
    }

    fn replace(&self) -> (u64, CancellationToken) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.1.cancel();
        *last = (last.0 + 1, CancellationToken::new());
        last.clone()
    }
}

struct RemoteMissing {
    watch_id: u64,
    notifications: mpsc::Receiver<Notification>,
    replaced: CancellationToken,
}

impl MissingPathWatch for RemoteMissing {
    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let changed = async {
                // A connection that broke may have taken the word with it: something might have come.
                while let Some(notification) = self.notifications.recv().await {
                    let changed = notification.params.decode::<wire::MissingChangedParams>();
                    if changed.is_ok_and(|changed| changed.watch_id == self.watch_id) {
                        break;
                    }
                }
            };
            self.replaced.run_until_cancelled(changed).await;
        })
    }
}
