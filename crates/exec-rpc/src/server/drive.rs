//! Observers of a session, and who drives it: what changes the table of sessions and the attendance of one together.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use exec_wire::error::RpcError;
use exec_wire::session::DriveStatus;
use tokio::sync::oneshot;

use super::{Registration, Server, ServerState};
use crate::audit::AuditEvent;
use crate::connection::CloseRequest;
use crate::limits::OBSERVERS;
use crate::reply;
use crate::session::{Attachment, Attendee, ConnectionId, DriveRefusal, DriveRequestOutcome, Session};

impl Server {
    /// Attaches a connection as an observer. It needs the right to resume the session, and takes it from nobody. Also returns
    /// the TTL of the session.
    pub(crate) fn observe_session(
        &self,
        registration: &mut Registration,
        id: &str,
        observer: Attendee,
    ) -> Result<(Arc<Session>, Duration), RpcError> {
        let state = self.lock();
        let session = state.resumable(id, registration)?;
        let ttl = state.sessions.ttl_if_alive(id, Instant::now()).ok_or_else(|| RpcError::unknown_session(id))?;
        if !session.attendance().add_observer(observer) {
            return Err(reply::busy(format!("session {id} has {OBSERVERS} observers: wait until one has left")));
        }
        registration.session_id = Some(session.id.clone());
        Ok((session, ttl))
    }

    /// Asks the driver for the drive, or takes it if there is none. The driver's answer, if it must be waited for.
    pub(crate) fn ask_for_drive(
        &self,
        session: &Arc<Session>,
        caller: ConnectionId,
    ) -> Result<Option<oneshot::Receiver<DriveStatus>>, DriveRefusal> {
        let mut state = self.lock();
        let asked = session.attendance().ask(caller)?;
        let answer = match asked {
            DriveRequestOutcome::Drives => None,
            DriveRequestOutcome::Waits(answer) => {
                drop(state);
                session.tell_attendance();
                Some(answer)
            }
            DriveRequestOutcome::Free => {
                state.hand_over(session, caller)?;
                drop(state);
                self.tell_drive(session);
                None
            }
        };
        Ok(answer)
    }

    /// Takes the drive from whoever has it.
    pub(crate) fn take_drive(&self, session: &Arc<Session>, caller: ConnectionId) -> Result<(), DriveRefusal> {
        let mut state = self.lock();
        if session.attendance().require_driver(caller).is_ok() {
            return Ok(());
        }
        state.hand_over(session, caller)?;
        drop(state);
        self.tell_drive(session);
        Ok(())
    }

    /// Gives the drive of the caller to an observer.
    pub(crate) fn hand_over_drive(
        &self,
        session: &Arc<Session>,
        caller: ConnectionId,
        to: ConnectionId,
    ) -> Result<(), DriveRefusal> {
        let mut state = self.lock();
        session.attendance().require_driver(caller)?;
        state.hand_over(session, to)?;
        drop(state);
        self.tell_drive(session);
        Ok(())
    }

    pub(crate) fn refuse_drive(
        &self,
        session: &Arc<Session>,
        caller: ConnectionId,
        observer: ConnectionId,
    ) -> Result<(), DriveRefusal> {
        session.attendance().refuse(caller, observer)?;
        session.tell_attendance();
        Ok(())
    }

    /// Tells everybody who drives. The file of a session says whose it is as well, so that after a crash only that client has
    /// it back by itself.
    pub(super) fn tell_drive(&self, session: &Arc<Session>) {
        session.tell_attendance();
        let ttl = self.lock().sessions.ttl_if_alive(&session.id, Instant::now());
        if let Some(ttl) = ttl {
            self.store_session(session, ttl);
        }
    }
}

impl ServerState {
    /// The session, if whoever is behind the connection may resume it.
    pub(super) fn resumable(&self, id: &str, registration: &Registration) -> Result<Arc<Session>, RpcError> {
        let session = self.sessions.get(id).ok_or_else(|| RpcError::unknown_session(id))?;
        if !session.may_be_resumed_by(registration.subject.as_deref()) {
            tracing::warn!(session = id, "refused to a token of another subject");
            return Err(RpcError::unknown_session(id));
        }
        Ok(session)
    }

    /// Makes an observer the driver. The former driver observes from now on, or is cut off if it knows of no observers.
    fn hand_over(&mut self, session: &Arc<Session>, to: ConnectionId) -> Result<(), DriveRefusal> {
        let mut attendance = session.attendance();
        let driver = attendance.connection(to).as_ref().and_then(Weak::upgrade);
        let driver = driver.ok_or(DriveRefusal::NoSuchObserver)?;
        let former = match self.sessions.attachment(&session.id) {
            Some(Attachment::Attached(former)) => attendance.connection(former).as_ref().and_then(Weak::upgrade),
            Some(Attachment::Detached { .. }) => None,
            // It was closed meanwhile.
            None => return Err(DriveRefusal::NotAttached),
        };
        let cut_off = attendance.hand_over(to)?;
        drop(attendance);
        self.sessions.attach(&session.id, to, None, Instant::now()).ok_or(DriveRefusal::NotAttached)?;
        match cut_off {
            Some(id) => self.request_close(id, CloseRequest::TakenOver),
            None => former.iter().for_each(|former| former.set_drives(false)),
        }
        session.set_holder(Some(driver.request_scope().map_or("", |scope| scope)));
        driver.set_drives(true);
        session.set_current(&driver);
        let client = session.attendance().driver().map(|driver| driver.client_name).unwrap_or_default();
        tracing::info!(session = session.id, client, peer = %driver.peer, "has the drive now");
        if let Some(audit) = driver.server.audit() {
            let (session, peer) = (session.id.clone(), driver.peer.to_string());
            audit.record_at_once(AuditEvent::DriveChanged { session, client, peer });
        }
        Ok(())
    }

    /// A connection has ended. The first observer that waits for the drive gets it, if nobody has it now.
    /// The session, if others must be told, and whether another drives it now.
    pub(super) fn leave(&mut self, session_id: &str, connection: ConnectionId) -> Option<(Arc<Session>, bool)> {
        self.sessions.detach(session_id, connection, Instant::now());
        let session = self.sessions.get(session_id)?;
        let expires = match self.sessions.attachment(session_id) {
            Some(Attachment::Detached { until }) => Some(until),
            Some(Attachment::Attached(_)) | None => None,
        };
        let (was_attached, heir) = {
            let mut attendance = session.attendance();
            (attendance.leave(connection, expires), attendance.heir())
        };
        // One that is on its way out itself leaves soon, and then the next has its turn.
        let is_inherited = heir.is_some_and(|heir| self.hand_over(&session, heir).is_ok());
        was_attached.then_some((session, is_inherited))
    }

    /// The session has ended, and nothing is left to observe.
    pub(super) fn dismiss_observers(&self, session: &Session) {
        let observers: Vec<ConnectionId> = session.attendance().observers().map(|observer| observer.id).collect();
        for observer in observers {
            self.request_close(observer, CloseRequest::SessionClosed);
        }
    }

    pub(super) fn request_close(&self, connection: ConnectionId, request: CloseRequest) {
        if let Some(connection) = self.connections.get(&connection) {
            connection.send_replace(Some(request));
        }
    }
}
