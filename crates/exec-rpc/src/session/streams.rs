//! The streams and listeners of a session. They outlive its connections, as its processes do.
//!
//! ```text
//!   the far end ──► chunks, numbered ──► kept until acknowledged ──► net/read, as often as it is asked
//!   net/write, by offset ──► queue of a bounded size ──► writer task ──► the far end
//! ```
//!
//! Nothing is read from the far end before the client asks for it, and no more is kept than the window. So a client that
//! does not read stops only that stream, and one that is away finds it again as it was. A server that is killed loses its
//! sockets; then the client is told that the stream is unknown.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use exec_env::streams::{ByteStream, StreamAddress, StreamError, StreamListener, StreamReason, StreamVerb};
use exec_wire::limits::{ENTRY_OVERHEAD_BYTES, STREAM_CHUNK_BYTES, STREAM_WINDOW_CHUNKS};
use tokio::sync::{Notify, OnceCell, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::limits::{STREAM_LINGER, STREAM_LISTENERS, STREAM_QUEUE_BYTES, STREAMS};

const EPIPE: i32 = 32;

/// By the ids that the client chose.
#[derive(Default)]
pub(crate) struct SessionStreams {
    streams: Mutex<HashMap<String, Arc<StreamSlot>>>,
    listeners: Mutex<HashMap<String, Arc<ListenerSlot>>>,
}

impl std::fmt::Debug for SessionStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionStreams")
    }
}

/// A stream that is there, or is being made. Of several requests that make the same one, all get that one.
pub(crate) struct StreamSlot {
    pub(crate) environment: Arc<str>,
    pub(crate) address: StreamAddress,
    stream: OnceCell<SessionStream>,
    /// Cancelled when it is closed; whoever waits for it goes on.
    closed: CancellationToken,
}

/// A listener, likewise.
pub(crate) struct ListenerSlot {
    pub(crate) environment: Arc<str>,
    pub(crate) address: StreamAddress,
    listener: OnceCell<Box<dyn StreamListener>>,
    closed: CancellationToken,
}

/// As many as may be are there already.
pub(crate) struct Full {
    pub(crate) limit: usize,
}

impl SessionStreams {
    /// The stream of this id, which is to be made if it is new.
    pub(crate) fn enter(
        &self,
        id: &str,
        environment: &Arc<str>,
        address: &StreamAddress,
    ) -> Result<Arc<StreamSlot>, Full> {
        let mut streams = lock(&self.streams);
        if let Some(slot) = streams.get(id) {
            return Ok(Arc::clone(slot));
        }
        if streams.len() >= STREAMS {
            return Err(Full { limit: STREAMS });
        }
        let slot = StreamSlot {
            environment: Arc::clone(environment),
            address: address.clone(),
            stream: OnceCell::new(),
            closed: CancellationToken::new(),
        };
        let slot = Arc::new(slot);
        streams.insert(id.to_owned(), Arc::clone(&slot));
        Ok(slot)
    }

    /// A slot whose stream was never made is free again, unless somebody else still makes it.
    pub(crate) fn leave(&self, id: &str, slot: &Arc<StreamSlot>) {
        let mut streams = lock(&self.streams);
        let is_it = streams.get(id).is_some_and(|found| Arc::ptr_eq(found, slot));
        // The table's and the caller's; others are handed out under this lock.
        if is_it && !slot.stream.initialized() && Arc::strong_count(slot) <= 2 {
            streams.remove(id);
        }
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<StreamSlot>> {
        lock(&self.streams).get(id).cloned()
    }

    /// Takes a stream away. Whoever waits for it is told.
    pub(crate) fn remove(&self, id: &str, slot: &Arc<StreamSlot>) {
        let mut streams = lock(&self.streams);
        if streams.get(id).is_some_and(|found| Arc::ptr_eq(found, slot)) {
            streams.remove(id);
        }
        slot.closed.cancel();
    }

    /// The listener of this id, which is to be made if it is new.
    pub(crate) fn enter_listener(
        &self,
        id: &str,
        environment: &Arc<str>,
        address: &StreamAddress,
    ) -> Result<Arc<ListenerSlot>, Full> {
        let mut listeners = lock(&self.listeners);
        if let Some(slot) = listeners.get(id) {
            return Ok(Arc::clone(slot));
        }
        if listeners.len() >= STREAM_LISTENERS {
            return Err(Full { limit: STREAM_LISTENERS });
        }
        let slot = Arc::new(ListenerSlot {
            environment: Arc::clone(environment),
            address: address.clone(),
            listener: OnceCell::new(),
            closed: CancellationToken::new(),
        });
        listeners.insert(id.to_owned(), Arc::clone(&slot));
        Ok(slot)
    }

    pub(crate) fn find_listener(&self, id: &str) -> Option<Arc<ListenerSlot>> {
        lock(&self.listeners).get(id).cloned()
    }

    pub(crate) fn remove_listener(&self, id: &str) {
        if let Some(slot) = lock(&self.listeners).remove(id) {
            slot.closed.cancel();
        }
    }

    /// The session has ended: every far end sees an error.
    pub(crate) fn close_all(&self) {
        for (_, slot) in std::mem::take(&mut *lock(&self.streams)) {
            if let Some(stream) = slot.stream.get() {
                stream.shared.stream.reset();
            }
            slot.closed.cancel();
        }
        for (_, slot) in std::mem::take(&mut *lock(&self.listeners)) {
            slot.closed.cancel();
        }
    }
}

impl StreamSlot {
    /// Makes the stream, unless it is there or another request makes it just now.
    pub(crate) async fn make<M>(&self, make: M) -> Result<&SessionStream, StreamError>
    where
        M: Future<Output = Result<(Box<dyn ByteStream>, Option<String>), StreamError>>,
    {
        let made = self.stream.get_or_try_init(|| async {
            let (stream, peer) = make.await?;
            Ok(SessionStream::new(stream, peer, self.address.clone()))
        });
        self.unless_closed(StreamVerb::Connect, made).await
    }

    /// The stream, if it was made.
    pub(crate) fn stream(&self) -> Option<&SessionStream> {
        self.stream.get()
    }

    /// What a verb over it comes to, or that it was closed meanwhile.
    pub(crate) async fn unless_closed<T>(
        &self,
        verb: StreamVerb,
        work: impl Future<Output = Result<T, StreamError>>,
    ) -> Result<T, StreamError> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.closed.cancelled() => Err(StreamError::new(verb, &self.address, closed_reason())),
        }
    }
}

impl ListenerSlot {
    pub(crate) async fn make<M>(&self, make: M) -> Result<&dyn StreamListener, StreamError>
    where
        M: Future<Output = Result<Box<dyn StreamListener>, StreamError>>,
    {
        self.listener.get_or_try_init(|| make).await.map(|listener| &**listener)
    }

    /// The next connection, and who made it.
    pub(crate) async fn accept(&self) -> Result<(Box<dyn ByteStream>, Option<String>), StreamError> {
        let closed = || StreamError::new(StreamVerb::Accept, &self.address, closed_reason());
        let listener = self.listener.get().ok_or_else(closed)?;
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(closed()),
            accepted = listener.accept() => accepted.map(|accepted| (accepted.stream, accepted.peer)),
        }
    }
}

fn closed_reason() -> StreamReason {
    StreamReason::Lost { why: "it was closed".to_owned() }
}

/// A stream, what was read of it and not acknowledged, and what is to be written to it.
pub(crate) struct SessionStream {
    pub(crate) peer: Option<String>,
    shared: Arc<StreamShared>,
    /// It ends when everything is written, or with the stream. What it still waits for nobody wants then.
    _writer: AbortOnDropHandle<()>,
}

struct StreamShared {
    stream: Arc<dyn ByteStream>,
    address: StreamAddress,
    incoming: Mutex<Incoming>,
    /// Held by the one that reads from the far end.
    reading: tokio::sync::Mutex<()>,
    /// The number of the next chunk.
    next_chunk: watch::Sender<u64>,
    outgoing: Mutex<Outgoing>,
    /// Wakes the writer task.
    more_to_write: Notify,
    /// Changed when something was written, or cannot be.
    written: watch::Sender<u64>,
}

/// Chunks that were read.
#[derive(Default)]
struct Incoming {
    /// The number of the first that is kept.
    first: u64,
    kept: VecDeque<Bytes>,
    /// How it ended: behind the last chunk.
    end: Option<Result<(), StreamError>>,
}

/// What is to be written.
#[derive(Default)]
struct Outgoing {
    queue: VecDeque<Bytes>,
    /// What is in the queue or being written just now, each piece with its overhead.
    queued_bytes: usize,
    /// Bytes of the stream that the client need not send again.
    accepted: u64,
    /// Whether the client has written its last byte.
    finished: bool,
    /// Whether the far end was told so.
    all_written: bool,
    failed: Option<StreamError>,
}

/// What a read finds.
#[derive(Debug)]
pub(crate) enum Chunk {
    Bytes(Bytes),
    Eof,
}

/// A read or write that no client of ours would ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadPosition {
    #[error("chunk {0} was acknowledged, and is not kept any more")]
    Acknowledged(u64),
    #[error("chunk {0} is beyond the window of {STREAM_WINDOW_CHUNKS} chunks: acknowledge some first")]
    BeyondWindow(u64),
    #[error("chunk {0} cannot be acknowledged: it was never read")]
    NeverRead(u64),
    #[error("a chunk may have {STREAM_CHUNK_BYTES} bytes, and a stream 2^63")]
    TooLarge,
}

enum FoundChunk {
    Ready(Result<Chunk, StreamError>),
    /// It is the next to be read.
    Next,
    Later,
}

impl SessionStream {
    fn new(stream: Box<dyn ByteStream>, peer: Option<String>, address: StreamAddress) -> Self {
        let shared = Arc::new(StreamShared {
            stream: Arc::from(stream),
            address,
            incoming: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            next_chunk: watch::Sender::new(0),
            outgoing: Mutex::default(),
            more_to_write: Notify::new(),
            written: watch::Sender::new(0),
        });
        let writer = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&shared).write_out()));
        Self { peer, shared, _writer: writer }
    }

    /// Chunk `seq`, as often as it is asked for, until it is acknowledged. Dropping the future loses nothing.
    pub(crate) async fn read(&self, seq: u64, acknowledged: u64) -> Result<Result<Chunk, StreamError>, BadPosition> {
        let shared = &*self.shared;
        shared.release(acknowledged)?;
        let mut progress = shared.next_chunk.subscribe();
        loop {
            progress.borrow_and_update();
            match shared.find(seq)? {
                FoundChunk::Ready(chunk) => return Ok(chunk),
                FoundChunk::Later => {
                    // The sender is ours.
                    let _ = progress.changed().await;
                    continue;
                }
                FoundChunk::Next => {}
            }
            let _reading = shared.reading.lock().await;
            // Another may have read it while this one waited for its turn.
            if matches!(shared.find(seq)?, FoundChunk::Next) {
                let read = shared.stream.read().await;
                shared.keep(read);
            }
        }
    }

    /// Accepts what there is room for, and says up to where.
    pub(crate) fn write(&self, offset: u64, bytes: &Bytes, eof: bool) -> Result<Result<u64, StreamError>, BadPosition> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= i64::MAX as u64);
        let Some(end) = end.filter(|_| bytes.len() <= STREAM_CHUNK_BYTES) else { return Err(BadPosition::TooLarge) };
        let mut outgoing = lock(&self.shared.outgoing);
        if let Some(error) = &outgoing.failed {
            return Ok(Err(error.clone()));
        }
        // What comes before it is missing; or it was sent again, and is here already.
        if offset > outgoing.accepted || end < outgoing.accepted {
            return Ok(Ok(outgoing.accepted));
        }
        let fresh = bytes.slice((outgoing.accepted - offset) as usize..);
        if outgoing.finished {
            let broken = || StreamError::new(StreamVerb::Write, &self.shared.address, StreamReason::Os(EPIPE));
            return Ok(if fresh.is_empty() { Ok(end) } else { Err(broken()) });
        }
        let fresh_bytes = fresh.len();
        let accepted = outgoing.accept(fresh);
        if accepted == fresh_bytes && eof {
            outgoing.finished = true;
        }
        let result = outgoing.accepted;
        drop(outgoing);
        self.shared.more_to_write.notify_one();
        Ok(Ok(result))
    }

    /// Waits until a chunk would be accepted; up to where they are by then.
    pub(crate) async fn await_room(&self) -> Result<u64, StreamError> {
        self.await_outgoing(|outgoing| outgoing.queued_bytes + STREAM_CHUNK_BYTES <= STREAM_QUEUE_BYTES).await
    }

    /// Makes the far end see an error, or waits a while until it has everything.
    pub(crate) async fn end(&self, reset: bool) {
        if reset {
            return self.shared.stream.reset();
        }
        let drained = self.await_outgoing(|outgoing| match outgoing.finished {
            true => outgoing.all_written,
            false => outgoing.queued_bytes == 0,
        });
        // A far end that does not read for so long has lost interest, too.
        if !matches!(tokio::time::timeout(STREAM_LINGER, drained).await, Ok(Ok(_))) {
            self.shared.stream.reset();
        }
    }

    async fn await_outgoing(&self, is_met: impl Fn(&Outgoing) -> bool) -> Result<u64, StreamError> {
        let mut written = self.shared.written.subscribe();
        loop {
            written.borrow_and_update();
            {
                let outgoing = lock(&self.shared.outgoing);
                if let Some(error) = &outgoing.failed {
                    return Err(error.clone());
                }
                if is_met(&outgoing) {
                    return Ok(outgoing.accepted);
                }
            }
            // The sender is ours.
            let _ = written.changed().await;
        }
    }
}

impl StreamShared {
    fn release(&self, acknowledged: u64) -> Result<(), BadPosition> {
        let mut incoming = lock(&self.incoming);
        if acknowledged > incoming.next() && incoming.end.is_none() {
            return Err(BadPosition::NeverRead(acknowledged - 1));
        }
        while incoming.first < acknowledged && incoming.kept.pop_front().is_some() {
            incoming.first += 1;
        }
        Ok(())
    }

    fn find(&self, seq: u64) -> Result<FoundChunk, BadPosition> {
        let incoming = lock(&self.incoming);
        if seq < incoming.first {
            return Err(BadPosition::Acknowledged(seq));
        }
        if seq - incoming.first >= STREAM_WINDOW_CHUNKS {
            return Err(BadPosition::BeyondWindow(seq));
        }
        if let Some(bytes) = incoming.kept.get((seq - incoming.first) as usize) {
            return Ok(FoundChunk::Ready(Ok(Chunk::Bytes(bytes.clone()))));
        }
        Ok(match &incoming.end {
            Some(Ok(())) => FoundChunk::Ready(Ok(Chunk::Eof)),
            Some(Err(error)) => FoundChunk::Ready(Err(error.clone())),
            None if seq == incoming.next() => FoundChunk::Next,
            None => FoundChunk::Later,
        })
    }

    fn keep(&self, read: Result<Bytes, StreamError>) {
        let mut incoming = lock(&self.incoming);
        match read {
            Ok(bytes) if bytes.is_empty() => incoming.end = Some(Ok(())),
            Ok(bytes) => incoming.kept.push_back(bytes),
            Err(error) => incoming.end = Some(Err(error)),
        }
        drop(incoming);
        self.next_chunk.send_modify(|next| *next += 1);
    }

    async fn write_out(self: Arc<Self>) {
        loop {
            let (next, finish) = {
                let mut outgoing = lock(&self.outgoing);
                (outgoing.queue.pop_front(), outgoing.finished)
            };
            let done = match next {
                Some(bytes) => {
                    let cost = bytes.len() + ENTRY_OVERHEAD_BYTES;
                    self.stream.write(bytes).await.map(|()| cost)
                }
                None if finish => self.stream.finish().await.map(|()| 0),
                None => {
                    self.more_to_write.notified().await;
                    continue;
                }
            };
            let mut outgoing = lock(&self.outgoing);
            let is_over = match done {
                Ok(0) => {
                    outgoing.all_written = true;
                    true
                }
                Ok(cost) => {
                    outgoing.queued_bytes -= cost;
                    false
                }
                Err(error) => {
                    outgoing.queue.clear();
                    outgoing.failed = Some(error);
                    true
                }
            };
            drop(outgoing);
            self.written.send_modify(|count| *count += 1);
            if is_over {
                return;
            }
        }
    }
}

impl Incoming {
    fn next(&self) -> u64 {
        self.first + self.kept.len() as u64
    }
}

impl Outgoing {
    /// Takes as many of the bytes as there is room for.
    fn accept(&mut self, mut fresh: Bytes) -> usize {
        let room = STREAM_QUEUE_BYTES.saturating_sub(self.queued_bytes + ENTRY_OVERHEAD_BYTES);
        fresh.truncate(room);
        let taken = fresh.len();
        if taken > 0 {
            self.accepted += taken as u64;
            self.queued_bytes += taken + ENTRY_OVERHEAD_BYTES;
            self.queue.push_back(fresh);
        }
        taken
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
