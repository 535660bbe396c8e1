//! What a process or a file call may reach: a policy in the words of the machine, without any protocol's shapes.
//!
//! A policy says what is wanted. Whether and by which means this host can enforce it is decided in `exec-sandbox`.

use std::path::PathBuf;

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
    Enabled,
}

impl SandboxPolicy {
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

/// A part of the kernel, or a program, that confines a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxMeans {
    /// Namespaces of its own, made by the program `bwrap`.
    Bubblewrap,
    /// Rules for files that the kernel checks, by the version of its interface.
    Landlock { abi: u32 },
    /// A filter of system calls.
    Seccomp,
}

impl SandboxMeans {
    /// For programs and people: `bubblewrap`, `landlock-7`, `seccomp`.
    pub fn name(self) -> String {
        match self {
            Self::Bubblewrap => "bubblewrap".to_owned(),
            Self::Landlock { abi } => format!("landlock-{abi}"),
            Self::Seccomp => "seccomp".to_owned(),
        }
    }

    /// The means of that name; `None` if it is one of a later version.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "bubblewrap" => Some(Self::Bubblewrap),
            "seccomp" => Some(Self::Seccomp),
            _ => Some(Self::Landlock { abi: name.strip_prefix("landlock-")?.parse().ok()? }),
        }
    }
}
