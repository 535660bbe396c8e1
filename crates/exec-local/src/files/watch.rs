//! Watching files: the kernel's event queue (inotify), read when the caller asks.
//!
//! There is no task behind a watch. Until the caller asks, events wait in the kernel's queue. When that is full, the
//! kernel drops events and reports it, and the caller is told which root to read again.
//!
//! ```text
//! next() ─► queue empty? wait ─► drain (batch grows, new directories are watched) ─► silence, age or size? ─► batch
//! ```
//!
//! - `watched_tree`: from inotify events to changes, for a tree; with `change_batch` (no change is reported twice) and
//!   `ignore_rules` (which paths are left out);
//! - `missing`: paths that do not exist yet.

mod change_batch;
pub(super) mod ignore_rules;
mod missing;
mod watched_tree;

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use exec_env::files::limits::{BATCH_AGE, BATCH_SILENCE};
use exec_env::files::{
    ChangeBatch, ChangeStream, FileError, FileFuture, FileReason, FileVerb, WatchLimit, WatchOptions,
};
use rustix::fs::inotify;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

pub(super) use missing::watch_missing;

use super::blocking::PoolWithRights;
use super::policy::CallPolicy;
use super::resolve::{io, os};
use crate::descriptors::DescriptorPermit;
use watched_tree::{Drained, WatchedTree};

pub(super) async fn watch(
    policy: impl FnOnce() -> Result<CallPolicy, FileReason> + Send + 'static,
    root: PathBuf,
    options: WatchOptions,
    permit: Result<DescriptorPermit, FileReason>,
    long: &PoolWithRights,
    short: PoolWithRights,
) -> Result<LocalChangeStream, FileError> {
    let permit = permit.map_err(|reason| FileError::new(FileVerb::Watch, root.clone(), reason))?;
    let failed = {
        let root = root.clone();
        move |reason| FileError::new(FileVerb::Watch, root.clone(), reason)
    };
    let begun = long
        .run_prepared(policy, move |policy, cancel| {
            let policy = policy?;
            let queue = EventQueue::new(permit).map_err(watch_error)?;
            let tree = WatchedTree::watch(policy.clone(), &queue.descriptor, root, options, cancel);
            Ok((queue, tree.map_err(|errno| policy.explain(watch_error(errno)))?))
        })
        .await;
    let (queue, tree) = begun.map_err(os).flatten().map_err(&failed)?;
    Ok(LocalChangeStream {
        root: tree.root().to_owned(),
        queue: Arc::new(queue.into_async().map_err(|errno| failed(watch_error(errno)))?),
        tree: Arc::new(Mutex::new(tree)),
        pool: short,
    })
}

/// A watch of a tree.
pub(super) struct LocalChangeStream {
    root: PathBuf,
    queue: Arc<AsyncFd<EventQueue>>,
    /// Contains the changes since the last batch, so that a caller that stops waiting loses nothing.
    tree: Arc<Mutex<WatchedTree>>,
    pool: PoolWithRights,
}

impl LocalChangeStream {
    fn tree(&self) -> MutexGuard<'_, WatchedTree> {
        self.tree.lock().expect("no holder of this lock panics")
    }

    /// Reads the queue on a blocking thread, because a new directory has to be listed.
    async fn drain(&self) -> Result<Drained, FileError> {
        let (queue, tree) = (Arc::clone(&self.queue), Arc::clone(&self.tree));
        let drained = self
            .pool
            .run(move |_| {
                let mut tree = tree.lock().expect("no holder of this lock panics");
                tree.drain(&queue.get_ref().descriptor)
            })
            .await;
        drained.flatten().map_err(|errno| FileError::new(FileVerb::Watch, self.root.clone(), watch_error(errno)))
    }

    async fn next_batch(&self) -> Result<Option<ChangeBatch>, FileError> {
        let mut first: Option<Instant> = None;
        loop {
            let ready = match first {
                None if !self.tree().has_changes() => Some(self.queue.readable().await),
                _ => timeout(BATCH_SILENCE, self.queue.readable()).await.ok(),
            };
            let is_complete = match ready {
                None => {
                    self.tree().expire_rename(&self.queue.get_ref().descriptor);
                    true
                }
                Some(ready) => {
                    let failed = |error| FileError::new(FileVerb::Watch, self.root.clone(), io(&error));
                    let mut ready = ready.map_err(failed)?;
                    let drained = self.drain().await?;
                    if drained != Drained::Full {
                        // Clears only this readiness: if events came meanwhile, there is a newer one.
                        ready.clear_ready();
                    }
                    drained != Drained::Empty
                }
            };
            let age = first.get_or_insert_with(Instant::now).elapsed();
            if is_complete || age >= BATCH_AGE {
                let mut tree = self.tree();
                if let Some(batch) = tree.take_batch() {
                    return Ok(Some(batch));
                }
                if tree.is_gone() {
                    return Ok(None);
                }
                first = None;
            }
        }
    }
}

impl ChangeStream for LocalChangeStream {
    fn next(&mut self) -> FileFuture<'_, Option<ChangeBatch>> {
        Box::pin(async move {
            if self.tree().is_gone() {
                return Ok(self.tree().take_batch());
            }
            self.next_batch().await
        })
    }
}

/// A queue of the kernel's events, and the right to have it open, which ends after it.
struct EventQueue {
    descriptor: OwnedFd,
    _permit: DescriptorPermit,
}

impl EventQueue {
    fn new(permit: DescriptorPermit) -> Result<Self, Errno> {
        let descriptor = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        Ok(Self { descriptor, _permit: permit })
    }

    /// Registers it with the runtime.
    fn into_async(self) -> Result<AsyncFd<Self>, Errno> {
        AsyncFd::with_interest(self, tokio::io::Interest::READABLE)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl AsRawFd for EventQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// The kernel reports its two limits on watches with errors that usually mean something else.
fn watch_error(errno: Errno) -> FileReason {
    match errno {
        Errno::NOSPC => FileReason::WatchLimit(WatchLimit::Watches),
        Errno::MFILE => FileReason::WatchLimit(WatchLimit::Instances),
        other => os(other),
    }
}
