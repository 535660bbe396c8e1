//! Processes out of the sandbox: signals, memory, descriptors, limits, and what `/proc` tells of them.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use libc::{c_int, c_long};

use crate::attempt::{Attempt, Failure, Probe, absent, got, probe, reached, refused};
use crate::system_call::call;
use crate::targets::Targets;

pub(crate) const PROBES: &[Probe] = &[
    probe("signal-nothing", |t| reached(call!(libc::SYS_kill, pid(t)?, 0), &[])),
    probe("signal-continue", |t| reached(call!(libc::SYS_kill, pid(t)?, libc::SIGCONT), &[])),
    probe("signal-group", |t| {
        let group = call!(libc::SYS_getpgid, pid(t)?)?.cast_signed();
        reached(call!(libc::SYS_kill, -group, libc::SIGCONT), &[])
    }),
    probe("signal-thread", |t| reached(call!(libc::SYS_tkill, pid(t)?, libc::SIGCONT), &[])),
    probe("signal-thread-of-group", |t| reached(call!(libc::SYS_tgkill, pid(t)?, pid(t)?, libc::SIGCONT), &[])),
    probe("signal-queued", |t| {
        let information = queued_signal();
        reached(call!(libc::SYS_rt_sigqueueinfo, pid(t)?, libc::SIGCONT, information.as_ptr()), &[])
    }),
    probe("signal-queued-to-thread", |t| {
        let information = queued_signal();
        let result = call!(libc::SYS_rt_tgsigqueueinfo, pid(t)?, pid(t)?, libc::SIGCONT, information.as_ptr());
        reached(result, &[])
    }),
    probe("signal-init", |t| reached(call!(libc::SYS_kill, real_init(t)?, 0), &[])),
    probe("signal-by-descriptor", |t| {
        let descriptor = pidfd(t)?;
        reached(call!(libc::SYS_pidfd_send_signal, descriptor, libc::SIGCONT, 0, 0), &[])
    }),
    probe("signal-by-proc-directory", |t| {
        let directory = fs::File::open(proc_path(t, "")?)?;
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&directory);
        reached(call!(libc::SYS_pidfd_send_signal, descriptor, libc::SIGCONT, 0, 0), &[])
    }),
    probe("descriptor-of-process", |t| {
        // With no right to it, a descriptor that names the process is harmless; that it can be had says who is there.
        pidfd(t)?;
        got("a descriptor")
    }),
    probe("descriptor-stolen", |t| {
        let descriptor = pidfd(t)?;
        reached(call!(libc::SYS_pidfd_getfd, descriptor, 0, 0), &[])
    }),
    probe("trace-attach", |t| {
        let result = call!(libc::SYS_ptrace, libc::PTRACE_ATTACH, pid(t)?, 0, 0);
        if result.is_ok() {
            let _ = call!(libc::SYS_wait4, pid(t)?, 0, 0x4000_0000, 0);
            let _ = call!(libc::SYS_ptrace, libc::PTRACE_DETACH, pid(t)?, 0, 0);
        }
        reached(result, &[])
    }),
    probe("trace-seize", |t| reached(call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, pid(t)?, 0, 0), &[])),
    probe("memory-read", |t| memory(t, libc::SYS_process_vm_readv)),
    probe("memory-write", |t| memory(t, libc::SYS_process_vm_writev)),
    probe("memory-advice", |t| {
        let descriptor = pidfd(t)?;
        // A page that is never mapped: the kernel answers ENOMEM after it has let us in.
        let range = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 4096 };
        let result = call!(libc::SYS_process_madvise, descriptor, &raw const range, 1, libc::MADV_COLD, 0);
        reached(result, &[libc::ENOMEM])
    }),
    probe("memory-release", |t| {
        let descriptor = pidfd(t)?;
        // It is refused with EINVAL for a process that is not dying.
        reached(call!(libc::SYS_process_mrelease, descriptor, 0), &[libc::EINVAL])
    }),
    probe("memory-pages", |t| {
        let (pages, mut status) = ([0usize; 1], [0i32; 1]);
        let result = call!(libc::SYS_move_pages, pid(t)?, 1, pages.as_ptr(), 0, status.as_mut_ptr(), 0);
        reached(result, &[libc::ENOENT])
    }),
    probe("memory-migrate", |t| {
        let nodes = [1u64; 1];
        reached(call!(libc::SYS_migrate_pages, pid(t)?, 2, nodes.as_ptr(), nodes.as_ptr()), &[])
    }),
    probe("robust-list", |t| {
        let (mut head, mut length) = (0usize, 0usize);
        reached(call!(libc::SYS_get_robust_list, pid(t)?, &raw mut head, &raw mut length), &[])
    }),
    probe("compare-descriptors", |t| {
        let own = std::process::id();
        reached(call!(libc::SYS_kcmp, own, pid(t)?, 0, 0, 0), &[])
    }),
    probe("performance-of-process", |t| {
        let mut attributes = [0u32; 32];
        (attributes[0], attributes[1]) = (1, 128); // a software counter: the time it ran
        let result = call!(libc::SYS_perf_event_open, attributes.as_ptr(), pid(t)?, -1i32, -1i32, 0);
        reached(result, &[])
    }),
    probe("limits-read", |t| {
        let mut limit = [0u64; 2];
        reached(call!(libc::SYS_prlimit64, pid(t)?, libc::RLIMIT_NOFILE, 0, limit.as_mut_ptr()), &[])
    }),
    probe("limits-set", |t| {
        let mut limit = [0u64; 2];
        call!(libc::SYS_prlimit64, pid(t)?, libc::RLIMIT_CORE, 0, limit.as_mut_ptr())?;
        reached(call!(libc::SYS_prlimit64, pid(t)?, libc::RLIMIT_CORE, limit.as_ptr(), 0), &[])
    }),
    probe("priority-set", |t| {
        // The raw call answers 20 - nice.
        let nice = 20 - call!(libc::SYS_getpriority, libc::PRIO_PROCESS, pid(t)?)?.cast_signed();
        reached(call!(libc::SYS_setpriority, libc::PRIO_PROCESS, pid(t)?, nice), &[])
    }),
    probe("affinity-set", |t| {
        let mut mask = [0u64; 16];
        call!(libc::SYS_sched_getaffinity, pid(t)?, size_of_val(&mask), mask.as_mut_ptr())?;
        reached(call!(libc::SYS_sched_setaffinity, pid(t)?, size_of_val(&mask), mask.as_ptr()), &[])
    }),
    probe("scheduler-set", |t| {
        let priority = 0i32;
        let result = call!(libc::SYS_sched_setscheduler, pid(t)?, libc::SCHED_OTHER, &raw const priority);
        reached(result, &[])
    }),
    probe("scheduler-attributes-set", |t| {
        let mut attributes = [0u32; 12];
        call!(libc::SYS_sched_getattr, pid(t)?, attributes.as_mut_ptr(), size_of_val(&attributes), 0)?;
        reached(call!(libc::SYS_sched_setattr, pid(t)?, attributes.as_ptr(), 0), &[])
    }),
    probe("io-priority-set", |t| {
        let priority = call!(libc::SYS_ioprio_get, 1, pid(t)?)?;
        reached(call!(libc::SYS_ioprio_set, 1, pid(t)?, priority), &[])
    }),
    probe("priority-of-user", |_| priority_of_user()),
    probe("io-priority-of-user", |_| {
        // A class that there is not, for all processes of this user: nothing is set.
        const OF_USER: c_int = 3;
        reached(call!(libc::SYS_ioprio_set, OF_USER, 0, 7 << 13), &[libc::EINVAL])
    }),
    probe("namespaces-joined", |t| {
        let descriptor = pidfd(t)?;
        reached(call!(libc::SYS_setns, descriptor, libc::CLONE_NEWUTS), &[])
    }),
    probe("proc-memory", |t| opens(t, "mem", false)),
    probe("proc-memory-for-writing", |t| opens(t, "mem", true)),
    probe("proc-environment", |t| reads(t, "environ")),
    probe("proc-maps", |t| reads(t, "maps")),
    probe("proc-smaps", |t| reads(t, "smaps")),
    probe("proc-numa-maps", |t| reads(t, "numa_maps")),
    probe("proc-page-map", |t| opens(t, "pagemap", false)),
    probe("proc-stack", |t| reads(t, "stack")),
    probe("proc-system-call", |t| reads(t, "syscall")),
    probe("proc-personality", |t| reads(t, "personality")),
    probe("proc-auxiliary-vector", |t| reads(t, "auxv")),
    probe("proc-io", |t| reads(t, "io")),
    probe("proc-descriptors", |t| {
        fs::read_dir(proc_path(t, "fd")?)?;
        got("the list of its descriptors")
    }),
    probe("proc-descriptor-information", |t| reads(t, "fdinfo/0")),
    probe("proc-descriptor-link", |t| follows(t, "fd/0")),
    probe("proc-descriptor-opened", |t| opens(t, "fd/0", false)),
    probe("proc-mapped-files", |t| {
        fs::read_dir(proc_path(t, "map_files")?)?;
        got("the list of its mapped files")
    }),
    probe("proc-root", |t| follows(t, "root")),
    probe("proc-root-listed", |t| {
        fs::read_dir(proc_path(t, "root/")?)?;
        got("its root directory")
    }),
    probe("proc-cwd", |t| follows(t, "cwd")),
    probe("proc-program", |t| follows(t, "exe")),
    probe("proc-program-opened", |t| opens(t, "exe", false)),
    probe("proc-namespace", |t| follows(t, "ns/net")),
    probe("proc-namespace-opened", |t| opens(t, "ns/mnt", false)),
    probe("proc-thread-memory", |t| opens(t, &format!("task/{}/mem", t.get("pid")?), false)),
    probe("proc-thread-environment", |t| reads(t, &format!("task/{}/environ", t.get("pid")?))),
    probe("proc-oom-score", |t| opens(t, "oom_score_adj", true)),
    probe("proc-core-filter", |t| opens(t, "coredump_filter", true)),
    probe("proc-clear-references", |t| opens(t, "clear_refs", true)),
    probe("proc-timer-slack", |t| opens(t, "timerslack_ns", true)),
    probe("proc-autogroup", |t| opens(t, "autogroup", true)),
    probe("proc-user-map", |t| opens(t, "uid_map", true)),
    probe("proc-environment-of-parents", |_| environment_of_ancestors()),
    probe("proc-environment-of-init", |t| {
        real_init(t)?;
        read_all("/proc/1/environ")
    }),
    probe("proc-command-line", |t| reads(t, "cmdline")),
];

/// The process to attack. In a pid namespace of its own, the sandbox may have a process of the same number.
fn pid(t: &Targets<'_>) -> Result<c_int, Failure> {
    let pid: c_int = t.number("pid")?;
    if in_a_namespace_of_its_own(t)? && std::path::Path::new(&format!("/proc/{pid}")).exists() {
        return Err(refused("the process of this number is of the sandbox"));
    }
    Ok(pid)
}

fn pidfd(t: &Targets<'_>) -> Result<usize, Failure> {
    call!(libc::SYS_pidfd_open, pid(t)?, 0)
}

/// `siginfo_t` of SIGCONT, as `sigqueue` fills it.
fn queued_signal() -> [c_int; 32] {
    let mut information = [0; 32];
    (information[0], information[2]) = (libc::SIGCONT, libc::SI_QUEUE);
    information
}

/// The best priority that a process of this user has, for all of them: who has no rights is told of all others that it cannot be
/// raised, and nothing changes.
fn priority_of_user() -> Attempt {
    if crate::confinement::capabilities("CapEff").is_ok() {
        return Err(absent("with these rights it would change what others have"));
    }
    let nice = 20 - call!(libc::SYS_getpriority, libc::PRIO_USER, 0)?.cast_signed();
    reached(call!(libc::SYS_setpriority, libc::PRIO_USER, 0, nice), &[libc::EACCES])
}

/// Pid 1, unless that is of our own sandbox.
fn real_init(t: &Targets<'_>) -> Result<c_int, Failure> {
    if in_a_namespace_of_its_own(t)? { Err(refused("pid 1 is of the sandbox")) } else { Ok(1) }
}

fn in_a_namespace_of_its_own(t: &Targets<'_>) -> Result<bool, Failure> {
    let outside = t.get("pid-namespace")?;
    Ok(fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own.to_string_lossy() != outside))
}

/// The address 0 is never mapped: EFAULT says that the memory was reached.
fn memory(t: &Targets<'_>, number: c_long) -> Attempt {
    let mut byte = [0u8; 1];
    let local = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 1 };
    let result = call!(number, pid(t)?, &raw const local, 1, &raw const remote, 1, 0);
    reached(result, &[libc::EFAULT])
}

fn proc_path(t: &Targets<'_>, file: &str) -> Result<String, Failure> {
    Ok(format!("/proc/{}/{file}", pid(t)?))
}

fn reads(t: &Targets<'_>, file: &str) -> Attempt {
    read_all(&proc_path(t, file)?)
}

fn read_all(path: &str) -> Attempt {
    let found = fs::read(path)?;
    // The kernel shows an empty file to whoever may not see some of these.
    if found.is_empty() { Err(refused("it is empty")) } else { Ok(format!("{} bytes", found.len())) }
}

fn opens(t: &Targets<'_>, file: &str, for_writing: bool) -> Attempt {
    let mut options = OpenOptions::new();
    options.read(!for_writing).write(for_writing).custom_flags(libc::O_NONBLOCK);
    options.open(proc_path(t, file)?)?;
    got("a descriptor")
}

fn follows(t: &Targets<'_>, link: &str) -> Attempt {
    Ok(format!("it leads to {}", fs::read_link(proc_path(t, link)?)?.display()))
}

/// The parents up to the first that is not ours: the one that runs all probes has the same environment as we have.
fn environment_of_ancestors() -> Attempt {
    let own = fs::read("/proc/self/environ")?;
    let mut pid = std::process::id();
    let mut read = 0;
    while let Some(parent) = parent_of(pid) {
        pid = parent;
        match fs::read(format!("/proc/{pid}/environ")) {
            Ok(theirs) if theirs != own && !theirs.is_empty() => return Ok(format!("{} bytes of {pid}", theirs.len())),
            Ok(_) => read += 1,
            Err(error) => return Err(error.into()),
        }
    }
    match read {
        0 => Err(absent("no parent is to be seen")),
        _ => Err(refused("no parent has other variables than we have")),
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
    (parent != 0).then_some(parent)
}
