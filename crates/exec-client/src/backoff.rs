//! How long to rest between two tries: doubling, bounded, with jitter, so that many clients of a server that comes back
//! do not arrive together. Pure: the generator is seeded.

use std::time::Duration;

use crate::limits::{BACKOFF_FIRST, BACKOFF_MOST};

/// A seeded random number generator (SplitMix64). Good enough for jitter; not for secrets.
#[derive(Debug, Clone)]
pub struct SeededRng(u64);

impl SeededRng {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The rest after try number `attempt` (from 1) failed: half of the full rest for certain, the other half by chance.
pub(crate) fn delay(attempt: u32, rng: &mut SeededRng) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    let full = BACKOFF_FIRST.saturating_mul(1 << doublings).min(BACKOFF_MOST);
    let half = full / 2;
    half + half.mul_f64(rng.below(1001) as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_up_to_the_longest_and_never_fall_below_half() {
        let mut rng = SeededRng::new(1);
        for attempt in 1..40 {
            let full = BACKOFF_FIRST.saturating_mul(1 << (attempt - 1).min(16)).min(BACKOFF_MOST);
            let found = delay(attempt, &mut rng);
            assert!(found >= full / 2 && found <= full, "attempt {attempt}: {found:?} of {full:?}");
        }
    }
}
