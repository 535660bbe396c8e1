//! A transport that misbehaves at seeded steps: it cuts, delays, freezes, and says things twice.
//!
//! It stands between two memory pairs and passes whole messages. What the server says may be said twice (a client must
//! drop what it has heard); what the client says is passed once, because a network repeats bytes, never requests. A
//! cut drops both ends at once, with whatever was on its way.

use std::time::Duration;

use exec_transport::{CloseReason, Connection, Received, Receiver, Sender, memory_pair};

use crate::pattern::Dice;

/// Messages a memory pair holds; small, so that stalls are felt.
const CAPACITY: usize = 8;

/// How often what happens, in messages.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// One message in this many cuts the connection.
    pub cut_one_in: usize,
    /// One in this many waits a few milliseconds.
    pub delay_one_in: usize,
    /// One in this many stops everything for longer.
    pub freeze_one_in: usize,
    /// One of the server's in this many is said twice.
    pub twice_one_in: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Self { cut_one_in: 60, delay_one_in: 30, freeze_one_in: 200, twice_one_in: 20 }
    }
}

/// The two ends of a connection over which `faults` happen; and what carries it, to be spawned and owned by the caller.
pub fn faulty_pair(faults: Faults, seed: u64) -> (Connection, Connection, impl Future<Output = ()> + Send) {
    let (client, near) = memory_pair(CAPACITY);
    let (far, server) = memory_pair(CAPACITY);
    let carrier = async move {
        let up = pass(near.receiver, far.sender, Faults { twice_one_in: usize::MAX, ..faults }, Dice::new(seed));
        let down = pass(far.receiver, near.sender, faults, Dice::new(seed ^ 0x5555_5555));
        // Whichever ends first takes the other with it: dropping both is the cut.
        tokio::select! {
            () = up => {}
            () = down => {}
        }
    };
    (client, server, carrier)
}

async fn pass(mut from: Receiver, mut to: Sender, faults: Faults, mut dice: Dice) {
    let mut happens = |one_in: usize| one_in != usize::MAX && dice.below(one_in) == 0;
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
        if happens(faults.twice_one_in) && to.feed(message.clone()).await.is_err() {
            return;
        }
        if to.feed(message).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    to.close(CloseReason::normal()).await;
}
