//! The task of one connection: it reads messages, does the handshake, and starts a task for each request.
//!
//! It never waits for a handler or for the writer. Everything that happens to it is one [`Event`]. However it ends, it
//! first detaches its session, and it lets requests that change something run to their end.

mod handshake;
mod shared;
mod stdin_order;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use exec_transport::{CloseReason, Connection, PeerKind, Received, Receiver, SendError};
use exec_wire::SharedJson;
use exec_wire::binary::{self, FrameHeader};
use exec_wire::envelope::{self, Incoming, RequestId};
use exec_wire::error::RpcError;
use exec_wire::method::{Method, NotificationMethod};
use exec_wire::session::TakenOverParams;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::dispatch::{self, Params, Request};
use crate::limits::{ACCEPTED_REQUESTS, CLOSE_TIMEOUT, LARGE_REQUEST_BYTES, LARGE_RESPONSE_BYTES, SMALL_MESSAGE_BYTES};
use crate::resources::ConnectionResources;
use crate::server::Server;
use crate::session::Session;
use crate::writer::{Writer, WriterCommand};
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
}

enum Event {
    Received(Received),
    CloseRequested(CloseRequest),
    RequestDone,
    WriterDone(Result<Result<(), SendError>, JoinError>),
}

/// Serves one connection until it ends.
pub(crate) async fn serve(server: Arc<Server>, connection: Connection) {
    let Connection { sender, receiver, peer } = connection;
    let (id, close_requests) = server.register_connection();
    // bounded by the accepted requests, see `WriterHandle`
    let (writer_handle, commands) = mpsc::unbounded_channel();
    let carries_binary = sender.carries_binary();
    let writer = Writer::new(server.environment.clone(), sender, commands);
    let shared = Arc::new(ConnectionShared {
        id,
        run_permits: Arc::new(Semaphore::new(server.options.concurrent_requests)),
        response_memory: Arc::new(Semaphore::new(LARGE_RESPONSE_BYTES >> 10)),
        jsonrpc: AtomicBool::new(false),
        carries_binary,
        binary_frames: AtomicBool::new(false),
        request_scope: OnceLock::new(),
        resources: ConnectionResources::new(),
        files: server.environment.files_for_caller(),
        server,
        peer,
        writer: writer_handle,
    });
    let task = ConnectionTask {
        shared,
        handshake: HandshakeState::NotStarted,
        session: None,
        requests: JoinSet::new(),
        accepted: Arc::new(Semaphore::new(ACCEPTED_REQUESTS)),
        request_memory: Arc::new(Semaphore::new(LARGE_REQUEST_BYTES >> 10)),
        connection_over: CancellationToken::new(),
        session_closed: false,
        ignored_notifications: 0,
        stdin_order: StdinOrder::default(),
    };
    task.run(receiver, close_requests, tokio::spawn(writer.run())).await;
}

struct ConnectionTask {
    shared: Arc<ConnectionShared>,
    handshake: HandshakeState,
    session: Option<Arc<Session>>,
    requests: JoinSet<()>,
    accepted: Arc<Semaphore>,
    /// One permit per KiB of large requests that may be in memory.
    request_memory: Arc<Semaphore>,
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
        let reason = loop {
            let event = tokio::select! {
                biased;
                request = close_requested(&mut close_requests) => Event::CloseRequested(request),
                done = &mut writer => Event::WriterDone(done),
                Some(_) = self.requests.join_next(), if !self.requests.is_empty() => Event::RequestDone,
                received = receiver.next() => Event::Received(received),
            };
            if let ControlFlow::Break(reason) = self.on_event(event).await {
                break reason;
            }
        };
        tracing::debug!(peer, %reason, "disconnecting");
        // This comes first, so that a client that resumes the session need not wait for the rest of our end.
        self.shared.server.unregister_connection(self.shared.id, self.session.as_deref());
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
        }
    }

    async fn on_message(&mut self, frame: Bytes) -> ControlFlow<CloseReason> {
        if self.shared.uses_binary_frames() && binary::is_binary(&frame) {
            return self.on_binary_frame(&frame).await;
        }
        let Ok(text) = std::str::from_utf8(&frame) else {
            return ControlFlow::Break(CloseReason::new(CloseReason::INVALID_DATA, "a message was not UTF-8"));
        };
        match envelope::decode(text) {
            Ok(Incoming::Request(request)) => {
                self.note_jsonrpc(request.jsonrpc);
                let Some(method) = Method::parse_for_server(&request.method) else {
                    self.send_error(&request.id, &RpcError::unknown_method(&request.method), request.jsonrpc);
                    return ControlFlow::Continue(());
                };
                let params = Params::Json(SharedJson::new(&frame, request.params));
                let (id, jsonrpc) = (request.id, request.jsonrpc);
                self.on_request(id, method, params, jsonrpc, frame.len()).await;
                ControlFlow::Continue(())
            }
            Ok(Incoming::Notification(notification)) => self.on_notification(&notification.method),
            Ok(Incoming::Response(_) | Incoming::Error(_)) => {
                ControlFlow::Break(CloseReason::new(CloseReason::POLICY, "an answer came to a question nobody asked"))
            }
            Err(malformed) => {
                self.refuse_malformed(&malformed.reason);
                ControlFlow::Continue(())
            }
        }
    }

    /// A block for a file as raw bytes. They are not copied out of the frame.
    async fn on_binary_frame(&mut self, frame: &Bytes) -> ControlFlow<CloseReason> {
        match request_id_of_frame(frame) {
            Ok(id) => {
                let params = Params::Frame(frame.clone());
                self.on_request(id, Method::FsWriteBlock, params, self.shared.jsonrpc(), frame.len()).await;
            }
            Err(reason) => self.refuse_malformed(&reason),
        }
        ControlFlow::Continue(())
    }

    fn refuse_malformed(&self, reason: &str) {
        let error = match self.shared.peer.kind() {
            PeerKind::WebSocket => RpcError::malformed_websocket(&self.shared.peer, reason),
            PeerKind::Unix | PeerKind::Stdio | PeerKind::Memory => RpcError::malformed_line(reason),
        };
        self.send_error(&RequestId::MALFORMED, &error, self.shared.jsonrpc());
    }

    async fn on_request(&mut self, id: RequestId, method: Method, params: Params, jsonrpc: bool, frame_bytes: usize) {
        let Some(memory) = self.reserve_request_memory(frame_bytes).await else { return };
        if method == Method::Initialize {
            // Not in a task of its own: the requests that the client sent right behind it need the session.
            match self.initialize(&params).await {
                Ok((result, commands)) => {
                    let mut out = Vec::new();
                    envelope::write_response(&mut out, &id, &result, jsonrpc);
                    self.shared.send(WriterCommand::Message(Bytes::from(out), None));
                    for command in commands {
                        self.shared.send(command);
                    }
                    self.become_current_writer();
                }
                Err(error) => self.send_error(&id, &error, jsonrpc),
            }
            return;
        }
        let Ok(accepted) = self.accepted.clone().acquire_owned().await else { return };
        let request =
            Request { id, method, params, jsonrpc, handshake: self.handshake.clone(), accepted, _memory: memory };
        let (before, done) = self.stdin_order.enqueue(&request);
        let handling = dispatch::handle_request(self.shared.clone(), request);
        let in_order = async move {
            if let Some(before) = before {
                before.cancelled().await;
            }
            handling.await;
            drop(done);
        };
        if !method.behaviour().changes {
            let connection_over = self.connection_over.clone();
            self.requests.spawn(async move {
                let _ = connection_over.run_until_cancelled(in_order).await;
            });
        } else {
            self.requests.spawn(in_order);
        }
    }

    /// Reserves memory for a large request; small ones need none. `None` if the connection is over.
    async fn reserve_request_memory(&self, bytes: usize) -> Option<Option<OwnedSemaphorePermit>> {
        if bytes <= SMALL_MESSAGE_BYTES {
            return Some(None);
        }
        let kib = u32::try_from(bytes.min(LARGE_REQUEST_BYTES) >> 10).unwrap_or(u32::MAX);
        self.request_memory.clone().acquire_many_owned(kib).await.ok().map(Some)
    }

    fn send_error(&self, id: &RequestId, error: &RpcError, jsonrpc: bool) {
        let mut out = Vec::new();
        envelope::write_error(&mut out, id, error, jsonrpc);
        self.shared.send(WriterCommand::Message(Bytes::from(out), None));
    }

    fn note_jsonrpc(&self, jsonrpc: bool) {
        if jsonrpc && !self.shared.jsonrpc.swap(true, Ordering::Relaxed) {
            self.shared.send(WriterCommand::WriteJsonrpc);
        }
    }
}

/// The request that a binary frame of a client carries, or why it carries none.
/// The request id of a binary frame that a client may send.
fn request_id_of_frame(frame: &[u8]) -> Result<RequestId, String> {
    match binary::decode(frame) {
        Ok((FrameHeader::Write { request_id, .. }, _)) => {
            RequestId::parse(request_id).map_err(|malformed| malformed.reason)
        }
        Ok(_) => Err("a binary frame of a kind that only servers send".to_owned()),
        Err(malformed) => Err(malformed.to_string()),
    }
}

async fn close_requested(requests: &mut watch::Receiver<Option<CloseRequest>>) -> CloseRequest {
    match requests.wait_for(Option::is_some).await {
        Ok(request) => request.unwrap_or(CloseRequest::ServerStopping),
        // The server keeps the other side as long as the connection is registered.
        Err(_) => CloseRequest::ServerStopping,
    }
}
