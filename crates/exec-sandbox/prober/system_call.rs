//! Raw system calls: what the probes call is mostly not in any library, or only with checks of its own.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use libc::c_long;

use crate::attempt::Failure;

/// `call!(SYS_name, argument, …)`: numbers and pointers, at most six.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::system_call::raw($number, &[$($argument as usize),*])
    };
}
pub(crate) use call;

/// Makes a system call. Pointers among the arguments come from a borrow that lasts as long as the statement, and point
/// to as much memory as the call writes; there is no way to check this here, and every caller is a few lines long.
pub(crate) fn raw(number: c_long, arguments: &[usize]) -> Result<usize, Failure> {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: the kernel reads and writes only memory that the caller of this function has borrowed for it, see above;
    // calls that do not return or that return twice are not made through this function.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    match usize::try_from(result) {
        Ok(value) => Ok(value),
        Err(_) => Err(std::io::Error::last_os_error().into()),
    }
}

/// A fork by raw `clone` or `clone3`: the child ends at once, the parent gets its pid.
pub(crate) fn fork_and_end_child(number: c_long, arguments: &[usize]) -> Result<usize, Failure> {
    let child = raw(number, arguments)?;
    if child == 0 {
        // SAFETY: it only ends the process, without running anything of the parent's copy.
        unsafe { libc::_exit(0) }
    }
    // With these flags the child may not be ours to wait for; then nobody waits.
    let _ = raw(libc::SYS_wait4, &[child, 0, 0, 0]);
    Ok(child)
}

/// Runs `work` in a copy of this process and waits for its end. Hundreds of probes are run so; to start this program again
/// for each takes ten times as long.
pub(crate) fn in_a_child(work: impl FnOnce()) -> Result<ExitStatus, Failure> {
    // SAFETY: this process has one thread, so the child finds no lock held by a thread that it does not have.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(std::io::Error::last_os_error().into()),
        0 => {
            work();
            // SAFETY: it only ends the child; what the parent has in its buffers is not written twice.
            unsafe { libc::_exit(0) }
        }
        _ => {
            let mut status = 0;
            // SAFETY: the kernel writes the status of our own child to a variable of ours.
            match unsafe { libc::waitpid(child, &raw mut status, 0) } {
                -1 => Err(std::io::Error::last_os_error().into()),
                _ => Ok(ExitStatus::from_raw(status)),
            }
        }
    }
}

/// The kernel ends this process by SIGALRM after so many seconds.
pub(crate) fn end_after(seconds: u32) {
    // SAFETY: it takes a number and has no handler to run.
    unsafe { libc::alarm(seconds) };
}

/// A 32-bit system call of a 64-bit process: another table of calls, which filters must know.
#[cfg(target_arch = "x86_64")]
pub(crate) fn call_as_32_bit(number: u32, arguments: [u32; 3]) -> Result<usize, Failure> {
    let result: u32;
    // SAFETY: the calls made so take numbers only. rbx is restored, as the compiler keeps it for itself.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {first:r}",
            "int 0x80",
            "xchg rbx, {first:r}",
            first = inout(reg) u64::from(arguments[0]) => _,
            inlateout("eax") number => result,
            in("ecx") arguments[1],
            in("edx") arguments[2],
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    match result.cast_signed() {
        errno if (-4095..0).contains(&errno) => Err(Failure::Errno(-errno)),
        value => Ok(value as usize),
    }
}
