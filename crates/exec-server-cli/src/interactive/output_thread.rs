//! What the child printed on its way to our stdout and stderr.
//!
//! One thread writes both, so that their order on a shared terminal is the child's. It blocks when nobody reads; the
//! loop then simply stops taking pages, and the log holds what comes.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::mpsc;

/// Parcels on the way: one being written, one ready, so that the writer never waits for the log.
const DEPTH: usize = 2;

/// One of our two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

impl fmt::Display for OutputStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        })
    }
}

/// Bytes for one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutputChunk {
    pub(crate) to: OutputStream,
    pub(crate) bytes: Bytes,
}

/// Pieces in their order.
pub(crate) type OutputBatch = Vec<OutputChunk>;

/// A stream that takes no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputError {
    pub(crate) to: OutputStream,
    pub(crate) errno: Errno,
}

impl OutputError {
    /// The reader has seen enough and left: no reason for a message.
    pub(crate) fn is_broken_pipe(self) -> bool {
        self.errno == Errno::PIPE
    }
}

/// The writing thread and the way to it.
pub(crate) struct OutputThread {
    batches: SyncSender<OutputBatch>,
    results: mpsc::Receiver<Result<(), OutputError>>,
    in_flight: usize,
    thread: JoinHandle<()>,
}

impl OutputThread {
    pub(crate) fn open() -> io::Result<Self> {
        let (batches, queue) = sync_channel(DEPTH);
        let (sender, results) = mpsc::channel(DEPTH);
        let write = move || write_batches(&queue, &sender);
        let thread = std::thread::Builder::new().name("output".into()).spawn(write)?;
        Ok(Self { batches, results, in_flight: 0, thread })
    }

    /// Whether [`Self::put`] may be called.
    pub(crate) fn has_capacity(&self) -> bool {
        self.in_flight < DEPTH
    }

    /// Whether everything put was written.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Hands a parcel over; there must be room.
    pub(crate) fn enqueue(&mut self, batch: OutputBatch) {
        debug_assert!(self.has_capacity(), "the channel would block the loop");
        if !batch.is_empty() && self.batches.try_send(batch).is_ok() {
            self.in_flight += 1;
        }
    }

    /// Waits for the next parcel to be written. Cancelling it loses nothing.
    pub(crate) async fn next_result(&mut self) -> Result<(), OutputError> {
        if self.in_flight == 0 {
            return std::future::pending().await;
        }
        let result = self.results.recv().await;
        self.in_flight -= 1;
        // The thread ends only after it has told why.
        result.unwrap_or(Ok(()))
    }

    /// Waits for the thread, which has nothing left to write.
    pub(crate) fn close(self) {
        debug_assert!(self.is_idle(), "the thread may be blocked");
        drop(self.batches);
        let _ = self.thread.join();
    }
}

fn write_batches(batches: &Receiver<OutputBatch>, sender: &mpsc::Sender<Result<(), OutputError>>) {
    for batch in batches {
        let result = write_batch(&batch);
        // There is room: no more results are open than parcels were let in.
        if sender.blocking_send(result).is_err() || result.is_err() {
            return;
        }
    }
}

fn write_batch(batch: &OutputBatch) -> Result<(), OutputError> {
    for OutputChunk { to, bytes } in batch {
        let descriptor = match to {
            OutputStream::Stdout => rustix::stdio::stdout(),
            OutputStream::Stderr => rustix::stdio::stderr(),
        };
        write_all(descriptor, bytes).map_err(|errno| OutputError { to: *to, errno })?;
    }
    Ok(())
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            // Somebody who shares the descriptor made it non-blocking.
            Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(&to, PollFlags::OUT)], None)),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
