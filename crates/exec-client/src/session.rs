//! The life of a session as the client sees it: when to dial, what to ask for, when to give up.
//!
//! ```text
//!          connection wanted         connected                 initialized
//!   idle ───────────────────► dialing ─────────► initializing ─────────────► live
//!    ▲                          ▲  │ failed            │ refused               │ connection lost
//!    │                          │  ▼                   ▼                       │
//!    └── session lost ◄──── backing off ◄──────────────┘ ◄─────────────────────┘  (the first attempt at once)
//! ```
//!
//! Pure: it is told facts and the time, and answers with effects that the driver of the link carries out. For the first
//! connection there is one attempt, because somebody waits for it; a session that was live is tried for until the give-up
//! time. Deliberately absent: sockets, messages, calls.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use crate::limits::{BACKOFF_FIRST, BACKOFF_MOST, LAST_ATTEMPT_TIME, QUICK_REDIAL_TIME, QUICK_REDIALS};

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Make a connection.
    Dial,
    /// Send `initialize` on the connection.
    Initialize {
        /// The id of the session to resume.
        resume: Option<String>,
    },
    /// The session can be used: send the calls that wait.
    GoLive {
        /// Whether it is the session that was there before.
        resumed: bool,
    },
    /// Drop the connection, and fail the calls that may not be sent twice.
    DropConnection,
    /// The session is lost, and everything that belonged to it.
    LoseSession(SessionLoss),
    /// Write what is queued and close the connection; no effect follows.
    Close,
}

/// Why a session is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLoss {
    /// For programs.
    pub kind: LossKind,
    /// For people.
    pub why: String,
}

/// Kinds of [`SessionLoss`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossKind {
    /// There is no connection, or there was none in time.
    Unreachable,
    /// The server does not know the session any more.
    UnknownSession,
    /// The server refuses us.
    Refused,
    /// Another connection has the session now.
    TakenOver,
    /// We have closed the connection.
    Ended,
}

/// Why an attempt to connect failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptError {
    /// A later attempt may work: no connection, no answer, or the session is still attached to a dead connection.
    Transient(String),
    /// No later attempt will work.
    Permanent(SessionLoss),
}

/// The timeouts of a [`Session`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTimeouts {
    /// How long a session that was live is tried for.
    pub give_up: Duration,
    /// How long an answer to `initialize` may take.
    pub initialize: Duration,
}

/// The session of one client, as a state machine.
#[derive(Debug, Clone)]
pub struct Session {
    timeouts: SessionTimeouts,
    rng: SeededRng,
    state: State,
    /// The session to resume, once there was one.
    id: Option<String>,
    reconnects: u64,
    /// When we last dialed without a rest, oldest first; at most [`QUICK_REDIALS`].
    quick_redials: VecDeque<Instant>,
    /// Whether the server of this session has sent something that cannot be read.
    was_violated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Idle,
    /// `until`: when nobody waits for this attempt any more, if it is of a series.
    Dialing {
        attempt: Attempt,
        until: Option<Instant>,
    },
    Initializing {
        attempt: Attempt,
        until: Instant,
    },
    BackingOff {
        attempt: Attempt,
        until: Instant,
    },
    Live {
        attempts: u32,
    },
    Ended,
}

/// One attempt of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attempt {
    /// From 1.
    number: u32,
    /// When the series ends; `None` if this is its only attempt.
    give_up_at: Option<Instant>,
}

impl Attempt {
    /// Until when it is waited for, if it is one of a series: as long as that lasts. The last one, which may begin when the
    /// series ends, has some time of its own.
    fn waited_for_until(&self, now: Instant, timeouts: &SessionTimeouts) -> Option<Instant> {
        self.give_up_at.map(|at| at.max(now + LAST_ATTEMPT_TIME.min(timeouts.give_up)))
    }
}

impl Session {
    /// A session without a connection; the first connection resumes `resume`, if it is given.
    pub fn new(timeouts: SessionTimeouts, resume: Option<String>, seed: u64) -> Self {
        Self {
            timeouts,
            rng: SeededRng::new(seed),
            state: State::Idle,
            id: resume,
            reconnects: 0,
            quick_redials: VecDeque::new(),
            was_violated: false,
        }
    }

    /// Somebody has made a call.
    pub fn connection_wanted(&mut self) -> Vec<Effect> {
        match self.state {
            State::Idle => {
                self.state = State::Dialing { attempt: Attempt { number: 1, give_up_at: None }, until: None };
                vec![Effect::Dial]
            }
            _ => Vec::new(),
        }
    }

    /// The connection is made.
    pub fn connected(&mut self, now: Instant) -> Vec<Effect> {
        let State::Dialing { attempt, .. } = self.state else { return Vec::new() };
        let until = now + self.timeouts.initialize;
        let until = attempt.waited_for_until(now, &self.timeouts).map_or(until, |bound| bound.min(until));
        self.state = State::Initializing { attempt, until };
        vec![Effect::Initialize { resume: self.id.clone() }]
    }

    /// The server has accepted `initialize`.
    pub fn initialized(&mut self, session_id: &str) -> Vec<Effect> {
        let State::Initializing { attempt, .. } = self.state else { return Vec::new() };
        let resumed = self.id.is_some();
        if let Some(id) = &self.id
            && id != session_id
        {
            let why = format!("the server answered with session {session_id} instead of {id}");
            return self.lose_session(SessionLoss { kind: LossKind::UnknownSession, why }, true);
        }
        if attempt.give_up_at.is_some() {
            self.reconnects += 1;
        }
        self.id = Some(session_id.to_owned());
        self.state = State::Live { attempts: attempt.number };
        vec![Effect::GoLive { resumed }]
    }

    /// The attempt did not lead to a session.
    pub fn attempt_failed(&mut self, now: Instant, error: AttemptError) -> Vec<Effect> {
        let (attempt, connected) = match self.state {
            State::Dialing { attempt, .. } => (attempt, false),
            State::Initializing { attempt, .. } => (attempt, true),
            _ => return Vec::new(),
        };
        match (error, attempt.give_up_at) {
            (AttemptError::Permanent(loss), _) => self.lose_session(loss, connected),
            (AttemptError::Transient(why), None) => {
                self.lose_session(SessionLoss { kind: LossKind::Unreachable, why }, connected)
            }
            (AttemptError::Transient(why), Some(give_up_at)) if now >= give_up_at => {
                let after = self.timeouts.give_up;
                let why = format!("gave up after {after:?} and {} tries: {why}", attempt.number);
                self.lose_session(SessionLoss { kind: LossKind::Unreachable, why }, connected)
            }
            (AttemptError::Transient(_), Some(give_up_at)) => {
                let until = (now + backoff_delay(attempt.number, &mut self.rng)).min(give_up_at);
                let attempt = Attempt { number: attempt.number + 1, ..attempt };
                self.state = State::BackingOff { attempt, until };
                drop_connection(connected)
            }
        }
    }

    /// The connection broke. `carried_data`: something was received on it since the session went live. If not, the next
    /// attempt continues the same series; otherwise a server that hangs up on everybody would be dialed without a pause.
    /// One that says something before it hangs up is dialed at once only a few times in a row.
    pub fn connection_lost(&mut self, now: Instant, why: &str, carried_data: bool) -> Vec<Effect> {
        match self.state {
            State::Live { attempts } => {
                let give_up_at = Some(now + self.timeouts.give_up);
                if carried_data {
                    let attempt = Attempt { number: 1, give_up_at };
                    let Some(until) = self.rest_until(now) else {
                        self.state = State::Dialing { attempt, until: attempt.waited_for_until(now, &self.timeouts) };
                        return vec![Effect::DropConnection, Effect::Dial];
                    };
                    self.state = State::BackingOff { attempt, until };
                    return vec![Effect::DropConnection];
                }
                let until = now + backoff_delay(attempts, &mut self.rng).min(self.timeouts.give_up);
                let attempt = Attempt { number: attempts.saturating_add(1), give_up_at };
                self.state = State::BackingOff { attempt, until };
                vec![Effect::DropConnection]
            }
            State::Initializing { .. } => self.attempt_failed(now, AttemptError::Transient(why.to_owned())),
            _ => Vec::new(),
        }
    }

    /// When we may dial again after a connection that was of use; `None` at once, which is noted.
    fn rest_until(&mut self, now: Instant) -> Option<Instant> {
        if self.quick_redials.len() >= QUICK_REDIALS {
            let until = *self.quick_redials.front()? + QUICK_REDIAL_TIME;
            if now < until {
                return Some(until);
            }
            self.quick_redials.pop_front();
        }
        self.quick_redials.push_back(now);
        None
    }

    /// The server broke the protocol. Another connection may mend it once; after that, whatever asked for it would ask
    /// for it again and again, so the session is lost.
    pub fn violated(&mut self, now: Instant, why: String) -> Vec<Effect> {
        match self.state {
            State::Live { .. } if !self.was_violated => {
                self.was_violated = true;
                self.connection_lost(now, &why, true)
            }
            State::Live { .. } | State::Initializing { .. } => {
                self.lose_session(SessionLoss { kind: LossKind::Refused, why }, true)
            }
            _ => Vec::new(),
        }
    }

    /// The session is gone for a reason that no new connection can mend.
    pub fn session_lost(&mut self, loss: SessionLoss) -> Vec<Effect> {
        match self.state {
            State::Live { .. } => self.lose_session(loss, true),
            _ => Vec::new(),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) -> Vec<Effect> {
        match self.state {
            State::BackingOff { attempt, until } if until <= now => {
                self.state = State::Dialing { attempt, until: attempt.waited_for_until(now, &self.timeouts) };
                vec![Effect::Dial]
            }
            State::Dialing { until: Some(until), .. } if until <= now => {
                let mut effects = vec![Effect::DropConnection];
                effects.extend(self.attempt_failed(now, AttemptError::Transient("the server does not answer".into())));
                effects
            }
            State::Initializing { attempt, until } if until <= now => {
                let why = match attempt.give_up_at {
                    Some(at) if at <= now => "initialize was not answered".to_owned(),
                    _ => format!("initialize was not answered within {:?}", self.timeouts.initialize),
                };
                self.attempt_failed(now, AttemptError::Transient(why))
            }
            _ => Vec::new(),
        }
    }

    /// We close the connection. The session stays on the server, detached.
    pub fn end(&mut self) -> Vec<Effect> {
        if self.state == State::Ended {
            return Vec::new();
        }
        self.state = State::Ended;
        let loss = SessionLoss { kind: LossKind::Ended, why: "the connection was closed by us".into() };
        vec![Effect::LoseSession(loss), Effect::Close]
    }

    /// When [`Self::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.state {
            State::BackingOff { until, .. } | State::Initializing { until, .. } => Some(until),
            State::Dialing { until, .. } => until,
            _ => None,
        }
    }

    /// Whether nothing will ever happen again.
    pub fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Whether calls can be sent.
    pub fn is_live(&self) -> bool {
        matches!(self.state, State::Live { .. })
    }

    /// The number of the attempt that is under way, if one is.
    pub fn attempt(&self) -> Option<u32> {
        match &self.state {
            State::Dialing { attempt, .. }
            | State::Initializing { attempt, .. }
            | State::BackingOff { attempt, .. } => Some(attempt.number),
            _ => None,
        }
    }

    /// When the series of attempts that is under way ends, if one is.
    pub fn give_up_at(&self) -> Option<Instant> {
        match &self.state {
            State::Dialing { attempt, .. }
            | State::Initializing { attempt, .. }
            | State::BackingOff { attempt, .. } => attempt.give_up_at,
            _ => None,
        }
    }

    /// How often the session was resumed.
    pub fn reconnects(&self) -> u64 {
        self.reconnects
    }

    /// Forgets the session, so that the next connection opens a new one.
    fn lose_session(&mut self, loss: SessionLoss, connected: bool) -> Vec<Effect> {
        self.state = State::Idle;
        self.id = None;
        self.was_violated = false;
        let mut effects = drop_connection(connected);
        effects.push(Effect::LoseSession(loss));
        effects
    }
}

fn drop_connection(connected: bool) -> Vec<Effect> {
    if connected { vec![Effect::DropConnection] } else { Vec::new() }
}

/// How long to wait after attempt number `attempt` (from 1) failed: doubling, bounded, half of it fixed and half random,
/// so that many clients of a server that comes back do not arrive together.
fn backoff_delay(attempt: u32, rng: &mut SeededRng) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    let full = BACKOFF_FIRST.saturating_mul(1 << doublings).min(BACKOFF_MOST);
    let half = full / 2;
    half + half.mul_f64(rng.below(1001) as f64 / 1000.0)
}

/// A seeded random number generator (SplitMix64). Good enough for jitter and simulations, not for secrets.
#[derive(Debug, Clone)]
pub struct SeededRng(u64);

impl SeededRng {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// A number that differs each time, from the standard library's own randomness; not for secrets.
pub(crate) fn random_seed() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: SessionTimeouts =
        SessionTimeouts { give_up: Duration::from_secs(25), initialize: Duration::from_secs(10) };

    fn live(now: Instant) -> Session {
        let mut session = Session::new(TIMEOUTS, None, 1);
        session.connection_wanted();
        reconnect(&mut session, now);
        session
    }

    fn reconnect(session: &mut Session, now: Instant) {
        session.connected(now);
        session.initialized("s");
        assert!(session.is_live());
    }

    #[test]
    fn a_server_that_hangs_up_after_each_answer_is_dialed_at_once_only_so_often() {
        let mut now = Instant::now();
        let mut session = live(now);
        for _ in 0..QUICK_REDIALS {
            assert_eq!(session.connection_lost(now, "cut", true), [Effect::DropConnection, Effect::Dial]);
            reconnect(&mut session, now);
        }
        assert_eq!(session.connection_lost(now, "cut", true), [Effect::DropConnection]);
        now += QUICK_REDIAL_TIME;
        assert_eq!(session.next_deadline(), Some(now));
        assert_eq!(session.tick(now), [Effect::Dial]);
        reconnect(&mut session, now);
        assert_eq!(
            session.connection_lost(now, "cut", true),
            [Effect::DropConnection, Effect::Dial],
            "time has passed"
        );
    }

    #[test]
    fn an_attempt_that_gets_no_answer_ends_with_its_series() {
        let began = Instant::now();
        for dialed in [false, true] {
            let mut session = live(began);
            session.timeouts.give_up = Duration::from_secs(1);
            session.connection_lost(began, "cut", true);
            if dialed {
                session.connected(began);
            }
            let end = began + Duration::from_secs(1);
            assert_eq!(session.next_deadline(), Some(end));
            let effects = session.tick(end);
            let why = if dialed { "initialize was not answered" } else { "the server does not answer" };
            let why = format!("gave up after 1s and 1 tries: {why}");
            let loss = SessionLoss { kind: LossKind::Unreachable, why };
            assert_eq!(effects, [Effect::DropConnection, Effect::LoseSession(loss)]);
        }
        // The last one begins with the end of its series.
        let mut session = live(began);
        session.connection_lost(began, "cut", true);
        let mut now = began;
        while now < began + TIMEOUTS.give_up {
            session.attempt_failed(now, AttemptError::Transient("refused".into()));
            now = session.next_deadline().expect("it is tried again");
            assert_eq!(session.tick(now), [Effect::Dial]);
        }
        assert_eq!(session.next_deadline(), Some(now + LAST_ATTEMPT_TIME));
    }

    #[test]
    fn a_server_that_breaks_the_protocol_twice_is_given_up() {
        let now = Instant::now();
        let mut session = live(now);
        assert_eq!(session.violated(now, "nonsense".into()), [Effect::DropConnection, Effect::Dial]);
        reconnect(&mut session, now);
        let loss = SessionLoss { kind: LossKind::Refused, why: "nonsense".into() };
        assert_eq!(session.violated(now, "nonsense".into()), [Effect::DropConnection, Effect::LoseSession(loss)]);
        assert!(!session.is_live());
    }

    #[test]
    fn rests_double_up_to_the_longest_and_never_fall_below_half() {
        let mut rng = SeededRng::new(1);
        for attempt in 1..40 {
            let full = BACKOFF_FIRST.saturating_mul(1 << (attempt - 1).min(16)).min(BACKOFF_MOST);
            let found = backoff_delay(attempt, &mut rng);
            assert!(found >= full / 2 && found <= full, "attempt {attempt}: {found:?} of {full:?}");
        }
    }
}
