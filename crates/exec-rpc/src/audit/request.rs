//! What becomes of one request, for the audit: files that it changes, and what it is refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use exec_env::streams::StreamAddress;
use exec_wire::error::{RpcError, kind};
use exec_wire::method::{Call, MethodFamily};

use super::{AuditEvent, AuditSink, Outcome};
use crate::dispatch::RequestContext;
use crate::reply;

/// The errnos by which a policy refuses a file call.
const REFUSALS: [i32; 3] = [1, 13, 30];

/// A request that is audited.
pub(crate) struct RequestAudit {
    sink: AuditSink,
    session: String,
    peer: String,
    method: &'static str,
    /// What it changes.
    paths: Vec<String>,
    /// Whether it is a file call under a sandbox.
    is_sandboxed: Arc<AtomicBool>,
    /// In which environment it was carried out; unset if there is only one.
    environment: Arc<OnceLock<Arc<str>>>,
    /// Whether it is the first of its id: one that is repeated after a break is told once.
    is_first: bool,
}

impl RequestAudit {
    /// `None` without an audit. Refuses the request if it needs a line in a log that cannot be written.
    pub(crate) fn begin<C: Call>(context: &RequestContext, params: &C) -> Result<Option<Self>, RpcError> {
        let Some(sink) = context.connection.server.audit() else { return Ok(None) };
        let method = C::METHOD;
        let paths: Vec<String> = params.changed_paths().iter().map(|path| path.as_str().to_owned()).collect();
        // A file that is opened to be read is not.
        let is_audited =
            method.behaviour().audited && (method.spec().family != MethodFamily::Filesystem || !paths.is_empty());
        if is_audited && !sink.is_usable() {
            return Err(reply::audit_unavailable());
        }
        Ok(Some(Self {
            sink: sink.clone(),
            session: context.session.id.clone(),
            peer: context.connection.peer.to_string(),
            method: method.name(),
            paths,
            is_sandboxed: Arc::clone(&context.is_sandboxed),
            environment: match context.connection.server.routing.has_several() {
                true => Arc::clone(&context.carried_out_in),
                false => Arc::default(),
            },
            is_first: !context.is_repeated,
        }))
    }

    pub(crate) async fn finish(self, failure: Option<&RpcError>) {
        if !self.is_first {
            return;
        }
        let denied = failure.and_then(|error| self.denied(error));
        if !self.paths.is_empty() {
            let environment = self.environment();
            let (session, method, paths) = (self.session, self.method, self.paths);
            let outcome = outcome(failure);
            self.sink.record(AuditEvent::FileChanged { session, environment, method, paths, outcome }).await;
        }
        if let Some(denied) = denied {
            self.sink.record(denied).await;
        }
    }

    fn environment(&self) -> Option<String> {
        self.environment.get().map(|id| id.to_string())
    }

    fn denied(&self, error: &RpcError) -> Option<AuditEvent> {
        let data = error.data.as_deref()?;
        let rule = match data.kind.as_str() {
            kind::FORBIDDEN => data.rule.clone().unwrap_or_else(|| kind::FORBIDDEN.to_owned()),
            kind::SANDBOX => kind::SANDBOX.to_owned(),
            _ if self.is_sandboxed.load(Ordering::Relaxed) && data.errno.is_some_and(|no| REFUSALS.contains(&no)) => {
                kind::SANDBOX.to_owned()
            }
            _ => return None,
        };
        let paths = match data.path.as_ref() {
            Some(path) if self.paths.is_empty() => vec![path.as_str().to_owned()],
            _ => self.paths.clone(),
        };
        Some(AuditEvent::Denied {
            session: Some(self.session.clone()),
            peer: self.peer.clone(),
            method: self.method,
            environment: self.environment(),
            process: None,
            paths,
            rule,
            why: error.message.clone(),
        })
    }
}

/// The event for a request that is refused before anything of it is looked at.
pub(crate) fn denial(session: Option<&str>, peer: String, method: &'static str, error: &RpcError) -> AuditEvent {
    let rule = error.data.as_deref().and_then(|data| data.rule.clone());
    AuditEvent::Denied {
        session: session.map(str::to_owned),
        peer,
        method,
        environment: None,
        process: None,
        paths: Vec::new(),
        rule: rule.unwrap_or_else(|| kind::FORBIDDEN.to_owned()),
        why: error.message.clone(),
    }
}

pub(crate) fn outcome(failure: Option<&RpcError>) -> Outcome {
    match failure {
        None => Outcome::Done,
        Some(error) => {
            let kind = error.data.as_deref().map(|data| data.kind.clone());
            Outcome::Failed { error: kind.unwrap_or_else(|| error.code.to_string()) }
        }
    }
}

/// Tells what became of a connection that was to be made, or of a listener. What a client asks again after a break is told
/// once.
pub(crate) async fn record_stream(
    context: &RequestContext,
    method: &'static str,
    address: &StreamAddress,
    failure: Option<&RpcError>,
) {
    let Some(sink) = context.connection.server.audit().filter(|_| !context.is_repeated) else { return };
    let event = AuditEvent::StreamOpened {
        session: context.session.id.clone(),
        environment: context.audited_environment(),
        method,
        address: address.to_string(),
        outcome: outcome(failure),
    };
    sink.record(event).await;
}

/// An HTTP request that is under way. It is dropped with its connection, and told all the same.
pub(crate) struct HttpAudit {
    sink: Option<AuditSink>,
    session: String,
    environment: Option<String>,
    method: String,
    origin: String,
}

impl HttpAudit {
    pub(crate) fn begin(context: &RequestContext, method: &str, url: &str) -> Self {
        let sink = context.connection.server.audit().cloned();
        let (session, environment) = (context.session.id.clone(), context.audited_environment());
        Self { sink, session, environment, method: method.to_owned(), origin: origin(url) }
    }

    pub(crate) async fn finish(mut self, answer: Result<u16, &RpcError>) {
        if let Some(sink) = self.sink.take() {
            sink.record(self.event(answer.ok(), outcome(answer.err()))).await;
        }
    }

    fn event(&self, status: Option<u16>, outcome: Outcome) -> AuditEvent {
        let (session, method, origin) = (self.session.clone(), self.method.clone(), self.origin.clone());
        let environment = self.environment.clone();
        AuditEvent::HttpRequest { session, environment, method, origin, status, outcome }
    }
}

impl Drop for HttpAudit {
    fn drop(&mut self) {
        if let Some(sink) = self.sink.take() {
            sink.record_at_once(self.event(None, Outcome::Interrupted));
        }
    }
}

/// Scheme, host and port of a URL. User, path and query may have secrets in them.
fn origin(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "?".to_owned() };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let scheme = if ["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) { scheme } else { "?" };
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_no_secrets() {
        for (url, expected) in [
            ("https://example.com:8443/a/b?token=s3cret#x", "https://example.com:8443"),
            ("http://user:s3cret@example.com", "http://example.com"),
            ("http://s3cret@x@example.com\\@evil", "http://example.com"),
            ("s3cret://example.com/", "?://example.com"),
            ("s3cret", "?"),
        ] {
            assert_eq!(origin(url), expected, "{url}");
        }
    }
}
