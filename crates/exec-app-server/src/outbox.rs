//! What is written to a connection: answers and notifications, in the order in which they are handed over.
//!
//! One task writes. Whoever has something to say waits while the queue is full, so that a client which reads slowly slows
//! down the processes that print, and memory stays bounded. After the end of the connection nothing is written, and
//! nobody waits.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use exec_transport::{CloseReason, Message, SendError, Sender};
use exec_wire::envelope::{write_error, write_response};
use exec_wire::{RequestId, RpcError};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::limits::OUTBOX_MESSAGES;
use crate::method::Method;

/// Hands messages to the writer of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    queue: mpsc::Sender<Bytes>,
    /// Notifications that the client does not want; known since `initialize`.
    opted_out: Arc<OnceLock<HashSet<String>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Notification<'a, P> {
    method: &'a str,
    params: P,
    emitted_at_ms: u64,
}

impl Outbox {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Bytes>) {
        let (queue, receiver) = mpsc::channel(OUTBOX_MESSAGES);
        (Self { queue, opted_out: Arc::default() }, receiver)
    }

    pub(crate) fn opt_out(&self, methods: impl IntoIterator<Item = String>) {
        // The handshake happens once.
        let _ = self.opted_out.set(methods.into_iter().collect());
    }

    /// Answers a request of the method `M`.
    pub(crate) async fn respond<M: Method>(&self, id: &RequestId, result: Result<M::Result, RpcError>) {
        let mut message = Vec::new();
        match result {
            Ok(result) => drop(write_response(&mut message, id, &result, false)),
            Err(error) => write_error(&mut message, id, &error, false),
        }
        self.send(message).await;
    }

    pub(crate) async fn refuse(&self, id: &RequestId, error: &RpcError) {
        let mut message = Vec::new();
        write_error(&mut message, id, error, false);
        self.send(message).await;
    }

    pub(crate) async fn notify(&self, method: &str, params: impl Serialize) {
        if self.opted_out.get().is_some_and(|methods| methods.contains(method)) {
            return;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let notification = Notification { method, params, emitted_at_ms: since.as_millis() as u64 };
        let message =
            serde_json::to_vec(&notification).expect("shapes have string keys, and a vector takes every byte");
        self.send(message).await;
    }

    /// Returns when the connection has ended.
    pub(crate) async fn closed(&self) {
        self.queue.closed().await;
    }

    async fn send(&self, message: Vec<u8>) {
        // Fails when the connection has ended; then there is nobody to tell.
        let _ = self.queue.send(message.into()).await;
    }
}

/// Writes what comes until every [`Outbox`] is gone, then closes the connection; or until the client is.
pub(crate) async fn write(mut sender: Sender, mut queue: mpsc::Receiver<Bytes>) {
    let written = write_all(&mut sender, &mut queue).await;
    // Whoever waits in the queue must learn that nobody takes from it any more.
    drop(queue);
    match written {
        Ok(()) => sender.close(CloseReason::normal()).await,
        Err(error) => tracing::debug!("cannot write to the client: {error}"),
    }
}

async fn write_all(sender: &mut Sender, queue: &mut mpsc::Receiver<Bytes>) -> Result<(), SendError> {
    while let Some(message) = queue.recv().await {
        sender.feed(Message::Text(message)).await?;
        while let Ok(message) = queue.try_recv() {
            sender.feed(Message::Text(message)).await?;
        }
        sender.flush().await?;
    }
    Ok(())
}
