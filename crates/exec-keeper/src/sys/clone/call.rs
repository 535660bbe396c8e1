//! The clone call in assembler, because the child continues on another stack. One function for each architecture.

use std::ffi::c_void;

/// A clone call whose child continues in `entry(argument)` on the stack named by `arguments`.
///
/// # Safety
/// `arguments` must ask for a stack of its own (with `CLONE_VM`), and `entry` must never return.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn clone_call(
    number: libc::c_long,
    arguments: [usize; 5],
    entry: extern "C" fn(*mut c_void) -> !,
    argument: *mut c_void,
) -> isize {
    let mut result = number as isize;
    // SAFETY: in the parent this is one system call. In the child it is a jump to `entry` on a fresh, 16-aligned
    // stack: nothing of our own frame is touched there.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r12") entry,
            in("r13") argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// A clone call whose child continues in `entry(argument)` on the stack named by `arguments`.
///
/// # Safety
/// `arguments` must ask for a stack of its own (with `CLONE_VM`), and `entry` must never return.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn clone_call(
    number: libc::c_long,
    arguments: [usize; 5],
    entry: extern "C" fn(*mut c_void) -> !,
    argument: *mut c_void,
) -> isize {
    let mut result = arguments[0] as isize;
    // SAFETY: as on x86_64.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x20",
            "blr x21",
            "brk 1",
            "2:",
            inlateout("x0") result,
            in("x8") number,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x20") argument,
            in("x21") entry,
        );
    }
    result
}
