//! Sends the notifications of something that goes on beside or after its response: a watch, a search, a body, a copy.

use std::sync::Arc;

use bytes::Bytes;
use exec_transport::Message;
use exec_wire::NotificationParams;
use exec_wire::envelope;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use crate::connection::ConnectionShared;
use crate::dispatch::RequestContext;
use crate::limits::SMALL_MESSAGE_BYTES;
use crate::writer::WriterCommand;

/// Runs `source`, which sends notifications, once the response to its request was sent. The returned command must go to
/// the writer behind that response. `reservation` is dropped when the last notification was sent, so that none comes
/// after the response to the request that stopped the source.
pub(super) fn spawn_after_response<W: Future<Output = ()> + Send>(
    context: &RequestContext,
    stop: CancellationToken,
    reservation: impl Send + 'static,
    source: impl FnOnce(NotificationSender) -> W + Send + 'static,
) -> WriterCommand {
    let (reached, response_sent) = oneshot::channel();
    let sender = NotificationSender::new(context.connection.clone(), stop);
    context.connection.resources.spawn(async move {
        match sender.unless_stopped(response_sent).await {
            Some(Ok(())) => {
                source(sender.clone()).await;
                sender.flush().await;
            }
            // It was stopped before the response, or there was none: the client has no use for the source.
            Some(Err(_)) | None => drop(source),
        }
        drop(reservation);
    });
    WriterCommand::Barrier(reached)
}

/// Has at most one message with the writer: a client that does not read costs one message, and stops the source.
#[derive(Clone)]
pub(super) struct NotificationSender {
    connection: Arc<ConnectionShared>,
    /// Its one permit is with the message that the writer has and has not sent yet.
    in_flight: Arc<Semaphore>,
    stop: CancellationToken,
}

impl NotificationSender {
    pub(super) fn new(connection: Arc<ConnectionShared>, stop: CancellationToken) -> Self {
        Self { connection, in_flight: Arc::new(Semaphore::new(1)), stop }
    }

    /// Waits until the previous message was sent, then hands this one to the writer. `false` if it must stop.
    pub(super) async fn send<N: NotificationParams>(&self, params: &N) -> bool {
        let permit = self.in_flight.clone().acquire_owned();
        let Some(Ok(permit)) = self.unless_stopped(permit).await else { return false };
        let mut out = Vec::new();
        envelope::write_notification(&mut out, N::METHOD.name(), params, self.connection.jsonrpc());
        if out.len() <= SMALL_MESSAGE_BYTES {
            self.connection.send(WriterCommand::Message(Bytes::from(out), Some((permit, None))));
            return true;
        }
        // The message is in memory already, so this only delays the next one; each source has at most one.
        let memory = self.unless_stopped(self.connection.reserve_response_memory(out.len() / 4 * 3)).await;
        let Some(memory) = memory else { return false };
        let (message, permits) = (Message::Text(Bytes::from(out)), Some((permit, memory)));
        self.connection.send(WriterCommand::Bulk { message, body: Bytes::new(), permits });
        true
    }

    /// Waits until the last message was sent.
    pub(super) async fn flush(&self) {
        // The semaphore is never closed, and the writer drops the permit even when the connection is gone.
        let _ = self.in_flight.acquire().await;
    }

    /// The output of `work`; `None` if it must stop before.
    pub(super) async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.stop.run_until_cancelled(work).await
    }
}
