//! Parts of the kernel that a confined process has no business with. Calls that would change the machine get arguments
//! that are refused after the caller was checked.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use libc::{AT_FDCWD, c_int, c_long};

use crate::attempt::{Attempt, Failure, Probe, absent, got, probe, reached, refused};
use crate::system_call::{call, fork_and_end_child};
use crate::targets::c_path;

pub(crate) const PROBES: &[Probe] = &[
    probe("trace-me", |_| reached(call!(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0), &[])),
    probe("io-uring-setup", |_| {
        ring()?;
        got("a ring")
    }),
    probe("io-uring-enter", |_| reached(call!(libc::SYS_io_uring_enter, -1i32, 0, 0, 0, 0, 0), &[libc::EBADF])),
    probe("io-uring-register", |_| {
        reached(call!(libc::SYS_io_uring_register, -1i32, 0, 0, 0), &[libc::EBADF, libc::EINVAL])
    }),
    probe("key-ring", |_| reached(call!(libc::SYS_keyctl, 0, -3i32, 1), &[])),
    probe("key-add", |_| {
        // Into the ring of this process, which ends with it.
        let (kind, name) = (c"user".as_ptr(), c"prober".as_ptr());
        reached(call!(libc::SYS_add_key, kind, name, b"x".as_ptr(), 1, -2i32), &[])
    }),
    probe("key-request", |_| {
        let (kind, name) = (c"user".as_ptr(), c"prober:none".as_ptr());
        reached(call!(libc::SYS_request_key, kind, name, 0, 0), &[libc::ENOKEY])
    }),
    probe("user-fault", |_| reached(call!(libc::SYS_userfaultfd, 1 | libc::O_CLOEXEC), &[])),
    probe("user-fault-device", |_| opens("/dev/userfaultfd")),
    probe("bpf-map", |_| {
        // `BPF_MAP_CREATE` of an array with one entry.
        let mut attributes = [0u32; 32];
        attributes[..4].copy_from_slice(&[2, 4, 4, 1]);
        reached(call!(libc::SYS_bpf, 0, attributes.as_ptr(), size_of_val(&attributes)), &[])
    }),
    probe("bpf-program", |_| {
        // `BPF_PROG_LOAD` of nothing: EINVAL comes after the check.
        let attributes = [0u32; 32];
        let result = call!(libc::SYS_bpf, 5, attributes.as_ptr(), size_of_val(&attributes));
        reached(result, &[libc::EINVAL, libc::E2BIG])
    }),
    probe("performance-counter", |_| {
        let mut attributes = [0u32; 32];
        (attributes[0], attributes[1]) = (1, 128);
        reached(call!(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1i32, -1i32, 0), &[])
    }),
    probe("performance-of-machine", |_| {
        let mut attributes = [0u32; 32];
        (attributes[0], attributes[1]) = (1, 128);
        reached(call!(libc::SYS_perf_event_open, attributes.as_ptr(), -1i32, 0, -1i32, 0), &[])
    }),
    probe("mount-tmpfs", |t| {
        let place = t.victim_directory()?;
        mount(&place)?;
        unmount(&place)
    }),
    probe("mount-bind-over", |t| {
        let (from, to) = (c_path(t.in_workspace("")?), c_path(t.victim_directory()?));
        call!(libc::SYS_mount, from.as_ptr(), to.as_ptr(), 0, libc::MS_BIND, 0)?;
        unmount(&t.victim_directory()?)
    }),
    probe("mount-proc", |t| {
        let to = c_path(t.victim_directory()?);
        call!(libc::SYS_mount, c"proc".as_ptr(), to.as_ptr(), c"proc".as_ptr(), 0, 0)?;
        unmount(&t.victim_directory()?)
    }),
    probe("remount-root-writable", |_| {
        // On a root that is writable this changes nothing.
        if !writable_root() {
            // In a sandbox whose root is a read-only mount of its own.
            return remount(c"/");
        }
        remount(c"/proc/self")
    }),
    probe("remount-outside-writable", |t| {
        let path = c_path(t.get("outside")?);
        remount(&path)
    }),
    probe("mount-propagation", |t| {
        let path = c_path(t.victim_directory()?);
        // Only mounts have a propagation: EINVAL comes after the check.
        reached(call!(libc::SYS_mount, 0, path.as_ptr(), 0, libc::MS_PRIVATE, 0), &[libc::EINVAL])
    }),
    probe("unmount", |t| {
        let path = c_path(t.victim_directory()?);
        reached(call!(libc::SYS_umount2, path.as_ptr(), 0), &[libc::EINVAL])
    }),
    probe("unmount-proc", |_| reached(call!(libc::SYS_umount2, c"/proc/self".as_ptr(), 0), &[libc::EINVAL])),
    probe("pivot-root", |t| {
        let path = c_path(t.victim_directory()?);
        reached(call!(libc::SYS_pivot_root, path.as_ptr(), path.as_ptr()), &[libc::EINVAL, libc::EBUSY])
    }),
    probe("move-mount", |_| {
        let (from, to) = (c"".as_ptr(), c"".as_ptr());
        reached(call!(libc::SYS_move_mount, -1i32, from, -1i32, to, 0x44), &[libc::EBADF])
    }),
    probe("open-tree", |t| {
        let path = c_path(t.victim_directory()?);
        reached(call!(libc::SYS_open_tree, AT_FDCWD, path.as_ptr(), 0), &[])
    }),
    probe("open-tree-clone", |t| {
        let path = c_path(t.victim_directory()?);
        reached(call!(libc::SYS_open_tree, AT_FDCWD, path.as_ptr(), 1), &[])
    }),
    probe("fsopen", |_| reached(call!(libc::SYS_fsopen, c"tmpfs".as_ptr(), 0), &[])),
    probe("fspick", |_| reached(call!(libc::SYS_fspick, AT_FDCWD, c"/proc".as_ptr(), 0), &[])),
    probe("fsconfig", |_| reached(call!(libc::SYS_fsconfig, -1i32, 0, 0, 0, 0), &[libc::EBADF, libc::EINVAL])),
    probe("fsmount", |_| reached(call!(libc::SYS_fsmount, -1i32, 0, 0), &[libc::EBADF])),
    probe("mount-attributes", |t| {
        // Nothing to set, nothing to clear; of a directory that is no mount.
        let (path, attributes) = (c_path(t.victim_directory()?), [0u64, 1, 0, 0]);
        let size = size_of_val(&attributes);
        let result = call!(libc::SYS_mount_setattr, AT_FDCWD, path.as_ptr(), 0, attributes.as_ptr(), size);
        reached(result, &[libc::EINVAL])
    }),
    probe("chroot", |_| reached(call!(libc::SYS_chroot, c"/".as_ptr()), &[])),
    probe("unshare-user", |_| reached(call!(libc::SYS_unshare, libc::CLONE_NEWUSER), &[])),
    probe("unshare-mount", |_| reached(call!(libc::SYS_unshare, libc::CLONE_NEWNS), &[])),
    probe("unshare-pid", |_| reached(call!(libc::SYS_unshare, libc::CLONE_NEWPID), &[])),
    probe("unshare-net", |_| reached(call!(libc::SYS_unshare, libc::CLONE_NEWNET), &[])),
    probe("unshare-ipc", |_| reached(call!(libc::SYS_unshare, libc::CLONE_NEWIPC), &[])),
    probe("unshare-uts", |_| reached(call!(libc::SYS_unshare, libc::CLONE_NEWUTS), &[])),
    probe("unshare-cgroup", |_| reached(call!(libc::SYS_unshare, libc::CLONE_NEWCGROUP), &[])),
    probe("unshare-time", |_| reached(call!(libc::SYS_unshare, 0x80), &[])),
    probe("clone-user", |_| cloned(libc::CLONE_NEWUSER)),
    probe("clone-mount", |_| cloned(libc::CLONE_NEWNS)),
    probe("clone-net", |_| cloned(libc::CLONE_NEWNET)),
    probe("clone-pid", |_| cloned(libc::CLONE_NEWPID)),
    probe("clone3-user", |_| {
        // `struct clone_args`, of the first version; the fifth field is the signal.
        let arguments = [libc::CLONE_NEWUSER as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
        fork_and_end_child(libc::SYS_clone3, &[arguments.as_ptr() as usize, size_of_val(&arguments)])?;
        got("a child in a user namespace")
    }),
    probe("user-namespace-and-mount", |t| {
        call!(libc::SYS_unshare, libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
        mount(&t.victim_directory()?)?;
        got("a mount in namespaces of its own")
    }),
    probe("user-namespace-and-capabilities", |_| {
        call!(libc::SYS_unshare, libc::CLONE_NEWUSER)?;
        match crate::confinement::privileges() {
            text if text.ends_with(" without capabilities") => Err(refused(text)),
            text => Ok(text),
        }
    }),
    probe("join-own-namespace", |_| {
        let namespace = File::open("/proc/self/ns/uts")?;
        reached(call!(libc::SYS_setns, namespace.as_raw_fd(), 0), &[])
    }),
    probe("join-namespace-of-init", |_| {
        let namespace = File::open("/proc/1/ns/net")?;
        reached(call!(libc::SYS_setns, namespace.as_raw_fd(), 0), &[])
    }),
    probe("kexec-load", |_| reached(call!(libc::SYS_kexec_load, 0, 0, 0, 0xffff_i64), &[libc::EINVAL])),
    probe("kexec-file-load", |_| {
        let result = call!(libc::SYS_kexec_file_load, -1i32, -1i32, 0, 0, 0xffff_i64);
        reached(result, &[libc::EINVAL, libc::EBADF])
    }),
    probe("module-load", |_| {
        let result = call!(libc::SYS_init_module, 0, 0, c"".as_ptr());
        reached(result, &[libc::ENOEXEC, libc::EFAULT, libc::EINVAL])
    }),
    probe("module-load-file", |_| {
        let result = call!(libc::SYS_finit_module, -1i32, c"".as_ptr(), 0);
        reached(result, &[libc::EBADF, libc::EINVAL])
    }),
    probe("module-unload", |_| {
        let result = call!(libc::SYS_delete_module, c"prober_none".as_ptr(), libc::O_NONBLOCK);
        reached(result, &[libc::ENOENT])
    }),
    probe("handle-opened", |_| {
        let (root, handle) = (File::open("/")?, [4u32, 1, 0, 0]);
        let result = call!(libc::SYS_open_by_handle_at, root.as_raw_fd(), handle.as_ptr(), libc::O_RDONLY);
        reached(result, &[libc::ESTALE, libc::EINVAL])
    }),
    probe("reboot", |_| {
        // With numbers that are not the ones that it asks for.
        reached(call!(libc::SYS_reboot, 0, 0, 0, 0), &[libc::EINVAL])
    }),
    probe("swap-on", |t| {
        let path = c_path(t.victim()?);
        reached(call!(libc::SYS_swapon, path.as_ptr(), 0), &[libc::EINVAL])
    }),
    probe("swap-off", |t| {
        let path = c_path(t.victim()?);
        reached(call!(libc::SYS_swapoff, path.as_ptr()), &[libc::EINVAL])
    }),
    probe("host-name", |_| {
        let name = rustix::system::uname();
        let name = name.nodename();
        reached(call!(libc::SYS_sethostname, name.as_ptr(), name.count_bytes()), &[])
    }),
    probe("domain-name", |_| {
        let name = fs::read_to_string("/proc/sys/kernel/domainname")?;
        let name = name.trim_end();
        reached(call!(libc::SYS_setdomainname, name.as_ptr(), name.len()), &[])
    }),
    // Neither a time nor a zone: nothing is set.
    probe("time-of-day", |_| reached(call!(libc::SYS_settimeofday, 0, 0), &[])),
    probe("clock-tick", |_| {
        // The tick that is set is the one that it has.
        let mut clock = [0u64; 26];
        call!(libc::SYS_adjtimex, clock.as_mut_ptr())?;
        clock[0] = 0x4000;
        reached(call!(libc::SYS_adjtimex, clock.as_mut_ptr()), &[])
    }),
    probe("quota", |t| {
        let path = c_path(t.victim()?);
        // `Q_GETQUOTA` of what is no device.
        reached(call!(libc::SYS_quotactl, 0x8000_0700_u64, path.as_ptr(), 0, 0), &[libc::ENOTBLK])
    }),
    probe("quota-of-descriptor", |_| {
        reached(call!(libc::SYS_quotactl_fd, -1i32, 0x8000_0700_u64, 0, 0), &[libc::EBADF])
    }),
    probe("accounting", |t| {
        // A file that is not there, so that nothing is switched.
        let path = c_path(t.get("outside")?).into_string().map_err(|_| absent("the path is not text"))? + "/nowhere";
        let path = c_path(path);
        reached(call!(libc::SYS_acct, path.as_ptr()), &[libc::ENOENT])
    }),
    probe("kernel-log", |_| {
        let mut text = [0u8; 16];
        reached(call!(libc::SYS_syslog, 3, text.as_mut_ptr(), text.len()), &[])
    }),
    probe("kernel-log-size", |_| reached(call!(libc::SYS_syslog, 10, 0, 0), &[])),
    probe("hang-up", |_| {
        // In a session without a terminal there is nothing to hang up.
        call!(libc::SYS_setsid)?;
        reached(call!(libc::SYS_vhangup), &[])
    }),
    probe("watch-file-system", |_| {
        let watcher = call!(libc::SYS_fanotify_init, 0, libc::O_RDONLY)?;
        // FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN.
        reached(call!(libc::SYS_fanotify_mark, watcher, 0x101, 0x20, AT_FDCWD, c"/".as_ptr()), &[])
    }),
    probe("realtime-scheduling", |_| {
        let priority = 1i32;
        reached(call!(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority), &[])
    }),
    probe("raise-priority", |_| reached(call!(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, -20i32), &[])),
    probe("raise-limit", |_| {
        let mut limit = [0u64; 2];
        call!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, 0, limit.as_mut_ptr())?;
        limit[1] += 1;
        reached(call!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, limit.as_ptr(), 0), &[])
    }),
    // These ask before they look what kind of file it is: any other answer than EPERM comes from the file.
    probe("terminal-input", |_| terminal(libc::TIOCSTI)),
    probe("terminal-input-upper-bits", |_| terminal(libc::TIOCSTI | 0xdead_0000_0000)),
    probe("terminal-selection", |_| terminal(TIOCLINUX)),
    probe("terminal-selection-upper-bits", |_| terminal(TIOCLINUX | 0x1_0000_0000)),
    probe("landlock-version", |_| reached(call!(libc::SYS_landlock_create_ruleset, 0, 0, 1), &[])),
    probe("filter-of-its-own", |_| {
        call!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)?;
        // `SECCOMP_GET_ACTION_AVAIL` of `SECCOMP_RET_KILL_PROCESS`.
        let action = 0x8000_0000_u32;
        reached(call!(libc::SYS_seccomp, 2, 0, &raw const action), &[])
    }),
    probe("kvm-device", |_| opens("/dev/kvm")),
    probe("fuse-device", |_| opens("/dev/fuse")),
    probe("tunnel-device", |_| opens("/dev/net/tun")),
    probe("loop-device", |_| opens("/dev/loop-control")),
    probe("retired-calls", |_| {
        // They have been empty for years; a filter that lists what is allowed refuses them too.
        let calls: [c_long; 2] = [libc::SYS_nfsservctl, libc::SYS_lookup_dcookie];
        let last = calls.map(|number| call!(number, 0, 0, 0)).into_iter().find(Result::is_ok);
        last.map_or(Err(Failure::Errno(libc::ENOSYS)), |_| got("an answer"))
    }),
];

/// The selection of the console, and what else its drivers take.
const TIOCLINUX: u64 = 0x541c;

/// A ring of one entry.
fn ring() -> Result<usize, Failure> {
    let mut parameters = [0u32; 30];
    call!(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr())
}

fn opens(path: &str) -> Attempt {
    fs::OpenOptions::new().read(true).write(true).open(path)?;
    got("a descriptor")
}

fn cloned(namespace: c_int) -> Attempt {
    fork_and_end_child(libc::SYS_clone, &[(namespace | libc::SIGCHLD) as usize])?;
    got("a child in a namespace of its own")
}

fn mount(place: &std::path::Path) -> Result<usize, Failure> {
    let place = c_path(place);
    call!(libc::SYS_mount, c"tmpfs".as_ptr(), place.as_ptr(), c"tmpfs".as_ptr(), 0, 0)
}

fn unmount(place: &std::path::Path) -> Attempt {
    let place = c_path(place);
    call!(libc::SYS_umount2, place.as_ptr(), libc::MNT_DETACH)?;
    got("a mount, which was taken away again")
}

fn writable_root() -> bool {
    let flags = rustix::fs::statvfs("/").map(|found| found.f_flag);
    flags.is_ok_and(|flags| !flags.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// Makes a mount writable. Of what is no mount EINVAL comes after the check.
fn remount(place: &std::ffi::CStr) -> Attempt {
    let flags = libc::MS_REMOUNT | libc::MS_BIND;
    reached(call!(libc::SYS_mount, 0, place.as_ptr(), 0, flags, 0), &[libc::EINVAL])
}

fn terminal(command: u64) -> Attempt {
    let mut byte = [b'x', 0, 0, 0];
    reached(call!(libc::SYS_ioctl, 0, command, byte.as_mut_ptr()), &[libc::ENOTTY, libc::EIO, libc::EINVAL])
}
