//! What a process prints: as events in the order of its log, as the bytes of one stream, or all of it at its end.
//!
//! Each of these reads the log by itself, so there may be any number of them. A reader that is behind keeps a full log from
//! dropping what it has yet to read, as every follower does; if something is gone all the same, it is told.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use exec_env::BoxFuture;
use futures_util::{Stream as EventStream, StreamExt as _};
use tokio::io::{AsyncRead, ReadBuf};

use crate::process::{LogEvent, LogFollower, ProcessError};
use crate::{Entry, EntryBody, Exit, Page, ProcessId, Seq, SharedEnvironment, Stream};

/// How much output is fetched at a time, in bytes: enough for a flood, and little to hold for each reader.
const PAGE_BYTES: usize = 256 << 10;

/// The log of a process, entry by entry: a [`futures_util::Stream`] that ends behind [`EntryBody::Closed`], or behind an
/// error.
pub struct Events {
    /// What was fetched and not yet handed out.
    fetched: VecDeque<LogEvent>,
    state: State,
}

type Fetched = (Box<dyn LogFollower>, Result<Option<Page>, ProcessError>);

enum State {
    Opening(BoxFuture<'static, Result<Box<dyn LogFollower>, ProcessError>>),
    Waiting(BoxFuture<'static, Fetched>),
    Done,
}

impl Events {
    pub(super) fn new(environment: SharedEnvironment, id: ProcessId, after: Seq) -> Self {
        let opening = async move { environment.processes().follow(&id, after).await };
        Self { fetched: VecDeque::new(), state: State::Opening(Box::pin(opening)) }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("fetched", &self.fetched.len()).finish_non_exhaustive()
    }
}

impl EventStream for Events {
    type Item = Result<LogEvent, ProcessError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.fetched.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            let result = match &mut self.state {
                State::Opening(opening) => ready!(opening.as_mut().poll(context)).map(|follower| (follower, None)),
                State::Waiting(waiting) => match ready!(waiting.as_mut().poll(context)) {
                    (follower, Ok(Some(page))) => Ok((follower, Some(page))),
                    (_, Ok(None)) => {
                        self.state = State::Done;
                        return Poll::Ready(None);
                    }
                    (_, Err(error)) => Err(error),
                },
                State::Done => return Poll::Ready(None),
            };
            match result {
                Ok((follower, page)) => {
                    self.fetched.extend(page.into_iter().flat_map(LogEvent::of));
                    self.state = State::Waiting(Box::pin(next_page(follower)));
                }
                Err(error) => {
                    self.state = State::Done;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

async fn next_page(mut follower: Box<dyn LogFollower>) -> Fetched {
    let page = follower.next(PAGE_BYTES).await;
    (follower, page)
}

/// All that a process printed, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub exit: Exit,
    /// Of a process with a terminal, everything.
    pub stdout: Vec<u8>,
    /// Of a process with a terminal, nothing.
    pub stderr: Vec<u8>,
    /// How many bytes a full log had dropped before they were read. They are missing above.
    pub lost_bytes: u64,
}

impl Output {
    pub(super) async fn collect(mut events: Events) -> Result<Self, ProcessError> {
        let mut output = Self { exit: Exit::LOST, stdout: Vec::new(), stderr: Vec::new(), lost_bytes: 0 };
        while let Some(event) = events.next().await {
            match event? {
                LogEvent::Gap(gap) => output.lost_bytes = gap.dropped_bytes,
                LogEvent::Entry(Entry { body: EntryBody::Output { stream, bytes }, .. }) => match stream {
                    Stream::Stderr => output.stderr.extend_from_slice(&bytes),
                    Stream::Stdout | Stream::Pty => output.stdout.extend_from_slice(&bytes),
                },
                LogEvent::Entry(Entry { body: EntryBody::Exited(exit), .. }) => output.exit = exit,
                LogEvent::Entry(Entry { body: EntryBody::Closed, .. }) => {}
            }
        }
        Ok(output)
    }
}

/// One stream of a process as bytes: an [`AsyncRead`] that ends when nobody is left who could print more.
///
/// Where a full log has dropped output, one read fails with [`io::ErrorKind::InvalidData`] and says how much; the next one
/// goes on behind it.
#[derive(Debug)]
pub struct OutputReader {
    events: Events,
    streams: &'static [Stream],
    /// The rest of the entry that is being read.
    rest: Bytes,
}

impl OutputReader {
    pub(super) fn new(events: Events, streams: &'static [Stream]) -> Self {
        Self { events, streams, rest: Bytes::new() }
    }
}

impl AsyncRead for OutputReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            let event = match ready!(self.events.poll_next_unpin(context)) {
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(io_error(error))),
                Some(Ok(event)) => event,
            };
            match event {
                LogEvent::Entry(Entry { body: EntryBody::Output { stream, bytes }, .. })
                    if self.streams.contains(&stream) =>
                {
                    self.rest = bytes;
                }
                LogEvent::Entry(_) => {}
                LogEvent::Gap(gap) => {
                    let why =
                        format!("the log was full and has dropped {} bytes that were not read", gap.dropped_bytes);
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                }
            }
        }
        let taken = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(taken));
        Poll::Ready(Ok(()))
    }
}

/// The error of a process for those who read and write bytes.
pub(super) fn io_error(error: ProcessError) -> io::Error {
    use crate::process::ProcessReason;
    let kind = match error.reason {
        ProcessReason::UnknownProcess => io::ErrorKind::NotFound,
        ProcessReason::Unreachable(_) => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
