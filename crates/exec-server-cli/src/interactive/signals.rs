//! Signals sent to us, as events.
//!
//! One that was ignored when we were started stays ignored: that is how `nohup` and a shell's `&` protect a program,
//! and passing it on would undo it.

use std::task::Poll;

use exec_core::Signal;
use rustix::process::Signal as Raw;
use tokio::signal::unix::{Signal as Listener, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalAction {
    /// The child is to have it.
    Forward(Signal),
    /// Our terminal has another size.
    Resize,
    /// Ctrl-Z: we and the child stop until somebody resumes us.
    SuspendBoth,
    /// Ctrl-Z: we stop, and the child goes on.
    SuspendSelf,
    /// We leave, and the child goes on.
    Detach,
}

/// What the child is to us, which decides what a signal to us means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// It lives and dies with us.
    Owned,
    /// It was there before us and goes on after us.
    Attached {
        /// Ctrl-\ is a key of our terminal, which sends us QUIT; it is the way to leave.
        quit_detaches: bool,
    },
}

/// The signals we listen to.
pub(crate) struct Signals(Vec<(SignalAction, Listener)>);

impl Signals {
    /// `resizes`: the child has a terminal that follows ours.
    pub(crate) fn listen(ownership: Ownership, resizes: bool) -> std::io::Result<Self> {
        let signals =
            [Signal::Hangup, Signal::Interrupt, Signal::Quit, Signal::Terminate, Signal::User1, Signal::User2];
        let action_for = |signal| match (ownership, signal) {
            (Ownership::Attached { .. }, Signal::Hangup)
            | (Ownership::Attached { quit_detaches: true }, Signal::Quit) => SignalAction::Detach,
            _ => SignalAction::Forward(signal),
        };
        let mut wanted = signals.map(|signal| (action_for(signal), signal.number())).to_vec();
        wanted.push((
            if ownership == Ownership::Owned { SignalAction::SuspendBoth } else { SignalAction::SuspendSelf },
            Raw::TSTP.as_raw(),
        ));
        if resizes {
            wanted.push((SignalAction::Resize, Signal::WindowChange.number()));
        }
        let ignored = ignored();
        let wanted = wanted.into_iter().filter(|(_, number)| ignored >> (number - 1) & 1 == 0);
        wanted
            .map(|(action, number)| Ok((action, signal(SignalKind::from_raw(number))?)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The next one. Cancelling it loses nothing.
    pub(crate) async fn next(&mut self) -> SignalAction {
        std::future::poll_fn(|context| {
            for (action, listener) in &mut self.0 {
                if listener.poll_recv(context).is_ready() {
                    return Poll::Ready(*action);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals we ignore, as the kernel tells: bit n-1 for signal n.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Stops us as Ctrl-Z would have, had we not listened. Returns when we are resumed.
pub(crate) fn stop_ourselves() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Raw::STOP);
}
