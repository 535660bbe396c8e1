//! Files by which the machine itself is changed: opened for writing and closed again, never written.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::attempt::{Attempt, Probe, absent, got, probe};

pub(crate) const PROBES: &[Probe] = &[
    probe("sysctl-hostname", |_| for_writing("/proc/sys/kernel/hostname")),
    probe("sysctl-core-pattern", |_| for_writing("/proc/sys/kernel/core_pattern")),
    probe("sysctl-modprobe", |_| for_writing("/proc/sys/kernel/modprobe")),
    probe("sysctl-dmesg-restrict", |_| for_writing("/proc/sys/kernel/dmesg_restrict")),
    probe("sysctl-randomize", |_| for_writing("/proc/sys/kernel/randomize_va_space")),
    probe("sysctl-overcommit", |_| for_writing("/proc/sys/vm/overcommit_memory")),
    probe("sysctl-ip-forward", |_| for_writing("/proc/sys/net/ipv4/ip_forward")),
    probe("sysctl-user-namespaces", |_| for_writing("/proc/sys/user/max_user_namespaces")),
    probe("sysrq", |_| for_writing("/proc/sysrq-trigger")),
    probe("binary-formats", |_| for_writing("/proc/sys/fs/binfmt_misc/register")),
    probe("interrupt-affinity", |_| for_writing("/proc/irq/default_smp_affinity")),
    probe("sysfs-huge-pages", |_| for_writing("/sys/kernel/mm/transparent_hugepage/enabled")),
    probe("sysfs-uevent", |_| for_writing("/sys/kernel/uevent_helper")),
    probe("sysfs-device", |_| for_writing("/sys/devices/virtual/mem/null/uevent")),
    probe("sysfs-power", |_| for_writing("/sys/power/state")),
    probe("cgroup-of-self", |_| for_writing(&own_cgroup()?.join("cgroup.procs").to_string_lossy())),
    probe("cgroup-of-root", |_| for_writing(&cgroup_mount()?.join("cgroup.procs").to_string_lossy())),
    probe("cgroup-kill", |_| for_writing(&own_cgroup()?.join("cgroup.kill").to_string_lossy())),
    probe("cgroup-made", |_| {
        let path = own_cgroup()?.join(format!("prober-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        std::fs::remove_dir(&path)?;
        got("a cgroup was made")
    }),
    probe("kernel-log-device", |_| for_writing("/dev/kmsg")),
    probe("memory-device", |_| for_reading("/dev/mem")),
    probe("port-device", |_| for_reading("/dev/port")),
    probe("disk-device", |_| {
        let names = ["/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/xvda"];
        let disk = names.iter().find(|name| Path::new(name).exists());
        for_reading(disk.ok_or_else(|| absent("no disk of a known name is there"))?)
    }),
    probe("kernel-core", |_| for_reading("/proc/kcore")),
    probe("kernel-messages", |_| for_reading("/proc/kmsg")),
    probe("terminal-of-machine", |_| for_writing("/dev/console")),
    probe("passwords", |_| for_writing("/etc/passwd")),
    probe("shadow", |_| for_writing("/etc/shadow")),
    probe("preloaded-libraries", |_| {
        // It is usually not there: whether it could be made is seen beside it.
        let beside = Path::new("/etc").join(format!("prober-{}", std::process::id()));
        File::create_new(&beside)?;
        std::fs::remove_file(&beside)?;
        got("a file was made in /etc")
    }),
];

fn for_writing(path: &str) -> Attempt {
    OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    got("a descriptor that writes")
}

fn for_reading(path: &str) -> Attempt {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    got("a descriptor that reads")
}

/// Where the hierarchy of version 2 is mounted; of version 1 that of the pids.
fn cgroup_mount() -> Result<PathBuf, crate::attempt::Failure> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"].map(PathBuf::from);
    let found = places.into_iter().find(|place| place.join("cgroup.procs").exists());
    found.ok_or(crate::attempt::Failure::Errno(libc::ENOENT))
}

fn own_cgroup() -> Result<PathBuf, crate::attempt::Failure> {
    let mount = cgroup_mount()?;
    let all = std::fs::read_to_string("/proc/self/cgroup")?;
    let controller = if mount.ends_with("pids") { ":pids:/" } else { "0::/" };
    let own = all.lines().find_map(|line| line.split_once(controller)).map_or("", |(_, own)| own);
    Ok(mount.join(own))
}
