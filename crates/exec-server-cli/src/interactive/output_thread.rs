//! The thread that writes the child's output to our stdout and stderr.
//!
//! One thread writes both, so that their order on a shared terminal is the child's. It blocks when nobody reads. The loop
//! then stops taking pages, and the log holds what comes.

use std::fmt;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::stdio;

/// Batches in flight: one is being written, one is ready, so that the thread never waits for the log.
const DEPTH: usize = 2;

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutputChunk {
    pub(crate) to: OutputStream,
    pub(crate) bytes: Bytes,
}

pub(crate) type OutputBatch = Vec<OutputChunk>;

/// Why a stream cannot be written any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot write to {to}: {errno}")]
pub(crate) struct OutputError {
    to: OutputStream,
    errno: Errno,
}

impl OutputError {
    /// The reader has closed the pipe, which needs no message.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.errno == Errno::PIPE
    }
}

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

    /// Whether [`Self::enqueue`] may be called.
    pub(crate) fn has_capacity(&self) -> bool {
        self.in_flight < DEPTH
    }

    /// Whether everything is written.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// There must be capacity.
    pub(crate) fn enqueue(&mut self, batch: OutputBatch) {
        debug_assert!(self.has_capacity(), "the channel would block the loop");
        if !batch.is_empty() && self.batches.try_send(batch).is_ok() {
            self.in_flight += 1;
        }
    }

    /// Waits until the next batch is written. Cancel-safe.
    pub(crate) async fn next_result(&mut self) -> Result<(), OutputError> {
        if self.in_flight == 0 {
            return std::future::pending().await;
        }
        let result = self.results.recv().await;
        self.in_flight -= 1;
        // The thread sends its error before it ends.
        result.unwrap_or(Ok(()))
    }

    /// Joins the thread, which must have nothing left to write.
    pub(crate) fn close(self) {
        debug_assert!(self.is_idle(), "the thread may be blocked");
        drop(self.batches);
        let _ = self.thread.join();
    }
}

fn write_batches(batches: &Receiver<OutputBatch>, sender: &mpsc::Sender<Result<(), OutputError>>) {
    for batch in batches {
        let result = write_batch(&batch);
        // This never blocks: there are no more results than batches, and both channels have the same capacity.
        if sender.blocking_send(result).is_err() || result.is_err() {
            return;
        }
    }
}

fn write_batch(batch: &OutputBatch) -> Result<(), OutputError> {
    for OutputChunk { to, bytes } in batch {
        let mut descriptor = match to {
            OutputStream::Stdout => stdio::stdout(),
            OutputStream::Stderr => stdio::stderr(),
        };
        let failed =
            |error: io::Error| OutputError { to: *to, errno: Errno::from_io_error(&error).unwrap_or(Errno::IO) };
        descriptor.write_all(bytes).map_err(failed)?;
    }
    Ok(())
}
