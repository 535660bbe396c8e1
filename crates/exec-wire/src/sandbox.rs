//! The sandbox that a client asks for, for a process or a file operation.
//!
//! Types, and how they become the domain's policy; whether that can be enforced is decided elsewhere. The mix of camelCase (the
//! context) and snake_case (the profile) is Codex's, and so are the type names, which appear in error texts.

mod domain;
mod file_call;

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::path_uri::PathUri;
use crate::process::RunAs;
use crate::shape::{Nullable, shapes};
pub use domain::BadSandbox;
pub(crate) use file_call::of_file_call;

shapes! {
    /// A permission profile, and what its dynamic parts refer to.
    #[serde(expecting = "struct WireFileSystemSandboxContext")]
    pub struct SandboxContext {
        /// Which files and which network a sandbox allows.
        pub permissions: PermissionProfile,
        /// Whether an approval changed the sandbox.
        #[serde(default, skip_serializing_if = "SandboxOverride::is_none")]
        pub sandbox_override: SandboxOverride,
        /// What the dynamic parts refer to, if not to the two members below.
        pub policy_context: Option<PolicyContext>,
        pub cwd: Option<PathUri>,
        /// What `project_roots` stands for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub workspace_roots: Vec<PathUri>,
        /// The home that the policy means.
        pub user_home_dir: Option<PathUri>,
        /// Read and not used: `tmpdir` stands for the server's own temporary directory.
        pub temporary_directories: Option<Vec<PathUri>>,
        /// Required, although only Windows uses it.
        pub windows_sandbox_level: WindowsSandboxLevel,
        pub windows_sandbox_proxy_settings_mode: Option<WindowsProxySettingsMode>,
        #[serde(default)]
        pub use_legacy_landlock: bool,
        // `of_file_call` reads it: a member more would be told by the errors to whoever sends an array, and the
        // original tells ten.
        /// Ours: whose rights a file call has; those of the server's own user if absent.
        #[serde(skip_deserializing)]
        pub run_as: Option<RunAs>,
    }

    #[serde(expecting = "struct WireFileSystemPolicyContext")]
    pub struct PolicyContext {
        #[serde(default)]
        pub cwd: Nullable<PathUri>,
        #[serde(default)]
        pub workspace_roots: Vec<PathUri>,
    }

    /// Whether an approval changed the sandbox.
    #[derive(Default)]
    pub enum SandboxOverride {
        /// No approval changed it.
        #[default]
        NoOverride,
        /// More is allowed, but not all.
        EscalatedSandboxWithRestrictions,
        /// The first attempt runs without.
        BypassSandboxFirstAttempt,
    }

    pub enum WindowsProxySettingsMode {
        /// Adapt the settings to the sandbox.
        Reconcile,
        /// Leave the settings as they are.
        Preserve,
    }
}

impl SandboxOverride {
    fn is_none(&self) -> bool {
        *self == Self::NoOverride
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WindowsSandboxLevel {
    /// No sandbox.
    Disabled,
    /// A token with fewer rights.
    RestrictedToken,
    /// With the help of an elevated setup.
    Elevated,
    /// In a container.
    Mxc,
}

/// Which files and which network a sandbox allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", expecting = "internally tagged enum ExecPermissionProfile")]
pub enum PermissionProfile {
    /// Only what is listed.
    Managed {
        file_system: FileSystemPermissions,
        network: NetworkPermission,
    },
    Disabled,
    /// Another sandbox restricts the files.
    External {
        network: NetworkPermission,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPermission {
    /// Nothing, or what a proxy lets through.
    Restricted,
    /// The whole network.
    Enabled,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", expecting = "internally tagged enum ExecManagedFileSystemPermissions")]
pub enum FileSystemPermissions {
    /// Only what the entries allow.
    Restricted {
        /// The more specific wins; what none names is out of reach.
        entries: Vec<SandboxEntry>,
        /// How deep globs are looked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        glob_scan_max_depth: Option<NonZeroUsize>,
    },
    Unrestricted,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(expecting = "struct ExecFileSystemSandboxEntry")]
pub struct SandboxEntry {
    pub path: SandboxPath,
    pub access: SandboxAccess,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_path_behavior: Option<MissingPathBehavior>,
}

/// Which files and which network a sandbox allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxAccess {
    /// Reading only.
    Read,
    /// Reading and writing.
    Write,
    /// No access.
    #[serde(alias = "none")]
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingPathBehavior {
    /// The rule does not apply.
    Skip,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", expecting = "internally tagged enum ExecFileSystemPath")]
pub enum SandboxPath {
    /// A path and all below it.
    Path {
        path: PathUri,
    },
    GlobPattern {
        pattern: String,
    },
    /// A path that depends on the machine or the context.
    Special {
        value: SpecialPath,
    },
}

/// A path that depends on the machine or the context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", expecting = "internally tagged enum FileSystemSpecialPath")]
pub enum SpecialPath {
    /// `/`
    Root,
    /// What programs need to run at all.
    Minimal,
    /// The workspace roots.
    #[serde(alias = "current_working_directory")]
    ProjectRoots {
        /// A path below each root.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subpath: Option<String>,
    },
    /// The temporary directories of the context.
    Tmpdir,
    /// `/tmp`
    SlashTmp,
    /// A kind that a newer client knows; to be ignored.
    Unknown {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subpath: Option<String>,
    },
}
