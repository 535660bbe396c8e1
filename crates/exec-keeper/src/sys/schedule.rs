//! Asks the scheduler to run the keeper's thread soon after it is woken.

/// The shortest slice that sched(7) allows. A thread with short slices may interrupt one with long slices.
const SLICE_NANOS: u64 = 100_000;
const RESET_ON_FORK: u64 = 1;

/// `struct sched_attr` in its first version, which every kernel accepts.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for short slices for this thread, and ordinary ones for its children. The keeper's work takes microseconds, and
/// its owner waits for it while a child may have the processor. Kernels before 6.12 ignore this.
pub(crate) fn run_in_short_slices() {
    let size = size_of::<Attributes>() as u32;
    let mut now = Attributes { size, ..Attributes::default() };
    // SAFETY: the kernel writes at most `size` bytes into the live local.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) } == 0;
    // A policy that somebody chose stays, and so does a priority that our children should inherit.
    if !known || now.policy != libc::SCHED_OTHER as u32 || now.nice < 0 {
        return;
    }
    let wanted = Attributes { flags: RESET_ON_FORK, runtime: SLICE_NANOS, deadline: 0, period: 0, ..now };
    // SAFETY: the kernel reads the live local, and changes nothing but how this thread is scheduled.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
}
