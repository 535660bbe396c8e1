//! Finding the sessions and processes of an earlier server again.
//!
//! Sessions are in the state directory. Processes are listed by their environments, and say by their labels whose they are.
//! This machine answers at once. A far one may be away just now: it is asked in the background until it answers, and until
//! then nobody is told that a process which it may have does not exist.

use std::sync::Arc;
use std::time::Instant;

use exec_env::process::ProcessInfo;
use exec_env::registry::EnvironmentState;
use exec_wire::error::RpcError;

use super::{Server, ServerStartError};
use crate::ceiling::ProcessLimits;
use crate::limits::{RECOVERY_PAUSE, RECOVERY_WAIT};
use crate::reply;
use crate::reservations::Lookup;
use crate::routing::NamedEnvironment;
use crate::session::{Opener, ProcessLabel, Session, SessionOwner, SessionProcess, unix_ms};
use crate::writer::WriterCommand;

impl Server {
    pub(super) async fn recover_all(self: &Arc<Self>) -> Result<(), ServerStartError> {
        {
            let mut state = self.lock();
            let now = Instant::now();
            for (session, ttl) in self.store.load_all() {
                state.sessions.recover(Arc::new(session), ttl, now);
            }
        }
        for status in self.routing.registry().list() {
            match status.state {
                EnvironmentState::Ready => {
                    let Ok(environment) = self.environment(Some(&status.id)) else { continue };
                    self.routing.record_use(&environment);
                    let listed = environment.processes().list().await?;
                    self.recover(&environment, listed);
                }
                EnvironmentState::Pending | EnvironmentState::Disconnected { .. } => {
                    self.recover_environment(&status.id);
                }
            }
        }
        // Clients come back at once, and should find their processes.
        let _ = tokio::time::timeout(RECOVERY_WAIT, self.routing.all_asked()).await;
        Ok(())
    }

    /// Asks a far environment, if an earlier server has used it, which processes of that one it has.
    pub(crate) fn recover_environment(self: &Arc<Self>, id: &str) {
        let was_used = self.routing.registry().status(id).is_some_and(|status| status.was_used);
        let Ok(environment) = self.environment(Some(id)) else { return };
        if !was_used {
            return;
        }
        self.routing.set_unasked(&environment.id, "it was not asked yet");
        let server = Arc::downgrade(self);
        let mut recoveries = self.recoveries.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while recoveries.try_join_next().is_some() {}
        recoveries.spawn(async move {
            loop {
                let listed = environment.processes().list().await;
                let Some(server) = server.upgrade() else { return };
                // It was taken away, or another has its id now.
                if !server.environment(Some(&environment.id)).is_ok_and(|now| now.is_same(&environment)) {
                    return;
                }
                match listed {
                    Ok(listed) => {
                        server.routing.record_use(&environment);
                        for process in server.recover(&environment, listed) {
                            server.push_recovered(&process).await;
                        }
                        return server.routing.set_asked(&environment.id);
                    }
                    Err(error) => server.routing.set_unasked(&environment.id, &error.to_string()),
                }
                drop(server);
                tokio::time::sleep(RECOVERY_PAUSE).await;
            }
        });
    }

    /// Environments that may have processes of this session which nobody here knows.
    pub(crate) fn unasked_for(&self, session: &Session) -> Vec<(Arc<str>, String)> {
        if session.opened_at_ms < self.started_at_ms { self.routing.unasked() } else { Vec::new() }
    }

    /// Refuses to say that there is no such process while somebody who may have it could not be asked.
    pub(crate) fn require_all_asked(&self, session: &Session, wire_id: &str) -> Result<(), RpcError> {
        match self.unasked_for(session) {
            unasked if unasked.is_empty() => Ok(()),
            unasked => Err(reply::not_asked_yet(wire_id, &unasked)),
        }
    }

    fn recover(
        self: &Arc<Self>,
        environment: &NamedEnvironment,
        processes: Vec<ProcessInfo>,
    ) -> Vec<(Arc<Session>, Arc<SessionProcess>)> {
        let now = Instant::now();
        let mut found = Vec::new();
        for info in processes {
            let Some(label) = ProcessLabel::decode(&info.label) else { continue };
            let session = {
                let mut state = self.lock();
                state.sessions.get(&label.session).unwrap_or_else(|| {
                    // The session's file was lost, but its processes were not.
                    let (id, opened_at_ms) = (label.session.clone(), unix_ms(info.started));
                    let session = Session::new(id, String::new(), opened_at_ms, SessionOwner::Host);
                    let session = Arc::new(session.opened_by(Opener::Unknown));
                    state.sessions.recover(session.clone(), self.options.detached_ttl, now);
                    session
                })
            };
            if !matches!(session.find(&label.wire_id), Lookup::Free) {
                // The client has begun another while this one could not be asked. Nobody can reach the old one.
                tracing::warn!(process = label.wire_id, environment = &*environment.id, "its id is taken by now");
                continue;
            }
            if !label.start_key.is_empty() {
                session.record_start(label.start_key);
            }
            let (keep, sandboxed) = (label.keep, label.sandboxed);
            let process = SessionProcess::new(label.wire_id, info.id, environment.clone(), keep, sandboxed);
            let process = Arc::new(process);
            // It was permitted when it was started, so it counts and is not judged again.
            let ceiling = &self.options.ceiling;
            let is_counted = ceiling.processes.is_some() || ceiling.processes_per_session.is_some();
            let no_limits = ProcessLimits { per_session: None, in_all: None };
            let counted = is_counted.then(|| self.running.count(&session.id, no_limits).ok()).flatten();
            self.await_exit(&session, &process, counted);
            session.insert_process(process.clone());
            found.push((session, process));
        }
        found
    }

    /// The client may have come back before its process was found.
    async fn push_recovered(&self, (session, process): &(Arc<Session>, Arc<SessionProcess>)) {
        // From then on the environment knows that we follow the process, and a connection's writer, which must not wait for
        // anybody, can follow it without asking.
        let _ = process.environment.processes().follow(&process.id, 0).await;
        if let Some((_, writer)) = session.current_writer() {
            let _ = writer.send(WriterCommand::FollowAfterFirstRead { process: process.clone() });
        }
    }
}
