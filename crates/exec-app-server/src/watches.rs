//! `fs/watch`: one task for each watch, which outlives the file it watches.
//!
//! ```text
//!   Present (a stream of changes) ── the file is gone or replaced ──► look again
//!      ▲                                                                │
//!      └────────── it exists ◄── Missing (wait until it may) ◄──────────┘
//! ```
//!
//! Codex's watch of a file ends silently when the file is replaced, which is how editors save. This one goes on.
//! Changes are collected for a moment and told together, sorted.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use exec_env::Files;
use exec_env::files::{Change, ChangeBatch, ChangeStream, FileError, FileReason, MissingPathWatch, WatchOptions};
use exec_wire::{RequestId, RpcError};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::files::checked;
use crate::limits::{CHANGED_PATHS, MISSING_PATH_PAUSE, WATCH_DEBOUNCE, WATCHES};
use crate::method;
use crate::native_path::NativePath;
use crate::outbox::Outbox;
use crate::reply;
use crate::shapes::{FsChanged, FsWatchParams, FsWatchResponse};

/// How the names of the files begin that an environment writes before it gives them their own name: nobody waits for those.
const OWN_TEMPORARY_FILE: &[u8] = b".exec-server-write-";

/// The watches of a connection.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    tasks: Mutex<HashMap<String, Option<JoinHandle<()>>>>,
}

impl Watches {
    /// Reserves the id.
    pub(crate) fn reserve(&self, id: &str) -> Result<(), RpcError> {
        let mut tasks = self.tasks.lock().expect("no holder of this lock panics");
        if tasks.contains_key(id) {
            return Err(reply::watch_exists(id));
        }
        if tasks.len() >= WATCHES {
            return Err(reply::too_many_watches());
        }
        tasks.insert(id.to_owned(), None);
        Ok(())
    }

    /// Begins a watch whose id is reserved, and answers: every change after the answer is told.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        files: Arc<dyn Files>,
        outbox: &Outbox,
        request: &RequestId,
        params: FsWatchParams,
    ) {
        let FsWatchParams { watch_id, path } = params;
        let watched = match Watched::begin(&*files, &path).await {
            Ok(watched) => watched,
            Err(error) => {
                self.forget(&watch_id);
                return outbox.refuse(request, &reply::file_failed(&error)).await;
            }
        };
        let root = path.clone();
        outbox.respond::<method::FsWatch>(request, Ok(FsWatchResponse { path })).await;
        let mut tasks = self.tasks.lock().expect("no holder of this lock panics");
        // It may have been ended while it was begun.
        if let Some(slot) = tasks.get_mut(&watch_id) {
            let (id, outbox) = (watch_id.clone(), outbox.clone());
            *slot = Some(tokio::spawn(async move { run(files, &root, watched, &id, &outbox).await }));
        }
    }

    /// Ends a watch, if there is one. Nothing is told of it afterwards.
    pub(crate) async fn unwatch(&self, id: &str) {
        let task = self.tasks.lock().expect("no holder of this lock panics").remove(id);
        if let Some(Some(task)) = task {
            end(task).await;
        }
    }

    pub(crate) async fn end_all(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().expect("no holder of this lock panics"));
        for task in tasks.into_values().flatten() {
            end(task).await;
        }
    }

    fn forget(&self, id: &str) {
        self.tasks.lock().expect("no holder of this lock panics").remove(id);
    }
}

async fn end(task: JoinHandle<()>) {
    task.abort();
    if let Err(error) = task.await
        && error.is_panic()
    {
        tracing::error!("a watch failed: {error}");
    }
}

/// What is watched at the moment.
enum Watched {
    Present(Box<dyn ChangeStream>),
    Missing(Option<Box<dyn MissingPathWatch>>),
    /// No file can have that path.
    Impossible,
}

impl Watched {
    /// Like Codex, a path that leads nowhere may be watched, whatever the reason: it may lead somewhere later.
    async fn begin(files: &dyn Files, root: &NativePath) -> Result<Self, FileError> {
        if checked(root).is_err() {
            return Ok(Self::Impossible);
        }
        let root = root.as_path();
        match files.watch(root, WatchOptions { recursive: false, ignore_files: false }).await {
            Ok(changes) => Ok(Self::Present(changes)),
            Err(error) if leads_nowhere(&error) => {
                // What cannot be waited for is looked for again and again.
                let missing = files.watch_missing(&[root.to_owned()], None).await.unwrap_or_default();
                Ok(Self::Missing(missing))
            }
            Err(error) => Err(error),
        }
    }

    async fn next(&mut self) -> Next {
        match self {
            Self::Present(changes) => match changes.next().await {
                Ok(Some(batch)) => Next::Changed(batch),
                Ok(None) => Next::LookAgain,
                Err(error) => Next::Failed(error),
            },
            Self::Missing(Some(missing)) => {
                missing.changed().await;
                Next::LookAgain
            }
            Self::Impossible => std::future::pending().await,
            Self::Missing(None) => {
                tokio::time::sleep(MISSING_PATH_PAUSE).await;
                Next::LookAgain
            }
        }
    }
}

enum Next {
    Changed(ChangeBatch),
    /// The file is gone, replaced, or there at last.
    LookAgain,
    Failed(FileError),
}

/// `ENOENT`, `EACCES`, `ENOTDIR`, `ENAMETOOLONG` or `ELOOP`; not that the kernel has no watches left.
fn leads_nowhere(error: &FileError) -> bool {
    matches!(error.reason, FileReason::Os(2 | 13 | 20 | 36 | 40))
}

async fn run(files: Arc<dyn Files>, root: &NativePath, mut watched: Watched, id: &str, outbox: &Outbox) {
    let mut changed = BTreeSet::new();
    let mut tell_at: Option<Instant> = None;
    loop {
        let due = async {
            match tell_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let next = tokio::select! {
            biased;
            () = due => None,
            next = watched.next() => Some(next),
        };
        match next {
            None => {
                tell_at = None;
                let paths = std::mem::take(&mut changed).into_iter();
                let changed_paths = paths.map(|path: PathBuf| path.to_string_lossy().into_owned()).collect();
                outbox.notify("fs/changed", FsChanged { watch_id: id, changed_paths }).await;
            }
            Some(Next::Changed(batch)) => collect(root.as_path(), batch, &mut changed),
            Some(Next::LookAgain) => {
                watched = match Watched::begin(&*files, root).await {
                    Ok(begun) => begun,
                    Err(error) => {
                        tracing::debug!("a watch cannot go on yet: {error}");
                        Watched::Missing(None)
                    }
                };
                if matches!(watched, Watched::Present(_)) {
                    changed.insert(root.as_path().to_owned());
                }
            }
            Some(Next::Failed(error)) => {
                tracing::debug!("a watch was interrupted: {error}");
                watched = Watched::Missing(None);
            }
        }
        if !changed.is_empty() {
            tell_at.get_or_insert_with(|| Instant::now() + WATCH_DEBOUNCE);
        }
    }
}

fn collect(root: &Path, batch: ChangeBatch, changed: &mut BTreeSet<PathBuf>) {
    let mut add = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(OWN_TEMPORARY_FILE) {
            return;
        }
        changed.insert(if changed.len() < CHANGED_PATHS { path } else { root.to_owned() });
    };
    for change in batch.changes {
        match change {
            Change::Created(path) | Change::Modified(path) | Change::Removed(path) => add(path),
            Change::Renamed { from, to } => {
                add(from);
                add(to);
            }
        }
    }
    batch.overflow.into_iter().for_each(add);
}
