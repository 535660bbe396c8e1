//! The life of a session as the client sees it: when to dial, what to ask for, when to give up.
//!
//! ```text
//!             wanted                dialed               welcomed
//!   idle ───────────► dialing ───────────────► initializing ────────► live
//!    ▲                  ▲  │ failed              │ refused            │ broke
//!    │                  │  ▼                     ▼                    │
//!    └── forfeit ◄── resting ◄──────────────────┘ ◄───────────────────┘  (the first try at once)
//! ```
//!
//! Pure: it is told facts and the time, and answers with effects; the driver of the link carries them out. The first
//! session has one try, because somebody waits for it; a session that was live is worth trying for, until the give-up
//! time. Deliberately absent: sockets, messages, calls.

use std::time::{Duration, Instant};

use crate::backoff::{self, SeededRng};

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Make a connection.
    Dial,
    /// Say hello on it.
    Initialize {
        /// The session to go on with.
        resume: Option<String>,
    },
    /// Send what waits: the session is there.
    GoLive {
        /// Whether it is the session that was there before.
        resumed: bool,
    },
    /// The connection is of no use any more; what may not be sent twice has failed.
    DropConnection,
    /// The session is lost, and everything that belonged to it.
    LoseSession(SessionLoss),
    /// Close the connection politely; nothing follows.
    Close,
}

/// Why a session is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLoss {
    /// Which sort.
    pub kind: LossKind,
    /// What happened, for a person.
    pub why: String,
}

/// Sorts of loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossKind {
    /// No connection, or none in time.
    Unreachable,
    /// The server knows no such session any more.
    UnknownSession,
    /// The server will not have us.
    Refused,
    /// Another connection has the session now.
    TakenOver,
    /// We have left.
    Ended,
}

/// How a try failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptError {
    /// Later may work: no connection, no answer, or the session is still attached to a dead one.
    Transient(String),
    /// Later will not work.
    Permanent(SessionLoss),
}

/// What may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTimeouts {
    /// How long a session that was live is tried for.
    pub give_up: Duration,
    /// How long an answer to `initialize` may take.
    pub initialize: Duration,
}

/// The machine.
#[derive(Debug, Clone)]
pub struct Session {
    timeouts: SessionTimeouts,
    rng: SeededRng,
    state: State,
    /// The session to resume, once there was one.
    id: Option<String>,
    reconnects: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Idle,
    Dialing(Attempt),
    Initializing { attempt: Attempt, until: Instant },
    BackingOff { attempt: Attempt, until: Instant },
    Live { attempts: u32 },
    Ended,
}

/// One series of tries.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Attempt {
    /// From 1.
    number: u32,
    /// `None`: one try only.
    give_up_at: Option<Instant>,
}

impl Session {
    /// A machine that has no connection yet, and goes on with `resume` if it is given.
    pub fn new(timeouts: SessionTimeouts, resume: Option<String>, seed: u64) -> Self {
        Self { timeouts, rng: SeededRng::new(seed), state: State::Idle, id: resume, reconnects: 0 }
    }

    /// Somebody has something to ask.
    pub fn connection_wanted(&mut self) -> Vec<Effect> {
        match self.state {
            State::Idle => {
                self.state = State::Dialing(Attempt { number: 1, give_up_at: None });
                vec![Effect::Dial]
            }
            _ => Vec::new(),
        }
    }

    /// The connection is made.
    pub fn connected(&mut self, now: Instant) -> Vec<Effect> {
        let State::Dialing(attempt) = &self.state else { return Vec::new() };
        let (attempt, until) = (attempt.clone(), now + self.timeouts.initialize);
        self.state = State::Initializing { attempt, until };
        vec![Effect::Initialize { resume: self.id.clone() }]
    }

    /// The server has answered hello.
    pub fn initialized(&mut self, session_id: &str) -> Vec<Effect> {
        let State::Initializing { attempt, .. } = &self.state else { return Vec::new() };
        let number = attempt.number;
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
        self.state = State::Live { attempts: number };
        vec![Effect::GoLive { resumed }]
    }

    /// Dialing or initializing did not work.
    pub fn attempt_failed(&mut self, now: Instant, failure: AttemptError) -> Vec<Effect> {
        let (attempt, connected) = match &self.state {
            State::Dialing(attempt) => (attempt.clone(), false),
            State::Initializing { attempt, .. } => (attempt.clone(), true),
            _ => return Vec::new(),
        };
        match (failure, attempt.give_up_at) {
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
                let until = (now + backoff::delay(attempt.number, &mut self.rng)).min(give_up_at);
                self.state = State::BackingOff { attempt: Attempt { number: attempt.number + 1, ..attempt }, until };
                drop_if(connected)
            }
        }
    }

    /// The connection broke. `carried_data`: something came over it since it was initialized; if not, the next try is one more
    /// of the same series, or a server that hangs up on everybody would be dialed without rest.
    pub fn connection_lost(&mut self, now: Instant, why: &str, carried_data: bool) -> Vec<Effect> {
        match self.state {
            State::Live { attempts } => {
                let give_up_at = Some(now + self.timeouts.give_up);
                if carried_data {
                    self.state = State::Dialing(Attempt { number: 1, give_up_at });
                    return vec![Effect::DropConnection, Effect::Dial];
                }
                let until = now + backoff::delay(attempts, &mut self.rng).min(self.timeouts.give_up);
                let number = attempts.saturating_add(1);
                self.state = State::BackingOff { attempt: Attempt { number, give_up_at }, until };
                vec![Effect::DropConnection]
            }
            State::Initializing { .. } => self.attempt_failed(now, AttemptError::Transient(why.to_owned())),
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
        match &self.state {
            State::BackingOff { attempt, until } if *until <= now => {
                self.state = State::Dialing(attempt.clone());
                vec![Effect::Dial]
            }
            State::Initializing { until, .. } if *until <= now => {
                let why = format!("initialize was not answered within {:?}", self.timeouts.initialize);
                self.attempt_failed(now, AttemptError::Transient(why))
            }
            _ => Vec::new(),
        }
    }

    /// We leave. The session stays behind, detached.
    pub fn end(&mut self) -> Vec<Effect> {
        if self.state == State::Ended {
            return Vec::new();
        }
        self.state = State::Ended;
        vec![
            Effect::LoseSession(SessionLoss { kind: LossKind::Ended, why: "the connection was closed by us".into() }),
            Effect::Close,
        ]
    }

    /// When [`Self::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.state {
            State::BackingOff { until, .. } | State::Initializing { until, .. } => Some(until),
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

    /// The number of the try that is under way, if one is.
    pub fn attempt(&self) -> Option<u32> {
        match &self.state {
            State::Dialing(attempt) | State::Initializing { attempt, .. } | State::BackingOff { attempt, .. } => {
                Some(attempt.number)
            }
            _ => None,
        }
    }

    /// How often the session was found again.
    pub fn reconnects(&self) -> u64 {
        self.reconnects
    }

    /// Lets go of the session, so that the next one is a fresh one.
    fn lose_session(&mut self, loss: SessionLoss, connected: bool) -> Vec<Effect> {
        self.state = State::Idle;
        self.id = None;
        let mut effects = drop_if(connected);
        effects.push(Effect::LoseSession(loss));
        effects
    }
}

fn drop_if(connected: bool) -> Vec<Effect> {
    if connected { vec![Effect::DropConnection] } else { Vec::new() }
}
