//! Watches: as a stream, and by polling.
//!
//! The environment tells changes in batches. What it could not tell, because too much happened, is the failure `data_loss` of the
//! stream or of the poll: the caller lists the directory, and watches on.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exec_env::files::{Change, ChangeBatch, ChangeStream, FileError, FileKind, LinkPolicy, WatchOptions};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Call;
use super::entry::entry;
use crate::connect;
use crate::error::{Code, ServiceError};
use crate::limits::{LOOKS_AT_ONCE, POLLED_EVENTS, WATCH_POLL_WAIT, WATCHERS};
use crate::request_body::{BodyPieces, RequestBody};
use crate::response::{self, HttpResponse};
use crate::sandbox::{Sandbox, UserFiles};

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WatchRequest {
    path: String,
    recursive: bool,
    include_entry: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WatcherRequest {
    watcher_id: String,
}

/// A watch that is polled. Changes wait in the environment's queue until somebody asks; that queue is bounded and tells.
pub(crate) struct Watcher {
    /// One poll at a time.
    watch: tokio::sync::Mutex<Watch>,
}

struct Watch {
    directory: WatchedDirectory,
    changes: Box<dyn ChangeStream>,
}

/// What is watched, and how it is told.
struct WatchedDirectory {
    /// As whoever watches has them.
    files: UserFiles,
    root: PathBuf,
    include_entry: bool,
}

impl Watch {
    async fn open(call: &Call, request: WatchRequest) -> Result<Self, ServiceError> {
        let files = call.files().await?;
        let root = files.resolve(&request.path).await?;
        let metadata = files.metadata(&root, LinkPolicy::Follow).await?;
        if metadata.kind != FileKind::Directory {
            return Err(ServiceError::invalid(format!("path is not a directory: {}", root.display())));
        }
        let options = WatchOptions { recursive: request.recursive, ignore_files: false };
        let changes = files.watch(&root, options).await?;
        Ok(Self { directory: WatchedDirectory { files, root, include_entry: request.include_entry }, changes })
    }
}

impl WatchedDirectory {
    /// The events of a batch; nothing of it is told if a part was lost.
    async fn events(&self, sandbox: &Sandbox, batch: ChangeBatch) -> Result<Vec<Value>, ServiceError> {
        if let Some(lost) = batch.overflow {
            let message = format!(
                "more changed in {} than could be told: list it to see what is there; the watch goes on",
                lost.display()
            );
            return Err(ServiceError::new(Code::DataLoss, message));
        }
        // A flood is told in order, but each file in it is not looked at only after the one before.
        let told = stream::iter(batch.changes).map(|change| self.told(sandbox, change)).buffered(LOOKS_AT_ONCE);
        Ok(told.concat().await)
    }

    /// The events of one change.
    async fn told(&self, sandbox: &Sandbox, change: Change) -> Vec<Value> {
        let mut events = Vec::new();
        match change {
            Change::Created(path) => {
                self.push(sandbox, &mut events, "EVENT_TYPE_CREATE", &path).await;
                // The environment tells one that was made and written at once as made.
                if has_content(&self.files, &path).await {
                    self.push(sandbox, &mut events, "EVENT_TYPE_WRITE", &path).await;
                }
            }
            Change::Removed(path) => self.push(sandbox, &mut events, "EVENT_TYPE_REMOVE", &path).await,
            // The old name is renamed, and the new one appears.
            Change::Renamed { from, to } => {
                self.push(sandbox, &mut events, "EVENT_TYPE_RENAME", &from).await;
                self.push(sandbox, &mut events, "EVENT_TYPE_CREATE", &to).await;
            }
            Change::Modified(path) => {
                let kind = modification(&self.files, &path).await;
                self.push(sandbox, &mut events, kind, &path).await;
            }
        }
        events
    }

    async fn push(&self, sandbox: &Sandbox, events: &mut Vec<Value>, kind: &str, path: &Path) {
        let Ok(name) = path.strip_prefix(&self.root) else { return };
        if name.as_os_str().is_empty() {
            return;
        }
        let mut event = json!({ "name": name.to_string_lossy(), "type": kind });
        if self.include_entry
            && let Ok(entry) = entry(sandbox, &self.files, path).await
        {
            event["entry"] = entry;
        }
        events.push(event);
    }
}

async fn has_content(files: &UserFiles, path: &Path) -> bool {
    let metadata = files.metadata(path, LinkPolicy::Follow).await;
    metadata.is_ok_and(|metadata| metadata.kind == FileKind::File && !metadata.is_symlink && metadata.size_bytes > 0)
}

/// The kernel's queue has one kind for contents and one for the rest, and the environment tells both as one. A file whose
/// metadata changed after its contents did was not written last.
async fn modification(files: &UserFiles, path: &Path) -> &'static str {
    match files.metadata(path, LinkPolicy::Follow).await {
        Ok(metadata) if metadata.changed > metadata.modified => "EVENT_TYPE_CHMOD",
        _ => "EVENT_TYPE_WRITE",
    }
}

pub(super) async fn create(call: &Call, request: WatchRequest) -> Result<Value, ServiceError> {
    let full = || {
        let message = format!("this sandbox has {WATCHERS} watchers already: stop some");
        ServiceError::new(Code::ResourceExhausted, message)
    };
    let count = || call.sandbox.watchers.lock().unwrap_or_else(PoisonError::into_inner).len();
    if count() >= WATCHERS {
        return Err(full());
    }
    let watcher = Arc::new(Watcher { watch: tokio::sync::Mutex::new(Watch::open(call, request).await?) });
    let id = uuid::Uuid::new_v4().simple().to_string();
    let mut watchers = call.sandbox.watchers.lock().unwrap_or_else(PoisonError::into_inner);
    if watchers.len() >= WATCHERS {
        return Err(full());
    }
    watchers.insert(id.clone(), watcher);
    Ok(json!({ "watcherId": id }))
}

pub(super) async fn poll(call: &Call, request: WatcherRequest) -> Result<Value, ServiceError> {
    let watcher = {
        let watchers = call.sandbox.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.get(&request.watcher_id).cloned()
    };
    let watcher = watcher.ok_or_else(|| unknown_watcher(&request.watcher_id))?;
    let mut watch = watcher.watch.lock().await;
    let mut events = Vec::new();
    // A directory that changes all the time must not keep the caller.
    let deadline = Instant::now() + 2 * WATCH_POLL_WAIT;
    while events.len() < POLLED_EVENTS {
        // What was changed before the call may still be on its way. A cancelled wait loses nothing.
        let until = deadline.min(Instant::now() + WATCH_POLL_WAIT);
        match tokio::time::timeout_at(until, watch.changes.next()).await {
            Err(_) => break,
            Ok(Ok(Some(batch))) => events.extend(watch.directory.events(&call.sandbox, batch).await?),
            Ok(Ok(None)) if events.is_empty() => return Err(root_gone(&watch.directory.root)),
            Ok(Ok(None)) => break,
            Ok(Err(error)) => return Err(error.into()),
        }
    }
    Ok(json!({ "events": events }))
}

pub(super) async fn remove(call: &Call, request: WatcherRequest) -> Result<Value, ServiceError> {
    let removed = call.sandbox.watchers.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.watcher_id);
    removed.map(|_| json!({})).ok_or_else(|| unknown_watcher(&request.watcher_id))
}

fn unknown_watcher(id: &str) -> ServiceError {
    ServiceError::new(
        Code::NotFound,
        format!("watcher with id {id:?} not found: it was stopped, or made before a restart"),
    )
}

fn root_gone(root: &Path) -> ServiceError {
    ServiceError::new(Code::NotFound, format!("{} is gone, and so is its watch", root.display()))
}

/// A watch as a stream.
pub(super) async fn watch_dir(call: Call, body: RequestBody) -> Result<HttpResponse, ServiceError> {
    let request = call.messages(BodyPieces::new(body)).only().await?;
    let watch = Watch::open(&call, request).await?;
    let stream = WatchStream {
        sandbox: Arc::clone(&call.sandbox),
        watch,
        keepalive: connect::keepalive(&call.headers),
        deadline: connect::deadline(&call.headers)?.map(|deadline| Instant::now() + deadline),
        state: State::New,
    };
    let pieces = futures_util::stream::unfold(stream, |mut stream| async move {
        let piece = stream.next_piece().await?;
        Some((Ok(piece), stream))
    });
    Ok(response::streamed(connect::STREAM_TYPE, pieces))
}

struct WatchStream {
    sandbox: Arc<Sandbox>,
    watch: Watch,
    keepalive: Duration,
    deadline: Option<Instant>,
    state: State,
}

enum State {
    New,
    Watching,
    Ended,
}

enum Event {
    Changed(Result<Option<ChangeBatch>, FileError>),
    Silence,
    Deadline,
    SandboxEnded,
}

impl WatchStream {
    /// Some whole messages; `None` after the last.
    async fn next_piece(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        match self.state {
            State::Ended => return None,
            State::New => {
                connect::put_message(&mut out, br#"{"start":{}}"#);
                self.state = State::Watching;
            }
            State::Watching => {
                let event = self.next_event().await;
                if let Err(error) = self.handle(event, &mut out).await {
                    connect::put_end(&mut out, Some(&error));
                    self.state = State::Ended;
                }
            }
        }
        Some(out.into())
    }

    async fn next_event(&mut self) -> Event {
        let deadline = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            batch = self.watch.changes.next() => Event::Changed(batch),
            () = tokio::time::sleep(self.keepalive) => Event::Silence,
            () = deadline => Event::Deadline,
            () = self.sandbox.ended.cancelled() => Event::SandboxEnded,
        }
    }

    async fn handle(&mut self, event: Event, out: &mut Vec<u8>) -> Result<(), ServiceError> {
        match event {
            Event::Silence => connect::put_message(out, br#"{"keepalive":{}}"#),
            Event::Deadline => {
                return Err(ServiceError::new(Code::DeadlineExceeded, "the watch was given this much time"));
            }
            Event::SandboxEnded => return Err(ServiceError::sandbox_gone(&self.sandbox.id())),
            Event::Changed(batch) => match batch? {
                Some(batch) => {
                    for event in self.watch.directory.events(&self.sandbox, batch).await? {
                        connect::put_message(out, json!({ "filesystem": event }).to_string().as_bytes());
                    }
                }
                None => return Err(root_gone(&self.watch.directory.root)),
            },
        }
        Ok(())
    }
}
