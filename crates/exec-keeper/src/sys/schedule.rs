//! How soon the scheduler lets us in.

/// The shortest slice that may be asked for (sched(7)): who runs a moment at a time may interrupt who runs long.
const SLICE_NANOS: u64 = 100_000;
const RESET_ON_FORK: u64 = 1;

/// `struct sched_attr` as of its first version, which every kernel takes.
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

/// Asks for short slices for this thread, and ordinary ones for its children: what we have to do takes microseconds, and
/// others wait for it while a child of ours has the processor. Kernels before 6.12 do not know the wish.
pub(crate) fn run_in_short_slices() {
    let size = size_of::<Attributes>() as u32;
    let mut now = Attributes { size, ..Attributes::default() };
    // SAFETY: the kernel writes at most `size` bytes into the live local.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) } == 0;
    // A policy somebody chose stays, and so does a priority our children should inherit.
    if !known || now.policy != libc::SCHED_OTHER as u32 || now.nice < 0 {
        return;
    }
    let wish = Attributes { flags: RESET_ON_FORK, runtime: SLICE_NANOS, deadline: 0, period: 0, ..now };
    // SAFETY: the kernel reads the live local, and changes nothing but how this thread is scheduled. A refusal leaves all
    // as it was.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wish, 0) };
}
