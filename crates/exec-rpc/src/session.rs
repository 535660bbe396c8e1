//! What survives connections: a session and its processes.
//!
//! Beside the session itself: [`table`], which session is attached to which connection; [`store`], sessions on disk;
//! [`process_label`], how the processes of a session are found again; [`response_cache`], requests that must not be
//! carried out twice; [`streams`], connections that were made for the client; [`attendance`], who drives a session and
//! who observes it.

mod attendance;
pub(crate) mod denial;
mod process_label;
mod response_cache;
mod store;
pub(crate) mod streams;
mod table;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use exec_core::id::BadId;
use exec_core::limits::{ATTACHED_READER_TIMEOUT, READER_TIMEOUT};
use exec_core::{ProcessId, Seq};
use exec_env::process::LogFollower;
use exec_wire::process::DenialEvidence;

use crate::ceiling::ProcessBounds;
use crate::connection::ConnectionShared;
use crate::limits::{
    CLIENT_PROCESS_ID_BYTES, CLOSED_TTL, FIRST_FOLLOW_WAIT, ID_REUSE_DELAY, REMEMBERED_AUDITS, REMEMBERED_STARTS,
};
use crate::reservations::{Lookup, Reservation, Reservations};
use crate::routing::NamedEnvironment;
use crate::writer::{WeakWriterHandle, WriterCommand, WriterHandle};

pub(crate) use attendance::{Attendance, Attendee, DriveRefusal, DriveRequestOutcome};
pub(crate) use process_label::ProcessLabel;
pub(crate) use response_cache::CacheLookup;
use response_cache::ResponseCache;
pub(crate) use store::SessionStore;
use streams::SessionStreams;
pub(crate) use table::{Attachment, ConnectionId, NoRoom, SessionOwner, SessionTable};

/// With what a session was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Opener {
    /// Without a token, or with one that names nobody.
    NoToken,
    /// With a token that names this subject.
    Subject(String),
    /// The session's file was lost, and only its processes were found again.
    Unknown,
}

impl Opener {
    pub(crate) fn of(subject: Option<String>) -> Self {
        subject.map_or(Self::NoToken, Self::Subject)
    }
}

/// A client's work on this machine.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) client_name: String,
    pub(crate) opened_at_ms: u64,
    /// Whose sessions it counts among.
    pub(crate) owner: SessionOwner,
    /// The scope of the client that has the session, as it named it; empty if it named none. `None` if nobody knows.
    holder: Mutex<Option<Arc<str>>>,
    /// Set before its processes are ended. A start that is still under way ends its process itself then.
    ended: AtomicBool,
    /// The keys of the last starts, so that none is carried out twice.
    starts: Mutex<VecDeque<String>>,
    /// The keys of the last requests that the audit has told.
    audited: Mutex<VecDeque<String>>,
    pub(crate) opener: Opener,
    /// By the client's ids. An id is reserved while its process is being started.
    processes: Arc<Reservations<String, Arc<SessionProcess>>>,
    /// Where the processes that are being started will be.
    starting_in: Mutex<HashMap<String, NamedEnvironment>>,
    pub(crate) responses: ResponseCache,
    pub(crate) streams: SessionStreams,
    /// The writer of the connection that the session is attached to. A start that outlives its connection needs it.
    writer: Mutex<Option<(ConnectionId, WeakWriterHandle)>>,
    /// That connection, to ask its client something.
    connection: Mutex<Weak<ConnectionShared>>,
    /// Who is attached. Changed under the lock of the server only, together with the table of sessions.
    attendance: Mutex<Attendance>,
    /// When its driver last asked for something, in milliseconds since 1970.
    last_activity_ms: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct SessionProcess {
    /// The client's id, unique in the session.
    pub(crate) wire_id: String,
    /// The environment's id, unique over all sessions.
    pub(crate) id: ProcessId,
    /// Where it was started, and stays.
    pub(crate) environment: NamedEnvironment,
    /// How long the client wants it to be kept after its end.
    keep: Option<Duration>,
    /// Whether a sandbox confines it.
    sandboxed: bool,
    /// What the token restricted it to that started it; `None` also if an earlier server did.
    pub(crate) bounds: Option<ProcessBounds>,
    /// Whether that sandbox seems to be why it failed; known once somebody was told of its exit.
    denial: OnceLock<Option<DenialEvidence>>,
    /// The last entry that was handed to a transport, on any connection.
    last_sent: AtomicU64,
    /// Reads whose response was not sent yet, on any connection.
    readers: AtomicU64,
    /// When the housekeeping first saw that it is closed.
    closed_since: Mutex<Option<Instant>>,
    hold: Mutex<Option<Hold>>,
}

/// How far a client has read a process's log; `None` if nobody there reads it.
pub(crate) type Acknowledgement = Option<ReadPositions>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadPositions {
    /// The log keeps what comes after it.
    pub(crate) slowest: Seq,
    /// The push may be ahead of it by the client's window. Never before the other.
    pub(crate) fastest: Seq,
}

/// A position in the log behind which everything is kept for a client that acknowledges what it has read. It outlives the
/// connection for a while, because the client may come back.
struct Hold {
    connection: ConnectionId,
    upto: Seq,
    /// Whether the client itself has named the position.
    acknowledged: bool,
    follower: Box<dyn LogFollower>,
}

impl Hold {
    /// A full log does not wait long for a client that is not connected, or has said nothing yet.
    fn wait_briefly(&mut self) {
        let patience = if self.acknowledged { READER_TIMEOUT } else { FIRST_FOLLOW_WAIT };
        self.follower.acknowledge(self.upto, patience);
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hold({:?}, {})", self.connection, self.upto)
    }
}

/// The id of a process that is being started.
pub(crate) type ProcessReservation = Reservation<String, Arc<SessionProcess>>;

/// A read of a process whose response was not sent yet. Dropped when it was.
#[derive(Debug)]
pub(crate) struct ReadInProgress(pub(crate) Arc<SessionProcess>);

impl ReadInProgress {
    pub(crate) fn of(process: Arc<SessionProcess>) -> Self {
        process.readers.fetch_add(1, Ordering::Relaxed);
        Self(process)
    }
}

impl Drop for ReadInProgress {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Session {
    pub(crate) fn new(id: String, client_name: String, opened_at_ms: u64, owner: SessionOwner) -> Self {
        Self {
            id,
            client_name,
            opened_at_ms,
            owner,
            holder: Mutex::default(),
            ended: AtomicBool::new(false),
            starts: Mutex::default(),
            audited: Mutex::default(),
            opener: Opener::NoToken,
            // Running processes are not limited here; housekeeping forgets surplus closed ones.
            processes: Reservations::new(usize::MAX),
            starting_in: Mutex::default(),
            responses: ResponseCache::default(),
            streams: SessionStreams::default(),
            writer: Mutex::default(),
            connection: Mutex::default(),
            attendance: Mutex::default(),
            last_activity_ms: AtomicU64::new(opened_at_ms),
        }
    }

    pub(crate) fn opened_by(self, opener: Opener) -> Self {
        Self { opener, ..self }
    }

    /// Not by a token that names somebody else, or may do so. Whoever needs no token (on a unix socket or stdio) is our own
    /// user.
    pub(crate) fn may_be_resumed_by(&self, subject: Option<&str>) -> bool {
        match (&self.opener, subject) {
            (_, None) | (Opener::NoToken, _) => true,
            (Opener::Subject(opener), Some(subject)) => opener == subject,
            (Opener::Unknown, Some(_)) => false,
        }
    }

    pub(crate) fn holder(&self) -> Option<Arc<str>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_holder(&self, scope: Option<&str>) {
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = scope.map(Arc::from);
    }

    /// From now on, every process that a start adds is ended by that start, and every stream by whoever opens it.
    pub(crate) fn mark_ended(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.streams.close_all();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Whether the start with this key was carried out before.
    pub(crate) fn has_started(&self, key: &str) -> bool {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|known| known == key)
    }

    pub(crate) fn record_start(&self, key: String) {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        starts.push_back(key);
        if starts.len() > REMEMBERED_STARTS {
            starts.pop_front();
        }
    }

    /// Records that the audit tells of the request with this key; `false` if it did before.
    pub(crate) fn record_audited(&self, key: String) -> bool {
        let mut audited = self.audited.lock().unwrap_or_else(PoisonError::into_inner);
        if audited.contains(&key) {
            return false;
        }
        audited.push_back(key);
        if audited.len() > REMEMBERED_AUDITS {
            audited.pop_front();
        }
        true
    }

    /// Makes it the connection of the session's driver.
    pub(crate) fn set_current(&self, connection: &Arc<ConnectionShared>) {
        let (id, writer) = connection.writer();
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some((id, writer.downgrade()));
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(connection);
    }

    /// Whether it is the connection of the session's driver, and no other has taken its place.
    pub(crate) fn is_current(&self, connection: ConnectionId) -> bool {
        let current = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().is_some_and(|(current, _)| *current == connection)
    }

    pub(crate) fn attendance(&self) -> MutexGuard<'_, Attendance> {
        self.attendance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everybody who wants to know who is attached now.
    pub(crate) fn tell_attendance(self: &Arc<Self>) {
        let told: Vec<_> = self.attendance().told().filter_map(|attendee| attendee.connection.upgrade()).collect();
        for connection in told {
            if connection.news.record_attendance() {
                connection.send(WriterCommand::TellAttendance { session: self.clone() });
            }
        }
    }

    /// Has the observers follow a process that was just started on `by`, which follows it anyway.
    pub(crate) fn tell_observers_of_start(&self, process: &Arc<SessionProcess>, by: ConnectionId) {
        let others = |attendee: &&Attendee| attendee.id != by;
        let observers: Vec<_> =
            self.attendance().observers().filter(others).filter_map(|observer| observer.connection.upgrade()).collect();
        for connection in observers {
            if connection.news.record_started(process) {
                connection.send(WriterCommand::FollowStarted);
            }
        }
    }

    pub(crate) fn record_activity(&self, now_ms: u64) {
        self.last_activity_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(crate) fn last_activity_ms(&self) -> u64 {
        self.last_activity_ms.load(Ordering::Relaxed)
    }

    /// `None` if there is none.
    pub(crate) fn connection(&self) -> Option<Arc<ConnectionShared>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// `None` if the connection has ended.
    pub(crate) fn current_writer(&self) -> Option<(ConnectionId, WriterHandle)> {
        let current = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().and_then(|(connection, writer)| Some((*connection, writer.upgrade()?)))
    }

    /// The environment's id for a process of this session, unique over all sessions.
    pub(crate) fn process_id(&self, wire_id: &str) -> Result<ProcessId, BadId> {
        if wire_id.len() > CLIENT_PROCESS_ID_BYTES {
            return Err(BadId::TooLong { found_bytes: wire_id.len(), limit_bytes: CLIENT_PROCESS_ID_BYTES });
        }
        ProcessId::new(format!("{}/{wire_id}", self.id))
    }

    pub(crate) fn find(&self, wire_id: &str) -> Lookup<Arc<SessionProcess>> {
        self.processes.find(wire_id)
    }

    /// Reserves an id for a start. The id of a process that has been closed for [`ID_REUSE_DELAY`] may be used again;
    /// that process is returned, and must be forgotten before the start. `None` if the id is taken.
    pub(crate) fn reserve(
        &self,
        wire_id: &str,
        now: Instant,
    ) -> Option<(ProcessReservation, Option<Arc<SessionProcess>>)> {
        let reusable =
            |process: &Arc<SessionProcess>| process.closed_for(now).is_some_and(|time| time >= ID_REUSE_DELAY);
        self.processes.reserve_replacing(wire_id.to_owned(), reusable).ok()
    }

    /// Records where a process is being started, until the result is dropped.
    pub(crate) fn record_starting(&self, wire_id: &str, environment: &NamedEnvironment) -> StartingIn<'_> {
        let mut starting = self.starting_in.lock().unwrap_or_else(PoisonError::into_inner);
        starting.insert(wire_id.to_owned(), environment.clone());
        StartingIn { session: self, wire_id: wire_id.to_owned() }
    }

    /// Where a process is being started.
    pub(crate) fn starting_in(&self, wire_id: &str) -> Option<NamedEnvironment> {
        self.starting_in.lock().unwrap_or_else(PoisonError::into_inner).get(wire_id).cloned()
    }

    /// Adds a process that an earlier server has started.
    pub(crate) fn insert_process(&self, process: Arc<SessionProcess>) {
        self.processes.insert(process.wire_id.clone(), process);
    }

    /// Removes a process that was forgotten, unless another has its id by now.
    pub(crate) fn remove_process(&self, process: &Arc<SessionProcess>) {
        self.processes.remove_if(&process.wire_id, |present| Arc::ptr_eq(present, process));
    }

    /// Every process, except those that are still being started.
    pub(crate) fn processes(&self) -> Vec<Arc<SessionProcess>> {
        self.processes.values()
    }

    /// The environments in which it has processes.
    pub(crate) fn environments(&self) -> Vec<NamedEnvironment> {
        let mut environments: Vec<NamedEnvironment> = Vec::new();
        let starting = self.starting_in.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let present: Vec<NamedEnvironment> =
            self.processes().iter().map(|process| process.environment.clone()).collect();
        for environment in [starting, present].into_iter().flatten() {
            if !environments.iter().any(|known| known.is_same(&environment)) {
                environments.push(environment);
            }
        }
        environments
    }

    pub(crate) fn process_count(&self) -> usize {
        self.processes.len()
    }

    /// The connection is gone, and its client may come back.
    pub(crate) fn loosen_holds(&self, connection: ConnectionId) {
        for process in self.processes() {
            process.loosen_hold(connection);
        }
    }
}

/// A process that is being started; see [`Session::record_starting`].
pub(crate) struct StartingIn<'a> {
    session: &'a Session,
    wire_id: String,
}

impl Drop for StartingIn<'_> {
    fn drop(&mut self) {
        self.session.starting_in.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.wire_id);
    }
}

impl SessionProcess {
    pub(crate) fn new(
        wire_id: String,
        id: ProcessId,
        environment: NamedEnvironment,
        keep: Option<Duration>,
        sandboxed: bool,
    ) -> Self {
        Self {
            wire_id,
            id,
            environment,
            keep,
            sandboxed,
            bounds: None,
            denial: OnceLock::new(),
            last_sent: AtomicU64::new(0),
            readers: AtomicU64::new(0),
            closed_since: Mutex::default(),
            hold: Mutex::default(),
        }
    }

    pub(crate) fn started_within(self, bounds: Option<ProcessBounds>) -> Self {
        Self { bounds, ..self }
    }

    pub(crate) fn is_sandboxed(&self) -> bool {
        self.sandboxed
    }

    /// What says that its sandbox stopped it, as far as that is known by now.
    pub(crate) fn denial(&self) -> Option<DenialEvidence> {
        self.denial.get().copied().flatten()
    }

    /// The client on this connection has read up to `upto`. `false` if there is no hold.
    pub(crate) fn move_hold(&self, connection: ConnectionId, upto: Seq) -> bool {
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(hold) = hold.as_mut() else { return false };
        (hold.connection, hold.upto, hold.acknowledged) = (connection, upto, true);
        hold.follower.acknowledge(upto, ATTACHED_READER_TIMEOUT);
        true
    }

    /// The client has come back on this connection, and will say how far it has read. `false` if there is no hold.
    pub(crate) fn adopt_hold(&self, connection: ConnectionId) -> bool {
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(hold) = hold.as_mut() else { return false };
        hold.connection = connection;
        hold.wait_briefly();
        true
    }

    /// Begins a hold for a client that has not said yet how far it has read.
    pub(crate) fn begin_hold(&self, connection: ConnectionId, upto: Seq, follower: Box<dyn LogFollower>) {
        let mut hold = Hold { connection, upto, acknowledged: false, follower };
        hold.wait_briefly();
        *self.hold.lock().unwrap_or_else(PoisonError::into_inner) = Some(hold);
    }

    /// Nobody reads the log any longer.
    pub(crate) fn release_hold(&self) {
        *self.hold.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The client on this connection drives no longer, and nothing is kept for it. What its successor has adopted stays.
    pub(crate) fn release_hold_of(&self, connection: ConnectionId) {
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        drop(hold.take_if(|hold| hold.connection == connection));
    }

    /// The connection is gone. A full log does not wait long for its client, unless that is back already.
    fn loosen_hold(&self, connection: ConnectionId) {
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hold) = hold.as_mut().filter(|hold| hold.connection == connection) {
            hold.wait_briefly();
        }
    }

    pub(crate) fn last_sent(&self) -> Seq {
        self.last_sent.load(Ordering::Relaxed)
    }

    pub(crate) fn record_sent(&self, seq: Seq) {
        self.last_sent.fetch_max(seq, Ordering::Relaxed);
    }

    pub(crate) fn is_being_read(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// How long it is kept after its end, if no client may ask for more than `most`.
    pub(crate) fn keep_time(&self, most: Duration) -> Duration {
        self.keep.map_or(CLOSED_TTL, |keep| keep.min(most))
    }

    /// Records that the process is closed; returns for how long that has been known.
    pub(crate) fn record_closed(&self, now: Instant) -> Duration {
        let mut since = self.closed_since.lock().unwrap_or_else(PoisonError::into_inner);
        now.saturating_duration_since(*since.get_or_insert(now))
    }

    fn closed_for(&self, now: Instant) -> Option<Duration> {
        let since = *self.closed_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map(|since| now.saturating_duration_since(since))
    }
}

/// Milliseconds since 1970; 0 for earlier times.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
