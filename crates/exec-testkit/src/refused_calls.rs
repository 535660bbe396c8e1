//! A kernel that refuses system calls: old ones do, and so do the filters of container runtimes. The refusal is a real
//! one, by a seccomp filter of the process that asks for it.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// From now on this thread, the threads that it makes and their processes get these errors: `clone3=38,pidfd_open=1`.
pub fn refuse(calls: &str) {
    for call in calls.split(',') {
        let (name, errno) = call.split_once('=').unwrap_or_else(|| panic!("{call:?} is not CALL=ERRNO"));
        let errno = errno.parse().unwrap_or_else(|_| panic!("{errno:?} is no errno"));
        let number = match name {
            "clone" => libc::SYS_clone,
            "clone3" => libc::SYS_clone3,
            "pidfd_open" => libc::SYS_pidfd_open,
            "close_range" => libc::SYS_close_range,
            "memfd_create" => libc::SYS_memfd_create,
            "openat2" => libc::SYS_openat2,
            "epoll_pwait2" => libc::SYS_epoll_pwait2,
            _ => panic!("{name:?} is not a call that a test refuses"),
        };
        let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a platform that we support");
        let rules = BTreeMap::from([(number, Vec::new())]);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch);
        let program: BpfProgram = filter.and_then(TryInto::try_into).expect("the filter is one rule");
        seccompiler::apply_filter(&program).expect("a process may always filter itself");
    }
}
