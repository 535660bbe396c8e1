//! The handshake of a connection: which session it is, and what the client wishes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use exec_transport::CloseReason;
use exec_wire::error::RpcError;
use exec_wire::initialize::{InitializeParams, InitializeResult};
use exec_wire::method::NotificationMethod;

use super::{FrontDesk, Next};
use crate::convert;
use crate::dispatch::{Handshake, Params};
use crate::limits::REQUEST_SCOPE_BYTES;
use crate::mailroom::Post;

impl FrontDesk {
    pub(super) async fn initialize(&mut self, params: &Params) -> Result<(InitializeResult, Vec<Post>), RpcError> {
        let params: InitializeParams = params.decode()?;
        if self.session.is_some() {
            return Err(RpcError::initialized_twice());
        }
        let server = &self.desk.server;
        let ttl = params.detached_ttl_ms.map(Duration::from_millis);
        let (session, granted) = match &params.resume_session_id {
            None => server.open_session(self.id, &params.client_name, ttl)?,
            Some(session_id) => server.resume_session(self.id, session_id, ttl)?,
        };
        let mut posts = Vec::new();
        if params.binary_frames {
            self.desk.binary.store(self.desk.carries_binary, Ordering::Relaxed);
            posts.push(Post::BinaryFrames);
        }
        let request_memory = params.request_scope.as_deref().and_then(|scope| self.adopt_scope(scope));
        let resumed = params.resume_session_id.is_some();
        let mut resume_from = params.resume_from.clone();
        if resumed {
            for process in session.processes() {
                posts.push(match resume_from.as_ref().and_then(|from| from.get(&process.wire_id)) {
                    Some(after) => Post::Follow { after: convert::seq(*after), process },
                    None => Post::FollowLater { process },
                });
            }
        }
        if let Some(from) = &mut resume_from {
            from.retain(|wire_id, _| matches!(session.find(wire_id), crate::session::Found::Live(_)));
        }
        self.session = Some(session.clone());
        self.handshake = Handshake::Asked;
        let result = InitializeResult {
            session_id: session.id.clone(),
            environment_info: Some(server.environment_info()),
            detached_ttl_ms: params.detached_ttl_ms.map(|_| granted.as_millis() as u64),
            resume_from,
            binary_frames: params.binary_frames,
            request_memory,
        };
        Ok((result, posts))
    }

    /// From here on, requests are known by this word and their ids. Whose memory that is; none for a word that is too long.
    fn adopt_scope(&self, scope: &str) -> Option<String> {
        let fits = (1..=REQUEST_SCOPE_BYTES).contains(&scope.len());
        let adopted = fits && self.desk.scope.set(Arc::from(scope)).is_ok();
        adopted.then(|| self.desk.server.memory_id().to_owned())
    }

    /// From here on, what a start of an earlier connection brings is told to this one. Those that ended since the session
    /// was looked at are looked for again; a process that is followed already is left as it is.
    pub(super) fn hold_session(&self) {
        let Some(session) = &self.session else { return };
        session.hold(self.id, &self.desk.posts);
        for process in session.processes() {
            self.desk.post(Post::FollowLater { process });
        }
    }

    pub(super) fn on_notice(&mut self, method: &str) -> Next {
        if NotificationMethod::parse(method) != Some(NotificationMethod::Initialized) {
            self.ignored_notices += 1;
            tracing::debug!(peer = %self.desk.peer, method, count = self.ignored_notices, "a notification is ignored");
            return Next::Go;
        }
        match (&self.handshake, &self.session) {
            (Handshake::Asked, Some(session)) => self.handshake = Handshake::Done(session.clone()),
            (Handshake::None, _) => {
                return Next::End(CloseReason::new(CloseReason::POLICY, "initialized came before initialize"));
            }
            _ => {}
        }
        Next::Go
    }
}
