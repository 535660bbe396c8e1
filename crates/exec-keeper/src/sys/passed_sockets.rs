//! Sockets that a service manager has bound for this process and passes to it (`LISTEN_FDS`, as systemd does it).
//!
//! The variables stay as they are, because nobody may change those of a process with threads. Whoever starts children
//! leaves them out: see [`VARIABLES`].

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};

/// What tells a process of its sockets. They are not meant for its children.
pub const VARIABLES: [&str; 4] = ["LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// The number of the first one.
const FIRST: RawFd = 3;

/// More than any unit of a service manager has; a larger number is a mistake.
const MOST: RawFd = 256;

/// Takes the sockets, once; none if there are none, or if they were meant for another process. None is inherited further.
pub fn take() -> io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let count = count(|name| std::env::var(name).ok(), std::process::id()).map_err(io::Error::other)?;
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let mut taken = Vec::new();
    for number in FIRST..FIRST + count {
        // SAFETY: fcntl looks at a number only, whether something is open there or not.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
            return Err(io::Error::other(format!("LISTEN_FDS names descriptor {number}, which is not open")));
        }
        // SAFETY: it is open, whoever started us says that it is ours, and `TAKEN` lets nobody take it twice.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        taken.push(socket);
    }
    Ok(taken)
}

fn count(variable: impl Fn(&str) -> Option<String>, own_pid: u32) -> Result<RawFd, String> {
    let is_for_us = variable("LISTEN_PID").and_then(|pid| pid.parse().ok()) == Some(own_pid);
    match variable("LISTEN_FDS").filter(|_| is_for_us) {
        None => Ok(0),
        Some(text) => match text.parse() {
            Ok(count @ 0..=MOST) => Ok(count),
            _ => Err(format!("LISTEN_FDS is {text:?}, which is not a number from 0 to {MOST}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(pid: Option<&str>, count_text: Option<&str>) -> Result<RawFd, String> {
        let variable = |name: &str| match name {
            "LISTEN_PID" => pid.map(str::to_owned),
            "LISTEN_FDS" => count_text.map(str::to_owned),
            _ => None,
        };
        count(variable, 7)
    }

    #[test]
    fn only_sockets_for_this_process_are_taken() {
        assert_eq!(counted(Some("7"), Some("2")), Ok(2));
        for (pid, count) in [(Some("8"), Some("2")), (None, Some("2")), (Some("7"), None), (Some("x"), Some("1"))] {
            assert_eq!(counted(pid, count), Ok(0));
        }
    }

    #[test]
    fn a_number_that_is_none_is_told() {
        assert_eq!(counted(Some("7"), Some("256")), Ok(256));
        for wrong in ["257", "-1", "two", ""] {
            let error = counted(Some("7"), Some(wrong)).expect_err("it is no number of sockets");
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
    }
}
