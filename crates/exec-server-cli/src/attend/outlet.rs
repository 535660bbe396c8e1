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
pub(crate) enum To {
    Stdout,
    Stderr,
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        })
    }
}

/// Bytes for one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) to: To,
    pub(crate) bytes: Bytes,
}

/// Pieces in their order.
pub(crate) type Parcel = Vec<Piece>;

/// A stream that takes no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) to: To,
    pub(crate) errno: Errno,
}

impl Broken {
    /// The reader has seen enough and left: no reason for a message.
    pub(crate) fn nobody_reads(self) -> bool {
        self.errno == Errno::PIPE
    }
}

/// The writing thread and the way to it.
pub(crate) struct Outlet {
    parcels: SyncSender<Parcel>,
    results: mpsc::Receiver<Result<(), Broken>>,
    under_way: usize,
    thread: JoinHandle<()>,
}

impl Outlet {
    pub(crate) fn open() -> io::Result<Self> {
        let (parcels, inbox) = sync_channel(DEPTH);
        let (told, results) = mpsc::channel(DEPTH);
        let write = move || write_parcels(&inbox, &told);
        let thread = std::thread::Builder::new().name("output".into()).spawn(write)?;
        Ok(Self { parcels, results, under_way: 0, thread })
    }

    /// Whether [`Self::put`] may be called.
    pub(crate) fn has_room(&self) -> bool {
        self.under_way < DEPTH
    }

    /// Whether everything put was written.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Hands a parcel over; there must be room.
    pub(crate) fn put(&mut self, parcel: Parcel) {
        debug_assert!(self.has_room(), "the channel would block the loop");
        if !parcel.is_empty() && self.parcels.try_send(parcel).is_ok() {
            self.under_way += 1;
        }
    }

    /// Waits for the next parcel to be written. Cancelling it loses nothing.
    pub(crate) async fn written(&mut self) -> Result<(), Broken> {
        if self.under_way == 0 {
            return std::future::pending().await;
        }
        let result = self.results.recv().await;
        self.under_way -= 1;
        // The thread ends only after it has told why.
        result.unwrap_or(Ok(()))
    }

    /// Waits for the thread, which has nothing left to write.
    pub(crate) fn close(self) {
        debug_assert!(self.is_idle(), "the thread may be blocked");
        drop(self.parcels);
        let _ = self.thread.join();
    }
}

fn write_parcels(parcels: &Receiver<Parcel>, told: &mpsc::Sender<Result<(), Broken>>) {
    for parcel in parcels {
        let result = write_parcel(&parcel);
        // There is room: no more results are open than parcels were let in.
        if told.blocking_send(result).is_err() || result.is_err() {
            return;
        }
    }
}

fn write_parcel(parcel: &Parcel) -> Result<(), Broken> {
    for Piece { to, bytes } in parcel {
        let descriptor = match to {
            To::Stdout => rustix::stdio::stdout(),
            To::Stderr => rustix::stdio::stderr(),
        };
        write_all(descriptor, bytes).map_err(|errno| Broken { to: *to, errno })?;
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
