//! A transport with faults at seeded moments: it cuts, delays, freezes, and delivers messages twice.
//!
//! It connects two memory pairs and passes whole messages. Messages of the server may be delivered twice (a client must
//! drop what it has already); messages of the client are delivered once, because a network repeats bytes, never
//! requests. A cut drops both ends at once, with whatever was on its way.

use std::time::Duration;

use exec_transport::{CloseReason, Connection, Received, Receiver, Sender, memory_pair};

use crate::test_data::SeededRng;

/// Messages a memory pair holds; small, so that stalls are felt.
const CAPACITY: usize = 8;

/// How often each fault happens, in messages.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// One message in this many cuts the connection.
    pub cut_one_in: usize,
    /// One in this many waits a few milliseconds.
    pub delay_one_in: usize,
    /// One in this many stops everything for longer.
    pub freeze_one_in: usize,
    /// One of the server's in this many is delivered twice.
    pub duplicate_one_in: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Self { cut_one_in: 60, delay_one_in: 30, freeze_one_in: 200, duplicate_one_in: 20 }
    }
}

/// The two ends of a connection with `faults`, and the relay between them, which the caller must spawn and own.
pub fn faulty_pair(faults: Faults, seed: u64) -> (Connection, Connection, impl Future<Output = ()> + Send) {
    let (client, near) = memory_pair(CAPACITY);
    let (far, server) = memory_pair(CAPACITY);
    let relay = async move {
        let up =
            pass(near.receiver, far.sender, Faults { duplicate_one_in: usize::MAX, ..faults }, SeededRng::new(seed));
        let down = pass(far.receiver, near.sender, faults, SeededRng::new(seed ^ 0x5555_5555));
        // Whichever ends first takes the other with it: dropping both is the cut.
        tokio::select! {
            () = up => {}
            () = down => {}
        }
    };
    (client, server, relay)
}

async fn pass(mut from: Receiver, mut to: Sender, faults: Faults, mut rng: SeededRng) {
    let mut happens = |one_in: usize| one_in != usize::MAX && rng.below(one_in) == 0;
    while let Received::Message(message) = from.next().await {
        if happens(faults.cut_one_in) {
            return;
        }
        if happens(faults.delay_one_in) {
            // not a wait: the delay is the fault
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        if happens(faults.freeze_one_in) {
            // not a wait: the freeze is the fault
            tokio::time::sleep(Duration::from_millis(120)).await;
        }
        if happens(faults.duplicate_one_in) && to.feed(message.clone()).await.is_err() {
            return;
        }
        if to.feed(message).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    to.close(CloseReason::normal()).await;
}
