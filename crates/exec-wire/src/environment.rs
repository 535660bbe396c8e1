//! The machine and its server: `environment/info`, `environment/status`, `environmentConfig/read`; and where a server has
//! several environments, which of them a request is for ([`EnvironmentId`]) and `environment/list`, `add` and `remove`.
//!
//! `capabilities` names features of Codex's server, `extensions` those that we add. A server names only what it has.

mod environment_id;

use crate::empty::{empty_params, empty_results};
use crate::path_uri::PathUri;
use crate::shape::{Nullable, shapes};

pub use environment_id::EnvironmentId;

empty_params! {
    InfoParams,
    StatusParams,
    /// Asks for every environment of the server.
    #[schemars(rename = "EnvironmentListParams")]
    ListParams,
}

empty_results! {
    #[schemars(rename = "EnvironmentAddResult")]
    AddResult,
}

shapes! {
    /// The machine and its server. Only `shell` is always there; older servers say less.
    pub struct EnvironmentInfo {
        /// The account's shell.
        pub shell: ShellInfo,
        /// The server's version.
        pub executor_version: Option<String>,
        /// An opaque id of the machine.
        pub provider_id: Option<String>,
        /// The server's working directory.
        pub cwd: Option<PathUri>,
        /// The account's home.
        pub user_home_dir: Option<PathUri>,
        /// `linux`, `macos` or `windows`.
        pub platform_os: Option<String>,
        /// Directories a client may put in front of `PATH`.
        #[serde(default)]
        pub prepend_path_dirs: Vec<PathUri>,
        /// Directories that the environment names as temporary.
        pub temporary_directories: Option<Vec<PathUri>>,
        /// The platform's temporary directory.
        pub temp_dir: Option<PathUri>,
        /// Which features of Codex's server there are.
        #[serde(default)]
        pub capabilities: Capabilities,
        /// The names of the extensions that the server has, see [`crate::extension`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub extensions: Vec<String>,
    }

    pub struct ShellInfo {
        /// `bash`, `zsh`, `sh`, `powershell` or `cmd`.
        pub name: String,
        /// Its program; a native path, not a URI.
        pub path: String,
    }

    /// Features of Codex's server; all false unless set.
    #[derive(Copy, Default)]
    #[serde(default)]
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

    #[serde(rename = "EnvironmentStatusResult")]
    pub struct StatusResult {
        /// `ready`; of one of several environments also `pending` (nobody has used it yet), `disconnected`, or `unknown` (there
        /// is none of that id).
        pub status: String,
        /// Why it is disconnected.
        pub error: Option<String>,
        /// For how long it has been disconnected.
        pub unreachable_ms: Option<u64>,
    }

    #[serde(rename = "EnvironmentListResult")]
    pub struct ListResult {
        /// In a stable order.
        pub environments: Vec<EnvironmentEntry>,
    }

    pub struct EnvironmentEntry {
        pub environment_id: String,
        /// Whether it is the one that a request without `environmentId` is for.
        pub is_default: bool,
        /// Where it is, for people.
        pub place: String,
        /// As in `environment/status`.
        pub status: String,
        /// Why it is disconnected.
        pub error: Option<String>,
        /// For how long it has been disconnected.
        pub unreachable_ms: Option<u64>,
    }

    /// Adds an environment, or puts it in the place of the one with that id; only where the server permits it. Nothing is
    /// connected and nothing stored.
    #[serde(rename = "EnvironmentAddParams")]
    pub struct AddParams {
        /// Up to 64 ASCII letters, digits, `-` and `_`.
        pub environment_id: String,
        /// `ws://…` or `wss://…`.
        pub exec_server_url: String,
        /// How long connecting may take.
        pub connect_timeout_ms: Option<u64>,
        /// What the server there asks for. It is never told to anybody else.
        pub auth_bearer_token: Option<String>,
    }

    #[serde(rename = "EnvironmentRemoveParams")]
    pub struct RemoveParams {
        pub environment_id: String,
    }

    #[derive(Copy)]
    #[serde(rename = "EnvironmentRemoveResult")]
    pub struct RemoveResult {
        /// False if there was none of that id.
        pub removed: bool,
    }

    /// Reads parts of the executor's own configuration.
    #[serde(expecting = "struct EnvironmentConfigReadParams")]
    pub struct ConfigReadParams {
        /// The directory of the project.
        pub cwd: PathUri,
        /// Keys of interest, each a path of segments.
        pub config_paths: Vec<Vec<String>>,
        /// The same for requirements.
        pub requirements_paths: Vec<Vec<String>>,
    }

    pub struct ConfigReadResult {
        /// The account's home.
        #[serde(default)]
        pub user_home_dir: Nullable<PathUri>,
        /// Codex's home directory.
        pub codex_home_dir: PathUri,
        #[serde(default)]
        pub hostname: Nullable<String>,
        pub config: ConfigStack,
        pub requirements: ConfigStack,
    }

    /// Layers of configuration, lowest precedence first.
    #[derive(Default)]
    pub struct ConfigStack {
        /// The layers that have any of the keys.
        pub layers: Vec<ConfigLayer>,
        /// Where a cloud layer would go.
        pub cloud_insertion_index: u64,
    }

    pub struct ConfigLayer {
        /// For people.
        pub source: String,
        /// What its relative paths are relative to.
        pub base_dir: PathUri,
        /// The selected keys, as TOML.
        pub toml: String,
    }
}
