//! The task behind a link: it waits for one event, tells the rules ([`Session`]), and carries out what they answer.
//!
//! It reads the connection itself, so that an answer reaches its caller without another hop; writing is another task's
//! business, because a server that does not read must not keep us from reading. Its owner is the environment, which
//! awaits it in `close` and leaves it to its own end when dropped.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use exec_env::BoxFuture;
use exec_transport::{ConnectError, Connection, Message, Received, Receiver};
use exec_wire::envelope::{self, RequestId};
use exec_wire::initialize::{InitializeParams, InitializeResult, InitializedParams};
use exec_wire::{Method, NotificationMethod, RpcError, SharedJson};
use tokio_util::sync::CancellationToken;

use super::LinkState;
use super::incoming::{self, MessageOutcome};
use super::shared::Shared;
use super::writer::{OutgoingMessage, Writer};
use crate::dial::Dial;
use crate::error;
use crate::session::{AttemptError, Effect, LossKind, Session, SessionLoss};

/// The driver.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    dial: Arc<dyn Dial>,
    session: Session,
    initialize_options: InitializeOptions,
    slot: ConnectionSlot,
    end: CancellationToken,
}

/// What every `initialize` says.
#[derive(Debug, Clone)]
pub(crate) struct InitializeOptions {
    pub(crate) client_name: String,
    pub(crate) detached_ttl_ms: Option<u64>,
    pub(crate) binary_frames: bool,
}

enum ConnectionSlot {
    Empty,
    Dialing(BoxFuture<'static, Result<Connection, ConnectError>>),
    Open(Box<OpenConnection>),
}

struct OpenConnection {
    receiver: Receiver,
    writer: Writer,
    carries_binary: bool,
    /// The id of `initialize`, until it is answered; and the positions from which it asked the push to go on.
    initialize_request: Option<(i64, BTreeMap<String, u64>)>,
    /// What `initialize` answered, until the session is served.
    initialize_reply: Option<InitializeReply>,
    /// Whether anything came since then.
    carried_data: bool,
}

struct InitializeReply {
    requested: BTreeMap<String, u64>,
    result: InitializeResult,
}

enum Event {
    Shutdown,
    DeadlineReached,
    ConnectionWanted,
    Dialed(Result<Connection, ConnectError>),
    Received(Received),
    WriterFailed(String),
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        dial: Arc<dyn Dial>,
        session: Session,
        initialize_options: InitializeOptions,
        end: CancellationToken,
    ) -> Self {
        Self { shared, dial, session, initialize_options, slot: ConnectionSlot::Empty, end }
    }

    /// Runs until the environment lets go of the link.
    pub(crate) async fn run(mut self) {
        while !self.session.is_ended() {
            let event = self.next_event().await;
            for effect in self.handle(event) {
                self.carry_out(effect).await;
            }
        }
    }

    async fn next_event(&mut self) -> Event {
        let due = self.session.next_deadline();
        let idle = !self.session.is_live();
        let slot = &mut self.slot;
        let slot_event = async {
            match slot {
                ConnectionSlot::Empty => pending().await,
                ConnectionSlot::Dialing(dialing) => Event::Dialed(dialing.await),
                ConnectionSlot::Open(open) => tokio::select! {
                    received = open.receiver.next() => Event::Received(received),
                    why = open.writer.failed() => Event::WriterFailed(why),
                },
            }
        };
        let at_due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            // In this order, or a server that never stops talking could keep us from the rest.
            biased;
            () = self.end.cancelled() => Event::Shutdown,
            () = at_due => Event::DeadlineReached,
            () = self.shared.wanted.notified(), if idle => Event::ConnectionWanted,
            event = slot_event => event,
        }
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let now = now();
        match event {
            Event::Shutdown => self.session.end(),
            Event::DeadlineReached => self.session.tick(now),
            Event::ConnectionWanted if self.shared.lock().wanted => self.session.connection_wanted(),
            Event::ConnectionWanted => Vec::new(),
            Event::Dialed(Ok(connection)) => {
                self.slot = ConnectionSlot::Open(Box::new(OpenConnection::new(connection, &self.shared)));
                self.session.connected(now)
            }
            Event::Dialed(Err(error)) => {
                self.slot = ConnectionSlot::Empty;
                tracing::debug!(%error, "no connection");
                self.session.attempt_failed(now, dial_error(&error))
            }
            Event::Received(Received::Message(message)) => self.handle_message(message),
            // The transport says so once more, as the end.
            Event::Received(Received::Malformed { .. }) => Vec::new(),
            Event::Received(Received::Closed(closed)) => self.connection_lost(&closed.to_string()),
            Event::WriterFailed(why) => self.connection_lost(&why),
        }
    }

    fn handle_message(&mut self, message: Message) -> Vec<Effect> {
        let ConnectionSlot::Open(open) = &mut self.slot else { return Vec::new() };
        self.shared.bytes_in.fetch_add(message.bytes().len() as u64, Ordering::Relaxed);
        open.carried_data |= self.session.is_live();
        let initialize_request = open.initialize_request.as_ref().map(|(id, _)| *id);
        match incoming::handle_message(&self.shared, message, initialize_request) {
            MessageOutcome::Delivered => Vec::new(),
            MessageOutcome::InitializeReply(answer) => self.handle_initialize_reply(answer),
            MessageOutcome::Answer(answer) => {
                open.writer.queue().send(answer);
                Vec::new()
            }
            MessageOutcome::TakenOver => {
                let why = "the session was taken over by another connection".to_owned();
                self.session.session_lost(SessionLoss { kind: LossKind::TakenOver, why })
            }
            MessageOutcome::Malformed(why) => self.connection_lost(&why),
        }
    }

    fn handle_initialize_reply(&mut self, answer: Result<SharedJson, RpcError>) -> Vec<Effect> {
        let ConnectionSlot::Open(open) = &mut self.slot else { return Vec::new() };
        let Some((_, requested)) = open.initialize_request.take() else { return Vec::new() };
        let now = now();
        match answer.map(|json| json.decode::<InitializeResult>()) {
            Ok(Ok(result)) => {
                let session_id = result.session_id.clone();
                open.initialize_reply = Some(InitializeReply { requested, result });
                self.session.initialized(&session_id)
            }
            Ok(Err(bad)) => {
                let why = format!("the answer to initialize cannot be read: {}", bad.reason());
                self.session.attempt_failed(now, AttemptError::Permanent(SessionLoss { kind: LossKind::Refused, why }))
            }
            Err(error) => self.session.attempt_failed(now, error::initialize_error(&error)),
        }
    }

    fn connection_lost(&mut self, why: &str) -> Vec<Effect> {
        let carried_data = matches!(&self.slot, ConnectionSlot::Open(open) if open.carried_data);
        tracing::debug!(why, carried_data, "the connection broke");
        self.session.connection_lost(now(), why, carried_data)
    }

    async fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Dial => {
                let dial = Arc::clone(&self.dial);
                self.slot = ConnectionSlot::Dialing(Box::pin(async move { dial.dial().await }));
                let attempt = self.session.attempt().unwrap_or(1);
                let first = self.shared.lock().session_id.is_none();
                let state = if first { LinkState::Connecting } else { LinkState::Reconnecting { attempt } };
                self.shared.link_state.send_replace(state);
            }
            Effect::Initialize { resume } => self.send_initialize(resume),
            Effect::GoLive { resumed } => self.go_live(resumed),
            Effect::DropConnection => {
                if let ConnectionSlot::Open(open) = std::mem::replace(&mut self.slot, ConnectionSlot::Empty) {
                    open.writer.stop().await;
                }
                self.shared.connection_lost();
                let attempt = self.session.attempt().unwrap_or(1);
                self.shared.link_state.send_replace(LinkState::Reconnecting { attempt });
            }
            Effect::LoseSession(loss) => {
                self.shared.session_lost(&loss);
                let ended = loss.kind == LossKind::Ended;
                let state = if ended { LinkState::Ended } else { LinkState::Lost(loss) };
                self.shared.link_state.send_replace(state);
            }
            Effect::Close => {
                if let ConnectionSlot::Open(open) = std::mem::replace(&mut self.slot, ConnectionSlot::Empty) {
                    open.writer.finish().await;
                }
            }
        }
    }

    fn send_initialize(&mut self, resume: Option<String>) {
        let ConnectionSlot::Open(open) = &mut self.slot else { return };
        let requested: BTreeMap<String, u64> = match &resume {
            Some(_) => {
                let state = self.shared.lock();
                state.inbox.resume_points().map(|(id, seq)| (id.as_str().to_owned(), seq)).collect()
            }
            None => BTreeMap::new(),
        };
        let params = InitializeParams {
            client_name: self.initialize_options.client_name.clone(),
            resume_session_id: resume,
            detached_ttl_ms: self.initialize_options.detached_ttl_ms,
            resume_from: (!requested.is_empty()).then(|| requested.clone()),
            binary_frames: self.initialize_options.binary_frames && open.carries_binary,
            request_scope: Some(self.shared.request_scope.clone()),
        };
        let id = self.shared.new_id();
        let mut out = Vec::new();
        envelope::write_request(&mut out, &RequestId::Number(id), Method::Initialize.name(), &params, None, false);
        open.initialize_request = Some((id, requested));
        open.writer.queue().send(OutgoingMessage::handshake(out));
    }

    fn go_live(&mut self, resumed: bool) {
        let ConnectionSlot::Open(open) = &mut self.slot else { return };
        let Some(InitializeReply { requested, result }) = open.initialize_reply.take() else { return };
        {
            let mut state = self.shared.lock();
            if let Some(info) = result.environment_info {
                state.extensions = info.extensions.iter().cloned().collect();
                state.info = Some(info);
            }
            let takes_blocks = state.extensions.contains("fs/writeBlock.binary");
            state.binary = open.carries_binary && result.binary_frames && takes_blocks;
            state.session_id = Some(result.session_id);
            state.set_request_memory(result.request_memory);
            if resumed {
                state.inbox.resume(&requested, result.resume_from.as_ref());
            }
        }
        let mut out = Vec::new();
        envelope::write_notification(&mut out, NotificationMethod::Initialized.name(), &InitializedParams {}, false);
        self.shared.go_live(open.writer.queue().clone(), OutgoingMessage::handshake(out));
        self.shared.reconnects.store(self.session.reconnects(), Ordering::Relaxed);
        self.shared.link_state.send_replace(LinkState::Connected);
    }
}

impl OpenConnection {
    fn new(connection: Connection, shared: &Shared) -> Self {
        let Connection { sender, receiver, peer } = connection;
        tracing::debug!(%peer, "connected");
        let carries_binary = sender.carries_binary();
        let writer = Writer::start(sender, Arc::clone(&shared.bytes_out));
        Self { receiver, writer, carries_binary, initialize_request: None, initialize_reply: None, carried_data: false }
    }
}

/// A server that is there and will not have us, or a program that is not, will not change its mind in seconds.
fn dial_error(error: &ConnectError) -> AttemptError {
    let why = error.to_string();
    match error {
        ConnectError::Refused { status: 400..=499, .. } => {
            AttemptError::Permanent(SessionLoss { kind: LossKind::Refused, why })
        }
        ConnectError::Spawn { .. } => AttemptError::Permanent(SessionLoss { kind: LossKind::Unreachable, why }),
        _ => AttemptError::Transient(why),
    }
}

/// The runtime's clock, which tests can hold still.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
