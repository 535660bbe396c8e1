//! Which handshakes go on when there are more than we have room for.
//!
//! Whoever opens streams and says nothing on them must not keep others out. So a new stream always gets a slot; if none
//! is free, the oldest handshake of the address that has the most is ended. One that is honest takes milliseconds, and
//! is long done when it has become the oldest; and whoever floods from one address ends only handshakes of his own.
//! Decisions are pure; only the one that is ended is told by a channel.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::throttle::network_of;

#[derive(Debug)]
pub(super) struct HandshakeSlots {
    max: usize,
    /// Held for a moment, never while anybody waits.
    open: Mutex<OpenHandshakes>,
}

#[derive(Debug, Default)]
struct OpenHandshakes {
    /// The number of the next one; a higher number is a younger handshake.
    next: u64,
    /// At most `max`.
    handshakes: BTreeMap<u64, (IpAddr, oneshot::Sender<()>)>,
    /// How many each address has; none has zero.
    counts: HashMap<IpAddr, usize>,
}

/// The slot of one handshake; dropping it frees the slot.
#[derive(Debug)]
pub(super) struct HandshakeSlot {
    slots: Arc<HandshakeSlots>,
    number: u64,
    ended: oneshot::Receiver<()>,
}

impl HandshakeSlots {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: max.max(1), open: Mutex::default() })
    }

    /// A slot for a handshake of this address; another one may have to end for it.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> HandshakeSlot {
        let address = network_of(address);
        let (tell, ended) = oneshot::channel();
        let mut open = self.lock();
        if open.handshakes.len() >= self.max {
            open.end_one();
        }
        let number = open.next;
        open.next += 1;
        open.handshakes.insert(number, (address, tell));
        *open.counts.entry(address).or_default() += 1;
        drop(open);
        HandshakeSlot { slots: Arc::clone(self), number, ended }
    }

    /// Ends the older half, when the machine is out of descriptors.
    pub(super) fn end_half(&self) {
        let mut open = self.lock();
        for _ in 0..open.handshakes.len().div_ceil(2) {
            open.end_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenHandshakes> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenHandshakes {
    fn end_one(&mut self) {
        let Some(most) = self.counts.values().max().copied() else { return };
        let has_most =
            |(number, (address, _)): (&u64, &(IpAddr, _))| (self.counts.get(address) == Some(&most)).then_some(*number);
        // The first one found is the oldest of all addresses that have so many.
        if let Some(number) = self.handshakes.iter().find_map(has_most) {
            self.remove(number);
        }
    }

    /// Dropping its sender tells a handshake that it has ended.
    fn remove(&mut self, number: u64) {
        if let Some((address, _)) = self.handshakes.remove(&number)
            && let Some(count) = self.counts.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&address);
            }
        }
    }
}

impl HandshakeSlot {
    /// The output of the handshake; `None` if it had to end for others.
    pub(super) async fn unless_ended<T>(mut self, handshake: impl Future<Output = Option<T>>) -> Option<T> {
        tokio::select! {
            biased;
            _ = &mut self.ended => None,
            made = handshake => made,
        }
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        self.slots.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn has_ended(slot: &mut HandshakeSlot) -> bool {
        !matches!(slot.ended.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn a_flood_ends_its_own_oldest_and_nobody_elses() {
        let slots = HandshakeSlots::new(4);
        let mut honest = slots.take(address(1));
        let mut flood: Vec<HandshakeSlot> = (0..10).map(|_| slots.take(address(2))).collect();
        let ended: Vec<bool> = flood.iter_mut().map(has_ended).collect();
        assert_eq!(ended, [vec![true; 7], vec![false; 3]].concat());
        assert!(!has_ended(&mut honest));
    }

    #[test]
    fn among_addresses_that_have_as_many_the_oldest_ends() {
        let slots = HandshakeSlots::new(3);
        let mut each: Vec<HandshakeSlot> = (1..=4).map(|last| slots.take(address(last))).collect();
        let ended: Vec<bool> = each.iter_mut().map(has_ended).collect();
        assert_eq!(ended, [true, false, false, false]);
    }

    #[test]
    fn a_handshake_that_is_over_leaves_nothing_behind() {
        let slots = HandshakeSlots::new(4);
        let taken: Vec<HandshakeSlot> = (0..100).map(|at| slots.take(address(at % 7))).collect();
        drop(taken);
        let open = slots.lock();
        assert!(open.handshakes.is_empty() && open.counts.is_empty(), "{open:?}");
    }

    #[test]
    fn when_descriptors_are_short_the_older_half_ends() {
        let slots = HandshakeSlots::new(10);
        let mut taken: Vec<HandshakeSlot> = (0..5).map(|_| slots.take(address(1))).collect();
        slots.end_half();
        let ended: Vec<bool> = taken.iter_mut().map(has_ended).collect();
        assert_eq!(ended, [true, true, true, false, false]);
    }
}
