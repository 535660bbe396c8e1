//! What the keeper does while nobody owns it: it moves the bytes itself, with the owner's own code.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use exec_core::lifecycle::StreamSet;
use exec_core::{Io, Stream};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::child::Child;
use super::{EpollToken, Keeper, OwnerConnection, OwnerExitPolicy};
use crate::channel::Channel;
use crate::protocol::{KeeperEvent, ProcessNumber};
use crate::spool::{PumpContext, PumpOutcome};

impl Keeper {
    /// An owner takes over: our movers stop before it hears of anything.
    pub(super) fn attach_owner(&mut self, channel: Channel, pid: u32) -> Result<(), Errno> {
        for child in self.children.values_mut() {
            for stream in child.stop_moving() {
                if let Some(source) = child.source(stream) {
                    let _ = epoll::delete(&self.epoll, source);
                }
            }
        }
        self.watch(channel.socket(), EpollToken::Owner, EventFlags::IN)?;
        self.owner =
            Some(OwnerConnection { channel, pid, said_hello: false, unsent: std::collections::VecDeque::new() });
        self.orphaned_since = None;
        Ok(())
    }

    /// The owner is gone: killed, upgraded, or done. From here on nobody else moves a byte.
    pub(super) fn detach_owner(&mut self) {
        let Some(owner) = self.owner.take() else { return };
        let _ = epoll::delete(&self.epoll, owner.channel.socket());
        self.orphaned_since = Some(Instant::now());
        // The next owner numbers its requests anew, and would take an answer to the old one's for its own.
        self.children.values_mut().for_each(Child::forget_termination_requests);
        if self.on_owner_exit == OwnerExitPolicy::KillProcesses || self.listener.is_none() {
            self.done = true;
            return;
        }
        let numbers: Vec<ProcessNumber> = self.children.keys().copied().collect();
        for number in numbers {
            self.start_moving(number);
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
        let Ok(channel) = Channel::from_socket(socket) else { return };
        // A killed owner's end may still lie unread in its socket.
        self.on_owner();
        if let Some(owner) = &self.owner {
            let _ = channel.send(&KeeperEvent::Busy { owner_pid: owner.pid }.encode(), &[]);
            return;
        }
        let _ = self.attach_owner(channel, pid);
    }

    pub(super) fn on_stream(&mut self, number: ProcessNumber, slot: usize, others_ready: bool) {
        if self.owner.is_some() {
            return;
        }
        let Some(child) = self.children.get_mut(&number) else { return };
        let stream = match (slot, child.io()) {
            (0, Io::Pty(_)) => Stream::Pty,
            (0, Io::Pipes { .. }) => Stream::Stdout,
            _ => Stream::Stderr,
        };
        let context = PumpContext { now: Instant::now(), others_ready, wanted: None };
        match child.pump(stream, context) {
            Some(PumpOutcome::Eof) => {
                if let Some(source) = child.source(stream) {
                    let _ = epoll::delete(&self.epoll, source);
                }
                child.close_stream(stream);
            }
            // Level-triggered: it would be told again at once. It is asked again when its time comes.
            Some(PumpOutcome::Stalled) => {
                if let Some(source) = child.source(stream) {
                    let _ = epoll::delete(&self.epoll, source);
                }
            }
            _ => {}
        }
        self.enforce_total_cap();
    }

    /// Streams that were taken out of the set because there was no room.
    pub(super) fn watch_streams(&mut self, number: ProcessNumber) {
        if self.owner.is_some() {
            return;
        }
        let Some(child) = self.children.get(&number) else { return };
        for (stream, source) in child.moving_streams().iter().filter_map(|stream| Some((stream, child.source(stream)?)))
        {
            // Already in the set unless it had stalled; adding it twice is refused and harmless.
            let _ = self.watch(source, EpollToken::Stream(number, crate::spool::index::slot(stream)), EventFlags::IN);
        }
    }

    fn start_moving(&mut self, number: ProcessNumber) {
        let Some(child) = self.children.get_mut(&number) else { return };
        if child.start_moving(&self.spool_directory).is_err() {
            // Without a readable index there is nothing to go on from; the pipes stay as they are, for the next owner.
            return;
        }
        self.watch_streams(number);
    }

    /// All logs together are over their cap and the one that moves is not to blame: the fullest gives back.
    fn enforce_total_cap(&mut self) {
        let excess = self.spool_directory.excess_bytes();
        if excess > 0
            && let Some(fullest) = self.children.values_mut().max_by_key(|child| child.droppable_bytes())
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
