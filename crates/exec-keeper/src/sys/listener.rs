//! The kernel's questions about a supervised process: which call it makes, and how it is answered.
//!
//! The one who asks is suspended until it is answered, and only being killed ends that. If nobody holds the listener any
//! more, every such call fails (`ENOSYS`). So a process without a supervisor changes nothing.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};

/// Wakes the other side on the processor where we run, which is faster than on another (Linux 6.6).
const SYNC_WAKE_UP: u64 = 1;

/// Where the calls of one process and all its descendants arrive.
#[derive(Debug)]
pub(crate) struct Listener(OwnedFd);

/// A call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notification {
    pub(crate) id: u64,
    /// The thread that makes the call.
    pub(crate) thread: u32,
    pub(crate) number: libc::c_long,
    pub(crate) arguments: [u64; 6],
}

impl Listener {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        // SAFETY: this request takes a number in place of a pointer. Kernels that do not know it refuse it.
        unsafe { libc::ioctl(descriptor.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
        Self(descriptor)
    }

    /// The next call. `ENOENT` if its thread was killed meanwhile.
    pub(crate) fn receive(&self) -> Result<Notification, Errno> {
        // SAFETY: zeroed is a value of this plain C struct, and what the kernel asks for.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills in the live local, whose size is part of the request.
        let received = unsafe { libc::ioctl(self.raw(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) };
        check(received)?;
        Ok(Notification {
            id: asked.id,
            thread: asked.pid,
            number: libc::c_long::from(asked.data.nr),
            arguments: asked.data.args,
        })
    }

    /// Whether the thread still waits: if so, what was read from it by its number was its own, and no other's that has
    /// got the number since.
    pub(crate) fn still_waits(&self, id: u64) -> bool {
        // SAFETY: the kernel reads the live local.
        unsafe { libc::ioctl(self.raw(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
    }

    /// The call returns `value`, or fails with `errno`.
    pub(crate) fn answer(&self, id: u64, result: Result<i64, Errno>) {
        let (val, error) = match result {
            Ok(value) => (value, 0),
            Err(errno) => (0, -errno.raw_os_error()),
        };
        self.send(libc::seccomp_notif_resp { id, val, error, flags: 0 });
    }

    /// The kernel carries out the call as if nobody had been asked. What it is given may have changed since we looked, so
    /// this is only for what the other means of the sandbox judge by themselves.
    pub(crate) fn let_the_kernel_decide(&self, id: u64) {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        self.send(libc::seccomp_notif_resp { id, val: 0, error: 0, flags });
    }

    /// Gives the process a copy of `descriptor`, and returns its number there.
    pub(crate) fn install(&self, id: u64, descriptor: BorrowedFd<'_>, cloexec: bool) -> Result<i64, Errno> {
        let newfd_flags = if cloexec { libc::O_CLOEXEC as u32 } else { 0 };
        let srcfd = descriptor.as_raw_fd() as u32;
        let added = libc::seccomp_notif_addfd { id, flags: 0, srcfd, newfd: 0, newfd_flags };
        // SAFETY: the kernel reads the live local; the descriptor is borrowed for the call.
        let number = unsafe { libc::ioctl(self.raw(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const added) };
        check(number).map(i64::from)
    }

    fn send(&self, response: libc::seccomp_notif_resp) {
        // SAFETY: the kernel reads the live local. If the thread was killed meanwhile, nobody misses the answer.
        unsafe { libc::ioctl(self.raw(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response) };
    }

    fn raw(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Two ends of a way for a listener: the first is the supervisor's, the second the child's.
pub(crate) fn way_for_listener() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// The listener that a child has sent. Waits until it has, or until nobody is left who could.
pub(crate) fn receive_listener(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8];
    rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let received = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.ok_or(Errno::PIPE)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads `length` bytes at `address` of another process; fewer if less is mapped there.
pub(crate) fn read_memory(thread: u32, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0u8; length];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length };
    // SAFETY: the kernel writes at most `length` bytes into the live vector. The other address is of another process.
    let got = unsafe { libc::process_vm_readv(thread as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
    match usize::try_from(got) {
        Ok(got) => bytes.truncate(got),
        Err(_) => match super::last_errno() {
            // The filter of a container may forbid the call, and leave this.
            Errno::PERM | Errno::NOSYS => {
                let path = format!("/proc/{thread}/mem");
                let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
                let memory = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
                let got = rustix::io::pread(&memory, &mut bytes, address)?;
                bytes.truncate(got);
            }
            errno => return Err(errno),
        },
    }
    Ok(bytes)
}

/// From here on this thread has the rights of its user alone, as the processes that it acts for.
pub(crate) fn drop_capabilities_of_thread() -> Result<(), Errno> {
    let header = [CAPABILITY_VERSION, 0];
    let sets = [0u32; 6];
    // SAFETY: two live locals of the layout that the version names. The kernel changes the calling thread only.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) } as i32).map(drop)
}

/// Version 3: the kernel's own name of a set of capabilities of 64 bits.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

fn check(returned: i32) -> Result<i32, Errno> {
    if returned < 0 { Err(super::last_errno()) } else { Ok(returned) }
}
