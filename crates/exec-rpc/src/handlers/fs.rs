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

use crate::connection::ConnectionShared;
use crate::dispatch::RequestContext;
use crate::limits::SMALL_MESSAGE_BYTES;
use crate::reply;
use crate::writer::WriterCommand;

impl RequestContext {
    pub(super) fn files(&self) -> &dyn Files {
        self.connection.server().environment().files()
    }
}

/// The path on this machine.
fn native_path(path: &PathUri) -> Result<PathBuf, RpcError> {
    let path = path.to_path().map_err(|foreign| reply::foreign_path(&foreign))?;
    match path.as_os_str().as_bytes().contains(&0) {
        true => Err(reply::nul_in_path()),
        false => Ok(path),
    }
}

/// The sender of something that goes on after its answer: one message under way at a time, none before the answer.
pub(super) struct NotificationSender {
    connection: Arc<ConnectionShared>,
    turn: Arc<Semaphore>,
    stop: CancellationToken,
}

impl NotificationSender {
    /// Waits for the answer to be on its way; `None` if it shall stop before that. The post belongs behind the answer.
    pub(super) fn after_response(
        connection: Arc<ConnectionShared>,
        stop: CancellationToken,
    ) -> (DeferredSender, WriterCommand) {
        let (reached, response_sent) = oneshot::channel();
        (DeferredSender { sender: Self::new(connection, stop), response_sent }, WriterCommand::Barrier(reached))
    }

    /// One that has something to say before its answer.
    pub(super) fn new(connection: Arc<ConnectionShared>, stop: CancellationToken) -> Self {
        Self { connection, turn: Arc::new(Semaphore::new(1)), stop }
    }

    /// Says something, once what was said before is on its way. Whether to go on.
    pub(super) async fn send<N: NotificationParams>(&self, params: &N) -> bool {
        let turn = self.turn.clone().acquire_owned();
        let Some(Ok(turn)) = self.stop.run_until_cancelled(turn).await else { return false };
        let mut out = Vec::new();
        envelope::write_notification(&mut out, N::METHOD.name(), params, self.connection.jsonrpc());
        if out.len() <= SMALL_MESSAGE_BYTES {
            self.connection.send(WriterCommand::Message(Bytes::from(out), Some((turn, None))));
            return true;
        }
        // The message exists already, so that only further ones wait; each source has one at the most.
        let memory = self.stop.run_until_cancelled(self.connection.reserve_response_memory(out.len() / 4 * 3)).await;
        let Some(memory) = memory else { return false };
        self.connection.send(WriterCommand::Bulk(Message::Text(Bytes::from(out)), Some((turn, memory))));
        true
    }

    /// Waits until the last word is on its way, so that nothing is said after the answer to whoever stopped it.
    pub(super) async fn flush(self) {
        // Never closed; and the permit comes back when the connection is gone.
        let _ = self.turn.acquire().await;
    }

    /// What `work` gives, unless it shall stop first.
    pub(super) async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.stop.run_until_cancelled(work).await
    }
}

/// A sender that has to wait.
pub(super) struct DeferredSender {
    sender: NotificationSender,
    response_sent: oneshot::Receiver<()>,
}

impl DeferredSender {
    pub(super) async fn wait_for_response(self) -> Option<NotificationSender> {
        match self.sender.stop.run_until_cancelled(self.response_sent).await {
            Some(Ok(())) => Some(self.sender),
            // Nobody was told that it is there.
            Some(Err(_)) | None => None,
        }
    }
}
