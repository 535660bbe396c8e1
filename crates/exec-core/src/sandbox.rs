//! What a process or a file call may reach: a policy in the words of the machine, without any protocol's shapes.
//!
//! A policy says what is wanted. Whether and by which means this host can enforce it is decided in `exec-sandbox`.

use std::path::{Path, PathBuf};

use crate::writable_paths::WritablePaths;

/// What a process or a file call may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPolicy {
    pub files: FilePolicy,
    pub network: NetworkPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilePolicy {
    Unrestricted,
    /// What no rule matches is out of reach. The rule with the longest path that matches decides; of two for the same
    /// path a denial wins over writing, and writing over reading.
    Restricted {
        rules: Vec<FileRule>,
        /// How deep below its fixed part a glob is looked for, where it must be expanded. `None`: as deep as the files go.
        glob_scan_depth: Option<usize>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRule {
    pub target: RuleTarget,
    pub access: FileAccess,
}

/// What a rule is about: a path and all below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleTarget {
    /// Absolute.
    Path(PathBuf),
    /// Absolute; `*` and `?` do not match a slash, `**` does.
    Glob(String),
    /// What programs need to run at all: system programs, libraries and their configuration.
    SystemFiles,
    /// Where the machine's programs put temporary files: `TMPDIR`, if it is set.
    TemporaryDirectory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    Read,
    /// Reading and writing.
    Write,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkPolicy {
    /// No network.
    Restricted,
    /// A network of its own, in which there is nothing but the process's proxy.
    ProxyOnly,
    Enabled,
}

impl FilePolicy {
    /// Whether everything may be read, and no rule takes anything away from that.
    pub fn reads_everything(&self) -> bool {
        let Self::Restricted { rules, .. } = self else { return true };
        let is_root = |target: &RuleTarget| matches!(target, RuleTarget::Path(path) if path == Path::new("/"));
        rules.iter().any(|rule| is_root(&rule.target)) && rules.iter().all(|rule| rule.access != FileAccess::Deny)
    }
}

/// The most that a server lets its clients reach, whatever policy they ask for. It takes away and never grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCeiling {
    /// The rule that says so, for whoever is refused: `server/roots`, `token/roots`.
    pub rule: String,
    pub files: FilePolicy,
}

/// What may only be read right below every directory that can be written, unless a rule names it: whoever writes it decides
/// what others run later, or reads their credentials.
pub const PROTECTED_NAMES: [&str; 4] = [".git", ".agents", ".codex", ".aws"];

impl SandboxPolicy {
    /// All files can be read and none written.
    pub fn read_only(network: NetworkPolicy) -> Self {
        let everything = FileRule { target: RuleTarget::Path("/".into()), access: FileAccess::Read };
        Self { files: FilePolicy::Restricted { rules: vec![everything], glob_scan_depth: None }, network }
    }

    /// All files can be read; those in the workspace can be written, but for its repository and configuration, and so can
    /// temporary files. As Codex's sandbox of that name.
    pub fn workspace_write(roots: &[PathBuf], network: NetworkPolicy) -> Self {
        let rule = |target, access| FileRule { target, access };
        let path = |path: PathBuf, access| rule(RuleTarget::Path(path), access);
        let mut rules = vec![
            path("/".into(), FileAccess::Read),
            path("/tmp".into(), FileAccess::Write),
            rule(RuleTarget::TemporaryDirectory, FileAccess::Write),
        ];
        for root in roots {
            rules.push(path(root.clone(), FileAccess::Write));
            rules.extend(PROTECTED_NAMES.map(|name| path(root.join(name), FileAccess::Read)));
        }
        Self { files: FilePolicy::Restricted { rules, glob_scan_depth: None }, network }
    }

    /// Whether there is nothing to enforce.
    pub fn allows_everything(&self) -> bool {
        self.files == FilePolicy::Unrestricted && self.network == NetworkPolicy::Enabled
    }
}

/// What confines a process, told to whoever started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxReport {
    /// In the order in which they were applied; never empty.
    pub means: Vec<SandboxMeans>,
}

/// A part of the kernel that confines a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxMeans {
    /// Namespaces of its own, with mounts of its own in them.
    Namespaces,
    /// Rules for files that the kernel checks, by the version of its interface.
    Landlock { abi: u32 },
    /// A filter of system calls.
    Seccomp,
    /// A network of its own.
    NetworkNamespace,
    /// Process ids of its own: it can name no process outside.
    PidNamespace,
    /// A supervisor of ours that the kernel asks, and that changes files in place of the process.
    Supervisor,
}

impl SandboxMeans {
    /// For programs and people: `namespaces`, `network-namespace`, `pid-namespace`, `landlock-7`, `seccomp`, `supervisor`.
    pub fn name(self) -> String {
        match self {
            Self::Namespaces => "namespaces".to_owned(),
            Self::Landlock { abi } => format!("landlock-{abi}"),
            Self::Seccomp => "seccomp".to_owned(),
            Self::NetworkNamespace => "network-namespace".to_owned(),
            Self::PidNamespace => "pid-namespace".to_owned(),
            Self::Supervisor => "supervisor".to_owned(),
        }
    }

    /// The means of that name; `None` if it is one of a later version.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "namespaces" => Some(Self::Namespaces),
            "seccomp" => Some(Self::Seccomp),
            "network-namespace" => Some(Self::NetworkNamespace),
            "pid-namespace" => Some(Self::PidNamespace),
            "supervisor" => Some(Self::Supervisor),
            _ => Some(Self::Landlock { abi: name.strip_prefix("landlock-")?.parse().ok()? }),
        }
    }
}

/// What a child does to itself before its program runs, and cannot undo afterwards. It loses all capabilities in any
/// case. Made from a policy in `exec-sandbox`, carried out in `exec-keeper`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Confinement {
    /// A user namespace comes with it, as a descriptor. Without the rights of root, mounts can be changed only in one.
    pub user_namespace: bool,
    /// In a pid namespace of its own, whose `/proc` is the only one that it sees.
    pub pid_namespace: bool,
    /// In a network of its own, on whose loopback its proxy has these ports: for HTTP, for SOCKS5, then for datagrams.
    pub network: Option<Vec<u16>>,
    /// In a mount namespace of its own. Empty: it stays in that of the machine.
    pub mounts: Vec<MountStep>,
    /// A Landlock ruleset comes with it, as a descriptor: the rights that it restricts, as the kernel's bits.
    pub landlock: Option<u64>,
    /// Programs for the kernel's filter of system calls, in their order; an instruction is eight bytes as the kernel has
    /// them in memory.
    pub filters: Vec<Vec<u64>>,
    /// Files are changed by a supervisor in place of the process, which itself may change none.
    pub supervision: Option<Supervision>,
}

/// What a supervisor of a process does for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervision {
    /// A program for the kernel's filter, as those of [`Confinement`]: it names the calls that the supervisor carries out.
    pub filter: Vec<u64>,
    pub places: WritablePaths,
}

/// A step in making what a sandboxed process sees of the machine's files. Paths are absolute and without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountStep {
    /// Nothing is visible but what the following steps show. If it comes at all, it comes first.
    EmptyRoot,
    /// Everything that is mounted becomes read-only.
    ReadOnlyRoot,
    /// What the machine has at this path, and all below it, is here. Nobody can rename or remove it: it is a mount.
    Bind { path: PathBuf, writable: bool },
    /// In an empty root: a link.
    Link { path: PathBuf, target: PathBuf },
    /// An empty directory that nobody can write.
    EmptyDirectory { path: PathBuf },
    /// Nobody can look into this directory; if `passable`, one can go through it to what later steps show below.
    HideDirectory { path: PathBuf, passable: bool },
    /// Nobody can open this file.
    HideFile { path: PathBuf },
    /// `/dev` has harmless devices only, and terminals and shared memory of its own.
    Devices,
    /// `/proc` can only be read, and where the kernel lets us say so it shows only what is in the sandbox.
    Processes,
}
