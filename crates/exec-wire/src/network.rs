//! The managed network: the proxy a process may be given, and the questions it asks.
//!
//! `network/policyRequest` is the one request a server sends. The shapes are Codex's. `domain` turns them into values of
//! the domain, and back.

mod domain;

use std::collections::BTreeMap;

use crate::shape::{Nullable, shapes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

shapes! {
    #[serde(expecting = "struct RemoteNetworkProxyLaunchConfig")]
    pub struct NetworkProxy {
        pub proxy: ProxyConfig,
        #[serde(default, skip_serializing_if = "AuditMetadata::is_empty")]
        pub audit_metadata: AuditMetadata,
        #[serde(default)]
        pub environment_id: Nullable<String>,
        #[serde(default)]
        pub execution_id: Nullable<String>,
        /// How long to wait for the client's decision; without it the client is not asked.
        #[serde(default)]
        pub policy_decision_timeout_ms: Nullable<u64>,
    }

    #[serde(expecting = "struct RemoteNetworkProxyConfig")]
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
        pub domains: Nullable<BTreeMap<String, DomainPermission>>,
        /// Domains about which the client is asked.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub review_domains: Vec<String>,
        #[serde(default)]
        pub unix_sockets: Nullable<UnixSockets>,
        /// Whether the child may listen on loopback.
        pub allow_local_binding: bool,
        #[serde(flatten)]
        pub masking: CredentialMasking,
    }

    /// Which requests a proxy lets through.
    pub enum NetworkMode {
        /// Only requests that read.
        Limited,
        /// All requests.
        Full,
    }

    pub enum DomainPermission {
        /// No rule.
        None,
        /// The proxy connects.
        Allow,
        /// The proxy refuses.
        Deny,
    }

    #[derive(Default)]
    #[serde(expecting = "struct NetworkUnixSocketPermissions")]
    pub struct UnixSockets {
        /// Rules by path.
        #[serde(flatten)]
        pub entries: BTreeMap<String, UnixSocketPermission>,
    }

    pub enum UnixSocketPermission {
        /// The process may connect.
        Allow,
        /// The process may not connect.
        Deny,
    }

    /// Nothing is masked here; the shapes are checked, so that a client that sends a wrong one is told the same everywhere.
    #[derive(Default)]
    pub struct CredentialMasking {
        /// Whether credentials are hidden from the child.
        #[serde(default, skip_serializing_if = "crate::initialize::is_false")]
        pub credential_masking: bool,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub credential_providers: BTreeMap<String, CredentialProvider>,
    }

    /// Which variables hold a credential, and where it may be sent.
    #[derive(Default)]
    #[serde(default, deny_unknown_fields, expecting = "struct CredentialProviderConfig")]
    pub struct CredentialProvider {
        pub env: Vec<String>,
        pub patterns: Vec<String>,
        #[serde(rename = "url_prefixes")]
        pub url_prefixes: Vec<String>,
        #[serde(rename = "url_prefix_from_env")]
        pub url_prefix_from_env: Nullable<String>,
        pub auth: Vec<CredentialUse>,
        pub header: Nullable<String>,
        pub prefix: Nullable<String>,
    }

    /// How a credential is sent.
    pub enum CredentialUse {
        Bearer,
        Token,
        Basic,
        Header,
    }

    /// For the proxy's audit log.
    #[derive(Default)]
    #[serde(expecting = "struct NetworkProxyAuditMetadata")]
    pub struct AuditMetadata {
        pub conversation_id: Nullable<String>,
        pub app_version: Nullable<String>,
        pub user_account_id: Nullable<String>,
        pub auth_mode: Nullable<String>,
        pub originator: Nullable<String>,
        pub user_email: Nullable<String>,
        /// The user's terminal.
        pub terminal_type: Nullable<String>,
        pub model: Nullable<String>,
        /// The model's short name.
        pub slug: Nullable<String>,
    }

    /// What of the loopback a sandboxed process may use.
    #[derive(Default)]
    #[serde(expecting = "struct ManagedNetworkSandboxContext")]
    pub struct ManagedNetwork {
        /// Ports it may connect to.
        #[serde(default)]
        pub loopback_ports: Vec<u16>,
        /// Whether it may listen.
        #[serde(default)]
        pub allow_local_binding: bool,
    }

    /// The server asks the client whether a process may reach a destination.
    #[serde(expecting = "struct NetworkPolicyRequestParams")]
    pub struct PolicyRequestParams {
        pub process_id: String,
        pub request: PolicyRequest,
    }

    #[serde(expecting = "struct ExecServerNetworkPolicyRequest")]
    pub struct PolicyRequest {
        pub protocol: PolicyProtocol,
        pub host: String,
        pub port: u16,
    }

    #[serde(expecting = "struct NetworkPolicyRequestResponse")]
    pub struct PolicyRequestResult {
        pub decision: PolicyDecision,
    }

    /// The server reports a decision, whoever made it.
    #[serde(expecting = "struct NetworkPolicyDecisionNotification")]
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
        pub method: Option<String>,
        /// The child's end of the connection to the proxy.
        pub client: Option<String>,
        /// Whether the decision overrode the policy.
        #[serde(default)]
        pub policy_override: bool,
    }
}

impl AuditMetadata {
    /// Its members by their names.
    fn named(self) -> [(&'static str, Nullable<String>); 9] {
        [
            ("conversationId", self.conversation_id),
            ("appVersion", self.app_version),
            ("userAccountId", self.user_account_id),
            ("authMode", self.auth_mode),
            ("originator", self.originator),
            ("userEmail", self.user_email),
            ("terminalType", self.terminal_type),
            ("model", self.model),
            ("slug", self.slug),
        ]
    }

    fn from_named(value: impl Fn(&str) -> Nullable<String>) -> Self {
        Self {
            conversation_id: value("conversationId"),
            app_version: value("appVersion"),
            user_account_id: value("userAccountId"),
            auth_mode: value("authMode"),
            originator: value("originator"),
            user_email: value("userEmail"),
            terminal_type: value("terminalType"),
            model: value("model"),
            slug: value("slug"),
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
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
