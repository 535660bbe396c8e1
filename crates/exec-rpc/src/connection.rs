//! The front desk of one connection: it reads, sees to the handshake, accepts requests and lets them run.
//!
//! ```text
//!   new ── initialize ──► asked ── initialized ──► done
//! ```
//!
//! It never waits for an answer or for the writer. What can end it is one [`Event`]; whatever happens, its session is
//! detached at once, and requests that change something are finished.

mod desk;
mod handshake;
mod stdin_order;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use exec_transport::{CloseReason, Connection, PeerKind, Received, Receiver, SendError};
use exec_wire::SharedJson;
use exec_wire::binary::{self, FrameHeader};
use exec_wire::base64::Base64;
use exec_wire::envelope::{self, RequestId, Incoming};
use exec_wire::error::RpcError;
use exec_wire::fs::WriteBlockParams;
use exec_wire::method::{Method, NotificationMethod};
use exec_wire::session::TakenOverParams;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::belongings::Belongings;
use crate::dispatch::{self, Handshake, Params, Request};
use crate::limits::{ACCEPTED_REQUESTS, FAREWELL, LARGE_ANSWER_BYTES, LARGE_REQUEST_BYTES, SMALL_ANSWER_BYTES};
use crate::mailroom::{Mailroom, Post};
use crate::server::Server;
use crate::session::{ConnectionId, Session};
pub(crate) use desk::Desk;
use stdin_order::StdinOrder;

/// What the connection is told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Nothing so far.
    Go,
    /// Another connection has the session now.
    TakenOver,
    /// The session was closed.
    SessionClosed,
    /// The server stops.
    Stop,
}

enum Event {
    Received(Received),
    Ordered(Order),
    Answered,
    WriterDone(Result<Result<(), SendError>, JoinError>),
}

/// Serves one connection until it ends.
pub(crate) async fn serve(server: Arc<Server>, connection: Connection) {
    let Connection { sender, receiver, peer } = connection;
    let (id, orders) = server.enter_connection();
    // bounded by the accepted requests, see `PostBox`
    let (posts, inbox) = mpsc::unbounded_channel();
    let carries_binary = sender.carries_binary();
    let mailroom = Mailroom::new(server.environment().clone(), sender, inbox);
    let desk = Arc::new(Desk {
        id,
        turns: Arc::new(Semaphore::new(server.options().concurrent_requests)),
        room: Arc::new(Semaphore::new(LARGE_ANSWER_BYTES >> 10)),
        jsonrpc: AtomicBool::new(false),
        carries_binary,
        scope: OnceLock::new(),
        binary: AtomicBool::new(false),
        belongings: Belongings::new(),
        server,
        peer,
        posts,
    });
    let front = FrontDesk {
        id,
        desk,
        handshake: Handshake::None,
        session: None,
        requests: JoinSet::new(),
        accepted: Arc::new(Semaphore::new(ACCEPTED_REQUESTS)),
        incoming: Arc::new(Semaphore::new(LARGE_REQUEST_BYTES >> 10)),
        droppable: CancellationToken::new(),
        ignored_notices: 0,
        stdin_order: StdinOrder::default(),
    };
    front.run(receiver, orders, tokio::spawn(mailroom.run())).await;
}

struct FrontDesk {
    id: ConnectionId,
    desk: Arc<Desk>,
    handshake: Handshake,
    session: Option<Arc<Session>>,
    requests: JoinSet<()>,
    accepted: Arc<Semaphore>,
    /// Bytes of large requests in memory.
    incoming: Arc<Semaphore>,
    /// Cancelled at the end: requests that change nothing stop there.
    droppable: CancellationToken,
    ignored_notices: u64,
    stdin_order: StdinOrder,
}

/// Whether to go on.
enum Next {
    Go,
    End(CloseReason),
}

impl FrontDesk {
    async fn run(
        mut self,
        mut receiver: Receiver,
        mut orders: watch::Receiver<Order>,
        mut writer: tokio::task::JoinHandle<Result<(), SendError>>,
    ) {
        let peer = self.desk.peer.to_string();
        tracing::debug!(peer, "connected");
        let reason = loop {
            let event = tokio::select! {
                biased;
                order = ordered(&mut orders) => Event::Ordered(order),
                done = &mut writer => Event::WriterDone(done),
                Some(_) = self.requests.join_next(), if !self.requests.is_empty() => Event::Answered,
                received = receiver.next() => Event::Received(received),
            };
            match self.on_event(event).await {
                Next::Go => {}
                Next::End(reason) => break reason,
            }
        };
        tracing::debug!(peer, %reason, "disconnecting");
        // First of all: whoever resumes the session must not wait for our end.
        self.desk.server.leave_connection(self.id, self.session.as_deref());
        self.droppable.cancel();
        self.desk.post(Post::Close(reason));
        if !writer.is_finished() {
            // A polite close waits for the peer to read; meanwhile what it still sends is read and dropped.
            let polite = async {
                while !matches!(receiver.next().await, Received::Closed(_)) {}
                std::future::pending::<()>().await
            };
            tokio::select! {
                _ = &mut writer => {}
                () = polite => {}
                // It reads nothing. What it missed it finds again when it resumes.
                () = tokio::time::sleep(FAREWELL) => writer.abort(),
            }
        }
        while self.requests.join_next().await.is_some() {}
        self.desk.belongings.end().await;
    }

    async fn on_event(&mut self, event: Event) -> Next {
        match event {
            Event::Received(Received::Message(message)) => self.on_message(message.into_bytes()).await,
            Event::Received(Received::Malformed { reason }) => {
                tracing::info!(peer = %self.desk.peer, reason, "cut off");
                Next::Go
            }
            Event::Received(Received::Closed(closed)) => {
                tracing::debug!(peer = %self.desk.peer, %closed, "gone");
                Next::End(CloseReason::normal())
            }
            Event::Answered => Next::Go,
            Event::WriterDone(done) => {
                match done {
                    Ok(Ok(())) | Ok(Err(SendError::Closed)) => {}
                    Ok(Err(error)) => tracing::info!(peer = %self.desk.peer, %error, "cannot write"),
                    Err(error) => tracing::error!(peer = %self.desk.peer, %error, "the writer failed"),
                }
                Next::End(CloseReason::normal())
            }
            Event::Ordered(order) => self.on_order(order),
        }
    }

    fn on_order(&mut self, order: Order) -> Next {
        match order {
            Order::Go => Next::Go,
            Order::TakenOver => {
                let session_id = self.session.as_ref().map_or_else(String::new, |session| session.id.clone());
                let mut out = Vec::new();
                let name = NotificationMethod::SessionTakenOver.name();
                envelope::write_notification(&mut out, name, &TakenOverParams { session_id }, self.desk.jsonrpc());
                self.desk.post(Post::Message(Bytes::from(out), None));
                Next::End(CloseReason::new(CloseReason::POLICY, "the session was taken over by another connection"))
            }
            Order::SessionClosed => Next::End(CloseReason::new(CloseReason::NORMAL, "the session was closed")),
            Order::Stop => Next::End(CloseReason::new(CloseReason::GOING_AWAY, "the server stops")),
        }
    }

    async fn on_message(&mut self, frame: Bytes) -> Next {
        if self.desk.binary() && binary::is_binary(&frame) {
            return self.on_frame(&frame).await;
        }
        let Ok(text) = std::str::from_utf8(&frame) else {
            return Next::End(CloseReason::new(CloseReason::INVALID_DATA, "a message was not UTF-8"));
        };
        match envelope::decode(text) {
            Ok(Incoming::Request(request)) => {
                self.note_jsonrpc(request.jsonrpc);
                let Some(method) = Method::parse_for_server(&request.method) else {
                    self.refuse(&request.id, &RpcError::unknown_method(&request.method), request.jsonrpc);
                    return Next::Go;
                };
                let params = Params::Json(SharedJson::new(&frame, request.params));
                let (id, jsonrpc) = (request.id, request.jsonrpc);
                let Some(weight) = self.weigh(frame.len()).await else { return Next::Go };
                self.on_request(id, method, params, jsonrpc, weight).await
            }
            Ok(Incoming::Notification(notice)) => self.on_notice(&notice.method),
            Ok(Incoming::Response(_) | Incoming::Error(_)) => {
                Next::End(CloseReason::new(CloseReason::POLICY, "an answer came to a question nobody asked"))
            }
            Err(malformed) => self.misunderstood(&malformed.reason),
        }
    }

    /// Raw bytes for a file. They stay where they were received.
    async fn on_frame(&mut self, frame: &Bytes) -> Next {
        let (request_id, params) = match binary::decode(frame) {
            Ok((FrameHeader::Write { request_id, handle_id, offset }, payload)) => {
                let chunk = Base64(frame.slice_ref(payload));
                (request_id, WriteBlockParams { handle_id: handle_id.to_owned(), offset, chunk })
            }
            Ok((FrameHeader::Output { .. } | FrameHeader::Block { .. }, _)) => {
                return self.misunderstood("a binary frame of a kind that only servers send");
            }
            Err(bad) => return self.misunderstood(&bad.to_string()),
        };
        let id = match RequestId::parse(request_id) {
            Ok(id) => id,
            Err(malformed) => return self.misunderstood(&malformed.reason),
        };
        let Some(weight) = self.weigh(frame.len()).await else { return Next::Go };
        self.on_request(id, Method::FsWriteBlock, Params::Block(params), self.desk.jsonrpc(), weight).await
    }

    fn misunderstood(&self, reason: &str) -> Next {
        let error = match self.desk.peer.kind() {
            PeerKind::WebSocket => RpcError::malformed_websocket(&self.desk.peer, reason),
            PeerKind::Unix | PeerKind::Stdio | PeerKind::Memory => RpcError::malformed_line(reason),
        };
        self.refuse(&RequestId::MALFORMED, &error, self.desk.jsonrpc());
        Next::Go
    }

    /// A place for a request of so many bytes; small ones take none.
    async fn weigh(&self, bytes: usize) -> Option<Option<OwnedSemaphorePermit>> {
        if bytes <= SMALL_ANSWER_BYTES {
            return Some(None);
        }
        let kib = u32::try_from(bytes.min(LARGE_REQUEST_BYTES) >> 10).unwrap_or(u32::MAX);
        self.incoming.clone().acquire_many_owned(kib).await.ok().map(Some)
    }

    async fn on_request(
        &mut self,
        id: RequestId,
        method: Method,
        params: Params,
        jsonrpc: bool,
        weight: Option<OwnedSemaphorePermit>,
    ) -> Next {
        if method == Method::Initialize {
            // In place: what is pipelined behind it must find the session.
            match self.initialize(&params).await {
                Ok((result, follow_ups)) => {
                    let mut out = Vec::new();
                    envelope::write_response(&mut out, &id, &result, jsonrpc);
                    self.desk.post(Post::Message(Bytes::from(out), None));
                    for post in follow_ups {
                        self.desk.post(post);
                    }
                    self.hold_session();
                }
                Err(error) => self.refuse(&id, &error, jsonrpc),
            }
            return Next::Go;
        }
        let Ok(accepted) = self.accepted.clone().acquire_owned().await else { return Next::Go };
        let request =
            Request { id, method, params, jsonrpc, handshake: self.handshake.clone(), accepted, _weight: weight };
        let (before, done) = self.stdin_order.place(&request);
        let answer = dispatch::answer(self.desk.clone(), request);
        let in_order = async move {
            if let Some(before) = before {
                before.cancelled().await;
            }
            answer.await;
            drop(done);
        };
        if dispatch::may_be_dropped(method) {
            let dropped = self.droppable.clone();
            self.requests.spawn(async move {
                let _ = dropped.run_until_cancelled(in_order).await;
            });
        } else {
            self.requests.spawn(in_order);
        }
        Next::Go
    }

    fn refuse(&self, id: &RequestId, error: &RpcError, jsonrpc: bool) {
        let mut out = Vec::new();
        envelope::write_error(&mut out, id, error, jsonrpc);
        self.desk.post(Post::Message(Bytes::from(out), None));
    }

    fn note_jsonrpc(&self, jsonrpc: bool) {
        if jsonrpc && !self.desk.jsonrpc.swap(true, Ordering::Relaxed) {
            self.desk.post(Post::Jsonrpc);
        }
    }
}

async fn ordered(orders: &mut watch::Receiver<Order>) -> Order {
    match orders.wait_for(|order| *order != Order::Go).await {
        Ok(order) => *order,
        // The server keeps the other side as long as the connection is entered.
        Err(_) => Order::Stop,
    }
}
