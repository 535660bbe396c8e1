//! Params, results and notifications, as types.
//!
//! Names of structs are Codex's, because they stand in the errors that clients get (`expected struct FsUnwatchParams`), and
//! so is the order of members, because an array may stand for an object.
//! Members that Codex has and this front has no use for are named where a wrong type in them must be refused.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::native_path::NativePath;

/// The result of a request that has nothing to say.
#[derive(Debug, Serialize)]
pub(crate) struct Empty {}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InitializeParams {
    pub(crate) client_info: ClientInfo,
    pub(crate) capabilities: Option<InitializeCapabilities>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ClientInfo {
    pub(crate) name: String,
    #[serde(rename = "title")]
    _title: Option<String>,
    pub(crate) version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InitializeCapabilities {
    #[serde(default, rename = "explicitGatewayOauth")]
    _explicit_gateway_oauth: bool,
    #[serde(default)]
    pub(crate) experimental_api: bool,
    #[serde(default, rename = "requestAttestation")]
    _request_attestation: bool,
    #[serde(default, rename = "mcpServerOpenaiFormElicitation")]
    _mcp_server_openai_form_elicitation: bool,
    pub(crate) opt_out_notification_methods: Option<Vec<String>>,
    #[serde(rename = "extensions")]
    _extensions: Option<BTreeMap<String, IgnoredAny>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InitializeResponse {
    pub(crate) user_agent: String,
    pub(crate) codex_home: String,
    pub(crate) platform_family: &'static str,
    pub(crate) platform_os: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandExecParams {
    pub(crate) command: Vec<String>,
    pub(crate) process_id: Option<String>,
    #[serde(default)]
    pub(crate) tty: bool,
    #[serde(default)]
    pub(crate) stream_stdin: bool,
    #[serde(default)]
    pub(crate) stream_stdout_stderr: bool,
    pub(crate) output_bytes_cap: Option<usize>,
    #[serde(default)]
    pub(crate) disable_output_cap: bool,
    #[serde(default)]
    pub(crate) disable_timeout: bool,
    pub(crate) timeout_ms: Option<i64>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) env: Option<BTreeMap<String, Option<String>>>,
    pub(crate) size: Option<CommandExecTerminalSize>,
    pub(crate) sandbox_policy: Option<SandboxPolicyShape>,
    pub(crate) permission_profile: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct CommandExecTerminalSize {
    pub(crate) rows: u16,
    pub(crate) cols: u16,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct ProcessTerminalSize {
    pub(crate) rows: u16,
    pub(crate) cols: u16,
}

/// Codex's `sandboxPolicy`.
#[derive(Debug, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    expecting = "internally tagged enum SandboxPolicyDeserialize"
)]
pub(crate) enum SandboxPolicyShape {
    DangerFullAccess,
    ReadOnly {
        #[serde(default)]
        network_access: bool,
        /// Of an earlier version: only the access to everything may still be named.
        #[serde(default, rename = "access", deserialize_with = "read_only_access")]
        _access: (),
    },
    ExternalSandbox {
        #[serde(default)]
        network_access: NetworkAccess,
    },
    WorkspaceWrite {
        #[serde(default)]
        writable_roots: Vec<NativePath>,
        /// The same as the access of the policy above.
        #[serde(default, rename = "readOnlyAccess", deserialize_with = "workspace_access")]
        _read_only_access: (),
        #[serde(default)]
        network_access: bool,
        #[serde(default)]
        exclude_tmpdir_env_var: bool,
        #[serde(default)]
        exclude_slash_tmp: bool,
    },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum LegacyReadOnlyAccess {
    FullAccess,
    Restricted,
}

fn read_only_access<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    full_access(deserializer, "readOnly.access")
}

fn workspace_access<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    full_access(deserializer, "workspaceWrite.readOnlyAccess")
}

fn full_access<'de, D: Deserializer<'de>>(deserializer: D, member: &str) -> Result<(), D::Error> {
    match Option::deserialize(deserializer)? {
        None | Some(LegacyReadOnlyAccess::FullAccess) => Ok(()),
        Some(LegacyReadOnlyAccess::Restricted) => Err(serde::de::Error::custom(format!(
            "{member} is no longer supported; use permissionProfile for restricted reads"
        ))),
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum NetworkAccess {
    #[default]
    Restricted,
    Enabled,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandExecResponse {
    pub(crate) exit_code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandExecWriteParams {
    pub(crate) process_id: String,
    pub(crate) delta_base64: Option<String>,
    #[serde(default)]
    pub(crate) close_stdin: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandExecResizeParams {
    pub(crate) process_id: String,
    pub(crate) size: CommandExecTerminalSize,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandExecTerminateParams {
    pub(crate) process_id: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandExecOutputDelta<'a> {
    pub(crate) process_id: &'a str,
    pub(crate) stream: &'static str,
    pub(crate) delta_base64: String,
    pub(crate) cap_reached: bool,
}

/// A member that may be absent (the default counts) or null (there is no bound).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Bound<T> {
    #[default]
    Default,
    None,
    Some(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bound<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::None, Self::Some))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessSpawnParams {
    pub(crate) command: Vec<String>,
    pub(crate) process_handle: String,
    pub(crate) cwd: NativePath,
    #[serde(default)]
    pub(crate) tty: bool,
    #[serde(default)]
    pub(crate) stream_stdin: bool,
    #[serde(default)]
    pub(crate) stream_stdout_stderr: bool,
    #[serde(default)]
    pub(crate) output_bytes_cap: Bound<usize>,
    #[serde(default)]
    pub(crate) timeout_ms: Bound<i64>,
    pub(crate) env: Option<BTreeMap<String, Option<String>>>,
    pub(crate) size: Option<ProcessTerminalSize>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessWriteStdinParams {
    pub(crate) process_handle: String,
    pub(crate) delta_base64: Option<String>,
    #[serde(default)]
    pub(crate) close_stdin: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessResizePtyParams {
    pub(crate) process_handle: String,
    pub(crate) size: ProcessTerminalSize,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessKillParams {
    pub(crate) process_handle: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessOutputDelta<'a> {
    pub(crate) process_handle: &'a str,
    pub(crate) stream: &'static str,
    pub(crate) delta_base64: String,
    pub(crate) cap_reached: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessExited<'a> {
    pub(crate) process_handle: &'a str,
    pub(crate) exit_code: i32,
    pub(crate) output_drain_timed_out: bool,
    pub(crate) stdout: String,
    pub(crate) stdout_cap_reached: bool,
    pub(crate) stderr: String,
    pub(crate) stderr_cap_reached: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FsReadFileParams {
    pub(crate) path: NativePath,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsReadFileResponse {
    pub(crate) data_base64: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsWriteFileParams {
    pub(crate) path: NativePath,
    pub(crate) data_base64: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FsCreateDirectoryParams {
    pub(crate) path: NativePath,
    pub(crate) recursive: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FsGetMetadataParams {
    pub(crate) path: NativePath,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsGetMetadataResponse {
    pub(crate) is_directory: bool,
    pub(crate) is_file: bool,
    pub(crate) is_symlink: bool,
    pub(crate) created_at_ms: i64,
    pub(crate) modified_at_ms: i64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FsReadDirectoryParams {
    pub(crate) path: NativePath,
}

#[derive(Debug, Serialize)]
pub(crate) struct FsReadDirectoryResponse {
    pub(crate) entries: Vec<FsReadDirectoryEntry>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsReadDirectoryEntry {
    pub(crate) file_name: String,
    pub(crate) is_directory: bool,
    pub(crate) is_file: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FsRemoveParams {
    pub(crate) path: NativePath,
    pub(crate) recursive: Option<bool>,
    pub(crate) force: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsCopyParams {
    pub(crate) source_path: NativePath,
    pub(crate) destination_path: NativePath,
    #[serde(default)]
    pub(crate) recursive: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsWatchParams {
    pub(crate) watch_id: String,
    pub(crate) path: NativePath,
}

#[derive(Debug, Serialize)]
pub(crate) struct FsWatchResponse {
    pub(crate) path: NativePath,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsUnwatchParams {
    pub(crate) watch_id: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsChanged<'a> {
    pub(crate) watch_id: &'a str,
    pub(crate) changed_paths: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EnvironmentAddParams {
    pub(crate) environment_id: String,
    pub(crate) exec_server_url: String,
    pub(crate) connect_timeout_ms: Option<u64>,
    pub(crate) auth_bearer_token: Option<String>,
    pub(crate) websocket_request_id: Option<String>,
    #[serde(rename = "skills")]
    _skills: Option<EnvironmentSkillsParams>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct EnvironmentSkillsParams {
    #[serde(rename = "required")]
    _required: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EnvironmentStatusParams {
    pub(crate) environment_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EnvironmentInfoParams {
    pub(crate) environment_id: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct EnvironmentStatusResponse {
    pub(crate) status: EnvironmentStatusKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum EnvironmentStatusKind {
    Ready,
    Pending,
    Disconnected,
    Unknown,
}

#[derive(Debug, Serialize)]
pub(crate) struct EnvironmentInfoResponse {
    pub(crate) shell: EnvironmentShellInfo,
    pub(crate) cwd: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct EnvironmentShellInfo {
    pub(crate) name: String,
    pub(crate) path: String,
}
