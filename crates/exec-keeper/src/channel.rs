//! Messages with descriptors over a unix socket of type SEQPACKET, which keeps the boundaries of messages.
//!
//! ```text
//!   kind (1 byte) │ request id (8 bytes, little endian; only if the kind says so) │ message
//! ```
//!
//! The request id is outside the message, so that a message which does not read can still be answered: the socket keeps
//! boundaries, so a bad message spoils nothing after it. Only a closed socket means that the other side is gone.
//! A message too large for the socket's buffer travels in a memory file instead, so that callers need not treat a 3 MiB
//! environment as a special case. Nothing here blocks: a full or empty socket is the error `EAGAIN`.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// A larger message travels in a memory file. Well below the default socket buffer of 208 KiB.
const INLINE_BYTES: usize = 48 << 10;
/// Most bytes of a message in a memory file. The largest is a start request: `ARGUMENT_BYTES`, the machine's own
/// environment, and once more the `PATH` among them.
const LARGE_BYTES: u64 = 64 << 20;
/// Most descriptors of a message: a process has at most thirteen, and one more may be the memory file.
const DESCRIPTORS: usize = 16;

/// Bits of the first byte of every message on the socket. A message without any is read by all versions.
const IN_FILE: u8 = 1;
const WITH_REQUEST_ID: u8 = 2;
const HEADER_BYTES: usize = 9;

/// The id of messages that neither are answered nor answer.
pub const NO_REQUEST: u64 = 0;

/// One end of the connection between the keeper and its owner.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    /// Allocated once: it must hold the largest inline message, and most messages are tiny.
    receive_buffer: Mutex<Vec<u8>>,
}

#[derive(Debug)]
pub enum Received {
    /// There are fewer descriptors than were sent if we may not open so many.
    Message { request_id: u64, message: Vec<u8>, descriptors: Vec<OwnedFd> },
    /// A message that could not be read whole; those after it can.
    Damaged { request_id: u64, errno: Errno },
    /// The other side closed its end or was killed.
    Closed,
}

impl Channel {
    /// Two connected ends, for a keeper that runs as a thread.
    pub fn pair() -> Result<(Self, Self), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self::new(one), Self::new(other)))
    }

    /// Takes a socket that was connected or accepted elsewhere.
    pub fn from_socket(socket: OwnedFd) -> Result<Self, Errno> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self::new(socket))
    }

    fn new(socket: OwnedFd) -> Self {
        Self { socket, receive_buffer: Mutex::new(vec![0; HEADER_BYTES + INLINE_BYTES]) }
    }

    /// The socket, so that callers can wait until it is readable or writable.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// `EAGAIN` if the socket is full, `EMSGSIZE` if the other side would not take so large a message; nothing was sent
    /// then.
    pub fn send(&self, request_id: u64, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        if message.len() <= INLINE_BYTES {
            return self.send_parts(0, request_id, message, descriptors);
        }
        if message.len() as u64 > LARGE_BYTES {
            return Err(Errno::MSGSIZE);
        }
        let file = rustix::fs::memfd_create("message", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut rest = message;
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(&file, rest)?..];
        }
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::WRITE | SealFlags::GROW)?;
        let mut all = vec![file.as_fd()];
        all.extend_from_slice(descriptors);
        self.send_parts(IN_FILE, request_id, &[], &all)
    }

    fn send_parts(
        &self,
        kind: u8,
        request_id: u64,
        message: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::MSGSIZE);
        }
        let mut header = [kind; HEADER_BYTES];
        let header = if request_id == NO_REQUEST {
            &header[..1]
        } else {
            header[0] |= WITH_REQUEST_ID;
            header[1..].copy_from_slice(&request_id.to_le_bytes());
            &header[..]
        };
        let parts = [IoSlice::new(header), IoSlice::new(message)];
        loop {
            match rustix::net::sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                other => return other.map(drop),
            }
        }
    }

    /// `EAGAIN` if there is no message now. No error means that the connection is broken.
    pub fn receive(&self) -> Result<Received, Errno> {
        let mut receive_buffer = self.receive_buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut receive_buffer)];
            match rustix::net::recvmsg(&self.socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                // The other side closed before it had read all that we sent. The kernel reports that once, ahead of
                // the messages the other side had sent (an exit, or who the owner is); those can still be read.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                other => break other?,
            }
        };
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                descriptors.extend(fds);
            }
        }
        let [kind, rest @ ..] = &receive_buffer[..received.bytes] else { return Ok(self.nothing_received()) };
        let (request_id, inline) = match rest.split_first_chunk() {
            Some((id, inline)) if kind & WITH_REQUEST_ID != 0 => (u64::from_le_bytes(*id), inline),
            _ => (NO_REQUEST, rest),
        };
        let message = match descriptors.first() {
            _ if received.flags.contains(ReturnFlags::TRUNC) => Err(Errno::MSGSIZE),
            _ if kind & IN_FILE == 0 => Ok(inline.to_vec()),
            Some(_) => read_whole(&descriptors.remove(0)),
            None => Err(Errno::MFILE),
        };
        Ok(match message {
            Ok(message) => Received::Message { request_id, message, descriptors },
            Err(errno) => Received::Damaged { request_id, errno },
        })
    }

    /// No bytes are the end of the connection, or a message of no bytes. Only the socket's state tells which.
    fn nothing_received(&self) -> Received {
        let mut state = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let polled = poll(&mut state, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        match polled {
            Ok(0) => Received::Damaged { request_id: NO_REQUEST, errno: Errno::BADMSG },
            _ => Received::Closed,
        }
    }
}

impl std::os::fd::AsRawFd for Channel {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }
}

fn read_whole(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    // Without the seal the sender could shrink the file while we read it.
    if !rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
        return Err(Errno::BADMSG);
    }
    let size = rustix::fs::fstat(file)?.st_size as u64;
    if size > LARGE_BYTES {
        return Err(Errno::MSGSIZE);
    }
    let mut bytes = vec![0; size as usize];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(file, &mut bytes[done..], done as u64)? {
            0 => return Err(Errno::BADMSG),
            count => done += count,
        }
    }
    Ok(bytes)
}
