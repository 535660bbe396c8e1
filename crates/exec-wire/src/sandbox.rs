//! What a client wants a process or a file operation to be kept from.
//!
//! Shapes only, mostly for decoding; whether a wish can be granted is asked elsewhere. The mix of camelCase (the
//! context) and snake_case (the profile) is the original's, and so are the type names, which appear in error texts.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::path_uri::PathUri;

/// A profile and what its dynamic parts refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct WireFileSystemSandboxContext")]
pub struct SandboxContext {
    /// What is allowed.
    pub permissions: PermissionProfile,
    /// Whether an approval changed the sandbox.
    #[serde(default, skip_serializing_if = "SandboxOverride::is_none")]
    pub sandbox_override: SandboxOverride,
    /// Where the policy was made, if not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_context: Option<PolicyContext>,
    /// The working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathUri>,
    /// What `project_roots` stands for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspace_roots: Vec<PathUri>,
    /// The home that the policy means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_home_dir: Option<PathUri>,
    /// What `tmpdir` stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_directories: Option<Vec<PathUri>>,
    /// How strict on Windows; always there.
    pub windows_sandbox_level: WindowsSandboxLevel,
    /// What to do with the proxy settings on Windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows_sandbox_proxy_settings_mode: Option<WindowsProxySettingsMode>,
    /// An old way of enforcing it.
    #[serde(default)]
    pub use_legacy_landlock: bool,
}

/// Where a policy was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct WireFileSystemPolicyContext")]
pub struct PolicyContext {
    /// Its working directory.
    #[serde(default)]
    pub cwd: Option<PathUri>,
    /// Its roots.
    #[serde(default)]
    pub workspace_roots: Vec<PathUri>,
}

/// Whether an approval changed the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SandboxOverride {
    /// No.
    #[default]
    NoOverride,
    /// More is allowed, but not all.
    EscalatedSandboxWithRestrictions,
    /// The first attempt runs without.
    BypassSandboxFirstAttempt,
}

impl SandboxOverride {
    fn is_none(&self) -> bool {
        *self == Self::NoOverride
    }
}

/// How strict on Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WindowsSandboxLevel {
    /// Not at all.
    Disabled,
    /// A token with fewer rights.
    RestrictedToken,
    /// With the help of an elevated setup.
    Elevated,
    /// In a container.
    Mxc,
}

/// What to do with the proxy settings on Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WindowsProxySettingsMode {
    /// Make them fit.
    Reconcile,
    /// Leave them.
    Preserve,
}

/// What is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", expecting = "internally tagged enum ExecPermissionProfile")]
pub enum PermissionProfile {
    /// What is listed.
    Managed {
        /// Of the file system.
        file_system: FileSystemPermissions,
        /// Of the network.
        network: NetworkPermission,
    },
    /// Everything.
    Disabled,
    /// Somebody else sees to the files.
    External {
        /// Of the network.
        network: NetworkPermission,
    },
}

/// Of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPermission {
    /// Nothing, or what a proxy lets through.
    Restricted,
    /// Everything.
    Enabled,
}

/// Of the file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", expecting = "internally tagged enum ExecManagedFileSystemPermissions")]
pub enum FileSystemPermissions {
    /// What the entries say.
    Restricted {
        /// The more specific wins; what none names is out of reach.
        entries: Vec<SandboxEntry>,
        /// How deep globs are looked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        glob_scan_max_depth: Option<NonZeroUsize>,
    },
    /// Everything.
    Unrestricted,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(expecting = "struct ExecFileSystemSandboxEntry")]
pub struct SandboxEntry {
    /// About what.
    pub path: SandboxPath,
    /// What is allowed there.
    pub access: SandboxAccess,
    /// What if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_path_behavior: Option<MissingPathBehavior>,
}

/// What is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxAccess {
    /// Looking.
    Read,
    /// Looking and changing.
    Write,
    /// Nothing.
    #[serde(alias = "none")]
    Deny,
}

/// What if a path does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingPathBehavior {
    /// Then the rule is void.
    Skip,
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", expecting = "internally tagged enum ExecFileSystemPath")]
pub enum SandboxPath {
    /// A path and all below it.
    Path {
        /// The path.
        path: PathUri,
    },
    /// Whatever matches.
    GlobPattern {
        /// The pattern.
        pattern: String,
    },
    /// A place with a name.
    Special {
        /// The name.
        value: SpecialPath,
    },
}

/// A place with a name.
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
        /// A part of each.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subpath: Option<String>,
    },
    /// The temporary directories of the context.
    Tmpdir,
    /// `/tmp`
    SlashTmp,
    /// One that a newer client knows; to be ignored.
    Unknown {
        /// Its name.
        path: String,
        /// A part of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subpath: Option<String>,
    },
}
