//! The mailroom: the one task that writes to a connection.
//!
//! ```text
//!   replies, control ──────────────► first, in order ─┐
//!   large replies, bodies, changes ──► every other ───┼─► transport
//!   process ──► follower ──► ready ──► turns (fair) ──┘
//! ```
//!
//! Output is not queued here: when a process has its turn, a page is read from its log and sent. So a client that stops
//! reading costs a page, whatever floods; and push, replay and resume are the same thing from different places.

mod lane;
mod turns;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use exec_core::Seq;
use exec_env::SharedEnvironment;
use exec_transport::{CloseReason, Message, SendError, Sender};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::limits::{RESUME_WAIT, TURN_BYTES};
use crate::session::{Process, Reading};
use lane::{Lane, Ready};
use turns::Turns;

/// Something to send, or to begin.
pub(crate) enum Post {
    /// An answer or a remark. What it holds is given back when it is on its way.
    Message(Bytes, Option<Held>),
    /// A large answer, or a piece of something that goes on. It takes turns with the output of processes, so that
    /// somebody's keystroke does not wait behind somebody's file.
    Bulk(Message, Option<Held>),
    /// Everything posted before is on its way.
    Begin(oneshot::Sender<()>),
    /// A process's output from here on.
    Follow { process: Arc<Process>, after: Seq },
    /// A process of a resumed session: its output goes on where the client's first read ends, or after a while from
    /// where the last writer stopped.
    FollowLater { process: Arc<Process> },
    /// The client has read a process up to `after`; if its output waits for that, it begins.
    HasRead { reading: Reading, after: Seq },
    /// The process is forgotten.
    Unfollow { process: Arc<Process> },
    /// Output as binary frames from here on.
    BinaryFrames,
    /// Whether the peer writes `jsonrpc`.
    Jsonrpc,
    /// The last word.
    Close(CloseReason),
}

/// What an accepted request holds until its answer is on its way: its place among the accepted, and the room of a
/// large answer. Never looked at, only dropped.
pub(crate) type Held = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

/// Where posts are put. Bounded by what is accepted at once: each request holds a permit until its answer is sent, and
/// causes one post more at the most; remarks come from sources that have their own bounds.
pub(crate) type PostBox = mpsc::UnboundedSender<Post>;

/// The same, for whoever must not keep a connection alive.
pub(crate) type WeakPostBox = mpsc::WeakUnboundedSender<Post>;

pub(crate) struct Mailroom {
    environment: SharedEnvironment,
    sender: Sender,
    /// bounded by [`PostBox`]'s rule
    posts: mpsc::UnboundedReceiver<Post>,
    lanes: HashMap<String, Lane>,
    idle: FuturesUnordered<Ready>,
    turns: Turns<Turn>,
    /// Bounded by what their requests and sources hold.
    bulk: VecDeque<(Message, Option<Held>)>,
    /// Whether the last turn was a bulk's.
    bulk_was_last: bool,
    next_token: u64,
    jsonrpc: bool,
    binary: bool,
    last_sent: LastSent,
}

/// The last piece of output that was sent. Once it is on its way the next one is written where it was: to ask for as
/// much memory for each piece of a flood, and to give it back, takes as long as to fill it.
#[derive(Default)]
struct LastSent(Bytes);

impl LastSent {
    fn take_memory(&mut self) -> Vec<u8> {
        let mut memory = std::mem::take(&mut self.0).try_into_mut().map(Vec::from).unwrap_or_default();
        memory.clear();
        memory
    }
}

/// A lane that has something to send, with its follower.
struct Turn {
    wire_id: String,
    token: u64,
    follower: Box<dyn exec_env::process::LogFollower>,
}

impl Mailroom {
    /// `posts` is bounded by [`PostBox`]'s rule.
    pub(crate) fn new(environment: SharedEnvironment, sender: Sender, posts: mpsc::UnboundedReceiver<Post>) -> Self {
        Self {
            environment,
            sender,
            posts,
            lanes: HashMap::new(),
            idle: FuturesUnordered::new(),
            turns: Turns::default(),
            bulk: VecDeque::new(),
            bulk_was_last: false,
            next_token: 0,
            jsonrpc: false,
            binary: false,
            last_sent: LastSent::default(),
        }
    }

    /// Sends until it is told to close, the connection breaks, or nobody can post any more.
    pub(crate) async fn run(mut self) -> Result<(), SendError> {
        let reason = loop {
            match self.round().await {
                // A peer that takes all we have would keep us here; its own next request wants to be read.
                Ok(None) => tokio::task::yield_now().await,
                Ok(Some(reason)) => break reason,
                Err(error) => return Err(error),
            }
        };
        self.sender.close(reason).await;
        Ok(())
    }

    /// Everything that is posted, then one turn; or a wait for either.
    async fn round(&mut self) -> Result<Option<CloseReason>, SendError> {
        while let Ok(post) = self.posts.try_recv() {
            if let Some(reason) = self.take(post).await? {
                return Ok(Some(reason));
            }
        }
        while let Some(Some(ready)) = self.idle.next().now_or_never() {
            self.on_ready(ready);
        }
        if !self.bulk_was_last && self.send_bulk().await? {
            self.bulk_was_last = true;
            return Ok(None);
        }
        self.bulk_was_last = false;
        if let Some(turn) = self.turns.next() {
            self.send_output(turn).await?;
            return Ok(None);
        }
        if !self.bulk.is_empty() {
            return Ok(None);
        }
        self.sender.flush().await?;
        self.last_sent = LastSent::default();
        let due = self.lanes.values().filter_map(Lane::begins_by).min();
        tokio::select! {
            biased;
            post = self.posts.recv() => match post {
                Some(post) => self.take(post).await,
                None => Ok(Some(CloseReason::normal())),
            },
            Some(ready) = self.idle.next(), if !self.idle.is_empty() => {
                self.on_ready(ready);
                Ok(None)
            }
            () = until(due) => {
                self.begin_overdue(Instant::now()).await;
                Ok(None)
            }
        }
    }

    async fn take(&mut self, post: Post) -> Result<Option<CloseReason>, SendError> {
        match post {
            Post::Message(bytes, held) => {
                self.sender.feed(Message::Text(bytes)).await?;
                drop(held);
            }
            Post::Bulk(message, held) => self.bulk.push_back((message, held)),
            // Nobody waits for it any more: what was to begin is over.
            Post::Begin(begin) => drop(begin.send(())),
            Post::Follow { process, after } => self.follow(process, after).await,
            Post::FollowLater { process } => {
                if self.lanes.get(&process.wire_id).is_some_and(|lane| lane.is_of(&process)) {
                    return Ok(None);
                }
                let lane = Lane::waiting(process, Instant::now() + RESUME_WAIT);
                self.lanes.insert(lane.wire_id().to_owned(), lane);
            }
            Post::HasRead { reading, after } => {
                let process = reading.0.clone();
                if self.lanes.get(&process.wire_id).is_some_and(|lane| lane.waits_for(&process)) {
                    self.follow(process, after).await;
                }
            }
            Post::Unfollow { process } => {
                if self.lanes.get(&process.wire_id).is_some_and(|lane| lane.is_of(&process)) {
                    self.lanes.remove(&process.wire_id);
                    self.turns.remove(|turn| turn.wire_id == process.wire_id);
                }
            }
            Post::BinaryFrames => self.binary = self.sender.carries_binary(),
            Post::Jsonrpc => self.jsonrpc = true,
            Post::Close(reason) => {
                // What was answered before the end is still told.
                while self.send_bulk().await? {}
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }

    async fn follow(&mut self, process: Arc<Process>, after: Seq) {
        // A process that is gone by now has nothing to send.
        let Ok(follower) = self.environment.processes().follow(&process.id, after).await else { return };
        self.next_token += 1;
        let lane = Lane::following(process, self.next_token, self.jsonrpc);
        let wire_id = lane.wire_id().to_owned();
        self.idle.push(lane::ready(wire_id.clone(), self.next_token, follower));
        self.lanes.insert(wire_id, lane);
    }

    async fn begin_overdue(&mut self, now: Instant) {
        let overdue = self.lanes.values().filter(|lane| lane.begins_by().is_some_and(|by| by <= now));
        let overdue: Vec<Arc<Process>> = overdue.map(Lane::process).collect();
        for process in overdue {
            // The read has come and its page, a large one, is still being made. Output from further on would be there
            // before it, and a Codex client fails a process that runs ahead by more than 1 MiB.
            if process.is_being_read() {
                let lane = Lane::waiting(process, now + RESUME_WAIT);
                self.lanes.insert(lane.wire_id().to_owned(), lane);
                continue;
            }
            let after = process.sent();
            self.follow(process, after).await;
        }
    }

    fn on_ready(&mut self, (wire_id, token, follower): (String, u64, Box<dyn exec_env::process::LogFollower>)) {
        // A follower of an earlier lane of the same name has nothing to say any more.
        if let Some(lane) = self.lanes.get(&wire_id).filter(|lane| lane.token() == token) {
            self.turns.ready(Turn { wire_id, token, follower }, lane.last_bytes());
        }
    }

    /// The next bulk; whether there was one.
    async fn send_bulk(&mut self) -> Result<bool, SendError> {
        let Some((message, held)) = self.bulk.pop_front() else { return Ok(false) };
        self.sender.feed(message).await?;
        drop(held);
        Ok(true)
    }

    /// One page of one process.
    async fn send_output(&mut self, mut turn: Turn) -> Result<(), SendError> {
        let Some(lane) = self.lanes.get_mut(&turn.wire_id).filter(|lane| lane.token() == turn.token) else {
            return Ok(());
        };
        let page = match turn.follower.next(TURN_BYTES).await {
            Ok(Some(page)) => page,
            Ok(None) => {
                self.lanes.remove(&turn.wire_id);
                return Ok(());
            }
            Err(error) => {
                tracing::error!(process = %turn.wire_id, %error, "the push of its output ends");
                self.lanes.remove(&turn.wire_id);
                return Ok(());
            }
        };
        let over = page.head.closed && page.entries.last().is_some_and(|last| last.seq + 1 >= page.head.next_seq);
        let mut bytes = 0;
        for entry in page.entries {
            bytes += entry_bytes(&entry);
            let (seq, message) = (entry.seq, lane.encode(entry, self.binary, self.last_sent.take_memory()));
            self.last_sent = LastSent(message.bytes().clone());
            self.sender.feed(message).await?;
            lane.note_sent(seq);
        }
        lane.note_turn(bytes);
        if over {
            self.lanes.remove(&turn.wire_id);
        } else {
            self.idle.push(lane::ready(turn.wire_id, turn.token, turn.follower));
        }
        Ok(())
    }
}

fn entry_bytes(entry: &exec_core::Entry) -> usize {
    match &entry.body {
        exec_core::EntryBody::Output { bytes, .. } => bytes.len(),
        exec_core::EntryBody::Exited(_) | exec_core::EntryBody::Closed => 0,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
