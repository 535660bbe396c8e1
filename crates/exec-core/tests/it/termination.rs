//! Termination: TERM once, the grace, KILL; asking again only hastens it.

use std::time::{Duration, Instant};

use exec_core::termination::{Termination, TerminationSignal};
use exec_core::{ExitCause, TimeLimit};
use proptest::prelude::*;

/// What can happen next.
#[derive(Debug, Clone, Copy)]
enum Happening {
    Ask(Duration),
    Pass(Duration),
    /// Time passes exactly to the deadline.
    PassToDeadline,
    LeaderExits,
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        1 => Just(Duration::ZERO),
        6 => (1_u64..5_000).prop_map(Duration::from_millis),
        1 => (1_u64..86_400).prop_map(Duration::from_secs),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        2 => span().prop_map(Happening::Ask),
        4 => span().prop_map(Happening::Pass),
        2 => Just(Happening::PassToDeadline),
        1 => Just(Happening::LeaderExits),
    ]
}

fn limit() -> impl Strategy<Value = Option<TimeLimit>> {
    prop::option::of((span(), span()).prop_map(|(after, grace)| TimeLimit { after, grace }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// KILL never comes before the shortest grace that was given has passed, and always once it has.
    #[test]
    fn kill_comes_after_the_grace_and_never_before(
        limit in limit(),
        happenings in prop::collection::vec(happening(), 0..30),
    ) {
        let mut world = World::new(limit);
        for happening in happenings {
            world.step(happening)?;
        }
        world.pass_to_the_end()?;
    }
}

/// The machine, a clock, and what was sent when.
struct World {
    termination: Termination,
    now: Instant,
    /// When the limit speaks, and the grace it gives; until the leader ends.
    limit: Option<(Instant, Duration)>,
    /// The earliest moment at which somebody wanted it dead.
    kill_due: Option<Instant>,
    first_cause: Option<ExitCause>,
    term_at: Option<Instant>,
    kill_at: Option<Instant>,
}

impl World {
    fn new(limit: Option<TimeLimit>) -> Self {
        let now = Instant::now();
        Self {
            termination: Termination::new(now, limit),
            now,
            limit: limit.map(|limit| (now + limit.after, limit.grace)),
            kill_due: None,
            first_cause: None,
            term_at: None,
            kill_at: None,
        }
    }

    fn step(&mut self, happening: Happening) -> Result<(), TestCaseError> {
        match happening {
            Happening::Ask(grace) => {
                self.want(self.now, grace, ExitCause::Terminated);
                let sent = self.termination.request(self.now, grace);
                self.sent(sent)?;
            }
            Happening::Pass(time) => self.pass(time)?,
            Happening::PassToDeadline => {
                if let Some(deadline) = self.termination.deadline() {
                    self.pass(deadline.saturating_duration_since(self.now))?;
                }
            }
            Happening::LeaderExits => {
                self.termination.on_leader_exit();
                self.limit = None;
            }
        }
        self.check()
    }

    /// Time passes as a driver sees it: it wakes at each deadline on the way, and then once more.
    fn pass(&mut self, time: Duration) -> Result<(), TestCaseError> {
        let end = self.now + time;
        while let Some(deadline) = self.termination.deadline().filter(|at| *at <= end) {
            let early = deadline.checked_sub(Duration::from_nanos(1));
            if let Some(early) = early.filter(|early| *early >= self.now) {
                prop_assert_eq!(self.termination.on_time(early), None, "too early");
            }
            self.now = self.now.max(deadline);
            self.let_the_limit_speak();
            let sent = self.termination.on_time(self.now);
            prop_assert!(sent.is_some(), "a deadline is a moment with something to do");
            self.sent(sent)?;
        }
        self.now = end;
        self.let_the_limit_speak();
        prop_assert_eq!(self.termination.on_time(self.now), None);
        Ok(())
    }

    fn let_the_limit_speak(&mut self) {
        if let Some((at, grace)) = self.limit.filter(|(at, _)| *at <= self.now) {
            self.limit = None;
            // A termination under way keeps its own grace.
            if self.first_cause.is_none() {
                self.want(at.max(self.now), grace, ExitCause::TimedOut);
            }
        }
    }

    fn want(&mut self, now: Instant, grace: Duration, cause: ExitCause) {
        // A longer grace does not put off the time limit.
        let limit = self.limit.map(|(at, grace)| at.max(now) + grace);
        let due = limit.map_or(now + grace, |limit| limit.min(now + grace));
        self.kill_due = Some(self.kill_due.map_or(due, |before| before.min(due)));
        self.first_cause.get_or_insert(cause);
    }

    fn sent(&mut self, sent: Option<TerminationSignal>) -> Result<(), TestCaseError> {
        match sent {
            None => {}
            Some(TerminationSignal::Term) => {
                prop_assert_eq!(self.term_at, None, "it is asked once");
                prop_assert_eq!(self.kill_at, None, "the dead are not asked");
                self.term_at = Some(self.now);
            }
            Some(TerminationSignal::Kill) => {
                let due = self.kill_due.expect("nobody is killed unasked");
                prop_assert!(self.now >= due, "killed before the grace was over");
                self.kill_at.get_or_insert(self.now);
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.termination.killed(), self.kill_at.is_some());
        prop_assert_eq!(self.termination.cause(), self.first_cause.unwrap_or(ExitCause::Own));
        if let Some(due) = self.kill_due {
            // Asking with a grace that is over at once may leave the kill to the next look at the clock.
            let overdue = self.now > due && self.kill_at.is_none();
            prop_assert!(!overdue, "the grace is over and nobody was killed");
        }
        Ok(())
    }

    /// Whoever was asked is dead in the end, and who was not asked by then never will be.
    fn pass_to_the_end(&mut self) -> Result<(), TestCaseError> {
        self.pass(Duration::from_secs(200_000))?;
        self.check()?;
        prop_assert_eq!(self.kill_at.is_some(), self.first_cause.is_some());
        prop_assert_eq!(self.termination.deadline(), None);
        if let (Some(term), Some(kill)) = (self.term_at, self.kill_at) {
            prop_assert!(term <= kill);
        }
        Ok(())
    }
}

#[test]
fn killing_again_is_told_again_because_somebody_may_have_come_since() {
    let now = Instant::now();
    let mut termination = Termination::new(now, None);
    assert_eq!(termination.request(now, Duration::ZERO), Some(TerminationSignal::Kill));
    assert_eq!(termination.request(now, Duration::ZERO), Some(TerminationSignal::Kill));
    assert_eq!(
        termination.request(now, Duration::from_secs(1)),
        Some(TerminationSignal::Kill),
        "who was killed is not asked politely"
    );
}

#[test]
fn a_grace_beyond_every_clock_is_no_kill_at_once() {
    let now = Instant::now();
    let mut termination = Termination::new(now, None);
    assert_eq!(
        (termination.request(now, Duration::MAX), termination.deadline()),
        (Some(TerminationSignal::Term), None)
    );
}

#[test]
fn a_long_grace_does_not_put_off_the_time_limit() {
    let now = Instant::now();
    let limit = TimeLimit { after: Duration::from_secs(10), grace: Duration::from_secs(1) };
    let mut termination = Termination::new(now, Some(limit));
    assert_eq!(termination.request(now, Duration::from_secs(3600)), Some(TerminationSignal::Term));
    assert_eq!(termination.deadline(), Some(now + Duration::from_secs(11)));
}

#[test]
fn a_limit_beyond_every_clock_is_no_limit() {
    let endless = TimeLimit { after: Duration::MAX, grace: Duration::ZERO };
    assert_eq!(Termination::new(Instant::now(), Some(endless)).deadline(), None);
}

#[test]
fn who_has_used_up_its_processor_time_is_killed_at_once_and_that_is_the_cause_unless_it_was_ended_before() {
    let now = Instant::now();
    let mut termination = Termination::new(now, None);
    assert_eq!(termination.on_cpu_limit(now), Some(TerminationSignal::Kill));
    assert_eq!((termination.cause(), termination.killed()), (ExitCause::CpuLimit, true));
    let mut asked = Termination::new(now, None);
    asked.request(now, Duration::from_secs(9));
    assert_eq!(asked.on_cpu_limit(now), Some(TerminationSignal::Kill));
    assert_eq!(asked.cause(), ExitCause::Terminated);
}

#[test]
fn an_exit_in_time_takes_the_limit_away() {
    let now = Instant::now();
    let limit = TimeLimit { after: Duration::from_secs(1), grace: Duration::ZERO };
    let mut termination = Termination::new(now, Some(limit));
    termination.on_leader_exit();
    assert_eq!(termination.deadline(), None);
    assert_eq!(termination.on_time(now + Duration::from_secs(9)), None);
    assert_eq!(termination.cause(), ExitCause::Own);
}
