//! The writer: the one task that writes to a connection.
//!
//! ```text
//!   responses, control ──────────────────────► first, in order ─┐
//!   large responses, bodies, changes ──► bulk ─┐                 ├─► transport
//!   process ──► follower ──► fair queue ───────┴──► alternately ─┘
//! ```
//!
//! The output of processes is not queued here: when a process may send, a page is read from its log and sent. So a client
//! that stops reading costs the memory of one page, however much its processes print; and push, replay and resume differ
//! only in where in the log they begin.
//!
//! A client that asked for a window acknowledges what it has read. A push is never further ahead of that than the window,
//! and the log keeps what was not acknowledged. To a plain client, what was sent counts as read. For a client that only
//! observes, nothing is kept and nobody waits: its acknowledgements only pace its own push.

mod coalesced;
mod fair_queue;
mod output_push;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use exec_core::Seq;
use exec_env::BoxFuture;
use exec_env::process::{LogFollower, ProcessError, ProcessReason};
use exec_transport::{CloseReason, Message, SendError, Sender};
use exec_wire::envelope;
use exec_wire::limits::ENTRY_OVERHEAD_BYTES;
use exec_wire::method::NotificationMethod;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::limits::{FIRST_READ_WAIT, OBSERVER_PUSH_BYTES, PAGES_IN_A_TURN, PAUSE_AFTER_FIRST_READ, PUSH_BYTES};
use crate::session::denial::DenialFollower;
use crate::session::{ConnectionId, ReadInProgress, ReadPositions, Session, SessionProcess};
pub(crate) use coalesced::Coalesced;
use fair_queue::FairQueue;
use output_push::{Awaited, OutputPush, ReadyFollower, WhenFull};

pub(crate) enum WriterCommand {
    /// Sends a response or a notification, and then releases its permits.
    Message(Bytes, Option<HeldPermits>),
    /// The same for a response that is a small binary frame.
    SmallFrame(Bytes, Option<HeldPermits>),
    /// Sends a large message, or one of many. Such messages alternate with the output of processes, so that the echo of
    /// a keystroke does not wait for a whole file.
    Bulk {
        message: Message,
        /// What the message goes on with. It is not copied.
        body: Bytes,
        permits: Option<HeldPermits>,
    },
    /// Signals that every message before this command was sent, except bulk messages.
    Barrier(oneshot::Sender<()>),
    /// Pushes the output of a process, beginning after this entry.
    Follow { process: Arc<SessionProcess>, after: Seq },
    /// Pushes the output of a process of a resumed session, beginning where the client's first read ends. If the client
    /// does not read it for a while, the push begins where the previous connection stopped.
    FollowAfterFirstRead { process: Arc<SessionProcess> },
    /// The client has read a process up to `after`. If the push waits for that, it begins.
    ClientHasRead { read: ReadInProgress, after: Seq },
    /// The client acknowledges what it reads, and holds so much of each process that it has not acknowledged.
    UseWindow { bytes: usize },
    /// The client has acknowledged something of this process.
    Acknowledged { process: Arc<SessionProcess> },
    /// The client drives its session from now on, or no longer does.
    RoleChanged,
    /// Another connection of the session has started processes: pushes their output from its beginning.
    FollowStarted,
    /// Tells the client who is attached to its session.
    TellAttendance { session: Arc<Session> },
    /// Ends the push, because the process was forgotten.
    Unfollow { process: Arc<SessionProcess> },
    /// Encodes output as binary frames from now on.
    UseBinaryFrames,
    /// Writes the member `jsonrpc` from now on.
    WriteJsonrpc,
    /// Sends what is queued and closes the connection.
    Close(CloseReason),
}

/// The permits that a request holds until its response is sent: its place among the accepted requests, and the memory of
/// a large response. Never read, only dropped.
pub(crate) type HeldPermits = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

/// Sends commands to the writer. The channel is bounded by the accepted requests: each holds a permit until its response
/// is sent, and causes at most one more command. There is at most one acknowledgement for each process, and one of each kind
/// of news ([`Coalesced`]). The senders of notifications have bounds of their own.
pub(crate) type WriterHandle = mpsc::UnboundedSender<WriterCommand>;

/// A handle that does not keep the writer running.
pub(crate) type WeakWriterHandle = mpsc::WeakUnboundedSender<WriterCommand>;

pub(crate) struct Writer {
    id: ConnectionId,
    sender: Sender,
    /// bounded by what `WriterHandle` says
    commands: mpsc::UnboundedReceiver<WriterCommand>,
    /// What was recorded for the commands that say no more than that there is something.
    news: Arc<Coalesced>,
    /// Whether the client may hear of processes unasked.
    pushes_output: bool,
    /// Whether the log keeps anything for the client: it drives its session.
    drives: bool,
    /// By the client's id of the process.
    pushes: HashMap<String, OutputPush>,
    /// Whatever may wait for an environment: a far one may be away, and nothing else must wait for it.
    awaited: FuturesUnordered<BoxFuture<'static, Awaited>>,
    /// Holds that are being begun, by the client's id of the process, and what it has acknowledged meanwhile.
    beginning_holds: HashMap<String, Option<Seq>>,
    ready_followers: FairQueue<ReadyFollower>,
    /// Bounded by the permits that its messages hold.
    bulk: VecDeque<(Message, Bytes, Option<HeldPermits>)>,
    sent_bulk_last: bool,
    /// Pages to send before other tasks of this thread run again.
    pages_left_in_turn: usize,
    last_generation: u64,
    jsonrpc: bool,
    binary: bool,
    /// `None` if the client does not acknowledge what it reads.
    window: Option<usize>,
    last_output: LastOutput,
}

/// The last output message that was sent. Once the transport is done with it, the next one is written into the same
/// memory: to allocate and free memory for each message of a flood takes as long as to fill it.
#[derive(Default)]
struct LastOutput(Bytes);

impl LastOutput {
    fn take_memory(&mut self) -> Vec<u8> {
        let mut memory = std::mem::take(&mut self.0).try_into_mut().map(Vec::from).unwrap_or_default();
        memory.clear();
        memory
    }
}

thread_local! {
    /// One for all writers of a worker whose clients only observe.
    static OBSERVER_TURN: Arc<Semaphore> = Arc::new(Semaphore::new(1));
}

impl Writer {
    pub(crate) fn new(
        id: ConnectionId,
        sender: Sender,
        // bounded by what `WriterHandle` says
        commands: mpsc::UnboundedReceiver<WriterCommand>,
        news: Arc<Coalesced>,
        pushes_output: bool,
    ) -> Self {
        Self {
            id,
            sender,
            commands,
            news,
            pushes_output,
            drives: true,
            pushes: HashMap::new(),
            awaited: FuturesUnordered::new(),
            beginning_holds: HashMap::new(),
            ready_followers: FairQueue::default(),
            bulk: VecDeque::new(),
            sent_bulk_last: false,
            pages_left_in_turn: 0,
            last_generation: 0,
            jsonrpc: false,
            binary: false,
            window: None,
            last_output: LastOutput::default(),
        }
    }

    /// Runs until it gets [`WriterCommand::Close`], the connection breaks, or no handle is left.
    pub(crate) async fn run(mut self) -> Result<(), SendError> {
        let reason = loop {
            match self.run_once().await? {
                None if self.pages_left_in_turn > 0 => {}
                // A peer that accepts all we have would keep this task busy; its next request must be read, too.
                None => tokio::task::yield_now().await,
                Some(reason) => break reason,
            }
        };
        self.sender.close(reason).await;
        Ok(())
    }

    /// Executes all commands that are there, then sends one bulk message or one page; if there is neither, waits.
    async fn run_once(&mut self) -> Result<Option<CloseReason>, SendError> {
        while let Ok(command) = self.commands.try_recv() {
            if let Some(reason) = self.execute(command).await? {
                return Ok(Some(reason));
            }
        }
        while let Some(Some(awaited)) = self.awaited.next().now_or_never() {
            self.on_awaited(awaited);
        }
        if !self.sent_bulk_last && self.send_bulk().await? {
            self.sent_bulk_last = true;
            return Ok(None);
        }
        self.sent_bulk_last = false;
        if !self.drives && self.ready_followers.len() > 0 {
            // There may be many observers, and some read slowly. Until the kernel takes a message whole, none is made for them,
            // so that they cost next to no memory; the log has it meanwhile.
            tokio::select! {
                biased;
                Some(command) = self.commands.recv() => return self.execute(command).await,
                room = self.sender.wait_for_room() => room?,
            }
        }
        if self.pages_left_in_turn == 0 {
            // As many as there are processes with output: each of their movers had a turn as well. With fewer, movers
            // would move little at a time, because they come by more often than anything leaves.
            self.pages_left_in_turn = self.ready_followers.len().min(PAGES_IN_A_TURN);
        }
        if let Some(ready) = self.ready_followers.pop() {
            self.pages_left_in_turn = self.pages_left_in_turn.saturating_sub(1);
            self.send_output(ready).await?;
            return Ok(None);
        }
        self.pages_left_in_turn = 0;
        if !self.bulk.is_empty() {
            return Ok(None);
        }
        self.sender.flush().await?;
        self.last_output = LastOutput::default();
        let next_due = self.pushes.values().filter_map(OutputPush::begins_by).min();
        tokio::select! {
            biased;
            command = self.commands.recv() => match command {
                Some(command) => self.execute(command).await,
                None => Ok(Some(CloseReason::normal())),
            },
            Some(awaited) = self.awaited.next(), if !self.awaited.is_empty() => {
                self.on_awaited(awaited);
                Ok(None)
            }
            () = sleep_until(next_due) => {
                self.begin_overdue_pushes(Instant::now());
                Ok(None)
            }
        }
    }

    async fn execute(&mut self, command: WriterCommand) -> Result<Option<CloseReason>, SendError> {
        match command {
            WriterCommand::Message(bytes, permits) => {
                self.sender.feed(Message::Text(bytes)).await?;
                drop(permits);
            }
            WriterCommand::SmallFrame(bytes, permits) => {
                self.sender.feed(Message::Binary(bytes)).await?;
                drop(permits);
            }
            WriterCommand::Bulk { message, body, permits } => self.bulk.push_back((message, body, permits)),
            // An error means that whoever waited has stopped already.
            WriterCommand::Barrier(reached) => drop(reached.send(())),
            WriterCommand::Follow { .. } | WriterCommand::FollowAfterFirstRead { .. } if !self.pushes_output => {}
            WriterCommand::Follow { process, after } => {
                self.hold_until_client_speaks(&process, after);
                self.follow(process, after);
            }
            WriterCommand::FollowStarted => {
                for process in self.news.take_started() {
                    if self.pushes_output && self.push_of(&process).is_none() {
                        self.hold_until_client_speaks(&process, 0);
                        self.follow(process, 0);
                    }
                }
            }
            WriterCommand::RoleChanged => self.on_role_changed(),
            WriterCommand::TellAttendance { session } => self.tell_attendance(&session).await?,
            WriterCommand::FollowAfterFirstRead { process } => {
                if self.push_of(&process).is_none() {
                    self.await_first_read(process, Instant::now());
                }
            }
            WriterCommand::ClientHasRead { read, after } => {
                let process = read.0.clone();
                if self.push_of(&process).is_some_and(|push| push.begins_by().is_some()) {
                    // A client with a window is ready for all that fits it.
                    let pause = if self.window.is_some() { Duration::ZERO } else { PAUSE_AFTER_FIRST_READ };
                    self.follow_after(pause, process, after);
                }
            }
            WriterCommand::UseWindow { bytes } => self.window = Some(bytes),
            WriterCommand::Acknowledged { process } => self.on_acknowledged(process),
            WriterCommand::Unfollow { process } => {
                if self.push_of(&process).is_some() {
                    self.pushes.remove(&process.wire_id);
                    self.ready_followers.remove(|ready| ready.wire_id == process.wire_id);
                }
            }
            WriterCommand::UseBinaryFrames => self.binary = self.sender.carries_binary(),
            WriterCommand::WriteJsonrpc => self.jsonrpc = true,
            WriterCommand::Close(reason) => {
                // Responses that were made before the end are still sent.
                while self.send_bulk().await? {}
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }

    fn push_of(&self, process: &Arc<SessionProcess>) -> Option<&OutputPush> {
        self.pushes.get(&process.wire_id).filter(|push| Arc::ptr_eq(&push.process, process))
    }

    fn await_first_read(&mut self, process: Arc<SessionProcess>, now: Instant) {
        let wire_id = process.wire_id.clone();
        self.pushes.insert(wire_id, OutputPush::awaiting_first_read(process, now + FIRST_READ_WAIT));
    }

    fn follow(&mut self, process: Arc<SessionProcess>, after: Seq) {
        self.follow_after(Duration::ZERO, process, after);
    }

    /// Begins a push after a pause, in which the log already keeps what is to be sent.
    fn follow_after(&mut self, pause: Duration, process: Arc<SessionProcess>, after: Seq) {
        self.last_generation += 1;
        let generation = self.last_generation;
        let wire_id = process.wire_id.clone();
        let push = OutputPush::following(process.clone(), after, generation, self.jsonrpc);
        self.pushes.insert(wire_id.clone(), push);
        let mut following = Box::pin(open_follower(process, after, self.drives));
        // A log of this machine is followed at once, before it can drop anything.
        let followed = (&mut following).now_or_never();
        self.awaited.push(Box::pin(async move {
            let followed = match followed {
                Some(followed) => followed,
                None => following.await,
            };
            match followed {
                Ok(follower) => {
                    if !pause.is_zero() {
                        tokio::time::sleep(pause).await;
                    }
                    ReadyFollower { wire_id, generation, follower }.wait_again().await
                }
                Err(error) => Awaited::NoFollower { wire_id, generation, error },
            }
        }));
    }

    /// The log keeps what comes after `after` until the client says what it has read. The hold of an earlier connection
    /// goes on: that is where the client's last acknowledgement was.
    fn hold_until_client_speaks(&mut self, process: &Arc<SessionProcess>, after: Seq) {
        if self.window.is_some() && self.drives && !process.adopt_hold(self.id) {
            self.begin_hold(process, after, None);
        }
    }

    /// Holds what comes after `upto`; `acknowledged` if the client itself has named a position.
    fn begin_hold(&mut self, process: &Arc<SessionProcess>, upto: Seq, acknowledged: Option<Seq>) {
        if let Some(latest) = self.beginning_holds.get_mut(&process.wire_id) {
            *latest = acknowledged.or(*latest);
            return;
        }
        self.beginning_holds.insert(process.wire_id.clone(), acknowledged);
        let process = process.clone();
        let mut following = Box::pin(async move {
            // A process that was forgotten meanwhile keeps nothing.
            let follower = process.environment.processes().follow(&process.id, upto).await.ok();
            Awaited::HoldFollower { process, upto, follower }
        });
        match (&mut following).now_or_never() {
            Some(awaited) => self.on_awaited(awaited),
            None => self.awaited.push(following),
        }
    }

    fn on_awaited(&mut self, awaited: Awaited) {
        match awaited {
            Awaited::Ready(ready) => self.on_ready(ready),
            Awaited::NoFollower { wire_id, generation, error } => {
                if self.pushes.get(&wire_id).is_some_and(|push| push.is_of_generation(generation)) {
                    tracing::debug!(process = wire_id, %error, "its output cannot be pushed");
                    self.pushes.remove(&wire_id);
                }
            }
            Awaited::HoldFollower { process, upto, follower } => {
                // Without an entry, nobody wants it any more.
                let Some(acknowledged) = self.beginning_holds.remove(&process.wire_id) else { return };
                let Some(follower) = follower else { return };
                process.begin_hold(self.id, upto, follower);
                if let Some(acknowledged) = acknowledged {
                    process.move_hold(self.id, acknowledged);
                }
            }
        }
    }

    fn on_acknowledged(&mut self, process: Arc<SessionProcess>) {
        let Some(acknowledgement) = self.news.take_acknowledgement(&process) else { return };
        let Some(window) = self.window else { return };
        let Some(ReadPositions { slowest, fastest }) = acknowledgement else {
            if self.drives {
                self.beginning_holds.remove(&process.wire_id);
                process.release_hold();
            }
            if let Some(push) = self.pushes.get_mut(&process.wire_id).and_then(OutputPush::begun) {
                push.when_full = match push.when_full {
                    WhenFull::GiveUp | WhenFull::Wait => WhenFull::GiveUp,
                    WhenFull::GaveUp | WhenFull::Waiting(_) => WhenFull::GaveUp,
                };
            }
            return;
        };
        if self.drives && !process.move_hold(self.id, slowest) {
            self.begin_hold(&process, slowest, Some(slowest));
        }
        if self.push_of(&process).is_none() {
            return;
        }
        let Some(push) = self.pushes.get_mut(&process.wire_id).and_then(OutputPush::begun) else { return };
        let last_sent = push.unacknowledged.last_sent;
        // It may be that the client has fetched what we would push next.
        if fastest > last_sent || matches!(push.when_full, WhenFull::GaveUp) {
            self.follow(process.clone(), fastest.max(last_sent));
            if let Some(push) = self.pushes.get_mut(&process.wire_id).and_then(OutputPush::begun) {
                push.when_full = WhenFull::Wait;
            }
            return;
        }
        push.unacknowledged.acknowledge(fastest);
        let has_room = push.unacknowledged.leaves_room(window);
        match std::mem::replace(&mut push.when_full, WhenFull::Wait) {
            WhenFull::Waiting(ready) if has_room => self.ready_followers.push(ready, push.last_bytes),
            WhenFull::Waiting(ready) => push.when_full = WhenFull::Waiting(ready),
            WhenFull::GiveUp | WhenFull::GaveUp | WhenFull::Wait => {}
        }
    }

    /// Every push goes on where it is, with another claim on the log: what a driver has not read is kept, and nothing is kept
    /// for an observer.
    fn on_role_changed(&mut self) {
        let drives = self.news.take_role();
        if std::mem::replace(&mut self.drives, drives) == drives {
            return;
        }
        let begun = self.pushes.values_mut().filter_map(|push| {
            let last_sent = push.begun()?.unacknowledged.last_sent;
            Some((push.process.clone(), last_sent))
        });
        for (process, last_sent) in begun.collect::<Vec<_>>() {
            if drives {
                self.hold_until_client_speaks(&process, last_sent);
            } else {
                self.beginning_holds.remove(&process.wire_id);
                process.release_hold_of(self.id);
            }
            self.follow(process, last_sent);
        }
    }

    async fn tell_attendance(&mut self, session: &Session) -> Result<(), SendError> {
        self.news.take_attendance();
        let params = session.attendance().to_wire(&session.id, self.id, Instant::now());
        let mut out = Vec::new();
        envelope::write_notification(&mut out, NotificationMethod::SessionAttached.name(), &params, self.jsonrpc);
        self.sender.feed(Message::Text(Bytes::from(out))).await
    }

    fn begin_overdue_pushes(&mut self, now: Instant) {
        let overdue = self.pushes.values().filter(|push| push.begins_by().is_some_and(|by| by <= now));
        let overdue: Vec<Arc<SessionProcess>> = overdue.map(|push| push.process.clone()).collect();
        for process in overdue {
            // The read has come, and its response, a large one, is still being made. Output from behind it would arrive
            // before it, and a Codex client gives up a process whose output runs ahead by more than 1 MiB.
            if process.is_being_read() {
                self.await_first_read(process, now);
                continue;
            }
            let after = process.last_sent();
            self.follow(process, after);
        }
    }

    fn on_ready(&mut self, ready: ReadyFollower) {
        // A follower whose push was replaced or has ended is dropped.
        let push = self.pushes.get_mut(&ready.wire_id).and_then(|push| push.of_follower(&ready));
        if let Some((_, push)) = push {
            match self.window {
                Some(window) if !push.unacknowledged.leaves_room(window) => {
                    push.when_full = match push.when_full {
                        WhenFull::Wait | WhenFull::Waiting(_) => WhenFull::Waiting(ready),
                        WhenFull::GiveUp | WhenFull::GaveUp => WhenFull::GaveUp,
                    };
                }
                _ => self.ready_followers.push(ready, push.last_bytes),
            }
        }
    }

    /// Sends the next bulk message; `false` if there is none.
    async fn send_bulk(&mut self) -> Result<bool, SendError> {
        let Some((message, body, permits)) = self.bulk.pop_front() else { return Ok(false) };
        self.sender.feed_with_body(message, body).await?;
        drop(permits);
        Ok(true)
    }

    /// Sends one page of one process.
    async fn send_output(&mut self, mut ready: ReadyFollower) -> Result<(), SendError> {
        let mut turn = if self.drives { None } else { Some(observer_turn().await) };
        let push = self.pushes.get_mut(&ready.wire_id).and_then(|push| push.of_follower(&ready));
        let Some((process, push)) = push else { return Ok(()) };
        let page_bytes = if self.drives { PUSH_BYTES } else { OBSERVER_PUSH_BYTES };
        let page = match ready.follower.next(page_bytes).await {
            Ok(Some(page)) => page,
            Ok(None) => {
                self.pushes.remove(&ready.wire_id);
                return Ok(());
            }
            // The driver has forgotten it.
            Err(error) if !self.drives && error.reason == ProcessReason::UnknownProcess => {
                self.pushes.remove(&ready.wire_id);
                return Ok(());
            }
            Err(error) => {
                tracing::error!(process = %ready.wire_id, %error, "the push of its output ends");
                self.pushes.remove(&ready.wire_id);
                return Ok(());
            }
        };
        let over = page.head.closed && page.entries.last().is_some_and(|last| last.seq + 1 >= page.head.next_seq);
        let mut bytes = 0;
        if let Some(last) = page.entries.last() {
            push.unacknowledged.last_sent = last.seq;
        }
        if let (Some(_), Some(last)) = (self.window, page.entries.last()) {
            let costs = page.entries.iter().map(|entry| output_bytes(entry) + ENTRY_OVERHEAD_BYTES);
            push.unacknowledged.add(last.seq, costs.sum());
        }
        for entry in page.entries {
            bytes += output_bytes(&entry);
            let seq = entry.seq;
            let message = push.encode(process, entry, self.binary, self.last_output.take_memory());
            if self.drives {
                self.last_output = LastOutput(message.bytes().clone());
            }
            // Not while we wait for a peer that may never read.
            drop(turn.take());
            self.sender.feed(message).await?;
            if self.drives {
                process.record_sent(seq);
            }
        }
        push.last_bytes = bytes;
        if over {
            self.pushes.remove(&ready.wire_id);
        } else {
            self.awaited.push(ready.wait_again());
        }
        Ok(())
    }
}

/// Observers of a thread take turns, so that a driver's echo waits for one page of theirs and not for one of each.
async fn observer_turn() -> OwnedSemaphorePermit {
    let turns = OBSERVER_TURN.with(Arc::clone);
    turns.acquire_owned().await.expect("the semaphore is never closed")
}

/// A follower that reads for a push. What is not sent to a client that only observes is not kept for it.
async fn open_follower(
    process: Arc<SessionProcess>,
    after: Seq,
    drives: bool,
) -> Result<Box<dyn LogFollower>, ProcessError> {
    let mut follower = process.environment.processes().follow(&process.id, after).await?;
    if !drives {
        follower.acknowledge(after, Duration::ZERO);
    }
    Ok(match process.is_sandboxed() {
        true => Box::new(DenialFollower { follower, process }),
        false => follower,
    })
}

fn output_bytes(entry: &exec_core::Entry) -> usize {
    match &entry.body {
        exec_core::EntryBody::Output { bytes, .. } => bytes.len(),
        exec_core::EntryBody::Exited(_) | exec_core::EntryBody::Closed => 0,
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
