//! The task of one connection: it reads messages, does the handshake, and starts a task for each request.
//!
//! It never waits for a handler or for the writer. Everything that happens to it is one [`Event`]. What arrives is
//! admitted first ([`admission`]): a peer that does not read its answers is not read from. However the connection ends,
//! it first detaches its session, and it lets requests that change something run to their end.

mod admission;
mod handshake;
mod shared;
mod stdin_order;

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use exec_core::network::NetworkAnswer;
use exec_transport::{CloseReason, Connection, PeerKind, Received, Receiver, SendError};
use exec_wire::SharedJson;
use exec_wire::binary::{self, FrameHeader};
use exec_wire::envelope::{self, Incoming, RequestId};
use exec_wire::error::RpcError;
use exec_wire::method::{Method, NotificationMethod};
use exec_wire::network::PolicyRequestResult;
use exec_wire::session::TakenOverParams;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::ceiling::Permissions;
use crate::dispatch::{self, Params, Request};
use crate::limits::{CLOSE_TIMEOUT, LARGE_RESPONSE_BYTES, REQUEST_ID_BYTES, TOKEN_CHECK_INTERVAL, WHOLE_BODY_BYTES};
use crate::network::Questions;
use crate::reply;
use crate::resources::ConnectionResources;
use crate::server::{Registration, Server};
use crate::session::Session;
use crate::writer::{Coalesced, Writer, WriterCommand};
use admission::{Admission, AdmissionControl, AdmissionPermits, Arrival, ArrivedRequest};
pub(crate) use handshake::HandshakeState;
pub(crate) use shared::ConnectionShared;
use stdin_order::StdinOrder;

/// Why the server asks a connection to close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseRequest {
    /// Another connection has resumed the session.
    TakenOver,
    SessionClosed,
    ServerStopping,
    TokenExpired,
}

enum Event {
    Received(Received),
    CloseRequested(CloseRequest),
    RequestDone,
    Admitted(Admission),
    WriterDone(Result<Result<(), SendError>, JoinError>),
}

/// Serves one connection until it ends.
pub(crate) async fn serve(server: Arc<Server>, connection: Connection) {
    let Connection { sender, receiver, peer, identity } = connection;
    let (registration, close_requests) = server.register_connection(&peer, identity.subject.clone());
    // bounded by the accepted requests, see `WriterHandle`
    let (writer_handle, commands) = mpsc::unbounded_channel();
    let carries_binary = sender.carries_binary();
    // What a client may not read is not pushed to it either.
    let permissions = Permissions::of(server.options.ceiling.clone(), &identity.grant);
    let pushes_output = permissions.allow_method(Method::ProcessRead).is_ok();
    let news = Arc::new(Coalesced::default());
    let writer = Writer::new(registration.id, sender, commands, news.clone(), pushes_output);
    let shared = Arc::new(ConnectionShared {
        id: registration.id,
        run_permits: Arc::new(Semaphore::new(server.options.concurrent_requests)),
        response_memory: Arc::new(Semaphore::new(LARGE_RESPONSE_BYTES >> 10)),
        body_memory: Arc::new(Semaphore::new(WHOLE_BODY_BYTES)),
        jsonrpc: AtomicBool::new(false),
        carries_binary,
        binary_frames: AtomicBool::new(false),
        request_scope: OnceLock::new(),
        resources: ConnectionResources::new(),
        questions: Questions::default(),
        files: Mutex::default(),
        server,
        peer,
        subject: identity.subject,
        permissions,
        writer: writer_handle,
        news,
    });
    let task = ConnectionTask {
        shared,
        token_expires: identity.expires,
        handshake: HandshakeState::NotStarted,
        session: None,
        requests: JoinSet::new(),
        admission: AdmissionControl::default(),
        arrival: None,
        registration,
        connection_over: CancellationToken::new(),
        session_closed: false,
        ignored_notifications: 0,
        stdin_order: StdinOrder::default(),
    };
    task.run(receiver, close_requests, tokio::spawn(writer.run())).await;
}

struct ConnectionTask {
    shared: Arc<ConnectionShared>,
    token_expires: Option<std::time::SystemTime>,
    handshake: HandshakeState,
    session: Option<Arc<Session>>,
    requests: JoinSet<()>,
    admission: AdmissionControl,
    /// What has arrived and waits for room. Nothing more is read until it has some.
    arrival: Option<Arrival>,
    /// Unregisters the connection and detaches its session, even if the task is dropped.
    registration: Registration,
    /// Cancelled when the connection ends; requests that change nothing stop then.
    connection_over: CancellationToken,
    session_closed: bool,
    ignored_notifications: u64,
    stdin_order: StdinOrder,
}

impl ConnectionTask {
    async fn run(
        mut self,
        mut receiver: Receiver,
        mut close_requests: watch::Receiver<Option<CloseRequest>>,
        mut writer: JoinHandle<Result<(), SendError>>,
    ) {
        let peer = self.shared.peer.to_string();
        tracing::debug!(peer, "connected");
        let mut expiry = pin!(token_expired(self.token_expires));
        let reason = loop {
            let event = tokio::select! {
                biased;
                () = &mut expiry => Event::CloseRequested(CloseRequest::TokenExpired),
                request = close_requested(&mut close_requests) => Event::CloseRequested(request),
                done = &mut writer => Event::WriterDone(done),
                Some(_) = self.requests.join_next(), if !self.requests.is_empty() => Event::RequestDone,
                admission = self.admission.admit(self.arrival.as_ref()), if self.arrival.is_some() => Event::Admitted(admission),
                received = receiver.next(), if self.arrival.is_none() => Event::Received(received),
            };
            if let ControlFlow::Break(reason) = self.on_event(event).await {
                break reason;
            }
        };
        tracing::debug!(peer, %reason, "disconnecting");
        // This comes first, so that a client that resumes the session need not wait for the rest of our end.
        self.registration.end();
        self.shared.questions.end();
        if let Some(session) = &self.session {
            session.loosen_holds(self.shared.id);
        }
        self.connection_over.cancel();
        if self.session_closed {
            // The client that closed its own session waits for the response, which must not come after the close.
            let responses = async { while self.requests.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, responses).await;
        }
        self.shared.send(WriterCommand::Close(reason));
        if !writer.is_finished() {
            // The writer's close waits for the peer to read. A peer that is itself blocked in a write reads nothing, so
            // what it still sends is received and dropped.
            let drain = async {
                while !matches!(receiver.next().await, Received::Closed(_)) {}
                std::future::pending::<()>().await
            };
            tokio::select! {
                _ = &mut writer => {}
                () = drain => {}
                // The peer does not read. It can fetch what it missed when it resumes its session.
                () = tokio::time::sleep(CLOSE_TIMEOUT) => writer.abort(),
            }
        }
        while self.requests.join_next().await.is_some() {}
        self.shared.resources.close().await;
    }

    async fn on_event(&mut self, event: Event) -> ControlFlow<CloseReason> {
        match event {
            Event::Received(Received::Message(message)) => self.on_message(message.into_bytes()).await,
            Event::Received(Received::Malformed { reason }) => {
                tracing::info!(peer = %self.shared.peer, reason, "cut off");
                ControlFlow::Continue(())
            }
            Event::Received(Received::Closed(closed)) => {
                tracing::debug!(peer = %self.shared.peer, %closed, "gone");
                ControlFlow::Break(CloseReason::normal())
            }
            Event::RequestDone => ControlFlow::Continue(()),
            Event::Admitted(admission) => {
                if let Some(arrival) = self.arrival.take() {
                    self.on_admission(arrival, admission).await;
                }
                ControlFlow::Continue(())
            }
            Event::WriterDone(done) => {
                match done {
                    Ok(Ok(())) | Ok(Err(SendError::Closed)) => {}
                    Ok(Err(error)) => tracing::info!(peer = %self.shared.peer, %error, "cannot write"),
                    Err(error) => tracing::error!(peer = %self.shared.peer, %error, "the writer failed"),
                }
                ControlFlow::Break(CloseReason::normal())
            }
            Event::CloseRequested(request) => ControlFlow::Break(self.on_close_request(request)),
        }
    }

    fn on_close_request(&mut self, request: CloseRequest) -> CloseReason {
        match request {
            CloseRequest::TakenOver => {
                let session_id = self.session.as_ref().map_or_else(String::new, |session| session.id.clone());
                let mut out = Vec::new();
                let name = NotificationMethod::SessionTakenOver.name();
                envelope::write_notification(&mut out, name, &TakenOverParams { session_id }, self.shared.jsonrpc());
                self.shared.send(WriterCommand::Message(Bytes::from(out), None));
                CloseReason::new(CloseReason::POLICY, "the session was taken over by another connection")
            }
            CloseRequest::SessionClosed => {
                self.session_closed = true;
                CloseReason::new(CloseReason::NORMAL, "the session was closed")
            }
            CloseRequest::ServerStopping => CloseReason::new(CloseReason::GOING_AWAY, "the server stops"),
            CloseRequest::TokenExpired => {
                tracing::info!(peer = %self.shared.peer, "its token has expired");
                CloseReason::new(CloseReason::POLICY, "the token has expired; connect again with a new one")
            }
        }
    }

    async fn on_message(&mut self, frame: Bytes) -> ControlFlow<CloseReason> {
        if self.shared.uses_binary_frames() && binary::is_binary(&frame) {
            return self.on_binary_frame(&frame).await;
        }
        // Only a binary frame can be like this, and it is answered as text that is no JSON is.
        let Ok(text) = std::str::from_utf8(&frame) else {
            self.refuse_malformed("the message is neither JSON nor a binary frame that was agreed on").await;
            return ControlFlow::Continue(());
        };
        match envelope::decode(text) {
            Ok(Incoming::Request(request)) => {
                self.note_jsonrpc(request.jsonrpc);
                let (id, jsonrpc) = (request.id, request.jsonrpc);
                if let RequestId::Text(text) = &id
                    && text.len() > REQUEST_ID_BYTES
                {
                    let error = reply::too_long("the id of a request", text.len(), REQUEST_ID_BYTES);
                    self.on_arrival(Arrival::Refusal { id: RequestId::MALFORMED, error, jsonrpc }).await;
                    return ControlFlow::Continue(());
                }
                self.on_arrival(match Method::parse_for_server(&request.method) {
                    Some(method) => {
                        let params = Params::Json(SharedJson::new(&frame, request.params));
                        Arrival::Request(ArrivedRequest { id, method, params, jsonrpc, frame_bytes: frame.len() })
                    }
                    None => Arrival::Refusal { id, error: RpcError::unknown_method(&request.method), jsonrpc },
                })
                .await;
                ControlFlow::Continue(())
            }
            Ok(Incoming::Notification(notification)) => self.on_notification(&notification),
            Ok(Incoming::Response(response)) => {
                let answer = response.result.decode::<PolicyRequestResult>();
                self.on_answer(&response.id, answer.map_or(NetworkAnswer::none(), |result| result.decision.into()))
            }
            Ok(Incoming::Error(reply)) => self.on_answer(&reply.id, NetworkAnswer::none()),
            Err(malformed) => {
                self.refuse_malformed(&malformed.reason).await;
                ControlFlow::Continue(())
            }
        }
    }

    fn on_answer(&mut self, id: &RequestId, answer: NetworkAnswer) -> ControlFlow<CloseReason> {
        if self.shared.questions.answer(id, answer) {
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(CloseReason::new(CloseReason::POLICY, "an answer came to a question nobody asked"))
    }

    /// A block for a file or a stream as raw bytes. They are not copied out of the frame.
    async fn on_binary_frame(&mut self, frame: &Bytes) -> ControlFlow<CloseReason> {
        match request_of_frame(frame) {
            Ok((id, method)) => {
                let params = Params::Frame(frame.clone());
                let (jsonrpc, frame_bytes) = (self.shared.jsonrpc(), frame.len());
                let request = ArrivedRequest { id, method, params, jsonrpc, frame_bytes };
                self.on_arrival(Arrival::Request(request)).await;
            }
            Err(reason) => self.refuse_malformed(&reason).await,
        }
        ControlFlow::Continue(())
    }

    async fn refuse_malformed(&mut self, reason: &str) {
        let error = match self.shared.peer.kind() {
            PeerKind::WebSocket => RpcError::malformed_websocket(&self.shared.peer, reason),
            PeerKind::Unix | PeerKind::Stdio | PeerKind::Memory => RpcError::malformed_line(reason),
        };
        let jsonrpc = self.shared.jsonrpc();
        self.on_arrival(Arrival::Refusal { id: RequestId::MALFORMED, error, jsonrpc }).await;
    }

    /// Begins at once what there is room for. Otherwise it is kept, and nothing more is read before there is.
    async fn on_arrival(&mut self, arrival: Arrival) {
        match self.admission.try_admit(&arrival) {
            Some(admission) => self.on_admission(arrival, admission).await,
            None => {
                self.admission.begin_waiting();
                self.arrival = Some(arrival);
            }
        }
    }

    async fn on_admission(&mut self, arrival: Arrival, admission: Admission) {
        match (arrival, admission) {
            (Arrival::Refusal { id, error, jsonrpc }, Admission::Admitted(permits)) => {
                self.send_error(&id, &error, jsonrpc, permits);
            }
            (Arrival::Request(request), Admission::Admitted(permits)) => self.on_request(request, permits).await,
            // The refusal itself needs room, so it arrives in place of the request.
            (Arrival::Request(request), Admission::Busy(text)) => {
                let refusal = Arrival::Refusal { id: request.id, error: reply::busy(text), jsonrpc: request.jsonrpc };
                Box::pin(self.on_arrival(refusal)).await;
            }
            (Arrival::Refusal { .. }, Admission::Busy(_)) => {}
        }
    }

    async fn on_request(&mut self, arrived: ArrivedRequest, permits: AdmissionPermits) {
        let ArrivedRequest { id, method, params, jsonrpc, .. } = arrived;
        if method == Method::Initialize {
            // Not in a task of its own: the requests that the client sent right behind it need the session.
            match self.initialize(&params).await {
                Ok((result, commands)) => {
                    let mut out = Vec::new();
                    envelope::write_response(&mut out, &id, &result, jsonrpc);
                    self.shared.send(WriterCommand::Message(Bytes::from(out), Some((permits.slot, None))));
                    for command in commands {
                        self.shared.send(command);
                    }
                    self.join_session();
                }
                Err(error) => self.send_error(&id, &error, jsonrpc, permits),
            }
            return;
        }
        let AdmissionPermits { slot: accepted, memory } = permits;
        let request =
            Request { id, method, params, jsonrpc, handshake: self.handshake.clone(), accepted, _memory: memory };
        let (before, done) = self.stdin_order.enqueue(&request);
        // In memory of its own, or each layer of futures around it would have room for it once more.
        let handling = Box::pin(dispatch::handle_request(self.shared.clone(), request));
        let in_order = async move {
            if let Some(before) = before {
                before.cancelled().await;
            }
            handling.await;
            drop(done);
        };
        let connection_over = self.connection_over.clone();
        let behaviour = method.behaviour();
        if !behaviour.changes {
            self.requests.spawn(async move {
                let _ = connection_over.run_until_cancelled(in_order).await;
            });
        } else if behaviour.stdin {
            // A child that does not read its stdin must not hold the place of a connection that is gone. What was handed
            // to the environment is still written; what waits behind it the client sends again, by its key.
            let given_up = async move {
                connection_over.cancelled().await;
                tokio::time::sleep(CLOSE_TIMEOUT).await;
            };
            self.requests.spawn(async move {
                tokio::select! {
                    () = in_order => {}
                    () = given_up => {}
                }
            });
        } else {
            self.requests.spawn(in_order);
        }
    }

    fn send_error(&self, id: &RequestId, error: &RpcError, jsonrpc: bool, permits: AdmissionPermits) {
        let mut out = Vec::new();
        envelope::write_error(&mut out, id, error, jsonrpc);
        self.shared.send(WriterCommand::Message(Bytes::from(out), Some((permits.slot, permits.memory))));
    }

    fn note_jsonrpc(&self, jsonrpc: bool) {
        if jsonrpc && !self.shared.jsonrpc.swap(true, Ordering::Relaxed) {
            self.shared.send(WriterCommand::WriteJsonrpc);
        }
    }
}

/// The id and the method of a request that is a binary frame.
fn request_of_frame(frame: &[u8]) -> Result<(RequestId, Method), String> {
    let (request_id, method) = match binary::decode(frame) {
        Ok((FrameHeader::Write { request_id, .. }, _)) => (request_id, Method::FsWriteBlock),
        Ok((FrameHeader::StreamWrite { request_id, .. }, _)) => (request_id, Method::NetWrite),
        Ok((FrameHeader::Output { .. } | FrameHeader::Block { .. }, _)) => {
            return Err("a binary frame of a kind that only servers send".to_owned());
        }
        Err(malformed) => return Err(malformed.to_string()),
    };
    let id = RequestId::parse(request_id).map_err(|malformed| malformed.reason)?;
    Ok((id, method))
}

/// Waits until the token of the connection has expired; for ever if it does not.
async fn token_expired(at: Option<SystemTime>) {
    let Some(at) = at else { return std::future::pending().await };
    // In steps, because a timer does not count the time that a machine sleeps.
    while let Ok(left) = at.duration_since(SystemTime::now())
        && !left.is_zero()
    {
        tokio::time::sleep(left.min(TOKEN_CHECK_INTERVAL)).await;
    }
}

async fn close_requested(requests: &mut watch::Receiver<Option<CloseRequest>>) -> CloseRequest {
    match requests.wait_for(Option::is_some).await {
        Ok(request) => request.unwrap_or(CloseRequest::ServerStopping),
        // The server keeps the other side as long as the connection is registered.
        Err(_) => CloseRequest::ServerStopping,
    }
}
