//! Writes to the stdin of a process: in their order, one at a time, bounded.
//!
//! Codex answers a write when it has queued it, and clients count on that, because a program may read its stdin late. So do
//! we, as long as little waits ([`STDIN_QUEUE_BYTES`]). With more, a write is answered when the process has taken it, which
//! is how a fast client learns to wait; and far beyond, it is refused whole.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use exec_core::{ProcessId, WriteId};
use exec_env::Processes;
use exec_wire::{RequestId, RpcError};
use tokio::sync::mpsc;

use crate::limits::{STDIN_QUEUE_BYTES, STDIN_QUEUE_BYTES_MAX, STDIN_QUEUE_WRITES_MAX};
use crate::reply;

/// The end of the queue at which requests come in.
#[derive(Debug)]
pub(crate) struct StdinQueue {
    writes: mpsc::Sender<StdinWrite>,
    waiting_bytes: Arc<AtomicUsize>,
    is_closed: Mutex<bool>,
}

/// One request of the client's.
#[derive(Debug)]
pub(crate) struct StdinWrite {
    bytes: Bytes,
    close: bool,
    /// The request that is answered when this was carried out.
    pub(crate) request: Option<RequestId>,
}

/// The end at which a task takes them.
#[derive(Debug)]
pub(crate) struct StdinWrites {
    writes: mpsc::Receiver<StdinWrite>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl StdinQueue {
    pub(crate) fn new() -> (Self, StdinWrites) {
        let (sender, writes) = mpsc::channel(STDIN_QUEUE_WRITES_MAX);
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let queue = Self { writes: sender, waiting_bytes: Arc::clone(&waiting_bytes), is_closed: Mutex::new(false) };
        (queue, StdinWrites { writes, waiting_bytes })
    }

    /// Queues a write. `true`: answer it now; `false`: it is answered when it was carried out.
    pub(crate) fn push(&self, request: &RequestId, bytes: Bytes, close: bool) -> Result<bool, RpcError> {
        let mut is_closed = self.is_closed.lock().expect("no holder of this lock panics");
        if *is_closed {
            return if bytes.is_empty() { Ok(true) } else { Err(reply::stdin_closed()) };
        }
        let waiting = self.waiting_bytes.load(Ordering::Relaxed);
        let len = bytes.len();
        // One of any size passes if nothing waits, or it could never be written.
        if waiting > 0 && waiting + len > STDIN_QUEUE_BYTES_MAX {
            return Err(reply::stdin_full());
        }
        let at_once = waiting + len <= STDIN_QUEUE_BYTES;
        let write = StdinWrite { bytes, close, request: (!at_once).then(|| request.clone()) };
        // Counted before anybody can take it, and with it the count.
        self.waiting_bytes.fetch_add(len, Ordering::Relaxed);
        if self.writes.try_send(write).is_err() {
            self.waiting_bytes.fetch_sub(len, Ordering::Relaxed);
            return Err(reply::stdin_full());
        }
        *is_closed = close;
        Ok(at_once)
    }
}

impl StdinWrites {
    /// The next request, carried out. What the process does not take any more is dropped: it has closed its stdin, or has
    /// ended, and a client cannot help that.
    pub(crate) async fn carry_out_next(
        &mut self,
        processes: &dyn Processes,
        id: &ProcessId,
        number: u64,
    ) -> Option<Option<RequestId>> {
        let StdinWrite { bytes, close, request } = self.writes.recv().await?;
        let len = bytes.len();
        if !bytes.is_empty() {
            let write_id = WriteId::new(number.to_string()).expect("a number is short and not empty");
            if let Err(error) = processes.write(id, write_id, bytes).await {
                tracing::debug!("a write to stdin failed: {error}");
            }
        }
        self.waiting_bytes.fetch_sub(len, Ordering::Relaxed);
        if close && let Err(error) = processes.close_stdin(id).await {
            tracing::debug!("closing stdin failed: {error}");
        }
        Some(request)
    }

    /// Those that nobody will carry out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = StdinWrite> {
        self.writes.close();
        std::iter::from_fn(|| self.writes.try_recv().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &StdinQueue, bytes: usize, close: bool) -> Result<bool, RpcError> {
        queue.push(&RequestId::Number(1), vec![b'x'; bytes].into(), close)
    }

    #[test]
    fn little_is_answered_at_once_much_when_it_was_taken_and_too_much_is_refused() {
        let (queue, _writes) = StdinQueue::new();
        assert_eq!(push(&queue, STDIN_QUEUE_BYTES, false), Ok(true));
        assert_eq!(push(&queue, 1, false), Ok(false));
        assert_eq!(push(&queue, STDIN_QUEUE_BYTES_MAX - STDIN_QUEUE_BYTES - 1, false), Ok(false));
        assert_eq!(push(&queue, 1, false), Err(reply::stdin_full()));
    }

    #[test]
    fn closing_twice_is_fine_and_writing_afterwards_is_not() {
        let (queue, _writes) = StdinQueue::new();
        assert_eq!(push(&queue, 3, true), Ok(true));
        assert_eq!(push(&queue, 0, true), Ok(true));
        assert_eq!(push(&queue, 1, false), Err(reply::stdin_closed()));
    }
}
