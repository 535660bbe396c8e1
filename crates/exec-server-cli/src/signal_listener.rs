//! Waits for signals that are sent to us; each stands for a value of the caller's choice.

use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) struct SignalListener<T>(Vec<(T, Signal)>);

/// What ends a command that has something to clean up, by number. A terminal that was closed is a reason to stop as well, unless
/// `nohup` has made us ignore that.
pub(crate) fn stop_signals() -> std::io::Result<SignalListener<i32>> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let is_nohup = is_ignored(ignored(), SignalKind::hangup().as_raw_value());
    let wanted = kinds.into_iter().filter(|kind| !(is_nohup && *kind == SignalKind::hangup()));
    SignalListener::listen(wanted.map(|kind| (kind.as_raw_value(), kind.as_raw_value())))
}

/// The signals that we ignore, from /proc: bit n-1 for signal n.
pub(crate) fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

pub(crate) fn is_ignored(ignored: u64, number: i32) -> bool {
    ignored >> (number - 1) & 1 != 0
}

impl<T: Copy> SignalListener<T> {
    /// Each value with the number of its signal.
    pub(crate) fn listen(signals: impl IntoIterator<Item = (T, i32)>) -> std::io::Result<Self> {
        let listen = |(value, number)| Ok((value, signal(SignalKind::from_raw(number))?));
        signals.into_iter().map(listen).collect::<Result<_, _>>().map(Self)
    }

    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> T {
        std::future::poll_fn(|context| {
            for (value, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*value);
                }
            }
            Poll::Pending
        })
        .await
    }
}
