//! The task behind a link: it waits for one event, tells the rules ([`Session`]), and carries out their effects.
//!
//! It reads the connection itself, so that an answer reaches its caller without another hop. Another task writes, because
//! a server that does not read must not keep us from reading. Its owner is the environment, which awaits it in `close`
//! and leaves it to its own end when dropped.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use exec_core::{Entry, EntryBody, ProcessId};
use exec_env::BoxFuture;
use exec_transport::{ConnectError, Connection, ConnectionEnd, Message, Received, Receiver};
use exec_wire::envelope::{self, Incoming, Request, RequestId};
use exec_wire::initialize::{InitializeParams, InitializeResult, InitializedParams};
use exec_wire::network::{PolicyDecision, PolicyDecisionParams, PolicyRequestParams, PolicyRequestResult};
use exec_wire::process::{ClosedParams, ExitedParams, OutputParams};
use exec_wire::session::Role;
use exec_wire::{Extension, Method, NotificationMethod, RpcError, SharedJson, binary, output_codec};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::writer::{LinkWriter, OutgoingMessage};
use super::{LinkShared, LinkState, RawResult};
use crate::dial::Dial;
use crate::environment::NO_OBSERVERS;
use crate::limits::INTRODUCTION_BYTES;
use crate::session::{AttemptError, Effect, LossKind, Session, SessionLoss};
use crate::{convert, error};

pub(crate) struct Driver {
    shared: Arc<LinkShared>,
    dial: Arc<dyn Dial>,
    session: Session,
    options: InitializeOptions,
    slot: ConnectionSlot,
    shutdown: CancellationToken,
}

/// What every `initialize` says.
#[derive(Debug, Clone)]
pub(crate) struct InitializeOptions {
    pub(crate) client_name: String,
    pub(crate) detached_ttl_ms: Option<u64>,
    pub(crate) binary_frames: bool,
    /// What the client asks to be when it connects first; `None` to say nothing of it.
    pub(crate) role: Option<Role>,
}

/// The connection, of which there is at most one at a time.
enum ConnectionSlot {
    Empty,
    Dialing(BoxFuture<'static, Result<Connection, ConnectError>>),
    Open(Box<OpenConnection>),
}

struct OpenConnection {
    receiver: Receiver,
    writer: LinkWriter,
    carries_binary: bool,
    /// The id of `initialize`, until it is answered; and the positions after which it asked the push to go on.
    initialize_request: Option<(i64, BTreeMap<String, u64>)>,
    /// Kept until the session goes live.
    initialize_reply: Option<InitializeReply>,
    /// Whether anything was received since then.
    carried_data: bool,
    /// What the server has asked us and we have not answered. Bounded by the permits that the answers hold.
    decisions: FuturesUnordered<BoxFuture<'static, OutgoingMessage>>,
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
    /// An answer to a request of the server.
    Decided(OutgoingMessage),
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<LinkShared>,
        dial: Arc<dyn Dial>,
        session: Session,
        options: InitializeOptions,
        shutdown: CancellationToken,
    ) -> Self {
        shared.lock().role = options.role;
        Self { shared, dial, session, options, slot: ConnectionSlot::Empty, shutdown }
    }

    /// Runs until the environment is closed or dropped.
    pub(crate) async fn run(mut self) {
        while !self.session.is_ended() {
            let event = self.next_event().await;
            for effect in self.handle(event) {
                self.carry_out(effect).await;
            }
        }
    }

    async fn next_event(&mut self) -> Event {
        let deadline = self.session.next_deadline();
        let is_live = self.session.is_live();
        let slot = &mut self.slot;
        let slot_event = async {
            match slot {
                ConnectionSlot::Empty => pending().await,
                ConnectionSlot::Dialing(dialing) => Event::Dialed(dialing.await),
                ConnectionSlot::Open(open) => tokio::select! {
                    received = open.receiver.next() => Event::Received(received),
                    why = open.writer.failed() => Event::WriterFailed(why),
                    Some(answer) = open.decisions.next(), if !open.decisions.is_empty() => Event::Decided(answer),
                },
            }
        };
        let deadline_reached = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            // The connection comes last, or a server that never stops sending could keep us from the other events.
            biased;
            () = self.shutdown.cancelled() => Event::Shutdown,
            () = deadline_reached => Event::DeadlineReached,
            () = self.shared.connection_wanted.notified(), if !is_live => Event::ConnectionWanted,
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
                self.shared.record_outage(&error.to_string());
                self.session.attempt_failed(now, dial_error(&error))
            }
            Event::Received(Received::Message(message)) => self.handle_message(message),
            // The transport reports the same once more, as `Closed`.
            Event::Received(Received::Malformed { .. }) => Vec::new(),
            Event::Received(Received::Closed(ConnectionEnd::Violation(reason))) => {
                self.violated(format!("the server sent what cannot be read: {reason}"))
            }
            Event::Received(Received::Closed(closed)) => self.connection_lost(&closed.to_string()),
            Event::WriterFailed(why) => self.connection_lost(&why),
            Event::Decided(answer) => {
                if let ConnectionSlot::Open(open) = &mut self.slot {
                    open.writer.queue().send(answer);
                }
                Vec::new()
            }
        }
    }

    fn handle_message(&mut self, message: Message) -> Vec<Effect> {
        let ConnectionSlot::Open(open) = &mut self.slot else { return Vec::new() };
        self.shared.bytes_in.fetch_add(message.bytes().len() as u64, Ordering::Relaxed);
        open.carried_data |= self.session.is_live();
        let initialize_id = open.initialize_request.as_ref().map(|(id, _)| *id);
        if initialize_id.is_some() && message.bytes().len() > INTRODUCTION_BYTES {
            return self.violated(format!("the server's introduction is longer than {INTRODUCTION_BYTES} bytes"));
        }
        match deliver(&self.shared, message, initialize_id) {
            MessageOutcome::Delivered => Vec::new(),
            MessageOutcome::InitializeReply(answer) => self.handle_initialize_reply(answer),
            MessageOutcome::Answer(answer) => {
                open.writer.queue().send(answer);
                Vec::new()
            }
            MessageOutcome::Deciding(answer) => {
                open.decisions.push(answer);
                Vec::new()
            }
            MessageOutcome::TakenOver => {
                let why = "the session was taken over by another connection".to_owned();
                self.session.session_lost(SessionLoss { kind: LossKind::TakenOver, why })
            }
            MessageOutcome::Malformed(why) => self.violated(why),
        }
    }

    fn violated(&mut self, why: String) -> Vec<Effect> {
        tracing::debug!(why, "the server broke the protocol");
        self.session.violated(now(), why)
    }

    fn handle_initialize_reply(&mut self, answer: Result<SharedJson, RpcError>) -> Vec<Effect> {
        let ConnectionSlot::Open(open) = &mut self.slot else { return Vec::new() };
        let Some((_, requested)) = open.initialize_request.take() else { return Vec::new() };
        let now = now();
        match answer.map(|json| json.decode::<InitializeResult>()) {
            // As an observer we would have taken nothing from anybody; such a server has made us the driver.
            Ok(Ok(InitializeResult { role: None, .. })) if self.shared.lock().role == Some(Role::Observer) => {
                let why = NO_OBSERVERS.to_owned();
                self.session.attempt_failed(now, AttemptError::Permanent(SessionLoss { kind: LossKind::Refused, why }))
            }
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
        self.shared.record_outage(why);
        self.session.connection_lost(now(), why, carried_data)
    }

    async fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Dial => {
                let dial = Arc::clone(&self.dial);
                self.slot = ConnectionSlot::Dialing(Box::pin(async move { dial.dial().await }));
                let first = self.shared.lock().session_id.is_none();
                let state = if first { LinkState::Connecting } else { self.reconnecting() };
                self.shared.link_state.send_replace(state);
            }
            Effect::Initialize { resume } => self.send_initialize(resume),
            Effect::GoLive { resumed } => self.go_live(resumed),
            Effect::DropConnection => {
                if let ConnectionSlot::Open(open) = std::mem::replace(&mut self.slot, ConnectionSlot::Empty) {
                    open.writer.stop().await;
                }
                self.shared.connection_lost();
                self.shared.link_state.send_replace(self.reconnecting());
            }
            Effect::LoseSession(loss) => {
                self.shared.record_outage(&loss.why);
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

    fn reconnecting(&self) -> LinkState {
        LinkState::Reconnecting {
            attempt: self.session.attempt().unwrap_or(1),
            give_up_at: self.session.give_up_at().unwrap_or_else(now).into(),
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
        let role = self.shared.lock().role;
        let observes = role == Some(Role::Observer);
        // A session that was ours before must still be ours: the notification that it was taken over may have been lost.
        let only_if_held = !observes && resume.is_some() && self.shared.lock().session_id == resume;
        let params = InitializeParams {
            client_name: self.options.client_name.clone(),
            resume_session_id: resume,
            detached_ttl_ms: self.options.detached_ttl_ms.filter(|_| !observes),
            resume_from: (!requested.is_empty()).then(|| requested.clone()),
            binary_frames: self.options.binary_frames && open.carries_binary,
            request_scope: Some(self.shared.request_scope.clone()),
            only_if_held,
            output_window_bytes: Some(self.shared.lock().inbox.limits().window_bytes as u64),
            role,
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
            } else if let Some(extensions) = result.extensions {
                state.extensions = extensions.into_iter().collect();
            }
            let accepts_blocks = state.extensions.contains(Extension::WRITE_BLOCK_BINARY.name());
            state.binary = open.carries_binary && result.binary_frames && accepts_blocks;
            state.acknowledges = result.output_window_bytes.is_some();
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
    fn new(connection: Connection, shared: &LinkShared) -> Self {
        let Connection { sender, receiver, peer, .. } = connection;
        tracing::debug!(%peer, "connected");
        let carries_binary = sender.carries_binary();
        let writer = LinkWriter::start(sender, Arc::clone(&shared.bytes_out));
        Self {
            receiver,
            writer,
            carries_binary,
            initialize_request: None,
            initialize_reply: None,
            carried_data: false,
            decisions: FuturesUnordered::new(),
        }
    }
}

/// Whether dialing again may help. It will not if one side refuses the other, or if the program to start does not exist.
fn dial_error(error: &ConnectError) -> AttemptError {
    let why = error.to_string();
    match error {
        ConnectError::Refused { status: 400..=499, .. } => {
            AttemptError::Permanent(SessionLoss { kind: LossKind::Refused, why })
        }
        ConnectError::OtherUser { .. } | ConnectError::Certificate { .. } => {
            AttemptError::Permanent(SessionLoss { kind: LossKind::Refused, why })
        }
        ConnectError::Spawn { .. } | ConnectError::NoWayIn { permanent: true, .. } => {
            AttemptError::Permanent(SessionLoss { kind: LossKind::Unreachable, why })
        }
        _ => AttemptError::Transient(why),
    }
}

/// The runtime's clock, which tests can hold still.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// What the driver has to do about a message.
enum MessageOutcome {
    /// Nothing: it was for somebody else, who has it now.
    Delivered,
    /// The answer to the driver's own call.
    InitializeReply(Result<SharedJson, RpcError>),
    /// It was a request of the server, and this is our answer.
    Answer(OutgoingMessage),
    /// It was a request of the server, and this becomes our answer.
    Deciding(BoxFuture<'static, OutgoingMessage>),
    TakenOver,
    /// It cannot be understood, so the connection cannot be trusted further.
    Malformed(String),
}

/// Decodes one message and delivers it to the shared state, which is locked only after decoding. `initialize_id` is the
/// id of the driver's own call, if one is open.
fn deliver(shared: &LinkShared, message: Message, initialize_id: Option<i64>) -> MessageOutcome {
    if let Message::Binary(frame) = &message
        && binary::is_binary(frame)
    {
        return handle_binary_frame(shared, frame);
    }
    let frame = message.into_bytes();
    let Ok(text) = std::str::from_utf8(&frame) else {
        return MessageOutcome::Malformed("the server sent text that is not UTF-8".to_owned());
    };
    if let Some(output) = output_codec::decode_output(text) {
        let body = EntryBody::Output { stream: output.stream.into(), bytes: output.bytes.into() };
        shared.lock().push(output.process_id, Entry { seq: output.seq, body });
        return MessageOutcome::Delivered;
    }
    match envelope::decode(text) {
        Ok(Incoming::Response(response)) => {
            let json = SharedJson::new(&frame, response.result);
            deliver_response(shared, response.id, initialize_id, Ok(json))
        }
        Ok(Incoming::Error(reply)) => deliver_response(shared, reply.id, initialize_id, Err(reply.error)),
        Ok(Incoming::Notification(notification)) => handle_notification(shared, &frame, &notification),
        Ok(Incoming::Request(request)) => answer_request(shared, &request),
        Err(malformed) => {
            MessageOutcome::Malformed(format!("the server sent a message that cannot be read: {malformed}"))
        }
    }
}

fn deliver_response(
    shared: &LinkShared,
    id: RequestId,
    initialize_id: Option<i64>,
    answer: Result<SharedJson, RpcError>,
) -> MessageOutcome {
    // Our ids are numbers. Any other answer is for nobody, like one that comes too late, and does no harm.
    let RequestId::Number(id) = id else { return MessageOutcome::Delivered };
    if initialize_id == Some(id) {
        return MessageOutcome::InitializeReply(answer);
    }
    shared.lock().answer(id, answer.map(RawResult::Json));
    MessageOutcome::Delivered
}

/// Output or a file block as raw bytes. They are not copied: slices of the frame are passed on.
fn handle_binary_frame(shared: &LinkShared, frame: &Bytes) -> MessageOutcome {
    match binary::decode(frame) {
        Ok((binary::FrameHeader::Output { process_id, seq, stream }, payload)) => {
            let body = EntryBody::Output { stream: stream.into(), bytes: frame.slice_ref(payload) };
            shared.lock().push(process_id, Entry { seq, body });
        }
        Ok((binary::FrameHeader::Block { request_id, eof, .. }, payload)) => {
            if let Ok(id) = request_id.parse() {
                shared.lock().answer(id, Ok(RawResult::Block { bytes: frame.slice_ref(payload), eof }));
            }
        }
        Ok((binary::FrameHeader::Write { .. } | binary::FrameHeader::StreamWrite { .. }, _)) => {
            return MessageOutcome::Malformed("the server sent a frame that only clients send".to_owned());
        }
        Err(bad) => return MessageOutcome::Malformed(format!("the server sent a frame that cannot be read: {bad}")),
    }
    MessageOutcome::Delivered
}

/// The id of what a notification is about; each kind of notification has one of these fields.
#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NotificationSubject {
    search_id: Option<String>,
    request_id: Option<String>,
    progress_id: Option<String>,
    watch_id: Option<WatchId>,
}

/// `fs/missingChanged` has a number here, as in the original; `fs/changed` has a name.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum WatchId {
    Number(u64),
    Name(String),
}

impl NotificationSubject {
    fn id(self) -> Option<String> {
        let watch = self.watch_id.map(|id| match id {
            WatchId::Number(number) => number.to_string(),
            WatchId::Name(name) => name,
        });
        self.search_id.or(self.request_id).or(self.progress_id).or(watch)
    }
}

fn handle_notification(
    shared: &LinkShared,
    frame: &Bytes,
    notification: &envelope::Notification<'_>,
) -> MessageOutcome {
    // Methods we do not know are ignored, so that servers can add some.
    let Some(method) = NotificationMethod::parse(&notification.method) else { return MessageOutcome::Delivered };
    let params = notification.params;
    let pushed = match method {
        NotificationMethod::ProcessOutput => params.decode::<OutputParams>().map(|output| {
            let body = EntryBody::Output { stream: output.stream.into(), bytes: output.chunk.0 };
            (output.process_id, Entry { seq: output.seq, body })
        }),
        NotificationMethod::ProcessExited => params.decode::<ExitedParams>().map(|exited| {
            let exit = exited.exit.map_or_else(|| convert::exit_of_code(Some(exited.exit_code)), Into::into);
            (exited.process_id, Entry { seq: exited.seq, body: EntryBody::Exited(exit) })
        }),
        NotificationMethod::ProcessClosed => params
            .decode::<ClosedParams>()
            .map(|closed| (closed.process_id, Entry { seq: closed.seq, body: EntryBody::Closed })),
        NotificationMethod::SessionTakenOver => return MessageOutcome::TakenOver,
        NotificationMethod::SessionAttached => {
            if let Ok(attendance) = params.decode() {
                shared.set_attendance(attendance);
            }
            return MessageOutcome::Delivered;
        }
        NotificationMethod::NetworkPolicyDecision => {
            tell_decision(shared, params.decode().ok());
            shared.lock().notify(method, None, &SharedJson::new(frame, params), frame.len());
            return MessageOutcome::Delivered;
        }
        other => {
            let about = params.decode::<NotificationSubject>().unwrap_or_default().id();
            shared.lock().notify(other, about.as_deref(), &SharedJson::new(frame, params), frame.len());
            return MessageOutcome::Delivered;
        }
    };
    match pushed {
        Ok((id, entry)) => {
            shared.lock().push(&id, entry);
            MessageOutcome::Delivered
        }
        Err(error) => {
            MessageOutcome::Malformed(format!("the server sent {} that cannot be read: {error}", method.name()))
        }
    }
}

/// Words that we do not know are for a later version of us.
fn tell_decision(shared: &LinkShared, params: Option<PolicyDecisionParams>) {
    let Some(params) = params else { return };
    let (Some(decider), Ok(id)) = (shared.decider(), ProcessId::new(params.process_id.clone())) else { return };
    if let Some(decision) = params.into_domain() {
        decider.decided(&id, decision);
    }
}

/// The decider answers what the server asks about the network; without one, the answer is no. We know no other request.
fn answer_request(shared: &LinkShared, request: &Request<'_>) -> MessageOutcome {
    // A server that lets so many answers wait does not read them. It takes a missing answer for a denial.
    let Ok(permit) = Arc::clone(&shared.answer_permits).try_acquire_owned() else { return MessageOutcome::Delivered };
    let mut out = Vec::new();
    match Method::parse(&request.method) {
        Some(Method::NetworkPolicyRequest) => {
            if let Some(decider) = shared.decider()
                && let Ok(params) = request.params.decode::<PolicyRequestParams>()
                && let Ok(id) = ProcessId::new(params.process_id)
            {
                let (request_id, jsonrpc) = (request.id.clone(), request.jsonrpc);
                return MessageOutcome::Deciding(Box::pin(async move {
                    let decision = decider.decide(&id, params.request.into()).await.into();
                    let mut out = Vec::new();
                    envelope::write_response(&mut out, &request_id, &PolicyRequestResult { decision }, jsonrpc);
                    OutgoingMessage::new(Message::Text(out.into()), permit)
                }));
            }
            let reason = "no network policy is configured".to_owned();
            let result = PolicyRequestResult { decision: PolicyDecision::Deny { reason } };
            envelope::write_response(&mut out, &request.id, &result, request.jsonrpc);
        }
        _ => envelope::write_error(&mut out, &request.id, &error::not_implemented(&request.method), request.jsonrpc),
    }
    MessageOutcome::Answer(OutgoingMessage::new(Message::Text(out.into()), permit))
}
