//! Who sits where: sessions and the connections they belong to. Pure: told the time, it answers what to do.
//!
//! ```text
//!   attached(c) ── c ends ──► detached(until) ── time ──► gone
//!        ▲ └─ d names it: c is evicted ─┐  └─ d names it ─┐
//!        └──────────────────────────────┴─────────────────┘
//! ```

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// One socket, for as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attachment {
    Attached(ConnectionId),
    Detached { until: Instant },
}

#[derive(Debug, Default)]
pub(crate) struct SessionTable {
    sessions: HashMap<String, SessionState>,
}

#[derive(Debug)]
struct SessionState {
    attachment: Attachment,
    ttl: Duration,
}

impl SessionTable {
    /// A new session that belongs to `connection`.
    pub(crate) fn open(&mut self, session: &str, connection: ConnectionId, ttl: Duration) {
        let attachment = Attachment::Attached(connection);
        self.sessions.insert(session.to_owned(), SessionState { attachment, ttl });
    }

    /// A session found again, that belongs to nobody yet.
    pub(crate) fn recover(&mut self, session: &str, ttl: Duration, now: Instant) {
        let attachment = Attachment::Detached { until: now + ttl };
        self.sessions.insert(session.to_owned(), SessionState { attachment, ttl });
    }

    /// `connection` names the session: it takes it at once. Returns who had it; `Err` if there is none.
    pub(crate) fn attach(
        &mut self,
        session: &str,
        connection: ConnectionId,
        ttl: Option<Duration>,
        now: Instant,
    ) -> Result<Option<ConnectionId>, ()> {
        let state = self.sessions.get_mut(session).ok_or(())?;
        let evicted = match state.attachment {
            Attachment::Detached { until } if until <= now => return Err(()),
            Attachment::Detached { .. } => None,
            Attachment::Attached(other) => Some(other),
        };
        state.attachment = Attachment::Attached(connection);
        state.ttl = ttl.unwrap_or(state.ttl);
        Ok(evicted)
    }

    /// `connection` has ended. One that was evicted may learn of its own death late; by then its successor holds the
    /// session, and must keep it.
    pub(crate) fn detach(&mut self, session: &str, connection: ConnectionId, now: Instant) {
        if let Some(state) = self.sessions.get_mut(session)
            && state.attachment == Attachment::Attached(connection)
        {
            state.attachment = Attachment::Detached { until: now + state.ttl };
        }
    }

    /// Takes out every session whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<String> {
        let is_over = |state: &SessionState| matches!(state.attachment, Attachment::Detached { until } if until <= now);
        let expired: Vec<String> =
            self.sessions.iter().filter(|(_, state)| is_over(state)).map(|(session, _)| session.clone()).collect();
        for session in &expired {
            self.sessions.remove(session);
        }
        expired
    }

    /// Takes a session out, whoever has it.
    pub(crate) fn close(&mut self, session: &str) -> Option<Attachment> {
        self.sessions.remove(session).map(|state| state.attachment)
    }

    pub(crate) fn attachment(&self, session: &str) -> Option<Attachment> {
        self.sessions.get(session).map(|state| state.attachment)
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const FIRST: ConnectionId = ConnectionId(1);
    const SECOND: ConnectionId = ConnectionId(2);

    fn opened() -> (SessionTable, Instant) {
        let mut table = SessionTable::default();
        table.open("s", FIRST, TTL);
        (table, Instant::now())
    }

    #[test]
    fn a_late_detach_does_not_steal_the_session_back() {
        let (mut table, now) = opened();
        assert_eq!(table.attach("s", SECOND, None, now), Ok(Some(FIRST)));
        table.detach("s", FIRST, now);
        assert_eq!(table.attachment("s"), Some(Attachment::Attached(SECOND)));
    }

    #[test]
    fn a_detached_session_waits_for_its_time_and_no_longer() {
        let (mut table, now) = opened();
        table.detach("s", FIRST, now);
        assert_eq!(table.expire(now + TTL - Duration::from_millis(1)), Vec::<String>::new());
        assert_eq!(table.attach("s", SECOND, None, now + TTL), Err(()));
        assert_eq!(table.expire(now + TTL), ["s"]);
        assert_eq!(table.attach("s", SECOND, None, now), Err(()));
    }

    #[test]
    fn each_attachment_starts_the_clock_anew() {
        let (mut table, now) = opened();
        table.detach("s", FIRST, now);
        let later = now + TTL / 2;
        assert_eq!(table.attach("s", SECOND, None, later), Ok(None));
        assert_eq!(table.expire(now + TTL * 2), Vec::<String>::new());
        table.detach("s", SECOND, later);
        assert_eq!(table.attachment("s"), Some(Attachment::Detached { until: later + TTL }));
    }
}
