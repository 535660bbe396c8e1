//! The connection to the owner. A full socket never stops the keeper's loop: events that do not fit wait in a queue, and
//! while the queue is full, requests wait in the socket.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use super::EpollToken;
use crate::channel::{Channel, NO_REQUEST, Received};
use crate::lease::Lease;
use crate::protocol::{KeeperEvent, Message, VERSION};

/// Events that may wait for an owner that does not read. Beyond, we read no more of its requests.
const UNSENT_EVENTS: usize = 256;

pub(super) struct OwnerConnection {
    channel: Channel,
    pid: u32,
    /// The owner's right to move output, and the file by which it gets it with the welcome.
    lease: Lease,
    lease_file: OwnedFd,
    /// Before the hello nothing is sent: the owner learns of what happened meanwhile from the list of processes.
    said_hello: bool,
    /// `None` if it is gone already.
    process: Option<OwnedFd>,
    connected_at: Instant,
    /// Whether its requests wait until more starts can be taken.
    paused: bool,
    /// Bounded: no request is read beyond [`UNSENT_EVENTS`]. What else comes is the answers to the requests that were read
    /// before, and two events for each child.
    unsent: VecDeque<(u64, Vec<u8>, Vec<OwnedFd>)>,
}

impl OwnerConnection {
    /// `epoch` is the number of this connection.
    pub(super) fn new(channel: Channel, pid: u32, epoch: u64) -> Result<Self, Errno> {
        let (lease, lease_file) = Lease::grant(epoch)?;
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = process.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Self {
            channel,
            pid,
            lease,
            lease_file,
            said_hello: false,
            process,
            connected_at: Instant::now(),
            paused: false,
            unsent: VecDeque::new(),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    pub(super) fn said_hello(&self) -> bool {
        self.said_hello
    }

    /// The connection has ended.
    pub(super) fn into_past(self) -> PastOwner {
        self.lease.revoke();
        PastOwner { pid: self.pid, lease: self.lease, process: self.process }
    }

    pub(super) fn takes_requests(&self) -> bool {
        self.unsent.len() < UNSENT_EVENTS
    }

    pub(super) fn connected_at(&self) -> Instant {
        self.connected_at
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Takes the socket out of the epoll set, which would go on to report that it is readable, or closed.
    pub(super) fn pause(&mut self, epoll: &OwnedFd) {
        self.paused = true;
        let _ = epoll::delete(epoll, self.channel.socket());
    }

    pub(super) fn resume(&mut self, epoll: &OwnedFd) {
        self.paused = false;
        let data = EventData::new_u64(EpollToken::Owner.encode());
        let flags = if self.unsent.is_empty() { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
        let _ = epoll::add(epoll, self.channel.socket(), data, flags);
    }

    pub(super) fn receive(&self) -> Result<Received, Errno> {
        self.channel.receive()
    }

    pub(super) fn welcome(&mut self, processes: u32, epoll: &OwnedFd) {
        self.said_hello = true;
        let welcome = KeeperEvent::Welcome { version: VERSION, pid: std::process::id(), processes };
        let lease = self.lease_file.try_clone();
        let lease: Vec<BorrowedFd<'_>> = lease.iter().map(AsFd::as_fd).collect();
        self.send(NO_REQUEST, &welcome, &lease, epoll);
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
                Ok(()) => return,
                // Its socket becomes readable and says so.
                Err(errno) if is_gone(errno) => return,
                Err(_) => {}
            }
        }
        // If we may not open so many, the owner gets the first ones, and sees that some are missing.
        let held = descriptors.iter().map_while(|descriptor| descriptor.try_clone_to_owned().ok()).collect();
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
                Err(errno) if is_gone(errno) => return Err(errno),
                // No message of ours is too large for the owner; should one be, it must not hold up the others.
                Err(Errno::MSGSIZE) => drop(self.unsent.pop_front()),
                Err(_) => break,
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

/// Nobody will read this socket again. Every other error passes: there is no space in the socket, no memory, no free
/// descriptor, or too many of them are in flight between processes.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN)
}

/// The last owner whose connection has ended. It may live, and a mover of it may be in the middle of a move.
pub(super) struct PastOwner {
    pub(super) pid: u32,
    lease: Lease,
    process: Option<OwnedFd>,
}

impl PastOwner {
    /// Whether it moves nothing any more.
    pub(super) fn is_out(&self) -> bool {
        let Some(process) = &self.process else { return true };
        let mut exited = [PollFd::new(process, PollFlags::IN)];
        self.lease.is_idle() || poll(&mut exited, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
    }
}
