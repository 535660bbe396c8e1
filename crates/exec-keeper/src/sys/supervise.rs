//! What a supervised child does to itself between `clone` and `exec`: it installs the filter that asks the supervisor, and
//! sends him the listener. System calls only, as in `confine`, of which this is a part.

use std::os::fd::RawFd;

#[derive(Debug)]
pub(super) struct PreparedSupervision {
    pub(super) filter: Vec<u64>,
    /// To the supervisor, who is sent the listener.
    pub(super) socket: RawFd,
}

impl PreparedSupervision {
    /// From here on the supervisor is asked about the calls that the filter names. What the child still does before its
    /// program runs is not among them. The error is the kernel's reason.
    ///
    /// # Safety
    /// In a child that shares nothing but memory with us, or not even that, and after `no_new_privs` was set.
    pub(super) unsafe fn begin(&self) -> Result<(), i32> {
        // Once the supervisor has a call, only being killed ends it: a call that a signal interrupts would be made twice.
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
        // SAFETY: as promised by the caller; both descriptors are ours, and close with exec if not before.
        unsafe {
            let listener = result(install_filter(&self.filter, flags))? as RawFd;
            send_descriptor(self.socket, listener)?;
            libc::close(listener);
        }
        Ok(())
    }
}

/// What the kernel returned.
///
/// # Safety
/// As for [`PreparedSupervision::begin`].
pub(super) unsafe fn install_filter(filter: &[u64], flags: libc::c_ulong) -> libc::c_long {
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_ptr().cast_mut().cast::<libc::sock_filter>(),
    };
    // SAFETY: the program is live; the kernel copies and checks it. A sock_filter is 8 bytes.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) }
}

/// # Safety
/// As for [`PreparedSupervision::begin`].
unsafe fn send_descriptor(socket: RawFd, descriptor: RawFd) -> Result<(), i32> {
    // As large as a header and one number, aligned as a header.
    let mut space = [0u64; 4];
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: zeroed is a value of this plain C struct. The pointers are to live locals, and the space is large enough for
    // the one header that is written.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = space.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() {
            return Err(libc::EINVAL);
        }
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(descriptor);
        result(libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) as libc::c_long).map(drop)
    }
}

fn result(returned: libc::c_long) -> Result<libc::c_long, i32> {
    // SAFETY: the slot of this thread; in a child that shares our memory it is the one of the suspended thread.
    if returned < 0 { Err(unsafe { *libc::__errno_location() }) } else { Ok(returned) }
}
