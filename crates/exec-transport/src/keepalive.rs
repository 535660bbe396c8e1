//! When to ping, and when to give up on a silent peer. Pure: time and activity are arguments.
//!
//! Time alone does not decide. Our caller may be busy for minutes between two reads; then the peer may look silent only
//! because nobody pinged it. So a peer is gone when it was silent for the limit *and* had the usual part of that time
//! to answer a ping.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Keepalive {
    interval: Duration,
    limit: Duration,
    last_activity: Instant,
    next_ping: Instant,
    /// When we sent the first ping since the last activity of the peer.
    unanswered_since: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeepaliveAction {
    Ping,
    /// The peer is gone; it was silent for so long.
    Gone(Duration),
    /// Nothing before [`Keepalive::next_deadline`].
    Wait,
}

impl Keepalive {
    pub(crate) fn new(interval: Duration, limit: Duration, now: Instant) -> Self {
        Self { interval, limit, last_activity: now, next_ping: now + interval, unanswered_since: None }
    }

    /// Bytes came from the peer, or it read bytes that we had sent.
    pub(crate) fn record_activity(&mut self, now: Instant) {
        self.last_activity = self.last_activity.max(now);
        if self.unanswered_since.is_some_and(|since| since <= now) {
            self.unanswered_since = None;
        }
    }

    pub(crate) fn action_at(&mut self, now: Instant) -> KeepaliveAction {
        if self.gone_at().is_some_and(|at| now >= at) {
            return KeepaliveAction::Gone(now - self.last_activity);
        }
        if now < self.next_ping {
            return KeepaliveAction::Wait;
        }
        self.next_ping = now + self.interval;
        self.unanswered_since.get_or_insert(now);
        KeepaliveAction::Ping
    }

    /// When [`Keepalive::action_at`] is to be asked again.
    pub(crate) fn next_deadline(&self) -> Instant {
        self.gone_at().map_or(self.next_ping, |at| at.min(self.next_ping))
    }

    fn gone_at(&self) -> Option<Instant> {
        let since = self.unanswered_since?;
        let time_to_answer = self.limit.saturating_sub(self.interval);
        Some((self.last_activity + self.limit).max(since + time_to_answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn keepalive(start: Instant) -> Keepalive {
        Keepalive::new(30 * SECOND, 90 * SECOND, start)
    }

    #[test]
    fn a_peer_that_answers_nothing_is_gone_after_ninety_seconds() {
        let start = Instant::now();
        let mut keepalive = keepalive(start);
        let mut pings = Vec::new();
        loop {
            let now = keepalive.next_deadline();
            match keepalive.action_at(now) {
                KeepaliveAction::Ping => pings.push((now - start).as_secs()),
                KeepaliveAction::Gone(silent) => {
                    assert_eq!(silent, 90 * SECOND);
                    break;
                }
                KeepaliveAction::Wait => panic!("woken for nothing"),
            }
        }
        assert_eq!(pings, [30, 60]);
    }

    #[test]
    fn a_peer_that_answers_is_pinged_for_ever() {
        let start = Instant::now();
        let mut keepalive = keepalive(start);
        for round in 1..=100 {
            let now = keepalive.next_deadline();
            assert_eq!(now, start + 30 * round * SECOND);
            assert_eq!(keepalive.action_at(now), KeepaliveAction::Ping);
            keepalive.record_activity(now + SECOND);
        }
    }

    #[test]
    fn a_reader_that_was_busy_for_an_hour_gives_the_peer_time_to_answer() {
        let start = Instant::now();
        let mut keepalive = keepalive(start);
        let back = start + 3600 * SECOND;
        assert_eq!(keepalive.action_at(back), KeepaliveAction::Ping);
        assert_eq!(keepalive.action_at(back + 30 * SECOND), KeepaliveAction::Ping);
        assert_eq!(keepalive.action_at(back + 59 * SECOND), KeepaliveAction::Wait);
        assert!(matches!(keepalive.action_at(back + 60 * SECOND), KeepaliveAction::Gone(_)));
    }

    #[test]
    fn an_old_sign_of_life_does_not_answer_a_later_ping() {
        let start = Instant::now();
        let mut keepalive = keepalive(start);
        assert_eq!(keepalive.action_at(start + 30 * SECOND), KeepaliveAction::Ping);
        keepalive.record_activity(start + 10 * SECOND);
        assert_eq!(keepalive.action_at(start + 60 * SECOND), KeepaliveAction::Ping);
        assert!(matches!(keepalive.action_at(start + 100 * SECOND), KeepaliveAction::Gone(_)));
    }
}
