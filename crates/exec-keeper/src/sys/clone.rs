//! Spawns a child with one `clone3`, the way `posix_spawn` does it.
//!
//! The child shares our memory until it execs, and this thread is suspended meanwhile (`CLONE_VM | CLONE_VFORK`), for
//! ever if the program is on a mount that does not answer. So the size of the daemon does not matter, and there is no
//! fork. Beyond what `posix_spawn` offers, the child starts inside its cgroup, comes with a pidfd, and reports *which*
//! step failed, because it writes into our memory. docs/decisions/0002 says why we do not call `posix_spawn` itself.

mod pid_namespace;

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions};

use crate::protocol::{Identity, SpawnStep};
use crate::sys::confine::{ConfineStep, PreparedConfinement};
use crate::sys::user;
use crate::tree::Rlimits;
use pid_namespace::{OwnPids, PidNamespace};

/// Enough for a few frames of system calls. The page below it is a guard.
const STACK_BYTES: usize = 64 << 10;

/// For whoever makes a child in a pid namespace, above the child's own and with a guard below it.
const CREATOR_STACK_BYTES: usize = 16 << 10;

const GUARD_BYTES: usize = 4096;

const MAPPED_BYTES: usize = GUARD_BYTES + STACK_BYTES + GUARD_BYTES + CREATOR_STACK_BYTES;

/// What becomes the child's descriptors 0, 1 and 2.
#[derive(Clone, Copy)]
pub(crate) enum ChildStdio<'a> {
    Pipes {
        stdin: BorrowedFd<'a>,
        stdout: BorrowedFd<'a>,
        stderr: BorrowedFd<'a>,
    },
    /// The child opens the other end itself, so that the terminal becomes its controlling one.
    Pty {
        master: BorrowedFd<'a>,
    },
}

/// How the child comes into its cgroup. Either way it is there before its program runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CgroupEntry<'a> {
    /// The kernel makes it there: the directory.
    AtBirth(BorrowedFd<'a>),
    /// It moves there itself, where the kernel refuses the first: the file `cgroup.procs`, open for writing.
    ByWrite(BorrowedFd<'a>),
}

/// Everything that the child needs. It is made before the clone, because the child must not allocate.
pub(crate) struct SpawnPlan<'a> {
    /// Programs to try in turn, like `execvp`.
    pub(crate) candidates: &'a [CString],
    pub(crate) argv: &'a [CString],
    pub(crate) envp: &'a [CString],
    pub(crate) cwd: &'a CStr,
    pub(crate) stdio: ChildStdio<'a>,
    /// The child gets copies only of descriptors below this number, so everything it uses must be there. `None`: it gets
    /// copies of all, and closes them. That takes as long as there are many.
    pub(crate) copied_below: Option<u32>,
    pub(crate) cgroup: Option<CgroupEntry<'a>>,
    /// The lists of further cgroups, which limit what it uses, each open for writing.
    pub(crate) limit_entries: Vec<BorrowedFd<'a>>,
    pub(crate) rlimits: Rlimits,
    /// Whose rights it has, if not ours.
    pub(crate) identity: Option<&'a Identity>,
    /// The limit by which descendants are found if there is no cgroup; see `tree`.
    pub(crate) mark: u64,
    /// Whether the kernel kills the child when the thread that spawned it ends.
    pub(crate) die_with_parent: bool,
    /// Soft and hard limit of open files, if the child should not inherit ours.
    pub(crate) open_files: Option<(u64, u64)>,
    /// Signals to be set to their default, signal n as bit n - 1. It must have all that are not.
    pub(crate) reset_signals: u64,
    /// What the child does to itself before its program runs.
    pub(crate) confinement: Option<PreparedConfinement<'a>>,
    /// Set to the child's pid before it runs, for the threads that are not suspended.
    pub(crate) pid: &'a AtomicU32,
}

/// Why there is no child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CloneError {
    pub(crate) step: SpawnStep,
    pub(crate) errno: Errno,
    /// What of the confinement failed, if `step` is that.
    pub(crate) confine_step: Option<ConfineStep>,
}

/// A child that runs its program.
pub(crate) struct ClonedChild {
    pub(crate) pid: u32,
    pub(crate) pidfd: OwnedFd,
    /// Whether it has the mark.
    pub(crate) marked: bool,
    /// The first process of its pid namespace, if it has one of its own; it ends when all others there have ended.
    pub(crate) init: Option<u32>,
}

/// The child's stack, used again for every spawn.
#[derive(Debug)]
pub(crate) struct ChildStack {
    base: *mut c_void,
}

// SAFETY: the mapping is private memory that only the owner of the ChildStack touches.
unsafe impl Send for ChildStack {}

impl ChildStack {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: a fresh anonymous mapping touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                MAPPED_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Errno::NOMEM);
        }
        let stack = Self { base };
        for guard in [stack.bottom() - GUARD_BYTES, stack.creator_bottom() - GUARD_BYTES] {
            // SAFETY: a page of the mapping just made; nothing uses it.
            unsafe { libc::mprotect(guard as *mut c_void, GUARD_BYTES, libc::PROT_NONE) };
        }
        Ok(stack)
    }

    fn bottom(&self) -> usize {
        self.base as usize + GUARD_BYTES
    }

    fn creator_bottom(&self) -> usize {
        self.bottom() + STACK_BYTES + GUARD_BYTES
    }

    /// Returns when the child runs its program, or has failed.
    pub(crate) fn spawn(&mut self, plan: &mut SpawnPlan<'_>) -> Result<ClonedChild, CloneError> {
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
        };
        let (candidates, argv, envp) = (pointers(plan.candidates), pointers(plan.argv), pointers(plan.envp));
        let mut raw = RawSpawnPlan {
            candidates: candidates.as_ptr(),
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            stdio: match &plan.stdio {
                ChildStdio::Pipes { stdin, stdout, stderr } => {
                    [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()]
                }
                ChildStdio::Pty { master } => [master.as_raw_fd(), -1, -1],
            },
            plan,
            ran: false,
            marked: false,
            failed: None,
            confine_step: None,
            own_pids: None,
        };
        let confinement = raw.plan.confinement.as_ref();
        let namespace = confinement.filter(|asked| asked.has_pid_namespace()).map(|_| PidNamespace::new());
        let namespace =
            namespace.transpose().map_err(|errno| CloneError { step: SpawnStep::Pipe, errno, confine_step: None })?;
        raw.own_pids = namespace.as_ref().map(|namespace| namespace.for_creator(self.bottom()));
        let everything = !0u64;
        let mut before = 0u64;
        // SAFETY: plain values in and out. All signals are blocked (glibc's internal ones too, hence the raw call), so
        // that no handler of ours can run in the child, where it would change our memory.
        unsafe { raw_sigmask(libc::SIG_BLOCK, &everything, &mut before) };
        let outcome = self.clone_raw(&mut raw);
        // SAFETY: as above; it restores the mask.
        unsafe { raw_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
        let failed = |step, errno| CloneError { step, errno, confine_step: raw.confine_step };
        let (pid, pidfd) = outcome.map_err(|errno| failed(SpawnStep::Clone, errno))?;
        let made = match (namespace, raw.own_pids) {
            (Some(namespace), Some(own_pids)) => namespace.made_by(&pidfd, own_pids),
            _ => Made { program: Some((pid, pidfd)), init: None },
        };
        let (step, errno) = match (raw.failed, &made.program) {
            (None, Some(_)) if raw.ran => {
                let init = made.init.map(|(pid, _)| pid);
                let Some((pid, pidfd)) = made.program else { return Err(failed(SpawnStep::Clone, Errno::CANCELED)) };
                return Ok(ClonedChild { pid, pidfd, marked: raw.marked, init });
            }
            // The kernel (6.18) kills a child that is born into a cgroup which was killed fewer or more times than ours.
            (None, _) => (SpawnStep::Clone, libc::ECANCELED),
            (Some(failed), _) => failed,
        };
        made.end();
        Err(failed(step, Errno::from_raw_os_error(errno)))
    }

    fn clone_raw(&self, raw: &mut RawSpawnPlan<'_, '_>) -> Result<(u32, OwnedFd), Errno> {
        let mut pidfd: RawFd = -1;
        let mut flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
        // Whoever makes a child in a pid namespace opens descriptors for us, and closes none.
        if raw.plan.copied_below.is_some() || raw.own_pids.is_some() {
            flags |= libc::CLONE_FILES;
        }
        let (entry, bottom, stack_bytes): (extern "C" fn(*mut c_void) -> !, usize, usize) = match raw.own_pids {
            Some(_) => (pid_namespace::creator, self.creator_bottom(), CREATOR_STACK_BYTES),
            None => (child, self.bottom(), STACK_BYTES),
        };
        // SAFETY: zeroed is a valid value of this plain C struct: nothing is asked for.
        let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
        args.flags = flags as u64;
        args.pidfd = &raw mut pidfd as u64;
        args.exit_signal = libc::SIGCHLD as u64;
        args.flags |= libc::CLONE_PARENT_SETTID as u64;
        args.parent_tid = raw.plan.pid.as_ptr() as u64;
        args.stack = bottom as u64;
        args.stack_size = stack_bytes as u64;
        let born_in_cgroup = match raw.plan.cgroup {
            Some(CgroupEntry::AtBirth(directory)) => {
                args.flags |= CLONE_INTO_CGROUP;
                args.cgroup = directory.as_raw_fd() as u64;
                true
            }
            _ => false,
        };
        let raw: *mut RawSpawnPlan<'_, '_> = raw;
        // SAFETY: the arguments describe a child on its own stack that runs `entry(raw)` and never returns; `raw`
        // and all it points to outlive the call, because we are suspended until the child execs or exits.
        let mut result = unsafe {
            let arguments = [&raw const args as usize, size_of::<libc::clone_args>(), 0, 0, 0];
            clone_call(libc::SYS_clone3, arguments, entry, raw.cast())
        };
        // Old kernels, and the seccomp filters of some container runtimes. The old call does the same, except that the
        // child must move to its cgroup itself.
        if !born_in_cgroup && [-libc::ENOSYS, -libc::EPERM].contains(&(result as i32)) {
            let top = bottom + stack_bytes;
            // SAFETY: as above; the old call takes the top of the stack, and the pidfd in the parent-tid slot.
            result = unsafe {
                let arguments = [(flags | libc::SIGCHLD) as usize, top, &raw mut pidfd as usize, 0, 0];
                clone_call(libc::SYS_clone, arguments, entry, raw.cast())
            };
        }
        if result < 0 {
            return Err(Errno::from_raw_os_error(-result as i32));
        }
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        Ok((result as u32, unsafe { OwnedFd::from_raw_fd(pidfd) }))
    }
}

impl Drop for ChildStack {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which no child uses any more: `spawn` returns only after the child has left it.
        unsafe { libc::munmap(self.base, MAPPED_BYTES) };
    }
}

/// Whether [`SpawnPlan::copied_below`] can be used: Linux 5.9, and no filter that refuses the call. To be asked before
/// there are threads, because it gives the caller a table of descriptors of its own.
pub(crate) fn can_copy_few_descriptors() -> bool {
    // SAFETY: plain values; no descriptor has the largest number, so none is closed.
    unsafe { libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, libc::CLOSE_RANGE_UNSHARE) == 0 }
}

/// Larger than the `c_int` that libc has for the flags of clone.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What the child reads, and where it reports a failure. Two processes use it in turn.
struct RawSpawnPlan<'a, 'p> {
    plan: &'a mut SpawnPlan<'p>,
    /// Arrays that end with null, as `execve` wants them.
    candidates: *const *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    /// For a terminal: its master, -1, -1.
    stdio: [RawFd; 3],
    /// Set by the child's first instruction.
    ran: bool,
    /// Set by the child if it could set the mark.
    marked: bool,
    /// The step and its errno.
    failed: Option<(SpawnStep, i32)>,
    confine_step: Option<ConfineStep>,
    /// If the child is to have a pid namespace of its own.
    own_pids: Option<OwnPids>,
}

/// A program, and the init of its pid namespace if that is its own, as they were made; each reaped or not.
struct Made {
    program: Option<(u32, OwnedFd)>,
    init: Option<(u32, OwnedFd)>,
}

impl Made {
    /// The start has failed, so the program has exited. It is reaped here, so that nobody sees it as a process of ours.
    fn end(self) {
        if let Some((_, program)) = &self.program {
            reap(program);
        }
        if let Some((_, init)) = &self.init {
            let _ = rustix::process::pidfd_send_signal(init, rustix::process::Signal::KILL);
            let mut gone = [rustix::event::PollFd::new(init, rustix::event::PollFlags::IN)];
            let _ = rustix::io::retry_on_intr(|| rustix::event::poll(&mut gone, None));
        }
    }
}

fn reap(child: &OwnedFd) {
    let _ = rustix::process::waitid(WaitId::PidFd(child.as_fd()), WaitIdOptions::EXITED);
}

/// What the child does before its program: system calls only, no allocation, no lock, no panic.
extern "C" fn child(raw: *mut c_void) -> ! {
    let raw: *mut RawSpawnPlan<'_, '_> = raw.cast();
    // SAFETY: the parent passes its own live RawSpawnPlan and is suspended, so we are its only user. Every call below is a
    // bare system call on plain values or on strings of the RawSpawnPlan; errno lives in the suspended thread's own slot.
    unsafe {
        let plan = &mut *(*raw).plan;
        (*raw).ran = true;
        // The old call has no place for it. A child of its own pid namespace would not know it, but comes by the new one.
        if plan.pid.load(Ordering::Relaxed) == 0 {
            plan.pid.store(libc::getpid() as u32, Ordering::Release);
        }
        // First of all. Until then we share the keeper's descriptors, so what we close or open is closed or opened there.
        if let Some(first) = plan.copied_below
            && libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) < 0
        {
            fail(raw, SpawnStep::Pipe);
        }
        enter_cgroups(raw, plan);
        if libc::setsid() < 0 {
            fail(raw, SpawnStep::Session);
        }
        // The mark is a limit that nobody reaches: it concerns real-time threads only, and means millennia. Descendants
        // inherit it through fork, exec and setsid.
        let mark = libc::rlimit { rlim_cur: plan.mark, rlim_max: plan.mark };
        (*raw).marked = libc::setrlimit(libc::RLIMIT_RTTIME, &raw const mark) == 0;
        take_stdio(raw);
        if let Some(confinement) = &mut plan.confinement
            && let Err(failure) = confinement.enter()
        {
            fail_confinement(raw, failure);
        }
        if let Some(identity) = plan.identity
            && let Err(errno) = user::become_user(identity)
        {
            fail_with(raw, SpawnStep::User, errno);
        }
        if let Some(confinement) = &plan.confinement
            && let Err(failure) = confinement.restrict()
        {
            fail_confinement(raw, failure);
        }
        // Only now, because whoever enters a namespace or changes its user may lose it.
        if plan.die_with_parent {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        // The host program may have descriptors open without CLOEXEC.
        if libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) < 0 {
            for descriptor in 3..4096 {
                libc::close(descriptor);
            }
        }
        // Only now: with the keeper's many descriptors open, the child could not have opened its terminal below its own
        // limit.
        if let Some((soft, hard)) = plan.open_files {
            let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
        if let Err(errno) = user::lower_limits(&plan.rlimits) {
            fail_with(raw, SpawnStep::Limits, errno);
        }
        reset_signals(plan.reset_signals);
        if libc::chdir(plan.cwd.as_ptr()) < 0 {
            fail(raw, SpawnStep::Cwd);
        }
        let none = 0u64;
        raw_sigmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        if let Some(confinement) = &plan.confinement
            && let Err(failure) = confinement.seal()
        {
            fail_confinement(raw, failure);
        }
        exec(raw)
    }
}

/// # Safety
/// As in [`child`].
unsafe fn enter_cgroups(raw: *mut RawSpawnPlan<'_, '_>, plan: &SpawnPlan<'_>) {
    // SAFETY: as in `child`; each file is open as long as the plan lives.
    unsafe {
        let entered = |procs: &BorrowedFd<'_>| libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) >= 0;
        if let Some(CgroupEntry::ByWrite(procs)) = &plan.cgroup
            && !entered(procs)
        {
            fail(raw, SpawnStep::Clone);
        }
        if !plan.limit_entries.iter().all(entered) {
            fail(raw, SpawnStep::Limits);
        }
    }
}

/// Its standard streams, which for a terminal are the terminal's other end.
///
/// # Safety
/// As in [`child`], which leads a session by now.
unsafe fn take_stdio(raw: *mut RawSpawnPlan<'_, '_>) {
    // SAFETY: as in `child`.
    unsafe {
        let mut stdio = (*raw).stdio;
        if stdio[1] < 0 {
            // Opened by a session leader, it becomes the controlling terminal.
            let slave = libc::ioctl(stdio[0], libc::TIOCGPTPEER, libc::O_RDWR);
            if slave < 0 || libc::ioctl(slave, libc::TIOCSCTTY, 0) < 0 {
                fail(raw, SpawnStep::Pty);
            }
            stdio = [slave, slave, slave];
        }
        for (target, source) in stdio.into_iter().enumerate() {
            // No source is 0, 1 or 2 (see `spawn::above_stdio`), so no dup2 overwrites one that is still needed.
            if libc::dup2(source, target as RawFd) < 0 {
                fail(raw, SpawnStep::Pipe);
            }
        }
    }
}

/// Rust programs ignore SIGPIPE, and an ignored signal stays ignored through exec. `left` has a bit for each signal that is
/// not at its default.
///
/// # Safety
/// As in [`child`].
unsafe fn reset_signals(mut left: u64) {
    let default = [0u64; 4];
    while left != 0 {
        let signal = left.trailing_zeros() + 1;
        // SAFETY: as in `child`. The raw call, because libc refuses to touch the two signals it uses itself, which an ancestor
        // may have left ignored.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null_mut::<u64>(), 8) };
        left &= left - 1;
    }
}

/// # Safety
/// As in [`child`].
unsafe fn fail_confinement(raw: *mut RawSpawnPlan<'_, '_>, (step, errno): (ConfineStep, i32)) -> ! {
    // SAFETY: as in `child`.
    unsafe {
        (*raw).confine_step = Some(step);
        fail_with(raw, SpawnStep::Sandbox, errno)
    }
}

/// # Safety
/// As in [`child`].
unsafe fn fail_with(raw: *mut RawSpawnPlan<'_, '_>, step: SpawnStep, errno: i32) -> ! {
    // SAFETY: as in `child`.
    unsafe {
        *libc::__errno_location() = errno;
        fail(raw, step)
    }
}

/// Tries the candidates like `execvp`: after "not found" the next one is tried, "no permission" is remembered for the
/// end, and any other error ends the search. A program with a slash is the only candidate, and fails with its own error.
///
/// # Safety
/// As in [`child`].
unsafe fn exec(raw: *mut RawSpawnPlan<'_, '_>) -> ! {
    let mut refused = false;
    // SAFETY: as in `child`; the candidate array ends with null.
    unsafe {
        let mut candidate = (*raw).candidates;
        let only = !(*candidate).is_null() && (*candidate.add(1)).is_null();
        while !(*candidate).is_null() {
            libc::execve(*candidate, (*raw).argv, (*raw).envp);
            match *libc::__errno_location() {
                _ if only => fail(raw, SpawnStep::Exec),
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => refused = true,
                _ => fail(raw, SpawnStep::Exec),
            }
            candidate = candidate.add(1);
        }
        *libc::__errno_location() = if refused { libc::EACCES } else { libc::ENOENT };
        fail(raw, SpawnStep::Exec)
    }
}

/// # Safety
/// As in [`child`].
unsafe fn fail(raw: *mut RawSpawnPlan<'_, '_>, step: SpawnStep) -> ! {
    // SAFETY: as in `child`.
    unsafe {
        (*raw).failed = Some((step, *libc::__errno_location()));
        libc::_exit(127)
    }
}

/// # Safety
/// `old` is null or points to a u64.
unsafe fn raw_sigmask(how: i32, new: &u64, old: *mut u64) {
    // SAFETY: the kernel's own mask is 8 bytes; the pointers are as the caller promised.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, ptr::from_ref(new), old, 8) };
}

/// A clone call whose child continues in `entry(argument)` on the stack named by `arguments`. In assembler, because the
/// child must not touch the frame of its parent.
///
/// # Safety
/// `arguments` must ask for a stack of its own (with `CLONE_VM`), and `entry` must never return.
unsafe fn clone_call(
    number: libc::c_long,
    arguments: [usize; 5],
    entry: extern "C" fn(*mut c_void) -> !,
    argument: *mut c_void,
) -> isize {
    let mut result;
    // SAFETY: in the parent this is one system call. In the child it is a jump to `entry` on a fresh, 16-aligned
    // stack: nothing of our own frame is touched there.
    #[cfg(target_arch = "x86_64")]
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
            inlateout("rax") number as isize => result,
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
    // SAFETY: as on x86_64.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x20",
            "blr x21",
            "brk 1",
            "2:",
            inlateout("x0") arguments[0] as isize => result,
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
