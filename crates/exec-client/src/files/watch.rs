//! Watches on the server.
//!
//! A watch belongs to its connection. After a break it is set up again, and the caller is told to read the root once more,
//! exactly as when the kernel could not keep up, because nobody has seen what happened meanwhile.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use exec_env::BoxFuture;
use exec_env::files::{ChangeBatch, ChangeStream, FileError, FileFuture, FileVerb, MissingPathWatch, WatchOptions};
use exec_wire::NotificationMethod;
use exec_wire::fs as wire;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{FilesLink, Operation, send_detached, unique_id};
use crate::convert;
use crate::limits::NOTIFICATION_QUEUE;
use crate::link::{Notification, next_params};

pub(super) async fn watch(
    link: FilesLink,
    root: PathBuf,
    options: WatchOptions,
) -> Result<Box<dyn ChangeStream>, FileError> {
    let subscription = subscribe(link.clone(), root.clone(), options).await?;
    Ok(Box::new(RemoteChanges { link, root, options, state: WatchState::Watching(subscription) }))
}

/// The notifications of one watch on one connection. Dropping it ends the watch.
struct WatchSubscription {
    link: FilesLink,
    watch_id: String,
    notifications: mpsc::Receiver<Notification>,
}

impl Drop for WatchSubscription {
    fn drop(&mut self) {
        send_detached(&self.link, wire::UnwatchParams { watch_id: std::mem::take(&mut self.watch_id) });
    }
}

impl WatchSubscription {
    async fn next(&mut self) -> Option<wire::ChangedParams> {
        next_params(&mut self.notifications, |changed: &wire::ChangedParams| changed.watch_id == self.watch_id).await
    }
}

async fn subscribe(link: FilesLink, root: PathBuf, options: WatchOptions) -> Result<WatchSubscription, FileError> {
    let operation = Operation { link: &link, verb: FileVerb::Watch, path: &root };
    let path = operation.uri()?;
    loop {
        // We subscribe before the call, or the first change could be missed.
        let watch_id = unique_id();
        let notifications = link.subscribe(&[NotificationMethod::FsChanged], Some(&watch_id), NOTIFICATION_QUEUE);
        let params = wire::WatchParams {
            watch_id: watch_id.clone(),
            path: path.clone(),
            recursive: Some(options.recursive),
            ignore_files: options.ignore_files,
            sandbox: operation.sandbox()?,
        };
        operation.call(&params).await?;
        let subscription = WatchSubscription { link: link.clone(), watch_id, notifications };
        // If it is closed, the connection broke during the call. The watch is then on the new one, without a subscriber.
        if !subscription.notifications.is_closed() {
            return Ok(subscription);
        }
    }
}

struct RemoteChanges {
    link: FilesLink,
    root: PathBuf,
    options: WatchOptions,
    state: WatchState,
}

enum WatchState {
    Watching(WatchSubscription),
    /// Kept here, so that a caller that stops waiting does not cancel it.
    Resubscribing(BoxFuture<'static, Result<WatchSubscription, FileError>>),
    Ended,
}

impl ChangeStream for RemoteChanges {
    fn next(&mut self) -> FileFuture<'_, Option<ChangeBatch>> {
        Box::pin(async move {
            loop {
                match &mut self.state {
                    WatchState::Ended => return Ok(None),
                    WatchState::Watching(subscription) => match subscription.next().await {
                        Some(changed) if changed.ended => {
                            self.state = WatchState::Ended;
                            let ChangeBatch { overflow, .. } = convert::change_batch(changed);
                            return Ok(overflow.is_some().then(|| ChangeBatch { changes: Vec::new(), overflow }));
                        }
                        Some(changed) => return Ok(Some(convert::change_batch(changed))),
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
                            self.state = WatchState::Ended;
                            // The root was removed while there was no connection.
                            return if error.is_not_found() { Ok(None) } else { Err(error) };
                        }
                    },
                }
            }
        })
    }
}

/// Watches for paths that do not exist yet. The wire has one such watch per connection, so that a newer one replaces the
/// last, whose owner is then told that its paths may exist.
#[derive(Debug, Default)]
pub(super) struct MissingWatches {
    last: Mutex<(u64, CancellationToken)>,
}

impl MissingWatches {
    pub(super) async fn watch(
        &self,
        link: &FilesLink,
        missing: &[PathBuf],
        present: Option<&Path>,
    ) -> Result<Option<Box<dyn MissingPathWatch>>, FileError> {
        let path = missing.first().map_or(Path::new("/"), PathBuf::as_path);
        let operation = Operation { link, verb: FileVerb::Watch, path };
        let (watch_id, replaced) = self.replace();
        let params = wire::WatchMissingParams {
            watch_id,
            missing: missing.iter().map(|path| operation.uri_of(path)).collect::<Result<_, _>>()?,
            present: present.map(|path| operation.uri_of(path)).transpose()?,
            sandbox: operation.sandbox()?,
        };
        let notifications =
            link.subscribe(&[NotificationMethod::FsMissingChanged], Some(&watch_id.to_string()), NOTIFICATION_QUEUE);
        let answer = operation.call(&params).await?;
        Ok(answer
            .watching
            .then(|| Box::new(RemoteMissing { watch_id, notifications, replaced }) as Box<dyn MissingPathWatch>))
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
            let is_ours = |changed: &wire::MissingChangedParams| changed.watch_id == self.watch_id;
            // A connection that broke may have lost the notification, so the end of the subscription counts as a change.
            self.replaced.run_until_cancelled(next_params(&mut self.notifications, is_ours)).await;
        })
    }
}
