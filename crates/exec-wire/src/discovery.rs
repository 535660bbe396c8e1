//! Looking for skills and plugins: `capabilityRoots/discoverV1`, `capabilities/discoverV2`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::path_uri::PathUri;
use crate::sandbox::SandboxContext;
use crate::shape::{Nullable, shapes};

shapes! {
    #[serde(expecting = "struct WireCapabilityRootsDiscoverParams")]
    pub struct DiscoverRootsParams {
        /// At most [`crate::limits::DISCOVERY_ROOTS`].
        pub roots: Vec<RootRequest>,
    }

    #[serde(expecting = "struct WireCapabilityRootDiscoverRequest")]
    pub struct RootRequest {
        /// The id that the caller gave.
        pub id: String,
        pub path: PathUri,
        /// The sandbox of the search; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }

    /// In the order of the request.
    pub struct DiscoverRootsResult {
        pub roots: Vec<DiscoveredRoot>,
    }

    pub struct DiscoveredRoot {
        /// The id that the caller gave.
        pub id: String,
        pub path: PathUri,
        /// Present if the root is a plugin.
        pub plugin: Nullable<DiscoveredPlugin>,
        pub skills: Vec<DiscoveredSkill>,
        /// The nearest manifest above, if the root has none.
        pub namespace_manifests: Vec<FoundFile>,
        /// Files that could not be read.
        pub warnings: Vec<String>,
        /// Why the root could not be read at all.
        pub error: Nullable<String>,
    }

    pub struct DiscoveredPlugin {
        pub manifest: FoundFile,
        #[serde(default)]
        pub mcp_config: Nullable<FoundFile>,
        #[serde(default)]
        pub apps_config: Nullable<FoundFile>,
    }

    pub struct DiscoveredSkill {
        /// Its `SKILL.md`.
        pub instructions: FoundFile,
        /// Its `agents/openai.yaml`.
        #[serde(default)]
        pub metadata: Nullable<FoundFile>,
    }

    pub struct FoundFile {
        pub path: PathUri,
        pub contents: String,
    }

    /// Finds the skills and plugins that apply in a directory.
    #[serde(expecting = "struct DiscoverV2CapabilitiesRequest")]
    pub struct DiscoverV2Params {
        pub cwd: PathUri,
        /// The sandbox of the search; no sandbox if absent.
        pub sandbox: Option<SandboxContext>,
    }
}

/// Plugins and skills are passed on as they come, because only Codex knows their form here.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DiscoverV2Result {
    pub plugins: Vec<serde_json::Value>,
    pub skills: Vec<serde_json::Value>,
    /// Files that could not be read.
    pub warnings: Vec<String>,
}
