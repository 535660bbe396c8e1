//! What the proxies of processes ask and tell becomes messages to the client that has the process's session.
//!
//! The environment asks [`NetworkFront`] about every request that no rule allows. The question goes as
//! `network/policyRequest` to the connection that the session is attached to just now, and without one, or without an
//! answer, the environment takes it for a no. Decisions become `network/policyDecision`; a client that does not read them
//! misses some, and nobody waits for it. The audit has them all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use exec_core::ProcessId;
use exec_core::network::{NetworkAnswer, NetworkDecision, NetworkRequest};
use exec_env::{BoxFuture, NetworkDecider};
use exec_wire::envelope::{self, RequestId};
use exec_wire::method::{Method, NotificationMethod};
use exec_wire::network::{PolicyDecisionParams, PolicyRequestParams};
use tokio::sync::{Semaphore, oneshot};

use crate::audit::AuditEvent;
use crate::connection::ConnectionShared;
use crate::limits::{NETWORK_DECISIONS, NETWORK_QUESTIONS};
use crate::server::Server;
use crate::writer::WriterCommand;

/// The decider of the environment that a server serves.
pub(crate) struct NetworkFront {
    server: Weak<Server>,
}

impl NetworkFront {
    pub(crate) fn new(server: &Arc<Server>) -> Self {
        Self { server: Arc::downgrade(server) }
    }

    /// The connection of the client whose process it is, and the client's id of the process.
    fn connection_of<'a>(&self, process: &'a ProcessId) -> Option<(Arc<ConnectionShared>, &'a str)> {
        // See `Session::process_id`.
        let (session, wire_id) = process.as_str().split_once('/')?;
        let session = self.server.upgrade()?.find_session(session)?;
        Some((session.connection()?, wire_id))
    }
}

impl NetworkDecider for NetworkFront {
    fn decide<'a>(&'a self, process: &'a ProcessId, request: NetworkRequest) -> BoxFuture<'a, NetworkAnswer> {
        Box::pin(async move {
            let Some((connection, wire_id)) = self.connection_of(process) else { return NetworkAnswer::none() };
            let Some(question) = connection.questions.begin() else { return NetworkAnswer::none() };
            let params = PolicyRequestParams { process_id: wire_id.to_owned(), request: request.into() };
            let mut out = Vec::new();
            let (id, method) = (RequestId::Number(question.id), Method::NetworkPolicyRequest.name());
            envelope::write_request(&mut out, &id, method, &params, None, connection.jsonrpc());
            connection.send(WriterCommand::Message(Bytes::from(out), None));
            // What we hold of the connection must not keep it from ending.
            drop(connection);
            question.answer().await
        })
    }

    fn decided(&self, process: &ProcessId, decision: NetworkDecision) {
        tracing::debug!(
            process = process.as_str(),
            host = decision.request.host,
            port = decision.request.port,
            outcome = decision.outcome.name(),
            reason = decision.reason,
            "a process has asked its proxy"
        );
        let Some((session, wire_id)) = process.as_str().split_once('/') else { return };
        let params = PolicyDecisionParams::new(wire_id.to_owned(), &decision);
        if let Some(audit) = self.server.upgrade().as_ref().and_then(|server| server.audit()) {
            audit.record_at_once(AuditEvent::network_decision(session, &params, decision.audit));
        }
        let Some((connection, _)) = self.connection_of(process) else { return };
        // What a token does not let its client read is not pushed to it either.
        if connection.permissions.allow_method(Method::ProcessRead).is_err() {
            return;
        }
        let Ok(permit) = connection.questions.decisions.clone().try_acquire_owned() else { return };
        let mut out = Vec::new();
        let method = NotificationMethod::NetworkPolicyDecision.name();
        envelope::write_notification(&mut out, method, &params, connection.jsonrpc());
        connection.send(WriterCommand::Message(Bytes::from(out), Some((permit, None))));
    }
}

/// The requests that we make of one client, and their answers. Ids are counted from 1 on every connection.
pub(crate) struct Questions {
    state: Arc<Mutex<QuestionState>>,
    /// One permit per decision that waits to be written.
    decisions: Arc<Semaphore>,
}

#[derive(Default)]
struct QuestionState {
    last_id: i64,
    /// At most [`NETWORK_QUESTIONS`].
    open: HashMap<i64, oneshot::Sender<NetworkAnswer>>,
    /// The connection has ended: there will be no answers.
    ended: bool,
}

impl Default for Questions {
    fn default() -> Self {
        Self { state: Arc::default(), decisions: Arc::new(Semaphore::new(NETWORK_DECISIONS)) }
    }
}

impl Questions {
    /// `None` if too many are open, or nobody is there to answer.
    fn begin(&self) -> Option<Question> {
        let mut state = lock(&self.state);
        if state.ended || state.open.len() >= NETWORK_QUESTIONS {
            return None;
        }
        state.last_id += 1;
        let (sender, receiver) = oneshot::channel();
        let id = state.last_id;
        state.open.insert(id, sender);
        Some(Question { id, answer: receiver, state: self.state.clone() })
    }

    /// The client has answered; `false` if nobody ever asked that. An answer that comes too late does no harm.
    pub(crate) fn answer(&self, id: &RequestId, answer: NetworkAnswer) -> bool {
        let RequestId::Number(id) = id else { return false };
        let mut state = lock(&self.state);
        if let Some(waiting) = state.open.remove(id) {
            let _ = waiting.send(answer);
        }
        (1..=state.last_id).contains(id)
    }

    /// The connection has ended. Whoever waits has its answer.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        state.open.clear();
    }
}

/// One question. Forgotten when it is dropped.
struct Question {
    id: i64,
    answer: oneshot::Receiver<NetworkAnswer>,
    state: Arc<Mutex<QuestionState>>,
}

impl Question {
    async fn answer(mut self) -> NetworkAnswer {
        (&mut self.answer).await.unwrap_or(NetworkAnswer::none())
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        lock(&self.state).open.remove(&self.id);
    }
}

fn lock(state: &Mutex<QuestionState>) -> MutexGuard<'_, QuestionState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn questions_are_counted_bounded_and_answered_once() {
        let questions = Questions::default();
        let mut open: Vec<Question> = (0..NETWORK_QUESTIONS).filter_map(|_| questions.begin()).collect();
        assert_eq!(open.iter().map(|question| question.id).collect::<Vec<_>>(), (1..=256).collect::<Vec<i64>>());
        assert!(questions.begin().is_none(), "one more than there may be");
        assert!(questions.answer(&RequestId::Number(256), NetworkAnswer::Allow));
        let last = open.pop().expect("there are 256");
        assert_eq!(last.answer().await, NetworkAnswer::Allow);
        assert!(questions.answer(&RequestId::Number(256), NetworkAnswer::Allow), "too late, and harmless");
        for unasked in
            [RequestId::Number(0), RequestId::Number(257), RequestId::Number(-1), RequestId::Text("1".into())]
        {
            assert!(!questions.answer(&unasked, NetworkAnswer::Allow), "{unasked}");
        }
        assert_eq!(questions.begin().map(|question| question.id), Some(257), "there is room again");
        questions.end();
        for question in open {
            assert_eq!(question.answer().await, NetworkAnswer::none());
        }
        assert!(questions.begin().is_none());
    }
}
