//! Runs a program on a host that lacks something, so that tests see what a sandbox does there.
//!
//! | condition | |
//! |---|---|
//! | `docker-like` | the default profile of Docker: no namespaces, no mounts, no keys, `clone3` unknown; for root, Docker's capabilities |
//! | `no-user-namespaces` | the kernel makes none (a sysctl of Debian, AppArmor of Ubuntu) |
//! | `no-landlock` | a kernel that was built without it |
//! | `landlock-disabled` | a kernel that was booted without it |
//! | `no-seccomp` | a kernel that was built without filters |
//! | `no-bubblewrap` | `bwrap` is not in `PATH`; for root, not at any usual path either |
//!
//! The kernel's refusals are real ones, by a seccomp filter. Such a filter needs `no_new_privs`, so a program with the
//! setuid bit gets nothing under any of these but the last.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::attempt::Failure;
use crate::system_call::call;
use crate::targets::c_path;

/// Runs `CONDITION… -- PROGRAM ARGUMENTS` in place of this process. Returns only if that fails, with the reason.
pub(crate) fn run(arguments: &[String]) -> String {
    let mut parts = arguments.splitn(2, |argument| argument == "--");
    let (Some(conditions), Some([program, rest @ ..])) = (parts.next(), parts.next()) else {
        return "under CONDITION… -- PROGRAM ARGUMENTS".to_owned();
    };
    let mut command = Command::new(program);
    command.args(rest);
    // Mounts come first: other conditions forbid them.
    let (hidden, filtered): (Vec<&String>, Vec<&String>) =
        conditions.iter().partition(|condition| *condition == "no-bubblewrap");
    if !hidden.is_empty()
        && let Err(why) = hide_bubblewrap(&mut command)
    {
        return why;
    }
    for condition in filtered {
        if let Err(why) = apply(condition) {
            return why;
        }
    }
    format!("cannot run {program}: {}", command.exec())
}

fn apply(condition: &str) -> Result<(), String> {
    match condition {
        "docker-like" => {
            limit_capabilities().map_err(|failure| format!("capabilities cannot be dropped: {failure:?}"))?;
            refuse(DOCKER_REFUSES, NAMESPACES, libc::EPERM)?;
            refuse(&[libc::SYS_clone3], 0, libc::ENOSYS)
        }
        "no-user-namespaces" => {
            refuse(&[], libc::CLONE_NEWUSER, libc::EPERM)?;
            // Its flags are in memory, where a filter cannot see them; libraries then use `clone`.
            refuse(&[libc::SYS_clone3], 0, libc::ENOSYS)
        }
        "no-landlock" => refuse(LANDLOCK, 0, libc::ENOSYS),
        "landlock-disabled" => refuse(LANDLOCK, 0, libc::EOPNOTSUPP),
        "no-seccomp" => refuse_filters(),
        other => Err(format!("there is no condition {other:?}")),
    }
}

const LANDLOCK: &[c_long] =
    &[libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self];

const NAMESPACES: c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// What the default profile refuses to a container without additional capabilities.
const DOCKER_REFUSES: &[c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_move_pages,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
];

/// These calls fail with `errno`, and so do `unshare` and `clone` with any of the flags.
fn refuse(calls: &[c_long], flags: c_int, errno: c_int) -> Result<(), String> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = calls.iter().map(|number| (*number, Vec::new())).collect();
    for number in [libc::SYS_clone, libc::SYS_unshare] {
        let bits = (0..32).map(|bit| 1u64 << bit).filter(|bit| flags as u64 & bit != 0);
        let with_flag: Vec<SeccompRule> = bits.map(|bit| argument_rule(0, SeccompCmpOp::MaskedEq(bit), bit)).collect();
        if !with_flag.is_empty() {
            // A call that is refused whatever its arguments are stays so.
            rules.entry(number).or_insert(with_flag);
        }
    }
    install(rules, errno)
}

/// `seccomp` does not exist, and `prctl` does not know filters.
fn refuse_filters() -> Result<(), String> {
    // This filter comes first, as it must still be possible to add the other.
    let set_filter = argument_rule(0, SeccompCmpOp::Eq, libc::PR_SET_SECCOMP as u64);
    install(BTreeMap::from([(libc::SYS_seccomp, Vec::new())]), libc::ENOSYS)
        .and_then(|()| install_by_prctl(BTreeMap::from([(libc::SYS_prctl, vec![set_filter])]), libc::EINVAL))
}

fn argument_rule(index: u8, operator: SeccompCmpOp, value: u64) -> SeccompRule {
    let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value);
    let condition = condition.expect("a call has six arguments");
    SeccompRule::new(vec![condition]).expect("one condition is not none")
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: c_int) -> Result<BpfProgram, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let refusal = SeccompAction::Errno(errno.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch);
    filter.and_then(TryInto::try_into).map_err(|error| format!("the filter is not one: {error}"))
}

fn install(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: c_int) -> Result<(), String> {
    let program = program(rules, errno)?;
    seccompiler::apply_filter(&program).map_err(|error| format!("the filter cannot be installed: {error}"))
}

/// The older call, for when the newer one is refused already.
fn install_by_prctl(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: c_int) -> Result<(), String> {
    /// `struct sock_fprog`.
    #[repr(C)]
    struct Filter {
        length: u16,
        instructions: *const seccompiler::sock_filter,
    }
    let program = program(rules, errno)?;
    let length = u16::try_from(program.len()).map_err(|_| "the filter is too long".to_owned())?;
    let filter = Filter { length, instructions: program.as_ptr() };
    let mode = libc::SECCOMP_MODE_FILTER;
    let result = call!(libc::SYS_prctl, libc::PR_SET_SECCOMP, mode, &raw const filter);
    result.map(drop).map_err(|failure| format!("the filter cannot be installed: {failure:?}"))
}

/// Docker's fourteen; the numbers are those of `capabilities(7)`.
fn limit_capabilities() -> Result<(), Failure> {
    const KEPT: u64 = 0xa804_25fb;
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    for capability in (0..64).filter(|capability| KEPT & (1 << capability) == 0) {
        // EINVAL: this kernel has fewer.
        match call!(libc::SYS_prctl, libc::PR_CAPBSET_DROP, capability, 0, 0, 0) {
            Ok(_) | Err(Failure::Errno(libc::EINVAL)) => {}
            Err(failure) => return Err(failure),
        }
    }
    let kept = KEPT as u32;
    let (header, sets) = ([0x2008_0522_u32, 0], [kept, kept, 0, 0, 0, 0]);
    call!(libc::SYS_capset, header.as_ptr(), sets.as_ptr()).map(drop)
}

/// Takes `bwrap` out of `PATH`; whoever may mount hides the program itself as well.
fn hide_bubblewrap(command: &mut Command) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let directories: Vec<&str> = path.split(':').chain(["/usr/bin", "/bin", "/usr/local/bin"]).collect();
    let with_it = |directory: &&str| std::path::Path::new(directory).join("bwrap").exists();
    let without_it: Vec<&str> = path.split(':').filter(|directory| !with_it(directory)).collect();
    command.env("PATH", without_it.join(":"));
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    // The directories stay in `PATH` then: other programs are needed from there.
    command.env("PATH", &path);
    let hide = || -> Result<(), Failure> {
        call!(libc::SYS_unshare, libc::CLONE_NEWNS)?;
        call!(libc::SYS_mount, 0, c"/".as_ptr(), 0, libc::MS_REC | libc::MS_PRIVATE, 0)?;
        for directory in directories.iter().filter(|directory| with_it(directory)) {
            let program = c_path(std::path::Path::new(directory).join("bwrap"));
            call!(libc::SYS_mount, c"/dev/null".as_ptr(), program.as_ptr(), 0, libc::MS_BIND, 0)?;
        }
        Ok(())
    };
    hide().map_err(|failure| format!("bwrap cannot be hidden: {failure:?}"))
}
