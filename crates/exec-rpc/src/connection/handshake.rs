//! The handshake of a connection: `initialize` opens or resumes a session and agrees on options, the notification
//! `initialized` completes it.
//!
//! ```text
//!   NotStarted ── initialize ──► AwaitingInitialized ── initialized ──► Complete
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use exec_transport::CloseReason;
use exec_wire::envelope::Notification;
use exec_wire::error::RpcError;
use exec_wire::initialize::{InitializeParams, InitializeResult};
use exec_wire::method::{Method, NotificationMethod};
use exec_wire::process::AcknowledgeParams;
use exec_wire::session::Role;

use super::ConnectionTask;
use crate::audit::AuditEvent;
use crate::convert;
use crate::dispatch::Params;
use crate::limits::{CLIENT_NAME_BYTES, OUTPUT_WINDOW_BYTES, REQUEST_SCOPE_BYTES};
use crate::reply;
use crate::reservations::Lookup;
use crate::session::{Attendee, ReadPositions, Session, unix_ms};
use crate::writer::WriterCommand;

/// How far the handshake was when a request came.
#[derive(Debug, Clone)]
pub(crate) enum HandshakeState {
    NotStarted,
    AwaitingInitialized,
    Complete(Arc<Session>),
}

impl HandshakeState {
    pub(crate) fn session(&self) -> Option<&Session> {
        match self {
            Self::Complete(session) => Some(session),
            Self::NotStarted | Self::AwaitingInitialized => None,
        }
    }
}

impl ConnectionTask {
    /// The response to `initialize`, and the commands that the writer must get after it.
    pub(super) async fn initialize(
        &mut self,
        params: &Params,
    ) -> Result<(InitializeResult, Vec<WriterCommand>), RpcError> {
        let params: InitializeParams = params.decode()?;
        if self.session.is_some() {
            return Err(RpcError::initialized_twice());
        }
        check_length("clientName", &params.client_name, CLIENT_NAME_BYTES)?;
        let scope = params.request_scope.as_deref();
        check_length("requestScope", scope.unwrap_or_default(), REQUEST_SCOPE_BYTES)?;
        let server = &self.shared.server;
        let ttl = params.detached_ttl_ms.map(Duration::from_millis);
        let registration = &mut self.registration;
        let (connection, name) = (Arc::downgrade(&self.shared), params.client_name.clone());
        let client = Attendee::new(self.shared.id, connection, name, unix_ms(SystemTime::now()), params.role.is_some());
        let observes = params.role == Some(Role::Observer);
        let (session, granted) = match &params.resume_session_id {
            None if observes => return Err(reply::observes_no_session()),
            None => server.open_session(registration, client, scope, ttl).await?,
            Some(id) if observes => server.observe_session(registration, id, client)?,
            Some(id) => server.resume_session(registration, id, client, scope, params.only_if_held, ttl)?,
        };
        if let Some(audit) = server.audit() {
            let (session, peer) = (session.id.clone(), self.shared.peer.to_string());
            let subject = registration.subject().map(str::to_owned);
            audit
                .record(match &params.resume_session_id {
                    None => AuditEvent::SessionOpened { session, client: params.client_name.clone(), peer, subject },
                    Some(_) if observes => {
                        AuditEvent::SessionObserved { session, client: params.client_name.clone(), peer, subject }
                    }
                    Some(_) => AuditEvent::SessionResumed { session, peer, subject },
                })
                .await;
        }
        let mut commands = Vec::new();
        if observes {
            // The first of all, so that nothing is kept for it.
            self.shared.set_drives(false);
        }
        if params.binary_frames {
            self.shared.binary_frames.store(self.shared.carries_binary, Ordering::Relaxed);
            commands.push(WriterCommand::UseBinaryFrames);
        }
        let output_window = params.output_window_bytes.map(|bytes| bytes.min(OUTPUT_WINDOW_BYTES as u64));
        if let Some(bytes) = output_window {
            commands.push(WriterCommand::UseWindow { bytes: bytes as usize });
        }
        let request_memory = params.request_scope.as_deref().and_then(|scope| self.adopt_request_scope(scope));
        let resumed = params.resume_session_id.is_some();
        let mut resume_from = params.resume_from.clone();
        if resumed {
            for process in session.processes() {
                commands.push(match resume_from.as_ref().and_then(|from| from.get(&process.wire_id)) {
                    Some(after) => WriterCommand::Follow { after: convert::seq(*after), process },
                    // Nothing was pushed to it before that a first read would have to be joined to.
                    None if observes => WriterCommand::Follow { after: process.last_sent(), process },
                    None => WriterCommand::FollowAfterFirstRead { process },
                });
            }
        }
        if let Some(from) = &mut resume_from {
            from.retain(|wire_id, _| matches!(session.find(wire_id), Lookup::Present(_)));
        }
        self.session = Some(session.clone());
        self.handshake = HandshakeState::AwaitingInitialized;
        let environment_info = server.default_info().await.map(|info| convert::environment_info(&info));
        let extensions = environment_info.is_none().then(convert::extensions);
        let result = InitializeResult {
            session_id: session.id.clone(),
            environment_info,
            extensions,
            detached_ttl_ms: params.detached_ttl_ms.map(|_| granted.as_millis() as u64),
            resume_from,
            binary_frames: params.binary_frames,
            request_memory,
            output_window_bytes: output_window,
            role: params.role,
        };
        Ok((result, commands))
    }

    /// Caches responses under this scope from now on, and returns the id of the cache. An empty scope is not adopted.
    fn adopt_request_scope(&self, scope: &str) -> Option<String> {
        let adopted = !scope.is_empty() && self.shared.request_scope.set(Arc::from(scope)).is_ok();
        adopted.then(|| self.shared.server.response_cache_id.clone())
    }

    /// Makes this the connection that hears of processes whose start was requested on an earlier connection.
    ///
    /// Some of those starts may have ended since `initialize` listed the processes, so they are listed again. The writer
    /// ignores the command for a process that it already follows.
    ///
    /// An observer hears of those by another way.
    pub(super) fn join_session(&self) {
        let Some(session) = &self.session else { return };
        session.tell_attendance();
        if !self.shared.drives() {
            return;
        }
        session.set_current(&self.shared);
        for process in session.processes() {
            self.shared.send(WriterCommand::FollowAfterFirstRead { process });
        }
    }

    pub(super) fn on_notification(&mut self, notification: &Notification<'_>) -> ControlFlow<CloseReason> {
        match NotificationMethod::parse(&notification.method) {
            Some(NotificationMethod::Initialized) => {}
            Some(NotificationMethod::ProcessAcknowledge) if self.on_acknowledge(notification) => {
                return ControlFlow::Continue(());
            }
            _ => {
                self.ignored_notifications += 1;
                let (method, count) = (&notification.method, self.ignored_notifications);
                tracing::debug!(peer = %self.shared.peer, %method, count, "a notification is ignored");
                return ControlFlow::Continue(());
            }
        }
        match (&self.handshake, &self.session) {
            (HandshakeState::AwaitingInitialized, Some(session)) => {
                self.handshake = HandshakeState::Complete(session.clone());
            }
            (HandshakeState::NotStarted, _) => {
                let reason = CloseReason::new(CloseReason::POLICY, "initialized came before initialize");
                return ControlFlow::Break(reason);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// The client has read a log so far. `false` if that cannot be understood; a process that was forgotten can.
    fn on_acknowledge(&self, notification: &Notification<'_>) -> bool {
        // What was acknowledged may be dropped, and others of the session may have yet to read it.
        if self.shared.permissions.allow_method(Method::ProcessRead).is_err() {
            return false;
        }
        let Ok(params) = notification.params.decode::<AcknowledgeParams>() else { return false };
        let HandshakeState::Complete(session) = &self.handshake else { return false };
        // A connection that was replaced may say late what counts no longer.
        let counts = !self.shared.drives() || session.is_current(self.shared.id);
        if counts
            && let Lookup::Present(process) = session.find(&params.process_id)
            && self.shared.news.record_acknowledgement(&process, read_positions(&params))
        {
            self.shared.send(WriterCommand::Acknowledged { process });
        }
        true
    }
}

/// Refuses a string that would be kept and is too long.
fn check_length(what: &str, text: &str, limit_bytes: usize) -> Result<(), RpcError> {
    if text.len() > limit_bytes { Err(reply::too_long(what, text.len(), limit_bytes)) } else { Ok(()) }
}

fn read_positions(params: &AcknowledgeParams) -> Option<ReadPositions> {
    let slowest = params.seq?;
    let fastest = params.fastest_seq.map_or(slowest, |fastest| fastest.max(slowest));
    Some(ReadPositions { slowest: convert::seq(slowest), fastest: convert::seq(fastest) })
}
