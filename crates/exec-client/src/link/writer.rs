//! The task that writes to one connection. It ends when its queue does, and gives the connection back for a farewell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use exec_transport::{CloseReason, Message, SendError, Sender};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

use crate::limits::{ANSWERS, CALLS};

/// How long what is queued may take to leave when we do.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Room for every call and every answer that may wait, and for the handshake.
const QUEUE: usize = CALLS + ANSWERS + 2;

/// A message on its way, and whether it went. Clones are the same message.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    bytes: Bytes,
    sent: Arc<AtomicBool>,
    /// Held until it is written and answered: this is what bounds the queue.
    _place: Option<Arc<OwnedSemaphorePermit>>,
}

impl Outgoing {
    pub(crate) fn new(frame: Vec<u8>, place: OwnedSemaphorePermit) -> Self {
        Self { _place: Some(Arc::new(place)), ..Self::handshake(frame) }
    }

    /// A message of the handshake, for which there is always room.
    pub(crate) fn handshake(frame: Vec<u8>) -> Self {
        Self { bytes: frame.into(), sent: Arc::default(), _place: None }
    }

    /// Whether its first byte may have left. Known for certain once the writer has ended.
    pub(crate) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }
}

/// The writer of one connection.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Outgoing>,
    task: JoinHandle<Result<Sender, SendError>>,
}

impl Writer {
    pub(crate) fn start(sender: Sender, bytes_out: Arc<AtomicU64>) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        Self { queue, task: tokio::spawn(write(sender, waiting, bytes_out)) }
    }

    pub(crate) fn queue(&self) -> &mpsc::Sender<Outgoing> {
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
    pub(crate) async fn leave(self) {
        let Self { queue, mut task } = self;
        drop(queue);
        match tokio::time::timeout(LAST_WORDS, &mut task).await {
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
    mut waiting: mpsc::Receiver<Outgoing>,
    bytes_out: Arc<AtomicU64>,
) -> Result<Sender, SendError> {
    while let Some(first) = waiting.recv().await {
        let mut next = Some(first);
        // Whatever else waits already leaves with it: one flush for all.
        while let Some(outgoing) = next {
            outgoing.sent.store(true, Ordering::Release);
            bytes_out.fetch_add(outgoing.bytes.len() as u64, Ordering::Relaxed);
            sender.feed(Message::Text(outgoing.bytes)).await?;
            next = waiting.try_recv().ok();
        }
        sender.flush().await?;
    }
    Ok(sender)
}
