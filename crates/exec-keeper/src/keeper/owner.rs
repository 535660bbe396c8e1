//! The connection to the owner. A full socket never stops the keeper's loop: events that do not fit wait in a queue, and
//! while the queue is full, requests wait in the socket.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::EpollToken;
use crate::channel::{Channel, Received};
use crate::protocol::{KeeperEvent, Message};

/// Events that may wait for an owner that does not read. Beyond, we read no more of its requests.
const UNSENT_EVENTS: usize = 256;

pub(super) struct OwnerConnection {
    channel: Channel,
    pid: u32,
    /// Before the hello nothing is sent: the owner learns of what happened meanwhile from the list of processes.
    said_hello: bool,
    /// Bounded: no request is read beyond [`UNSENT_EVENTS`], and what comes unasked is two events for each child.
    unsent: VecDeque<(u64, Vec<u8>, Vec<OwnedFd>)>,
}

impl OwnerConnection {
    pub(super) fn new(channel: Channel, pid: u32) -> Self {
        Self { channel, pid, said_hello: false, unsent: VecDeque::new() }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    pub(super) fn accept_hello(&mut self) {
        self.said_hello = true;
    }

    pub(super) fn takes_requests(&self) -> bool {
        self.unsent.len() < UNSENT_EVENTS
    }

    pub(super) fn receive(&self) -> Result<Received, Errno> {
        self.channel.receive()
    }

    /// Sends an event, or queues it with duplicates of its descriptors.
    pub(super) fn send(
        &mut self,
        request_id: u64,
        event: &KeeperEvent,
        descriptors: &[BorrowedFd<'_>],
        epoll: &OwnedFd,
    ) {
        if !self.said_hello {
            return;
        }
        let message = event.encode();
        if self.unsent.is_empty() {
            match self.channel.send(request_id, &message, descriptors) {
                Err(errno) if is_full(errno) => {}
                // If the owner is gone, its socket becomes readable and says so.
                Ok(()) | Err(_) => return,
            }
        }
        let held = descriptors.iter().filter_map(|descriptor| descriptor.try_clone_to_owned().ok()).collect();
        self.unsent.push_back((request_id, message, held));
        self.watch(epoll, EventFlags::IN | EventFlags::OUT);
    }

    /// Sends what is queued, as far as the socket takes it. An error means that the owner is gone: to wait for space in
    /// its socket would be to wait for ever.
    pub(super) fn flush(&mut self, epoll: &OwnedFd) -> Result<(), Errno> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        while let Some((request_id, message, held)) = self.unsent.front() {
            let descriptors: Vec<BorrowedFd<'_>> = held.iter().map(AsFd::as_fd).collect();
            match self.channel.send(*request_id, message, &descriptors) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(errno) if is_full(errno) => break,
                Err(errno) => return Err(errno),
            }
        }
        let flags = match self.unsent.len() {
            0 => EventFlags::IN,
            1..UNSENT_EVENTS => EventFlags::IN | EventFlags::OUT,
            // Not IN: the requests that wait in the socket would wake us again and again.
            _ => EventFlags::OUT,
        };
        self.watch(epoll, flags);
        Ok(())
    }

    pub(super) fn watch(&self, epoll: &OwnedFd, flags: EventFlags) {
        let data = EventData::new_u64(EpollToken::Owner.encode());
        let _ = epoll::modify(epoll, self.channel.socket(), data, flags);
    }
}

/// There is no space now: in the socket, or in the kernel's count of descriptors that are in flight between processes.
fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS)
}
