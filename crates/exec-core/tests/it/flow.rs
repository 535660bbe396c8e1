//! Space in a spool, floods, and batches of terminal output.

use std::time::{Duration, Instant};

use exec_core::Overflow;
use exec_core::flow::{FloodDetector, Flush, PtyBatcher, Quota, SpaceDecision, splice_bytes};
use exec_core::limits::{ENTRY_BYTES, PTY_BATCH_TIME, PTY_ECHO_BYTES, PTY_ECHO_GAP, PUNCH_BYTES, SPLICE_BYTES};
use proptest::prelude::*;

proptest! {
    /// Free below the cap; above it whole steps that cover the excess, and never more than a step too many.
    #[test]
    fn a_full_spool_drops_its_excess_in_whole_steps(
        cap_bytes in 1_u64..1 << 40,
        cost_bytes in 0_u64..1 << 41,
        shared in prop_oneof![Just(0), 0_u64..1 << 41],
    ) {
        let quota = Quota { cap_bytes, overflow: Overflow::DropOldest };
        let excess = cost_bytes.saturating_sub(cap_bytes).max(shared.min(cost_bytes));
        match quota.decide_space(cost_bytes, shared) {
            SpaceDecision::Free => prop_assert_eq!(excess, 0),
            SpaceDecision::Drop { bytes } => {
                let step = PUNCH_BYTES.min(cap_bytes / 8).max(1);
                prop_assert!(excess > 0 && bytes >= excess && bytes < excess + step);
                prop_assert_eq!(bytes % step, 0);
            }
            SpaceDecision::Wait => prop_assert!(false, "dropOldest never waits"),
        }
    }

    /// `block` waits exactly when `dropOldest` would drop, and never drops.
    #[test]
    fn a_blocking_spool_waits_where_another_would_drop(
        cap_bytes in 1_u64..1 << 30,
        cost_bytes in 0_u64..1 << 31,
        shared in prop_oneof![Just(0), 0_u64..1 << 31],
    ) {
        let dropping = Quota { cap_bytes, overflow: Overflow::DropOldest };
        let blocking = Quota { cap_bytes, overflow: Overflow::Block };
        let waits = dropping.decide_space(cost_bytes, shared) != SpaceDecision::Free;
        let expected = if waits { SpaceDecision::Wait } else { SpaceDecision::Free };
        prop_assert_eq!(blocking.decide_space(cost_bytes, shared), expected);
    }

    /// A pipe is enlarged once, at the third full splice in a row, and a small one in between begins the count anew.
    #[test]
    fn a_pipe_is_enlarged_once_and_only_when_it_floods(
        splices in prop::collection::vec(prop_oneof![0..ENTRY_BYTES, ENTRY_BYTES..=SPLICE_BYTES], 0..600),
    ) {
        let mut detector = FloodDetector::default();
        let told: Vec<usize> = (0..splices.len())
            .filter(|index| detector.observe(splices[*index]))
            .collect();
        let full = |bytes: &u32| *bytes >= ENTRY_BYTES;
        let third = splices.windows(3).position(|three| three.iter().all(full));
        prop_assert_eq!(told, third.map(|first| first + 2).into_iter().collect::<Vec<_>>());
    }

    /// Batched output becomes an entry at once after a quiet time, at 64 KiB, or soon; never two in a short time, which
    /// is a very short one for a few bytes.
    #[test]
    fn batched_output_is_flushed_at_once_or_soon(
        reads in prop::collection::vec((0_u64..5000, 1_u32..=4095, any::<bool>()), 1..300),
    ) {
        let mut now = Instant::now();
        let mut batcher = PtyBatcher::default();
        let mut batched = 0;
        let mut flushed: Option<Instant> = None;
        for (passed_us, bytes, more) in reads {
            now += Duration::from_micros(passed_us);
            batched += bytes;
            let gap = if batched < PTY_ECHO_BYTES { PTY_ECHO_GAP } else { PTY_BATCH_TIME };
            let quiet = flushed.is_none_or(|at| now >= at + gap);
            let late = flushed.is_some_and(|at| now >= at + 2 * PTY_BATCH_TIME);
            match batcher.on_read(batched, more, now) {
                Flush::Now => {
                    prop_assert!(batched >= ENTRY_BYTES || quiet, "too soon after the last");
                    flushed = Some(now);
                    batched = 0;
                }
                Flush::By(moment) => {
                    prop_assert!(batched < ENTRY_BYTES, "a full entry waits for nothing");
                    prop_assert!(more || !quiet, "an echo waits for nothing");
                    prop_assert!(!late, "nothing waits for two batch times");
                    prop_assert!(moment > now, "a moment that has passed wakes nobody");
                    prop_assert!(moment <= now + PTY_BATCH_TIME);
                }
            }
        }
    }

    /// Who waits as told and asks again with nothing new gets an entry.
    #[test]
    fn what_was_told_to_wait_is_flushed_when_the_moment_comes(
        before_us in 0_u64..4000,
        bytes in 1..ENTRY_BYTES,
    ) {
        let start = Instant::now();
        let mut batcher = PtyBatcher::default();
        prop_assert_eq!(batcher.on_read(1, false, start), Flush::Now);
        let now = start + Duration::from_micros(before_us);
        if let Flush::By(moment) = batcher.on_read(bytes, false, now) {
            prop_assert_eq!(batcher.on_read(bytes, false, moment), Flush::Now);
        }
    }
}

#[test]
fn a_splice_is_one_entry_while_others_wait() {
    assert_eq!((splice_bytes(true), splice_bytes(false)), (ENTRY_BYTES, SPLICE_BYTES));
}

#[test]
fn steps_of_a_small_spool_are_an_eighth_of_it() {
    let decide = |cap_bytes| Quota { cap_bytes, overflow: Overflow::DropOldest }.decide_space(cap_bytes + 1, 0);
    assert_eq!(decide(800), SpaceDecision::Drop { bytes: 100 });
    assert_eq!(decide(1), SpaceDecision::Drop { bytes: 1 });
    assert_eq!(decide(64 * PUNCH_BYTES), SpaceDecision::Drop { bytes: PUNCH_BYTES });
}

/// The moments of a terminal that floods, one by one.
#[test]
fn a_batch_becomes_an_entry_at_its_bounds() {
    let start = Instant::now();
    let flooding = || {
        let mut batcher = PtyBatcher::default();
        assert_eq!(batcher.on_read(1, true, start), Flush::By(start + Duration::from_micros(1)));
        assert_eq!(batcher.on_read(1, false, start), Flush::Now);
        batcher
    };
    // A few bytes wait for the short time, more for the long one; both only while the terminal is silent.
    let (echo, batch) = (start + PTY_ECHO_GAP, start + PTY_BATCH_TIME);
    assert_eq!(flooding().on_read(PTY_ECHO_BYTES - 1, false, start), Flush::By(echo));
    assert_eq!(flooding().on_read(PTY_ECHO_BYTES - 1, false, echo), Flush::Now);
    assert_eq!(flooding().on_read(PTY_ECHO_BYTES, false, echo), Flush::By(batch));
    assert_eq!(flooding().on_read(PTY_ECHO_BYTES, false, batch), Flush::Now);
    let soon = batch + Duration::from_micros(1);
    assert_eq!(flooding().on_read(PTY_ECHO_BYTES, true, batch), Flush::By(soon));
    assert_eq!(flooding().on_read(PTY_ECHO_BYTES, true, batch + PTY_BATCH_TIME), Flush::Now);
    assert_eq!(flooding().on_read(ENTRY_BYTES - 1, true, start), Flush::By(batch));
    assert_eq!(flooding().on_read(ENTRY_BYTES, true, start), Flush::Now);
}
