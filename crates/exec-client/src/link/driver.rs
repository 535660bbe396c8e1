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
use super::incoming::{self, Meaning};
use super::shared::Shared;
use super::writer::{Outgoing, Writer};
use crate::dial::Dial;
use crate::error;
use crate::session::{Effect, Failure, Loss, LossKind, Session};

/// The driver.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    dial: Arc<dyn Dial>,
    session: Session,
    hello: Hello,
    line: Line,
    end: CancellationToken,
}

/// What every `initialize` says.
#[derive(Debug, Clone)]
pub(crate) struct Hello {
    pub(crate) client_name: String,
    pub(crate) detached_ttl_ms: Option<u64>,
    pub(crate) binary_frames: bool,
}

enum Line {
    Down,
    Dialing(BoxFuture<'static, Result<Connection, ConnectError>>),
    Open(Box<Open>),
}

struct Open {
    receiver: Receiver,
    writer: Writer,
    carries_binary: bool,
    /// The id of `initialize`, until it is answered; and the places it asked the push to go on from.
    greeting: Option<(i64, BTreeMap<String, u64>)>,
    /// What `initialize` answered, until the session is served.
    welcome: Option<Welcome>,
    /// Whether anything came since then.
    useful: bool,
}

struct Welcome {
    asked: BTreeMap<String, u64>,
    result: InitializeResult,
}

enum Event {
    End,
    Due,
    Wanted,
    Dialed(Result<Connection, ConnectError>),
    Received(Received),
    WriterFailed(String),
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        dial: Arc<dyn Dial>,
        session: Session,
        hello: Hello,
        end: CancellationToken,
    ) -> Self {
        Self { shared, dial, session, hello, line: Line::Down, end }
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
        let due = self.session.due();
        let idle = !self.session.is_live();
        let line = &mut self.line;
        let on_the_line = async {
            match line {
                Line::Down => pending().await,
                Line::Dialing(dialing) => Event::Dialed(dialing.await),
                Line::Open(open) => tokio::select! {
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
            () = self.end.cancelled() => Event::End,
            () = at_due => Event::Due,
            () = self.shared.wanted.notified(), if idle => Event::Wanted,
            event = on_the_line => event,
        }
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let now = now();
        match event {
            Event::End => self.session.end(),
            Event::Due => self.session.tick(now),
            Event::Wanted if self.shared.lock().wanted => self.session.wanted(),
            Event::Wanted => Vec::new(),
            Event::Dialed(Ok(connection)) => {
                self.line = Line::Open(Box::new(Open::new(connection, &self.shared)));
                self.session.dialed(now)
            }
            Event::Dialed(Err(error)) => {
                self.line = Line::Down;
                tracing::debug!(%error, "no connection");
                self.session.failed(now, dial_failure(&error))
            }
            Event::Received(Received::Message(message)) => self.take(message),
            // The transport says so once more, as the end.
            Event::Received(Received::Malformed { .. }) => Vec::new(),
            Event::Received(Received::Closed(closed)) => self.broke(&closed.to_string()),
            Event::WriterFailed(why) => self.broke(&why),
        }
    }

    fn take(&mut self, message: Message) -> Vec<Effect> {
        let Line::Open(open) = &mut self.line else { return Vec::new() };
        self.shared.bytes_in.fetch_add(message.bytes().len() as u64, Ordering::Relaxed);
        open.useful |= self.session.is_live();
        let greeting = open.greeting.as_ref().map(|(id, _)| *id);
        match incoming::take(&self.shared, message, greeting) {
            Meaning::Delivered => Vec::new(),
            Meaning::Greeting(answer) => self.greeted(answer),
            Meaning::Question(answer) => {
                open.writer.queue().send(answer);
                Vec::new()
            }
            Meaning::TakenOver => {
                let why = "the session was taken over by another connection".to_owned();
                self.session.lost(Loss { kind: LossKind::TakenOver, why })
            }
            Meaning::Nonsense(why) => self.broke(&why),
        }
    }

    fn greeted(&mut self, answer: Result<SharedJson, RpcError>) -> Vec<Effect> {
        let Line::Open(open) = &mut self.line else { return Vec::new() };
        let Some((_, asked)) = open.greeting.take() else { return Vec::new() };
        let now = now();
        match answer.map(|json| json.decode::<InitializeResult>()) {
            Ok(Ok(result)) => {
                let session_id = result.session_id.clone();
                open.welcome = Some(Welcome { asked, result });
                self.session.welcomed(&session_id)
            }
            Ok(Err(bad)) => {
                let why = format!("the answer to initialize cannot be read: {}", bad.reason());
                self.session.failed(now, Failure::Final(Loss { kind: LossKind::Refused, why }))
            }
            Err(error) => self.session.failed(now, error::greeting_failure(&error)),
        }
    }

    fn broke(&mut self, why: &str) -> Vec<Effect> {
        let useful = matches!(&self.line, Line::Open(open) if open.useful);
        tracing::debug!(why, useful, "the connection broke");
        self.session.broke(now(), why, useful)
    }

    async fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Dial => {
                let dial = Arc::clone(&self.dial);
                self.line = Line::Dialing(Box::pin(async move { dial.dial().await }));
                let attempt = self.session.attempt().unwrap_or(1);
                let first = self.shared.lock().session_id.is_none();
                let state = if first { LinkState::Connecting } else { LinkState::Reconnecting { attempt } };
                self.shared.link_state.send_replace(state);
            }
            Effect::Greet { resume } => self.greet(resume),
            Effect::Serve { resumed } => self.serve(resumed),
            Effect::Interrupt => {
                if let Line::Open(open) = std::mem::replace(&mut self.line, Line::Down) {
                    open.writer.stop().await;
                }
                self.shared.interrupt();
                let attempt = self.session.attempt().unwrap_or(1);
                self.shared.link_state.send_replace(LinkState::Reconnecting { attempt });
            }
            Effect::Forfeit(loss) => {
                self.shared.forfeit(&loss);
                let ended = loss.kind == LossKind::Ended;
                let state = if ended { LinkState::Ended } else { LinkState::Lost(loss) };
                self.shared.link_state.send_replace(state);
            }
            Effect::Leave => {
                if let Line::Open(open) = std::mem::replace(&mut self.line, Line::Down) {
                    open.writer.leave().await;
                }
            }
        }
    }

    fn greet(&mut self, resume: Option<String>) {
        let Line::Open(open) = &mut self.line else { return };
        let asked: BTreeMap<String, u64> = match &resume {
            Some(_) => {
                let state = self.shared.lock();
                state.inbox.places().map(|(id, seq)| (id.as_str().to_owned(), seq)).collect()
            }
            None => BTreeMap::new(),
        };
        let params = InitializeParams {
            client_name: self.hello.client_name.clone(),
            resume_session_id: resume,
            detached_ttl_ms: self.hello.detached_ttl_ms,
            resume_from: (!asked.is_empty()).then(|| asked.clone()),
            binary_frames: self.hello.binary_frames && open.carries_binary,
            request_scope: Some(self.shared.scope.clone()),
        };
        let id = self.shared.new_id();
        let mut out = Vec::new();
        envelope::write_request(&mut out, &RequestId::Number(id), Method::Initialize.name(), &params, None, false);
        open.greeting = Some((id, asked));
        open.writer.queue().send(Outgoing::handshake(out));
    }

    fn serve(&mut self, resumed: bool) {
        let Line::Open(open) = &mut self.line else { return };
        let Some(Welcome { asked, result }) = open.welcome.take() else { return };
        {
            let mut state = self.shared.lock();
            if let Some(info) = result.environment_info {
                state.extensions = info.extensions.iter().cloned().collect();
                state.info = Some(info);
            }
            let takes_blocks = state.extensions.contains("fs/writeBlock.binary");
            state.binary = open.carries_binary && result.binary_frames && takes_blocks;
            state.session_id = Some(result.session_id);
            state.remember_by(result.request_memory);
            if resumed {
                state.inbox.resume(&asked, result.resume_from.as_ref());
            }
        }
        let mut out = Vec::new();
        envelope::write_notification(&mut out, NotificationMethod::Initialized.name(), &InitializedParams {}, false);
        self.shared.serve(open.writer.queue().clone(), Outgoing::handshake(out));
        self.shared.reconnects.store(self.session.reconnects(), Ordering::Relaxed);
        self.shared.link_state.send_replace(LinkState::Connected);
    }
}

impl Open {
    fn new(connection: Connection, shared: &Shared) -> Self {
        let Connection { sender, receiver, peer } = connection;
        tracing::debug!(%peer, "connected");
        let carries_binary = sender.carries_binary();
        let writer = Writer::start(sender, Arc::clone(&shared.bytes_out));
        Self { receiver, writer, carries_binary, greeting: None, welcome: None, useful: false }
    }
}

/// A server that is there and will not have us, or a program that is not, will not change its mind in seconds.
fn dial_failure(error: &ConnectError) -> Failure {
    let why = error.to_string();
    match error {
        ConnectError::Refused { status: 400..=499, .. } => Failure::Final(Loss { kind: LossKind::Refused, why }),
        ConnectError::Spawn { .. } => Failure::Final(Loss { kind: LossKind::Unreachable, why }),
        _ => Failure::Passing(why),
    }
}

/// The runtime's clock, which tests can hold still.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
