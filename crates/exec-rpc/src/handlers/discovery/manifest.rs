//! What a plugin's manifest says about its other files. Pure.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// Where the configuration of MCP servers or apps is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConfigLocation {
    /// In the default file.
    Default,
    /// In the manifest itself.
    Inline,
    /// In this file below the root.
    Path(PathBuf),
    /// The path is not valid, for this reason.
    Invalid(&'static str),
}

/// Where the configuration of the MCP servers and of the apps is. A manifest that cannot be decoded names neither.
pub(super) fn config_locations(manifest: &str) -> (ConfigLocation, ConfigLocation) {
    let manifest: Manifest = serde_json::from_str(manifest).unwrap_or_default();
    let servers = match &manifest.mcp_servers {
        Value::Object(_) => ConfigLocation::Inline,
        other => location(other),
    };
    (servers, location(&manifest.apps))
}

/// A manifest in which one of these members comes twice cannot be decoded.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Manifest {
    mcp_servers: Value,
    apps: Value,
}

fn location(member: &Value) -> ConfigLocation {
    let Value::String(path) = member else { return ConfigLocation::Default };
    let Some(below) = path.strip_prefix("./") else { return ConfigLocation::Invalid("path must start with `./`") };
    let stays = Path::new(below).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if below.is_empty() || !stays {
        return ConfigLocation::Invalid("path must remain below the capability root");
    }
    ConfigLocation::Path(Path::new(below).components().filter(|part| *part != Component::CurDir).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_must_begin_here_and_stay_below() {
        let servers = |value: &str| config_locations(&format!(r#"{{"mcpServers":{value}}}"#)).0;
        assert_eq!(servers(r#""./m.json""#), ConfigLocation::Path("m.json".into()));
        assert_eq!(servers(r#""./x/./b.json""#), ConfigLocation::Path("x/b.json".into()));
        for outside in [r#""./../a.json""#, r#""./a/../b.json""#, r#""./""#, r#"".//c.json""#] {
            assert_eq!(
                servers(outside),
                ConfigLocation::Invalid("path must remain below the capability root"),
                "{outside}"
            );
        }
        for elsewhere in [r#""a.json""#, r#""""#, r#""  ./b.json""#] {
            assert_eq!(servers(elsewhere), ConfigLocation::Invalid("path must start with `./`"), "{elsewhere}");
        }
    }

    #[test]
    fn what_is_no_path_is_inline_or_usual() {
        assert_eq!(
            config_locations(r#"{"mcpServers":{"x":1},"apps":7}"#),
            (ConfigLocation::Inline, ConfigLocation::Default)
        );
        assert_eq!(
            config_locations(r#"{"mcpServers":["./b.json"],"apps":null}"#),
            (ConfigLocation::Default, ConfigLocation::Default)
        );
        assert_eq!(config_locations("not json"), (ConfigLocation::Default, ConfigLocation::Default));
        assert_eq!(config_locations("[1]"), (ConfigLocation::Default, ConfigLocation::Default));
    }
}
