//! The policies, and what every probe must find under each of them. What is not named here is denied.

use exec_core::sandbox::{FileAccess, FilePolicy, FileRule, NetworkPolicy, RuleTarget, SandboxPolicy};

use super::targets::ProbeTargets;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Everything may be read, nothing written.
    ReadOnly,
    /// Codex's preset: the workspace and `/tmp` may be written, but not what is protected in the workspace.
    WorkspaceWrite,
    /// The same, and the secret directory and files that end in `.key` are denied.
    WithDenials,
    /// Only the system's files and the workspace are there.
    LimitedRead,
    /// `WithDenials`, with the network.
    NetworkEnabled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Works,
    Denied,
    /// It does no harm, or depends on the means that confine.
    Either,
}

impl Policy {
    pub(crate) fn sandbox(self, targets: &ProbeTargets) -> SandboxPolicy {
        let path = |path: std::path::PathBuf, access| FileRule { target: RuleTarget::Path(path), access };
        let in_workspace = |name: &str| targets.path("workspace").join(name);
        let all = || path("/".into(), FileAccess::Read);
        let workspace_write = || {
            let protected = [".git", "project/.git", ".codex"].map(|name| path(in_workspace(name), FileAccess::Read));
            let writable = [path(targets.path("workspace"), FileAccess::Write), path("/tmp".into(), FileAccess::Write)];
            [all()].into_iter().chain(writable).chain(protected).collect::<Vec<_>>()
        };
        let with_denials = || {
            let keys = RuleTarget::Glob(in_workspace("**/*.key").to_string_lossy().into_owned());
            let denied =
                [path(targets.path("secret"), FileAccess::Deny), FileRule { target: keys, access: FileAccess::Deny }];
            workspace_write().into_iter().chain(denied).collect::<Vec<_>>()
        };
        let rules = match self {
            Self::ReadOnly => vec![all()],
            Self::WorkspaceWrite => workspace_write(),
            Self::WithDenials | Self::NetworkEnabled => with_denials(),
            Self::LimitedRead => vec![
                FileRule { target: RuleTarget::SystemFiles, access: FileAccess::Read },
                path(targets.path("bin"), FileAccess::Read),
                path(targets.path("workspace"), FileAccess::Write),
            ],
        };
        let network = match self {
            Self::NetworkEnabled => NetworkPolicy::Enabled,
            _ => NetworkPolicy::Restricted,
        };
        SandboxPolicy { files: FilePolicy::Restricted { rules, glob_scan_depth: None }, network }
    }

    pub(crate) fn expected(self, group: &str, name: &str) -> Expected {
        if EITHER.contains(&name) {
            return Expected::Either;
        }
        // In the group of old calls, too.
        let group = match name {
            _ if name.starts_with("read-") => "reading",
            _ if name.starts_with("protected-") || name.starts_with("missing-protected-") => "protected",
            _ => group,
        };
        match (group, self) {
            ("daily-work", Self::ReadOnly) => works_if(WORK_WITHOUT_WRITING.contains(&name)),
            ("daily-work", Self::LimitedRead) if name == "work-slash-tmp" => Expected::Either,
            ("daily-work", _) => Expected::Works,
            ("reading", Self::ReadOnly | Self::WorkspaceWrite) => Expected::Either,
            // The glob is not in this policy.
            ("reading", Self::LimitedRead) if name.starts_with("read-glob") => Expected::Works,
            // Nothing is protected in this policy.
            ("protected", Self::LimitedRead) => Expected::Either,
            ("network", _) if WORKS_WITHOUT_NETWORK.contains(&name) => Expected::Works,
            ("network", Self::NetworkEnabled) if WORKS_WITH_NETWORK.contains(&name) => Expected::Works,
            ("network", Self::NetworkEnabled) if !is_never_in_network(name) => Expected::Either,
            _ => Expected::Denied,
        }
    }
}

fn is_never_in_network(name: &str) -> bool {
    NEVER_IN_NETWORK.contains(&name) || NO_NETWORKS.contains(&name)
}

/// What a probe finds that attacks the server itself, whatever the policy.
pub(crate) fn expected_of_server(name: &str) -> Expected {
    if EITHER.contains(&name) || name.starts_with("read-glob") { Expected::Either } else { Expected::Denied }
}

/// Whether a verdict of the prober is what was expected.
pub(crate) fn is_met(expected: Expected, name: &str, verdict: &str) -> bool {
    match verdict.split(':').next() {
        Some("escaped") => expected != Expected::Denied,
        Some("denied") => expected != Expected::Works,
        Some("absent") => expected == Expected::Either || MAY_BE_ABSENT.contains(&name),
        _ => false,
    }
}

fn works_if(works: bool) -> Expected {
    if works { Expected::Works } else { Expected::Denied }
}

/// Sockets of the kernel's own parts, of cables and of virtual machines.
pub(crate) const NO_NETWORKS: &[&str] = &[
    "socket-vsock",
    "socket-packet",
    "socket-alg",
    "socket-bluetooth",
    "socket-can",
    "socket-tipc",
    "socket-rds",
    "socket-key",
    "socket-xdp",
    "socket-smc",
    "socket-qualcomm",
    "socket-phone",
    "socket-nfc",
    "socket-x25",
    "socket-pair-inet",
];

/// What gives nothing to whoever gets it.
const EITHER: &[&str] = &[
    // Without `CAP_SETPCAP` it cannot be emptied; with `no_new_privs` it gives nothing.
    "capabilities-bounding",
    // Names a process; every use of it is a probe of its own.
    "descriptor-of-process",
    // `ps` of a machine without pid namespaces.
    "proc-command-line",
    // Numbers of descriptors and addresses, no contents; what they lead to are probes of their own. Root's `/proc` hides them.
    "proc-descriptors",
    "proc-mapped-files",
    // The same user's processes can be scheduled otherwise, which delays them; without a pid namespace nothing forbids it but
    // a filter that would forbid threads to do it to themselves. SECURITY.md names it.
    "affinity-set",
    "scheduler-set",
    "scheduler-attributes-set",
    // Confines further.
    "landlock-version",
    "filter-of-its-own",
    // In a network namespace of its own nobody else sees the name.
    "bind-abstract",
];

/// Where a host has no such thing, or the test did not give what is attacked.
const MAY_BE_ABSENT: &[&str] =
    &["setuid-program", "connect-server", "disk-device", "execute-in-new-session", "read-execute-by-loader"];

const WORK_WITHOUT_WRITING: &[&str] = &[
    "work-lock",
    "work-read-system",
    "work-shell",
    "work-signal-own-child",
    "work-wait-by-descriptor",
    "work-thread",
    "work-null",
    "work-random",
    "work-terminal-pair",
    "work-own-proc",
    "work-change-name",
    "work-memory-file",
    "work-shared-memory",
    "work-event-poll",
    "work-watch-files",
    "work-lower-priority",
    "work-read-protected",
];

const WORKS_WITHOUT_NETWORK: &[&str] = &["unix-stream-socket", "unix-socket-pair", "descriptor-over-socket-pair"];

const WORKS_WITH_NETWORK: &[&str] = &[
    "socket-inet-stream",
    "socket-inet-datagram",
    "socket-inet6-stream",
    "socket-inet6-datagram",
    "connect-tcp",
    "connect-tcp-mapped",
    "connect-tcp-any",
    "send-udp",
    "ask-name",
    "bind-tcp",
    "bind-udp",
    "listen-without-bind",
];

/// With the network, too: these need rights, or reach what is not the network.
const NEVER_IN_NETWORK: &[&str] = &["socket-raw", "socket-raw6", "connect-server"];

/// Probes that a plain user is denied by any kernel: they need root, or what root owns.
pub(crate) const NEEDS_ROOT: &[&str] = &[
    "capabilities-effective",
    "capabilities-permitted",
    "become-root",
    "become-group-root",
    "drop-groups",
    "become-other-user",
    "make-device",
    "make-device-in-the-workspace",
    "sysctl-hostname",
    "sysctl-core-pattern",
    "sysctl-dmesg-restrict",
    "sysctl-randomize",
    "sysctl-overcommit",
    "sysctl-ip-forward",
    "interrupt-affinity",
    "sysfs-huge-pages",
    "sysfs-device",
    "sysfs-power",
    "cgroup-of-self",
    "cgroup-of-root",
    "cgroup-made",
    "kernel-log-device",
    "kernel-messages",
    "passwords",
    "shadow",
    "preloaded-libraries",
    "read-open-by-handle",
    "signal-init",
    "memory-advice",
    "namespaces-joined",
    "proc-stack",
    "socket-raw",
    "socket-raw6",
    "socket-packet",
    "mount-tmpfs",
    "mount-bind-over",
    "mount-proc",
    "remount-root-writable",
    "remount-outside-writable",
    "mount-propagation",
    "unmount",
    "unmount-proc",
    "pivot-root",
    "move-mount",
    "open-tree-clone",
    "fsopen",
    "fspick",
    "fsmount",
    "mount-attributes",
    "chroot",
    "unshare-mount",
    "unshare-pid",
    "unshare-net",
    "unshare-ipc",
    "unshare-uts",
    "unshare-cgroup",
    "unshare-time",
    "clone-mount",
    "clone-net",
    "clone-pid",
    "join-own-namespace",
    "handle-opened",
    "reboot",
    "swap-on",
    "swap-off",
    "host-name",
    "domain-name",
    "time-of-day",
    "clock-tick",
    "accounting",
    "hang-up",
    "watch-file-system",
    "realtime-scheduling",
    "raise-priority",
];

/// Probes whose success without a sandbox depends on how the kernel was built, and on what the machine has.
pub(crate) const NEEDS_HOST: &[&str] = &[
    "capabilities-inheritable",
    "capabilities-ambient",
    "raise-capabilities",
    "raise-limit",
    "write-by-root-of-init",
    "read-by-root-of-init",
    "proc-environment-of-init",
    "join-namespace-of-init",
    "proc-environment-of-parents",
    "request-to-file-system",
    "sysctl-modprobe",
    "sysctl-user-namespaces",
    "sysrq",
    "binary-formats",
    "sysfs-uevent",
    "cgroup-kill",
    "memory-device",
    "port-device",
    "disk-device",
    "kernel-core",
    "terminal-of-machine",
    "socket-ping",
    "socket-multipath-tcp",
    "connect-tcp-multipath",
    "socket-sctp",
    "socket-vsock",
    "socket-xdp",
    "socket-alg",
    "socket-bluetooth",
    "socket-can",
    "socket-tipc",
    "socket-rds",
    "socket-key",
    "socket-smc",
    "socket-qualcomm",
    "socket-phone",
    "socket-nfc",
    "socket-x25",
    "connect-server",
    // Who has the rights would change what others have.
    "priority-of-user",
    "io-uring-setup",
    "io-uring-enter",
    "io-uring-register",
    "user-fault",
    "user-fault-device",
    "bpf-map",
    "bpf-program",
    "performance-counter",
    "performance-of-machine",
    "performance-of-process",
    "unshare-user",
    "clone-user",
    "clone3-user",
    "user-namespace-and-mount",
    "user-namespace-and-capabilities",
    "kexec-load",
    "kexec-file-load",
    "module-load",
    "module-load-file",
    "module-unload",
    "quota",
    "quota-of-descriptor",
    "kernel-log",
    "kernel-log-size",
    "landlock-version",
    "kvm-device",
    "fuse-device",
    "tunnel-device",
    "loop-device",
    "retired-calls",
    "io-ports",
    "io-privilege",
    "x32-getpid",
    "x32-socket",
    "x32-unshare",
    "x32-ptrace",
    "as-32-bit-getpid",
    "as-32-bit-socket",
    "as-32-bit-unshare",
    "as-32-bit-ptrace",
    "as-32-bit-io-uring",
    "setxattrat",
    "removexattrat",
    "inherited-descriptors",
    "new-privileges",
    "without-filter",
    "setuid-program",
];
