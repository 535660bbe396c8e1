//! Both ends of a connection within this process: two bounded channels.
//!
//! It behaves as the other transports do: a full channel stalls the sender until the write deadline, a
//! close carries its reason, dropping the sender ends the direction. It has no frames, so there is
//! no limit on the size of a message.

use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::connection::{Connection, SendError};
use crate::limits::{CLOSE_DEADLINE, WRITE_DEADLINE};
use crate::message::{CloseReason, ConnectionEnd, Message, Received};

/// A connected pair. Each direction holds `capacity` messages (at least one); then `feed` waits.
pub fn memory_pair(capacity: usize) -> (Connection, Connection) {
    let (to_right, at_right) = mpsc::channel(capacity.max(1));
    let (to_left, at_left) = mpsc::channel(capacity.max(1));
    let left = Connection::over_memory(MemorySender(to_right), MemoryReceiver::new(at_left));
    let right = Connection::over_memory(MemorySender(to_left), MemoryReceiver::new(at_right));
    (left, right)
}

#[derive(Debug)]
enum ChannelItem {
    Message(Message),
    Close(CloseReason),
}

#[derive(Debug)]
pub(crate) struct MemorySender(mpsc::Sender<ChannelItem>);

impl MemorySender {
    pub(crate) async fn feed(&mut self, message: Message) -> Result<(), SendError> {
        match timeout(WRITE_DEADLINE, self.0.send(ChannelItem::Message(message))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(SendError::Closed),
            Err(_) => Err(SendError::Stalled { after: WRITE_DEADLINE }),
        }
    }

    pub(crate) async fn close(self, reason: CloseReason) {
        // If the peer is gone or does not read, nobody misses the reason.
        let _ = timeout(CLOSE_DEADLINE, self.0.send(ChannelItem::Close(reason))).await;
    }
}

#[derive(Debug)]
pub(crate) struct MemoryReceiver {
    items: mpsc::Receiver<ChannelItem>,
}

impl MemoryReceiver {
    fn new(items: mpsc::Receiver<ChannelItem>) -> Self {
        Self { items }
    }

    pub(crate) async fn next(&mut self) -> Received {
        match self.items.recv().await {
            Some(ChannelItem::Message(message)) => Received::Message(message),
            Some(ChannelItem::Close(reason)) => {
                self.items.close();
                Received::Closed(ConnectionEnd::ByPeer(reason))
            }
            None => Received::Closed(ConnectionEnd::EndOfStream),
        }
    }
}
