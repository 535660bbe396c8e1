//! Watches: the kernel's event queue, read when somebody asks.
//!
//! There is no task behind a watch. While nobody asks, events wait in the kernel's queue; when that is full the kernel
//! drops and says so, and we pass it on with the root to look through again.
//!
//! ```text
//! next() ─► queue empty? wait ─► drain (batch grows, new directories are entered) ─► silence, age or size? ─► batch
//! ```

mod change_batch;
mod ignore_rules;
mod missing;
mod watched_tree;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
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

use super::blocking::BlockingPool;
use super::resolve::os;
use watched_tree::{Drained, WatchedTree};

/// Begins to watch `root`.
pub(super) async fn watch(
    root: PathBuf,
    options: WatchOptions,
    long: &BlockingPool,
    short: BlockingPool,
) -> Result<LocalChangeStream, FileError> {
    let failed = {
        let root = root.clone();
        move |errno| FileError::new(FileVerb::Watch, root.clone(), watch_error(errno))
    };
    let begun = long
        .run(move |cancel| {
            let queue = queue()?;
            let tree = WatchedTree::watch(&queue, root, options, cancel)?;
            Ok((queue, tree))
        })
        .await;
    let (queue, tree) = begun.map_err(&failed)?;
    Ok(LocalChangeStream {
        root: tree.root().to_owned(),
        queue: Arc::new(async_queue(queue).map_err(failed)?),
        tree: Arc::new(Mutex::new(tree)),
        pool: short,
    })
}

/// A watch of this machine.
pub(super) struct LocalChangeStream {
    root: PathBuf,
    queue: Arc<AsyncFd<OwnedFd>>,
    /// Everything gathered so far is in here, so that a caller who stops waiting loses nothing.
    tree: Arc<Mutex<WatchedTree>>,
    pool: BlockingPool,
}

impl LocalChangeStream {
    fn tree(&self) -> MutexGuard<'_, WatchedTree> {
        self.tree.lock().expect("no holder of this lock panics")
    }

    /// Reads what the queue holds, off the runtime: a new directory has to be looked through.
    async fn drain(&self) -> Result<Drained, FileError> {
        let (queue, tree) = (Arc::clone(&self.queue), Arc::clone(&self.tree));
        let drained = self
            .pool
            .run(move |_| {
                let mut tree = tree.lock().expect("no holder of this lock panics");
                tree.drain(queue.get_ref())
            })
            .await;
        drained.map_err(|errno| FileError::new(FileVerb::Watch, self.root.clone(), watch_error(errno)))
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
                    self.tree().expire_rename(self.queue.get_ref());
                    true
                }
                Some(ready) => {
                    let mut ready = ready.map_err(|error| {
                        let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                        FileError::new(FileVerb::Watch, self.root.clone(), FileReason::Os(errno))
                    })?;
                    let drained = self.drain().await?;
                    if drained != Drained::Full {
                        // Only if nothing came since: readiness that is newer than `ready` stays.
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

/// A new event queue.
fn queue() -> Result<OwnedFd, Errno> {
    inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
}

/// The same, known to the runtime.
fn async_queue(queue: OwnedFd) -> Result<AsyncFd<OwnedFd>, Errno> {
    AsyncFd::with_interest(queue, tokio::io::Interest::READABLE)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The kernel's two limits on watches wear the clothes of other errors.
fn watch_error(errno: Errno) -> FileReason {
    match errno {
        Errno::NOSPC => FileReason::WatchLimit(WatchLimit::Watches),
        Errno::MFILE => FileReason::WatchLimit(WatchLimit::Instances),
        other => os(other),
    }
}

/// Watches one path and answers with its number.
fn add_watch(queue: &OwnedFd, path: &Path, flags: inotify::WatchFlags) -> Result<i32, Errno> {
    inotify::add_watch(queue, path, flags)
}
