//! Looking for skills and plugins: `capabilityRoots/discoverV1`, `capabilities/discoverV2`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::path_uri::PathUri;
use crate::sandbox::SandboxContext;

/// Roots to look through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(expecting = "struct WireCapabilityRootsDiscoverParams")]
pub struct DiscoverRootsParams {
    /// At most [`crate::limits::DISCOVERY_ROOTS`].
    pub roots: Vec<RootRequest>,
}

/// A root to look through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(expecting = "struct WireCapabilityRootDiscoverRequest")]
pub struct RootRequest {
    /// The caller's name for it.
    pub id: String,
    /// Where it is.
    pub path: PathUri,
    /// What the search may see.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// What was found, in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiscoverRootsResult {
    /// Per root.
    pub roots: Vec<DiscoveredRoot>,
}

/// What was found in one root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredRoot {
    /// The caller's name for it.
    pub id: String,
    /// Where it is.
    pub path: PathUri,
    /// The plugin, if the root is one.
    pub plugin: Option<DiscoveredPlugin>,
    /// The skills below it.
    pub skills: Vec<DiscoveredSkill>,
    /// The nearest manifest above, if the root has none.
    pub namespace_manifests: Vec<FoundFile>,
    /// What could not be read.
    pub warnings: Vec<String>,
    /// Why nothing could.
    pub error: Option<String>,
}

/// A plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredPlugin {
    /// Its manifest.
    pub manifest: FoundFile,
    /// Its MCP servers.
    #[serde(default)]
    pub mcp_config: Option<FoundFile>,
    /// Its apps.
    #[serde(default)]
    pub apps_config: Option<FoundFile>,
}

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiscoveredSkill {
    /// Its `SKILL.md`.
    pub instructions: FoundFile,
    /// Its `agents/openai.yaml`.
    #[serde(default)]
    pub metadata: Option<FoundFile>,
}

/// A file with its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundFile {
    /// Where it is.
    pub path: PathUri,
    /// What it says.
    pub contents: String,
}

/// Asks for all skills and plugins that count in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(expecting = "struct DiscoverV2CapabilitiesRequest")]
pub struct DiscoverV2Params {
    /// The directory.
    pub cwd: PathUri,
    /// What the search may see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// What was found. What a plugin and a skill look like here is the original's business, so they stay as they come.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DiscoverV2Result {
    /// Plugins.
    pub plugins: Vec<serde_json::Value>,
    /// Skills.
    pub skills: Vec<serde_json::Value>,
    /// What could not be read.
    pub warnings: Vec<String>,
}
