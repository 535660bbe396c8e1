//! Room, floods and the gathering of terminal output.

use std::time::{Duration, Instant};

use exec_core::Overflow;
use exec_core::flow::{Flood, Gather, Quota, Room, Seal, bite_bytes};
use exec_core::limits::{BITE_BYTES, ENTRY_BYTES, PTY_ECHO_BYTES, PTY_ECHO_GAP, PTY_GATHER, PUNCH_BYTES};
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
        match quota.room(cost_bytes, shared) {
            Room::Free => prop_assert_eq!(excess, 0),
            Room::Drop { bytes } => {
                let step = PUNCH_BYTES.min(cap_bytes / 8).max(1);
                prop_assert!(excess > 0 && bytes >= excess && bytes < excess + step);
                prop_assert_eq!(bytes % step, 0);
            }
            Room::Wait => prop_assert!(false, "dropOldest never waits"),
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
        let waits = dropping.room(cost_bytes, shared) != Room::Free;
        let expected = if waits { Room::Wait } else { Room::Free };
        prop_assert_eq!(blocking.room(cost_bytes, shared), expected);
    }

    /// A pipe is enlarged once, at the third full splice in a row, and a small one in between begins the count anew.
    #[test]
    fn a_pipe_is_enlarged_once_and_only_when_it_floods(
        splices in prop::collection::vec(prop_oneof![0..ENTRY_BYTES, ENTRY_BYTES..=BITE_BYTES], 0..600),
    ) {
        let mut flood = Flood::default();
        let told: Vec<usize> = (0..splices.len())
            .filter(|index| flood.observe(splices[*index]))
            .collect();
        let full = |bytes: &u32| *bytes >= ENTRY_BYTES;
        let third = splices.windows(3).position(|three| three.iter().all(full));
        prop_assert_eq!(told, third.map(|first| first + 2).into_iter().collect::<Vec<_>>());
    }

    /// Gathered output becomes an entry at once after a quiet time, at 64 KiB, or soon; never two in a short time, which
    /// is a very short one for a few bytes.
    #[test]
    fn gathered_output_is_sealed_at_once_or_soon(
        reads in prop::collection::vec((0_u64..5000, 1_u32..=4095, any::<bool>()), 1..300),
    ) {
        let mut now = Instant::now();
        let mut gather = Gather::default();
        let mut gathered = 0;
        let mut sealed: Option<Instant> = None;
        for (passed_us, bytes, more) in reads {
            now += Duration::from_micros(passed_us);
            gathered += bytes;
            let gap = if gathered < PTY_ECHO_BYTES { PTY_ECHO_GAP } else { PTY_GATHER };
            let quiet = sealed.is_none_or(|at| now >= at + gap);
            let late = sealed.is_some_and(|at| now >= at + 2 * PTY_GATHER);
            match gather.weigh(gathered, more, now) {
                Seal::Now => {
                    prop_assert!(gathered >= ENTRY_BYTES || quiet, "too soon after the last");
                    sealed = Some(now);
                    gathered = 0;
                }
                Seal::By(moment) => {
                    prop_assert!(gathered < ENTRY_BYTES, "a full entry waits for nothing");
                    prop_assert!(more || !quiet, "an echo waits for nothing");
                    prop_assert!(!late, "nothing waits for two gathering times");
                    prop_assert!(moment > now, "a moment that has passed wakes nobody");
                    prop_assert!(moment <= now + PTY_GATHER);
                }
            }
        }
    }

    /// Who waits as told and asks again with nothing new gets an entry.
    #[test]
    fn what_was_told_to_wait_is_sealed_when_the_moment_comes(
        before_us in 0_u64..4000,
        bytes in 1..ENTRY_BYTES,
    ) {
        let start = Instant::now();
        let mut gather = Gather::default();
        prop_assert_eq!(gather.weigh(1, false, start), Seal::Now);
        let now = start + Duration::from_micros(before_us);
        if let Seal::By(moment) = gather.weigh(bytes, false, now) {
            prop_assert_eq!(gather.weigh(bytes, false, moment), Seal::Now);
        }
    }
}

#[test]
fn a_bite_is_one_entry_while_others_wait() {
    assert_eq!((bite_bytes(true), bite_bytes(false)), (ENTRY_BYTES, BITE_BYTES));
}
