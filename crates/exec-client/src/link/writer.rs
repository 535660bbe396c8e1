//! The task that writes to one connection. It ends when its queue is closed, and then gives the sender back so that the
//! connection can be closed properly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use exec_transport::{CloseReason, Message, SendError, Sender};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

use crate::limits::{ACKNOWLEDGEMENTS, ANSWERS, CALLS};

/// How long writing what is queued may take when we close the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Room for every call, answer and acknowledgement that may wait, and for the handshake.
const QUEUE: usize = CALLS + ANSWERS + ACKNOWLEDGEMENTS + 2;

/// A message to write, and whether it was written. Clones are the same message.
#[derive(Debug, Clone)]
pub(crate) struct OutgoingMessage {
    message: Message,
    /// What the message goes on with: a block of a file or a chunk of a stream, which is not copied.
    body: Bytes,
    /// Whether it holds the contents of a file; all other messages are small and go first.
    bulk: bool,
    sent: Arc<AtomicBool>,
    /// Held until the message is written and answered, which is what bounds the queue.
    _permit: Option<Arc<OwnedSemaphorePermit>>,
}

impl OutgoingMessage {
    pub(crate) fn new(message: Message, permit: OwnedSemaphorePermit) -> Self {
        Self { message, body: Bytes::new(), bulk: false, sent: Arc::default(), _permit: Some(Arc::new(permit)) }
    }

    /// Makes the message go on with these bytes.
    pub(crate) fn with_body(self, body: Bytes) -> Self {
        Self { body, ..self }
    }

    /// Marks it as the contents of a file, which other messages may overtake.
    pub(crate) fn bulk(self) -> Self {
        Self { bulk: true, ..self }
    }

    /// A message of the handshake. It needs no permit: the queue has room for the two there are.
    pub(crate) fn handshake(text: Vec<u8>) -> Self {
        let message = Message::Text(text.into());
        Self { message, body: Bytes::new(), bulk: false, sent: Arc::default(), _permit: None }
    }

    /// Whether it can be sent only to a server that accepts binary frames.
    pub(crate) fn is_binary(&self) -> bool {
        matches!(self.message, Message::Binary(_))
    }

    /// Whether its first byte may have been sent. This is certain once the writer has ended.
    pub(crate) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }
}

/// The queue of a writer. Small messages overtake bulk ones; otherwise the order is kept.
#[derive(Debug, Clone)]
pub(crate) struct WriterQueue {
    small: mpsc::Sender<OutgoingMessage>,
    bulk: mpsc::Sender<OutgoingMessage>,
}

impl WriterQueue {
    /// The queue cannot be full, because each message in it holds a permit. If it is closed, the driver is about to notice;
    /// a call is then sent on the next connection.
    pub(crate) fn send(&self, outgoing: OutgoingMessage) {
        let queue = if outgoing.bulk { &self.bulk } else { &self.small };
        let _ = queue.try_send(outgoing);
    }
}

#[derive(Debug)]
pub(crate) struct LinkWriter {
    queue: WriterQueue,
    task: JoinHandle<Result<Sender, SendError>>,
}

impl LinkWriter {
    pub(crate) fn start(sender: Sender, bytes_out: Arc<AtomicU64>) -> Self {
        let (small, small_queue) = mpsc::channel(QUEUE);
        let (bulk, bulk_queue) = mpsc::channel(QUEUE);
        let task = tokio::spawn(write(sender, small_queue, bulk_queue, bytes_out));
        Self { queue: WriterQueue { small, bulk }, task }
    }

    pub(crate) fn queue(&self) -> &WriterQueue {
        &self.queue
    }

    /// Waits for the writer to fail, and returns the reason. It must be stopped afterwards.
    pub(crate) async fn failed(&mut self) -> String {
        match (&mut self.task).await {
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(_)) => "the writer has ended".to_owned(),
            Err(error) => format!("the writer has ended: {error}"),
        }
    }

    /// Aborts the task. Afterwards it is certain what was sent.
    pub(crate) async fn stop(self) {
        if !self.task.is_finished() {
            self.task.abort();
            // The result does not matter, because the connection is given up.
            let _ = self.task.await;
        }
    }

    /// Writes what is queued, then closes the connection.
    pub(crate) async fn finish(self) {
        let Self { queue, mut task } = self;
        drop(queue);
        match tokio::time::timeout(CLOSE_TIMEOUT, &mut task).await {
            Ok(Ok(Ok(sender))) => sender.close(CloseReason::normal()).await,
            Ok(_) => {}
            Err(_) => {
                task.abort();
                let _ = task.await;
            }
        }
    }
}

async fn write(
    mut sender: Sender,
    mut small: mpsc::Receiver<OutgoingMessage>,
    mut bulk: mpsc::Receiver<OutgoingMessage>,
    bytes_out: Arc<AtomicU64>,
) -> Result<Sender, SendError> {
    loop {
        let mut next = tokio::select! {
            biased;
            Some(outgoing) = small.recv() => Some(outgoing),
            Some(outgoing) = bulk.recv() => Some(outgoing),
            else => return Ok(sender),
        };
        // All small messages that wait already go with it, so that one flush does for all.
        while let Some(outgoing) = next {
            outgoing.sent.store(true, Ordering::Release);
            let message_bytes = outgoing.message.bytes().len() + outgoing.body.len();
            bytes_out.fetch_add(message_bytes as u64, Ordering::Relaxed);
            sender.feed_with_body(outgoing.message, outgoing.body).await?;
            next = small.try_recv().ok();
        }
        sender.flush().await?;
    }
}
