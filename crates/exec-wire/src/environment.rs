//! The machine and its server: `environment/info`, `environment/status`, `environmentConfig/read`.
//!
//! `capabilities` names features of Codex's server, `extensions` those that we add. A server names only what it has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::empty::empty_params;
use crate::path_uri::PathUri;

empty_params! {
    InfoParams,
    StatusParams,
}

/// The machine and its server. Only `shell` is always there; older servers say less.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentInfo {
    /// The account's shell.
    pub shell: ShellInfo,
    /// The server's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor_version: Option<String>,
    /// An opaque id of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The server's working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathUri>,
    /// The account's home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_home_dir: Option<PathUri>,
    /// `linux`, `macos` or `windows`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_os: Option<String>,
    /// Directories a client may put in front of `PATH`.
    #[serde(default)]
    pub prepend_path_dirs: Vec<PathUri>,
    /// Directories that the environment names as temporary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_directories: Option<Vec<PathUri>>,
    /// The platform's temporary directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temp_dir: Option<PathUri>,
    /// Which features of Codex's server there are.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// The names of the extensions that the server has, see [`crate::extension`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShellInfo {
    /// `bash`, `zsh`, `sh`, `powershell` or `cmd`.
    pub name: String,
    /// Its program; a native path, not a URI.
    pub path: String,
}

/// Features of Codex's server; all false unless set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// `process/start` takes `networkProxy`.
    pub network_proxy_launch: bool,
    /// `networkProxy` takes `reviewDomains`.
    pub network_proxy_review_domains: bool,
    /// `networkProxy` takes credential masking.
    pub credential_masking: bool,
    /// Credential masking takes custom providers.
    pub credential_masking_custom_providers: bool,
    /// Discovery takes a sandbox.
    pub capability_discovery_sandbox: bool,
    /// There is `fs/watchMissing`.
    pub fs_watch_missing: bool,
    /// There is `capabilities/discoverV2`.
    pub capability_discovery_v2: bool,
    /// There is `environmentConfig/read`.
    pub environment_config_read: bool,
    /// `http/request` takes `valueEnvVar`.
    pub http_header_env_vars: bool,
    /// `fs/open` takes a sandbox.
    pub sandboxed_file_streaming: bool,
    /// There is `fs/writeBlock`.
    pub file_write_streaming: bool,
    /// `process/start` makes use of `shellSnapshot`.
    pub shell_snapshot_v2: bool,
    /// The sandbox level `mxc` exists.
    pub windows_mxc: bool,
    /// A writable root still protects devices.
    pub linux_root_write_preserves_devices: bool,
    /// An approved writable root still keeps its restrictions.
    pub linux_approved_root_write_preserves_restrictions: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusResult {
    /// `ready`.
    pub status: String,
}

/// Reads parts of the executor's own configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct EnvironmentConfigReadParams")]
pub struct ConfigReadParams {
    /// The directory of the project.
    pub cwd: PathUri,
    /// Keys of interest, each a path of segments.
    pub config_paths: Vec<Vec<String>>,
    /// The same for requirements.
    pub requirements_paths: Vec<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReadResult {
    /// The account's home.
    #[serde(default)]
    pub user_home_dir: Option<PathUri>,
    /// Codex's home directory.
    pub codex_home_dir: PathUri,
    #[serde(default)]
    pub hostname: Option<String>,
    pub config: ConfigStack,
    pub requirements: ConfigStack,
}

/// Layers of configuration, lowest precedence first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigStack {
    /// The layers that have any of the keys.
    pub layers: Vec<ConfigLayer>,
    /// Where a cloud layer would go.
    pub cloud_insertion_index: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigLayer {
    /// For people.
    pub source: String,
    /// What its relative paths are relative to.
    pub base_dir: PathUri,
    /// The selected keys, as TOML.
    pub toml: String,
}
