//! Files: from the wire's verbs to the environment's.
//!
//! Reading order: what a call may do at all ([`permission`]), contents ([`content`]), names and trees ([`tree`]), what
//! goes on for longer ([`watch`], [`search`]).

pub(crate) mod content;
pub(super) mod permission;
pub(crate) mod search;
pub(crate) mod tree;
pub(crate) mod watch;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use exec_env::Files;
use exec_transport::Message;
use exec_wire::envelope;
use exec_wire::error::RpcError;
use exec_wire::{NotificationParams, PathUri};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use crate::connection::Desk;
use crate::dispatch::Counter;
use crate::limits::SMALL_ANSWER_BYTES;
use crate::mailroom::Post;
use crate::reply;

impl Counter {
    pub(super) fn files(&self) -> &dyn Files {
        self.desk.server().environment().files()
    }
}

/// The path on this machine.
fn native(path: &PathUri) -> Result<PathBuf, RpcError> {
    let path = path.to_path().map_err(|foreign| reply::foreign_path(&foreign))?;
    match path.as_os_str().as_bytes().contains(&0) {
        true => Err(reply::nul_in_path()),
        false => Ok(path),
    }
}

/// The voice of something that goes on after its answer: one message under way at a time, none before the answer.
pub(super) struct Voice {
    desk: Arc<Desk>,
    turn: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Voice {
    /// Waits for the answer to be on its way; `None` if it shall stop before that. The post belongs behind the answer.
    pub(super) fn after_the_answer(desk: Arc<Desk>, stop: CancellationToken) -> (Later, Post) {
        let (begin, answered) = oneshot::channel();
        (Later { voice: Self::before_the_answer(desk, stop), answered }, Post::Begin(begin))
    }

    /// One that has something to say before its answer.
    pub(super) fn before_the_answer(desk: Arc<Desk>, stop: CancellationToken) -> Self {
        Self { desk, turn: Arc::new(Semaphore::new(1)), stop }
    }

    /// Says something, once what was said before is on its way. Whether to go on.
    pub(super) async fn say<N: NotificationParams>(&self, params: &N) -> bool {
        let turn = self.turn.clone().acquire_owned();
        let Some(Ok(turn)) = self.stop.run_until_cancelled(turn).await else { return false };
        let mut out = Vec::new();
        envelope::write_notification(&mut out, N::METHOD.name(), params, self.desk.jsonrpc());
        if out.len() <= SMALL_ANSWER_BYTES {
            self.desk.post(Post::Message(Bytes::from(out), Some((turn, None))));
            return true;
        }
        // The message exists already, so that only further ones wait; each source has one at the most.
        let room = self.stop.run_until_cancelled(self.desk.room(out.len() / 4 * 3)).await;
        let Some(room) = room else { return false };
        self.desk.post(Post::Bulk(Message::Text(Bytes::from(out)), Some((turn, room))));
        true
    }

    /// Waits until the last word is on its way, so that nothing is said after the answer to whoever stopped it.
    pub(super) async fn settle(self) {
        // Never closed; and the permit comes back when the connection is gone.
        let _ = self.turn.acquire().await;
    }

    /// What `work` gives, unless it shall stop first.
    pub(super) async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.stop.run_until_cancelled(work).await
    }
}

/// A voice that has to wait.
pub(super) struct Later {
    voice: Voice,
    answered: oneshot::Receiver<()>,
}

impl Later {
    pub(super) async fn begin(self) -> Option<Voice> {
        match self.voice.stop.run_until_cancelled(self.answered).await {
            Some(Ok(())) => Some(self.voice),
            // Nobody was told that it is there.
            Some(Err(_)) | None => None,
        }
    }
}
