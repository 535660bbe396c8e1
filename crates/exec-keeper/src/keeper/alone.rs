//! What the keeper does while nobody owns it: it moves the bytes itself, with the owner's own code.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use exec_core::lifecycle::StreamSet;
use exec_core::{Io, Stream};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::ward::Ward;
use super::{Fate, Keeper, Owner, Token};
use crate::channel::Channel;
use crate::protocol::{Number, Tell};
use crate::spool::{Pumped, Turn};

impl Keeper {
    /// An owner takes over: our movers stop before it hears of anything.
    pub(super) fn receive_owner(&mut self, channel: Channel, pid: u32) -> Result<(), Errno> {
        for ward in self.wards.values_mut() {
            for stream in ward.stop_moving() {
                if let Some(source) = ward.source(stream) {
                    let _ = epoll::delete(&self.epoll, source);
                }
            }
        }
        self.watch(channel.socket(), Token::Owner, EventFlags::IN)?;
        self.owner = Some(Owner { channel, pid, greeted: false, unsent: std::collections::VecDeque::new() });
        self.alone_since = None;
        Ok(())
    }

    /// The owner is gone: killed, upgraded, or done. From here on nobody else moves a byte.
    pub(super) fn lose_owner(&mut self) {
        let Some(owner) = self.owner.take() else { return };
        let _ = epoll::delete(&self.epoll, owner.channel.socket());
        self.alone_since = Some(Instant::now());
        // The next owner numbers its requests anew, and would take an answer to the old one's for its own.
        self.wards.values_mut().for_each(Ward::forget_askers);
        if self.fate == Fate::WithOwner || self.listener.is_none() {
            self.over = true;
            return;
        }
        let numbers: Vec<Number> = self.wards.keys().copied().collect();
        for number in numbers {
            self.begin_moving(number);
        }
    }

    pub(super) fn on_listener(&mut self) {
        let Some(listener) = &self.listener else { return };
        let Ok(socket) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else {
            return;
        };
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&socket) else { return };
        // The folder's mode keeps others out already; this is the second lock on the same door.
        if peer.uid != rustix::process::getuid() {
            return;
        }
        let pid = peer.pid.as_raw_nonzero().get() as u32;
        let Ok(channel) = Channel::over(socket) else { return };
        // A killed owner's end may still lie unread in its socket.
        self.on_owner();
        if let Some(owner) = &self.owner {
            let _ = channel.send(&Tell::Busy { owner_pid: owner.pid }.encode(), &[]);
            return;
        }
        let _ = self.receive_owner(channel, pid);
    }

    pub(super) fn on_stream(&mut self, number: Number, slot: usize, others_ready: bool) {
        if self.owner.is_some() {
            return;
        }
        let Some(ward) = self.wards.get_mut(&number) else { return };
        let stream = match (slot, ward.io()) {
            (0, Io::Pty(_)) => Stream::Pty,
            (0, Io::Pipes { .. }) => Stream::Stdout,
            _ => Stream::Stderr,
        };
        let turn = Turn { now: Instant::now(), others_ready, wanted: None };
        match ward.pump(stream, turn) {
            Some(Pumped::Eof) => {
                if let Some(source) = ward.source(stream) {
                    let _ = epoll::delete(&self.epoll, source);
                }
                ward.end_stream(stream);
            }
            // Level-triggered: it would be told again at once. It is asked again when its time comes.
            Some(Pumped::Stalled) => {
                if let Some(source) = ward.source(stream) {
                    let _ = epoll::delete(&self.epoll, source);
                }
            }
            _ => {}
        }
        self.share_the_disk();
    }

    /// Streams that were taken out of the set because there was no room.
    pub(super) fn pump_stalled(&mut self, number: Number) {
        if self.owner.is_some() {
            return;
        }
        let Some(ward) = self.wards.get(&number) else { return };
        for (stream, source) in ward.moving().iter().filter_map(|stream| Some((stream, ward.source(stream)?))) {
            // Already in the set unless it had stalled; adding it twice is refused and harmless.
            let _ = self.watch(source, Token::Stream(number, crate::spool::index::slot(stream)), EventFlags::IN);
        }
    }

    fn begin_moving(&mut self, number: Number) {
        let Some(ward) = self.wards.get_mut(&number) else { return };
        if ward.begin_moving(&self.folder).is_err() {
            // Without a readable index there is nothing to go on from; the pipes stay as they are, for the next owner.
            return;
        }
        self.pump_stalled(number);
    }

    /// All logs together are over their cap and the one that moves is not to blame: the fullest gives back.
    fn share_the_disk(&mut self) {
        let excess = self.folder.excess_bytes();
        if excess > 0
            && let Some(fullest) = self.wards.values_mut().max_by_key(|ward| ward.droppable_bytes())
        {
            fullest.shed(excess);
        }
    }
}

/// Which streams a wiring has.
pub(super) fn streams(io: Io) -> StreamSet {
    match io {
        Io::Pipes { .. } => StreamSet::PIPES,
        Io::Pty(_) => StreamSet::PTY,
    }
}

/// A second descriptor for the same thing.
pub(super) fn duplicate(descriptor: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(descriptor.as_fd(), 3)
}
