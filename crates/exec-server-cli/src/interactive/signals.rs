//! Signals sent to us, as events.
//!
//! A signal that was ignored when we were started stays ignored: that is how `nohup` and a shell's `&` protect a program,
//! and forwarding it would undo that.

use exec_core::Signal;
use rustix::process::Signal as Raw;

use crate::signal_listener::{self, SignalListener};

/// What is to be done about a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalAction {
    Forward(Signal),
    Resize,
    /// Ctrl-Z: we and the child stop until we are resumed.
    SuspendBoth,
    /// Ctrl-Z: we stop, and the child goes on.
    SuspendSelf,
    Detach,
}

/// Whether the child is ours, which decides what signals to us mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// We have started it, and it ends with us.
    Owned,
    /// It was detached, and goes on after us.
    Attached {
        /// Our terminal is not raw and turns Ctrl-\ into QUIT, which is the key to leave.
        quit_detaches: bool,
    },
}

/// `resizes`: the child has a terminal that is to have the size of ours.
pub(crate) fn listen(ownership: Ownership, resizes: bool) -> std::io::Result<SignalListener<SignalAction>> {
    let signals = [Signal::Hangup, Signal::Interrupt, Signal::Quit, Signal::Terminate, Signal::User1, Signal::User2];
    let action_for = |signal| match (ownership, signal) {
        (Ownership::Attached { .. }, Signal::Hangup) | (Ownership::Attached { quit_detaches: true }, Signal::Quit) => {
            SignalAction::Detach
        }
        _ => SignalAction::Forward(signal),
    };
    let mut wanted = signals.map(|signal| (action_for(signal), signal.number())).to_vec();
    let suspend = if ownership == Ownership::Owned { SignalAction::SuspendBoth } else { SignalAction::SuspendSelf };
    wanted.push((suspend, Raw::TSTP.as_raw()));
    if resizes {
        wanted.push((SignalAction::Resize, Signal::WindowChange.number()));
    }
    let ignored = signal_listener::ignored();
    SignalListener::listen(wanted.into_iter().filter(|(_, number)| !signal_listener::is_ignored(ignored, *number)))
}

/// Stops us as Ctrl-Z does by default. Returns when we are resumed.
pub(crate) fn stop_ourselves() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Raw::STOP);
}
