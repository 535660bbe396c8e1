//! The keeper's own process: the signals that it receives, those that a child must not inherit, and how it is scheduled.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

/// Makes this process the parent of the orphans among its descendants, and turns two signals into a descriptor: SIGCHLD
/// (an orphan exited) and SIGTERM (shut down). SIGHUP and SIGINT are ignored: they are meant for whoever is at the
/// terminal from which the owner was started.
pub(crate) fn adopt_orphans() -> Result<OwnedFd, Errno> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // SAFETY: a zeroed set is initialised by sigemptyset before use; all pointers are to live locals; `signal` with
    // SIG_IGN installs no code.
    let descriptor = unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        // A write beyond RLIMIT_FSIZE is then an error like that of a full disk. Children get the signal again.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if descriptor < 0 {
        return Err(super::last_errno());
    }
    // SAFETY: the kernel has just made this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

pub(crate) const ALL_SIGNALS: u64 = !0;

/// Signals that are ignored or have a handler in this process, signal n as bit n - 1.
pub(crate) fn not_default_signals() -> u64 {
    let mut found = 0;
    for signal in 1..=64_u32 {
        let mut action = [0u64; 4];
        // SAFETY: the kernel writes its own sigaction, 32 bytes, into the live local. The raw call, because libc hides
        // the two signals it uses itself.
        let result =
            unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, std::ptr::null::<u64>(), action.as_mut_ptr(), 8) };
        if result == 0 && action[0] != libc::SIG_DFL as u64 {
            found |= 1 << (signal - 1);
        }
    }
    found
}

/// Reads the pending signals. The result is whether SIGTERM was among them.
pub(crate) fn asked_to_end(signals: BorrowedFd<'_>) -> bool {
    let mut end = false;
    // SAFETY: zeroed is a valid value of this plain C struct.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the kernel writes at most `size` bytes into the live local.
    while unsafe { libc::read(signals.as_raw_fd(), (&raw mut info).cast(), size) } == size as isize {
        end |= info.ssi_signo == libc::SIGTERM as u32;
    }
    end
}

/// The shortest slice that sched(7) allows. A thread with short slices may interrupt one with long slices.
const SLICE_NANOS: u64 = 100_000;

/// Asks for short slices for this thread, and ordinary ones for its children. The keeper's work takes microseconds, and
/// its owner waits for it while a child may have the processor. Kernels before 6.12 ignore this.
pub(crate) fn run_in_short_slices() {
    let size = size_of::<libc::sched_attr>();
    // SAFETY: zeroed is a valid value of this plain C struct, of which the kernel writes at most `size` bytes.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } == 0;
    // A policy that somebody chose stays, and so does a priority that our children should inherit.
    if !known || attributes.sched_policy != libc::SCHED_OTHER as u32 || attributes.sched_nice < 0 {
        return;
    }
    attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    attributes.sched_runtime = SLICE_NANOS;
    (attributes.sched_deadline, attributes.sched_period) = (0, 0);
    // SAFETY: the kernel reads the live local, and changes nothing but how this thread is scheduled.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}
