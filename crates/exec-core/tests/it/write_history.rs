//! The history of stdin writes: each is applied once, and remembered long enough.

use std::collections::{HashMap, HashSet, VecDeque};

use exec_core::WriteId;
use exec_core::limits::{QUEUED_WRITES, REMEMBERED_WRITES};
use exec_core::write_history::{WriteHistory, WriteState};
use proptest::prelude::*;

/// What can happen to a write.
#[derive(Debug, Clone, Copy)]
enum Happening {
    Ask(u32),
    /// The oldest that is in flight is settled in this way.
    Settle(Outcome),
}

#[derive(Debug, Clone, Copy)]
enum Outcome {
    Applied,
    Refused,
    InDoubt,
}

fn happening(ids: u32) -> impl Strategy<Value = Happening> {
    let outcome = prop_oneof![
        6 => Just(Outcome::Applied),
        1 => Just(Outcome::Refused),
        1 => Just(Outcome::InDoubt)
    ];
    prop_oneof![(0..ids).prop_map(Happening::Ask), outcome.prop_map(Happening::Settle)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Under few ids nothing is forgotten: no id is ever applied twice, nor begun while it is known.
    #[test]
    fn no_write_is_applied_twice(happenings in prop::collection::vec(happening(30), 0..2000)) {
        let mut world = World::default();
        for happening in happenings {
            world.step(happening)?;
        }
        prop_assert!(world.applied.values().all(|times| *times <= 1));
    }

    /// Under many ids the last 4,096 are known, in flight or settled, and no more are kept.
    #[test]
    fn the_last_4096_are_remembered_and_no_more(
        in_flight in 0..QUEUED_WRITES as u32,
        settled in REMEMBERED_WRITES as u32..REMEMBERED_WRITES as u32 + 3000,
    ) {
        let mut history = WriteHistory::default();
        // These never settle: their askers still wait.
        for number in 0..in_flight {
            prop_assert_eq!(history.begin(&waiting(number)), None);
        }
        for number in 0..settled {
            prop_assert_eq!(history.begin(&id(number)), None);
            history.applied(&id(number));
            prop_assert!(history.len() <= REMEMBERED_WRITES);
        }
        for number in 0..in_flight {
            prop_assert_eq!(history.begin(&waiting(number)), Some(WriteState::InFlight));
        }
        let room = REMEMBERED_WRITES as u32 - in_flight;
        for number in 0..settled {
            let known = (number + room >= settled).then_some(WriteState::Applied);
            prop_assert_eq!(history.state(&id(number)), known, "write {}", number);
        }
        prop_assert_eq!(history.len(), REMEMBERED_WRITES);
    }
}

proptest! {
    // Few cases, because each is long enough to make the history forget thousands.
    #![proptest_config(ProptestConfig { cases: 3, ..ProptestConfig::default() })]

    /// Long random histories: the write history is a model that keeps its 4,096 newest.
    #[test]
    fn long_histories_agree_with_the_model(
        happenings in prop::collection::vec(happening(20_000), 14_000),
    ) {
        let mut world = World::default();
        for happening in happenings {
            world.step(happening)?;
        }
        // The last to settle may have been refused, which makes room for as many as waited.
        let len = world.history.len();
        prop_assert!((REMEMBERED_WRITES - QUEUED_WRITES..=REMEMBERED_WRITES).contains(&len), "{}", len);
    }
}

/// A write history, the writer in front of it, and a model beside it.
#[derive(Default)]
struct World {
    history: WriteHistory,
    in_flight: VecDeque<u32>,
    applied: HashMap<u32, u32>,
    model: VecDeque<(u32, WriteState)>,
}

impl World {
    fn step(&mut self, happening: Happening) -> Result<(), TestCaseError> {
        match happening {
            Happening::Ask(number) => self.ask(number)?,
            Happening::Settle(outcome) => self.settle(outcome),
        }
        let unique: HashSet<&u32> = self.in_flight.iter().collect();
        prop_assert_eq!(unique.len(), self.in_flight.len());
        prop_assert_eq!(self.history.len(), self.model.len());
        prop_assert_eq!(self.history.is_empty(), self.model.is_empty());
        Ok(())
    }

    fn ask(&mut self, number: u32) -> Result<(), TestCaseError> {
        // The queue in front of the history is bounded; one more asker waits before it asks.
        if self.in_flight.len() >= QUEUED_WRITES {
            self.settle(Outcome::Applied);
        }
        let expected = self.model.iter().find(|(other, _)| *other == number);
        let expected = expected.map(|(_, known)| *known);
        prop_assert_eq!(self.history.state(&id(number)), expected);
        prop_assert_eq!(self.history.begin(&id(number)), expected);
        if expected.is_none() {
            self.in_flight.push_back(number);
            self.model.push_back((number, WriteState::InFlight));
            if self.model.len() > REMEMBERED_WRITES {
                let oldest = self.model.iter().position(|(_, known)| *known != WriteState::InFlight);
                self.model.remove(oldest.expect("few are in flight"));
            }
        }
        Ok(())
    }

    fn settle(&mut self, outcome: Outcome) {
        let Some(number) = self.in_flight.pop_front() else {
            return;
        };
        let at = self.model.iter().position(|(other, _)| *other == number);
        let at = at.expect("one in flight is never forgotten");
        match outcome {
            Outcome::Applied => {
                *self.applied.entry(number).or_default() += 1;
                self.history.applied(&id(number));
                self.model[at].1 = WriteState::Applied;
            }
            Outcome::InDoubt => {
                self.history.in_doubt(&id(number));
                self.model[at].1 = WriteState::InDoubt;
            }
            Outcome::Refused => {
                self.history.refused(&id(number));
                self.model.remove(at);
            }
        }
    }
}

#[test]
fn a_write_in_doubt_is_never_begun_again() {
    let mut history = WriteHistory::default();
    assert_eq!(history.begin(&id(1)), None);
    history.in_doubt(&id(1));
    assert_eq!(history.begin(&id(1)), Some(WriteState::InDoubt));
}

#[test]
fn a_refused_write_may_be_asked_again() {
    let mut history = WriteHistory::default();
    assert_eq!(history.begin(&id(1)), None);
    history.refused(&id(1));
    assert_eq!(history.begin(&id(1)), None);
}

fn id(number: u32) -> WriteId {
    WriteId::new(number.to_string()).expect("short and not empty")
}

fn waiting(number: u32) -> WriteId {
    WriteId::new(format!("waiting-{number}")).expect("short and not empty")
}
