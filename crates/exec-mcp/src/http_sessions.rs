//! The sessions of HTTP clients with a handshake: which was used when, so that there are not too many.
//!
//! rmcp keeps the sessions and ends idle ones. A client that leaves without a word leaves its session behind, so there is a most
//! of them, and the one that was used least recently makes room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

use crate::limits::{HTTP_SESSION_IDLE, HTTP_SESSIONS};

/// The header that names a session.
pub(crate) const SESSION_HEADER: &str = "mcp-session-id";

pub(crate) struct HttpSessions {
    pub(crate) manager: Arc<LocalSessionManager>,
    used: Mutex<HashMap<String, Instant>>,
}

impl HttpSessions {
    pub(crate) fn new() -> Self {
        let mut manager = LocalSessionManager::default();
        manager.session_config.keep_alive = Some(HTTP_SESSION_IDLE);
        Self { manager: Arc::new(manager), used: Mutex::default() }
    }

    /// A client has used this session, or has got it now.
    pub(crate) async fn used(&self, session: &str, now: Instant) {
        // Whatever else a client writes there takes no memory.
        if !self.manager.sessions.read().await.contains_key(session) {
            return;
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(session.to_owned(), now);
        self.make_room(now).await;
    }

    /// Ends those that are too many.
    pub(crate) async fn make_room(&self, now: Instant) {
        let surplus: Vec<Arc<str>> = {
            let sessions = self.manager.sessions.read().await;
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.retain(|session, _| sessions.contains_key(session.as_str()));
            // Nobody says of a session that it is used if its client hangs up as soon as it has got it.
            for session in sessions.keys().filter(|session| !used.contains_key(&***session)).collect::<Vec<_>>() {
                used.insert(session.to_string(), now);
            }
            let mut oldest: Vec<(Instant, &String)> = used.iter().map(|(session, used)| (*used, session)).collect();
            oldest.sort_unstable();
            let surplus = oldest.len().saturating_sub(HTTP_SESSIONS);
            oldest.into_iter().take(surplus).map(|(_, session)| session.as_str().into()).collect()
        };
        for session in surplus {
            // One that has ended meanwhile is gone, which is as good.
            let _ = self.manager.close_session(&session).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn sessions_of_clients_that_were_never_heard_of_again_are_counted_too() {
        let (sessions, begin) = (HttpSessions::new(), Instant::now());
        let (first, _transport) = sessions.manager.create_session().await.expect("there is room");
        sessions.used(&first, begin).await;
        let mut transports = Vec::new();
        for _ in 1..HTTP_SESSIONS {
            transports.push(sessions.manager.create_session().await.expect("there is room"));
        }
        sessions.make_room(begin + Duration::from_secs(1)).await;
        assert_eq!(sessions.manager.sessions.read().await.len(), HTTP_SESSIONS, "as many as may be");
        transports.push(sessions.manager.create_session().await.expect("there is room"));
        sessions.make_room(begin + Duration::from_secs(2)).await;
        let kept = sessions.manager.sessions.read().await;
        assert_eq!((kept.len(), kept.contains_key(&first)), (HTTP_SESSIONS, false), "the oldest makes room");
    }
}
