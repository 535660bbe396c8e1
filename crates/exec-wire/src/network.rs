//! The managed network: the proxy a process may be given, and the questions it asks.
//!
//! `network/policyRequest` is the one request a server sends. The shapes are Codex's; a server without a proxy
//! decodes them and refuses.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct RemoteNetworkProxyLaunchConfig")]
pub struct NetworkProxy {
    pub proxy: ProxyConfig,
    #[serde(default, skip_serializing_if = "AuditMetadata::is_empty")]
    pub audit_metadata: AuditMetadata,
    #[serde(default)]
    pub environment_id: Option<String>,
    #[serde(default)]
    pub execution_id: Option<String>,
    /// How long to wait for the client's decision; without it the client is not asked.
    #[serde(default)]
    pub policy_decision_timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct RemoteNetworkProxyConfig")]
pub struct ProxyConfig {
    pub enabled: bool,
    /// Whether it speaks SOCKS5.
    pub enable_socks5: bool,
    /// Whether SOCKS5 carries UDP.
    pub enable_socks5_udp: bool,
    pub allow_upstream_proxy: bool,
    /// Whether every unix socket is in reach.
    pub dangerously_allow_all_unix_sockets: bool,
    pub mode: NetworkMode,
    #[serde(default)]
    pub domains: Option<BTreeMap<String, DomainPermission>>,
    /// Domains about which the client is asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub review_domains: Vec<String>,
    #[serde(default)]
    pub unix_sockets: Option<UnixSockets>,
    /// Whether the child may listen on loopback.
    pub allow_local_binding: bool,
    #[serde(flatten)]
    pub masking: CredentialMasking,
}

/// Which requests a proxy lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NetworkMode {
    /// Only requests that read.
    Limited,
    /// All requests.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DomainPermission {
    /// No rule.
    None,
    /// The proxy connects.
    Allow,
    /// The proxy refuses.
    Deny,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(expecting = "struct NetworkUnixSocketPermissions")]
pub struct UnixSockets {
    /// Rules by path.
    #[serde(flatten)]
    pub entries: BTreeMap<String, UnixSocketPermission>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum UnixSocketPermission {
    /// The process may connect.
    Allow,
    /// The process may not connect.
    Deny,
}

/// Codex's server has more members; they are ignored here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialMasking {
    /// Whether credentials are hidden from the child.
    #[serde(default, skip_serializing_if = "crate::initialize::is_false")]
    pub credential_masking: bool,
}

/// For the proxy's audit log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct NetworkProxyAuditMetadata")]
pub struct AuditMetadata {
    pub conversation_id: Option<String>,
    pub app_version: Option<String>,
    pub user_account_id: Option<String>,
    pub auth_mode: Option<String>,
    pub originator: Option<String>,
    pub user_email: Option<String>,
    /// The user's terminal.
    pub terminal_type: Option<String>,
    pub model: Option<String>,
    /// The model's short name.
    pub slug: Option<String>,
}

impl AuditMetadata {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What of the loopback a sandboxed process may use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct ManagedNetworkSandboxContext")]
pub struct ManagedNetwork {
    /// Ports it may connect to.
    #[serde(default)]
    pub loopback_ports: Vec<u16>,
    /// Whether it may listen.
    #[serde(default)]
    pub allow_local_binding: bool,
}

/// The server asks the client whether a process may reach a destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct NetworkPolicyRequestParams")]
pub struct PolicyRequestParams {
    pub process_id: String,
    pub request: PolicyRequest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(expecting = "struct ExecServerNetworkPolicyRequest")]
pub struct PolicyRequest {
    pub protocol: PolicyProtocol,
    pub host: String,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicyProtocol {
    /// Plain HTTP.
    #[serde(rename = "http")]
    Http,
    /// A tunnel.
    #[serde(rename = "https_connect")]
    HttpsConnect,
    /// SOCKS5 over TCP.
    #[serde(rename = "socks5_tcp")]
    Socks5Tcp,
    /// SOCKS5 over UDP.
    #[serde(rename = "socks5_udp")]
    Socks5Udp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(expecting = "struct NetworkPolicyRequestResponse")]
pub struct PolicyRequestResult {
    pub decision: PolicyDecision,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum PolicyDecision {
    Allow,
    Deny {
        reason: String,
    },
    /// Somebody must be asked first; refused for now.
    Ask {
        reason: String,
    },
}

/// The server reports a decision, whoever made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct NetworkPolicyDecisionNotification")]
pub struct PolicyDecisionParams {
    pub process_id: String,
    /// RFC 3339 with milliseconds.
    pub timestamp: String,
    /// What the rule was about: `domain`, `mode`, …
    pub scope: String,
    /// `allow`, `deny` or `ask`.
    pub decision: String,
    /// Who decided: `decider`, `baseline_policy`, …
    pub source: String,
    pub reason: String,
    pub protocol: PolicyProtocol,
    pub host: String,
    pub port: u16,
    /// The HTTP method, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The child's end of the connection to the proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Whether the decision overrode the policy.
    #[serde(default)]
    pub policy_override: bool,
}
