//! Files: every `fs/*` method.
//!
//! Reading order: contents ([`content`]), names and trees ([`tree`]), permissions,
//! times and links ([`attributes`]), what goes on for longer ([`watch`], [`search`]).
//! Every method takes a `sandbox` as Codex's server has it. Members marked as ours are named in
//! [`Extension`](crate::Extension).

pub mod attributes;
pub mod content;
pub mod search;
pub mod tree;
pub mod watch;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use attributes::*;
pub use content::*;
pub use search::*;
pub use tree::*;
pub use watch::*;

/// The nanoseconds since 1970 that the wire has for a time; negative before. 292 years fit on either side.
pub fn nanoseconds_of(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanoseconds| -nanoseconds),
    }
}

/// The time that so many nanoseconds since 1970 stand for.
pub fn time_of(nanoseconds: i64) -> SystemTime {
    let span = Duration::from_nanos(nanoseconds.unsigned_abs());
    let time = if nanoseconds < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) };
    time.unwrap_or(UNIX_EPOCH)
}
