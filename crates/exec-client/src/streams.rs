//! Connections that the far machine makes and accepts, as streams that outlive the connections they travel over.
//!
//! ```text
//!   read   several net/read under way, each for one numbered chunk; answered in any order, given out in theirs
//!   write  queue ──► writer task: several net/write under way, each at its offset; what was not accepted is sent again
//! ```
//!
//! Every one of these calls may be sent twice, so a break only costs time. The writer task belongs to its stream but outlives
//! it a little: what was written before the stream was dropped is still sent, as a kernel would do. It ends by itself: when
//! that is done, after [`STREAM_LINGER`], or with the link.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use exec_env::BoxFuture;
use exec_env::streams::{
    Accepted, ByteStream, STREAM_CHUNK_BYTES, StreamAddress, StreamError, StreamListener, StreamReason, StreamVerb,
    Streams,
};
use exec_wire::base64::Base64;
use exec_wire::limits::STREAM_WINDOW_CHUNKS;
use exec_wire::net as wire;
use exec_wire::{Call, Method, PathUri};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::sync::{Mutex, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::error::{self, CallError};
use crate::limits::{STREAM_IDLE_READS, STREAM_LINGER, STREAM_QUEUE, STREAM_READS, STREAM_WAIT};
use crate::link::{CallOptions, Link};
use crate::session::random_seed;

/// Chunks that may be under way in one direction of a stream.
const WINDOW: usize = STREAM_WINDOW_CHUNKS as usize;

// The server refuses larger ones.
const _: () = assert!(STREAM_CHUNK_BYTES <= exec_wire::limits::STREAM_CHUNK_BYTES);

#[derive(Debug)]
pub(crate) struct RemoteStreams {
    link: Link,
    /// How many streams are open on this link.
    open: Arc<AtomicUsize>,
}

impl RemoteStreams {
    pub(crate) fn new(link: Link) -> Self {
        Self { link, open: Arc::default() }
    }

    async fn open(&self, address: &StreamAddress) -> Result<RemoteStream, StreamReason> {
        if !self.link.has(Method::NetOpen) {
            return Err(StreamReason::Unsupported);
        }
        let params = wire::OpenParams { stream_id: new_id(), to: endpoint(address)? };
        let mut unopened = CloseUnlessOpened { link: &self.link, id: Some(params.stream_id.clone()) };
        let opened = call(&self.link, &params).await;
        unopened.id = None;
        opened.map_err(error::stream_reason)?;
        Ok(RemoteStream::new(self.link.clone(), params.stream_id, address.clone(), &self.open))
    }

    async fn listen_at(&self, address: &StreamAddress) -> Result<RemoteListener, StreamReason> {
        if !self.link.has(Method::NetListen) {
            return Err(StreamReason::Unsupported);
        }
        let params = wire::ListenParams { listener_id: new_id(), at: endpoint(address)? };
        let listening = self.link.call(params.clone()).await.map_err(error::stream_reason)?;
        let address = match listening.at {
            wire::Endpoint::Tcp { host, port } => StreamAddress::Tcp { host, port },
            wire::Endpoint::Unix { .. } => address.clone(),
        };
        let (link, open) = (self.link.clone(), Arc::clone(&self.open));
        Ok(RemoteListener { link, id: params.listener_id, address, open, accepting: Mutex::default() })
    }
}

impl Streams for RemoteStreams {
    fn connect(&self, to: StreamAddress) -> BoxFuture<'_, Result<Box<dyn ByteStream>, StreamError>> {
        Box::pin(async move {
            match self.open(&to).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn ByteStream>),
                Err(reason) => Err(StreamError::new(StreamVerb::Connect, &to, reason)),
            }
        })
    }

    fn listen(&self, at: StreamAddress) -> BoxFuture<'_, Result<Box<dyn StreamListener>, StreamError>> {
        Box::pin(async move {
            match self.listen_at(&at).await {
                Ok(listener) => Ok(Box::new(listener) as Box<dyn StreamListener>),
                Err(reason) => Err(StreamError::new(StreamVerb::Listen, &at, reason)),
            }
        })
    }
}

/// Nobody would ever close a stream whose caller has gone before it was open.
struct CloseUnlessOpened<'a> {
    link: &'a Link,
    id: Option<String>,
}

impl Drop for CloseUnlessOpened<'_> {
    fn drop(&mut self) {
        if let Some(stream_id) = self.id.take() {
            crate::files::send_detached(self.link, wire::CloseParams { stream_id, reset: true });
        }
    }
}

struct RemoteStream {
    link: Link,
    id: String,
    address: StreamAddress,
    reading: Mutex<ReadState>,
    /// To the writer task, which closes the stream when this is gone.
    outgoing: mpsc::Sender<Outgoing>,
    write_state: watch::Receiver<WriteState>,
    reset: CancellationToken,
    open: Arc<AtomicUsize>,
}

#[derive(Default)]
struct ReadState {
    /// The chunk that is given out next; all before it were.
    next: u64,
    /// Calls for it and those behind it.
    under_way: FuturesOrdered<BoxFuture<'static, Result<wire::ReadResult, CallError>>>,
    /// Whether the last chunk was large, so that more are asked for at once.
    is_busy: bool,
    end: Option<Result<(), StreamError>>,
}

enum Outgoing {
    Bytes(Bytes),
    Finish,
}

#[derive(Debug, Clone)]
enum WriteState {
    Open,
    /// The server has everything, the end included.
    Finished,
    Failed(StreamReason),
}

impl RemoteStream {
    fn new(link: Link, id: String, address: StreamAddress, open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        let (outgoing, queue) = mpsc::channel(STREAM_QUEUE);
        let (state, write_state) = watch::channel(WriteState::Open);
        let reset = CancellationToken::new();
        let writer = WriterTask {
            link: link.clone(),
            id: id.clone(),
            queue,
            state,
            sent: 0,
            unconfirmed: VecDeque::new(),
            under_way: FuturesOrdered::new(),
        };
        drop(tokio::spawn(writer.run(reset.clone())));
        let (open, reading) = (Arc::clone(open), Mutex::default());
        Self { link, id, address, reading, outgoing, write_state, reset, open }
    }

    /// How many chunks are asked for at once. Every call takes one of the link's places, so many streams have fewer each.
    fn reads_under_way(&self, is_busy: bool) -> usize {
        if is_busy {
            (STREAM_READS / self.open.load(Ordering::Relaxed).max(1)).clamp(STREAM_IDLE_READS, WINDOW)
        } else {
            STREAM_IDLE_READS
        }
    }

    fn ask(&self, seq: u64, acknowledged: u64) -> BoxFuture<'static, Result<wire::ReadResult, CallError>> {
        let (link, stream_id) = (self.link.clone(), self.id.clone());
        Box::pin(async move { call(&link, &wire::ReadParams { stream_id, seq, acknowledged }).await })
    }

    async fn read_chunk(&self) -> Result<Bytes, StreamError> {
        let mut state = self.reading.lock().await;
        if let Some(end) = &state.end {
            return end.clone().map(|()| Bytes::new());
        }
        let most = self.reads_under_way(state.is_busy);
        while state.under_way.len() < most {
            let call = self.ask(state.next + state.under_way.len() as u64, state.next);
            state.under_way.push_back(call);
        }
        let answer = state.under_way.next().await.expect("one was asked for just now");
        let answer = answer.map_err(|error| self.error(StreamVerb::Read, error::stream_reason(error)));
        match answer {
            Ok(chunk) if !chunk.eof => {
                let bytes = chunk.chunk.0;
                state.next += 1;
                state.is_busy = bytes.len() >= STREAM_CHUNK_BYTES / 4;
                Ok(bytes)
            }
            ended => {
                let ended = ended.map(drop);
                state.end = Some(ended.clone());
                state.under_way.clear();
                ended.map(|()| Bytes::new())
            }
        }
    }

    async fn send(&self, outgoing: Outgoing) -> Result<(), StreamError> {
        if let WriteState::Failed(reason) = &*self.write_state.borrow() {
            return Err(self.error(StreamVerb::Write, reason.clone()));
        }
        if self.outgoing.send(outgoing).await.is_err() {
            // The task has ended before its stream, so it has said why.
            return match &*self.write_state.borrow() {
                WriteState::Failed(reason) => Err(self.error(StreamVerb::Write, reason.clone())),
                WriteState::Open | WriteState::Finished => Err(self.error(StreamVerb::Write, StreamReason::Os(EPIPE))),
            };
        }
        Ok(())
    }

    fn error(&self, verb: StreamVerb, reason: StreamReason) -> StreamError {
        StreamError::new(verb, &self.address, reason)
    }
}

const EPIPE: i32 = 32;

impl ByteStream for RemoteStream {
    fn read(&self) -> BoxFuture<'_, Result<Bytes, StreamError>> {
        Box::pin(self.read_chunk())
    }

    fn write(&self, mut bytes: Bytes) -> BoxFuture<'_, Result<(), StreamError>> {
        Box::pin(async move {
            while !bytes.is_empty() {
                let piece = bytes.split_to(bytes.len().min(STREAM_CHUNK_BYTES));
                self.send(Outgoing::Bytes(piece)).await?;
            }
            Ok(())
        })
    }

    fn finish(&self) -> BoxFuture<'_, Result<(), StreamError>> {
        Box::pin(async move {
            self.send(Outgoing::Finish).await?;
            let mut state = self.write_state.clone();
            match state.wait_for(|state| !matches!(state, WriteState::Open)).await.as_deref() {
                Ok(WriteState::Failed(reason)) => Err(self.error(StreamVerb::Write, reason.clone())),
                Ok(WriteState::Open | WriteState::Finished) | Err(_) => Ok(()),
            }
        })
    }

    fn reset(&self) {
        self.reset.cancel();
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Writes to one stream, and closes it in the end.
struct WriterTask {
    link: Link,
    id: String,
    queue: mpsc::Receiver<Outgoing>,
    state: watch::Sender<WriteState>,
    /// The offset of what is written next.
    sent: u64,
    /// What the server has not accepted yet, as far as we know.
    unconfirmed: VecDeque<Piece>,
    under_way: FuturesOrdered<BoxFuture<'static, (Piece, Result<wire::WriteResult, CallError>)>>,
}

/// Bytes at their offset, or the end.
#[derive(Clone)]
struct Piece {
    offset: u64,
    bytes: Bytes,
    eof: bool,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

enum Event {
    Queued(Option<Outgoing>),
    Answered(Piece, Result<wire::WriteResult, CallError>),
}

impl WriterTask {
    async fn run(mut self, reset: CancellationToken) {
        let all_sent = tokio::select! {
            biased;
            () = reset.cancelled() => false,
            sent = self.write_all() => match sent {
                Ok(()) => !reset.is_cancelled(),
                Err(reason) => {
                    self.state.send_replace(WriteState::Failed(reason));
                    // The stream may still be read.
                    while self.queue.recv().await.is_some() {}
                    !reset.is_cancelled()
                }
            },
        };
        // It may be that the server knows nothing of it any more.
        let _ = self.link.call(wire::CloseParams { stream_id: self.id, reset: !all_sent }).await;
    }

    /// Writes what is queued, until the stream is dropped.
    async fn write_all(&mut self) -> Result<(), StreamReason> {
        loop {
            let has_room = self.unconfirmed.len() < WINDOW;
            let event = tokio::select! {
                biased;
                Some((piece, answer)) = self.under_way.next(), if !self.under_way.is_empty() => Event::Answered(piece, answer),
                queued = self.queue.recv(), if has_room => Event::Queued(queued),
            };
            match event {
                Event::Queued(Some(Outgoing::Bytes(bytes))) => self.begin(bytes, false),
                Event::Queued(Some(Outgoing::Finish)) => self.begin(Bytes::new(), true),
                Event::Queued(None) => {
                    // Nobody waits for a far end that does not read what it was sent last.
                    let settled = tokio::time::timeout(STREAM_LINGER, self.settle()).await;
                    return settled.unwrap_or(Err(StreamReason::Os(EPIPE)));
                }
                Event::Answered(piece, answer) => self.on_answer(&piece, answer).await?,
            }
        }
    }

    /// Waits until everything is accepted.
    async fn settle(&mut self) -> Result<(), StreamReason> {
        while let Some((piece, answer)) = self.under_way.next().await {
            self.on_answer(&piece, answer).await?;
        }
        Ok(())
    }

    fn begin(&mut self, bytes: Bytes, eof: bool) {
        let piece = Piece { offset: self.sent, bytes, eof };
        self.sent = piece.end();
        self.unconfirmed.push_back(piece.clone());
        self.send(piece);
    }

    fn send(&mut self, piece: Piece) {
        let (link, stream_id) = (self.link.clone(), self.id.clone());
        self.under_way.push_back(Box::pin(async move {
            let Piece { offset, bytes, eof } = piece.clone();
            let params = wire::WriteParams { stream_id, offset, chunk: Base64(bytes), eof };
            (piece, call(&link, &params).await)
        }));
    }

    async fn on_answer(
        &mut self,
        piece: &Piece,
        answer: Result<wire::WriteResult, CallError>,
    ) -> Result<(), StreamReason> {
        if self.confirm(piece, answer)? {
            return Ok(());
        }
        // There was no room for it, or nobody knows. What was sent behind it was not accepted either, then.
        while let Some((piece, answer)) = self.under_way.next().await {
            self.confirm(&piece, answer)?;
        }
        if self.unconfirmed.is_empty() {
            return Ok(());
        }
        let params = wire::AwaitRoomParams { stream_id: self.id.clone() };
        let accepted = call(&self.link, &params).await.map_err(error::stream_reason)?.accepted;
        self.confirm_up_to(accepted);
        for piece in self.unconfirmed.clone() {
            self.send(piece);
        }
        Ok(())
    }

    /// Whether all of a piece was accepted.
    fn confirm(&mut self, piece: &Piece, answer: Result<wire::WriteResult, CallError>) -> Result<bool, StreamReason> {
        let accepted = match answer {
            Ok(answer) => answer.accepted,
            Err(error @ (CallError::Refused { .. } | CallError::Undecodable { .. })) => {
                return Err(error::stream_reason(error));
            }
            // The connection broke so often that the call was given up. The next one tells what was accepted.
            Err(_) => return Ok(false),
        };
        self.confirm_up_to(accepted);
        let is_whole = accepted >= piece.end();
        if piece.eof && is_whole {
            self.unconfirmed.clear();
            self.state.send_replace(WriteState::Finished);
        }
        Ok(is_whole)
    }

    fn confirm_up_to(&mut self, accepted: u64) {
        while let Some(first) = self.unconfirmed.front_mut() {
            // Only its own answer says that an end was accepted.
            if !first.eof && first.end() <= accepted {
                self.unconfirmed.pop_front();
                continue;
            }
            if first.offset < accepted {
                drop(first.bytes.split_to((accepted - first.offset) as usize));
                first.offset = accepted;
            }
            return;
        }
    }
}

struct RemoteListener {
    link: Link,
    id: String,
    address: StreamAddress,
    open: Arc<AtomicUsize>,
    /// The call for the next connection, with the id that this gets. It stays when the caller goes, so that no connection is
    /// lost and the server has one such call to keep and not many.
    accepting: Mutex<Option<AcceptCall>>,
}

/// The id that a connection gets, and the answer.
type AcceptCall = BoxFuture<'static, (String, Result<wire::AcceptResult, CallError>)>;

impl StreamListener for RemoteListener {
    fn address(&self) -> &StreamAddress {
        &self.address
    }

    fn accept(&self) -> BoxFuture<'_, Result<Accepted, StreamError>> {
        Box::pin(async move {
            let mut accepting = self.accepting.lock().await;
            let call = accepting.get_or_insert_with(|| {
                let (link, listener_id) = (self.link.clone(), self.id.clone());
                Box::pin(async move {
                    let params = wire::AcceptParams { listener_id, stream_id: new_id() };
                    let accepted = call(&link, &params).await;
                    (params.stream_id, accepted)
                })
            });
            let (id, accepted) = call.await;
            *accepting = None;
            let accepted = accepted
                .map_err(|error| StreamError::new(StreamVerb::Accept, &self.address, error::stream_reason(error)))?;
            let stream = RemoteStream::new(self.link.clone(), id, self.address.clone(), &self.open);
            Ok(Accepted { stream: Box::new(stream), peer: accepted.peer })
        })
    }
}

impl Drop for RemoteListener {
    fn drop(&mut self) {
        let params = wire::UnlistenParams { listener_id: std::mem::take(&mut self.id) };
        crate::files::send_detached(&self.link, params);
    }
}

/// Calls a method that may wait for as long as a far end likes.
async fn call<C: Call>(link: &Link, params: &C) -> Result<C::Result, CallError> {
    let deadline = if C::METHOD.behaviour().waits { STREAM_WAIT } else { link.call_deadline() };
    link.call_with(params, CallOptions { deadline, retry: C::METHOD.behaviour().retry }).await.result
}

fn endpoint(address: &StreamAddress) -> Result<wire::Endpoint, StreamReason> {
    Ok(match address {
        StreamAddress::Tcp { host, port } => wire::Endpoint::Tcp { host: host.clone(), port: *port },
        StreamAddress::Unix { path } => {
            let path = PathUri::from_path(path)
                .map_err(|_| StreamReason::BadPath { why: "the path of a socket must be absolute".to_owned() })?;
            wire::Endpoint::Unix { path }
        }
    })
}

/// Another client of the session may have made ids, too, so they are not counted.
fn new_id() -> String {
    format!("{:016x}", random_seed())
}
