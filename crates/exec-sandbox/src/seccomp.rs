//! Which system calls a sandboxed process may make.
//!
//! A filter sees numbers only, so it forbids what no sandboxed program needs, whatever it would be called with: other
//! processes' memory, ways around the other means (`io_uring`, new namespaces, mounts, handles without paths), and parts of
//! the kernel that only the machine's administrator uses. Files are the concern of mounts and Landlock.

use std::collections::BTreeMap;

use exec_core::sandbox::NetworkPolicy;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// What else the filter must forbid, because nothing else does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterScope {
    pub network: NetworkPolicy,
    /// There are no mounts and no IPC namespace of its own: Landlock does not know who may change modes, owners, times and
    /// attributes of files, so nobody may; and System V objects belong to others.
    pub without_mounts: bool,
    /// A supervisor carries out the calls of [`supervised_calls`]. Those that it cannot are missing, so that libraries use
    /// others.
    pub supervised: bool,
}

/// A system call, and when it is forbidden; without conditions always.
type Forbidden = (libc::c_long, Vec<SeccompRule>);

/// The filters, each an array of the kernel's instructions, to be installed in this order.
pub fn filters(scope: FilterScope) -> Vec<Vec<u64>> {
    let mut forbidden: Vec<Forbidden> = ALWAYS.iter().map(|number| (*number, Vec::new())).collect();
    forbidden.extend(conditional());
    let unconditional =
        |numbers: &[libc::c_long]| numbers.iter().map(|number| (*number, Vec::new())).collect::<Vec<_>>();
    if scope.without_mounts {
        forbidden.extend(unconditional(SHARED_OBJECTS));
        let requests = forbidden.iter_mut().find(|(number, _)| *number == libc::SYS_ioctl);
        requests.into_iter().for_each(|(_, rules)| rules.extend(file_system_requests()));
    }
    if scope.without_mounts && !scope.supervised {
        forbidden.extend(unconditional(FILE_ATTRIBUTES));
        forbidden.extend(unconditional(NEWER_FILE_ATTRIBUTES));
    }
    match scope.network {
        NetworkPolicy::Restricted => {
            forbidden.extend(NETWORK.iter().map(|number| (*number, Vec::new())));
            forbidden.extend(sockets());
        }
        NetworkPolicy::ProxyOnly => {
            forbidden.push((libc::SYS_socket, beside_the_own_network()));
            forbidden.extend(sockets().into_iter().filter(|(number, _)| *number == libc::SYS_socketpair));
        }
        NetworkPolicy::Enabled => {
            forbidden.push((libc::SYS_socket, families_beside_the_network()));
            forbidden.push((libc::SYS_socketpair, vec![families_beside(&[libc::AF_UNIX])]));
        }
    }
    // The C library makes processes with `clone3`, whose flags no filter can see, and with `clone` where that is missing.
    let mut missing = unconditional(&[libc::SYS_clone3]);
    if scope.supervised {
        missing.extend(unconditional(&[libc::SYS_openat2]));
        missing.extend(unconditional(NEWER_FILE_ATTRIBUTES));
    }
    vec![other_tables(), program(missing, libc::ENOSYS), program(forbidden, libc::EPERM)]
}

/// The filter for what a supervisor carries out: every call that changes a file by its name, or what Landlock does not know
/// about it. Calls that open a file are among them if their flags, which are numbers, let it be changed.
pub fn supervised_calls() -> Vec<u64> {
    let mut calls: Vec<Forbidden> = FILE_ATTRIBUTES.iter().chain(NAMES).map(|number| (*number, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    calls.push((libc::SYS_open, opens_that_change(1)));
    calls.push((libc::SYS_openat, opens_that_change(2)));
    // The crate has no action for it; so it makes the same program with another, which occurs nowhere else in it.
    let marked = compiled(calls, SeccompAction::Log);
    marked.into_iter().map(|instruction| replace_action(instruction, libc::SECCOMP_RET_USER_NOTIF)).collect()
}

fn opens_that_change(argument: u8) -> Vec<SeccompRule> {
    // A handle without contents (`O_PATH`) ignores all the others.
    const HANDLE: u64 = libc::O_PATH as u64;
    const TEMPORARY: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
    [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, TEMPORARY]
        .map(|flag| rule(vec![condition(argument, SeccompCmpOp::MaskedEq(HANDLE | flag as u64), flag as u64)]))
        .to_vec()
}

fn replace_action(instruction: u64, action: u32) -> u64 {
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let [code0, code1, jt, jf, k @ ..] = instruction.to_ne_bytes();
    if u16::from_ne_bytes([code0, code1]) != RETURN || u32::from_ne_bytes(k) != libc::SECCOMP_RET_LOG {
        return instruction;
    }
    let [k0, k1, k2, k3] = action.to_ne_bytes();
    u64::from_ne_bytes([code0, code1, jt, jf, k0, k1, k2, k3])
}

/// Calls that have no number in libc yet.
const SYS_FCHMODAT2: libc::c_long = 452;
const SYS_SETXATTRAT: libc::c_long = 463;
const SYS_REMOVEXATTRAT: libc::c_long = 466;
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;
const SYS_FILE_SETATTR: libc::c_long = 469;

const ALWAYS: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Calls that are carried out behind the filter's back, and what made exploits easy.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // The machine.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_nfsservctl,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lookup_dcookie,
];

const FILE_ATTRIBUTES: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

/// Without these, libraries use the ones above.
const NEWER_FILE_ATTRIBUTES: &[libc::c_long] = &[SYS_SETXATTRAT, SYS_REMOVEXATTRAT, SYS_FILE_SETATTR];

/// Calls that make, move or remove a name; and those that truncate a file or make it by their own name.
const NAMES: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
];

const SHARED_OBJECTS: &[libc::c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semctl,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgctl,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// What is left is a pair of connected sockets between a program and its children. On those, unlike in Codex's sandbox,
/// all calls work that cannot lead elsewhere.
const NETWORK: &[libc::c_long] =
    &[libc::SYS_connect, libc::SYS_accept, libc::SYS_accept4, libc::SYS_bind, libc::SYS_listen];

const NEW_NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;
/// For `unshare` only: the same bit means something else to `clone`.
const CLONE_NEWTIME: u64 = 0x80;

/// For `ioprio_set`: all processes of a user.
const IOPRIO_WHO_USER: u64 = 3;

/// Requests that put words into a terminal's mouth, or change a file's attributes through a handle that may only read.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
const FS_IOC_SETVERSION: u64 = 0x4008_7602;
const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;

/// Kinds of requests to file systems, by the byte that the kernel calls their type, and those of each that only ask, or need
/// a file that is open for writing. The others change files, and make some, through a handle that may only read; Landlock does
/// not know them, and mounts would forbid them.
const FILE_SYSTEM_REQUESTS: &[(u64, &[u64])] = &[
    // All of them, ext4, encryption, verity: FS_IOC_GETFLAGS, FS_IOC_FIEMAP, EXT4_IOC_GETVERSION_OLD.
    (0x66, &[0x8008_6601, 0xc020_660b, 0x8008_6603]),
    // All of them, XFS: FS_IOC_FSGETXATTR.
    (0x58, &[0x801c_581f]),
    // All of them: FS_IOC_GETVERSION.
    (0x76, &[0x8008_7601]),
    // btrfs, which makes whole trees by them: FICLONE, FICLONERANGE.
    (0x94, &[0x4004_9409, 0x4020_940d]),
    // FAT: FAT_IOCTL_GET_ATTRIBUTES, FAT_IOCTL_GET_VOLUME_ID.
    (0x72, &[0x8004_7210, 0x8004_7213]),
    // f2fs, bcachefs, ceph, nilfs2, ocfs2, CIFS.
    (0xf5, &[]),
    (0xbc, &[]),
    (0x97, &[]),
    (0x6e, &[]),
    (0x6f, &[]),
    (0xcf, &[]),
];

fn file_system_requests() -> Vec<SeccompRule> {
    let of_kind = |(kind, harmless): &(u64, &[u64])| {
        let is_harmless = harmless.iter().map(|request| condition(1, SeccompCmpOp::Ne, *request));
        rule([condition(1, SeccompCmpOp::MaskedEq(0xff00), *kind << 8)].into_iter().chain(is_harmless).collect())
    };
    FILE_SYSTEM_REQUESTS.iter().map(of_kind).collect()
}

fn conditional() -> Vec<Forbidden> {
    // The kernel takes 32 bits of a request; with 64 compared, a set bit among the others would slip through.
    let requests = [TIOCSTI, TIOCLINUX, FS_IOC_SETFLAGS, FS_IOC_SETVERSION, FS_IOC_FSSETXATTR];
    let requests = requests.map(|request| rule(vec![condition(1, SeccompCmpOp::Eq, request)]));
    let any_flag = |flags: u64| {
        let bits = (0..64).map(|bit| 1u64 << bit).filter(|bit| flags & bit != 0);
        bits.map(|bit| rule(vec![condition(0, SeccompCmpOp::MaskedEq(bit), bit)])).collect::<Vec<_>>()
    };
    let of_others = |argument: u8| vec![rule(vec![condition(argument, SeccompCmpOp::Ne, 0)])];
    let of_kind = |kind: u64| vec![rule(vec![condition(0, SeccompCmpOp::Eq, kind)])];
    vec![
        (libc::SYS_ioctl, requests.to_vec()),
        (libc::SYS_unshare, any_flag(NEW_NAMESPACES | CLONE_NEWTIME)),
        (libc::SYS_clone, any_flag(NEW_NAMESPACES)),
        // Limits and priorities of others that run as the same user. That user, too, can be called 0: the caller's own.
        (libc::SYS_prlimit64, of_others(0)),
        (libc::SYS_setpriority, [of_others(1), of_kind(libc::PRIO_USER as u64)].concat()),
        (libc::SYS_ioprio_set, [of_others(1), of_kind(IOPRIO_WHO_USER)].concat()),
    ]
}

/// Only sockets between a program and its children: of one family, and no kind that can send to any address. A raw socket of
/// this family is one for datagrams by another name.
fn sockets() -> Vec<Forbidden> {
    let kind = |kind: i32| rule(vec![condition(1, SeccompCmpOp::MaskedEq(SOCKET_KIND), kind as u64)]);
    let rules = vec![families_beside(&[libc::AF_UNIX]), kind(libc::SOCK_DGRAM), kind(libc::SOCK_RAW)];
    [libc::SYS_socket, libc::SYS_socketpair].map(|number| (number, rules.clone())).to_vec()
}

/// In a network of its own a process has streams and datagrams of the internet, and no others: sockets with a path or an
/// abstract name are not of a network, and would lead out of it.
fn beside_the_own_network() -> Vec<SeccompRule> {
    let raw = rule(vec![condition(1, SeccompCmpOp::MaskedEq(SOCKET_KIND), libc::SOCK_RAW as u64)]);
    vec![families_beside(&[libc::AF_INET, libc::AF_INET6]), raw]
}

/// Sockets that are no way to a network: of the kernel's own parts, of the machine's cables, of the host of a virtual machine,
/// and of everything else for which some kernel has a family.
fn families_beside_the_network() -> Vec<SeccompRule> {
    vec![families_beside(&[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK])]
}

fn families_beside(allowed: &[i32]) -> SeccompRule {
    rule(allowed.iter().map(|family| condition(0, SeccompCmpOp::Ne, *family as u64)).collect())
}

/// The bits of a socket's type that are no flags.
const SOCKET_KIND: u64 = 0xf;

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).expect("a call has six arguments")
}

fn rule(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("it has a condition")
}

fn program(forbidden: Vec<Forbidden>, errno: i32) -> Vec<u64> {
    compiled(forbidden, SeccompAction::Errno(errno as u32))
}

fn compiled(calls: Vec<Forbidden>, action: SeccompAction) -> Vec<u64> {
    let rules: BTreeMap<i64, Vec<SeccompRule>> = calls.into_iter().collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, ARCHITECTURE);
    let program: BpfProgram = filter
        .and_then(TryInto::try_into)
        .expect("a fixed list of calls, far smaller than the largest program; a test makes each of them");
    program
        .iter()
        .map(|instruction| {
            let [code0, code1] = instruction.code.to_ne_bytes();
            let [k0, k1, k2, k3] = instruction.k.to_ne_bytes();
            u64::from_ne_bytes([code0, code1, instruction.jt, instruction.jf, k0, k1, k2, k3])
        })
        .collect()
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

/// x86-64 has a second table of the same calls under other numbers, which the lists do not name. (Calls of another
/// architecture end the process; every program made by seccompiler begins with that.)
fn other_tables() -> Vec<u64> {
    const X32_BIT: u32 = 0x4000_0000;
    let instruction = |code: u32, jt: u8, jf: u8, k: u32| {
        let [code0, code1] = (code as u16).to_ne_bytes();
        let [k0, k1, k2, k3] = k.to_ne_bytes();
        u64::from_ne_bytes([code0, code1, jt, jf, k0, k1, k2, k3])
    };
    // The number of the call is the first word that a filter is given.
    vec![
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32_BIT),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_makes_programs_that_the_kernel_could_take() {
        for network in [NetworkPolicy::Restricted, NetworkPolicy::ProxyOnly, NetworkPolicy::Enabled] {
            for (without_mounts, supervised) in [(false, false), (true, false), (true, true)] {
                let filters = filters(FilterScope { network, without_mounts, supervised });
                // The kernel's BPF_MAXINSNS.
                assert!(filters.iter().all(|filter| (1..=4096).contains(&filter.len())), "{filters:?}");
            }
        }
    }

    #[test]
    fn no_call_is_named_twice() {
        let all = [ALWAYS, FILE_ATTRIBUTES, NEWER_FILE_ATTRIBUTES, NAMES, SHARED_OBJECTS, NETWORK].concat();
        let conditions = conditional().into_iter().chain(sockets()).map(|(number, _)| number);
        let mut numbers: Vec<libc::c_long> = all.into_iter().chain(conditions).collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }
    #[test]
    fn what_a_supervisor_carries_out_is_sent_to_it_and_nothing_else_is_told() {
        let filter = supervised_calls();
        let returned =
            |instruction: &&u64| (**instruction).to_ne_bytes()[..2] == ((libc::BPF_RET) as u16).to_ne_bytes();
        let actions = filter.iter().filter(returned).map(|instruction| {
            let [.., k0, k1, k2, k3] = instruction.to_ne_bytes();
            u32::from_ne_bytes([k0, k1, k2, k3])
        });
        let allowed = [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_RET_KILL_PROCESS];
        let actions: Vec<u32> = actions.collect();
        assert!(actions.contains(&libc::SECCOMP_RET_USER_NOTIF), "{actions:x?}");
        assert!(actions.iter().all(|action| allowed.contains(action)), "{actions:x?}");
    }
}
