//! What the keeper says to its owner. A full socket never stops the loop: what does not fit waits, and requests with it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::{EpollToken, Keeper, UNSENT_EVENTS};
use crate::protocol::{KeeperEvent, VERSION};

impl Keeper {
    pub(super) fn send_all(&mut self, events: Vec<KeeperEvent>) {
        for event in events {
            self.send(&event, &[]);
        }
    }

    /// Says something to the owner, if there is one. A full socket is waited for without stopping the loop.
    pub(super) fn send(&mut self, event: &KeeperEvent, descriptors: &[BorrowedFd<'_>]) {
        let Some(owner) = self.owner.as_mut().filter(|owner| owner.said_hello) else { return };
        let message = event.encode();
        if owner.unsent.is_empty() {
            match owner.channel.send(&message, descriptors) {
                Ok(()) => return,
                Err(errno) if is_full(errno) => {}
                // Its end will be noticed as such, by its socket.
                Err(_) => return,
            }
        }
        let held = descriptors.iter().filter_map(|descriptor| descriptor.try_clone_to_owned().ok()).collect();
        owner.unsent.push_back((message, held));
        self.watch_owner_for(EventFlags::IN | EventFlags::OUT);
    }

    pub(super) fn flush(&mut self) {
        let Some(owner) = &mut self.owner else { return };
        if owner.unsent.is_empty() {
            return;
        }
        while let Some((message, held)) = owner.unsent.front() {
            let descriptors: Vec<BorrowedFd<'_>> = held.iter().map(AsFd::as_fd).collect();
            match owner.channel.send(message, &descriptors) {
                Ok(()) => drop(owner.unsent.pop_front()),
                Err(errno) if is_full(errno) => break,
                // Nobody reads the rest. Waiting for room would be waiting for ever.
                Err(_) => return self.detach_owner(),
            }
        }
        let flags = match owner.unsent.len() {
            0 => EventFlags::IN,
            1..UNSENT_EVENTS => EventFlags::IN | EventFlags::OUT,
            // Its requests wait, and are not told to us again and again.
            _ => EventFlags::OUT,
        };
        self.watch_owner_for(flags);
    }

    pub(super) fn watch_owner_for(&self, flags: EventFlags) {
        if let Some(owner) = &self.owner {
            let data = EventData::new_u64(EpollToken::Owner.encode());
            let _ = epoll::modify(&self.epoll, owner.channel.socket(), data, flags);
        }
    }

    pub(super) fn on_hello(&mut self, version: u32) {
        if let Some(owner) = &mut self.owner {
            owner.said_hello = true;
        }
        let processes = self.children.len() as u32;
        self.send(&KeeperEvent::Welcome { version: VERSION, pid: std::process::id(), processes }, &[]);
        if version != VERSION {
            return self.detach_owner();
        }
        let children = std::mem::take(&mut self.children);
        for child in children.values() {
            let (roles, descriptors) = child.fds();
            self.send(&child.as_existing(roles), &descriptors);
        }
        self.children = children;
    }
}

/// The owner's socket, or the kernel's count of descriptors on their way, has no room now.
fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS)
}
