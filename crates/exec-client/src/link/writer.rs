//! The task that writes to one connection. It ends when its queue does, and gives the connection back for a farewell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use exec_transport::{CloseReason, Message, SendError, Sender};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

use crate::limits::{ANSWERS, CALLS};

/// How long what is queued may take to leave when we do.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Room for every call and every answer that may wait, and for the handshake.
const QUEUE: usize = CALLS + ANSWERS + 2;

/// A message on its way, and whether it went. Clones are the same message.
#[derive(Debug, Clone)]
pub(crate) struct OutgoingMessage {
    message: Message,
    /// What is small goes first.
    bulk: bool,
    sent: Arc<AtomicBool>,
    /// Held until it is written and answered: this is what bounds the queue.
    _permit: Option<Arc<OwnedSemaphorePermit>>,
}

impl OutgoingMessage {
    pub(crate) fn new(message: Message, permit: OwnedSemaphorePermit) -> Self {
        Self { message, bulk: false, sent: Arc::default(), _permit: Some(Arc::new(permit)) }
    }

    /// Contents of a file. Whatever else there is to say may overtake them.
    pub(crate) fn bulk(self) -> Self {
        Self { bulk: true, ..self }
    }

    /// A message of the handshake, for which there is always room.
    pub(crate) fn handshake(text: Vec<u8>) -> Self {
        Self { message: Message::Text(text.into()), bulk: false, sent: Arc::default(), _permit: None }
    }

    /// Whether only a server that has granted it can read it.
    pub(crate) fn is_binary(&self) -> bool {
        matches!(self.message, Message::Binary(_))
    }

    /// Whether its first byte may have left. Known for certain once the writer has ended.
    pub(crate) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }
}

/// The way to a writer. What is small overtakes bulk data, and nothing else.
#[derive(Debug, Clone)]
pub(crate) struct WriterQueue {
    small: mpsc::Sender<OutgoingMessage>,
    bulk: mpsc::Sender<OutgoingMessage>,
}

impl WriterQueue {
    /// Cannot be full: each message in it holds a permit. If it is closed, the driver is about to notice, and what is a call
    /// goes with the next connection.
    pub(crate) fn send(&self, outgoing: OutgoingMessage) {
        let queue = if outgoing.bulk { &self.bulk } else { &self.small };
        let _ = queue.try_send(outgoing);
    }
}

/// The writer of one connection.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: WriterQueue,
    task: JoinHandle<Result<Sender, SendError>>,
}

impl Writer {
    pub(crate) fn start(sender: Sender, bytes_out: Arc<AtomicU64>) -> Self {
        let (small, waiting) = mpsc::channel(QUEUE);
        let (bulk, bulk_waiting) = mpsc::channel(QUEUE);
        let task = tokio::spawn(write(sender, waiting, bulk_waiting, bytes_out));
        Self { queue: WriterQueue { small, bulk }, task }
    }

    pub(crate) fn queue(&self) -> &WriterQueue {
        &self.queue
    }

    /// Waits for it to fail; why. It must be stopped afterwards.
    pub(crate) async fn failed(&mut self) -> String {
        match (&mut self.task).await {
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(_)) => "the writer has ended".to_owned(),
            Err(error) => format!("the writer has ended: {error}"),
        }
    }

    /// Ends it on the spot. Afterwards it is certain what was sent.
    pub(crate) async fn stop(self) {
        if !self.task.is_finished() {
            self.task.abort();
            // Its result is of no use: the connection is given up.
            let _ = self.task.await;
        }
    }

    /// Writes what is queued and says goodbye.
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
        // Whatever else is small and waits already leaves with it: one flush for all.
        while let Some(outgoing) = next {
            outgoing.sent.store(true, Ordering::Release);
            bytes_out.fetch_add(outgoing.message.bytes().len() as u64, Ordering::Relaxed);
            sender.feed(outgoing.message).await?;
            next = small.try_recv().ok();
        }
        sender.flush().await?;
    }
}
