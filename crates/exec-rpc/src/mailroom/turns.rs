//! Whose turn it is to send. Pure.
//!
//! Processes that sent little last time (a keystroke's echo) are let in before those that flood; but after a few such
//! turns in a row one that floods has its own, so nobody waits for ever.

use std::collections::VecDeque;

use crate::limits::{SMALL_TURN_BYTES, SMALL_TURNS};

/// The queue of those that have something to send.
#[derive(Debug)]
pub(crate) struct Turns<L> {
    light: VecDeque<L>,
    heavy: VecDeque<L>,
    light_in_a_row: u32,
}

impl<L> Default for Turns<L> {
    fn default() -> Self {
        Self { light: VecDeque::new(), heavy: VecDeque::new(), light_in_a_row: 0 }
    }
}

impl<L> Turns<L> {
    /// `lane` has something to send; its last turn took `last_bytes`.
    pub(crate) fn ready(&mut self, lane: L, last_bytes: usize) {
        if last_bytes < SMALL_TURN_BYTES { self.light.push_back(lane) } else { self.heavy.push_back(lane) }
    }

    /// Who sends now.
    pub(crate) fn next(&mut self) -> Option<L> {
        let light_first = self.light_in_a_row < SMALL_TURNS || self.heavy.is_empty();
        if light_first && let Some(lane) = self.light.pop_front() {
            self.light_in_a_row += 1;
            return Some(lane);
        }
        self.light_in_a_row = 0;
        self.heavy.pop_front().or_else(|| self.light.pop_front())
    }

    /// Takes out all for whom `unwanted` holds.
    pub(crate) fn remove(&mut self, unwanted: impl Fn(&L) -> bool) {
        self.light.retain(|lane| !unwanted(lane));
        self.heavy.retain(|lane| !unwanted(lane));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_overtakes_floods() {
        let mut turns = Turns::default();
        turns.ready("flood 1", 65536);
        turns.ready("flood 2", 65536);
        turns.ready("echo", 10);
        assert_eq!([turns.next(), turns.next(), turns.next()], [Some("echo"), Some("flood 1"), Some("flood 2")]);
    }

    #[test]
    fn a_crowd_of_small_ones_does_not_starve_a_flood() {
        let mut turns = Turns::default();
        turns.ready("flood", 65536);
        let mut before_flood = 0;
        loop {
            turns.ready("small", 1);
            match turns.next() {
                Some("flood") => break,
                _ => before_flood += 1,
            }
            assert!(before_flood <= SMALL_TURNS);
        }
        assert_eq!(before_flood, SMALL_TURNS);
    }

    #[test]
    fn nobody_is_asked_when_nobody_is_ready() {
        assert_eq!(Turns::<u8>::default().next(), None);
    }
}
