//! How an actor takes signals, waits and ends.
//!
//! A signal handler only writes a byte to a socket; all waiting is one `poll` over those sockets and what the verb
//! waits for, so answers are printed by ordinary code and nothing is done inside a handler.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::{stdin, stdout};
use signal_hook::consts::{SIGABRT, SIGBUS, SIGHUP, SIGINT, SIGPIPE, SIGSEGV, SIGSTOP, SIGTERM, SIGWINCH};

use crate::Stage;
use crate::script::{Step, reject};
use crate::speech::line;

/// An actor that a failed test left behind ends by itself after this long.
const LONGEST_LIFE: Duration = Duration::from_secs(600);

pub(crate) fn perform(stage: &mut Stage, step: &Step) -> bool {
    match step.verb.as_str() {
        "ignore-term" => ignore(SIGTERM),
        "ignore-int" => ignore(SIGINT),
        "ignore-hup" => ignore(SIGHUP),
        "on-term" => stage.watches.add(SIGTERM, Answer::SayAndExit(step.text())),
        "tell-term" => stage.watches.add(SIGTERM, Answer::Say(step.text())),
        "on-int" => stage.watches.add(SIGINT, Answer::SayAndExit(step.text())),
        "winch" => winch(stage),
        "signal-self" => die_by(step.number(0)),
        "stop-self" => raise(SIGSTOP),
        "sleep" => {
            let until = Instant::now() + Duration::from_millis(step.number(0));
            stage.watches.rest(None, Some(until));
        }
        "wait-forever" => {
            stage.watches.rest(None, None);
        }
        "exit" => std::process::exit(step.number(0)),
        "abort" => die_by(SIGABRT),
        _ => return false,
    }
    true
}

/// Signals that are answered, and how.
#[derive(Default)]
pub(crate) struct Watches(Vec<Watch>);

struct Watch {
    signal: i32,
    socket: UnixStream,
    answer: Answer,
}

#[derive(Clone)]
enum Answer {
    SayAndExit(OsString),
    Say(OsString),
    Wake,
}

/// Why a rest ended.
#[derive(PartialEq, Eq)]
pub(crate) enum Rested {
    Readable,
    TimeIsUp,
    Woken,
}

impl Watches {
    fn add(&mut self, signal: i32, answer: Answer) {
        let pair = UnixStream::pair().and_then(|(ours, handlers)| {
            signal_hook::low_level::pipe::register(signal, handlers)?;
            Ok(ours)
        });
        match pair {
            Ok(socket) => self.0.push(Watch { signal, socket, answer }),
            Err(error) => reject(&format!("cannot watch for signal {signal}: {error}")),
        }
    }

    /// Waits until `fd` is readable or `until` has come, answering signals meanwhile.
    pub(crate) fn rest(&mut self, fd: Option<BorrowedFd<'_>>, until: Option<Instant>) -> Rested {
        let end_of_life = Instant::now() + LONGEST_LIFE;
        let end = until.unwrap_or(end_of_life);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut fds: Vec<PollFd<'_>> =
                self.0.iter().map(|watch| PollFd::from_borrowed_fd(watch.socket.as_fd(), PollFlags::IN)).collect();
            fds.extend(fd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) if until.is_some() => return Rested::TimeIsUp,
                Ok(0) => std::process::exit(97),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => reject(&format!("cannot wait: {error}")),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            for (watch, _) in self.0.iter_mut().zip(&ready).filter(|(_, ready)| **ready) {
                if watch.answer() {
                    return Rested::Woken;
                }
            }
            if fd.is_some() && ready.last() == Some(&true) {
                return Rested::Readable;
            }
        }
    }
}

impl Watch {
    /// Does what was promised for this signal; whether the rest is over.
    fn answer(&mut self) -> bool {
        if let Err(error) = self.socket.read(&mut [0; 64]) {
            reject(&format!("cannot hear of signal {}: {error}", self.signal));
        }
        match &self.answer {
            Answer::SayAndExit(text) => {
                line(stdout(), text.as_bytes());
                std::process::exit(0)
            }
            Answer::Say(text) => {
                line(stdout(), text.as_bytes());
                false
            }
            Answer::Wake => true,
        }
    }
}

/// Ends by a signal as a plain program would: Rust's runtime handles SIGBUS and SIGSEGV and ignores SIGPIPE, so for
/// those the default is restored first.
pub(crate) fn die_by(signal: i32) {
    if !matches!(signal, SIGBUS | SIGSEGV | SIGPIPE) {
        return raise(signal);
    }
    if let Err(error) = signal_hook::low_level::emulate_default_handler(signal) {
        reject(&format!("cannot die by signal {signal}: {error}"));
    }
}

/// Prints the size, waits for SIGWINCH, prints the new size.
fn winch(stage: &mut Stage) {
    stage.watches.add(SIGWINCH, Answer::Wake);
    crate::facts::size(stdin());
    while stage.watches.rest(None, None) != Rested::Woken {}
    crate::facts::size(stdin());
}

/// A handler that does nothing of note; unlike a true "ignore" it is not inherited by descendants, who say for
/// themselves what they ignore.
fn ignore(signal: i32) {
    if let Err(error) = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))) {
        reject(&format!("cannot ignore signal {signal}: {error}"));
    }
}

fn raise(signal: i32) {
    if let Err(error) = signal_hook::low_level::raise(signal) {
        reject(&format!("cannot raise signal {signal}: {error}"));
    }
}
