//! Reaping and signalling processes by descriptor, so that a pid which the kernel has given to another process is never
//! hit.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use exec_core::{ExitStatus, ResourceUsage};
use rustix::io::Errno;

/// Signal the process group of the pidfd's process, not the process itself (Linux 6.9).
const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;

/// Reaps the process behind `pidfd`. `Ok(None)` while it runs.
pub(crate) fn reap(pidfd: BorrowedFd<'_>) -> Result<Option<(ExitStatus, ResourceUsage)>, Errno> {
    // SAFETY: zeroed is a valid value of both plain C structs; the kernel fills them in.
    let (mut info, mut usage): (libc::siginfo_t, libc::rusage) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: `waitid` is called directly because libc's wrapper has no rusage; all pointers are to live locals of
    // the right type, and the descriptor is borrowed for the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            libc::P_PIDFD,
            pidfd.as_raw_fd(),
            &raw mut info,
            libc::WEXITED | libc::WNOHANG | libc::__WALL,
            &raw mut usage,
        )
    };
    check(result)?;
    // SAFETY: after a successful waitid the siginfo is of the SIGCHLD kind, or all zero if nothing has ended.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let status = match info.si_code {
        libc::CLD_EXITED => ExitStatus::Code(status),
        libc::CLD_DUMPED => ExitStatus::Signal { number: status, core_dumped: true },
        _ => ExitStatus::Signal { number: status, core_dumped: false },
    };
    let usage = ResourceUsage {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        max_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
    };
    Ok(Some((status, usage)))
}

/// Signals the whole process group of the leader behind `pidfd`. `EINVAL` from kernels before 6.9.
pub(crate) fn signal_group(pidfd: BorrowedFd<'_>, signal: i32) -> Result<(), Errno> {
    // SAFETY: no memory is passed (siginfo is null), the descriptor is borrowed for the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null_mut::<libc::siginfo_t>(),
            PIDFD_SIGNAL_PROCESS_GROUP,
        )
    };
    check(result)
}

/// Reaps all exited children of this process except leaders. In a keeper process these are orphans of its trees, of
/// which the kernel makes it the parent.
pub(crate) fn reap_orphans(is_leader: impl Fn(u32) -> bool) {
    let mut skipped = std::collections::HashSet::new();
    loop {
        // SAFETY: zeroed is a valid siginfo.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let peek = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        // SAFETY: the pointer is to a live local; WNOWAIT leaves the child as it is.
        if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, peek) } != 0 {
            return;
        }
        // SAFETY: after success the siginfo is of the SIGCHLD kind, or zero.
        let pid = unsafe { info.si_pid() };
        // A leader is reaped through its own pidfd. The kernel would report the same one again, so we stop here; after
        // the leader's own event we are called again.
        if pid == 0 || is_leader(pid as u32) || !skipped.insert(pid) {
            return;
        }
        // SAFETY: as above; the pid is our own unreaped child, so it cannot have been recycled.
        unsafe { libc::waitid(libc::P_PID, pid as u32, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::__WALL) };
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
        + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

fn check(result: libc::c_long) -> Result<(), Errno> {
    if result < 0 { Err(super::last_errno()) } else { Ok(()) }
}
