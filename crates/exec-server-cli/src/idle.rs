//! When a server ends that nobody uses (`serve --exit-when-idle`).

use std::time::{Duration, Instant};

/// The least and the longest time between two looks.
const LOOK_LEAST: Duration = Duration::from_millis(10);
const LOOK_MOST: Duration = Duration::from_secs(15);

/// How long a server has been of no use.
#[derive(Debug)]
pub(crate) struct IdleTime {
    limit: Duration,
    since: Option<Instant>,
}

impl IdleTime {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, since: None }
    }

    /// How often to look: often enough that the limit is not passed by much.
    pub(crate) fn look_interval(&self) -> Duration {
        (self.limit / 4).clamp(LOOK_LEAST, LOOK_MOST)
    }

    /// Whether it is time to end, as of a look that found it idle or not. One use begins the time anew.
    pub(crate) fn is_over(&mut self, is_idle: bool, now: Instant) -> bool {
        if !is_idle {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.duration_since(since) >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_over_when_every_look_for_so_long_found_it_idle() {
        let (begin, limit) = (Instant::now(), Duration::from_secs(600));
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut idle = IdleTime::new(limit);
        assert!(!idle.is_over(true, at(0)) && !idle.is_over(true, at(599)));
        assert!(!idle.is_over(false, at(599)), "somebody came");
        assert!(!idle.is_over(true, at(600)) && !idle.is_over(true, at(1199)), "it begins anew");
        assert!(idle.is_over(true, at(1200)));
    }

    #[test]
    fn looks_are_neither_too_many_nor_too_few() {
        let interval = |millis| IdleTime::new(Duration::from_millis(millis)).look_interval();
        assert_eq!([interval(0), interval(400), interval(600_000)].map(|time| time.as_millis()), [10, 100, 15_000]);
    }
}
