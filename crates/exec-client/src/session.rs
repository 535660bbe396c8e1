//! The life of a session as the client sees it: when to dial, what to ask for, when to give up.
//!
//! ```text
//!             wanted                dialed               welcomed
//!   idle ───────────► dialing ───────────────► greeting ──────────► live
//!    ▲                  ▲  │ failed              │ refused            │ broke
//!    │                  │  ▼                     ▼                    │
//!    └── forfeit ◄── resting ◄──────────────────┘ ◄───────────────────┘  (the first try at once)
//! ```
//!
//! Pure: it is told facts and the time, and answers with effects; the driver of the link carries them out. The first
//! session has one try, because somebody waits for it; a session that was live is worth trying for, until the give-up
//! time. Deliberately absent: sockets, messages, calls.

use std::time::{Duration, Instant};

use crate::backoff::{self, Dice};

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Make a connection.
    Dial,
    /// Say hello on it.
    Greet {
        /// The session to go on with.
        resume: Option<String>,
    },
    /// Send what waits: the session is there.
    Serve {
        /// Whether it is the session that was there before.
        resumed: bool,
    },
    /// The connection is of no use any more; what may not be sent twice has failed.
    Interrupt,
    /// The session is lost, and everything that belonged to it.
    Forfeit(Loss),
    /// Close the connection politely; nothing follows.
    Leave,
}

/// Why a session is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
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
pub enum Failure {
    /// Later may work: no connection, no answer, or the session is still attached to a dead one.
    Passing(String),
    /// Later will not work.
    Final(Loss),
}

/// What may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How long a session that was live is tried for.
    pub give_up: Duration,
    /// How long an answer to `initialize` may take.
    pub greeting: Duration,
}

/// The machine.
#[derive(Debug, Clone)]
pub struct Session {
    patience: Patience,
    dice: Dice,
    state: State,
    /// The session to resume, once there was one.
    id: Option<String>,
    reconnects: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Idle,
    Dialing(Trial),
    Greeting { trial: Trial, until: Instant },
    Resting { trial: Trial, until: Instant },
    Live { attempt: u32 },
    Ended,
}

/// One series of tries.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trial {
    /// From 1.
    attempt: u32,
    /// `None`: one try only.
    give_up_at: Option<Instant>,
}

impl Session {
    /// A machine that has no connection yet, and goes on with `resume` if it is given.
    pub fn new(patience: Patience, resume: Option<String>, seed: u64) -> Self {
        Self { patience, dice: Dice::new(seed), state: State::Idle, id: resume, reconnects: 0 }
    }

    /// Somebody has something to ask.
    pub fn wanted(&mut self) -> Vec<Effect> {
        match self.state {
            State::Idle => {
                self.state = State::Dialing(Trial { attempt: 1, give_up_at: None });
                vec![Effect::Dial]
            }
            _ => Vec::new(),
        }
    }

    /// The connection is made.
    pub fn dialed(&mut self, now: Instant) -> Vec<Effect> {
        let State::Dialing(trial) = &self.state else { return Vec::new() };
        let (trial, until) = (trial.clone(), now + self.patience.greeting);
        self.state = State::Greeting { trial, until };
        vec![Effect::Greet { resume: self.id.clone() }]
    }

    /// The server has answered hello.
    pub fn welcomed(&mut self, session_id: &str) -> Vec<Effect> {
        let State::Greeting { trial, .. } = &self.state else { return Vec::new() };
        let attempt = trial.attempt;
        let resumed = self.id.is_some();
        if let Some(id) = &self.id
            && id != session_id
        {
            let why = format!("the server answered with session {session_id} instead of {id}");
            return self.forfeit(Loss { kind: LossKind::UnknownSession, why }, true);
        }
        if trial.give_up_at.is_some() {
            self.reconnects += 1;
        }
        self.id = Some(session_id.to_owned());
        self.state = State::Live { attempt };
        vec![Effect::Serve { resumed }]
    }

    /// Dialing or greeting did not work.
    pub fn failed(&mut self, now: Instant, failure: Failure) -> Vec<Effect> {
        let (trial, connected) = match &self.state {
            State::Dialing(trial) => (trial.clone(), false),
            State::Greeting { trial, .. } => (trial.clone(), true),
            _ => return Vec::new(),
        };
        match (failure, trial.give_up_at) {
            (Failure::Final(loss), _) => self.forfeit(loss, connected),
            (Failure::Passing(why), None) => self.forfeit(Loss { kind: LossKind::Unreachable, why }, connected),
            (Failure::Passing(why), Some(give_up_at)) if now >= give_up_at => {
                let after = self.patience.give_up;
                let why = format!("gave up after {after:?} and {} tries: {why}", trial.attempt);
                self.forfeit(Loss { kind: LossKind::Unreachable, why }, connected)
            }
            (Failure::Passing(_), Some(give_up_at)) => {
                let until = (now + backoff::rest(trial.attempt, &mut self.dice)).min(give_up_at);
                self.state = State::Resting { trial: Trial { attempt: trial.attempt + 1, ..trial }, until };
                interrupt(connected)
            }
        }
    }

    /// The connection broke. `useful`: something came over it since it was welcomed; if not, the next try is one more
    /// of the same series, or a server that hangs up on everybody would be dialed without rest.
    pub fn broke(&mut self, now: Instant, why: &str, useful: bool) -> Vec<Effect> {
        match self.state {
            State::Live { attempt } => {
                let give_up_at = Some(now + self.patience.give_up);
                if useful {
                    self.state = State::Dialing(Trial { attempt: 1, give_up_at });
                    return vec![Effect::Interrupt, Effect::Dial];
                }
                let until = now + backoff::rest(attempt, &mut self.dice).min(self.patience.give_up);
                let attempt = attempt.saturating_add(1);
                self.state = State::Resting { trial: Trial { attempt, give_up_at }, until };
                vec![Effect::Interrupt]
            }
            State::Greeting { .. } => self.failed(now, Failure::Passing(why.to_owned())),
            _ => Vec::new(),
        }
    }

    /// The session is gone for a reason that no new connection can mend.
    pub fn lost(&mut self, loss: Loss) -> Vec<Effect> {
        match self.state {
            State::Live { .. } => self.forfeit(loss, true),
            _ => Vec::new(),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) -> Vec<Effect> {
        match &self.state {
            State::Resting { trial, until } if *until <= now => {
                self.state = State::Dialing(trial.clone());
                vec![Effect::Dial]
            }
            State::Greeting { until, .. } if *until <= now => {
                let why = format!("initialize was not answered within {:?}", self.patience.greeting);
                self.failed(now, Failure::Passing(why))
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
            Effect::Forfeit(Loss { kind: LossKind::Ended, why: "the connection was closed by us".into() }),
            Effect::Leave,
        ]
    }

    /// When [`Self::tick`] has something to do.
    pub fn due(&self) -> Option<Instant> {
        match self.state {
            State::Resting { until, .. } | State::Greeting { until, .. } => Some(until),
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
            State::Dialing(trial) | State::Greeting { trial, .. } | State::Resting { trial, .. } => Some(trial.attempt),
            _ => None,
        }
    }

    /// How often the session was found again.
    pub fn reconnects(&self) -> u64 {
        self.reconnects
    }

    /// Lets go of the session, so that the next one is a fresh one.
    fn forfeit(&mut self, loss: Loss, connected: bool) -> Vec<Effect> {
        self.state = State::Idle;
        self.id = None;
        let mut effects = interrupt(connected);
        effects.push(Effect::Forfeit(loss));
        effects
    }
}

fn interrupt(connected: bool) -> Vec<Effect> {
    if connected { vec![Effect::Interrupt] } else { Vec::new() }
}
