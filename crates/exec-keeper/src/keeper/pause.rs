//! Between two turns: whoever asks goes first, and what can wait is done before we sleep.

use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::io::Errno;

use super::Keeper;

/// After the end of a process its owner often starts the next one at once. So long we look for that before we sleep: to
/// be woken on another processor takes some 50 microseconds in a virtual machine, and the answer as much again.
pub(super) const LINGER: Duration = Duration::from_micros(150);
/// Turns in a row without putting things in order. Beyond, whoever asks waits for it: what is forgotten holds
/// descriptors until then.
const HURRIED_TURNS: u32 = 64;

impl Keeper {
    /// Waits for events. First come those that are there, then order, then sleep.
    pub(super) fn wait(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        self.look_for(events, Some(Duration::ZERO))?;
        self.hurried += 1;
        if events.is_empty() || self.hurried > HURRIED_TURNS {
            self.put_in_order();
        }
        let until = self.linger.take();
        while events.is_empty() && until.is_some_and(|until| Instant::now() < until) {
            std::thread::yield_now();
            self.look_for(events, Some(Duration::ZERO))?;
        }
        if !events.is_empty() {
            return Ok(());
        }
        let left = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        self.look_for(events, left)
    }

    /// Whoever asked has the answer; now what is left of it, and what the next one will need.
    fn put_in_order(&mut self) {
        self.hurried = 0;
        self.forgotten.clear();
        self.forest.prepare();
    }

    fn look_for(&self, events: &mut Vec<epoll::Event>, within: Option<Duration>) -> Result<(), Errno> {
        let timeout =
            within.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
