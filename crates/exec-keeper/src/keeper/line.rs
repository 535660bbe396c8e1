//! What the keeper says to its owner. A full socket never stops the loop: what does not fit waits, and requests with it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::{Keeper, Token, UNREAD_ANSWERS};
use crate::protocol::{Tell, VERSION};

impl Keeper {
    pub(super) fn tell_all(&mut self, tells: Vec<Tell>) {
        for tell in tells {
            self.tell(&tell, &[]);
        }
    }

    /// Says something to the owner, if there is one. A full socket is waited for without stopping the loop.
    pub(super) fn tell(&mut self, tell: &Tell, descriptors: &[BorrowedFd<'_>]) {
        let Some(owner) = self.owner.as_mut().filter(|owner| owner.greeted) else { return };
        let message = tell.encode();
        if owner.unsent.is_empty() {
            match owner.channel.send(&message, descriptors) {
                Ok(()) => return,
                Err(errno) if is_crowded(errno) => {}
                // Its end will be noticed as such, by its socket.
                Err(_) => return,
            }
        }
        let held = descriptors.iter().filter_map(|descriptor| descriptor.try_clone_to_owned().ok()).collect();
        owner.unsent.push_back((message, held));
        self.await_owner(EventFlags::IN | EventFlags::OUT);
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
                Err(errno) if is_crowded(errno) => break,
                // Nobody reads the rest. Waiting for room would be waiting for ever.
                Err(_) => return self.lose_owner(),
            }
        }
        let flags = match owner.unsent.len() {
            0 => EventFlags::IN,
            1..UNREAD_ANSWERS => EventFlags::IN | EventFlags::OUT,
            // Its requests wait, and are not told to us again and again.
            _ => EventFlags::OUT,
        };
        self.await_owner(flags);
    }

    pub(super) fn await_owner(&self, flags: EventFlags) {
        if let Some(owner) = &self.owner {
            let data = EventData::new_u64(Token::Owner.encode());
            let _ = epoll::modify(&self.epoll, owner.channel.socket(), data, flags);
        }
    }

    pub(super) fn greet(&mut self, version: u32) {
        if let Some(owner) = &mut self.owner {
            owner.greeted = true;
        }
        let processes = self.wards.len() as u32;
        self.tell(&Tell::Welcome { version: VERSION, pid: std::process::id(), processes }, &[]);
        if version != VERSION {
            return self.lose_owner();
        }
        let wards = std::mem::take(&mut self.wards);
        for ward in wards.values() {
            let (parts, descriptors) = ward.parts();
            self.tell(&ward.found(parts), &descriptors);
        }
        self.wards = wards;
    }
}

/// The owner's socket, or the kernel's count of descriptors on their way, has no room now.
fn is_crowded(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS)
}
