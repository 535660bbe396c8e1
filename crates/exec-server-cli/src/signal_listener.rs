//! Waits for signals that are sent to us; each stands for a value of the caller's choice.

use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) struct SignalListener<T>(Vec<(T, Signal)>);

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
