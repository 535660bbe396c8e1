//! How a child gets the rights of another user, and puts limits on itself, between `clone` and `exec`.
//!
//! As in `clone`: system calls only, no allocation, no lock, no panic. The calls are made directly: libc's own functions
//! would change the user of all threads of the process whose memory the child shares.

use crate::protocol::Identity;
use crate::tree::Rlimits;

/// Gives up the rights of root for those of a user, for good. The error is an errno.
///
/// # Safety
/// In a child that shares nothing but memory with us; see the module.
pub(super) unsafe fn become_user(identity: &Identity) -> Result<(), i32> {
    let Identity { uid, gid, groups } = identity;
    // SAFETY: plain values, and a list that lives as long as the call.
    unsafe {
        // From now on until its program runs, a process of that user shares our memory. Who may trace it could write there,
        // so nobody but root may. The kernel says so too when the user changes, unless it is set up otherwise. It stays
        // like this for us: another child may be at the same point.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        check(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
        check(libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid))?;
        check(libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid))?;
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        if *uid != 0 {
            // They are gone already, unless our own process was told to keep them.
            super::confine::clear_capabilities()?;
        }
    }
    Ok(())
}

/// Lowers the resource limits. What is lower already stays as it is. The error is an errno.
///
/// # Safety
/// As for [`become_user`].
pub(super) unsafe fn lower_limits(limits: &Rlimits) -> Result<(), i32> {
    // The kernel sends XCPU at the soft limit of processor time, and KILL at the hard one: with both alike it would be KILL,
    // of which nobody can tell the reason.
    let after_cpu = limits.cpu_seconds.map(|seconds| seconds.saturating_add(1));
    // SAFETY: as promised by the caller.
    unsafe {
        lower(libc::RLIMIT_AS, limits.address_space, limits.address_space)?;
        lower(libc::RLIMIT_CPU, limits.cpu_seconds, after_cpu)?;
        lower(libc::RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes)?;
        lower(libc::RLIMIT_NOFILE, limits.open_files, limits.open_files)
    }
}

unsafe fn lower(resource: libc::__rlimit_resource_t, soft: Option<u64>, hard: Option<u64>) -> Result<(), i32> {
    let (Some(soft), Some(hard)) = (soft, hard) else { return Ok(()) };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live local of the right type.
    unsafe {
        check(libc::getrlimit(resource, &raw mut limit).into())?;
        limit.rlim_max = limit.rlim_max.min(hard);
        limit.rlim_cur = limit.rlim_cur.min(soft).min(limit.rlim_max);
        check(libc::setrlimit(resource, &raw const limit).into())
    }
}

fn check(returned: libc::c_long) -> Result<(), i32> {
    // SAFETY: errno of this thread; in a child that shares our memory it is the one of the suspended thread.
    if returned < 0 { Err(unsafe { *libc::__errno_location() }) } else { Ok(()) }
}
