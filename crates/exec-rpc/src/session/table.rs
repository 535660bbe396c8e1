//! The session table: every session, and the connection that it is attached to. Pure: it is told the time and returns what
//! to do.
//!
//! ```text
//!   attached(c) ── c ends ──► detached(until) ── time passes ──► gone
//!        ▲ └─ d resumes it: c is evicted ─┐  └─ d resumes it ─┐
//!        └────────────────────────────────┴───────────────────┘
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Session;

/// One connection, for as long as it lives; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attachment {
    Attached(ConnectionId),
    Detached { until: Instant },
}

#[derive(Debug, Default)]
pub(crate) struct SessionTable {
    rows: HashMap<String, SessionRow>,
}

#[derive(Debug)]
struct SessionRow {
    session: Arc<Session>,
    attachment: Attachment,
    ttl: Duration,
}

impl SessionTable {
    /// Adds a new session that is attached to `connection`.
    pub(crate) fn open(&mut self, session: Arc<Session>, connection: ConnectionId, ttl: Duration) {
        let attachment = Attachment::Attached(connection);
        self.rows.insert(session.id.clone(), SessionRow { session, attachment, ttl });
    }

    /// Adds a session of an earlier server. It is detached.
    pub(crate) fn recover(&mut self, session: Arc<Session>, ttl: Duration, now: Instant) {
        let attachment = Attachment::Detached { until: now + ttl };
        self.rows.insert(session.id.clone(), SessionRow { session, attachment, ttl });
    }

    /// Attaches a session to the connection that resumes it. Also returns the connection that is evicted by that; `None`
    /// if there is no such session.
    pub(crate) fn attach(
        &mut self,
        id: &str,
        connection: ConnectionId,
        ttl: Option<Duration>,
        now: Instant,
    ) -> Option<(Arc<Session>, Option<ConnectionId>)> {
        let row = self.rows.get_mut(id)?;
        let evicted = match row.attachment {
            Attachment::Detached { until } if until <= now => return None,
            Attachment::Detached { .. } => None,
            Attachment::Attached(other) => Some(other),
        };
        row.attachment = Attachment::Attached(connection);
        row.ttl = ttl.unwrap_or(row.ttl);
        Some((row.session.clone(), evicted))
    }

    /// Detaches a session from a connection that has ended. A connection that was evicted may learn of its end late; by
    /// then its successor has the session, and must keep it.
    pub(crate) fn detach(&mut self, id: &str, connection: ConnectionId, now: Instant) {
        if let Some(row) = self.rows.get_mut(id)
            && row.attachment == Attachment::Attached(connection)
        {
            row.attachment = Attachment::Detached { until: now + row.ttl };
        }
    }

    /// Removes every session that was detached for longer than its TTL.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Arc<Session>> {
        let expired = |row: &SessionRow| matches!(row.attachment, Attachment::Detached { until } if until <= now);
        self.rows.extract_if(|_, row| expired(row)).map(|(_, row)| row.session).collect()
    }

    /// Removes a session, whether it is attached or not.
    pub(crate) fn remove(&mut self, id: &str) -> Option<(Arc<Session>, Attachment)> {
        self.rows.remove(id).map(|row| (row.session, row.attachment))
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Session>> {
        self.rows.get(id).map(|row| row.session.clone())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<Session>, Attachment)> {
        self.rows.values().map(|row| (&row.session, row.attachment))
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
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
        table.open(Arc::new(Session::new("s".into(), String::new(), 0)), FIRST, TTL);
        (table, Instant::now())
    }

    /// Whom an attachment evicts; `None` if there is no session.
    fn attach(table: &mut SessionTable, connection: ConnectionId, now: Instant) -> Option<Option<ConnectionId>> {
        table.attach("s", connection, None, now).map(|(session, evicted)| {
            assert_eq!(session.id, "s");
            evicted
        })
    }

    fn expire(table: &mut SessionTable, now: Instant) -> Vec<String> {
        table.expire(now).iter().map(|session| session.id.clone()).collect()
    }

    fn attachment(table: &SessionTable) -> Option<Attachment> {
        table.iter().map(|(_, attachment)| attachment).next()
    }

    #[test]
    fn a_late_detach_does_not_steal_the_session_back() {
        let (mut table, now) = opened();
        assert_eq!(attach(&mut table, SECOND, now), Some(Some(FIRST)));
        table.detach("s", FIRST, now);
        assert_eq!(attachment(&table), Some(Attachment::Attached(SECOND)));
    }

    #[test]
    fn a_detached_session_waits_for_its_time_and_no_longer() {
        let (mut table, now) = opened();
        table.detach("s", FIRST, now);
        assert_eq!(expire(&mut table, now + TTL - Duration::from_millis(1)), Vec::<String>::new());
        assert_eq!(attach(&mut table, SECOND, now + TTL), None);
        assert_eq!(expire(&mut table, now + TTL), ["s"]);
        assert_eq!(attach(&mut table, SECOND, now), None);
    }

    #[test]
    fn each_attachment_starts_the_clock_anew() {
        let (mut table, now) = opened();
        table.detach("s", FIRST, now);
        let later = now + TTL / 2;
        assert_eq!(attach(&mut table, SECOND, later), Some(None));
        assert_eq!(expire(&mut table, now + TTL * 2), Vec::<String>::new());
        table.detach("s", SECOND, later);
        assert_eq!(attachment(&table), Some(Attachment::Detached { until: later + TTL }));
    }
}
