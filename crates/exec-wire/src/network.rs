//! The managed network: the proxy a process may be given, and the questions it asks.
//!
//! `network/policyRequest` is the one request a server sends. The shapes are the original's; a server without a proxy
//! decodes them and refuses.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The proxy of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct RemoteNetworkProxyLaunchConfig")]
pub struct NetworkProxy {
    /// How it behaves.
    pub proxy: ProxyConfig,
    /// For its audit log.
    #[serde(default, skip_serializing_if = "AuditMetadata::is_empty")]
    pub audit_metadata: AuditMetadata,
    /// The client's name for the environment.
    #[serde(default)]
    pub environment_id: Option<String>,
    /// The client's name for the execution.
    #[serde(default)]
    pub execution_id: Option<String>,
    /// How long to wait for the client's decision; without it the client is not asked.
    #[serde(default)]
    pub policy_decision_timeout_ms: Option<u64>,
}

/// How a proxy behaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct RemoteNetworkProxyConfig")]
pub struct ProxyConfig {
    /// Whether there is one.
    pub enabled: bool,
    /// Whether it speaks SOCKS5.
    pub enable_socks5: bool,
    /// Whether SOCKS5 carries UDP.
    pub enable_socks5_udp: bool,
    /// Whether it may use another proxy.
    pub allow_upstream_proxy: bool,
    /// Whether every unix socket is in reach.
    pub dangerously_allow_all_unix_sockets: bool,
    /// What it lets through at all.
    pub mode: NetworkMode,
    /// Rules by domain.
    #[serde(default)]
    pub domains: Option<BTreeMap<String, DomainPermission>>,
    /// Domains to be asked about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub review_domains: Vec<String>,
    /// Rules by unix socket.
    #[serde(default)]
    pub unix_sockets: Option<UnixSockets>,
    /// Whether the child may listen on loopback.
    pub allow_local_binding: bool,
    /// What hides credentials from the child.
    #[serde(flatten)]
    pub masking: CredentialMasking,
}

/// What a proxy lets through at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NetworkMode {
    /// Reading requests.
    Limited,
    /// All requests.
    Full,
}

/// A rule about a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DomainPermission {
    /// No rule.
    None,
    /// Through.
    Allow,
    /// Not through.
    Deny,
}

/// Rules by unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(expecting = "struct NetworkUnixSocketPermissions")]
pub struct UnixSockets {
    /// By path.
    #[serde(flatten)]
    pub entries: BTreeMap<String, UnixSocketPermission>,
}

/// A rule about a unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum UnixSocketPermission {
    /// In reach.
    Allow,
    /// Out of reach.
    Deny,
}

/// What hides credentials from the child. The original knows more members; they are not understood here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialMasking {
    /// Whether anything does.
    #[serde(default, skip_serializing_if = "crate::initialize::is_false")]
    pub credential_masking: bool,
}

/// Who is behind a process, for the proxy's audit log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct NetworkProxyAuditMetadata")]
pub struct AuditMetadata {
    /// The conversation.
    pub conversation_id: Option<String>,
    /// The client's version.
    pub app_version: Option<String>,
    /// The account.
    pub user_account_id: Option<String>,
    /// How the user is known.
    pub auth_mode: Option<String>,
    /// Which program.
    pub originator: Option<String>,
    /// The user.
    pub user_email: Option<String>,
    /// The user's terminal.
    pub terminal_type: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The model's short name.
    pub slug: Option<String>,
}

impl AuditMetadata {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A sandboxed process's view of the loopback.
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

/// The server asks whether a process may reach a destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct NetworkPolicyRequestParams")]
pub struct PolicyRequestParams {
    /// Which process.
    pub process_id: String,
    /// Which destination.
    pub request: PolicyRequest,
}

/// A destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(expecting = "struct ExecServerNetworkPolicyRequest")]
pub struct PolicyRequest {
    /// How.
    pub protocol: PolicyProtocol,
    /// Where.
    pub host: String,
    /// At which door.
    pub port: u16,
}

/// How a destination is to be reached.
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

/// The client's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(expecting = "struct NetworkPolicyRequestResponse")]
pub struct PolicyRequestResult {
    /// What it decided.
    pub decision: PolicyDecision,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum PolicyDecision {
    /// Through.
    Allow,
    /// Not through.
    Deny {
        /// Why.
        reason: String,
    },
    /// Somebody must be asked first; not through for now.
    Ask {
        /// Why.
        reason: String,
    },
}

/// The server tells what was decided, by whomever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "struct NetworkPolicyDecisionNotification")]
pub struct PolicyDecisionParams {
    /// Which process.
    pub process_id: String,
    /// When; RFC 3339 with milliseconds.
    pub timestamp: String,
    /// What the rule was about: `domain`, `mode`, …
    pub scope: String,
    /// `allow`, `deny` or `ask`.
    pub decision: String,
    /// Who decided: `decider`, `baseline_policy`, …
    pub source: String,
    /// Why.
    pub reason: String,
    /// How it was to be reached.
    pub protocol: PolicyProtocol,
    /// Where.
    pub host: String,
    /// At which door.
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
