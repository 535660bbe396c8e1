//! The session table: every session, whose it is, and the connection that it is attached to. Pure: it is told the time and
//! returns what to do.
//!
//! ```text
//!   attached(c) ── c ends ──► detached(until) ── time passes ──► gone
//!        ▲ └─ d resumes it: c is evicted ─┐  └─ d resumes it ─┐
//!        └────────────────────────────────┴───────────────────┘
//! ```
//!
//! Sessions count among those of the peer that opened them, so that no peer can take all there are. Where there is no room,
//! a detached session without processes gives way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec_transport::Peer;

use super::Session;
use crate::limits::{OPERATOR_SESSIONS, SESSIONS, SESSIONS_PER_PEER};

/// One connection, for as long as it lives; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attachment {
    Attached(ConnectionId),
    Detached { until: Instant },
}

/// Whose sessions a session counts among: those of whoever opened it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionOwner {
    /// Stdio and memory belong to whoever started the server. Their sessions are not counted.
    Host,
    /// A user of this machine, over a unix socket.
    User(u32),
    /// Whom a token names, from wherever it comes: many clients may share the address of a gateway.
    Subject(String),
    /// An address, if no token names anybody.
    Address(String),
}

impl SessionOwner {
    pub(crate) fn of(peer: &Peer, subject: Option<&str>) -> Self {
        match (peer, subject) {
            (Peer::WebSocket(_), Some(subject)) if !subject.is_empty() => Self::Subject(subject.to_owned()),
            (Peer::WebSocket(address), _) => Self::Address(address.ip().to_string()),
            (Peer::Unix { uid, .. }, _) => Self::User(*uid),
            (Peer::Stdio | Peer::Program { .. } | Peer::Memory, _) => Self::Host,
        }
    }

    /// Whether it is on this machine, and so may have the sessions that are kept for operators. A unix socket admits only
    /// the server's own user and root.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Host | Self::User(_))
    }
}

impl std::fmt::Display for SessionOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host => write!(f, "the host of this server"),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Subject(_) => write!(f, "the subject of this token"),
            Self::Address(address) => write!(f, "address {address}"),
        }
    }
}

/// Why there is no room for one more session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The server has as many as it may.
    Server,
    /// The peer has as many as it may.
    Peer,
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

    /// Makes room for one more session of `owner`, who may have those that are kept for operators if it is one. Returns the
    /// session that gives way to it, if one must.
    pub(crate) fn make_room(
        &mut self,
        owner: &SessionOwner,
        is_operator: bool,
    ) -> Result<Option<Arc<Session>>, NoRoom> {
        let own = |session: &Session| session.owner == *owner;
        if *owner != SessionOwner::Host
            && self.rows.values().filter(|row| own(&row.session)).count() >= SESSIONS_PER_PEER
        {
            return self.remove_idle(own).map(Some).ok_or(NoRoom::Peer);
        }
        let limit = if is_operator { SESSIONS } else { SESSIONS - OPERATOR_SESSIONS };
        if self.rows.len() >= limit {
            return self.remove_idle(|_| true).map(Some).ok_or(NoRoom::Server);
        }
        Ok(None)
    }

    /// Removes the session that has been detached for the longest time, of those without processes.
    fn remove_idle(&mut self, candidate: impl Fn(&Session) -> bool) -> Option<Arc<Session>> {
        let detached_since = |row: &SessionRow| match row.attachment {
            Attachment::Detached { until } if candidate(&row.session) && row.session.process_count() == 0 => {
                until.checked_sub(row.ttl)
            }
            Attachment::Detached { .. } | Attachment::Attached(_) => None,
        };
        let idle = self.rows.iter().filter_map(|(id, row)| Some((detached_since(row)?, id)));
        let id = idle.min().map(|(_, id)| id.clone())?;
        self.rows.remove(&id).map(|row| row.session)
    }

    /// Adds a session of an earlier server. It is detached.
    pub(crate) fn recover(&mut self, session: Arc<Session>, ttl: Duration, now: Instant) {
        let attachment = Attachment::Detached { until: now + ttl };
        self.rows.insert(session.id.clone(), SessionRow { session, attachment, ttl });
    }

    /// Attaches a session to the connection that resumes it. Also returns its TTL, and the connection that is evicted by
    /// that; `None` if there is no such session.
    pub(crate) fn attach(
        &mut self,
        id: &str,
        connection: ConnectionId,
        ttl: Option<Duration>,
        now: Instant,
    ) -> Option<(Arc<Session>, Duration, Option<ConnectionId>)> {
        let row = self.rows.get_mut(id)?;
        let evicted = match row.attachment {
            Attachment::Detached { until } if until <= now => return None,
            Attachment::Detached { .. } => None,
            Attachment::Attached(other) => Some(other),
        };
        row.attachment = Attachment::Attached(connection);
        row.ttl = ttl.unwrap_or(row.ttl);
        Some((row.session.clone(), row.ttl, evicted))
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

    pub(crate) fn attachment(&self, id: &str) -> Option<Attachment> {
        self.rows.get(id).map(|row| row.attachment)
    }

    /// How long a session may live without a driver; `None` if there is no such session, or its time is up.
    pub(crate) fn ttl_if_alive(&self, id: &str, now: Instant) -> Option<Duration> {
        let row = self.rows.get(id)?;
        match row.attachment {
            Attachment::Detached { until } if until <= now => None,
            Attachment::Detached { .. } | Attachment::Attached(_) => Some(row.ttl),
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Session>> {
        self.rows.get(id).map(|row| row.session.clone())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<Session>, Attachment)> {
        self.rows.values().map(|row| (&row.session, row.attachment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const FIRST: ConnectionId = ConnectionId(1);
    const SECOND: ConnectionId = ConnectionId(2);

    fn session(id: &str, owner: SessionOwner) -> Arc<Session> {
        Arc::new(Session::new(id.into(), String::new(), 0, owner))
    }

    fn address(number: usize) -> SessionOwner {
        SessionOwner::Address(number.to_string())
    }

    fn fill(table: &mut SessionTable, count: usize, owner: impl Fn(usize) -> SessionOwner) {
        for number in 0..count {
            table.open(session(&format!("s{number}"), owner(number)), ConnectionId(number as u64), TTL);
        }
    }

    fn opened() -> (SessionTable, Instant) {
        let mut table = SessionTable::default();
        table.open(session("s", SessionOwner::Host), FIRST, TTL);
        (table, Instant::now())
    }

    /// Whom an attachment evicts; `None` if there is no session.
    fn attach(table: &mut SessionTable, connection: ConnectionId, now: Instant) -> Option<Option<ConnectionId>> {
        table.attach("s", connection, None, now).map(|(session, _, evicted)| {
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

    #[test]
    fn one_address_cannot_take_every_session_and_its_own_idle_ones_give_way_first() {
        let mut table = SessionTable::default();
        fill(&mut table, SESSIONS_PER_PEER, |_| address(1));
        assert_eq!(table.make_room(&address(1), false).err(), Some(NoRoom::Peer));
        assert!(matches!(table.make_room(&address(2), false), Ok(None)), "another address has its own share");
        let now = Instant::now();
        table.detach("s7", ConnectionId(7), now + TTL);
        table.detach("s5", ConnectionId(5), now);
        let gone =
            table.make_room(&address(1), false).expect("two of its own are idle").expect("one of them gives way");
        assert_eq!(gone.id, "s5", "the one that was left first");
    }

    #[test]
    fn a_session_is_charged_to_the_user_or_the_subject_or_else_the_address_that_opens_it() {
        let socket = Peer::Unix { path: "/s".into(), pid: None, uid: 7 };
        let remote = |host: &str| Peer::WebSocket(format!("{host}:1").parse().expect("an address"));
        assert_eq!(SessionOwner::of(&socket, None), SessionOwner::User(7));
        let subject = SessionOwner::Subject("ann".into());
        assert_eq!(SessionOwner::of(&remote("10.0.0.1"), Some("ann")), subject);
        assert_eq!(SessionOwner::of(&remote("10.0.0.2"), Some("ann")), subject, "wherever she is");
        for names_nobody in [None, Some("")] {
            let address = SessionOwner::Address("10.0.0.1".into());
            assert_eq!(SessionOwner::of(&remote("10.0.0.1"), names_nobody), address);
        }
        assert!(SessionOwner::User(7).is_local() && !subject.is_local());
    }

    #[test]
    fn no_user_and_no_subject_can_take_every_session_but_the_host_can() {
        for owner in [SessionOwner::User(7), SessionOwner::Subject("ann".into())] {
            let mut table = SessionTable::default();
            fill(&mut table, SESSIONS_PER_PEER - 1, |_| owner.clone());
            assert!(matches!(table.make_room(&owner, true), Ok(None)), "one more is as many as it may have");
            table.open(session("last", owner.clone()), FIRST, TTL);
            assert_eq!(table.make_room(&owner, true).err(), Some(NoRoom::Peer));
            assert!(matches!(table.make_room(&SessionOwner::User(0), true), Ok(None)));
            assert!(matches!(table.make_room(&SessionOwner::Subject("bob".into()), false), Ok(None)));
        }
        let mut table = SessionTable::default();
        fill(&mut table, SESSIONS_PER_PEER, |_| SessionOwner::Host);
        assert!(matches!(table.make_room(&SessionOwner::Host, true), Ok(None)));
    }

    #[test]
    fn an_operator_gets_in_where_nobody_else_does() {
        let mut table = SessionTable::default();
        fill(&mut table, SESSIONS - OPERATOR_SESSIONS, address);
        assert_eq!(table.make_room(&address(SESSIONS), false).err(), Some(NoRoom::Server));
        assert!(matches!(table.make_room(&SessionOwner::User(0), true), Ok(None)));
    }

    #[test]
    fn a_detached_session_with_a_process_gives_way_to_nobody() {
        let mut table = SessionTable::default();
        fill(&mut table, SESSIONS_PER_PEER, |_| address(1));
        let busy = table.get("s0").expect("it was opened");
        let id = busy.process_id("p").expect("a short id");
        busy.insert_process(Arc::new(crate::session::SessionProcess::new(
            "p".into(),
            id,
            crate::routing::tests::nowhere(),
            None,
            false,
        )));
        table.detach("s0", ConnectionId(0), Instant::now());
        assert_eq!(table.make_room(&address(1), false).err(), Some(NoRoom::Peer));
    }
}
