//! Slows down whoever tries one wrong token after another. Pure: time is an argument.
//!
//! An address may be wrong a few times. After that its tokens are looked at one at a time, with a pause before each, so
//! that trying many at once gains nothing. A right token has to wait its turn too, because before it is looked at nobody
//! knows that it is right; but it gets its turn, and other addresses notice nothing.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{AUTH_ADDRESSES, AUTH_FORGET_AFTER, AUTH_FREE_FAILURES, AUTH_MAX_WAIT, AUTH_PAUSE};

#[derive(Debug, Default)]
pub(super) struct AuthThrottle {
    addresses: HashMap<IpAddr, Failures>,
}

#[derive(Debug)]
struct Failures {
    count: u32,
    last: Instant,
    next_turn: Instant,
}

impl AuthThrottle {
    /// How long a token from this address waits before it is looked at. `None` if too many wait already.
    pub(super) fn wait_for_turn(&mut self, address: IpAddr, now: Instant) -> Option<Duration> {
        let Some(failures) = self.addresses.get_mut(&self.key(address)) else { return Some(Duration::ZERO) };
        if failures.count < AUTH_FREE_FAILURES || now >= failures.last + AUTH_FORGET_AFTER {
            return Some(Duration::ZERO);
        }
        let turn = failures.next_turn.max(now);
        let wait = turn - now;
        if wait > AUTH_MAX_WAIT {
            return None;
        }
        failures.next_turn = turn + AUTH_PAUSE;
        Some(wait)
    }

    pub(super) fn record_failure(&mut self, address: IpAddr, now: Instant) {
        if self.addresses.len() >= AUTH_ADDRESSES {
            self.addresses.retain(|_, failures| now < failures.last + AUTH_FORGET_AFTER);
        }
        let key = self.key(address);
        let failures =
            self.addresses.entry(key).or_insert_with(|| Failures { count: 0, last: now, next_turn: now + AUTH_PAUSE });
        if now >= failures.last + AUTH_FORGET_AFTER {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
    }

    /// When there are too many addresses, all new ones are counted as one.
    fn key(&self, address: IpAddr) -> IpAddr {
        let key = network_of(address);
        let full = self.addresses.len() >= AUTH_ADDRESSES && !self.addresses.contains_key(&key);
        if full { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { key }
    }
}

/// What counts as one address. A network of IPv6 has more addresses than anybody could count, so its first half counts.
pub(super) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Option<Duration> = Some(Duration::ZERO);

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn after_some_failures_tokens_wait_for_each_other_and_others_notice_nothing() {
        let (mut throttle, now) = (AuthThrottle::default(), Instant::now());
        let (guilty, innocent) = (address("10.0.0.1"), address("10.0.0.2"));
        for _ in 0..AUTH_FREE_FAILURES {
            assert_eq!(throttle.wait_for_turn(guilty, now), FREE);
            throttle.record_failure(guilty, now);
        }
        assert_eq!(throttle.wait_for_turn(guilty, now), Some(AUTH_PAUSE));
        assert_eq!(throttle.wait_for_turn(guilty, now), Some(AUTH_PAUSE * 2));
        assert_eq!(throttle.wait_for_turn(innocent, now), FREE);
        while throttle.wait_for_turn(guilty, now).is_some() {}
        assert_eq!(throttle.wait_for_turn(guilty, now + AUTH_FORGET_AFTER), FREE);
    }

    #[test]
    fn a_whole_network_of_ipv6_is_one_address_and_a_flood_of_addresses_takes_no_memory() {
        let (mut throttle, now) = (AuthThrottle::default(), Instant::now());
        for at in 0..AUTH_FREE_FAILURES {
            throttle.record_failure(address(&format!("2001:db8::{at}")), now);
        }
        assert_eq!(throttle.wait_for_turn(address("2001:db8::ffff"), now), Some(AUTH_PAUSE));
        for at in 0..2 * AUTH_ADDRESSES as u32 {
            throttle.record_failure(IpAddr::V4((at + 1).into()), now);
        }
        assert!(throttle.addresses.len() <= AUTH_ADDRESSES + 1);
    }
}
