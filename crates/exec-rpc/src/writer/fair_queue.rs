//! Which process may send its output next. Pure.
//!
//! A process that sent little last time (the echo of a keystroke) goes before those that flood. After a few small sends
//! in a row a flood has its turn, so that no process waits for ever.

use std::collections::VecDeque;

use crate::limits::{SMALL_PUSH_BYTES, SMALL_PUSHES_IN_A_ROW};

#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    small: VecDeque<T>,
    large: VecDeque<T>,
    small_in_a_row: u32,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { small: VecDeque::new(), large: VecDeque::new(), small_in_a_row: 0 }
    }
}

impl<T> FairQueue<T> {
    /// `last_bytes` is what the item sent the last time it was popped.
    pub(crate) fn push(&mut self, item: T, last_bytes: usize) {
        if last_bytes < SMALL_PUSH_BYTES { self.small.push_back(item) } else { self.large.push_back(item) }
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let small_first = self.small_in_a_row < SMALL_PUSHES_IN_A_ROW || self.large.is_empty();
        if small_first && let Some(item) = self.small.pop_front() {
            self.small_in_a_row += 1;
            return Some(item);
        }
        self.small_in_a_row = 0;
        self.large.pop_front().or_else(|| self.small.pop_front())
    }

    pub(crate) fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    pub(crate) fn remove(&mut self, unwanted: impl Fn(&T) -> bool) {
        self.small.retain(|item| !unwanted(item));
        self.large.retain(|item| !unwanted(item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_overtakes_floods() {
        let mut queue = FairQueue::default();
        queue.push("flood 1", 65536);
        queue.push("flood 2", 65536);
        queue.push("echo", 10);
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some("echo"), Some("flood 1"), Some("flood 2")]);
    }

    #[test]
    fn a_crowd_of_small_ones_does_not_starve_a_flood() {
        let mut queue = FairQueue::default();
        queue.push("flood", 65536);
        let mut before_flood = 0;
        loop {
            queue.push("small", 1);
            match queue.pop() {
                Some("flood") => break,
                _ => before_flood += 1,
            }
            assert!(before_flood <= SMALL_PUSHES_IN_A_ROW);
        }
        assert_eq!(before_flood, SMALL_PUSHES_IN_A_ROW);
    }

    #[test]
    fn nobody_is_asked_when_nobody_is_ready() {
        assert_eq!(FairQueue::<u8>::default().pop(), None);
    }
}
