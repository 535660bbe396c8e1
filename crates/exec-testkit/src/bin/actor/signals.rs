//! How an actor handles signals, waits and ends.
//!
//! A signal handler only writes a byte to a socket; all waiting is one `poll` over those sockets and what the verb
//! waits for, so what a signal asks for is done by ordinary code and nothing inside the handler.

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

use crate::ActorState;
use crate::output::line;
use crate::program::{VerbCall, fail};

/// An actor that a failed test left behind ends by itself after this long.
const LONGEST_LIFE: Duration = Duration::from_secs(600);

pub(crate) fn run(state: &mut ActorState, call: &VerbCall) -> bool {
    match call.verb.as_str() {
        "ignore-term" => ignore(SIGTERM),
        "ignore-int" => ignore(SIGINT),
        "ignore-hup" => ignore(SIGHUP),
        "on-term" => state.handlers.add(SIGTERM, SignalAction::PrintAndExit(call.text())),
        "tell-term" => state.handlers.add(SIGTERM, SignalAction::Print(call.text())),
        "on-int" => state.handlers.add(SIGINT, SignalAction::PrintAndExit(call.text())),
        "winch" => winch(state),
        "signal-self" => die_by(call.number(0)),
        "stop-self" => raise(SIGSTOP),
        "sleep" => {
            let until = Instant::now() + Duration::from_millis(call.number(0));
            state.handlers.wait(None, Some(until));
        }
        "wait-forever" => {
            state.handlers.wait(None, None);
        }
        "exit" => std::process::exit(call.number(0)),
        "abort" => die_by(SIGABRT),
        _ => return false,
    }
    true
}

#[derive(Default)]
pub(crate) struct SignalHandlers(Vec<SignalHandler>);

struct SignalHandler {
    signal: i32,
    socket: UnixStream,
    action: SignalAction,
}

#[derive(Clone)]
enum SignalAction {
    PrintAndExit(OsString),
    Print(OsString),
    Wake,
}

/// Why a wait ended.
#[derive(PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    Readable,
    DeadlinePassed,
    Woken,
}

impl SignalHandlers {
    fn add(&mut self, signal: i32, action: SignalAction) {
        let pair = UnixStream::pair().and_then(|(ours, handlers)| {
            signal_hook::low_level::pipe::register(signal, handlers)?;
            Ok(ours)
        });
        match pair {
            Ok(socket) => self.0.push(SignalHandler { signal, socket, action }),
            Err(error) => fail(&format!("cannot watch for signal {signal}: {error}")),
        }
    }

    /// Waits until `fd` is readable or `until` has come, handling signals meanwhile.
    pub(crate) fn wait(&mut self, fd: Option<BorrowedFd<'_>>, until: Option<Instant>) -> WaitOutcome {
        let end_of_life = Instant::now() + LONGEST_LIFE;
        let end = until.unwrap_or(end_of_life);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut fds: Vec<PollFd<'_>> =
                self.0.iter().map(|handler| PollFd::from_borrowed_fd(handler.socket.as_fd(), PollFlags::IN)).collect();
            fds.extend(fd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) if until.is_some() => return WaitOutcome::DeadlinePassed,
                Ok(0) => std::process::exit(97),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => fail(&format!("cannot wait: {error}")),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            for (handler, _) in self.0.iter_mut().zip(&ready).filter(|(_, ready)| **ready) {
                if handler.handle() {
                    return WaitOutcome::Woken;
                }
            }
            if fd.is_some() && ready.last() == Some(&true) {
                return WaitOutcome::Readable;
            }
        }
    }
}

impl SignalHandler {
    /// Does what this signal asks for; whether the wait is over.
    fn handle(&mut self) -> bool {
        if let Err(error) = self.socket.read(&mut [0; 64]) {
            fail(&format!("cannot learn of signal {}: {error}", self.signal));
        }
        match &self.action {
            SignalAction::PrintAndExit(text) => {
                line(stdout(), text.as_bytes());
                std::process::exit(0)
            }
            SignalAction::Print(text) => {
                line(stdout(), text.as_bytes());
                false
            }
            SignalAction::Wake => true,
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
        fail(&format!("cannot die by signal {signal}: {error}"));
    }
}

/// Prints the size, waits for SIGWINCH, prints the new size.
fn winch(state: &mut ActorState) {
    state.handlers.add(SIGWINCH, SignalAction::Wake);
    crate::introspection::size(stdin());
    while state.handlers.wait(None, None) != WaitOutcome::Woken {}
    crate::introspection::size(stdin());
}

/// A handler that does nothing of note; unlike a true "ignore" it is not inherited by descendants, who say for
/// themselves what they ignore.
fn ignore(signal: i32) {
    if let Err(error) = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))) {
        fail(&format!("cannot ignore signal {signal}: {error}"));
    }
}

fn raise(signal: i32) {
    if let Err(error) = signal_hook::low_level::raise(signal) {
        fail(&format!("cannot raise signal {signal}: {error}"));
    }
}
