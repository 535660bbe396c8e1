//! A child in a pid namespace of its own, for kernels that keep signals inside a sandbox by no other means.
//!
//! The first process of such a namespace ignores every signal that it does not handle, and takes all others with it when it
//! ends. So it is not the program, but an init of ours, and a process that ends at once makes the two:
//!
//! ```text
//! keeper ── creator   joins the user namespace, makes the others, and ends
//!    │         └── init      1 in the namespace. It waits for what is left behind there, then it ends
//!    └──────────── program   2 in the namespace. The creator makes it as a child of ours: its pid, its exit and its signals are
//!                            those of any child
//! ```
//!
//! The creator and, until it execs, the program share our memory as every child does (see [`super`]). The init has a copy of it.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use super::{CgroupEntry, Made, RawSpawnPlan, STACK_BYTES, child, clone_call, fail, fail_confinement, reap};
use crate::protocol::SpawnStep;
use crate::sys::confine::clear_capabilities;

/// The pid of the program in its namespace: the init has the first.
const PROGRAM: libc::pid_t = 2;

/// What the keeper holds while a child is made in a pid namespace.
pub(super) struct PidNamespace {
    /// At its end when the program runs or has failed: we have closed the other end.
    start_ended: OwnedFd,
    _start_under_way: OwnedFd,
}

/// What the creator needs and leaves behind.
#[derive(Clone, Copy)]
pub(super) struct OwnPids {
    start_ended: RawFd,
    /// The lowest address of the program's stack.
    stack: usize,
    /// Each with its pid as we see it, and a descriptor among ours.
    init: Option<(u32, RawFd)>,
    program: Option<(u32, RawFd)>,
}

impl PidNamespace {
    pub(super) fn new() -> Result<Self, Errno> {
        let (start_ended, start_under_way) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self { start_ended, _start_under_way: start_under_way })
    }

    pub(super) fn for_creator(&self, stack: usize) -> OwnPids {
        OwnPids { start_ended: self.start_ended.as_raw_fd(), stack, init: None, program: None }
    }

    /// What the creator has made, which has ended. From here on the init waits for the program.
    pub(super) fn made_by(self, creator: &OwnedFd, own_pids: OwnPids) -> Made {
        reap(creator);
        // SAFETY: the kernel has made these descriptors for us, through the creator, and nobody else knows them.
        let owned = |(pid, pidfd): (u32, RawFd)| (pid, unsafe { OwnedFd::from_raw_fd(pidfd) });
        Made { program: own_pids.program.map(owned), init: own_pids.init.map(owned) }
    }
}

/// Makes init and program, and ends. As [`child`]: system calls only, no allocation, no lock, no panic; and no descriptor is
/// closed, because they are the keeper's.
pub(super) extern "C" fn creator(raw: *mut c_void) -> ! {
    let raw: *mut RawSpawnPlan<'_, '_> = raw.cast();
    // SAFETY: as in `child`.
    unsafe {
        let plan = &mut *(*raw).plan;
        // What finds the tree finds its init too. The program comes under the tree's limits, and the init does not.
        if let Some(CgroupEntry::ByWrite(procs)) = &plan.cgroup
            && libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) < 0
        {
            fail(raw, SpawnStep::Clone);
        }
        let mark = libc::rlimit { rlim_cur: plan.mark, rlim_max: plan.mark };
        libc::setrlimit(libc::RLIMIT_RTTIME, &raw const mark);
        if let Some(confinement) = &plan.confinement
            && let Err(failure) = confinement.enter_pid_namespace()
        {
            fail_confinement(raw, failure);
        }
        let Some(own_pids) = &mut (*raw).own_pids else { fail(raw, SpawnStep::Clone) };
        let mut pidfd: RawFd = -1;
        // Without CLONE_VM and a stack this is a fork, whose child goes on here on a copy of everything.
        let init_pid = libc::syscall(libc::SYS_clone, libc::CLONE_PIDFD | libc::SIGCHLD, 0, &raw mut pidfd, 0, 0);
        if init_pid == 0 {
            init(own_pids.start_ended);
        }
        if init_pid < 0 {
            fail(raw, SpawnStep::Clone);
        }
        own_pids.init = Some((init_pid as u32, pidfd));
        make_program(raw, own_pids);
        libc::_exit(0)
    }
}

/// # Safety
/// As in [`child`].
unsafe fn make_program(raw: *mut RawSpawnPlan<'_, '_>, own_pids: &mut OwnPids) {
    // SAFETY: as in `clone_raw`; the program has a stack of its own, and we are suspended until it execs or exits.
    unsafe {
        let mut pidfd: RawFd = -1;
        let mut args: libc::clone_args = std::mem::zeroed();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
        args.flags = (flags | libc::CLONE_PARENT | libc::CLONE_PARENT_SETTID) as u64;
        args.pidfd = &raw mut pidfd as u64;
        args.parent_tid = (*raw).plan.pid.as_ptr() as u64;
        args.stack = own_pids.stack as u64;
        args.stack_size = STACK_BYTES as u64;
        let arguments = [&raw const args as usize, size_of::<libc::clone_args>(), 0, 0, 0];
        let pid = clone_call(libc::SYS_clone3, arguments, child, raw.cast());
        if pid < 0 {
            *libc::__errno_location() = -pid as i32;
            fail(raw, SpawnStep::Clone);
        }
        own_pids.program = Some((pid as u32, pidfd));
    }
}

/// The first process of the namespace. It holds nothing, can do nothing, and nobody can look into its copy of our memory. All
/// signals are blocked since before the clone.
///
/// # Safety
/// In a process that shares nothing with another.
unsafe fn init(start_ended: RawFd) -> ! {
    // SAFETY: as promised by the caller; plain values, and locals.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::setsid();
        libc::dup2(start_ended, 0);
        if libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) < 0 {
            for descriptor in 1..4096 {
                libc::close(descriptor);
            }
        }
        let _ = clear_capabilities();
        // The kernel reaps the children of whoever ignores their end.
        let ignore = [libc::SIG_IGN as u64, 0, 0, 0];
        libc::syscall(libc::SYS_rt_sigaction, libc::SIGCHLD, ignore.as_ptr(), ptr::null_mut::<u64>(), 8);
        let mut byte = 0u8;
        while libc::read(0, (&raw mut byte).cast(), 1) < 0 && *libc::__errno_location() == libc::EINTR {}
        libc::close(0);
        let program = libc::syscall(libc::SYS_pidfd_open, PROGRAM, 0) as RawFd;
        if program >= 0 {
            let mut ended = libc::pollfd { fd: program, events: libc::POLLIN, revents: 0 };
            while libc::poll(&raw mut ended, 1, -1) < 0 {}
        }
        // Whoever lost its parent here is a child of ours.
        while libc::waitid(libc::P_ALL, 0, ptr::null_mut(), libc::WEXITED | libc::__WALL) == 0
            || *libc::__errno_location() == libc::EINTR
        {}
        libc::_exit(0)
    }
}
