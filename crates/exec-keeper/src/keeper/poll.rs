//! Between two turns: whoever asks goes first, and what can wait is done before we sleep.

use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::io::Errno;

use super::Keeper;

/// After the end of a process its owner often starts the next one at once. So long we look for that before we sleep: to
/// be woken on another processor takes some 50 microseconds in a virtual machine, and the answer as much again.
pub(super) const BUSY_POLL: Duration = Duration::from_micros(150);
/// Turns in a row without putting things in order. Beyond, whoever asks waits for it: what is released holds
/// descriptors until then.
const BUSY_ROUNDS: u32 = 64;

impl Keeper {
    /// Waits for events. First come those that are there, then order, then sleep.
    pub(super) fn wait(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        self.poll(events, Some(Duration::ZERO))?;
        self.busy_rounds += 1;
        if events.is_empty() || self.busy_rounds > BUSY_ROUNDS {
            self.do_deferred_work();
        }
        let until = self.busy_poll_until.take();
        while events.is_empty() && until.is_some_and(|until| Instant::now() < until) {
            std::thread::yield_now();
            self.poll(events, Some(Duration::ZERO))?;
        }
        if !events.is_empty() {
            return Ok(());
        }
        let left = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        self.poll(events, left)
    }

    /// Whoever asked has the answer; now what is left of it, and what the next one will need.
    fn do_deferred_work(&mut self) {
        self.busy_rounds = 0;
        self.released.clear();
        self.trees.prepare();
    }

    fn poll(&self, events: &mut Vec<epoll::Event>, within: Option<Duration>) -> Result<(), Errno> {
        let timeout =
            within.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
